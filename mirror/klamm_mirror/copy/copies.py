"""The copies of a task at the target: where they end, where they begin, and whether they are promoted by now.

A copy says itself how far it is: its log end is the source offset to go on at. So nothing is copied twice or left out,
whatever was killed. A copy's log start follows that of its source. One event loop.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from typing import Final

from klamm_base.backoff import Backoff
from klamm_kafka.client import ClientError, Cluster, broker_error
from klamm_kafka.wire.batch import read_header
from klamm_kafka.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from klamm_kafka.wire.offset_specs import EARLIEST, LATEST
from klamm_mirror.copy.partition import MirrorPartition
from klamm_mirror.settings.keep_offsets import KEEP, PROMOTED
from klamm_mirror.stops import Kind, Stop
from klamm_mirror.topics import internal_topics
from klamm_mirror.topics.mirror_states import states_of

log = logging.getLogger(__name__)

LOOK_S: Final = 3.0
"""Seconds between two looks at the states of the copies."""
DELETE_TIMEOUT_MS: Final = 30_000


class BeginAgain(Exception):
    """The task's picture of a copy is wrong: it must ask for the copies' ends and go on there."""


class Copies:
    """The copies of a task's partitions. `target` is a client for questions. `why` says what a look waits for."""

    def __init__(self, target: Cluster, partitions: Sequence[MirrorPartition]) -> None:
        self.why: str | None = None
        self._target = target
        self._partitions = partitions
        self._looked = False

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
        """Notes which copies are promoted, and moves the log starts of the others. Raises ClientError."""
        states = await states_of(self._target, sorted({p.remote for p in self._partitions}))
        for partition in self._partitions:
            if states.get(partition.remote) == PROMOTED and not partition.promoted:
                log.warning("%s is promoted at the target: it is not copied any more", partition)
                partition.promote()
            if partition.remote in states and states[partition.remote] is None and partition.stopped is None:
                partition.stopped = _no_mirror(partition)
        self._looked = True
        for partition in self._partitions:
            start = min(partition.source_start, partition.done)
            if start > partition.copy_start >= 0 and not partition.promoted:
                await self._set_start(partition, start)

    async def begin(self, partition: MirrorPartition, source_start: int) -> None:
        """Sets the place to copy from: the copy's end. An empty copy is made to begin at `source_start`.

        While the target does not answer, the partition waits.
        """
        try:
            if not self._looked:
                await self.look()
            if not partition.promoted and partition.stopped is None:
                partition.begin(await self._ready(partition, source_start))
        except ClientError as e:
            why = f"the target does not tell the end of {partition.remote}-{partition.partition}: {e}"
            partition.reading.failed(time.monotonic(), why)

    async def _ready(self, partition: MirrorPartition, source_start: int) -> int:
        end = await self.end(partition)
        if end == 0 and source_start > 0:
            await self._set_start(partition, source_start)
            end = source_start
        partition.copy_start = await self._offset(partition, EARLIEST)
        partition.copy_end = end
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
        partition.copy_start = offset


def _no_mirror(partition: MirrorPartition) -> Stop:
    at = max(partition.done, 0)
    return Stop(
        kind=Kind.REFUSED, start=at, end=None, since_ms=time.time_ns() // 1_000_000, passing=True,
        why=f"{partition.remote} is at the target already and is no mirror topic: its offsets are its own. Delete it there, "
        f"or choose another name (topic.map), or set {KEEP}=false",
    )  # fmt: skip
