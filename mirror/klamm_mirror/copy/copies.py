"""The copies of a task at the target: where they end, where they begin, and whether they are promoted by now.

A copy says itself how far it is: its log end is the source offset to go on at. So nothing is copied twice or left out,
whatever was killed. A copy's log start follows that of its source. One event loop.
"""

from __future__ import annotations

import asyncio
import bisect
import logging
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

from klamm_base.backoff import Backoff
from klamm_kafka.client import ClientError, Cluster
from klamm_kafka.wire.offset_specs import EARLIEST, LATEST
from klamm_mirror.copy.partition import MirrorPartition
from klamm_mirror.settings.keep_offsets import KEEP, MIRROR, PROMOTED, SOURCE, STATE
from klamm_mirror.stops import Kind, Stop
from klamm_mirror.topics import internal_topics, leaders
from klamm_mirror.topics.mirror_states import foreign_parts, mirror_configs

log = logging.getLogger(__name__)

LOOK_S: Final = 3.0
"""Seconds between two looks at copies."""
LOOK_PARTITIONS: Final = 200
"""The partitions of a look: so thousands of copies, which are looked at in turn, cost the target no more than hundreds."""

Errors = dict[MirrorPartition, ClientError]


class BeginAgain(Exception):
    """The task's picture of a copy is wrong: it must ask for the copies' ends and go on there."""


class Copies:
    """The copies of a task's partitions. `target` and `source` are clients for questions. `why` says what a look waits for."""

    def __init__(self, target: Cluster, source: Cluster, partitions: Sequence[MirrorPartition]) -> None:
        self.why: str | None = None
        self._target = target
        self._source = source
        self._partitions = partitions
        self._states: dict[str, str | None] = {}
        """The states of the copies when they were looked at last, without those that are not there."""
        self._last = ""
        """The topic at the target that was looked at last."""
        self._ours: set[tuple[str, str]] = set()
        """Topics with the words of their copies' `klamm.mirror.source` that name their cluster."""

    async def run(self) -> None:
        """Looks at the copies until it is cancelled."""
        backoff = Backoff()
        while True:
            try:
                await self.look(self._due())
                self.why = None
                backoff.succeeded()
                await asyncio.sleep(LOOK_S)
            except ClientError as e:
                if self.why is None:
                    log.warning("waiting for the copies at the target: %s", e)
                self.why = str(e)
                await asyncio.sleep(backoff.failed(time.monotonic(), str(e)))

    def _due(self) -> list[MirrorPartition]:
        """Returns the copies whose turn it is, all partitions of a topic at the same time."""
        copies: dict[str, list[MirrorPartition]] = defaultdict(list)
        for partition in self._partitions:
            if not partition.promoted:
                copies[partition.remote].append(partition)
        names = sorted(copies)
        after = bisect.bisect(names, self._last)
        due: list[MirrorPartition] = []
        for name in names[after:] + names[:after]:
            if due and len(due) + len(copies[name]) > LOOK_PARTITIONS:
                break
            due += copies[name]
            self._last = name
        return due

    async def look(self, copies: Sequence[MirrorPartition]) -> None:
        """Notes which of these copies are promoted or not ours, and moves the log starts of the others. Raises ClientError,
        and BeginAgain for a copy that is not the one which is known.
        """
        topics = sorted({p.remote for p in copies})
        found = await mirror_configs(self._target, topics)
        await self._learn_ours(copies, found)
        for partition in copies:
            if partition.remote in found:
                self._judge(partition, found[partition.remote])
        for topic in topics:
            self._states.pop(topic, None)
        self._states |= {topic: configs.get(STATE) for topic, configs in found.items()}
        await self._compare(copies)
        await self._move_starts(copies)

    def _judge(self, partition: MirrorPartition, configs: Mapping[str, str | None]) -> None:
        state, source = configs.get(STATE), configs.get(SOURCE)
        if state == PROMOTED and not partition.promoted:
            log.warning("%s is promoted at the target: it is not copied any more", partition)
            partition.promote()
        if partition.stopped is not None:
            return
        if state is None:
            partition.stopped = _no_mirror(partition)
        elif state == MIRROR and source is not None and (partition.topic, source) not in self._ours:
            partition.stopped = _other_source(partition, source)

    async def _learn_ours(
        self, copies: Sequence[MirrorPartition], found: Mapping[str, Mapping[str, str | None]]
    ) -> None:
        """Learns which copies come from our source, or from the cluster from which ours has the topic."""
        told = {
            (p.topic, source) for p in copies
            if p.stopped is None and (configs := found.get(p.remote)) and configs.get(STATE) == MIRROR
            and (source := configs.get(SOURCE)) is not None
        }  # fmt: skip
        if not (new := told - self._ours):
            return
        here = (await self._source.refresh([])).cluster_id
        parts = await foreign_parts(self._source, {topic for topic, _ in new})
        for topic, source in new:
            part = parts.get(topic)
            first = None if part is None or part.origin is None else part.origin.cluster
            if here is None or source.partition(" ")[0] in {here, first}:
                self._ours.add((topic, source))

    async def _compare(self, copies: Sequence[MirrorPartition]) -> None:
        """Raises BeginAgain if a copy was made again, or has lost its end."""
        known = {p: (p.copy_id, p.copy_end) for p in copies if p.copy_id is not None and not p.promoted}
        if not known:
            return
        ids = await self._ids(sorted({p.remote for p in known}))
        ends = await internal_topics.offsets_of(
            self._target, [(p.remote, p.partition) for p in known], LATEST
        )
        for partition, (copy_id, end) in known.items():
            if ids.get(partition.remote, copy_id) != copy_id:
                raise made_again(partition)
            if (there := ends.get((partition.remote, partition.partition), end)) < end:
                raise shortened(partition, there, end)

    async def _ids(self, topics: Sequence[str]) -> dict[str | None, bytes]:
        return {t.name: t.topic_id for t in (await self._target.refresh(topics)).topics if not t.error_code}

    async def _move_starts(self, copies: Sequence[MirrorPartition]) -> None:
        """Moves the log starts of mirror topics. A copy that cannot be moved holds up no other."""
        wanted: dict[MirrorPartition, int] = {}
        for partition in copies:
            start = min(partition.source_start, partition.done)
            if partition.copy_start < partition.copy_end:  # only an empty copy may begin behind its end
                start = min(start, partition.copy_end)
            is_mirror = self._states.get(partition.remote) == MIRROR and partition.stopped is None
            if is_mirror and start > partition.copy_start >= 0:
                wanted[partition] = start
        if failures := await self._set_starts(wanted):
            raise next(iter(failures.values()))

    async def begin(self, source_starts: Mapping[MirrorPartition, int]) -> None:
        """Sets the places to copy from: the copies' ends. An empty copy is made to begin at its `source_starts`.

        Partitions wait for a target that does not answer.
        """
        failed: Mapping[MirrorPartition, ClientError]
        try:
            if unknown := [p for p in source_starts if self._states.get(p.remote) != MIRROR]:
                await self.look(unknown)
            wanted = {p: s for p, s in source_starts.items() if not p.promoted and p.stopped is None}
            failed = await self._begin(wanted)
        except ClientError as e:
            failed = dict.fromkeys((p for p in source_starts if p.position < 0), e)
        for partition, error in failed.items():
            why = f"the target does not tell the end of {partition.remote}-{partition.partition}: {error}"
            partition.reading.failed(time.monotonic(), why)

    async def _begin(self, source_starts: Mapping[MirrorPartition, int]) -> Errors:
        # The ids come first: if a copy is made again meanwhile, the target refuses what is sent for this id.
        ids = await self._ids(sorted({p.remote for p in source_starts}))
        ends, failed = _apart(await self._offsets(list(source_starts), LATEST))
        empty = {p: source_starts[p] for p, end in ends.items() if end == 0 and source_starts[p] > 0}
        failed |= await self._set_starts(empty)
        ends |= empty
        starts, errors = _apart(await self._offsets([p for p in ends if p not in failed], EARLIEST))
        failed |= errors
        places = {_place(p): ends[p] for p, start in starts.items() if ends[p] > start}
        epochs = await leaders.epochs_before(self._target, places)
        for partition, start in starts.items():
            epoch = epochs.get(_place(partition), -1)
            if isinstance(epoch, ClientError):
                failed[partition] = epoch
                continue
            end = ends[partition]
            partition.copy_start, partition.copy_end = start, end
            partition.copy_id = ids.get(partition.remote)
            partition.epoch = partition.done_epoch = epoch
            partition.begin(end)
        return failed

    async def _offsets(
        self, partitions: Sequence[MirrorPartition], which: int
    ) -> dict[MirrorPartition, int | ClientError]:
        found = await leaders.offsets_at(self._target, {_place(p): which for p in partitions})
        return {p: found[_place(p)] for p in partitions}

    async def _set_starts(self, wanted: Mapping[MirrorPartition, int]) -> Errors:
        """Moves the copies' log starts. Returns the errors of those that stay."""
        found = await leaders.delete_before(self._target, {_place(p): start for p, start in wanted.items()})
        moved, failed = _apart({p: found[_place(p)] for p in wanted})
        for partition in moved:
            start = wanted[partition]
            partition.copy_start, partition.copy_end = start, max(partition.copy_end, start)
        return failed


def _place(partition: MirrorPartition) -> tuple[str, int]:
    return partition.remote, partition.partition


def _apart(
    found: Mapping[MirrorPartition, int | ClientError],
) -> tuple[dict[MirrorPartition, int], Errors]:
    """Returns answers and errors apart."""
    answers = {p: answer for p, answer in found.items() if isinstance(answer, int)}
    return answers, {p: answer for p, answer in found.items() if isinstance(answer, ClientError)}


def made_again(partition: MirrorPartition) -> BeginAgain:
    """Returns the error for a copy that was deleted, whether there is a new one or not."""
    return BeginAgain(f"{partition}: {partition.remote} was deleted at the target")


def shortened(partition: MirrorPartition, end: int, known: int) -> BeginAgain:
    """Returns the error for a copy that ends before its known end."""
    return BeginAgain(
        f"{partition}: the target has lost what it had acknowledged, offsets {end} to {known - 1}"
    )


def _no_mirror(partition: MirrorPartition) -> Stop:
    return _stop(
        partition,
        f"{partition.remote} is at the target already and is no mirror topic: its offsets are its own. Delete it there, "
        f"or choose another name (topic.map), or set {KEEP}=false",
    )


def _other_source(partition: MirrorPartition, source: str) -> Stop:
    return _stop(
        partition,
        f"{partition.remote} is at the target already as the copy of another cluster's topic ({SOURCE}={source}). Choose "
        "another name (topic.map), or delete it there",
    )


def _stop(partition: MirrorPartition, why: str) -> Stop:
    return Stop(
        kind=Kind.REFUSED, start=max(partition.done, 0), end=None, why=why,
        since_ms=time.time_ns() // 1_000_000, passing=True,
    )  # fmt: skip
