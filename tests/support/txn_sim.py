"""A transaction coordinator in simulated time, between logs whose appends wait, fail, or are cut off by a crash.

`state` is `__transaction_state`, `data` are partitions with the real producer state of a log, so that markers and records
are refused as a real partition refuses them.
"""

from __future__ import annotations

import itertools
from collections import deque
from dataclasses import dataclass, replace

from klamm_broker.coordinator.effects import Append, Effect, KeyValue, Now, Reply, WriteMarker
from klamm_broker.coordinator.model import TopicPartition
from klamm_broker.coordinator.producer_ids import ProducerIds
from klamm_broker.coordinator.transactions.coordinator import TransactionCoordinator
from klamm_broker.coordinator.transactions.model import TransactionConfig
from klamm_broker.log.errors import LogError
from klamm_broker.log.producer_state import BatchMetadata, ProducerState
from klamm_kafka.wire.errors import ErrorCode

WALL_MS = 1_700_000_000_000


@dataclass
class Write:
    """A client's write in a transaction; `committed` once a marker has decided on it."""

    producer_id: int
    transaction: object
    committed: bool | None = None


class DataPartition:
    """A partition's producers, and the records that clients wrote into it."""

    def __init__(self) -> None:
        self.producers = ProducerState()
        self.writes: list[Write] = []
        self.end = 0

    def write(self, producer_id: int, epoch: int, transaction: object) -> Write:
        """Appends a record of a transaction. Raises LogError."""
        self.producers.check(producer_id, epoch, 0, 0, transactional=True, where="data")
        batch = BatchMetadata(-1, self.end, 0, 0)
        self.producers.update(producer_id, epoch, batch, transactional=True, timestamp=0)
        self.end += 1
        self.writes.append(Write(producer_id, transaction))
        return self.writes[-1]

    def mark(self, marker: WriteMarker) -> None:
        """Appends a marker. Raises LogError."""
        producer_id, epoch = marker.producer
        self.producers.check_marker(
            producer_id,
            epoch,
            marker.coordinator_epoch,
            transaction_version=marker.transaction_version,
            where="data",
        )
        self.producers.end_transaction(
            producer_id,
            epoch,
            offset=self.end,
            aborted=not marker.committed,
            coordinator_epoch=marker.coordinator_epoch,
            timestamp=0,
        )
        self.end += 1
        for write in self.writes:
            if write.producer_id == producer_id and write.committed is None:
                write.committed = marker.committed


class Sim:
    """With `auto` appends and markers succeed at once."""

    def __init__(self, *, auto: bool = True, transaction_version: int = 2, **config: int) -> None:
        self.auto = auto
        self.transaction_version = transaction_version
        self.config = TransactionConfig(**{"log_partitions": 3, **config})
        self.mono_ms = 0
        self.epoch = 0
        self.first_free = 0
        self.state: dict[int, list[KeyValue]] = {}
        self.data: dict[TopicPartition, DataPartition] = {}
        self.replies: dict[object, object] = {}
        self._tokens = itertools.count()
        self.coordinator = self._start()

    @property
    def now(self) -> Now:
        return Now(self.mono_ms, WALL_MS + self.mono_ms)

    # Life

    def _start(self) -> TransactionCoordinator:
        self.in_flight: dict[object, deque[Append | WriteMarker]] = {}

        def store(first_free: int) -> None:
            self.first_free = first_free

        self.ids = ProducerIds(self.first_free, store)
        coordinator = self.load()
        coordinator.start(self.now)
        return coordinator

    def load(self) -> TransactionCoordinator:
        """Returns a coordinator as it is before it loads."""
        return TransactionCoordinator(
            self.config,
            new_producer_id=self.ids.allocate,
            coordinator_epoch=lambda _: self.epoch,
            transaction_version=lambda: self.transaction_version,
        )

    def restart(self, *, written: int = 0) -> None:
        """Crashes: nobody hears of what is in flight, of which the first `written` of each log were written."""
        for queue in self.in_flight.values():
            for effect in itertools.islice(queue, written):
                self._write(effect)
        self.epoch += 1
        self.coordinator = self._start()
        for partition in self.state:
            self.coordinator.start_loading(partition)
        for partition, log in self.state.items():
            self.coordinator.replay(partition, log)
            self.run(self.coordinator.finish_loading(partition, self.now)[1])

    def replayed(self) -> dict[str, object]:
        """Returns what a coordinator that loaded the log now would know of each id."""
        coordinator = self.load()
        for partition, log in self.state.items():
            coordinator.start_loading(partition)
            coordinator.replay(partition, log)
            coordinator.finish_loading(partition, self.now)
        return {name: t.recorded for name, t in coordinator.transactions.items()}

    def live(self) -> dict[str, object]:
        """Returns what the coordinator knows, as far as it is in the log."""
        return {
            name: replace(t.recorded, last_epoch=-1)
            for name, t in self.coordinator.transactions.items()
            if t.recorded.epoch >= 0
        }

    # Effects

    def ask(self, call) -> object:
        """Returns the token of a request; its answer comes into `replies`."""
        token = next(self._tokens)
        self.run(call(token, self.now))
        return token

    def answer(self, call) -> object:
        """Returns the answer of a request that is answered at once."""
        return self.replies[self.ask(call)]

    def run(self, effects: list[Effect]) -> None:
        queue = deque(effects)
        while queue:
            effect = queue.popleft()
            if isinstance(effect, Reply):
                assert effect.token not in self.replies, f"{effect.token} was answered twice"
                self.replies[effect.token] = effect.response
                continue
            self.in_flight.setdefault(_log_of(effect), deque()).append(effect)
            if self.auto:
                queue.extend(self._finish(_log_of(effect), ErrorCode.NONE))

    def finish(self, log: object, error: ErrorCode = ErrorCode.NONE) -> None:
        """Ends the oldest effect of this log."""
        self.run(self._finish(log, error))

    def finish_all(self) -> None:
        while self.in_flight:
            self.finish(next(iter(self.in_flight)))

    def _finish(self, log: object, error: ErrorCode) -> list[Effect]:
        queue = self.in_flight[log]
        effect = queue.popleft()
        if not queue:
            del self.in_flight[log]
        if error is ErrorCode.NONE:
            error = self._write(effect)
        return effect.then(error, self.now)

    def _write(self, effect: Append | WriteMarker) -> ErrorCode:
        if isinstance(effect, Append):
            self.state.setdefault(effect.partition, []).extend(effect.records)
            return ErrorCode.NONE
        partition = self.data.get(TopicPartition(effect.topic, effect.partition))
        if partition is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        try:
            partition.mark(effect)
        except LogError as e:
            return e.code
        return ErrorCode.NONE

    def advance(self, ms: int) -> None:
        """Let time pass; what is due is done at the end of it."""
        self.mono_ms += ms
        self.run(self.coordinator.tick(self.now))


def _log_of(effect: Append | WriteMarker) -> object:
    if isinstance(effect, Append):
        return effect.partition
    return TopicPartition(effect.topic, effect.partition)
