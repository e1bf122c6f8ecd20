"""The pages of what runs beside a cluster: mirror flows, agents and Spark jobs."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final

from aiohttp import web

from klamm.console.cluster import Cluster
from klamm.console.errors import Upstream
from klamm.console.jobs import agent, read, spark
from klamm.console.services import Service
from klamm.console.settings import Endpoint
from klamm.console.visit import Visit

PARTITIONS: Final = 100
METRICS_S: Final = 5.0


async def mirror(visit: Visit) -> web.StreamResponse:
    """Shows the flows of `klamm mirror start`: lag, gaps, checkpoints, the partitions that are behind."""
    status = await visit.cluster.needs("mirror").ask("GET", "/status", caller=visit.login)
    return visit.page("mirror.html", flows=status["flows"], at_ms=status["at_ms"], most=PARTITIONS)


async def watched(visit: Visit) -> web.StreamResponse:
    """Shows agents and Spark jobs, by the pages that Prometheus reads: what is behind, rates, errors, and all figures."""
    cluster = visit.cluster
    urls = cluster.settings.metrics
    found = await asyncio.gather(*(_look(cluster, url) for url in urls))
    return visit.page("watched.html", rows=list(zip(urls, found, strict=True)))


async def _look(cluster: Cluster, url: str) -> dict[str, Any]:
    service = Service(Endpoint(url=url), "The metrics page")
    try:
        now = read(await service.text("GET", "", timeout_s=METRICS_S), time.time())
    except Upstream as e:
        return {"why": str(e), "agent": None, "jobs": [], "figures": []}
    finally:
        await service.close()
    before = cluster.seen.get(url)
    cluster.seen[url] = now
    return {"why": None, "agent": agent(now, before), "jobs": spark(now), "figures": now.shown()}
