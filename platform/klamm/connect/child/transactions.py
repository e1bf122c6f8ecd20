"""Transactions of an exactly-once source: when they end (pure), and a producer that begins and ends them
patiently.

A transaction begins with its first record or offset. `Boundaries` says when it ends, by
`transaction.boundary`: after each poll, at an interval, or when the connector says so.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Final, Protocol

from confluent_kafka import KafkaError, KafkaException

from klamm.connect.child import clients
from klamm.connect.child.control import Control
from klamm.connect.child.offset_writer import TransactionalProducer
from klamm.connect.child.retry import Stopped
from klamm.connect.validation.definitions import SOURCE
from klamm_base.configdef import parse_key
from klamm_plugins.errors import ConnectError, RetriableError
from klamm_plugins.records import SourceRecord

log = logging.getLogger(__name__)

BOUNDARY: Final = "transaction.boundary"
INTERVAL: Final = "transaction.boundary.interval.ms"
# An interval must end a transaction before the coordinator does; the rest of its time is for the commit.
_SHARE_OF_TIMEOUT: Final = 0.75
_STEP_S: Final = 0.5
_FENCED: Final = frozenset(
    {
        KafkaError._FENCED,  # noqa: SLF001 - spelled so by librdkafka
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.INVALID_PRODUCER_ID_MAPPING,
    }
)


class End(Enum):
    """The two ways in which a transaction ends."""

    COMMIT = "commit"
    ABORT = "abort"


class ContextError(ConnectError):
    """The task asked both to commit and to abort one transaction."""


class WorkerTransactionContext:
    """The task's TransactionContext: it keeps the task's requests, and knows records by their identity."""

    def __init__(self) -> None:
        self._batch: set[End] = set()
        self._records: dict[int, tuple[SourceRecord, set[End]]] = {}  # keeping the record keeps its id unique

    def commit_transaction(self, record: SourceRecord | None = None) -> None:
        self._ask(End.COMMIT, record)

    def abort_transaction(self, record: SourceRecord | None = None) -> None:
        self._ask(End.ABORT, record)

    def take_batch(self) -> End | None:
        """Returns the end that the task asked for after the batch. Raises ContextError if it asked for both."""
        asked, self._batch = self._batch, set()
        return _one(asked, "Connector requested both commit and abort of same transaction")

    def cut(self, records: Sequence[SourceRecord]) -> Iterator[tuple[Sequence[SourceRecord], End | None]]:
        """Yields the batch in parts, each with the end of the transaction after it (None: the transaction
        goes on).
        """
        if not self._records:
            yield records, None
            return
        start = 0
        for i, record in enumerate(records):
            _, asked = self._records.pop(id(record), (record, set[End]()))
            where = f"topic/partition {record.topic}/{record.partition}"
            end = _one(asked, f"Connector requested both commit and abort of same record against {where}")
            if end is not None:
                yield records[start : i + 1], end
                start = i + 1
        if start < len(records):
            yield records[start:], None

    def _ask(self, end: End, record: SourceRecord | None) -> None:
        if record is None:
            self._batch.add(end)
        else:
            self._records.setdefault(id(record), (record, set()))[1].add(end)


def _one(asked: set[End], both: str) -> End | None:
    # Raised here, since a task might catch the error if its own call raised it.
    if len(asked) > 1:
        raise ContextError(both)
    return next(iter(asked), None)


class Boundaries(Protocol):
    """Decides when transactions end. Times are monotonic seconds."""

    def begin(self, now: float) -> None:
        """Called when the task begins, or goes on after a pause."""
        ...

    def parts(self, records: Sequence[SourceRecord]) -> Iterator[tuple[Sequence[SourceRecord], End | None]]:
        """Yields a batch, cut where a transaction ends within it."""
        ...

    def after_batch(self, now: float) -> End | None:
        """Returns how the transaction ends after a poll, also after an empty one; None: it goes on."""
        ...

    def at_rest(self) -> End | None:
        """Returns how the transaction ends before a pause or the end of the task; None: it goes on."""
        ...


class PollBoundaries:
    """Makes each poll a transaction."""

    def begin(self, now: float) -> None:
        pass

    def parts(self, records: Sequence[SourceRecord]) -> Iterator[tuple[Sequence[SourceRecord], End | None]]:
        yield records, None

    def after_batch(self, now: float) -> End | None:
        return End.COMMIT

    def at_rest(self) -> End | None:
        return End.COMMIT


class IntervalBoundaries(PollBoundaries):
    """Lets a transaction last until the first poll that ends after the interval."""

    def __init__(self, interval_s: float) -> None:
        self.interval_s = interval_s
        self._due = 0.0

    def begin(self, now: float) -> None:
        self._due = now + self.interval_s

    def after_batch(self, now: float) -> End | None:
        if now < self._due:
            return None
        self._due = now + self.interval_s
        return End.COMMIT


class ConnectorBoundaries:
    """Lets the task decide."""

    def __init__(self) -> None:
        self.context = WorkerTransactionContext()

    def begin(self, now: float) -> None:
        pass

    def parts(self, records: Sequence[SourceRecord]) -> Iterator[tuple[Sequence[SourceRecord], End | None]]:
        return self.context.cut(records)

    def after_batch(self, now: float) -> End | None:
        return self.context.take_batch()

    def at_rest(self) -> End | None:
        return self.context.take_batch()


def boundaries(config: Mapping[str, str], *, flush_interval_s: float, timeout_s: float) -> Boundaries:
    """Returns the boundaries of the connector's config.

    `flush_interval_s` is the worker's, `timeout_s` the producer's transaction.timeout.ms.
    """
    kind = str(parse_key(SOURCE[BOUNDARY], config)).strip().lower()
    if kind == "connector":
        return ConnectorBoundaries()
    if kind == "poll":
        return PollBoundaries()
    given = parse_key(SOURCE[INTERVAL], config)
    interval_s = flush_interval_s if given is None else given / 1000
    longest_s = timeout_s * _SHARE_OF_TIMEOUT
    if interval_s > longest_s:
        log.warning(
            "transactions are committed every %g s instead of every %g s (%s): longer ones would reach the producer's "
            "transaction.timeout.ms of %g s",
            longest_s, interval_s, INTERVAL, timeout_s,
        )  # fmt: skip
    return IntervalBoundaries(min(interval_s, longest_s))


class Transactions:
    """A producer's transactions. Every call waits for a broker that is away, and raises Stopped when the task
    must stop.

    While it waits, it shows that the task lives.
    """

    def __init__(
        self, producer: TransactionalProducer, control: Control, *, id: str, timeout_s: float
    ) -> None:
        self._producer = producer
        self._control = control
        self._id = id
        self._timeout_s = timeout_s
        self.open = False

    def init(self) -> None:
        """Fences the earlier producers with this id, and aborts their open transactions."""
        self._patiently("initialized", self._producer.init_transactions, at_once=True)

    def begin(self) -> None:
        """Begins a transaction unless one is open."""
        if not self.open:
            self._patiently("begun", lambda _: self._producer.begin_transaction())
            self.open = True

    def commit(self) -> None:
        """Commits. Afterwards all of it is acknowledged and visible; or this raises, and nothing of it ever
        becomes visible.
        """
        self._patiently("committed", self._producer.commit_transaction)
        self.open = False

    def abort(self) -> None:
        self._patiently("aborted", self._producer.abort_transaction)
        self.open = False

    def give_up(self, within_s: float) -> None:
        """Aborts an open transaction on the way out, so that readers need not wait for its time-out. Logs errors."""
        if not self.open:
            return
        self.open = False
        try:
            self._producer.abort_transaction(max(within_s, 0.1))
        except KafkaException as e:
            log.warning(
                "the open transaction of %s could not be aborted and stays open until it times out: %s",
                self._id,
                e.args[0].str(),
            )

    def why(self) -> ConnectError | None:
        """Returns why the transaction failed, when the producer says that it is in no state to take records."""
        try:
            self._producer.commit_transaction(_STEP_S)  # in that state nothing can be committed
        except KafkaException as e:
            return self.refused("continued", e.args[0])
        return None

    def _patiently(self, what: str, call: Callable[[float], None], *, at_once: bool = False) -> None:
        """Repeats `call` while the broker is away.

        `at_once`: raises Stopped as soon as the task is to stop, not only when its time is over.
        """
        while True:
            self._control.vitals.enter("broker")
            try:
                call(_STEP_S)
            except KafkaException as e:
                error: KafkaError = e.args[0]
                if error.txn_requires_abort() or error.fatal() or not _passes(error):
                    raise self.refused(what, error) from e
            else:
                return
            if self._control.stopping.is_set() and (at_once or self._control.stop_remaining_s() <= 0):
                raise Stopped

    def refused(self, what: str, error: KafkaError) -> ConnectError:
        """Returns the task's error for a transaction that has failed."""
        text = f"A transaction of {self._id} could not be {what}: {error.str()} ({error.name()})"
        if error.code() in _FENCED:
            return RetriableError(
                f"{text}. Either another task has taken over its transactional id, or it was unable to finish writing "
                f"records before its transaction expired after {self._timeout_s:g} s: then tune the connector's "
                "producer for higher throughput, increase producer.override.transaction.timeout.ms, decrease "
                f"{INTERVAL}, or use {BOUNDARY}=poll"
            )
        return ConnectError(text)


def _passes(error: KafkaError) -> bool:
    return clients.is_away(error)
