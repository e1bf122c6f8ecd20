"""The pages of what runs beside a cluster: mirror flows, agents and Spark jobs."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import Any, Final

from aiohttp import web

from klamm.console.errors import Upstream
from klamm.console.services import Service
from klamm.console.settings import Endpoint
from klamm.console.visit import Visit

PARTITIONS: Final = 100
METRICS_S: Final = 5.0
_LINE: Final = re.compile(r"^([a-zA-Z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)")
_OURS: Final = ("klamm_", "spark_", "process_resident", "process_start")
FIGURES_MAX: Final = 200


async def mirror(visit: Visit) -> web.StreamResponse:
    """Shows the flows of `klamm mirror start`: lag, gaps, checkpoints, the partitions that are behind."""
    status = await visit.cluster.needs("mirror").ask("GET", "/status", caller=visit.login)
    return visit.page("mirror.html", flows=status["flows"], at_ms=status["at_ms"], most=PARTITIONS)


async def watched(visit: Visit) -> web.StreamResponse:
    """Shows figures of agents and Spark jobs, from the pages that Prometheus reads."""
    urls = visit.cluster.settings.metrics
    found = await asyncio.gather(*(_figures(url) for url in urls))
    return visit.page("watched.html", rows=list(zip(urls, found, strict=True)))


async def _figures(url: str) -> dict[str, Any]:
    service = Service(Endpoint(url=url), "The metrics page")
    try:
        return {"why": None, "figures": figures(await service.text("GET", "", timeout_s=METRICS_S))}
    except Upstream as e:
        return {"why": str(e), "figures": []}
    finally:
        await service.close()


def figures(text: str) -> list[Mapping[str, str]]:
    """Returns our figures of Prometheus' text: without histograms' parts, and with the help of each."""
    helps: dict[str, str] = {}
    rows: list[Mapping[str, str]] = []
    for line in text.splitlines():
        if line.startswith("# HELP "):
            _, _, name, *rest = line.split(" ", 3)
            helps[name] = rest[0] if rest else ""
            continue
        found = _LINE.match(line)
        if found is None or not found[1].startswith(_OURS) or found[1].endswith(("_bucket", "_created")):
            continue
        rows.append(
            {"name": found[1], "labels": found[2] or "", "value": found[3], "help": helps.get(found[1], "")}
        )
    return rows[:FIGURES_MAX]
