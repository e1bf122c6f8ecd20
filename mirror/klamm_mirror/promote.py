"""Promotes mirror topics: ends their copying and makes ordinary topics of them. Raises ClientError.

`survey` says what a promotion finds, `promote` does it. Both take the topics' names at the source with those at the
target, and neither asks the flow, which notices by itself that its copies are promoted. What else belongs to a move
(stopping writers, the groups' last offsets: `move.group_offsets`) is the caller's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from klamm_kafka.client import Cluster
from klamm_kafka.wire.offset_specs import LATEST
from klamm_mirror.settings.keep_offsets import PROMOTED, STATE
from klamm_mirror.target_admin import AdminRequests
from klamm_mirror.topics import internal_topics
from klamm_mirror.topics.mirror_states import states_of

Ends = Mapping[tuple[str, int], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorTopic:
    """A topic of the source and its copy. `state` None: the target has no such topic, or an ordinary one.

    `ends` are the copy's log ends by partition. `lag` is the number of offsets that it lacks; None: the source tells nothing.
    """

    topic: str
    remote: str
    state: str | None
    ends: tuple[int, ...]
    lag: int | None


async def survey(source: Cluster | None, target: Cluster, names: Mapping[str, str]) -> list[MirrorTopic]:
    """Returns the state and the lag of each topic. `source` None: it is not asked."""
    states = await states_of(target, sorted(names.values()))
    there = await _ends(target, [remote for remote in names.values() if states.get(remote) is not None])
    here = {} if source is None else await _ends(source, names)
    found = []
    for topic, remote in sorted(names.items()):
        ends = {p: end for (name, p), end in there.items() if name == remote}
        ahead = {p: end - ends.get(p, 0) for (name, p), end in here.items() if name == topic}
        found.append(
            MirrorTopic(
                topic=topic,
                remote=remote,
                state=states.get(remote),
                ends=tuple(ends[p] for p in sorted(ends)),
                lag=sum(max(lag, 0) for lag in ahead.values()) if ahead else None,
            )
        )
    return found


async def promote(target: Cluster, topics: Sequence[MirrorTopic]) -> dict[str, str]:
    """Makes ordinary topics of copies. Returns the refusals by the copies' names."""
    changes = {topic.remote: {STATE: PROMOTED} for topic in topics}
    return dict(await AdminRequests(target).incremental_alter_configs(changes))


def ends_of(topics: Iterable[MirrorTopic]) -> dict[tuple[str, int], int]:
    """Returns the ends of the survey's copies, by the partition's name at the source."""
    return {(topic.topic, p): end for topic in topics for p, end in enumerate(topic.ends)}


async def written_since(source: Cluster, ends: Ends) -> dict[str, int]:
    """Returns how many offsets of each topic the source has behind the ends of promoted copies: nobody copies them."""
    now = await _ends(source, {topic for topic, _ in ends})
    lost: dict[str, int] = {}
    for partition, end in ends.items():
        lost[partition[0]] = lost.get(partition[0], 0) + max(now.get(partition, 0) - end, 0)
    return {topic: count for topic, count in lost.items() if count}


async def _ends(cluster: Cluster, topics: Iterable[str]) -> Ends:
    """Returns the log ends of topics, without those that do not exist."""
    wanted = sorted(set(topics))
    if not wanted:
        return {}
    found = await cluster.refresh(wanted)
    places = [
        (t.name, p.partition_index) for t in found.topics if t.name and not t.error_code for p in t.partitions
    ]
    return await internal_topics.offsets_of(cluster, places, LATEST)
