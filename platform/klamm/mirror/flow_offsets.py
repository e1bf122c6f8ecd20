"""Reads the places up to which a flow has copied, and sets them in the worker that runs the flow."""

from __future__ import annotations

import itertools
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from klamm.connect.errors import RequestError
from klamm.connect.topics.config_topic import TargetState
from klamm.connect.topics.offset_state import OffsetState
from klamm.mirror import flow_hold
from klamm_base.errors import KlammError
from klamm_kafka.client import BrokerError, Cluster
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.offset_specs import EARLIEST, LATEST
from klamm_mirror.copy.source_offsets import Position, source_partition
from klamm_mirror.settings.mm2_config import CHECKPOINT, SOURCE, Flow
from klamm_mirror.topics import internal_topics

if TYPE_CHECKING:
    from klamm.connect.service.connectors import ConnectService
    from klamm.mirror.places import Place

log = logging.getLogger(__name__)

NAMED_MAX: Final = 20
ALTER: Final = "alter-offsets"
Partition = tuple[str, int]


class CommittedOffsets:
    """Follows the offset topic of a flow, each time from where it was to its end."""

    def __init__(self, target: Cluster, flow: Flow) -> None:
        self._target = target
        self._flow = flow
        self._topic = flow.worker["offset.storage.topic"]
        self._state = OffsetState()
        self._next: dict[int, int] = {}

    async def read(self) -> dict[Partition, Position]:
        """Returns the position of each partition that has one now. Raises ClientError."""
        try:
            topics = (await self._target.refresh([self._topic])).topics
            found = next(t for t in topics if t.name == self._topic)
            for partition in sorted(p.partition_index for p in found.partitions):
                await self._catch_up(partition)
        except BrokerError as e:
            if e.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
        return _places(self._state, self._flow)

    async def _catch_up(self, partition: int) -> None:
        target, topic = self._target, self._topic
        end = await internal_topics.offset_of(target, topic, LATEST, partition=partition, committed=True)
        start = self._next.get(partition)
        if start is None or end < start:
            start = await internal_topics.offset_of(target, topic, EARLIEST, partition=partition)
        async for record in internal_topics.read(
            target, topic, start, end, partition=partition, committed=True
        ):
            if record.key is not None:
                self._state.apply(record.key.decode(errors="replace"), record.value, record.timestamp)
        self._next[partition] = end


async def committed(target: Cluster, flow: Flow) -> dict[Partition, Position]:
    """Returns the position of each partition that has one. Raises ClientError."""
    return await CommittedOffsets(target, flow).read()


def _places(state: OffsetState, flow: Flow) -> dict[Partition, Position]:
    return {
        (p["topic"], p["partition"]): Position.decode(offset)
        for p, offset in state.of_connector(SOURCE)
        if isinstance(p, dict) and p.get("cluster") == flow.source and "topic" in p and "partition" in p
    }


def taken_over(places: Mapping[Partition, Position]) -> dict[str, int]:
    """Returns the topics in which Klamm goes on at offsets that it did not commit, with their numbers of partitions."""
    topics = sorted(topic for (topic, _), position in places.items() if position.by_another)
    return dict(Counter(topics))


def say_taken_over(state: OffsetState, flow: Flow) -> None:
    """Logs which offsets of MirrorMaker's the flow goes on at."""
    if not (topics := taken_over(_places(state, flow))):
        return
    named = ", ".join(f"{topic} ({count})" for topic, count in itertools.islice(topics.items(), NAMED_MAX))
    log.info(
        "%s goes on at the offsets of MirrorMaker in %s: %d topics with %d partitions: %s%s",
        flow.name,
        flow.worker["offset.storage.topic"],
        len(topics),
        sum(topics.values()),
        named,
        ", …" if len(topics) > NAMED_MAX else "",
    )


def entries(
    flow: Flow, places: Mapping[Partition, int | None], before: Mapping[Partition, Position]
) -> list[list[Any]]:
    """Returns new places as offsets of the source connector. None: as if the partition had never been copied.

    A new place counts the records of the topic that there is now, whatever its id, and goes to the same topic at the
    target as `before`.
    """
    found: list[list[Any]] = []
    for key, next_ in sorted(places.items()):
        old = before.get(key)
        position = None
        if next_ is not None:
            position = Position(offset=next_ - 1, remote=None if old is None else old.remote).encode()
        found.append([source_partition(flow.source, *key), position])
    return found


async def alter(service: ConnectService, place: Place, changes: Sequence[Sequence[Any]]) -> str:
    """Sets offsets in the worker that runs the flow, or could. Raises KlammError. A flow that was stopped stays so.

    A file says that the stop is ours, so that a process that is killed meanwhile is no reason to stay stopped.
    """
    before = service.runtime.configs.target(SOURCE)
    if before is not TargetState.STOPPED:
        place.altering.touch(mode=0o600)
    try:
        await service.set_target(SOURCE, TargetState.STOPPED)
        try:
            said = await service.offsets.alter(SOURCE, [(partition, offset) for partition, offset in changes])
        finally:
            await service.set_target(SOURCE, before)
            place.altering.unlink(missing_ok=True)
    except RequestError as e:
        raise KlammError(str(e)) from None
    return said


async def go_on(service: ConnectService, place: Place) -> None:
    """Starts the source connector again that a process stopped for `alter` before it was killed.

    Not where the checkpoint connector is stopped, too: the flow was held since.
    """
    if place.altering.exists():
        connectors, held = service.connectors(), flow_hold.holds(service.runtime.configs)
        if SOURCE in connectors and not (held and CHECKPOINT in connectors):
            await service.set_target(SOURCE, TargetState.STARTED)
        place.altering.unlink(missing_ok=True)
