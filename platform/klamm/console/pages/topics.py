"""The list of topics, and a topic: partitions, sizes, settings with their source and meaning."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final

from aiohttp import web

from klamm.admin.client import Admin
from klamm.admin.configs import Resource, describe_config
from klamm.admin.errors import AdminError
from klamm.admin.model import TopicPartition
from klamm.admin.offsets import list_offsets
from klamm.admin.records import describe_log_dirs
from klamm.admin.topics import Topic, describe_topics, id_text
from klamm.console.cluster import Cluster
from klamm.console.errors import NotThere
from klamm.console.visit import Visit
from klamm_base.errors import KlammError
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.offset_specs import EARLIEST, LATEST

PAGE: Final = 50
SIZES_S: Final = 10.0
SORTS: Final = ("name", "partitions", "replication", "size")


@dataclass(frozen=True, slots=True)
class Summary:
    """A row of the list. `under`: partitions without all of their replicas."""

    name: str
    internal: bool
    partitions: int
    replication: int
    under: int


async def summaries(cluster: Cluster) -> list[Summary]:
    """Returns all topics by name, at most a moment old."""

    async def ask() -> list[Summary]:
        async with cluster.admin() as admin:
            answer = await admin.metadata()
        return sorted(
            (
                Summary(
                    t.name or "",
                    t.is_internal,
                    len(t.partitions),
                    len(t.partitions[0].replica_nodes) if t.partitions else 0,
                    sum(len(p.isr_nodes) < len(p.replica_nodes) for p in t.partitions),
                )
                for t in answer.topics
                if not t.error_code
            ),
            key=lambda t: t.name,
        )

    return await cluster.kept("topics", ask)


async def list_page(visit: Visit) -> web.StreamResponse:
    """Shows topics: searched, sorted, a page of them with sizes."""
    cluster = visit.cluster
    found = await summaries(cluster)
    age_s = cluster.age_s("topics") or 0
    text, internal = visit.asked("q").lower(), visit.asked("internal") == "1"
    rows = [t for t in found if text in t.name.lower() and (internal or not hidden(t))]
    sort, down = visit.asked("sort", "name"), visit.asked("down") == "1"
    sizes: dict[str, int] = {}
    if sort == "size":
        sizes = await all_sizes(cluster)
        age_s = max(age_s, cluster.age_s("sizes") or 0)
        rows.sort(key=lambda t: sizes.get(t.name, 0), reverse=down)
    elif sort in ("partitions", "replication"):
        rows.sort(key=lambda t: getattr(t, sort), reverse=down)
    elif down:
        rows.reverse()
    pages = max(1, -(-len(rows) // PAGE))
    page = min(max(1, int(asked) if (asked := visit.asked("page", "1")).isdecimal() else 1), pages)
    shown = rows[(page - 1) * PAGE : page * PAGE]
    if not sizes and shown:
        sizes = await _sizes(cluster, [TopicPartition(t.name, p) for t in shown for p in range(t.partitions)])
    return visit.page(
        "topics.html",
        rows=shown,
        sizes=sizes,
        matches=len(rows),
        total=len(found),
        page=page,
        pages=pages,
        sort=sort,
        down=down,
        internal=internal,
        age_s=age_s,
    )


async def all_sizes(cluster: Cluster) -> dict[str, int]:
    """Returns the bytes of all topics, some seconds old."""
    return await cluster.kept("sizes", lambda: _sizes(cluster, None), for_s=SIZES_S)


def hidden(topic: Summary) -> bool:
    """Tells whether a topic is internal, or looks so by its name."""
    return topic.internal or topic.name.startswith("__")


async def _sizes(cluster: Cluster, partitions: Collection[TopicPartition] | None) -> dict[str, int]:
    """Returns bytes by topic, of the largest replica of each partition; nothing where brokers do not tell."""
    try:
        async with cluster.admin() as admin:
            sizes = await partition_sizes(admin, partitions)
    except KlammError:
        return {}
    result: dict[str, int] = {}
    for tp, size in sizes.items():
        result[tp.topic] = result.get(tp.topic, 0) + size
    return result


async def partition_sizes(
    admin: Admin, partitions: Collection[TopicPartition] | None
) -> dict[TopicPartition, int]:
    """Returns bytes of the largest replica of each partition."""
    dirs = await describe_log_dirs(admin, list(await admin.brokers()), partitions)
    sizes: dict[TopicPartition, int] = {}
    for replica in (r for d in dirs for r in d.replicas if not r.future):
        sizes[replica.partition] = max(sizes.get(replica.partition, 0), replica.size)
    return sizes


async def described(admin: Admin, name: str) -> Topic:
    """Returns a topic. Raises NotThere."""
    try:
        return (await describe_topics(admin, [name]))[0]
    except AdminError as e:
        if e.code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION):
            raise NotThere(f"there is no topic {name}") from None
        raise


async def topic(visit: Visit) -> web.StreamResponse:
    """Shows a topic's partitions."""
    name = visit.part("topic")
    async with visit.cluster.admin() as admin:
        found = await described(admin, name)
        partitions = [TopicPartition(name, p.number) for p in found.partitions]
        starts, ends = await asyncio.gather(
            list_offsets(admin, partitions, EARLIEST), list_offsets(admin, partitions, LATEST)
        )
        try:
            sizes = await partition_sizes(admin, partitions)
        except KlammError:
            sizes = {}
    rows: list[dict[str, Any]] = []
    for p, tp in zip(found.partitions, partitions, strict=True):
        start, end = _offset(starts.get(tp)), _offset(ends.get(tp))
        rows.append(
            {
                "p": p,
                "start": start,
                "end": end,
                "records": None if start is None or end is None else end - start,
                "size": sizes.get(tp),
            }
        )
    return visit.page(
        "topic.html",
        name=name,
        topic=found,
        id=id_text(found.id),
        rows=rows,
        records=sum(r["records"] or 0 for r in rows),
        size=sum(sizes.values()) if sizes else None,
    )


def _offset(found: object) -> int | None:
    return found if isinstance(found, int) else None


async def settings(visit: Visit) -> web.StreamResponse:
    """Shows a topic's settings, where they come from, and what they mean."""
    name = visit.part("topic")
    async with visit.cluster.admin() as admin:
        await described(admin, name)
        entries = await describe_config(admin, Resource.TOPIC, name, documentation=True)
    return visit.page("topic_settings.html", name=name, entries=entries)
