"""The shell around the share coordinator: its topic `__share_group_state`, loading, and keeping the topic short."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from klamm_base.internal_topics import SHARE_GROUPS_TOPIC
from klamm_broker.coordinator.effects import Effect, KeyValue, Now, ShareKeyLike, Token
from klamm_broker.coordinator.share.model import ShareKey
from klamm_broker.coordinator.share.states import ShareStates, StateConfig, Written
from klamm_broker.log.errors import LogError
from klamm_broker.server.effects import EffectRunner
from klamm_broker.server.topic_loading import partitions_to_load, read_partitions
from klamm_kafka.wire.errors import ErrorCode

if TYPE_CHECKING:
    from klamm_broker.server.storage import Storage
    from klamm_broker.server.topic_changes import TopicChanges
    from klamm_broker.server.topics import Partition
    from klamm_kafka.wire.batch import BatchHeader, Record

log = logging.getLogger(__name__)

Errors = Mapping[ShareKeyLike, ErrorCode]


class ShareStateShell:
    """Connects the share coordinator to the broker. `on_changed` is called for a key whose state was begun anew or deleted."""

    def __init__(self, storage: Storage, topic_changes: TopicChanges) -> None:
        config = storage.config
        self._storage = storage
        self._topic_changes = topic_changes
        existing = storage.topics.partition_count(SHARE_GROUPS_TOPIC)
        prefix = "share.coordinator"
        self.states = ShareStates(
            StateConfig(
                partitions=existing or config[f"{prefix}.state.topic.num.partitions"],
                updates_per_snapshot=config[f"{prefix}.snapshot.update.records.per.snapshot"],
                cold_ms=config[f"{prefix}.cold.partition.snapshot.interval.ms"],
            ),
            log_end=self._log_end,
        )
        self.runner = EffectRunner(
            storage, partition=self._partition, recover=self.states.recover, settled=lambda: None
        )
        self.ask, self.now = self.runner.ask, self.runner.now
        self.on_changed: Callable[[ShareKey], None] = lambda _: None
        self._loading: asyncio.Task[None] | None = None

    # Life

    def open(self) -> None:
        """Start to load the topic; until that is done, its keys answer that they load."""
        topic = self._storage.topics.by_name.get(SHARE_GROUPS_TOPIC)
        full = [] if topic is None else partitions_to_load(topic)
        for partition in full:
            self.states.start_loading(partition.index)
        if full:
            self._loading = self._storage.loop.create_task(self._load(full))

    async def _load(self, partitions: Sequence[Partition]) -> None:
        started = time.monotonic()

        def take(index: int, header: BatchHeader, batch: Sequence[Record]) -> None:
            if not header.is_control:
                values = [KeyValue(r.key, r.value) for r in batch if r.key is not None]
                self.states.replay(index, header.base_offset, values)

        records = await read_partitions(
            partitions, take, lambda partition: self.states.finish_loading(partition.index)
        )
        took_ms = (time.monotonic() - started) * 1000
        log.info("loaded states of share groups from %d records in %d ms", records, took_ms)

    def close(self) -> None:
        if self._loading is not None:
            self._loading.cancel()

    def prune(self) -> None:
        """Hide the records that no state needs."""
        self.runner.run(self.states.write_cold_snapshots(self.now()))
        for index, offset in self.states.redundant_before().items():
            partition = self._storage.partition(SHARE_GROUPS_TOPIC, index)
            if partition is not None and offset > partition.log.log_start_offset:
                try:
                    partition.log.advance_log_start_offset(min(offset, partition.log.high_watermark))
                except LogError as e:
                    log.error("%s: old records could not be hidden: %s", partition, e)  # noqa: TRY400

    # Changes

    def change(
        self, changes: Mapping[ShareKeyLike, tuple[int, int] | None], done: Callable[[Errors], None]
    ) -> None:
        """Begin states anew, or delete them (None). `done` gets the error of each once all are known."""
        errors: dict[ShareKeyLike, ErrorCode] = {}

        def settle(at: ShareKeyLike, written: Written) -> None:
            errors[at] = written.error
            self.on_changed(ShareKey(*at))
            if len(errors) == len(changes):
                done(errors)

        for at, wanted in list(changes.items()):
            answer = self.ask(self._call(ShareKey(*at), wanted), lambda written: written)
            if isinstance(answer, asyncio.Future):
                answer.add_done_callback(lambda f, at=at: settle(at, f.result()))  # type: ignore[misc]
            else:
                settle(at, answer)

    def _call(self, key: ShareKey, wanted: tuple[int, int] | None) -> Callable[[Token, Now], list[Effect]]:
        if wanted is None:
            return lambda token, now: self.states.delete(key, token, now)
        epoch, offset = wanted
        return lambda token, now: self.states.initialize(key, epoch, offset, token, now)

    def on_topics_deleted(self, topic_ids: frozenset[bytes]) -> None:
        """Forget the states of deleted topics."""
        self.runner.run(self.states.on_topics_deleted(topic_ids, self.now()))

    # The topic

    def _log_end(self, index: int) -> int:
        partition = self._storage.partition(SHARE_GROUPS_TOPIC, index)
        return 0 if partition is None else partition.log.log_end_offset

    def _partition(self, index: int) -> Partition | None:
        return self._storage.partition(SHARE_GROUPS_TOPIC, index) if self.ensure_topic() else None

    def ensure_topic(self) -> bool:
        """Create `__share_group_state` unless it exists. Returns whether it exists now."""
        overrides: dict[str, Any] = {
            "cleanup.policy": "delete",
            "compression.type": "producer",
            "min.insync.replicas": "1",
            "retention.ms": "-1",
            "segment.bytes": str(self._storage.config["share.coordinator.state.topic.segment.bytes"]),
        }
        return self._topic_changes.ensure_internal(
            SHARE_GROUPS_TOPIC, partitions=self.states.config.partitions, overrides=overrides
        )
