"""Events and records, which flow through the agent by the block, and the `Reader` that gives events. Pure; one thread.

An input gives `Events` (files through `lanes.cutter`, others through their `Reader`). The stages turn them into `Records`, and the
sender delivers these. Text is UTF-8 from here on: the reading side decodes.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(slots=True)
class Events:
    """The events of one block of a file, or of one poll of a stream, in order."""

    values: list[bytes]
    """Text of each event without its line end; multiline joins several lines by LF."""
    path: str
    """File path, or `syslog://tcp:5514`, `stdin`, `journald`."""
    at: float
    """The time of reading, in seconds since the epoch."""
    offsets: list[int] = field(default_factory=list)
    """Byte offset in the file where each event begins; empty when no stage needs offsets or the input has none."""
    times: list[float] | None = None
    """Event time in seconds since the epoch, where an input knows it (containers, syslog, journald)."""
    fields: list[dict[str, Any]] | None = None
    """Fields that the input knows of each event, nested as in the document: `{"stream": "stderr"}`, `{"log": {"syslog": {…}}}`.
    Many events may share a dict: stages do not change it.
    """
    size: int = 0
    """Bytes of the values with their line ends; 0: not counted."""


@dataclass(slots=True)
class Dropped:
    """A count, for the ledger, of events of one block that a rule of the configuration left out."""

    reason: str
    lines: int
    start: int
    """Byte offset of the first of these events."""
    end: int | None
    """Offset of the event behind the last of them; None: the end of the block."""


@dataclass(slots=True)
class Records:
    """The record values that stages made of a block's events: for the input's topic, and for the dead letter topic."""

    values: list[bytes]
    size: int
    """Bytes of `values` together, line ends counted or not."""
    dead: list[bytes] = field(default_factory=list)
    dropped: list[Dropped] = field(default_factory=list)


class Reader(Protocol):
    """An input that is no file. The agent's loop makes all calls; none may block.

    The agent asks for events only while their topic has room. It acknowledges them in the order in which it got them: a position
    stands for its own events and all before.
    """

    def poll(self, now: float) -> list[tuple[Events, Hashable]]:
        """Returns the events that have come since the last call, each with its position; `now` is monotonic seconds."""

    def acknowledged(self, position: Hashable) -> None:
        """Takes note that the brokers (or the spool) have all events up to `position`."""

    def checkpoint(self) -> Any:
        """Returns JSON from which the input goes on at the next start; it covers acknowledged events only. None: the input cannot be
        read again.
        """

    def place(self, position: Hashable) -> Any:
        """Returns what `checkpoint` will be when everything up to `position` is acknowledged."""

    def finish(self) -> None:
        """Takes no more from outside, since the agent ends. `poll` still gives what had arrived."""

    def lost(self) -> list[tuple[str, Dropped]]:
        """Returns what the input knows to be lost since the last call, each with the path of its events."""

    def status(self) -> dict[str, Any]:
        """Returns figures for `status.json` and metrics: connections, drops, the position."""

    def close(self) -> None:
        """Closes the input. `acknowledged` may be called for given events until then."""
