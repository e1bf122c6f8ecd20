"""Counts of events that rules of the configuration left out, by file, range and rule. Pure.

Counts follow acknowledgements, and one write saves them with the checkpoints: after a kill they agree with the position. When a
file is forgotten, or begins again, its counts are final and go to the gap ledger.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from klamm_agent.events import Dropped
from klamm_agent.files.tracked import Gap, Inode


class _Tally:
    """Counts of one generation of a file, or of one stream: start, end and events, by reason."""

    def __init__(self, path: str, generation: int) -> None:
        self.path, self.generation = path, generation
        self.reasons: dict[str, list[int]] = {}

    def add(self, reason: str, lines: int, start: int, end: int) -> None:
        found = self.reasons.setdefault(reason, [start, end, 0])
        found[0], found[1] = min(found[0], start), max(found[1], end)
        found[2] += lines


class PolicyLedger:
    """The counts of an agent. `saved` is what `entries` gave when the agent ran last; counts of streams of that run are final at once."""

    def __init__(self, saved: Iterable[dict[str, Any]] = ()) -> None:
        self._tallies: dict[tuple[Inode, str], _Tally] = {}
        self._final: list[Gap] = []
        for entry in saved:
            inode = (int(entry["dev"]), int(entry["inode"]))
            path = str(entry["path"])
            tally = self._tallies.setdefault(_key(inode, path), _Tally(path, -1))
            tally.add(str(entry["reason"]), int(entry["lines"]), int(entry["from"]), int(entry["to"]))
        for key in [k for k in self._tallies if k[0] == (0, 0)]:
            self._finish(key)

    def add(
        self, path: str, inode: Inode, generation: int, dropped: Iterable[Dropped], block_end: int
    ) -> None:
        """Counts what was dropped of an acknowledged block."""
        for one in dropped:
            key = _key(inode, path)
            tally = self._tallies.get(key)
            if tally is not None and tally.generation not in {generation, -1}:
                self._finish(key)
                tally = None
            if tally is None:
                tally = self._tallies[key] = _Tally(path, generation)
            tally.generation = generation
            tally.add(one.reason, one.lines, one.start, block_end if one.end is None else one.end)

    def final(self, alive: Callable[[Inode], bool]) -> list[Gap]:
        """Returns counts that do not grow any more, each once; `alive` tells which files are still known."""
        for key in [k for k in self._tallies if k[0] != (0, 0) and not alive(k[0])]:
            self._finish(key)
        found, self._final = self._final, []
        return found

    def entries(self) -> list[dict[str, Any]]:
        """Returns the counts for the registry."""
        return [
            {"path": t.path, "dev": inode[0], "inode": inode[1], "from": start, "to": end, "reason": reason, "lines": lines}
            for (inode, _), t in self._tallies.items()
            for reason, (start, end, lines) in t.reasons.items()
        ]  # fmt: skip

    def _finish(self, key: tuple[Inode, str]) -> None:
        tally = self._tallies.pop(key)
        self._final += [
            Gap(path=tally.path, inode=key[0], start=start, end=end, reason=reason, lines=lines, policy=True)
            for reason, (start, end, lines) in tally.reasons.items()
        ]


def _key(inode: Inode, path: str) -> tuple[Inode, str]:
    """Returns the key of a count: files are known by inode, whatever their name is, and streams by name."""
    return inode, path if inode == (0, 0) else ""
