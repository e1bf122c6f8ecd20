"""What flows through the agent: blocks of events, never one event by itself. Pure; one thread.

An input gives `Events` (files through `cut`, others through their `Reader`), the stages turn them into `Records`, the sender
delivers those. Text is UTF-8 from here on: whoever reads decodes.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(slots=True)
class Events:
    """A block of events of one source file or stream, in order."""

    values: list[bytes]
    """Text of each event without line end; several lines, joined by LF, after multiline."""
    path: str
    """File path, or `syslog://tcp:5514`, `stdin`, `journald`."""
    at: float
    """When it was read, in seconds since the epoch."""
    offsets: list[int] = field(default_factory=list)
    """Byte offset in the file where each event begins; empty when no stage needs them or there are none."""
    times: list[float] | None = None
    """Event time in seconds since the epoch, where an input knows it (containers, syslog, journald)."""
    fields: list[dict[str, Any]] | None = None
    """What an input knows of each event, nested as in the document: `{"stream": "stderr"}`, `{"log": {"syslog": {…}}}`.
    A dict may be shared by many events: stages do not change it.
    """
    size: int = 0
    """Bytes of the values together with their line ends, where that is known; 0: not counted."""


@dataclass(slots=True)
class Dropped:
    """Events of one block that a rule of the configuration left out, for the ledger."""

    reason: str
    lines: int
    start: int
    """Byte offset of the first of them."""
    end: int | None
    """Where the event behind the last one begins; None: where the block ends."""


@dataclass(slots=True)
class Records:
    """What stages made of a block: record values for the input's topic, and for the dead letter topic."""

    values: list[bytes]
    size: int
    """Bytes of `values` together, line ends counted or not."""
    dead: list[bytes] = field(default_factory=list)
    dropped: list[Dropped] = field(default_factory=list)


class Reader(Protocol):
    """An input that is no file. All calls come from the agent's loop; none may block.

    The agent asks for events only while its topic has room, and acknowledges in the order in which they were given out: a
    `handle` stands for itself and all before it.
    """

    def poll(self, now: float) -> list[tuple[Events, Hashable]]:
        """What has come since, each with a handle; `now` is monotonic seconds. Empty when there is nothing."""

    def acknowledged(self, position: Hashable) -> None:
        """The broker (or the spool) has all events up to those of `handle`."""

    def checkpoint(self) -> Any:
        """JSON from which the input goes on after a start (acknowledged events only); None when it cannot be read again."""

    def finish(self) -> None:
        """The agent ends: take no more from outside. `poll` gives what had arrived."""

    def lost(self) -> list[tuple[str, Dropped]]:
        """What is known to be lost since the last call, each with the path of its events."""

    def status(self) -> dict[str, Any]:
        """Figures for `status.json` and metrics: connections, drops, where it is."""

    def close(self) -> None:
        """Take no more; what was given out may still be acknowledged before this."""
