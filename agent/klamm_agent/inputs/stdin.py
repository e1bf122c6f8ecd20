"""`type = "stdin"`: lines of the agent's standard input. The agent ends with it, when it has no other input."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Hashable
from typing import Any, Final

from klamm_agent.config.readers import StdinSettings
from klamm_agent.events import Dropped, Events
from klamm_agent.framing.lines import split
from klamm_agent.framing.text import character_end
from klamm_base.errors import ConfigError

_READ: Final = 256 * 1024
_STDIN: Final = 0


class StdinReader:
    """A reader of standard input. It reads only what it can read without waiting, and leaves the descriptor's flags alone: other
    processes may share it.
    """

    path = "stdin"

    def __init__(self, settings: StdinSettings, fd: int = _STDIN) -> None:
        self._limit, self._fd = settings.max_message_bytes, fd
        try:
            os.fstat(fd)
        except OSError as e:
            raise ConfigError("an input of type stdin is configured, but standard input is closed") from e
        self._held = b""
        self._position = 0  # of `_held` in the stream
        self._splits = 0
        self._finished = False
        self.ended = False
        """True when everything was given out and nothing will follow."""

    def poll(self, now: float) -> list[tuple[Events, Hashable]]:
        if self.ended or not (self._finished or select.select([self._fd], [], [], 0)[0]):
            return []
        try:
            chunk = b"" if self._finished else os.read(self._fd, _READ)
        except BlockingIOError:  # another process that shares the pipe was faster
            return []
        self.ended = not chunk
        data = self._held + chunk if self._held else chunk
        cut = len(data) if self.ended else data.rfind(b"\n") + 1
        if not cut and len(data) > self._limit:
            cut = character_end(data, 0, self._limit)
            self._splits += 1
        self._held = data[cut:]
        if not cut:
            return []
        lines, offsets, cuts = split(data[:cut], self._position, self._limit, places=True)
        self._position += cut
        self._splits += cuts
        return [(Events(lines, self.path, time.time(), offsets), self._position)]

    def acknowledged(self, position: Hashable) -> None:
        """Does nothing: a pipe cannot be read again."""

    def place(self, position: Hashable) -> Any:
        return None

    def checkpoint(self) -> Any:
        return None

    def finish(self) -> None:
        """Ends reading; an unfinished line that was read is given out as it is. The pipe's rest stays unread."""
        self._finished = True

    def lost(self) -> list[tuple[str, Dropped]]:
        return []

    def status(self) -> dict[str, Any]:
        return {"bytes": self._position, "ended": self.ended, "split_messages": self._splits}

    def close(self) -> None:
        """Does nothing: the descriptor belongs to the process."""
