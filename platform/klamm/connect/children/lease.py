"""The worker's lease on its children: while the worker pings, they may live.

`LeaseKeeper` is the worker's half. It has a thread of its own, so that a busy event loop does not end
tasks, while a stopped process (SIGSTOP, a frozen container) does. `LeaseWatch` is the fork server's
half and pure: it says when the lease has ended. Time limit: children are gone within 2 s, of which the
lease takes 1.5.

No thread of Python runs during a full garbage collection: a quarter of a second of CPU in a worker with thousands of
tasks, and on a busy machine seconds. The worker says when it begins one; then the lease takes up to 3 s.
"""

from __future__ import annotations

import contextlib
import gc
import socket
import threading
from typing import Any, Final

PING: Final = b"."
COLLECTING: Final = b"("
COLLECTED: Final = b")"
PING_INTERVAL_S: Final = 0.4
# Three pings may be late before the lease ends; the remaining half second is for killing.
LEASE_S: Final = 1.5
# A stopped worker's group gives its work to others after 6 s or more, of which a heartbeat's interval may be over.
COLLECTING_S: Final = 3.0
_OLDEST: Final = 2  # the generation of a full collection
HELD_UP_S: Final = 0.25


class LeaseKeeper:
    """Pings on `sock` until closed. The peer's end (fork server gone) ends the thread quietly."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._sock.setblocking(False)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="connect-lease", daemon=True)

    def start(self) -> None:
        gc.callbacks.append(self._collecting)
        self._thread.start()

    def close(self) -> None:
        """End the lease now: closing the socket tells the fork server."""
        with contextlib.suppress(ValueError):  # closed before
            gc.callbacks.remove(self._collecting)
        self._closed.set()
        self._thread.join()
        self._sock.close()

    def _run(self) -> None:
        while not self._closed.is_set():
            # A full buffer means a stopped fork server, which the launcher's timeout deals with.
            with contextlib.suppress(BlockingIOError):
                try:
                    self._sock.send(PING)
                except (BrokenPipeError, ConnectionResetError):
                    return
            self._closed.wait(PING_INTERVAL_S)

    def _collecting(self, phase: str, info: dict[str, Any]) -> None:
        """Tells of a full collection. Any thread calls it."""
        if info["generation"] == _OLDEST:
            with contextlib.suppress(OSError):
                self._sock.send(COLLECTING if phase == "start" else COLLECTED)


class LeaseWatch:
    """Knows the last ping, and says whether the lease has ended. Times are monotonic seconds, passed in."""

    def __init__(self, now: float) -> None:
        self._last_ping = now
        self._collects_until = now

    def pinged(self, now: float, said: bytes = PING) -> None:
        """Takes in what the worker has said since the last time."""
        self._last_ping = now
        if COLLECTING in said or COLLECTED in said:
            collects = said.rfind(COLLECTING) > said.rfind(COLLECTED)
            self._collects_until = now + COLLECTING_S if collects else now

    def woke(self, now: float, *, slept_s: float, meant_s: float) -> None:
        """Begin the lease anew when the watcher slept for longer than it meant to (frozen, suspended, starved). It
        could not have seen pings then, and the worker, which shared its fate, could not have sent them.
        """
        if slept_s > meant_s + HELD_UP_S:
            self._last_ping = now

    def remaining_s(self, now: float) -> float:
        """Returns the seconds until the lease ends, 0 when it has ended."""
        return max(0.0, max(self._last_ping + LEASE_S, self._collects_until) - now)
