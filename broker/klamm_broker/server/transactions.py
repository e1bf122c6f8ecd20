"""The shell around the transaction coordinator: its timer, the way to `__transaction_state`, markers into partitions.

The `EffectRunner` does requests and effects. `verify` is for Produce and TxnOffsetCommit, before they write for a
producer. The shell also hands out the broker's producer ids. All calls come from the loop's thread. It decides nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from klamm_base.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from klamm_broker.coordinator.effects import KeyValue
from klamm_broker.coordinator.model import TopicPartition
from klamm_broker.coordinator.producer_ids import ProducerIdResult
from klamm_broker.coordinator.transactions.coordinator import TransactionCoordinator
from klamm_broker.coordinator.transactions.model import AddRequest, ProducerRequest, TransactionConfig
from klamm_broker.log.errors import LogError
from klamm_broker.server.coordinator_timer import CoordinatorTimer
from klamm_broker.server.effects import EffectRunner, Marker
from klamm_broker.server.producer_id_file import open_producer_ids
from klamm_broker.server.topic_loading import partitions_to_load, read_partitions
from klamm_kafka.wire.batch import BatchHeader, Record, encode_end_txn_marker
from klamm_kafka.wire.errors import ErrorCode

if TYPE_CHECKING:
    from klamm_broker.server.cluster_config import ClusterConfig
    from klamm_broker.server.config import BrokerConfig
    from klamm_broker.server.groups import GroupShell
    from klamm_broker.server.storage import Storage
    from klamm_broker.server.topic_changes import TopicChanges
    from klamm_broker.server.topics import Partition

log = logging.getLogger(__name__)

_EVERYTHING: Final = 1 << 62
"""A number of bytes that wakes every reader of committed records: a marker releases all that they waited for."""
_VERSION_ADDING: Final = 2
"""The transaction version whose clients need not add partitions before they write (KIP-890)."""

Errors = dict[TopicPartition, ErrorCode]


class Support(IntEnum):
    """A client's abilities, according to the version of its Produce or TxnOffsetCommit."""

    INVALID_STATE = 0
    """The client knows INVALID_TXN_STATE, for partitions outside its transaction."""
    ABORTABLE = 1
    """The client knows TRANSACTION_ABORTABLE."""
    ADDS = 2
    """The client leaves the adding of partitions to us."""


class TransactionShell:
    """Connects the transaction coordinator to the broker. Handlers use `coordinator` only to read."""

    def __init__(
        self, storage: Storage, topic_changes: TopicChanges, groups: GroupShell, cluster_config: ClusterConfig
    ) -> None:
        config = storage.config
        self._storage = storage
        self._loop = storage.loop
        self._topic_changes = topic_changes
        self._groups = groups
        self.producer_ids = open_producer_ids(config.log_dir)
        self.coordinator = TransactionCoordinator(
            _config(config, storage.topics.partition_count(TRANSACTIONS_TOPIC)),
            new_producer_id=self.new_producer_id,
            coordinator_epoch=self._coordinator_epoch,
            transaction_version=lambda: cluster_config.features["transaction.version"],
        )
        self.timer = CoordinatorTimer(
            self._loop,
            next_deadline_ms=self.coordinator.next_deadline_ms,
            tick=lambda: self.run(self.coordinator.tick(self.now())),
        )
        self.runner = EffectRunner(
            storage,
            partition=self._partition,
            recover=self.coordinator.tick,
            settled=self.timer.set,
            write_marker=self.write_marker,
        )
        self.ask, self.run, self.now = self.runner.ask, self.runner.run, self.runner.now
        self._loading: asyncio.Task[None] | None = None
        self.markers_written = 0

    # Life

    def open(self) -> None:
        """Start to load `__transaction_state`; until that is done, its ids answer that they load."""
        self._reserve_ids_of_logs()
        topic = self._storage.topics.by_name.get(TRANSACTIONS_TOPIC)
        full = [] if topic is None else partitions_to_load(topic)
        for partition in full:
            self.coordinator.start_loading(partition.index)
        self.coordinator.start(self.now())
        self._loading = self._loop.create_task(self._load(full)) if full else None
        self.timer.set()

    def _reserve_ids_of_logs(self) -> None:
        """Reserve the producer ids in all logs: the directory may be another broker's, or partly restored."""
        for topic in self._storage.topics:
            for partition in topic.partitions:
                for producer_id in partition.log.producers.entries:
                    self.producer_ids.reserve(producer_id)

    async def _load(self, partitions: Sequence[Partition]) -> None:
        coordinator = self.coordinator

        def take(partition: int, header: BatchHeader, batch: Sequence[Record]) -> None:
            if not header.is_control:
                coordinator.replay(partition, [KeyValue(r.key, r.value) for r in batch if r.key is not None])

        def loaded(partition: Partition) -> None:
            try:
                largest_id, effects = coordinator.finish_loading(partition.index, self.now())
                self.producer_ids.reserve(largest_id)
                self.run(effects)
            except Exception:  # a defect must not keep the ids of all other partitions away
                log.exception("%s: what is in it may stay unavailable", partition)

        records = await read_partitions(partitions, take, loaded)
        log.info("loaded %d transactional ids from %d records", len(coordinator.transactions), records)

    def close(self) -> None:
        """Stop the timer and the loading."""
        self.timer.cancel()
        if self._loading is not None:
            self._loading.cancel()

    def new_producer_id(self) -> ProducerIdResult:
        """Returns an id that was never handed out. Refuses while `__transaction_state`, which may hold more ids, is loading."""
        if self._loading is not None and not self._loading.done():
            return ProducerIdResult(error=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return self.producer_ids.allocate()

    # Before a producer's records are written

    def verify(
        self, producer: ProducerRequest, partitions: Iterable[Partition], support: Support
    ) -> Errors | asyncio.Future[Errors]:
        """Returns why a producer may not write to these partitions within its transaction; permitted ones are left out.

        The transaction must be open and contain the partitions. An older client adds them before it writes. For a client that
        `ADDS`, this method adds them, and then the answer may have to wait for a write.
        """
        producer_id, epoch = producer.producer_id, producer.producer_epoch
        errors: Errors = {}
        asked: list[TopicPartition] = []
        for partition in partitions:
            entry = partition.log.producers.entries.get(producer_id)
            if entry is not None and epoch < entry.epoch:
                errors[TopicPartition(partition.topic.name, partition.index)] = (
                    ErrorCode.INVALID_PRODUCER_EPOCH
                )
            elif entry is None or entry.epoch != epoch or entry.current_txn_first_offset is None:
                asked.append(TopicPartition(partition.topic.name, partition.index))
        if not asked:
            return errors

        def told(answer: Errors) -> Errors:
            for at, error in answer.items():
                if error is not ErrorCode.NONE:
                    errors[at] = _for_producer(error, support)
            return errors

        if support is Support.ADDS:
            return self._add(producer, asked, told)
        if not self._storage.config["transaction.partition.verification.enable"]:
            return {}
        return told(self.coordinator.verify_partitions(producer, asked))

    def _add(
        self,
        producer: ProducerRequest,
        partitions: Sequence[TopicPartition],
        convert: Callable[[Errors], Errors],
    ) -> Errors | asyncio.Future[Errors]:
        request = AddRequest(
            transactional_id=producer.transactional_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            partitions=frozenset(partitions),
            client_version=_VERSION_ADDING,
        )
        answer: Errors | asyncio.Future[Errors] = self.ask(
            lambda token, now: self.coordinator.add_partitions(request, token, now),
            lambda error: convert(dict.fromkeys(partitions, error)),
        )
        return answer

    # Markers

    def write_marker(self, topic: str, index: int, marker: Marker, done: Callable[[ErrorCode], None]) -> None:
        """End a transaction in one partition. `done` gets NONE once the marker is committed, or the error."""
        partition = self._storage.partition(topic, index)
        if partition is None:
            done(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return
        if topic == OFFSETS_TOPIC and self._groups.coordinator.is_loading(index):
            done(ErrorCode.NOT_LEADER_OR_FOLLOWER)  # Kafka's answer while it is not ready
            return
        try:
            self._append_marker(partition, marker)
        except LogError as e:
            log.warning("%s: a transaction marker could not be written: %s", partition, e)
            done(e.code)
            return
        except Exception:  # tell its transaction, or it hangs until the next start
            log.exception("%s: a transaction marker could not be written", partition)
            done(ErrorCode.UNKNOWN_SERVER_ERROR)
            return

        def committed(error: ErrorCode) -> None:
            if error is ErrorCode.NONE:
                self._marker_committed(partition, marker)
            done(error)

        self._storage.when_committed(partition, partition.log.log_end_offset, committed)

    def _append_marker(self, partition: Partition, marker: Marker) -> None:
        now_ms = self._storage.now_ms()
        batch = encode_end_txn_marker(
            committed=marker.committed,
            producer_id=marker.producer_id,
            producer_epoch=marker.epoch,
            coordinator_epoch=marker.coordinator_epoch,
            timestamp=now_ms,
        )
        self._storage.append(
            partition,
            batch,
            now_ms=now_ms,
            origin="coordinator",
            transaction_version=marker.transaction_version,
        )
        self.markers_written += 1

    def _marker_committed(self, partition: Partition, marker: Marker) -> None:
        if partition.topic.name == OFFSETS_TOPIC:
            groups = self._groups
            groups.run(
                groups.coordinator.on_marker(
                    partition.index, marker.producer_id, committed=marker.committed, now=groups.now()
                )
            )
        if partition.waiters:  # the last stable offset has moved past older records
            self._storage.waiting.advanced(partition, _EVERYTHING)

    # The topic

    def _coordinator_epoch(self, index: int) -> int:
        partition = self._storage.partition(TRANSACTIONS_TOPIC, index)
        return 0 if partition is None else partition.log.leader_epoch

    def _partition(self, index: int) -> Partition | None:
        return self._storage.partition(TRANSACTIONS_TOPIC, index) if self.ensure_topic() else None

    def ensure_topic(self) -> bool:
        """Create `__transaction_state` unless it exists. Returns whether it exists now."""
        config = self._storage.config
        return self._topic_changes.ensure_internal(
            TRANSACTIONS_TOPIC,
            partitions=self.coordinator.config.log_partitions,
            overrides={
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "min.insync.replicas": "1",
                "segment.bytes": str(config["transaction.state.log.segment.bytes"]),
                "unclean.leader.election.enable": "false",
            },
        )


def _for_producer(error: ErrorCode, support: Support) -> ErrorCode:
    if error is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error is ErrorCode.TRANSACTION_ABORTABLE and support is Support.INVALID_STATE:
        return ErrorCode.INVALID_TXN_STATE
    return error


def _config(config: BrokerConfig, existing_partitions: int | None) -> TransactionConfig:
    """Returns the coordinator's settings. An existing topic determines the number of partitions."""
    return TransactionConfig(
        log_partitions=existing_partitions or config["transaction.state.log.num.partitions"],
        max_timeout_ms=config["transaction.max.timeout.ms"],
        id_expiration_ms=config["transactional.id.expiration.ms"],
        timeout_check_interval_ms=config["transaction.abort.timed.out.transaction.cleanup.interval.ms"],
        expiry_check_interval_ms=config["transaction.remove.expired.transaction.cleanup.interval.ms"],
    )
