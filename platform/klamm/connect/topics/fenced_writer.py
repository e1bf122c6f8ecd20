"""Writes of the leader to the config topic that its successor can fence (KIP-618), one transaction for
each change.

A worker calls `claim` when it becomes the leader. It takes over the group's transactional id, which
aborts the open transaction of the leader before it and makes the broker refuse that leader's later
writes. Only `exactly.once.source.support` needs this.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Producer

from klamm.connect.topics.kafka_log import LogError, RecordTooLarge
from klamm.connect.topics.records import Record

log = logging.getLogger(__name__)

# As long as a request may wait for the config topic.
_TIMEOUT_S: Final = 30.0
_STEP_S: Final = 2.0
_FENCED: Final = frozenset(
    {
        KafkaError._FENCED,  # noqa: SLF001 - spelled so by librdkafka
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.INVALID_PRODUCER_ID_MAPPING,
    }
)


class Fenced(LogError):
    """Another worker has claimed the right to write: this worker no longer leads, or must claim the right
    again.
    """


def leader_transactional_id(group_id: str) -> str:
    """Returns the leader's transactional id (Kafka: DistributedConfig.transactionalProducerId)."""
    return f"connect-cluster-{group_id}"


class FencedWriter:
    """See the module. `client` are librdkafka's settings. One write at a time; claims and writes do not overlap."""

    def __init__(self, client: Mapping[str, Any], group_id: str) -> None:
        self._config = {
            **client,
            "transactional.id": leader_transactional_id(group_id),
            "client.id": f"{group_id}-leader",
            "linger.ms": 0,
            # murmur2 so that keys land in the partitions where Java's workers put them.
            "partitioner": "murmur2_random",
            "log_level": 2,
        }
        self._producer: Producer | None = None
        self._lock = asyncio.Lock()

    @property
    def claimed(self) -> bool:
        """True while `write` may be called: the right was claimed, and not fenced since."""
        return self._producer is not None

    async def claim(self) -> None:
        """Fence the earlier leader. Raises LogError when the broker does not answer in time."""
        async with self._lock:
            self._producer = None
            self._producer = await asyncio.to_thread(self._claim)

    def release(self) -> None:
        """Give up the right to write, because the worker no longer leads."""
        self._producer = None

    async def write(self, topic: str, records: Sequence[Record]) -> None:
        """Write all records or none. Raises Fenced, RecordTooLarge, LogError."""
        async with self._lock:
            producer = self._producer
            if producer is None:
                raise Fenced(f"the right to write to topic {topic} is not claimed")
            try:
                await asyncio.to_thread(_write, producer, topic, records)
            except LogError:
                # After any failure the producer may be useless, so the next claim makes a new one.
                self._producer = None
                raise

    def _claim(self) -> Producer:
        producer = Producer(self._config)
        _patiently("claimed", "the config topic", producer.init_transactions)
        return producer


def _write(producer: Producer, topic: str, records: Sequence[Record]) -> None:
    try:
        producer.begin_transaction()
        for key, value in records:
            producer.produce(topic, key=key.encode(), value=value)
    except KafkaException as e:
        _abort(producer)
        raise _error("written", topic, e.args[0]) from None
    try:
        _patiently("written", topic, producer.commit_transaction)
    except LogError:
        _abort(producer)
        raise


def _abort(producer: Producer) -> None:
    try:
        producer.abort_transaction(_STEP_S)
    except KafkaException as e:
        log.info(
            "a transaction of the config topic could not be aborted; the next producer aborts it: %s",
            e.args[0].str(),
        )


def _patiently(what: str, topic: str, call: Callable[[float], None]) -> None:
    deadline = time.monotonic() + _TIMEOUT_S
    while True:
        try:
            call(_STEP_S)
        except KafkaException as e:
            error: KafkaError = e.args[0]
            again = error.retriable() and not error.txn_requires_abort() and not error.fatal()
            if again and time.monotonic() < deadline:
                continue
            raise _error(what, topic, error) from None
        else:
            return


def _error(what: str, topic: str, error: KafkaError) -> LogError:
    text = f"{topic} could not be {what} in a transaction of the leader: {error.str()} ({error.name()})"
    if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
        return RecordTooLarge(text)
    return Fenced(text) if error.code() in _FENCED else LogError(text)
