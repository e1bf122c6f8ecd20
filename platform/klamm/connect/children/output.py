"""Logs a child's output as lines of the worker's log, each with the child's name in front.

A child's own log records come as `<level>logger: text` (see `child.main`); anything else that a plugin
or a C library writes is logged as INFO. `broker_outages` takes over what librdkafka says of a broker
that is away. Reading does not block; long lines are cut into pieces. A child that floods its output is
read only so fast that most of the worker's loop stays free; its own writes wait then.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
from typing import Final

from klamm.connect.broker_outages import OUTAGES
from klamm_base.refused_logins import LOGINS

log = logging.getLogger(__name__)

_READ_BYTES: Final = 4 << 10
# Logging may take this long without a rest; a rest is this many times as long as the work was.
_WORK_S: Final = 0.005
_REST: Final = 9
LINE_BYTES_MAX: Final = 16 << 10
# A stack dump is some lines per thread; more of them tell nobody anything.
_KEPT_LINES_MAX: Final = 400
# With this the C level of the interpreter begins to say where a crashing process was.
_FATAL: Final = "Fatal Python error"
_LEVEL = re.compile(r"<(\d\d)>([\w.]+): (.*)", re.DOTALL)


class OutputLog:
    """Owns the reading end `fd` of a child's output pipe until its end or `finish`."""

    def __init__(self, label: str, fd: int) -> None:
        self._label = label
        self._fd: int | None = fd
        self._rest = b""
        self.kept: list[str] | None = None
        os.set_blocking(fd, False)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(fd, self._readable)

    def keep(self) -> None:
        """Keep the lines in `kept` from now on, because a stack dump is about to come. A crash's dump is kept
        without this.
        """
        self.kept = []

    def finish(self) -> None:
        """Log what is left, because the child is gone. A grandchild that holds the pipe is not waited for."""
        while self._fd is not None and self._read():
            continue
        self._close()

    def _readable(self) -> None:
        began = self._loop.time()
        self._read()
        worked_s = self._loop.time() - began
        if worked_s > _WORK_S and self._fd is not None:
            self._loop.remove_reader(self._fd)
            self._loop.call_later(worked_s * _REST, self._go_on)

    def _go_on(self) -> None:
        if self._fd is not None:
            self._loop.add_reader(self._fd, self._readable)

    def _read(self) -> bool:
        """Read and log once; returns whether there was something."""
        assert self._fd is not None
        try:
            data = os.read(self._fd, _READ_BYTES)
        except BlockingIOError:
            return False
        if not data:
            self._close()
            return False
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > LINE_BYTES_MAX:
            lines.append(self._rest)
            self._rest = b""
        for line in lines:
            self._line(line)
        return True

    def _close(self) -> None:
        if self._fd is None:
            return
        self._loop.remove_reader(self._fd)
        os.close(self._fd)
        self._fd = None
        if self._rest:
            self._line(self._rest)

    def _line(self, line: bytes) -> None:
        text = line.decode(errors="replace").rstrip()
        if not text:
            return
        if self.kept is None and text.startswith(_FATAL):
            self.keep()
        if self.kept is not None and len(self.kept) < _KEPT_LINES_MAX:
            self.kept.append(text)
        match = _LEVEL.fullmatch(text)
        if match is None:
            log.info("[%s] %s", self._label, text)
        elif match[2] != "librdkafka" or not (LOGINS.take(match[3], {}) or OUTAGES.take(match[3])):
            log.log(int(match[1]), "[%s] %s: %s", self._label, match[2], match[3])
