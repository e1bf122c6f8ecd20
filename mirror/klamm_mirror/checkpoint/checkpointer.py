"""Follows the groups of a source cluster and writes their positions to the target, one pass at a time.

`Checkpointer` does the I/O and keeps the state between passes; the time that is passed in decides what is
due. A pass first reads the offset syncs to their end, so that it translates with the latest knowledge.
Raises ClientError: then the caller tries again, and the checkpointer remembers nothing that was not
written.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from klamm_kafka.client import BrokerError, Cluster
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.offset_specs import EARLIEST
from klamm_mirror.checkpoint import groups
from klamm_mirror.checkpoint.coordinators import Committed
from klamm_mirror.checkpoint.groups import Group, Kind, kind_of
from klamm_mirror.checkpoint.left_out import LeftOut
from klamm_mirror.checkpoint.settings import CheckpointSettings
from klamm_mirror.checkpoint.translator import GroupTranslator
from klamm_mirror.offsets.mapping import Translated
from klamm_mirror.offsets.translation import CheckpointStore, Partition, offsets_to_sync
from klamm_mirror.target_admin import Admin
from klamm_mirror.topics import internal_topics
from klamm_mirror.topics.fields import MalformedRecord
from klamm_mirror.topics.formats import Checkpoint

log = logging.getLogger(__name__)

OnWritten = Callable[[Sequence[Checkpoint], int], None]

AT_SOURCE: Final = "at the source"
AT_TARGET: Final = "at the target"
BATCH_RECORDS: Final = 1000
TRIM_S: Final = 600.0
"""Seconds between two looks at which records the target still has."""
REFUSALS: Final[Mapping[int, str]] = {
    ErrorCode.UNKNOWN_MEMBER_ID: "it has members by now",
    ErrorCode.REBALANCE_IN_PROGRESS: "it has members by now",
    ErrorCode.NON_EMPTY_GROUP: "it has members by now",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "there is no such partition yet",
}


@dataclass(slots=True)
class Counts:
    """Checkpoints written and group offsets set since the start; offsets that were translated exactly, by an offset sync,
    and not at all in the last pass.
    """

    checkpoints: int = 0
    synced: int = 0
    exact: int = 0
    by_sync: int = 0
    untranslated: int = 0

    def begin_pass(self) -> None:
        self.exact = self.by_sync = self.untranslated = 0

    def translated(self, found: Translated) -> None:
        self.exact += found.exact
        self.by_sync += not found.exact and found.offset is not None
        self.untranslated += found.offset is None


@dataclass(slots=True)
class _Due:
    """The time of the next action, by a monotonic clock in seconds."""

    every_s: float | None
    at: float = field(default=0.0)

    def now(self, time_s: float) -> bool:
        return self.every_s is not None and time_s >= self.at

    def done(self, time_s: float) -> None:
        self.at = time_s + (self.every_s or 0.0)


class Checkpointer:
    """Does the passes, see the module.

    `syncs_at_source`: see `GroupTranslator`. `admin` creates the checkpoints topic instead of a request. `on_written` gets the
    checkpoints that the target has acknowledged, and the time (ms) when the pass that read them began.
    """

    def __init__(
        self,
        settings: CheckpointSettings,
        *,
        source: Cluster,
        target: Cluster,
        syncs_at_source: bool = True,
        on_written: OnWritten | None = None,
        admin: Admin | None = None,
    ) -> None:
        self._settings = settings
        self._source = source
        self._target = target
        self._admin = admin
        self._on_written = on_written
        self._translator = GroupTranslator(settings, source, target, syncs_at_source=syncs_at_source)
        self._checkpoints = CheckpointStore()
        self._prepared = False
        self._refresh = _Due(settings.refresh_every_s)
        self._emit = _Due(settings.emit_every_s)
        self._sync = _Due(settings.sync_every_s)
        self._trim = _Due(TRIM_S)
        self.groups: dict[str, Kind] | None = None
        self.left_out = LeftOut()
        self.counts = Counts()
        self.passed_ms: int | None = None
        """The time of the last complete pass over the groups; None: none yet."""
        self.synced_ms: int | None = None
        """The time when the groups' offsets at the target were last looked at and set; None: not yet."""

    async def step(self, time_s: float, now_ms: int) -> list[Checkpoint]:
        """Does what is due by a monotonic clock. Returns the written checkpoints, stamped with `now_ms`."""
        if not self._prepared:
            await self._prepare()
            self._prepared = True
        if self.groups is None or self._refresh.now(time_s):
            await self._find_groups()
            self._refresh.done(time_s)
        emit, sync = self._emit.now(time_s), self._sync.now(time_s)
        if not (emit or sync):
            return []
        if not await self._translator.catch_up():  # nothing was mirrored yet
            self._note_pass(now_ms, synced=sync)
            return []
        if self._trim.now(time_s):
            await self._drop_gone()
            self._trim.done(time_s)
        written = await self._follow(now_ms, write=self._settings.emit_every_s is not None)
        self._emit.done(time_s)
        if sync:
            await self._sync_groups()
            self._sync.done(time_s)
        self._note_pass(now_ms, synced=sync)
        return written

    def _note_pass(self, now_ms: int, *, synced: bool) -> None:
        self.passed_ms = now_ms
        if synced:
            self.synced_ms = now_ms

    async def _prepare(self) -> None:
        """Creates the checkpoints topic, or reads from it what was written before."""
        topic = self._settings.checkpoints_topic
        replicas = self._settings.replication_factor
        if await internal_topics.create(self._target, topic, replicas, admin=self._admin):
            return
        async for record in internal_topics.read_present(self._target, topic):
            if record.value is None:
                continue
            try:
                checkpoint = Checkpoint.decode(record.key, record.value)
            except MalformedRecord as e:
                log.warning("%s, offset %d, is no checkpoint and is left out: %s", topic, record.offset, e)
            else:
                if self._settings.is_ours(checkpoint.group):
                    self._checkpoints.remember(checkpoint, record.timestamp)

    async def _find_groups(self) -> None:
        wants = self._settings
        found = {
            name: group.kind
            for name, group in (await groups.list_groups(self._source)).items()
            if wants.is_ours(name) and wants.wants_group(name)
        }
        if found != self.groups:
            log.info("%d groups are followed", len(found))
            log.debug("groups: %s", list(found))
        self._checkpoints.forget([g for g, kind in (self.groups or {}).items() if found.get(g) is not kind])
        self.left_out.keep(found)
        self.groups = found

    async def _drop_gone(self) -> None:
        """Drops the mapping of records that retention has removed from the target. The first task tells the topic."""
        forward = self._translator.forward
        remote = {(self._translator.remote(t), p): (t, p) for t, p in forward.ends()}
        starts = await internal_topics.offsets_of(self._target, list(remote), EARLIEST)
        await forward.trim({remote[p]: at for p, at in starts.items()}, write=self._settings.task == 0)

    def _forget_lost(self) -> None:
        """Forgets checkpoints beyond the target's records when the target lost some, and those of a topic that was deleted."""
        for old in self._checkpoints.forget_outdated(self._translator.mapped_since):
            log.warning(
                "group %s: its checkpoint %d in %s-%d is of a topic that was deleted or made anew: it is forgotten",
                old.group, old.downstream_offset, old.topic, old.partition,
            )  # fmt: skip
        for lost in self._checkpoints.forget_beyond(self._translator.ends()):
            log.warning(
                "group %s: its checkpoint %d lies beyond the end of %s-%d, which was shortened or recreated: it is forgotten",
                lost.group, lost.downstream_offset, lost.topic, lost.partition,
            )  # fmt: skip

    async def _follow(self, now_ms: int, *, write: bool) -> list[Checkpoint]:
        """Translates the groups' committed offsets; writes and remembers new checkpoints."""
        news: list[Checkpoint] = []
        self.counts.begin_pass()
        offsets: dict[str, dict[Partition, Committed]] = {}
        for group, kind in (self.groups or {}).items():
            with self.left_out.unless_refused(group, AT_SOURCE):
                there = await groups.committed_offsets(self._source, group, kind)
                offsets[group] = {place: c for place, c in there.items() if c.offset >= 0}
        places = {place for there in offsets.values() for place in there}
        await self._translator.learn(places, self._checkpoints.topics())
        self._forget_lost()
        for group, there in offsets.items():
            news += self._news(group, there)
        if write:
            for i in range(0, len(news), BATCH_RECORDS):
                await self._write(news[i : i + BATCH_RECORDS], now_ms)
        for checkpoint in news:
            self._checkpoints.remember(checkpoint, now_ms)
        return news if write else []

    def _news(self, group: str, offsets: dict[Partition, Committed]) -> list[Checkpoint]:
        news = []
        for (topic, partition), committed in offsets.items():
            renamed = self._translator.translate(topic, partition, committed.offset)
            if renamed is None:
                continue
            name, found = renamed
            self.counts.translated(found)
            if found.offset is None:
                continue
            checkpoint = Checkpoint(
                group, name, partition, committed.offset, found.offset, committed.metadata
            )
            if self._checkpoints.is_news(checkpoint):
                news.append(checkpoint)
        return news

    async def _write(self, checkpoints: list[Checkpoint], now_ms: int) -> None:
        records = internal_topics.as_records(checkpoints, now_ms)
        try:
            await internal_topics.produce(self._target, self._settings.checkpoints_topic, records)
        except BrokerError as e:
            if e.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:  # deleted: made again, and all is said again
                self._prepared, self._checkpoints = False, CheckpointStore()
            raise
        self.counts.checkpoints += len(records)
        if self._on_written is not None:
            self._on_written(checkpoints, now_ms)

    async def _sync_groups(self) -> None:
        """Sets the offsets of groups that nobody reads with at the target. Never moves a group backwards."""
        states = await groups.list_groups(self._target)
        for group, kind in (self.groups or {}).items():
            checkpoints = {
                place: c
                for place, c in self._checkpoints.of_group(group).items()
                if self._translator.sets(place[0]) and kind_of(c) is kind
            }
            if checkpoints and self._may_set(group, kind, states.get(group)):
                with self.left_out.unless_refused(group, AT_TARGET):
                    await self._sync_group(group, kind, checkpoints)

    def _may_set(self, group: str, kind: Kind, there: Group | None) -> bool:
        if there is not None and there.kind is not kind:
            self.left_out.note(group, AT_TARGET, f"a {there.kind} group has its name there")
            return False
        return there is None or there.idle

    async def _sync_group(self, group: str, kind: Kind, checkpoints: dict[Partition, Checkpoint]) -> None:
        there = await groups.committed_offsets(self._target, group, kind)
        wanted = offsets_to_sync(checkpoints, {p: c.offset for p, c in there.items()})
        if not wanted:
            return
        offsets = {p: Committed(c.downstream_offset, c.metadata) for p, c in wanted.items()}
        refused = await groups.commit_offsets(self._target, group, offsets, kind)
        self.counts.synced += len(offsets) - len(refused)
        for (topic, partition), code in refused.items():
            why = REFUSALS.get(code, f"error {code}")
            log.info("group %s keeps its offset in %s-%d at the target: %s", group, topic, partition, why)
