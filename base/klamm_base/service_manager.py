"""Messages of a server to the service manager that started it: ready, reloading, stopping, alive (systemd's sd_notify(3)).

systemd gives an address by NOTIFY_SOCKET and the longest silence by WATCHDOG_USEC. Both are taken out of the environment, so that
children of the server do not speak for it. Without them every call does nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import sys
import time
from collections.abc import MutableMapping
from functools import cache
from typing import Final

log = logging.getLogger(__name__)

_STATUS_MAX: Final = 200  # characters
_PINGS: Final = 3
"""Signs of life in the longest silence that is allowed: one that is late ends nothing."""


class ServiceManager:
    """The service manager's end of the line. `silence_s`: the longest silence that it allows; None: any."""

    def __init__(self, address: str | None = None, silence_s: float | None = None) -> None:
        self._address = address
        self._owner = os.getpid()
        self.silence_s = silence_s if address else None
        self._next = 0.0
        self._status = ""

    @classmethod
    def of(cls, environ: MutableMapping[str, str]) -> ServiceManager:
        """Takes the manager's address out of an environment. Settings that were meant for another process are dropped."""
        address = environ.pop("NOTIFY_SOCKET", None)
        given, owner = environ.pop("WATCHDOG_USEC", ""), environ.pop("WATCHDOG_PID", "")
        mine = owner in ("", str(os.getpid()))
        silence_s = int(given) / 1e6 if mine and given.isdecimal() and int(given) else None
        return cls(address, silence_s)

    def ready(self, status: str = "") -> None:
        """Says that the server serves, with one line for `systemctl status`."""
        self._status = status
        self._say("READY=1", f"STATUS={status[:_STATUS_MAX]}")

    def reloading(self) -> None:
        """Says that settings are read again; `ready` or `reloaded` ends it."""
        self._say("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def reloaded(self, trouble: str = "") -> None:
        """Says that settings were read again, and what of them was refused; without that, the line of `ready` is there again."""
        self._say("READY=1", f"STATUS={(trouble or self._status)[:_STATUS_MAX]}")

    def stopping(self) -> None:
        """Says that the server drains and ends."""
        self._say("STOPPING=1")

    def alive(self, now: float | None = None) -> None:
        """Says that the server lives, as often as is asked for. To be called in each turn of its loop: most calls cost one
        comparison.
        """
        if self.silence_s is None:
            return
        now = time.monotonic() if now is None else now
        if now >= self._next:
            self._next = now + self.silence_s / _PINGS
            self._say("WATCHDOG=1")

    def watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Says from this event loop that it lives, for as long as the loop runs. A loop that is held says nothing."""
        if self.silence_s is None:
            return
        self.alive()
        loop.call_later(self.silence_s / _PINGS, self.watch, loop)

    def _say(self, *lines: str) -> None:
        if (
            self._address is None or os.getpid() != self._owner
        ):  # a forked child does not speak for its parent
            return
        # An address that begins with @ is an abstract socket
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        try:
            with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as line:
                line.sendto("\n".join(lines).encode(), socket.MSG_DONTWAIT, address)
        except OSError as e:
            log.warning("the service manager at %s does not hear us: %s", self._address, e.strerror)


@cache
def service_manager() -> ServiceManager:
    """Returns the manager of this process."""
    return ServiceManager.of(os.environ)


def say_ready(line: str) -> None:
    """Prints the line `ready …`, and tells the service manager. Called from an event loop, it lets the loop show from now on
    that it lives.
    """
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
    manager = service_manager()
    manager.ready(line.splitlines()[0].removeprefix("ready "))
    with contextlib.suppress(RuntimeError):  # no loop runs here: the caller says itself that it lives
        manager.watch(asyncio.get_running_loop())
