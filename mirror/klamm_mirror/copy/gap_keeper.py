"""Writes the gaps of stopped partitions into the ledger, and goes on with them as `gap_policy` decides.

Every stop is a gap first: its entry is in the ledger before the partition goes on. While partitions are stopped, the
keeper follows the ledger, into which `klamm mirror resolve` writes. A partition that cannot go on keeps its reason and
delays no other. One event loop.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from klamm_base.backoff import Backoff
from klamm_base.errors import KlammError
from klamm_kafka.client import BrokerError, ClientError, Cluster, broker_error
from klamm_kafka.wire.offset_specs import EARLIEST, LATEST
from klamm_mirror.copy import copy_identity
from klamm_mirror.copy.gap_policy import (
    Decision,
    GapSettings,
    decide,
    gap_of,
    new_name,
    passed,
    recorded,
    went_past,
)
from klamm_mirror.copy.partition import MirrorPartition
from klamm_mirror.copy.topic_makers import TopicMakers
from klamm_mirror.gaps.entries import Gap, GapKey, Known, State
from klamm_mirror.gaps.ledger import Ledger
from klamm_mirror.gaps.made_copies import was_made_by_mirror
from klamm_mirror.gaps.source_cluster import OtherSource, check_source
from klamm_mirror.provenance.tracker import Provenance
from klamm_mirror.settings.plugins import FlowPlugins
from klamm_mirror.stops import Action, Kind, Stop, within
from klamm_mirror.topics import internal_topics, leaders
from klamm_mirror.topics.target import Topics

log = logging.getLogger(__name__)

PAUSE_S: Final = 0.2
FOLLOW_S: Final = 1.0
"""Seconds between two looks into the ledger while partitions are stopped."""
RETRY_S: Final = 30.0
"""Seconds after which a cause that may pass, such as a missing permission, is tried again."""
LACKS_NOTHING: Final = "nothing is missing: all that was read was first written at the target"
GAPS_BYTES: Final = 3_000
"""The size of the latest gaps in a task's status, as JSON."""


class Impossible(KlammError):
    """The way to go on does not fit what is at the target."""


class GapKeeper:
    """The gaps of one task's partitions. `source` and `target` are clients for questions."""

    def __init__(
        self, settings: GapSettings, partitions: Sequence[MirrorPartition], *, source: Cluster, target: Cluster,
        new_producer: Callable[[MirrorPartition], Awaitable[tuple[int, int]]], moved: Callable[[], None],
        mapped: Callable[[], Awaitable[bool]], provenance: Provenance | None = None,
    ) -> None:  # fmt: skip
        self.why: str | None = None
        self.loaded = asyncio.Event()
        """Set once the partitions know what the ledger says of them."""
        self._settings = settings
        self._partitions = {(p.topic, p.partition): p for p in partitions}
        self._source = source
        self._target = target
        self._new_producer = new_producer
        self._moved = moved
        self._mapped = mapped
        self._provenance = provenance
        self._ledger = Ledger(target, settings.topic, settings.replication_factor)
        self._follow_at = 0.0
        self._tried: dict[GapKey, set[int | None]] = defaultdict(set)
        self._tried_at: dict[MirrorPartition, float] = {}
        self._learned: dict[str, Known] = {}
        self._begun: dict[GapKey, Gap] = {}
        """Gaps behind which partitions have begun anew. The ledger learns it once the mapping of offsets begins anew, too."""
        self._lacking: set[tuple[GapKey, bytes | None]] = set()
        """Lost copies that held records of the source, or may have."""
        self._makers = None if provenance is None else TopicMakers(self._was_made_by_mirror)

    # ---- start

    async def _load(self) -> None:
        """Reads the ledger, and tells the partitions what it says of their topics. Waits for the target."""
        backoff = Backoff()
        while True:
            try:
                await self._ledger.catch_up()
                await self._compare_copies()
            except ClientError as e:
                if self.why is None:
                    log.warning("waiting for %s at the target: %s", self._settings.topic, e)
                self.why = str(e)
                await asyncio.sleep(backoff.failed(time.monotonic(), str(e)))
            else:
                self.why = None
                break
        for partition in self._partitions.values():
            self._remember(partition)
        for gap in self._ledger.table.of(self._partitions):
            partition = self._partitions[gap.topic, gap.partition]
            if gap.kind is Kind.RECREATED and gap.topic_id not in {None, partition.topic_id}:
                assert gap.topic_id is not None
                partition.former_ids.add(gap.topic_id)
            begun = gap.done_ms is None and gap.action is not None and not partition.unsent
            if begun and _has_begun(gap, partition):
                self._note_begun(partition, gap)  # a kill came between

    async def _compare_copies(self) -> None:
        """Stops the partitions whose copies are other topics by now, or end before what is committed. Raises ClientError."""
        known = [p for p in self._partitions.values() if not p.whole and p.copy_end >= 0]
        if not known:
            return
        ends = await internal_topics.offsets_of(
            self._target, [(p.remote, p.partition) for p in known], LATEST
        )
        if self._target.metadata is not None:
            copy_identity.identify(known, self._target.metadata)
        copy_identity.ends_are(known, ends)

    def _remember(self, partition: MirrorPartition) -> None:
        """Gives a partition without a committed offset what is known of its topic.

        The first look at a topic commits the ids of all its partitions. So a known partition without an offset was
        reset by somebody, and begins anew; an unknown one of a topic with another id is part of a topic made anew.
        """
        known = self._ledger.table.topics.get(partition.topic)
        if known is None or partition.topic_id is not None or partition.done >= 0:
            return
        if partition.partition >= known.partitions:
            partition.topic_id = known.topic_id
            partition.remote = known.remote or partition.named
            partition.changed()

    def learned(self, partitions: Sequence[MirrorPartition]) -> None:
        """Takes partitions that belong to the topic which has the name now."""
        for partition in partitions:
            known = self._ledger.table.topics.get(partition.topic)
            assert partition.topic_id is not None
            if known is not None and known.topic_id == partition.topic_id:
                partition.remote = known.remote or partition.named
            elif known is not None:
                self._learned[partition.topic] = replace(
                    known, topic_id=partition.topic_id, remote=_other(partition)
                )

    async def check_source(self, cluster_id: str | None) -> None:
        """Raises OtherSource if a cluster with this id answers, and the topics were copied from another. Raises ClientError."""
        try:
            self._check_source(cluster_id)
        except OtherSource:
            await self._ledger.catch_up()  # somebody may have said that it is right
            self._check_source(cluster_id)

    def _check_source(self, cluster_id: str | None) -> None:
        ours, parsed = {topic for topic, _ in self._partitions}, self._settings.parsed
        known = (known for topic, known in self._ledger.table.topics.items() if topic in ours)
        check_source(known, cluster_id, f"{parsed['source.cluster.alias']}->{parsed['target.cluster.alias']}")

    # ---- running

    async def run(self) -> None:
        """Reads the ledger, then looks after stopped partitions until it is cancelled."""
        await self._load()
        self.loaded.set()
        backoff = Backoff()
        while True:
            await asyncio.sleep(PAUSE_S)
            try:
                await self._step(time.monotonic())
            except ClientError as e:
                if self.why is None:
                    log.warning("stopped partitions wait: %s", e)
                self.why = str(e)
                await asyncio.sleep(backoff.failed(time.monotonic(), str(e)))
            else:
                self.why = None
                backoff.succeeded()

    async def _step(self, now: float) -> None:
        if self._begun and not await self._mapped():
            return
        if self._learned or self._begun:
            await self._ledger.write([*self._learned.values(), *self._begun.values()])
            self._learned.clear()
            self._begun.clear()
        stopped = [p for p in self._partitions.values() if p.stopped is not None]
        if stopped and now >= self._follow_at:
            await self._ledger.catch_up()
            self._follow_at = now + FOLLOW_S
        failures: list[ClientError] = []
        for partition in stopped:
            if partition.settled:
                try:
                    await self._treat(partition)
                except ClientError as e:
                    failures.append(e)
        await self._leave_behind()
        if failures:
            raise failures[0]

    async def _leave_behind(self) -> None:
        """Closes the gaps that partitions have left behind."""
        table = self._ledger.table
        waiting = [g for g in table.waiting() if (g.topic, g.partition) in self._partitions]
        past = [
            g for g in waiting
            if g.key not in self._begun and went_past(g, self._partitions[g.topic, g.partition])
        ]  # fmt: skip
        if past:
            behind = [passed(g, self._partitions[g.topic, g.partition]) for g in past]
            await self._ledger.write([_done(g, g.action or Action.SKIP) for g in behind])
            for gap in behind:
                log.info("%s goes on after offset %d: %s", gap, gap.start, gap.action)

    async def _treat(self, partition: MirrorPartition) -> None:
        """Enters the partition's gap, and goes on with it if somebody or the policy says so."""
        stop = partition.stopped
        assert stop is not None
        gap = gap_of(partition, stop)
        known = self._ledger.table.gaps.get(gap.key)
        decision = await self._decide(stop, gap, known)
        if decision.gap != known:
            await self._ledger.write([decision.gap])
        gap = decision.gap
        if decision.action is None:
            if stop.passing:
                await self._try_again(partition, time.monotonic())
            return
        if gap.state is not State.RECORDED:  # an option that failed before is no reason any more
            gap = replace(gap, why=stop.why)
        try:
            gap = await self._perform(partition, gap, decision.action)
        except (BrokerError, Impossible) as e:
            if isinstance(e, BrokerError) and e.retriable:
                raise
            stop = partition.stopped = replace(stop, failed=f"{decision.action} is not possible: {e}")
            log.error("%s: %s", partition, stop.said)  # noqa: TRY400 - the sentence says it all
            await self._ledger.write([replace(gap, state=State.OPEN, action=None, why=stop.said)])
            self._tried[gap.key].add(gap.asked_ms)
            return
        if decision.action is not Action.RETRY and gap.key not in self._begun:
            await self._ledger.write([_done(gap, decision.action)])
        log.warning("%s goes on: %s, %s", partition, gap.kind, decision.action)

    async def _decide(self, stop: Stop, gap: Gap, known: Gap | None) -> Decision:
        """Returns what to do. Nobody needs to decide about a topic that a flow to the source made anew, because its copy was
        deleted, nor about a copy that held only what was first written at the target. While nobody knows who made a
        topic, its policy waits.
        """
        decision = decide(self._settings, stop, gap, known, self._tried[gap.key])
        by_user = decision.action is not None and decision.gap.state is not State.RECORDED
        if by_user or gap.new_id is None or self._makers is None:
            return decision
        if gap.kind is Kind.COPY_LOST and await self._lacks_nothing(gap):
            why = f"{LACKS_NOTHING}. {stop.why.partition(',')[0]}"
            return recorded(replace(gap, end=gap.start, why=why), Action.SKIP)
        if gap.kind is not Kind.RECREATED:
            return decision
        made = await self._makers.made_by_mirror(gap.new_id, time.monotonic())
        if made:
            return recorded(gap, Action.APPEND)
        return Decision(None, gap) if made is None and decision.action is not None else decision

    async def _lacks_nothing(self, gap: Gap) -> bool:
        """Returns True if the source still has all that was read, and all of it was first written at the target. Looks once."""
        looked = gap.key, gap.new_id
        if self._provenance is None or looked in self._lacking:
            return False
        partition = self._partitions[gap.topic, gap.partition]
        if not await self._first(partition):
            first = await self._provenance.first_for_target(gap.topic, gap.partition)
            if first is None or first >= partition.done:
                return True
        self._lacking.add(looked)
        return False

    async def _was_made_by_mirror(self, topic_id: bytes) -> bool:
        with FlowPlugins(self._settings.props, self._settings.parsed) as plugins:
            return await was_made_by_mirror(self._source, plugins.policy, topic_id)

    async def _try_again(self, partition: MirrorPartition, now: float) -> None:
        """Tries the same records again when some time has passed."""
        if now - self._tried_at.setdefault(partition, now) > RETRY_S:
            self._tried_at.pop(partition)
            await self._retry(partition)

    # ---- going on

    async def _perform(self, partition: MirrorPartition, gap: Gap, action: Action) -> Gap:
        """Carries an action out. Returns the gap with the end that it has by now."""
        if action is Action.RETRY:
            self._tried[gap.key].add(gap.asked_ms)
            await self._retry(partition)
        elif gap.kind is Kind.COPY_LOST:
            end = await self._copy_end(partition, partition.remote)
            first = partition.done
            if action is Action.APPEND:  # what the source still has is no gap any more
                first = await self._first(partition)
                gap = replace(gap, end=max(first, gap.start))
            gap = await self._note_end(gap, action, end)
            partition.forget_copy()
            await self._go_on(partition, first, copy_end=end)
            self._note_begun(partition, replace(gap, action=action))
        elif action is Action.SKIP:
            return await self._skip(partition, gap)
        else:
            await self._begin_anew(partition, gap, action)
        return gap

    async def _retry(self, partition: MirrorPartition) -> None:
        if partition.whole:  # what is at the target by now may be another copy
            await self._go_on(partition, -1)
            return
        epoch = partition.done_epoch
        await self._go_on(partition, partition.done)
        partition.epoch = partition.done_epoch = epoch

    async def _skip(self, partition: MirrorPartition, gap: Gap) -> Gap:
        match gap.kind:
            case Kind.DELETED:
                partition.stopped, partition.gone = None, True
            case Kind.TRUNCATED if partition.whole:
                why = f"{partition.remote} keeps offsets, and has other records behind {gap.start}: delete it, and it is copied anew"
                raise Impossible(why)
            case Kind.TRUNCATED:
                await self._go_on(partition, gap.start)
            case Kind.PURGED:
                first = await self._first(partition)
                gap = replace(gap, end=max(first, gap.end or 0))
                partition.purged += gap.records
                await self._go_on(partition, max(first, gap.end or 0))
            case _ if gap.end is None:
                raise Impossible("nobody knows where the range ends")
            case _:
                await self._go_on(partition, gap.end)
        return gap

    async def _begin_anew(self, partition: MirrorPartition, gap: Gap, action: Action) -> None:
        """Goes on with the topic that took the name, from its start."""
        assert gap.new_id is not None
        if partition.whole and action is not Action.NEW_TOPIC:
            why = f"{partition.remote} keeps offsets, and the new topic counts its own from 0 on: give --{Action.NEW_TOPIC}"
            raise Impossible(why)
        remote = partition.remote
        if action is Action.TRUNCATE_TARGET:
            await self._truncate(partition)
        elif action is Action.NEW_TOPIC:
            remote = new_name(partition.named, gap.new_id)
            await self._make(partition.topic, remote)
        first = -1 if partition.whole else await self._first(partition)
        count = await self._partition_count(partition.topic)
        end = await self._copy_end(partition, remote)
        gap = await self._note_end(gap, action, end)
        if partition.topic_id is not None:
            partition.former_ids.add(partition.topic_id)
        await self._go_on(partition, first, remote=remote, topic_id=gap.new_id, copy_end=end)
        self._note_begun(partition, replace(gap, action=action), count)

    def _note_begun(self, partition: MirrorPartition, gap: Gap, partitions: int = 0) -> None:
        """Notes that a partition has begun anew. `partitions` is the number that a topic has which took the name."""
        assert gap.action is not None
        self._begun[gap.key] = _done(gap, gap.action)
        if gap.kind is Kind.RECREATED and gap.new_id is not None:
            before = self._ledger.table.topics.get(partition.topic)
            self._learned[partition.topic] = Known(
                topic=partition.topic, topic_id=gap.new_id, remote=_other(partition),
                partitions=partitions or (partition.partition + 1 if before is None else before.partitions),
                named=None if before is None else before.named, made=None if before is None else before.made,
                cluster=None if before is None else before.cluster,
            )  # fmt: skip

    async def _copy_end(self, partition: MirrorPartition, remote: str) -> int | None:
        """Returns the offset of the next record in a copy; None for one that keeps offsets."""
        if partition.whole:
            return None
        return await internal_topics.offset_of(self._target, remote, LATEST, partition=partition.partition)

    async def _note_end(self, gap: Gap, action: Action, end: int | None) -> Gap:
        """Enters into the ledger where a copy ends to which a topic is appended: what lies before is no copy of it."""
        if action is not Action.APPEND or end is None:
            return gap
        noted = replace(gap, copy_end=end)
        await self._ledger.write([noted])
        return noted

    async def _make(self, topic: str, remote: str) -> None:
        """Makes another remote topic for a topic, with its partitions and settings, unless it is there."""
        with FlowPlugins(self._settings.props, self._settings.parsed) as plugins:
            topics = Topics(self._settings.parsed, plugins, self._source, self._target, {topic: remote})
            await topics.make({topic: await self._partition_count(topic)})

    async def _partition_count(self, topic: str) -> int:
        found = next(iter((await self._source.refresh([topic])).topics))
        if found.error_code:
            raise broker_error(found.error_code, f"the partitions of {topic}")
        return len(found.partitions)

    async def _truncate(self, partition: MirrorPartition) -> None:
        """Deletes the copy's records. Raises BrokerError, also where the topic's cleanup.policy forbids it, or where it
        holds records that were not copied from the source.
        """
        topic, number = partition.remote, partition.partition
        await self._refuse_strangers(topic, number)
        end = await internal_topics.offset_of(self._target, topic, LATEST, partition=number)
        answer = (await leaders.delete_before(self._target, {(topic, number): end}))[topic, number]
        if isinstance(answer, ClientError):
            raise answer
        log.warning("%s-%d: the records before offset %d are deleted", topic, number, end)

    async def _refuse_strangers(self, topic: str, number: int) -> None:
        if self._provenance is None:
            return
        stranger = await self._provenance.first_stranger(topic, number)
        if stranger is not None:
            why = f"{topic}-{number} at the target holds records that were not written at the source, from offset {stranger} on"
            raise Impossible(f"{why}: give --{Action.APPEND} or --{Action.NEW_TOPIC}")

    async def _first(self, partition: MirrorPartition) -> int:
        return await internal_topics.offset_of(
            self._source, partition.topic, EARLIEST, partition=partition.partition
        )

    async def _go_on(
        self, partition: MirrorPartition, offset: int, *, remote: str | None = None, topic_id: bytes | None = None,
        copy_end: int | None = None,
    ) -> None:  # fmt: skip
        producer = await self._new_producer(partition)
        if topic_id is not None:
            partition.topic_id = topic_id
        partition.move(offset, producer, remote=remote, copy_end=copy_end)
        self._moved()

    # ---- figures

    def details(self) -> dict[str, Any]:
        """Returns the ledger's entries of these partitions for the task's status: how many there are, and the latest."""
        found = self._ledger.table.of(self._partitions)
        if not found:
            return {}
        return {
            "waiting": sum(g.waits for g in found),
            "entries": len(found),
            "records": sum(g.records for g in found),
            "latest": list(within({str(i): g.as_json() for i, g in enumerate(found)}, GAPS_BYTES).values()),
        }

    def gap_records(self) -> dict[tuple[str, int], int]:
        """Returns how many offsets the copy went over, by topic and partition, since the ledger's beginning."""
        found: dict[tuple[str, int], int] = {}
        for gap in self._ledger.table.of(self._partitions):
            key = gap.topic, gap.partition
            found[key] = found.get(key, 0) + gap.left_out
        return found


def _done(gap: Gap, action: Action) -> Gap:
    state = State.RECORDED if gap.state is State.RECORDED else State.RESOLVED
    return replace(gap, state=state, action=action, done_ms=time.time_ns() // 1_000_000)


def _has_begun(gap: Gap, partition: MirrorPartition) -> bool:
    """Returns True when a partition has begun anew behind a gap, by what it has committed."""
    if gap.kind is Kind.COPY_LOST:
        return gap.state is State.RECORDED and gap.new_id == partition.copy_id
    return gap.kind is Kind.RECREATED and gap.new_id == partition.topic_id


def _other(partition: MirrorPartition) -> str | None:
    return None if partition.remote == partition.named else partition.remote
