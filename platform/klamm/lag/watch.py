"""Watches one cluster: polls its sources, looks at the ends of logs, asks who is in which group.

Each step stands for itself: what fails is said once, counted, and tried again at the next turn; meanwhile the statuses are those
of what is known.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Final

from klamm.admin.client import Admin
from klamm.admin.model import TopicPartition
from klamm.admin.offsets import list_offsets
from klamm.admin.topics import unknown
from klamm.lag.fetching import headers, time_at, without_markers
from klamm.lag.group_source import ShareSource, describe_all
from klamm.lag.settings import ClusterSettings
from klamm.lag.sources import Position, Source
from klamm.lag.spark_source import SparkSource
from klamm.lag.state import ClusterState
from klamm.lag.topic_source import GroupReader, Holds, MirrorReader, TopicSource, group_holds, mirror_holds
from klamm_base.errors import KlammError
from klamm_base.internal_topics import OFFSETS_TOPIC
from klamm_kafka.wire.offset_specs import LATEST

log = logging.getLogger(__name__)

POLL_S: Final = 0.5
"""Between two polls of topics: commits are known half a second later at most."""
_REQUEST_S: Final = 10.0
_GONE_AFTER: Final = 2
"""A partition that is unknown for so many pauses between looks, at three looks in a row, is gone."""
_TIMES_MAX: Final = 500
"""Records whose time is read at one look; the others are estimated until a later one."""
_ROUNDS: Final = 20
"""Groups at different places of one partition whose next record is read at one look."""


class ClusterWatch:
    """The watch of a cluster. `states` are those of all clusters: a mirror's positions are known at another."""

    def __init__(
        self,
        settings: ClusterSettings,
        states: Mapping[str, ClusterState],
        begin: Mapping[str, Mapping[TopicPartition, int]],
        wanted: Callable[[str], bool],
    ) -> None:
        self.settings = settings
        self.state = states[settings.name]
        self._states = states
        self.errors: dict[str, int] = {}
        """Failures by the step that failed."""
        self.trouble: dict[str, str] = {}
        """The steps that fail now, and why."""
        self._missing: dict[TopicPartition, int] = {}
        """Partitions that were unknown at the last look, and since when."""
        self._marked: dict[TopicPartition, tuple[int, int]] = {}
        """The end of each log that has markers of transactions, with and without those at its end."""
        self._absent: dict[str, int] = {}
        """Share groups that were not there when groups were asked for, and how often."""
        self.looked = False
        """Whether all that was there at our start is read."""
        self._admin = Admin(
            settings.bootstrap, timeout_s=_REQUEST_S, client_id="klamm-lag", security=settings.security
        )
        self.sources = self._made(begin, wanted)

    def _made(
        self, begin: Mapping[str, Mapping[TopicPartition, int]], wanted: Callable[[str], bool]
    ) -> list[Source]:
        name, settings = self.settings.name, self.settings
        readers: list[tuple[str, Callable[[int], GroupReader | MirrorReader], Holds]] = [
            (OFFSETS_TOPIC, lambda at: GroupReader(name, at, wanted), group_holds(name))
        ]
        if settings.mirror_topics:
            mirror = partial(MirrorReader, name, wanted=wanted)
            readers.append((settings.mirror_topics, mirror, mirror_holds(name)))
        made: list[Source] = [
            TopicSource(
                self._admin,
                topics,
                reader,
                begin.get(topics, {}),
                latest=settings.start_latest,
                holds=holds,
                patience_ms=self.state.patience_ms,
            )
            for topics, reader, holds in readers
        ]
        made.append(ShareSource(self._admin, name))
        made += [SparkSource(url, name) for url in settings.spark_metrics]
        return made

    async def run(self) -> None:
        """Watch until cancelled."""
        looks = partial(self._every, self.settings.offset_refresh_s, "ends", self.look)
        groups = partial(self._every, self.settings.topic_refresh_s, "groups", self.ask_groups)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(looks())
            tasks.create_task(groups())
            for source in self.sources:
                topics = isinstance(source, TopicSource)
                every = POLL_S if topics else self.settings.offset_refresh_s
                tasks.create_task(self._every(every, source.name, partial(self._poll, source)))

    async def once(self) -> None:
        """Read everything that is there, look once. Raises KlammError."""
        for source in self.sources:
            await self._poll(source)
            while not source.caught_up or (isinstance(source, TopicSource) and source.unread):
                if source.caught_up:
                    await asyncio.sleep(POLL_S)  # a partition has no leader; what lasts is raised
                await self._poll(source)
        await self.look()
        await self.ask_groups()

    def blind(self, cluster: str, group: str, kind: str) -> bool:
        """Returns whether positions of a group may be in what cannot be read now. `kind`: empty for a group that is not known."""
        return any(source.blind(cluster, group, kind) for source in self.sources)

    async def close(self) -> None:
        await self._admin.__aexit__()

    # ---- the steps

    async def _poll(self, source: Source) -> None:
        while True:
            positions = await source.poll(now_ms())
            if source.began_anew:
                source.began_anew = False
                for state in self._states.values():
                    state.begin_anew()
            if counted := {p.partition for p in positions if p.lag is not None}:
                await self._look_at(counted)
            self._take(positions)
            if self.state.partitions() - self.state.ends.keys():
                await self._look_at(self.state.partitions() - self.state.ends.keys())
            if source.caught_up:
                if not self.looked and (ready := all(each.caught_up for each in self.sources)):
                    with contextlib.suppress(KlammError):  # the looks at ends say why they fail
                        await self.look()  # before anybody is judged: who waits since when
                    self.looked = ready
                break
            if not positions:
                break
        if source.trouble is not None:
            raise KlammError(source.trouble)

    def _take(self, positions: Sequence[Position]) -> None:
        now = now_ms()
        for p in positions:
            state = self._states.get(p.cluster)
            if state is None:
                continue  # a mirror copies from a cluster that is not watched
            if p.offset is None:
                state.forget(p.group, p.partition)
                continue
            offset = p.offset if p.lag is None else max(p.offset, state.end_of(p.partition) - p.lag)
            state.commit(p.group, p.partition, offset, at_ms=p.at_ms, order=p.order, now_ms=now)
            if p.kind:
                state.of_kind(p.group, p.kind)

    async def look(self) -> None:
        """Look at the ends of the logs that are read, and at the times of the next records."""
        partitions = self.state.partitions()
        self._missing = {tp: since for tp, since in self._missing.items() if tp in partitions}
        self._marked = {tp: ends for tp, ends in self._marked.items() if tp in partitions}
        await self._look_at(partitions)
        if self.settings.time_lag:
            await self._read_times()
        self.state.expire(now_ms())

    async def _read_times(self) -> None:
        """Reads the headers of the batches that are to be read next."""
        wanted = list(dict.fromkeys(islice(self.state.behind(), _TIMES_MAX)))
        marked = set()
        for _ in range(_ROUNDS):
            if not wanted:
                break
            asked = dict(wanted)
            for tp, header in (await headers(self._admin, asked)).items():
                if header.is_control and tp not in self._marked:
                    marked.add(tp)
                at_ms = time_at(header, asked[tp])
                if at_ms >= 0:
                    self.state.wrote(tp, asked[tp], at_ms)
            wanted = [(tp, offset) for tp, offset in wanted if asked[tp] != offset]
        if marked:
            self._marked |= dict.fromkeys(marked, (-1, -1))
            await self._look_at(marked)

    async def _look_at(self, partitions: set[TopicPartition]) -> None:
        if not partitions:
            return
        found = await list_offsets(self._admin, partitions, LATEST)
        found |= await self._without_markers(found)
        now, gone, patience_ms = now_ms(), set(), _GONE_AFTER * self.settings.offset_refresh_s * 1000
        for tp, end in found.items():
            if isinstance(end, int):
                self._missing.pop(tp, None)
                self.state.look(tp, end, now)
            elif not unknown(end):
                continue
            elif now - self._missing.setdefault(tp, now) >= patience_ms:
                gone.add(tp)  # for longer than a broker that has just started may not know it
        for tp in gone:
            del self._missing[tp]
        self.state.forget_partitions(gone)

    async def _without_markers(self, found: Mapping[TopicPartition, object]) -> dict[TopicPartition, int]:
        """Returns the ends of logs that have markers of transactions: a reader is not behind who has only those before it."""
        ends = {tp: end for tp in self._marked if isinstance(end := found.get(tp), int)}
        moved = {tp: end for tp, end in ends.items() if self._marked[tp][0] != end}
        for tp, end in (await without_markers(self._admin, moved)).items() if moved else ():
            self._marked[tp] = (moved[tp], end)
        return {tp: self._marked[tp][1] for tp in ends if self._marked[tp][1] >= 0}

    async def ask_groups(self) -> None:
        """Ask the coordinators what groups are and who reads what. Nothing else tells that a share group was deleted."""
        found = await describe_all(self._admin)
        for group, known in found.items():
            self.state.grouped(group, known.kind, known.owners)
        shares = {g for g in self.state.groups() if self.state.kind(g) == "share"}
        self._absent = {g: self._absent.get(g, 0) + 1 for g in shares - found.keys()}
        for group in [g for g, times in self._absent.items() if times > _GONE_AFTER]:
            self.state.forget(group)

    async def topic_ends(self, topic: str) -> list[int] | None:
        """Returns the ends of a topic's partitions, of one that nobody reads, too; None for an unknown topic."""
        answer = await self._admin.metadata([topic])
        if answer.topics[0].error_code:
            return None
        places = {TopicPartition(topic, p.partition_index) for p in answer.topics[0].partitions}
        found = await list_offsets(self._admin, places, LATEST)
        return [end for tp in sorted(places) if isinstance(end := found[tp], int)]

    async def topics(self) -> list[str]:
        """Returns the names of all topics, in order."""
        return sorted(t.name or "" for t in (await self._admin.metadata()).topics if not t.error_code)

    async def _every(self, pause_s: float, what: str, step: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await step()
                if self.trouble.pop(what, None) is not None:
                    log.info("cluster %s: %s: it works again", self.settings.name, what)
            except KlammError as e:
                self.errors[what] = self.errors.get(what, 0) + 1
                if self.trouble.get(what) != str(e):
                    log.warning("cluster %s: %s: %s", self.settings.name, what, e)
                self.trouble[what] = str(e)
            await asyncio.sleep(pause_s if what not in self.trouble else max(pause_s, 1.0))


def now_ms() -> int:
    return time.time_ns() // 1_000_000
