"""The topics of a restore in the target cluster: checked, made, and set up at the end.

A topic that the restore makes has no retention, no compaction and the producer's timestamps until its records are there: nothing
may be deleted, or get another time, meanwhile. Its own configs come at the end. So a topic that still has these is one that a
killed restore left.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from klamm.admin.client import Admin
from klamm.admin.configs import Resource, alter_config
from klamm.admin.errors import AdminError
from klamm.admin.model import TopicPartition
from klamm.admin.offsets import known_offsets
from klamm.admin.topics import create_topic, list_topics
from klamm.backup.cluster_state import topic_configs
from klamm.backup.errors import BackupError
from klamm.backup.model import Topic
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.offset_specs import EARLIEST, LATEST

FOREVER: Final = str(2**63 - 1)
MEANWHILE: Final = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "message.timestamp.type": "CreateTime",
}
ANY_TIME: Final = {"message.timestamp.before.max.ms": FOREVER, "message.timestamp.after.max.ms": FOREVER}
"""Kafka knows these from 3.6 on."""
FROM_THE_START: Final = "max.message.bytes"
"""Must hold before the first record comes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetTopic:
    """A topic of the target. `starts` and `ends` are its logs' by partition; `is_ours`: this or a killed restore made it."""

    source: Topic
    name: str
    is_new: bool
    is_ours: bool
    starts: Mapping[int, int]
    ends: Mapping[int, int]


async def look(admin: Admin, wanted: Mapping[str, Topic], *, resume: bool, append: bool) -> list[TargetTopic]:
    """Return the target's topics by the names that they shall have. With `append`, topics that hold records begin at their ends. Raises BackupError for one that cannot be restored to."""
    there = {t.name: t for t in await list_topics(admin)}
    known = sorted(set(wanted) & set(there))
    configs = await topic_configs(admin, known)
    places = [TopicPartition(name, p.number) for name in known for p in there[name].partitions]
    first = await known_offsets(admin, places, EARLIEST)
    last = await known_offsets(admin, places, LATEST)
    found = []
    for name, topic in wanted.items():
        if name not in there:
            zeros = dict.fromkeys((p.number for p in topic.partitions), 0)
            found.append(
                TargetTopic(source=topic, name=name, is_new=True, is_ours=True, starts=zeros, ends=zeros)
            )
            continue
        numbers = [p.number for p in there[name].partitions]
        target = TargetTopic(
            source=topic, name=name, is_new=False,
            is_ours=MEANWHILE.items() <= configs[name].own.items(),
            starts={n: first[TopicPartition(name, n)] for n in numbers},
            ends={n: last[TopicPartition(name, n)] for n in numbers},
        )  # fmt: skip
        _check(target, may_hold=resume or append)
        if append:
            target = replace(target, starts=target.ends)
        found.append(target)
    return found


def _check(target: TargetTopic, *, may_hold: bool) -> None:
    parts = len(target.source.partitions)
    if len(target.starts) != parts:
        raise BackupError(
            f"topic {target.name} is there with {len(target.starts)} partitions, the backup has {parts}: "
            "restore under another name (--rename, --prefix)"
        )
    full = [n for n, start in target.starts.items() if start < target.ends[n]]
    if full and not may_hold:
        raise BackupError(
            f"topic {target.name} is there and holds records: restore under another name (--rename, --prefix), delete it, "
            "go on with a restore that was killed (--resume), or put the records behind those (--append)"
        )


async def make(admin: Admin, target: TargetTopic, replicas: int) -> None:
    """Create a topic for the time of the restore. Raises AdminError."""
    configs = MEANWHILE | ANY_TIME
    if FROM_THE_START in target.source.configs:
        configs[FROM_THE_START] = target.source.configs[FROM_THE_START]
    try:
        await _create(admin, target, replicas, configs)
    except AdminError as e:
        if e.code != ErrorCode.INVALID_CONFIG:
            raise
        await _create(admin, target, replicas, {k: v for k, v in configs.items() if k not in ANY_TIME})


async def _create(admin: Admin, target: TargetTopic, replicas: int, configs: Mapping[str, str]) -> None:
    await create_topic(
        admin, target.name,
        partitions=len(target.source.partitions), replication_factor=replicas, configs=configs,
    )  # fmt: skip


async def finish(admin: Admin, target: TargetTopic) -> list[str]:
    """Give a topic of ours the configs of the backup. Returns those that the cluster refuses, with its reasons."""
    own = dict(target.source.configs)
    now = (await topic_configs(admin, [target.name]))[target.name].own
    away: Sequence[str] = [k for k in (*MEANWHILE, *ANY_TIME) if k not in own and k in now]
    try:
        await alter_config(admin, Resource.TOPIC, target.name, put=own, delete=away)
        return []
    except AdminError as e:
        if e.code not in (ErrorCode.INVALID_CONFIG, ErrorCode.INVALID_REQUEST, ErrorCode.POLICY_VIOLATION):
            raise
    refused = []
    for key, value in own.items():
        try:
            await alter_config(admin, Resource.TOPIC, target.name, put={key: value}, delete=[])
        except AdminError as e:
            refused.append(f"{target.name}: {key}={value} is refused: {e.text}")
            if key in MEANWHILE | ANY_TIME:
                away = [*away, key]
    if away:
        await alter_config(admin, Resource.TOPIC, target.name, put={}, delete=away)
    return refused
