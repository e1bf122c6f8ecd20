"""Inspects an environment: asks a child process, and survives whatever a plugin does to that process.

A plugin that cannot be imported is `broken`, with its traceback. A plugin that ends, crashes or hangs
the process makes the whole environment broken, with the last output of the process. Blocks; for a
thread.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final, NamedTuple, Self

TIMEOUT_S: Final = 60.0
_LAST_WORDS: Final = 4000


class PluginRow(NamedTuple):
    """One plugin class in one of its kinds; `entry_point` is the name and module that brought it."""

    plugin_class: str
    type: str
    version: str
    names: tuple[str, ...]
    entry_point: tuple[str, str]


class Broken(NamedTuple):
    """An entry point that cannot be used: why, and the traceback."""

    name: str
    error: str
    trace: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """The plugins of an environment. `entry_points` are all names in the group `klamm`, broken ones too."""

    entry_points: tuple[str, ...]
    plugins: tuple[PluginRow, ...]
    broken: tuple[Broken, ...]

    def to_json(self) -> dict[str, Any]:
        return {"entry_points": self.entry_points, "plugins": self.plugins, "broken": self.broken}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        return cls(
            entry_points=tuple(data["entry_points"]),
            plugins=tuple(
                PluginRow(name, kind, version, tuple(names), (entry[0], entry[1]))
                for name, kind, version, names, entry in data["plugins"]
            ),
            broken=tuple(Broken(*each) for each in data["broken"]),
        )


def inspect(site: Path, *, timeout_s: float = TIMEOUT_S) -> Contents:
    """Inspect an environment's site folder. Raises nothing, whatever its plugins do."""
    overlay = [sys.executable, "-m", "klamm.environments.overlay", str(site)]
    with tempfile.TemporaryFile() as said, tempfile.TemporaryFile() as answer:
        process = subprocess.Popen(
            [*overlay, "klamm.environments.inspect_site", str(site), str(answer.fileno())],
            pass_fds=(answer.fileno(),),
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            start_new_session=True,
        )
        why = _wait(process, timeout_s)
        answer.seek(0)
        text = answer.read()
        if why is None and text:
            return Contents.from_json(json.loads(text))
        return _crashed(site, why or "it ended the process", said)


def _wait(process: subprocess.Popen[bytes], timeout_s: float) -> str | None:
    """Wait for the end of the process; returns what went wrong. The whole process group is gone afterwards."""
    try:
        code = process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        code = 0
        why: str | None = f"importing it did not end within {timeout_s:g} s"
    else:
        why = None if code == 0 else f"the process exited with code {code}"
        if code < 0:
            why = f"the process was killed by {signal.Signals(-code).name}"
    with contextlib.suppress(ProcessLookupError):  # nothing is left of it
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    return why


def _crashed(site: Path, why: str, said: IO[bytes]) -> Contents:
    from importlib.metadata import distributions

    said.seek(0)
    words = said.read().decode(errors="replace")[-_LAST_WORDS:]
    entry_points = (e for d in distributions(path=[str(site)]) for e in d.entry_points)
    names = tuple(sorted(e.name for e in entry_points if e.group == "klamm"))
    broken = tuple(Broken(name, f"It cannot be inspected: {why}", words or why) for name in names)
    return Contents(entry_points=names, plugins=(), broken=broken)
