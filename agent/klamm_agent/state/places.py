"""The places to go on from: the registry, and beyond it the write-ahead log, which knows what was read since.

The registry follows acknowledgements; the log follows reading, and has the batches that were not acknowledged. Each entry of the log
that announces a registry has its fingerprint. So the log counts only if it knows the registry that is there: after a power cut it
may have lost its end, and somebody may have replaced the registry by hand. The registry alone gives every line at least once.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from klamm_agent.delivery.wal.book import Book
from klamm_agent.delivery.wal.log import WalError, WriteAheadLog
from klamm_agent.events import Dropped
from klamm_agent.files.tracked import Checkpoint, Inode, Tracked
from klamm_agent.files.tracker import Tracker
from klamm_agent.state.registry import StateDir, StateError, checkpoint_of, entry_of

log = logging.getLogger(__name__)

WAL: Final = "wal"
STREAMS: Final = (0, 0)
"""The inode of all streams' events."""


@dataclass(slots=True)
class FileMark:
    """The place behind a block of a file, and what filters left out before it."""

    checkpoint: Checkpoint
    dropped: list[tuple[int, list[dict[str, Any]]]]
    """By number of a block."""

    def note(self, about: dict[str, Any]) -> None:
        about.setdefault("files", {})[_key(self.checkpoint.inode)] = entry_of(self.checkpoint)
        if self.dropped:
            about.setdefault("dropped", []).extend(self.dropped)


@dataclass(slots=True)
class StreamMark:
    """The place behind events of a stream that can be read again."""

    name: str
    place: Any

    def note(self, about: dict[str, Any]) -> None:
        about.setdefault("streams", {})[self.name] = self.place


@dataclass(slots=True)
class _Before:
    """The registry as it was at the start. It holds for files with lines of before that are not acknowledged: they are beyond it."""

    files: dict[Inode, Checkpoint]
    streams: dict[str, Any]
    policy: list[dict[str, Any]]
    counted: set[int]
    """Blocks whose left out events it counts."""
    moved: set[Inode] = field(default_factory=set)
    """Files whose positions changed without a read since: one may be the copy of a file that holds."""


class Places:
    """The places in a state directory. `wal` is None when there is no log: `without` says why, if it is wanted. Raises StateError."""

    def __init__(self, state: StateDir, *, wanted: bool) -> None:
        self._state = state
        self.checkpoints = state.load()
        self.streams, self.policy = dict(state.streams), list(state.policy)
        self.without = "" if wanted else "exactly_once = false"
        self.unproved = 0
        """Lines of a log that does not go with the registry: they come again, and may be in their topics."""
        self.counted: set[int] = set()
        """Blocks whose left out events are in the policy ledger, as `mark` numbered them."""
        self._left_out: dict[
            Inode, list[tuple[int, list[dict[str, Any]]]]
        ] = {}  # of blocks that gave no records
        self._block = time.time_ns() // 1000  # numbers of no life before
        self._before: _Before | None = None  # while the log has lines of before that are not acknowledged
        self.wal: WriteAheadLog | None = None
        if wanted or (state.path / WAL).is_dir():
            self._open(wanted=wanted)

    def _open(self, *, wanted: bool) -> None:
        began = time.perf_counter()
        try:
            wal = WriteAheadLog(self._state.path / WAL)
            if self.checkpoints is not None and self._state.fingerprint in wal.book.registries:
                self._go_on(wal.book, self._state.fingerprint or "")
            elif not wanted:
                wal.close()
                return
            else:
                self._begin_anew(wal)
        except WalError as e:
            self.without = str(e)
            log.warning("%s; lines may come twice after a kill", e)
            return
        if wal.book.live:
            log.info(
                "the write-ahead log has %d batches that were not acknowledged; to read it took %.0f ms",
                len(wal.book.live),
                (time.perf_counter() - began) * 1e3,
            )
        if not wanted and not wal.book.live:
            wal.close()
            return
        if not wanted:
            log.warning(
                "exactly_once = false holds from the next start: the write-ahead log still has lines to send"
            )
        self.wal = wal

    def _begin_anew(self, wal: WriteAheadLog) -> None:
        if not wal.is_empty and self.checkpoints is not None:
            self.unproved = sum(logged.count for logged in wal.book.live.values())
            log.warning(
                "the write-ahead log does not know registry.json as it is (a power cut, or it was replaced): the registry "
                "decides, and lines since its last write may come twice, %d of them for sure unacknowledged",
                self.unproved,
            )
        wal.begin_anew(self._state.fingerprint)

    def _go_on(self, book: Book, fingerprint: str) -> None:
        found = {c.inode: c for c in self.checkpoints or ()}
        if book.live:
            counted = set(book.counted.get(fingerprint, ()))
            self._before = _Before(dict(found), dict(self.streams), list(self.policy), counted)
        for key, entry in book.files.items():
            inode = _inode(key)
            before = found.pop(inode, None)
            if entry is None:
                continue
            place = checkpoint_of(entry)
            if (
                before is not None
                and before.packed is None
                and before.generation == place.generation
                and before.offset <= place.offset
            ):
                place = replace(place, size=max(place.size, before.size))
            found[inode] = place
        self.checkpoints = list(found.values())
        self.streams |= book.streams
        self.policy += book.uncounted(fingerprint)
        self.counted = set(book.dropped)

    def mark(
        self, file: Tracked, dropped: Sequence[Dropped], block_end: int, *, sent: bool
    ) -> tuple[FileMark | None, int]:
        """Returns the mark of the block that was just read, and the number of what filters left out of it (0: nothing).

        There is no mark when the block gave no records, or there is no log.
        """
        if self.wal is None or not (sent or dropped):
            return None, 0
        rows = self._left_out.pop(file.inode, [])
        number = 0
        if dropped:
            number = self._block = self._block + 1
            rows.append((number, [_row(file, d, block_end) for d in dropped]))
        if sent:
            return FileMark(file.read_to(), rows), number
        self._left_out[file.inode] = rows
        return None, number

    def note(self, tracker: Tracker) -> bool:
        """Writes the places that changed without a read, before anything else is read; returns whether the log has them."""
        changed = list(tracker.changed)
        if self.wal is not None and changed:
            files: dict[str, Any] = {}
            for inode in changed:
                file = tracker.get(inode)
                there = file is not None and (file.position or file.was is not None or file.is_begun)
                files[_key(inode)] = entry_of(file.read_to()) if file is not None and there else None
            try:
                self.wal.change({"files": files})
            except WalError:
                return False
        if self._before is not None:
            self._before.moved.update(changed)
        tracker.changed.clear()
        return True

    def held(self, owed: Collection[Inode]) -> set[Inode]:
        """Returns the files of which the registry cannot say more than at the start: those `owed`, with lines of before that are not
        acknowledged, and those that may be their copies. STREAMS stands for all streams.
        """
        if not owed:
            self._before = None
        return set() if self._before is None else {*owed, *self._before.moved}

    def save(
        self,
        checkpoints: Iterable[Checkpoint],
        streams: dict[str, Any] | None = None,
        policy: list[dict[str, Any]] | None = None,
        *,
        held: Collection[Inode] = (),
    ) -> None:
        """Saves the registry, which the log announces. Of files that are `held` it says what it said at the start. Raises StateError."""
        if (before := self._before) is not None and held:
            files = [c for c in checkpoints if c.inode not in held]
            checkpoints = [*files, *(c for inode, c in before.files.items() if inode in held)]
            streams = before.streams if STREAMS in held else streams
            # Counts of streams of before are in the gap ledger already
            held = set(held) - {STREAMS}
            policy = [row for row in policy or () if _inode_of(row) not in held]
            policy += [row for row in before.policy if _inode_of(row) in held]
        self._state.save(checkpoints, streams, policy, announce=lambda f: self._announce(f, held))
        if self.wal is not None:
            self.wal.book.forget_gone(set(map(_key, held)))

    def _announce(self, fingerprint: str, held: Collection[Inode]) -> None:
        if self.wal is None:
            return
        try:
            dropped = self.wal.book.dropped
            self.counted &= dropped.keys()
            before = set() if self._before is None else self._before.counted
            counted = [
                block
                for block in sorted(self.counted)
                if block in before or not any(_inode_of(row) in held for row in dropped[block])
            ]
            self.wal.change({"registry": fingerprint, "saved": self._state.fingerprint, "counted": counted})
        except WalError as e:
            raise StateError(str(e)) from e

    def close(self) -> None:
        if self.wal is not None:
            self.wal.close()
            self.wal = None


def _row(file: Tracked, dropped: Dropped, block_end: int) -> dict[str, Any]:
    """Returns what was left out as the registry has it."""
    return {
        "path": file.path, "dev": file.inode[0], "inode": file.inode[1], "from": dropped.start,
        "to": block_end if dropped.end is None else dropped.end, "reason": dropped.reason, "lines": dropped.lines,
    }  # fmt: skip


def _key(inode: Inode) -> str:
    return f"{inode[0]}:{inode[1]}"


def _inode_of(row: dict[str, Any]) -> Inode:
    return int(row["dev"]), int(row["inode"])


def _inode(key: str) -> Inode:
    dev, _, inode = key.partition(":")
    return int(dev), int(inode)
