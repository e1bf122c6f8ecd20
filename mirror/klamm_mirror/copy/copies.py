"""The copies of a task at the target: where they end, where they begin, and whether they are promoted by now.

A copy says itself how far it is: its log end is the source offset to go on at. So nothing is copied twice or left out,
whatever was killed. A copy's log start follows that of its source. One event loop.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from typing import Final

from klamm_base.backoff import Backoff
from klamm_kafka.client import BrokerError, ClientError, Cluster, broker_error
from klamm_kafka.wire.batch import read_header
from klamm_kafka.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from klamm_kafka.wire.offset_specs import EARLIEST, LATEST
from klamm_mirror.copy.partition import MirrorPartition
from klamm_mirror.settings.keep_offsets import KEEP, MIRROR, PROMOTED, SOURCE, STATE
from klamm_mirror.stops import Kind, Stop
from klamm_mirror.topics import internal_topics
from klamm_mirror.topics.mirror_states import foreign_parts, mirror_configs

log = logging.getLogger(__name__)

LOOK_S: Final = 3.0
"""Seconds between two looks at the states of the copies."""
DELETE_TIMEOUT_MS: Final = 30_000


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
        """The states of the copies at the last look, without those that are not there."""
        self._ours: set[tuple[str, str]] = set()
        """Topics with the words of their copies' `klamm.mirror.source` that name their cluster."""

    async def run(self) -> None:
        """Looks at the copies until it is cancelled."""
        backoff = Backoff()
        while True:
            try:
                await self.look()
                self.why = None
                backoff.succeeded()
                await asyncio.sleep(LOOK_S)
            except ClientError as e:
                if self.why is None:
                    log.warning("waiting for the copies at the target: %s", e)
                self.why = str(e)
                await asyncio.sleep(backoff.failed(time.monotonic(), str(e)))

    async def look(self) -> None:
        """Notes which copies are promoted or not ours, and moves the log starts of the others. Raises ClientError, and
        BeginAgain for a copy that is not the one which is known.
        """
        found = await mirror_configs(self._target, sorted({p.remote for p in self._partitions}))
        for partition in self._partitions:
            if partition.remote in found:
                await self._judge(partition, found[partition.remote])
        self._states = {topic: configs.get(STATE) for topic, configs in found.items()}
        await self._compare()
        await self._move_starts()

    async def _judge(self, partition: MirrorPartition, configs: Mapping[str, str | None]) -> None:
        state, source = configs.get(STATE), configs.get(SOURCE)
        if state == PROMOTED and not partition.promoted:
            log.warning("%s is promoted at the target: it is not copied any more", partition)
            partition.promote()
        if partition.stopped is not None:
            return
        if state is None:
            partition.stopped = _no_mirror(partition)
        elif state == MIRROR and source is not None and not await self._is_ours(partition.topic, source):
            partition.stopped = _other_source(partition, source)

    async def _is_ours(self, topic: str, source: str) -> bool:
        """Decides whether a copy's source is ours, or the cluster from which ours has the topic."""
        if (topic, source) not in self._ours:
            there = source.partition(" ")[0]
            here = (await self._source.refresh([])).cluster_id
            part = (await foreign_parts(self._source, [topic])).get(topic)
            first = None if part is None or part.origin is None else part.origin.cluster
            if here is not None and there not in {here, first}:
                return False
            self._ours.add((topic, source))
        return True

    async def _compare(self) -> None:
        """Raises BeginAgain if a copy was made again, or has lost its end."""
        known = {
            p: (p.copy_id, p.copy_end) for p in self._partitions if p.copy_id is not None and not p.promoted
        }
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

    async def _move_starts(self) -> None:
        """Moves the log starts of mirror topics. A copy that cannot be moved holds up no other."""
        failures: list[BrokerError] = []
        for partition in self._partitions:
            start = min(partition.source_start, partition.done)
            if partition.copy_start < partition.copy_end:  # only an empty copy may begin behind its end
                start = min(start, partition.copy_end)
            is_mirror = self._states.get(partition.remote) == MIRROR and partition.stopped is None
            if is_mirror and start > partition.copy_start >= 0:
                try:
                    await self._set_start(partition, start)
                except BrokerError as e:
                    failures.append(e)
        if failures:
            raise failures[0]

    async def begin(self, partition: MirrorPartition, source_start: int) -> None:
        """Sets the place to copy from: the copy's end. An empty copy is made to begin at `source_start`.

        While the target does not answer, the partition waits.
        """
        try:
            if self._states.get(partition.remote) != MIRROR:
                await self.look()
            if not partition.promoted and partition.stopped is None:
                partition.begin(await self._ready(partition, source_start))
        except ClientError as e:
            why = f"the target does not tell the end of {partition.remote}-{partition.partition}: {e}"
            partition.reading.failed(time.monotonic(), why)

    async def _ready(self, partition: MirrorPartition, source_start: int) -> int:
        # The id comes first: if the copy is made again meanwhile, the target refuses what is sent for this id.
        copy_id = (await self._ids([partition.remote])).get(partition.remote)
        end = await self.end(partition)
        if end == 0 and source_start > 0:
            await self._set_start(partition, source_start)
            end = source_start
        partition.copy_start = await self._offset(partition, EARLIEST)
        partition.copy_end, partition.copy_id = end, copy_id
        partition.epoch = partition.done_epoch = await self._last_epoch(partition, end)
        partition.changed()
        return end

    async def end(self, partition: MirrorPartition) -> int:
        """Returns the copy's log end. Raises ClientError."""
        return await self._offset(partition, LATEST)

    async def _offset(self, partition: MirrorPartition, which: int) -> int:
        return await internal_topics.offset_of(
            self._target, partition.remote, which, partition=partition.partition
        )

    async def _last_epoch(self, partition: MirrorPartition, end: int) -> int:
        """Returns the leader epoch of the copy's last record; -1 for an empty copy."""
        if end <= partition.copy_start:
            return -1
        data = await internal_topics.fetch(
            self._target, partition.remote, end - 1, partition=partition.partition, size=1
        )
        return read_header(data.records).leader_epoch if data.records else -1

    async def _set_start(self, partition: MirrorPartition, offset: int) -> None:
        """Moves the copy's log start. Raises BrokerError."""
        topic, number = partition.remote, partition.partition
        wanted = DeleteRecordsTopic(
            name=topic, partitions=[DeleteRecordsPartition(partition_index=number, offset=offset)]
        )
        request = DeleteRecordsRequest(topics=[wanted], timeout_ms=DELETE_TIMEOUT_MS)
        connection = await self._target.leader(topic, number)
        answer: DeleteRecordsResponse = await connection.request(
            request, timeout_s=DELETE_TIMEOUT_MS / 1000 + 5
        )
        code = answer.topics[0].partitions[0].error_code
        if code:
            self._target.metadata = None
            raise broker_error(code, f"letting {topic}-{number} begin at offset {offset}, as its source does")
        partition.copy_start, partition.copy_end = offset, max(partition.copy_end, offset)


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
