"""GET /connectors/{connector}/progress: the progress of a connector's tasks, in flat rows with totals."""

from __future__ import annotations

import time
from typing import Any

from aiohttp import web

from klamm.connect.rest.keys import SERVICE
from klamm.web.http import json_response

_RUNS = ("RUNNING", "PAUSED")


async def get_progress(request: web.Request) -> web.Response:
    """Show each task's progress: records, bytes, lag, last acknowledgement, what it waits for.

    Figures count since the task was started. A figure that a task does not know is null.
    """
    status = await request.app[SERVICE].status(request.match_info["connector"])
    return json_response(progress_of(status, time.time_ns() // 1_000_000))


def progress_of(status: dict[str, Any], now_ms: int) -> dict[str, Any]:
    """Makes the answer of a status answer with the tasks' progress."""
    tasks = [_row(task, now_ms) for task in status["tasks"]]
    counted = [row for row in tasks if row["state"] in _RUNS]
    acks = [row["last_ack_ms"] for row in tasks if row["last_ack_ms"] is not None]
    total = {name: _sum([row[name] for row in counted]) for name in ("records", "bytes", "lag")}
    return {
        "name": status["name"],
        "type": status["type"],
        "state": status["connector"]["state"],
        "at_ms": now_ms,
        "tasks": tasks,
        "total": {**total, "last_ack_ms": max(acks, default=None)},
    }


def _row(task: dict[str, Any], now_ms: int) -> dict[str, Any]:
    progress = task.get("progress") or {}
    details = dict(progress.get("details") or {})
    last_ack_ms = progress.get("last_ack_ms")
    return {
        "id": task["id"],
        "state": task["state"],
        "worker_id": task["worker_id"],
        "records": progress.get("records"),
        "bytes": details.pop("bytes", None),
        "lag": progress.get("lag"),
        "last_ack_ms": last_ack_ms,
        "idle_ms": None if last_ack_ms is None else max(0, now_ms - last_ack_ms),
        "waiting_for": progress.get("waiting_for"),
        "details": details,
    }


def _sum(figures: list[int | None]) -> int | None:
    """Returns the sum; None when there is nothing to add up, or when a task does not know its part."""
    known = [figure for figure in figures if figure is not None]
    return sum(known) if known and len(known) == len(figures) else None
