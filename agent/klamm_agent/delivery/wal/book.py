"""The book: what the write-ahead log says, kept while it is written and found again by reading it. Pure.

Invariants: `files` has, for each file, the position behind its last batch in the log; `live` has the batches that no broker is known
to have. So a file goes on at its position, and the batches in `live` go again, under their old numbers where they have some.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, Final

from klamm_agent.delivery.wal.entries import Entry, Kind, Note, Sent, decode_notes

KEPT: Final = 2
"""Fingerprints of the registry that count: the one that is there, and the one that is about to take its place."""


@dataclass(slots=True)
class Logged:
    """A batch in the log. Its bytes are `size` bytes at `at` of a segment; `shares` has a row per block of its records."""

    number: int
    topic: str
    key: bytes | None
    count: int
    segment: int
    at: int
    size: int
    shares: list[list[Any]]
    sent: Sent | None = None

    def row(self) -> list[Any]:
        """Returns the batch as entries have it."""
        key = None if self.key is None else self.key.decode("latin-1")
        return [self.number, self.topic, key, self.count, self.size, self.shares]


@dataclass(slots=True)
class Book:
    """The state of the log. `files` maps keys to positions (None: forgotten), `streams` names to positions."""

    files: dict[str, Any] = field(default_factory=dict)
    streams: dict[str, Any] = field(default_factory=dict)
    live: dict[int, Logged] = field(default_factory=dict)
    next: int = 1
    """The number of the next batch."""
    registries: list[str] = field(default_factory=list)
    """Fingerprints of the registry, the newest last."""
    dropped: dict[int, list[Any]] = field(default_factory=dict)
    """By block: what filters left out of it, until the registry counts it."""
    counted: dict[str, list[int]] = field(default_factory=dict)
    """By fingerprint: the blocks of `dropped` that the registry of this fingerprint counts."""
    spooled: dict[int, Sent | None] = field(default_factory=dict)
    """Batches that only the spool has, and that were sent: how, or None when they are acknowledged."""
    pins: Counter[int] = field(default_factory=Counter)
    """By segment: how many live batches have their bytes there."""
    _orphans: dict[int, Sent | None] = field(default_factory=dict)

    def apply(self, entry: Entry, segment: int) -> None:
        """Takes in an entry that was read from `segment`."""
        match entry.kind:
            case Kind.HEAD:
                self._begin(entry.about)
            case Kind.BATCHES:
                self.add(entry.about, segment, entry.at)
            case Kind.NOTES:
                self.note(decode_notes(entry.body, entry.about.get("cluster", "")))
            case _:
                self.change(entry.about)

    def head(self) -> dict[str, Any]:
        """Returns the whole state for the head of a segment."""
        return {
            "files": self.files,
            "streams": self.streams,
            "live": [[number, logged.sent] for number, logged in self.live.items()],
            "next": self.next,
            "registries": self.registries,
            "dropped": list(self.dropped.items()),
            "counted": self.counted,
            "spooled": list(self.spooled.items()),
        }

    def _begin(self, about: dict[str, Any]) -> None:
        self.files, self.streams, self.next = dict(about["files"]), dict(about["streams"]), int(about["next"])
        self.registries = list(about["registries"])
        self.dropped = {int(block): rows for block, rows in about["dropped"]}
        self.counted = dict(about["counted"])
        self.spooled = {int(n): None if s is None else Sent(*s) for n, s in about["spooled"]}
        sent = {int(number): None if s is None else Sent(*s) for number, s in about["live"]}
        for number in [n for n in self.live if n not in sent]:
            self._settle(number)
        self._orphans = {n: s for n, s in sent.items() if n not in self.live}
        for number, logged in self.live.items():
            logged.sent = sent[number]

    def add(self, about: dict[str, Any], segment: int, at: int) -> None:
        """Takes in batches whose bytes begin at `at` of `segment`. A batch that is there already has moved."""
        for number, topic, key, count, size, shares in about["batches"]:
            before = self.live.get(number)
            sent = before.sent if before is not None else self._orphans.pop(number, None)
            if before is not None:
                self.pins[before.segment] -= 1
            text = None if key is None else key.encode("latin-1")
            self.live[number] = Logged(number, topic, text, count, segment, at, size, shares, sent)
            self.pins[segment] += 1
            at += size
            self.next = max(self.next, number + 1)
        self.dropped.update(about.get("dropped", ()))
        self.change(about)

    def change(self, about: dict[str, Any]) -> None:
        """Takes in positions, and a fingerprint of the registry that is about to be saved."""
        self.files.update(about.get("files", ()))
        self.streams.update(about.get("streams", ()))
        if (fingerprint := about.get("registry")) is not None:
            saved = about.get("saved")
            self.registries = [f for f in self.registries if f == saved and f != fingerprint]
            self.registries.append(fingerprint)
            for block in self.counted.get(saved or "", ()):
                self.dropped.pop(block, None)
            self.counted = {f: blocks for f, blocks in self.counted.items() if f in self.registries}
            self.counted[fingerprint] = about["counted"]

    @property
    def lacks_bytes(self) -> bool:
        """True when the log has lost the bytes of a batch that no broker is known to have."""
        return bool(self._orphans)

    def forget_gone(self, but: Collection[str] = ()) -> None:
        """Forgets the files that are marked as forgotten, `but` those that the registry still has: the saved one lacks all others."""
        self.files = {
            key: position for key, position in self.files.items() if position is not None or key in but
        }

    def note(self, notes: list[Note]) -> None:
        """Takes in notes of batches."""
        for number, sent, spooled in notes:
            logged = self.live.get(number)
            if spooled:
                before = logged.sent if logged is not None else self._orphans.get(number)
                if before is not None:
                    self.spooled[number] = before
                self._settle(number)
            elif sent is None:
                if number in self.spooled:
                    self.spooled[number] = None
                self._settle(number)
            elif logged is not None:
                logged.sent = sent
            elif number in self._orphans:
                self._orphans[number] = sent
            else:
                self.spooled[number] = sent

    def _settle(self, number: int) -> None:
        self._orphans.pop(number, None)
        if (logged := self.live.pop(number, None)) is not None:
            self.pins[logged.segment] -= 1

    def uncounted(self, fingerprint: str) -> list[Any]:
        """Returns what filters left out and the registry of this fingerprint does not count."""
        counted = set(self.counted.get(fingerprint, ()))
        return [row for block, rows in self.dropped.items() if block not in counted for row in rows]
