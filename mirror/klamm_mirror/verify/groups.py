"""Compares groups' checkpoints with what their translation promises: a group that moves skips no record.

The promise is about places: the records from a group's source offset on must lie at the target at or after its
checkpoint. The comparison of the records knows the exact place of each offset.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from klamm_kafka.client import BrokerError, Cluster
from klamm_kafka.wire.errors import ErrorCode
from klamm_mirror.topics import internal_topics
from klamm_mirror.topics.fields import MalformedRecord
from klamm_mirror.topics.formats import Checkpoint


class Verdict(StrEnum):
    """The result for one checkpoint."""

    EXACT = "exact"
    REPEATS = "repeats"
    SKIPS = "skips"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOutcome:
    """A group's checkpoint in one partition, beside the exact place (None: not known).

    `topic` is the name at the target. `records` is how many a group that moves reads again, or skips.
    """

    group: str
    topic: str
    partition: int
    source_offset: int
    target_offset: int
    exact: int | None
    verdict: Verdict
    records: int


async def read_checkpoints(target: Cluster, topic: str) -> list[Checkpoint]:
    """Returns the last checkpoint of each group and partition. Raises ClientError."""
    found: dict[tuple[str, str, int], Checkpoint] = {}
    try:
        async for record in internal_topics.read_present(target, topic):
            if record.value is None:
                continue
            try:
                checkpoint = Checkpoint.decode(record.key, record.value)
            except MalformedRecord:
                continue  # the checkpoint task names it in its log
            found[checkpoint.group, checkpoint.topic, checkpoint.partition] = checkpoint
    except BrokerError as e:
        if e.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
    return [found[key] for key in sorted(found)]


def judge(
    checkpoints: Iterable[Checkpoint],
    places: Mapping[tuple[str, int], Mapping[int, int]],
    repeated: Mapping[tuple[str, int], int],
) -> list[GroupOutcome]:
    """Compares checkpoints with exact places, both by the partition at the target. Pure.

    A target that has records twice (`repeated`, how many) may be read from the second time on.
    """
    outcomes = []
    for c in checkpoints:
        place = c.topic, c.partition
        if place not in places:
            continue
        exact = places[place].get(c.upstream_offset)
        ahead = 0 if exact is None else c.downstream_offset - exact
        if exact is None:
            verdict = Verdict.UNKNOWN
        elif ahead > repeated.get(place, 0):
            verdict = Verdict.SKIPS
        else:
            verdict = Verdict.REPEATS if ahead < 0 else Verdict.EXACT
        outcomes.append(
            GroupOutcome(
                group=c.group, topic=c.topic, partition=c.partition, source_offset=c.upstream_offset,
                target_offset=c.downstream_offset, exact=exact, verdict=verdict,
                records=abs(ahead) if verdict in {Verdict.SKIPS, Verdict.REPEATS} else 0,
            )
        )  # fmt: skip
    return outcomes
