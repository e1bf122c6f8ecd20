"""One task of a batch as one Kafka transaction, in a Python worker. `exactly_once` says why this is exactly
once.

Taking over a transactional id takes some 50 ms, so a thread does it while Spark computes the first rows.
The producer is kept: when the marker says that it was the last to commit, it continues without taking over.
If somebody else has taken the id since, the brokers refuse the producer and the task fails, so reusing it
is always safe.
"""

from __future__ import annotations

import contextlib
import logging
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Final

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from klamm_base.errors import ConfigError
from klamm_spark import figures
from klamm_spark.datasource.exactly_once import (
    Marker,
    Turn,
    check_same,
    group_prefix,
    is_written,
    read_marker,
)
from klamm_spark.datasource.options import client_config
from klamm_spark.datasource.outlet import NotWrittenError, Outlet, said, size_of

log = logging.getLogger(__name__)

TIMEOUT_S: Final = 60.0
ABORT_S: Final = 5.0
TRANSACTION_MS: Final = 300_000
"""The time that a task may take. Readers of committed records wait this long for a killed task."""
ANSWER_S: Final = 10.0
"""The time that one question waits for its answer before it is asked again."""
KEPT_S: Final = 2.0
"""The time that a kept producer's marker may be pending on somebody else's transaction. Then the transactional
id is taken back.
"""
RETRY_S: Final = 0.02
_TRY_AGAIN: Final = frozenset(
    {
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.UNSTABLE_OFFSET_COMMIT,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
    }
)
KEPT_MOST: Final = 16
_kept: dict[tuple[str, str], Held] = {}
_admins: dict[tuple[tuple[str, str], ...], AdminClient] = {}


def _is_final(error: KafkaError) -> bool:
    """Returns True when repeating the question would give the same answer. Errors below 0 are librdkafka's own,
    which retries itself.
    """
    return error.code() > 0 and error.code() not in _TRY_AGAIN


class Reader:
    """Reads the marker of one slot: the offset committed for partition 0 of a topic in the slot's group.

    It uses a consumer that never joins: librdkafka's ListConsumerGroupOffsets ends the process with a
    segmentation fault when the coordinator has moved (https://github.com/confluentinc/librdkafka/issues/5040).
    """

    def __init__(self, client: Mapping[str, str], group: str) -> None:
        own = {
            "group.id": group,
            "isolation.level": "read_committed",  # answers once no transaction is pending on the offset
            "enable.auto.commit": False,
            "log_level": "2",
        }
        self._group = group
        try:
            self._consumer = Consumer(client_config(client, "consumer") | own)
        except KafkaException as e:
            raise ConfigError(f"options kafka.*: {e.args[0].str()}", key="kafka.*") from None

    def read(self, topic: str, patience_s: float = TIMEOUT_S) -> Marker | None:
        """Returns the slot's marker once no transaction is pending on it. Raises NotWrittenError."""
        deadline = time.monotonic() + patience_s
        while True:
            try:
                (found,) = self._consumer.committed(
                    [TopicPartition(topic, 0)], timeout=min(ANSWER_S, patience_s)
                )
                error = found.error
            except KafkaException as e:
                error = e.args[0]
            if error is None:
                return read_marker(found.offset, found.metadata)
            reason = self._reason() or error
            if _is_final(reason) or _is_final(error) or time.monotonic() > deadline:
                raise NotWrittenError(
                    f"the committed offsets of group {self._group} cannot be read: {reason.str()} ({reason.name()})"
                ) from None
            time.sleep(RETRY_S)

    def _reason(self) -> KafkaError | None:
        """Returns the reason why there is no coordinator. librdkafka itself answers only with a time-out."""
        reason = None
        while (told := self._consumer.poll(0)) is not None:
            reason = told.error() or reason
        return reason

    @property
    def metadata(self) -> bytes:
        """The group, which has no members, in librdkafka's form."""
        answer: bytes = self._consumer.consumer_group_metadata()
        return answer

    def close(self) -> None:
        self._consumer.close()


@dataclass(slots=True)
class Held:
    """A producer with a transactional id, its name in markers, and its reader of markers."""

    outlet: Outlet
    reader: Reader
    writer: str = field(default_factory=lambda: uuid.uuid4().hex[:12])


@dataclass(frozen=True, slots=True)
class Outcome:
    rows: int
    skipped: bool


class Markers:
    """The markers of all slots of an application."""

    def __init__(self, client: Mapping[str, str], topic: str) -> None:
        self._client = client
        self._topic = topic

    def of(self, prefix: str, application: str, *, first: int = 0) -> Iterator[tuple[int, Marker]]:
        """Yields slots (from `first` on) and markers of an application, as far as they are committed."""
        start = group_prefix(prefix, application)
        try:
            groups = self._admin.list_consumer_groups(request_timeout=TIMEOUT_S).result().valid
        except KafkaException as e:
            raise NotWrittenError(f"groups cannot be listed: {e.args[0].str()}") from None
        for group in (g.group_id for g in groups):
            slot = group.removeprefix(start)
            if not group.startswith(start) or not slot.isdecimal() or int(slot) < first:
                continue
            with contextlib.closing(Reader(self._client, group)) as reader:
                marker = reader.read(self._topic)
            if marker is not None:
                yield int(slot), marker

    @property
    def _admin(self) -> AdminClient:
        key = tuple(sorted(self._client.items()))
        if key not in _admins:
            _admins[key] = AdminClient(client_config(self._client, "admin"))
        return _admins[key]


class Transaction:
    """A task of a batch. `marked` is the topic in whose name markers are committed; at `place`, `figures` reports
    what is waited for.
    """

    def __init__(self, turn: Turn, client: Mapping[str, str], marked: str, place: str | None = None) -> None:
        self._turn = turn
        self._client = client
        self._marked = marked
        self._place = place
        self._key = (turn.name, repr(sorted(client.items())))

    def write(self, batches: Iterable[pa.RecordBatch], topic: str | None) -> Outcome:
        """Writes the rows, or finds that they are already written.

        Raises NotWrittenError (another attempt may succeed) and NotReproducibleError.
        """
        held = _kept.pop(self._key, None)
        before = None if held is None else self._own_marker(held)
        if held is None or before is None:
            reader = Reader(self._client, self._turn.name) if held is None else held.reader
            with ThreadPoolExecutor(1, "take-over") as pool:
                taken = pool.submit(_take_over, self._turn.name, self._client, reader)
                batches = _pulled(batches)
                with self._waiting():
                    held = _result(taken, self._turn)
            with self._waiting():
                before = reader.read(self._marked)
        if before is not None and is_written(before, self._turn):
            outcome = self._skip(before, batches)
        else:
            outcome = self._send(held, batches, topic)
        if before is not None and before.writer != held.writer and (outcome.skipped or not outcome.rows):
            self._mark_again(held, before)
        self._keep(held)
        return outcome

    def _own_marker(self, held: Held) -> Marker | None:
        """Returns the marker if `held` was the last producer to commit.

        No quick answer counts as None. Taking the id over then ends the transaction of a worker that was killed
        between its marker and its commit, and finds out.
        """
        try:
            with self._waiting():
                found = held.reader.read(self._marked, KEPT_S)
        except NotWrittenError:
            return None
        return found if found is not None and found.writer == held.writer else None

    def _waiting(self) -> AbstractContextManager[None]:
        servers = self._client.get("bootstrap.servers", "the brokers")
        return figures.while_waiting(
            figures.base(self._place), f"{servers}: no answer about a transaction yet"
        )

    def _skip(self, before: Marker, batches: Iterable[pa.RecordBatch]) -> Outcome:
        rows = size = 0
        for batch in batches:
            rows, size = rows + batch.num_rows, size + size_of(batch)
        check_same(before, self._turn, rows, size)
        log.info("%s: its %d records were written before, nothing to do", self._turn, rows)
        return Outcome(rows, skipped=True)

    def _mark_again(self, held: Held, before: Marker) -> None:
        """Writes a marker that names the new owner of the transactional id, even when there is nothing else to write.

        The next batch may run in the former owner's worker, which would otherwise believe that it still owns the
        id.
        """
        try:
            held.outlet.producer.begin_transaction()
            self._finish(held, replace(before, writer=held.writer))
        except KafkaException as e:
            _abort(held.outlet)
            raise NotWrittenError(f"{self._turn} cannot be marked: {said(e.args[0])}") from None

    def _send(self, held: Held, batches: Iterable[pa.RecordBatch], topic: str | None) -> Outcome:
        rows = size = 0
        outlet = held.outlet
        outlet.begin(self._place)
        try:
            for batch in batches:
                if rows == 0 and batch.num_rows:
                    outlet.producer.begin_transaction()
                outlet.send(batch, topic)
                rows, size = rows + batch.num_rows, size + size_of(batch)
            if rows:
                self._commit(held, rows, size)
        except BaseException as e:
            _abort(outlet)
            if isinstance(e, KafkaException):
                raise NotWrittenError(f"{self._turn} has written nothing: {said(e.args[0])}") from None
            if isinstance(e, NotWrittenError):
                raise NotWrittenError(f"{self._turn} has written nothing: {e}") from None
            raise
        return Outcome(rows, skipped=False)

    def _commit(self, held: Held, rows: int, size: int) -> None:
        """Commits records and marker together. An unknown outcome is an error: the next attempt finds it out."""
        turn = self._turn
        held.outlet.finish(rows)
        self._finish(
            held, Marker(version=turn.version, rows=rows, size=size, writer=held.writer, run=turn.run)
        )

    def _finish(self, held: Held, marker: Marker) -> None:
        producer = held.outlet.producer
        place = TopicPartition(self._marked, 0, marker.offset, metadata=marker.metadata())
        with self._waiting():
            _until_done(
                lambda: producer.send_offsets_to_transaction([place], held.reader.metadata, TIMEOUT_S)
            )
            _until_done(lambda: producer.commit_transaction(TIMEOUT_S))

    def _keep(self, held: Held) -> None:
        _kept[self._key] = held
        while len(_kept) > KEPT_MOST:
            del _kept[next(iter(_kept))]


def _pulled(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yields the same batches, the first of them computed at once."""
    rest = iter(batches)
    first = next(rest, None)

    def again() -> Iterator[pa.RecordBatch]:
        if first is not None:
            yield first
            yield from rest

    return again()


def _take_over(name: str, client: Mapping[str, str], reader: Reader) -> Held:
    """Returns a producer that owns the transactional id. This ends transactions of former owners and locks them out."""
    config = (
        {"linger.ms": "20", "transaction.timeout.ms": str(TRANSACTION_MS)}
        | client_config(client, "producer")
        | {"acks": "all", "enable.idempotence": True, "transactional.id": name, "log_level": "2"}
    )
    held = Held(Outlet(config), reader)
    held.outlet.producer.init_transactions(TIMEOUT_S)
    return held


def _result(taken: Future[Held], turn: Turn) -> Held:
    try:
        return taken.result()
    except KafkaException as e:
        raise NotWrittenError(
            f"{turn}: transactional id {turn.name} cannot be taken over: {e.args[0].str()}"
        ) from None


def _until_done(step: Callable[[], object]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        try:
            step()
            return
        except KafkaException as e:
            if not e.args[0].retriable() or time.monotonic() > deadline:
                raise


def _abort(outlet: Outlet) -> None:
    """Aborts, so that readers need not wait for the transaction's time-out. The next attempt would end it, too."""
    with contextlib.suppress(KafkaException):
        outlet.producer.purge()
        outlet.producer.abort_transaction(ABORT_S)
