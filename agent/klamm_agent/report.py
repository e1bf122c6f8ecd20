"""`klamm agent status`: a report from a state directory, whether its agent runs or not. It only reads, and holds nothing."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final

from klamm_agent.state.registry import GAPS, LOCK, REGISTRY, STATUS
from klamm_base.errors import KlammError

STALE_S: Final = 15.0  # an agent writes its status every second


class ReportError(KlammError):
    """No state to report on, or none that can be read."""


def report(state: Path) -> dict[str, Any]:
    """Returns status, files and gaps of a state directory. Raises ReportError."""
    if not state.is_dir():
        raise ReportError(f"{state} is not there: no agent has run with it")
    status = _json(state / STATUS)
    registry = _json(state / REGISTRY)
    running = _is_held(state / LOCK)
    found = status | {"state": _state(status, running=running), "state_dir": str(state)}
    found["tracked"] = [_file(entry) for entry in registry.get("files", [])]
    if found["tracked"] and not running:  # the agent's last figure is of that time
        found["lag_bytes"] = sum(f["lag_bytes"] for f in found["tracked"])
    found["policy"] = registry.get("policy", [])
    found["gap_reasons"] = _gaps(state / GAPS)
    return found


def _state(status: dict[str, Any], *, running: bool) -> str:
    said = status.get("state")
    if not running:
        return "stopped" if said == "stopped" else "killed" if said else "never ran"
    if said is None or time.time() - status["at"] > STALE_S:
        return "not answering" if said is not None else "starting"
    return str(said)


def _file(entry: dict[str, Any]) -> dict[str, Any]:
    path, offset, seen = entry["path"], int(entry["offset"]), int(entry.get("size", 0))
    size: int | None
    try:
        there = os.stat(path)  # noqa: PTH116 - the name may be no text
        size = there.st_size if (there.st_dev, there.st_ino) == (entry["dev"], entry["inode"]) else None
    except OSError:
        size = None  # renamed or gone; the agent knows it by its inode
    lag = max(0, (seen if size is None else size) - offset)
    if size is not None and size < offset and "packed" not in entry:
        lag = size  # truncated
    return {
        "path": path,
        "offset": offset,
        "size": size,
        "lag_bytes": lag,
        "inode": entry["inode"],
    }


def _gaps(path: Path) -> dict[str, dict[str, int]]:
    """Counts the ledger's ranges, bytes and lines by reason."""
    ranges, sizes, lines = Counter[str](), Counter[str](), Counter[str]()
    try:
        with path.open(encoding="utf-8") as file:
            for line in file:
                try:
                    entry = json.loads(line)
                    reason = str(entry["reason"])
                    sizes[reason] += 0 if entry.get("policy") else int(entry["to"]) - int(entry["from"])
                    lines[reason] += int(entry.get("lines", 0))
                except (ValueError, LookupError, TypeError):
                    reason = "a damaged line of the ledger"
                ranges[reason] += 1
    except FileNotFoundError:
        return {}
    except OSError as e:
        raise ReportError(f"{path} cannot be read: {e.strerror}") from None
    return {r: {"ranges": n, "bytes": sizes[r], "lines": lines[r]} for r, n in ranges.items()}


def _is_held(path: Path) -> bool:
    """Tells whether an agent holds the lock."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError as e:
        raise ReportError(f"{path} cannot be read: {e.strerror}") from None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def _json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except OSError as e:
        raise ReportError(f"{path} cannot be read: {e.strerror}") from None
    except ValueError as e:
        raise ReportError(f"{path} is damaged: {e}") from None
    if not isinstance(found, dict):
        raise ReportError(f"{path} is damaged: it is no JSON object")
    return found
