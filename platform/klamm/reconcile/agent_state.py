"""What the log agent says of its files: how far each is acknowledged, and which bytes it left out by its settings.

Read from its state directory while it runs (`registry.json` is replaced as a whole, `gaps.jsonl` only grows). Nothing of
it counts as delivered: it says only which missing lines are not lost.
"""

from __future__ import annotations

import hashlib
import json
import os
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from klamm.reconcile.compare import SourceLine
from klamm.reconcile.cut import Inode, Source
from klamm_base.errors import ConfigError, KlammError

NOT_SENT: Final = "not sent by the agent yet"
GONE: Final = frozenset({"truncated", "replaced", "gone"})
"""Gaps of what was in a file once: no excuse for a line that is there."""


class AgentState:
    """One agent's files; `load` reads them anew. Raises KlammError when they cannot be read."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._acked: dict[Inode, tuple[int, int, str]] = {}
        self._gaps: dict[Inode, list[tuple[int, int, str]]] = {}

    def load(self) -> None:
        """Positions and gaps as they are on the disk now."""
        path = self._directory / "registry.json"
        try:
            entries = json.loads(path.read_bytes())["files"]
            self._acked = {
                (e["dev"], e["inode"]): (int(e["offset"]), int(e["head"][0]), str(e["head"][1]))
                for e in entries
            }
        except FileNotFoundError:
            raise ConfigError(
                f"no agent has run with state_dir {self._directory}: there is no {path}", key="agent-state"
            ) from None
        except OSError as e:
            raise KlammError(f"{path} cannot be read: {e.strerror}") from None
        except (ValueError, LookupError, TypeError) as e:
            raise KlammError(f"{path} is not what an agent writes: {e!r}") from None
        self._gaps = _gaps(self._directory / "gaps.jsonl")

    def behind(self, sources: Iterable[Source]) -> bool:
        """Whether some of these are not acknowledged up to their cut."""
        return any((at := self._position(s)) is not None and at < s.cut for s in sources)

    def excuse(self, sources: Iterable[Source]) -> Callable[[SourceLine], str]:
        """Why a line of these need not be in the target, by the state of the last `load`; empty where it has to."""
        positions: dict[str, int] = {}
        gaps: dict[str, list[tuple[int, int, str]]] = {}
        for source in sources:
            at = self._position(source)
            if at is not None:
                positions[source.path] = at
            if source.inode in self._gaps:
                gaps[source.path] = self._gaps[source.inode]

        def why(line: SourceLine) -> str:
            ranges = gaps.get(line.file, ())
            at = bisect_right(ranges, (line.offset, 1 << 62, "")) - 1
            if at >= 0 and ranges[at][0] <= line.offset < ranges[at][1]:
                return f"left out by the agent: {ranges[at][2]}"
            return NOT_SENT if line.offset >= positions.get(line.file, line.offset + 1) else ""

        return why

    def _position(self, source: Source) -> int | None:
        """Where the file is acknowledged to; None where the agent knows no such file, or another content of it."""
        known = self._acked.get(source.inode)
        if known is None or source.compressed:
            return None
        offset, length, digest = known
        head = os.pread(source.fd, length, 0)
        begins = head.startswith(source.head[:length]) and len(head) == length
        return offset if begins and (not length or _digest(head) == digest) else None


def _digest(head: bytes) -> str:
    return hashlib.blake2b(head, digest_size=12).hexdigest()


def _gaps(path: Path) -> dict[Inode, list[tuple[int, int, str]]]:
    """Ranges that were left out, by file, in order."""
    try:
        lines = path.read_bytes().splitlines()
    except FileNotFoundError:
        return {}
    except OSError as e:
        raise KlammError(f"{path} cannot be read: {e.strerror}") from None
    found: dict[Inode, list[tuple[int, int, str]]] = {}
    for number, line in enumerate(lines):
        try:
            gap: Mapping[str, Any] = json.loads(line)
            inode, part = (gap["dev"], gap["inode"]), (int(gap["from"]), int(gap["to"]), str(gap["reason"]))
        except (ValueError, LookupError, TypeError) as e:
            if number == len(lines) - 1:
                break  # being written
            raise KlammError(f"{path}, line {number + 1}, is not what an agent writes: {e!r}") from None
        if part[2] not in GONE:
            found.setdefault(inode, []).append(part)
    for ranges in found.values():
        ranges.sort()
    return found
