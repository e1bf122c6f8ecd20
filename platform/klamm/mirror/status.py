"""Asks the processes of a mirror how they are: on this machine at their sockets, elsewhere by REST.

The answer is the processes' own. A flow that does not answer is NOT RUNNING where no process holds it, RESTARTING
where `klamm mirror start` will start it again, STARTING or SILENT where its process is there all the same.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, cast

from klamm.mirror.asking import Silent, asked
from klamm.mirror.places import Place, holder, place_of
from klamm.mirror.shapes import FlowState, FlowStatus, MirrorStatus
from klamm_base.properties import from_overrides, load_properties
from klamm_mirror.settings.mm2_config import Flow, MirrorConfig, parse

ANSWER_S: Final = 0.5
"""The time limit of a process. It has the answer at hand: the whole command takes a second at most."""
STARTING_S: Final = 30.0
"""A process that listens nowhere so long after its start hangs; one that is not there by then has died."""


def flows_of(path: Path, overrides: list[str] | None = None) -> tuple[Flow, ...]:
    """Reads a file's flows, and nothing else: quick. Raises ConfigError."""
    return _parsed(path, overrides).flows


def flow_of(path: Path, name: str, overrides: list[str] | None = None) -> Flow:
    """Reads one flow of a file, as `flows_of`. Raises ConfigError."""
    return _parsed(path, overrides).flow(name)


def _parsed(path: Path, overrides: list[str] | None) -> MirrorConfig:
    return parse(load_properties(path).over(from_overrides(overrides or [])), ())


async def status_of(path: Path, flows: Sequence[Flow]) -> MirrorStatus:
    """Returns the status of the flows of a file on this machine."""
    places = [(flow, place_of(path, flow.name)) for flow in flows]
    found = await asyncio.gather(*(_flow(flow, place) for flow, place in places))
    return {"at_ms": time.time_ns() // 1_000_000, "flows": list(found)}


def runs(status: MirrorStatus) -> bool:
    """Returns whether any process of the mirror is there."""
    return any(flow["state"] != FlowState.NOT_RUNNING for flow in status["flows"])


async def _flow(flow: Flow, place: Place) -> FlowStatus:
    try:
        text = await asked(place.socket, "/status", ANSWER_S)
        return cast("FlowStatus", json.loads(text or ""))
    except OSError:
        silent = False
    except (Silent, ValueError):
        silent = True
    pid = holder(place.lock)
    if pid is not None:
        if silent or _old(place.lock):
            return _unknown(flow, FlowState.SILENT, pid, f"process {pid} does not answer")
        return _unknown(flow, FlowState.STARTING, pid, None)
    keeper = holder(place.kept)
    if keeper is not None:
        if not _old(place.kept):
            return _unknown(flow, FlowState.STARTING, None, None)
        return _unknown(
            flow, FlowState.RESTARTING, None, f"its process ended; process {keeper} starts it again"
        )
    return _unknown(flow, FlowState.NOT_RUNNING, None, "no process of this user runs it on this machine")


def _old(lock: Path) -> bool:
    """Returns whether a lock's holder has held it for some time."""
    return time.time() - lock.stat().st_mtime > STARTING_S


def _unknown(flow: Flow, state: FlowState, pid: int | None, why: str | None) -> FlowStatus:
    """Returns the status of a flow that said nothing."""
    nothing: Any = dict.fromkeys(FlowStatus.__annotations__)
    found: FlowStatus = nothing | {
        "flow": flow.name,
        "source": flow.source,
        "target": flow.target,
        "enabled": flow.enabled,
        "state": state,
        "why": why,
        "pid": pid or None,
        "partitions_total": 0,
        "partitions_unknown": 0,
        "partitions_stopped": 0,
        "gap_records": 0,
        "upkeep": {},
        "groups_left_out": {},
        "connectors": [],
        "partitions": [],
    }
    return found
