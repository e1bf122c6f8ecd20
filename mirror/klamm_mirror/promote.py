"""Promotes mirror topics: ends their copying and makes ordinary topics of them. Raises ClientError.

`survey` says what a promotion finds, `promote` does it. Both take the topics' names at the source with those at the
target, and neither asks the flow, which notices by itself that its copies are promoted. What else belongs to a move
(stopping writers, the groups' last offsets: `move.group_offsets`) is the caller's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from klamm_kafka.client import Cluster
from klamm_kafka.wire.fields import UUID_ZERO
from klamm_kafka.wire.offset_specs import LATEST
from klamm_mirror.settings.keep_offsets import PROMOTED, STATE
from klamm_mirror.target_admin import AdminRequests
from klamm_mirror.topics import internal_topics
from klamm_mirror.topics.mirror_states import states_of

Ends = Mapping[tuple[str, int], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorTopic:
    """A topic of the source and its copy. `state` None: the target has no such topic, or an ordinary one.

    `ends` are the copy's log ends by partition. `lag` is the number of offsets that it lacks; None: nobody knows it, and `why`
    says the reason where the source was asked.
    """

    topic: str
    remote: str
    state: str | None
    ends: tuple[int, ...]
    lag: int | None
    why: str | None = None


@dataclass(frozen=True, slots=True)
class _Log:
    """A topic that is there: its id, and its log ends by partition, without those that do not tell theirs."""

    topic_id: bytes
    partitions: frozenset[int]
    ends: Mapping[int, int]


async def survey(
    source: Cluster | None, target: Cluster, names: Mapping[str, str],
    ids: Mapping[str, bytes] = MappingProxyType({}),
) -> list[MirrorTopic]:  # fmt: skip
    """Returns the state and the lag of each topic. `source` None: it is not asked. `ids` are those of the copied topics."""
    states = await states_of(target, sorted(names.values()))
    there = await _logs(target, [remote for remote in names.values() if states.get(remote) is not None])
    here = {} if source is None else await _logs(source, names)
    found = []
    for topic, remote in sorted(names.items()):
        copy, log = there.get(remote), here.get(topic)
        ends = {} if copy is None else copy.ends
        why = None if source is None else _why_unknown(topic, log, copy, ids.get(topic))
        known = log is not None and why is None
        lag = sum(max(end - ends.get(p, 0), 0) for p, end in log.ends.items()) if log and known else None
        found.append(
            MirrorTopic(
                topic=topic, remote=remote, state=states.get(remote), lag=lag, why=why,
                ends=tuple(ends[p] for p in sorted(ends)),
            )
        )  # fmt: skip
    return found


def _why_unknown(topic: str, log: _Log | None, copy: _Log | None, topic_id: bytes | None) -> str | None:
    """Returns why nobody knows what a copy lacks; None: the logs' ends tell it."""
    if log is None:
        return f"{topic} is not at the source"
    if UUID_ZERO != log.topic_id != (topic_id or log.topic_id):
        return f"{topic} was deleted at the source and made anew: the copy is that of the topic before"
    for where, each in (("at the source", log), ("at the target", copy)):
        silent = sorted(each.partitions - each.ends.keys()) if each is not None else ()
        if silent:
            return f"{topic}-{silent[0]} does not tell its end {where}"
    return None


async def promote(target: Cluster, topics: Sequence[MirrorTopic]) -> dict[str, str]:
    """Makes ordinary topics of copies. Returns the refusals by the copies' names."""
    changes = {topic.remote: {STATE: PROMOTED} for topic in topics}
    return dict(await AdminRequests(target).incremental_alter_configs(changes))


def ends_of(topics: Iterable[MirrorTopic]) -> dict[tuple[str, int], int]:
    """Returns the ends of the survey's copies, by the partition's name at the source."""
    return {(topic.topic, p): end for topic in topics for p, end in enumerate(topic.ends)}


async def written_since(source: Cluster, ends: Ends) -> dict[str, int]:
    """Returns how many offsets of each topic the source has behind the ends of promoted copies: nobody copies them."""
    now = await _logs(source, {topic for topic, _ in ends})
    lost: dict[str, int] = {}
    for (topic, partition), end in ends.items():
        log = now.get(topic)
        lost[topic] = lost.get(topic, 0) + max((log.ends.get(partition, 0) if log else 0) - end, 0)
    return {topic: count for topic, count in lost.items() if count}


async def _logs(cluster: Cluster, topics: Iterable[str]) -> dict[str, _Log]:
    """Returns the topics that a cluster has."""
    wanted = sorted(set(topics))
    if not wanted:
        return {}
    found = {t.name: t for t in (await cluster.refresh(wanted)).topics if t.name and not t.error_code}
    places = [(name, p.partition_index) for name, t in found.items() for p in t.partitions]
    ends = await internal_topics.offsets_of(cluster, places, LATEST)
    return {
        name: _Log(
            t.topic_id,
            frozenset(p.partition_index for p in t.partitions),
            {p: end for (topic, p), end in ends.items() if topic == name},
        )
        for name, t in found.items()
    }
