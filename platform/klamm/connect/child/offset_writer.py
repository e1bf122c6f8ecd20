"""Writes source offsets to the offset topic, in Kafka's format, without blocking the task.

Key `["connector",{partition}]`, value `{offset}`, both compact JSON; the partition of the topic is Java's
(murmur2 of the key). One commit is under way at a time. Invariant: the tracker hears of a commit only when
all of its records are acknowledged. A commit that takes longer than `offset.flush.timeout.ms` is given up (as
Kafka does); the next commit includes its offsets.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from typing import Any, Protocol

import orjson
from confluent_kafka import KafkaError, KafkaException

from klamm.connect.child.offset_tracker import Committable, OffsetTracker
from klamm_plugins.errors import DataError

log = logging.getLogger(__name__)


class Producer(Protocol):
    """The methods of confluent_kafka.Producer that a source task uses."""

    def produce(self, topic: str, value: bytes | None, key: bytes | None, *args: Any) -> None: ...
    def poll(self, timeout: float) -> int: ...
    def flush(self, timeout: float) -> int: ...
    def __len__(self) -> int: ...


class RecordProducer(Producer, Protocol):
    """The further method that sending records needs."""

    def list_topics(self, topic: str | None = ..., timeout: float = ...) -> Any: ...


class TransactionalProducer(Producer, Protocol):
    """The further methods that transactions need."""

    def init_transactions(self, timeout: float = ...) -> None: ...
    def begin_transaction(self) -> None: ...
    def commit_transaction(self, timeout: float = ...) -> None: ...
    def abort_transaction(self, timeout: float = ...) -> None: ...


class _Commit:
    """A commit under way."""

    def __init__(self, offsets: list[Committable], encoded: list[tuple[bytes, bytes]]) -> None:
        self.offsets = offsets
        self.unsent = deque(encoded)
        self.started = time.monotonic()
        self.pending = len(offsets)
        self.error: str | None = None

    def delivered(self, error: KafkaError | None, _: object) -> None:
        self.pending -= 1
        if error is not None:
            self.error = error.str()


class OffsetCopy:
    """Copies the offsets of a connector with its own offsets topic to the workers' topic, once its own topic
    has them.

    So the connector may give its topic up some day. As in Kafka, the fate of the copy changes nothing else.
    """

    def __init__(self, producer: Producer, topic: str) -> None:
        self._producer = producer
        self._topic = topic

    def send(self, encoded: list[tuple[bytes, bytes]]) -> None:
        self._producer.poll(0)
        for key, value in encoded:
            try:
                self._producer.produce(self._topic, value, key, -1, self._delivered)
            except (BufferError, KafkaException) as e:
                log.warning("offsets could not be copied to %s: %s", self._topic, e)

    def close(self) -> None:
        """Gives copies under way a moment to finish."""
        self._producer.flush(1.0)

    def _delivered(self, error: KafkaError | None, _: object) -> None:
        if error is not None:
            log.warning("offsets could not be copied to %s: %s", self._topic, error.str())


class OffsetWriter:
    """Commits source offsets. A commit advances only while others call the producer's `poll`."""

    def __init__(
        self,
        producer: Producer,
        tracker: OffsetTracker,
        *,
        connector: str,
        topic: str,
        timeout_s: float,
        copy: OffsetCopy | None = None,
    ) -> None:
        self._producer = producer
        self._tracker = tracker
        self._connector = connector
        self._topic = topic
        self._timeout_s = timeout_s
        self._copy = copy
        self._commit: _Commit | None = None

    @property
    def busy(self) -> bool:
        """True while a commit is under way."""
        return self._commit is not None

    def begin(self) -> bool:
        """Starts to commit what has advanced; returns False when there is nothing or a commit is under way."""
        offsets = [] if self._commit else self._tracker.committable()
        if not offsets:
            return False
        encoded = [(self._key(c), encode_offset(c.offset)) for c in offsets]
        self._commit = _Commit(offsets, encoded)
        self._produce(self._commit)
        return True

    def _produce(self, commit: _Commit) -> None:
        """Produces as many records as there is room for. Acknowledgements make room if a busy source has
        filled the producer.
        """
        while commit.unsent:
            key, value = commit.unsent[0]
            try:
                self._producer.produce(self._topic, value, key, -1, commit.delivered)
            except BufferError:
                return
            except KafkaException as e:
                commit.error = str(e)
                return
            commit.unsent.popleft()

    def finish(self) -> bool:
        """Advances the commit under way; returns True when it is complete now."""
        commit = self._commit
        if commit is None:
            return False
        self._produce(commit)
        if commit.error is not None or time.monotonic() - commit.started > self._timeout_s:
            why = commit.error or f"not acknowledged within {self._timeout_s:g} s"
            log.error(
                "offsets could not be committed to %s: %s; the next commit includes them", self._topic, why
            )
            self._commit = None
        elif commit.pending == 0:
            self._tracker.committed(commit.offsets)
            self._commit = None
            if self._copy is not None:
                self._copy.send([(self._key(c), encode_offset(c.offset)) for c in commit.offsets])
            return True
        return False

    def _key(self, committable: Committable) -> bytes:
        return encode_key(self._connector, committable.partition)


def encode_key(connector: str, partition: dict[str, Any]) -> bytes:
    """Returns the offset topic's key of a source partition."""
    return _json([connector, partition], "source partition")


def encode_offset(offset: dict[str, Any]) -> bytes:
    """Returns the offset topic's value."""
    return _json(offset, "source offset")


def _json(value: Any, what: str) -> bytes:
    try:
        return orjson.dumps(value)
    except (TypeError, ValueError) as e:
        raise DataError(f"A {what} can hold only JSON values: {value!r}: {e}") from e
