"""The judgement of `klamm lag` (Burrow's API v3) on groups: status, age of the next record, course. None of it is needed to show a group."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from klamm.console.cluster import Cluster
from klamm.console.errors import Upstream
from klamm.console.view import in_path

SHORT_S: Final = 3.0
AT_A_TIME: Final = 16
COURSE_S: Final = 6 * 3600
ROWS: Final = 2_000
NOT_FOUND: Final = 404


def _path(cluster: Cluster, group: str, what: str) -> str:
    return f"/v3/kafka/{in_path(cluster.settings.lag_cluster)}/consumer/{in_path(group)}/{what}"


async def verdict(
    cluster: Cluster, group: str, caller: str | None
) -> tuple[dict[str, Any] | None, str | None]:
    """Returns the status of a group with all of its partitions, or why there is none; two Nones where nobody judges."""
    if cluster.judge is None:
        return None, None
    try:
        answer = await cluster.judge.ask(
            "GET", _path(cluster, group, "lag"), caller=caller, timeout_s=SHORT_S
        )
        return answer["status"], None
    except Upstream as e:
        if e.code == NOT_FOUND:
            return None, "The lag server does not know this group: it has not seen it commit"
        return None, str(e)


async def verdicts(
    cluster: Cluster, groups: Sequence[str], caller: str | None
) -> tuple[dict[str, dict[str, Any]], str | None]:
    """Returns the statuses of groups, and why some may be missing."""
    judge, room = cluster.judge, asyncio.Semaphore(AT_A_TIME)
    if judge is None or not groups:
        return {}, None
    why: list[str] = []

    async def one(group: str) -> dict[str, Any] | None:
        async with room:
            if why:
                return None
            try:
                answer = await judge.ask(
                    "GET", _path(cluster, group, "status"), caller=caller, timeout_s=SHORT_S
                )
            except Upstream as e:
                if e.code != NOT_FOUND:
                    why.append(str(e))
                return None
            found: dict[str, Any] = answer["status"]
            return found

    found = await asyncio.gather(*(one(g) for g in groups))
    return {g: s for g, s in zip(groups, found, strict=True) if s is not None}, why[0] if why else None


async def course(cluster: Cluster, group: str, caller: str | None) -> list[Mapping[str, Any]]:
    """Returns how a group was in the last hours; nothing where nobody keeps it (Burrow does not)."""
    if cluster.judge is None:
        return []
    since_ms = int((time.time() - COURSE_S) * 1000)
    path = _path(cluster, group, f"history?since={since_ms}&limit={ROWS}")
    try:
        answer = await cluster.judge.ask("GET", path, caller=caller, timeout_s=SHORT_S)
    except Upstream:
        return []
    rows: list[Mapping[str, Any]] = answer.get("history", [])
    return rows


def with_course(chart: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns a chart that begins with the course, where it reaches back further than the samples, and has the age of the next record. Pure.

    The course has the sum of all topics. So its line is `all topics`, which the samples go on with.
    """
    if not rows:
        return {**chart, "ages": None}
    times: list[float] = list(chart["times"])
    first = times[0] if times else float("inf")
    before = [r for r in rows if r["at"] / 1000 < first]
    gap: list[float | None] = [None] * len(before)
    lines = [{"name": line["name"], "values": gap + line["values"]} for line in chart["lines"]]
    sums = [r["totallag"] for r in before]
    samples = [[line["values"][i] or 0 for line in chart["lines"]] for i in range(len(times))]
    lines.insert(0, {"name": "all topics", "values": sums + [sum(each) for each in samples]})
    all_times = [r["at"] / 1000 for r in before] + times
    return {**chart, "times": all_times, "lines": lines, "ages": _at(all_times, rows)}


def _at(times: Sequence[float], rows: Sequence[Mapping[str, Any]]) -> list[float | None]:
    """Returns the age in seconds at each time: between two rows that know it, it has gone evenly from one to the other."""
    found: list[float | None] = []
    known = [(r["at"] / 1000, None if r["time_lag_ms"] is None else r["time_lag_ms"] / 1000) for r in rows]
    i = 0
    for at in times:
        while i < len(known) and known[i][0] <= at:
            i += 1
        before, age = known[i - 1] if i else (at, None)
        after, later = known[i] if i < len(known) else (at, None)
        if age is not None and later is not None:
            age += (later - age) * (at - before) / (after - before)
        found.append(age)
    return found
