"""The log agent's own statements on its files: how far each is acknowledged, and which bytes its settings
left out.

Read from its state directory while it runs (the agent replaces `registry.json` as a whole; `gaps.jsonl`
only grows). Nothing of it counts as delivered: it says only which missing lines are not lost.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from klamm.reconcile.compare import SourceLine
from klamm.reconcile.cut import Inode, Source
from klamm_base.errors import ConfigError, KlammError

NOT_SENT: Final = "not sent by the agent yet"
GONE: Final = frozenset({"truncated", "replaced", "gone"})
"""Kinds of gaps in earlier contents of a file: no excuse for a line that is in the file now."""


@dataclass(slots=True)
class Left:
    """A range of a file that the agent left out: `lines` of its lines, by a rule, or all of them (None)."""

    start: int
    end: int
    reason: str
    lines: int | None = None


class AgentState:
    """One agent's files; `load` reads them anew. Raises KlammError when they cannot be read."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._acked: dict[Inode, tuple[int, int, str]] = {}
        self._left: dict[Inode, list[Left]] = {}

    def load(self) -> None:
        """Read positions and gaps from the disk."""
        path = self._directory / "registry.json"
        try:
            document = json.loads(path.read_bytes())
            self._acked = {
                (e["dev"], e["inode"]): (int(e["offset"]), int(e["head"][0]), str(e["head"][1]))
                for e in document["files"]
            }
            rules = [_left(e, rule=True) for e in document.get("policy", ())]
        except FileNotFoundError:
            raise ConfigError(
                f"no agent has run with state_dir {self._directory}: there is no {path}", key="agent-state"
            ) from None
        except OSError as e:
            raise KlammError(f"{path} cannot be read: {e.strerror}") from None
        except (ValueError, LookupError, TypeError) as e:
            raise KlammError(f"{path} is not what an agent writes: {e!r}") from None
        self._left = self._together(rules, _gaps(self._directory / "gaps.jsonl"))

    def _together(
        self, rules: list[tuple[Inode, Left]], gaps: list[tuple[Inode, Left]]
    ) -> dict[Inode, list[Left]]:
        """Return the gaps by file.

        The registry holds the gaps that rules made in a file that the agent knows; the ledger holds the counts of the
        file's earlier contents.
        """
        found: dict[Inode, list[Left]] = {}
        counted = rules + [(i, gap) for i, gap in gaps if gap.lines is not None and i not in self._acked]
        for inode, rule in counted:
            # One count for all rules of a file: the agent does not record the rule that took a line
            one = next(iter(found.get(inode, ())), None)
            if one is None:
                found[inode] = [rule]
                continue
            one.start, one.end = min(one.start, rule.start), max(one.end, rule.end)
            one.lines = (one.lines or 0) + (rule.lines or 0)
            if rule.reason not in one.reason.split(", "):
                one.reason += f", {rule.reason}"
        for inode, gap in gaps:
            if gap.lines is None:
                found.setdefault(inode, []).insert(0, gap)
        return found

    def behind(self, sources: Iterable[Source]) -> bool:
        """Return whether a source is not acknowledged up to its cut."""
        return any((at := self._position(s)) is not None and at < s.cut for s in sources)

    def excuse(self, sources: Iterable[Source]) -> Callable[[SourceLine], str]:
        """Return a function that says why a line need not be in the target, by the state of the last `load`; "" where
        it must.
        """
        positions: dict[str, int] = {}
        left: dict[str, list[Left]] = {}
        for source in sources:
            at = self._position(source)
            if at is not None:
                positions[source.path] = at
            if source.inode in self._left:
                left[source.path] = [replace(part) for part in self._left[source.inode]]

        def why(line: SourceLine) -> str:
            if line.offset >= positions.get(line.file, line.offset + 1):
                return NOT_SENT
            for part in left.get(line.file, ()):
                if part.start <= line.offset < part.end and part.lines != 0:
                    if part.lines is not None:
                        part.lines -= 1
                    return f"left out by the agent: {part.reason}"
            return ""

        return why

    def _position(self, source: Source) -> int | None:
        """Return the acknowledged position; None where the agent does not know the file, or knows another content of
        it.
        """
        known = self._acked.get(source.inode)
        if known is None or source.compressed:
            return None
        offset, length, digest = known
        head = os.pread(source.fd, length, 0)
        begins = head.startswith(source.head[:length]) and len(head) == length
        return offset if begins and (not length or _digest(head) == digest) else None


def _digest(head: bytes) -> str:
    return hashlib.blake2b(head, digest_size=12).hexdigest()


def _left(entry: Mapping[str, Any], *, rule: bool) -> tuple[Inode, Left]:
    return (entry["dev"], entry["inode"]), Left(
        int(entry["from"]), int(entry["to"]), str(entry["reason"]), int(entry["lines"]) if rule else None
    )


def _gaps(path: Path) -> list[tuple[Inode, Left]]:
    """Return the ledger's gaps, without those of earlier contents of files."""
    try:
        lines = path.read_bytes().splitlines()
    except FileNotFoundError:
        return []
    except OSError as e:
        raise KlammError(f"{path} cannot be read: {e.strerror}") from None
    found = []
    for number, line in enumerate(lines):
        try:
            entry = json.loads(line)
            inode, gap = _left(entry, rule=bool(entry.get("policy")))
        except (ValueError, LookupError, TypeError, AttributeError) as e:
            if number == len(lines) - 1:
                break  # being written
            raise KlammError(f"{path}, line {number + 1}, is not what an agent writes: {e!r}") from None
        if gap.reason not in GONE:
            found.append((inode, gap))
    return found
