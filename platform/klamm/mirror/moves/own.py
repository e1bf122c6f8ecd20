"""Records at a flow's target that no flow brought there: applications have used it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from klamm.mirror.moves.ground import Ground, Partition, named
from klamm_kafka.wire.offset_specs import EARLIEST, LATEST
from klamm_mirror.move.diverged import Side, own_records
from klamm_mirror.origins import Origin
from klamm_mirror.provenance.marks import MarkReader
from klamm_mirror.source.config import PROVENANCE
from klamm_mirror.topics import internal_topics

_ELSEWHERE: Final = "elsewhere"


class _AnyMark(MarkReader):
    """Tells only whether records have a mark: the cluster's own have none. A lost cluster does not tell its id."""

    def origin(self, producer_id: int) -> Origin | None:
        found = super().origin(producer_id)
        return None if found is None else replace(found, cluster=_ELSEWHERE)


async def partitions_with_own(ground: Ground, then: Mapping[str, Any]) -> list[str]:
    """Returns the target's partitions that got records of their own since `then` (`target_ends`, `copied`).

    Marks tell which those are. Where there are none, more records than the flow has copied do. Raises ClientError.
    """
    marked = _has_marks(ground)
    side = Side(ground.target, _AnyMark(ground.target, "target") if marked else None, _ELSEWHERE)
    brought = {} if marked else await _brought(ground, then["copied"])
    starts = then["target_ends"]
    return [
        named(p) for p, end in (await ground.target_ends()).items()
        if end > (start := starts.get(named(p), 0)) and await _has_own(side, p, start, brought.get(p, 0))
    ]  # fmt: skip


def _has_marks(ground: Ground) -> bool:
    marks = ground.props.get(PROVENANCE, "true").strip().lower() != "false"
    return marks and ground.policy.hides_origin and not ground.keeps_offsets


async def _brought(ground: Ground, copied: Mapping[str, int]) -> dict[Partition, int]:
    """Returns how many offsets the flow has copied since, by partition at the target."""
    return {
        (ground.topics.remote(t), p): at - copied.get(named((t, p)), 0)
        for (t, p), at in (await ground.copied()).items()
    }


async def _has_own(side: Side, partition: Partition, start: int, brought: int) -> bool:
    """Reads up to the first record too many. What is gone already, or in an open transaction, counts as own."""
    topic, number = partition
    first = await internal_topics.offset_of(side.cluster, topic, EARLIEST, partition=number)
    end = await internal_topics.offset_of(side.cluster, topic, LATEST, partition=number)
    stable = await internal_topics.offset_of(side.cluster, topic, LATEST, partition=number, committed=True)
    if first > start or stable < end:
        return True
    count = 0
    async for _ in own_records(side, partition, start, end):
        count += 1
        if count > brought:
            return True
    return False
