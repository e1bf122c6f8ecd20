"""The clusters of the console; a cluster's brokers."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from aiohttp import web

from klamm.admin.configs import Resource, describe_config
from klamm.admin.errors import AdminError
from klamm.admin.groups import list_groups
from klamm.admin.records import LogDir, describe_log_dirs
from klamm.console.cluster import Cluster
from klamm.console.metrics import families
from klamm.console.visit import Visit
from klamm.web.application import metrics_response
from klamm_base.errors import KlammError
from klamm_kafka.client import ClientError

SHORT_S = 4.0
SOON_S = 0.25


async def health(visit: Visit) -> web.StreamResponse:
    """Answers that the console serves."""
    return web.json_response({"status": "healthy"})


async def metrics(visit: Visit) -> web.StreamResponse:
    """Answers Prometheus with the console's own figures."""
    return metrics_response(families(visit.console))


async def clusters(visit: Visit) -> web.StreamResponse:
    """Shows all clusters, each as it is now."""
    found = await asyncio.gather(*(_summary(c) for c in visit.console.clusters.values()))
    return visit.page("clusters.html", clusters=found)


async def _summary(cluster: Cluster) -> dict[str, Any]:
    """Returns what is known of a cluster: one that does not answer soon holds up no page, and is looked at in the next one."""
    facts: dict[str, Any] = {"name": cluster.name, "settings": cluster.settings, "waits": False}
    looking = cluster.looking
    if looking is None or looking.done():
        looking = asyncio.create_task(_look(cluster), name=f"look at {cluster.name}")
        cluster.looking = looking
    await asyncio.wait([looking], timeout=SOON_S)
    if not looking.done():
        return facts | {"why": cluster.away, "waits": True}
    return facts | {"why": cluster.away} | looking.result()


async def _look(cluster: Cluster) -> dict[str, Any]:
    try:
        async with asyncio.timeout(SHORT_S):
            answer = await summary(cluster) | {"age_s": cluster.age_s("summary")}
    except (KlammError, OSError, TimeoutError) as e:
        cluster.away = str(e) or f"no answer within {SHORT_S:g} s"
        return {}
    cluster.away = None
    return answer


async def summary(cluster: Cluster) -> dict[str, Any]:
    """Returns how much a cluster has."""
    return await cluster.kept("summary", lambda: _counts(cluster))


async def _counts(cluster: Cluster) -> dict[str, Any]:
    async with cluster.admin(SHORT_S) as admin:
        answer = await admin.metadata()
    return {
        "brokers": len(answer.brokers),
        "topics": sum(1 for t in answer.topics if not t.is_internal),
        "partitions": sum(len(t.partitions) for t in answer.topics),
    }


async def overview(visit: Visit) -> web.StreamResponse:
    """Shows a cluster's brokers, with their leaders and disks."""
    cluster = visit.cluster
    return visit.page("overview.html", **await brokers(cluster), age_s=cluster.age_s("overview"))


async def brokers(cluster: Cluster) -> dict[str, Any]:
    """Returns the brokers of a cluster, and how much it has."""
    return await cluster.kept("overview", lambda: _overview(cluster))


async def _overview(cluster: Cluster) -> dict[str, Any]:
    async with cluster.admin() as admin:
        answer = await admin.metadata()
        nodes = sorted(answer.brokers, key=lambda b: b.node_id)
        dirs: list[LogDir] = []
        why = None
        try:
            dirs = await describe_log_dirs(admin, [b.node_id for b in nodes])
        except (AdminError, ClientError) as e:
            why = str(e)
        groups = await list_groups(admin, consumers_only=False)
    partitions = [p for t in answer.topics for p in t.partitions]
    leads = Counter(p.leader_id for p in partitions)
    return {
        "rows": [_broker_row(node, leads, dirs, answer.controller_id) for node in nodes],
        "id": answer.cluster_id,
        "topics": len(answer.topics),
        "partitions": len(partitions),
        "leaderless": leads[-1],
        "under_replicated": sum(len(p.isr_nodes) < len(p.replica_nodes) for p in partitions),
        "groups": len(groups),
        "why": why,
    }


def _broker_row(node: Any, leads: Counter[int], dirs: list[LogDir], controller: int) -> dict[str, Any]:
    mine = [d for d in dirs if d.broker == node.node_id]
    return {
        "id": node.node_id,
        "address": f"{node.host}:{node.port}",
        "rack": node.rack,
        "controller": node.node_id == controller,
        "leads": leads[node.node_id],
        "bytes": sum(r.size for d in mine for r in d.replicas) if mine else None,
        "dirs": mine,
    }


async def broker(visit: Visit) -> web.StreamResponse:
    """Shows a broker's settings, where they come from, and what they mean."""
    number = visit.part("broker")
    async with visit.cluster.admin() as admin:
        entries = await describe_config(admin, Resource.BROKER, number, documentation=True)
    text, own = visit.asked("q").lower(), visit.asked("set") == "1"
    shown = [
        e
        for e in entries
        if (text in e.name.lower() or text in e.documentation.lower())
        and (not own or e.source != "DEFAULT_CONFIG")
    ]
    return visit.page("broker.html", id=number, entries=shown, count=len(entries), own=own)
