"""Follows a package that was installed through one worker until the whole group has it.

Asks each worker by GET /internal/plugins, until every worker has the package or cannot have it, or time
is up.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, NamedTuple

from klamm.connect.herding.cluster import Answer
from klamm.environments.shown import InstalledPlugin

WAIT_S: Final = 60.0
SILENT_S: Final = 10.0  # one that does not answer at all is not waited for longer
ASK_S: Final = 0.3
PATH: Final = "/internal/plugins"

NOBODY: Final = "the others of the group"

BUILDING: Final = "building"
UNKNOWN: Final = "unknown"  # it does not tell: an older worker, or Kafka's


class WorkerHas(NamedTuple):
    """The state of a package on one worker (`unknown` when the worker does not answer)."""

    worker: str
    state: str
    error: str | None = None

    def to_json(self) -> dict[str, Any]:
        return self._asdict()


def told(packages: list[InstalledPlugin]) -> dict[str, Any]:
    """Returns this worker's answer: the state of its packages by `name==version`."""
    return {
        f"{p.name}=={p.version}": {"state": p.state, "error": p.error, "lock": p.lock}
        for p in packages
        if p.version
    }


async def spread(
    package: InstalledPlugin,
    url: str,
    ask_others: Callable[[str], Awaitable[Mapping[str, Answer] | None]],
    *,
    wait_s: float = WAIT_S,
    silent_s: float = SILENT_S,
) -> list[WorkerHas]:
    """Waits until every worker has the package or cannot have it; returns the state on each, this worker (at `url`) first."""
    began = time.monotonic()
    here = WorkerHas(url, package.state, package.error)
    while True:
        answers = await ask_others(PATH)
        if answers is None:  # for the moment: asked again like one that is silent
            answers = {NOBODY: (0, None)}
        found = [read(url, answer, package) for url, answer in sorted(answers.items())]
        passed = time.monotonic() - began
        silent = {url for url, (status, _) in answers.items() if status not in {200, 404}}
        waits = [
            each
            for each in found
            if each.state == BUILDING or (each.worker in silent and passed < min(silent_s, wait_s))
        ]
        if not waits or passed >= wait_s:
            return [here, *found]
        await asyncio.sleep(ASK_S)


def read(url: str, answer: Answer, package: InstalledPlugin) -> WorkerHas:
    """Returns the state of a package in a worker's answer. A package there with another lock is about to be
    replaced.
    """
    status, packages = answer
    if status != 200 or not isinstance(packages, dict):
        return WorkerHas(url, UNKNOWN, f"it answers {status}" if status else "it does not answer")
    has = packages.get(f"{package.name}=={package.version}")
    if has is None or has.get("lock") != package.lock:
        return WorkerHas(url, BUILDING)
    return WorkerHas(url, str(has["state"]), has.get("error"))
