"""The plugins beside the worker: those in its own Python environment. A child lists them, once for each
state of what is installed.

The state consists of the metadata folders of distributions on the import path, and of the source files
that the plugins came from, by time of change. So a package that was just installed, or edited in place,
is seen. A package that ends the child is found by asking for each entry point alone. Lives in the event
loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Final

from klamm.connect.model import PluginInfo
from klamm.environments.inspection import Broken
from klamm_base.errors import KlammError
from klamm_plugins.discovery import GROUP

log = logging.getLogger(__name__)

# A broken package may be fixed without a new mtime, so list it again after this time, and after this many
# times the duration of the last attempt, because a package that hangs delays its callers.
BROKEN_S: Final = 5.0
_BROKEN_TIMES: Final = 20
# A file that changed this shortly before a listing may change again without a new mtime.
_UNSETTLED_S: Final = 2.0
_METADATA: Final = (".dist-info", ".egg-info")

List = Callable[[Mapping[str, Any], float], Awaitable[Mapping[str, Any]]]
"""The call `list_plugins` with these parameters, within so many seconds. Raises KlammError."""

State = dict[str, tuple[int, int]]
"""Time of change (ns) and inode by path."""


class PluginsBeside:
    """See the module."""

    def __init__(self, ask: List) -> None:
        self.plugins: list[PluginInfo] = []
        self.broken: list[Broken] = []
        self._ask = ask
        self._files: list[str] = []
        self._state: State | None = None  # None: to be listed again
        self._listed = False
        self._again = 0.0  # when to list what is broken, by the loop's clock
        self._listing = asyncio.Lock()
        self._looks = 0
        self._answered = 0  # the number of the last look that did not fail

    @property
    def listed(self) -> bool:
        """True once the plugins have been listed."""
        return self._listed

    async def refresh(self, timeout_s: float) -> bool:
        """List the plugins unless nothing has changed; returns whether they were listed. Raises KlammError when no
        child could answer.

        All who come during one look share the next one: a hundred tasks that start do not look a hundred times.
        """
        came = self._looks
        async with self._listing:
            if self._answered > came:  # a look that began later has ended
                return False
            self._looks += 1
            listed = await self._look(timeout_s)
            self._answered = self._looks
            return listed

    async def _look(self, timeout_s: float) -> bool:
        state = await asyncio.to_thread(installed_state, self._files)
        if state == self._state and not self._tries_again():
            return False
        began, clock = time.time(), asyncio.get_running_loop().time
        started = clock()
        found = await self._found(timeout_s)
        self._listed = True
        self.plugins = [PluginInfo(*row) for row in found["plugins"]]
        self.broken = [Broken(*each) for each in found["broken"]]
        self._files = list(found["files"])
        self._again = clock() + max(BROKEN_S, _BROKEN_TIMES * (clock() - started))
        known = {k: v for k, v in state.items() if k.endswith(_ENTRY_ENDS)}
        seen = known | await asyncio.to_thread(_file_state, self._files)
        self._state = seen if settled(seen, began) else None
        return True

    def _tries_again(self) -> bool:
        return bool(self.broken) and asyncio.get_running_loop().time() > self._again

    async def _found(self, timeout_s: float) -> Mapping[str, Any]:
        try:
            return await self._ask({}, timeout_s)
        except KlammError as e:
            log.warning("the plugins cannot be listed together, listing each package alone: %s", e)
            failed = e
        groups = await asyncio.to_thread(_groups)
        answers = await asyncio.gather(*(self._of_group(group, timeout_s) for group in groups))
        if not any(answer["plugins"] for answer in answers):
            raise failed
        return {
            key: [row for answer in answers for row in answer[key]] for key in ("plugins", "broken", "files")
        }

    async def _of_group(self, group: list[tuple[str, str]], timeout_s: float) -> Mapping[str, Any]:
        """Returns the plugins of these entry points; all count as broken when they end the child."""
        try:
            return await self._ask({"entry_points": group}, timeout_s)
        except KlammError as e:
            why = f"It cannot be imported: {e}"
            return {"plugins": [], "broken": [(name, why, why) for name, _ in group], "files": []}


_ENTRY_ENDS: Final = (*_METADATA, os.sep + "entry_points.txt")


def installed_state(files: Iterable[str] = ()) -> State:
    """Returns the state of the children's import path, and of these files. Takes about a millisecond."""
    found: State = {}
    for folder in dict.fromkeys((*sys.path, str(Path.cwd()))):  # where `python -m` has its first look
        with contextlib.suppress(OSError), os.scandir(folder or ".") as entries:
            for entry in entries:
                if entry.name.endswith(_METADATA):
                    _note(found, entry.path)
                    _note(found, os.path.join(entry.path, "entry_points.txt"))  # noqa: PTH118 - hundreds of them
    return found | _file_state(files)


def _file_state(files: Iterable[str]) -> State:
    found: State = {}
    for file in files:
        _note(found, file)
    return found


def _note(state: State, path: str) -> None:
    try:
        at = os.stat(path)  # noqa: PTH116
    except OSError:
        return
    state[path] = (at.st_mtime_ns, at.st_ino)


def settled(state: State, began: float) -> bool:
    """Returns whether nothing in the state changed shortly before the listing began, or since."""
    since, until = (began - _UNSETTLED_S) * 1e9, (time.time() + _UNSETTLED_S) * 1e9
    return not any(since < mtime < until for mtime, _ in state.values())


def _groups() -> list[list[tuple[str, str]]]:
    """Returns the entry points that are asked for together: Klamm's own, and every other one alone."""
    own: list[tuple[str, str]] = []
    others: dict[tuple[str, str], None] = {}
    for each in entry_points(group=GROUP):
        if each.dist is not None and each.dist.name == "klamm":
            own.append((each.name, each.value))
        else:
            others[each.name, each.value] = None
    return [own, *([each] for each in others if each not in own)]
