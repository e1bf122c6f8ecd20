"""A pytest plugin that ends test processes in which nothing happens any more, so that a run of CI ends and says where it stood.

pytest-timeout ends a test by a signal, which reaches Python code only: a test that waits in C code, or a process that stands
between two tests, would hold the run for ever. No test of CI may take `QUIET_S`. When no test begins or ends for so long, the test
processes get SIGABRT, and print where each of their threads is. xdist starts others, and the test counts as failed; `again` runs
it once more. Where the main process itself stands still, it prints its threads, and ends the run.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import threading
import time
from typing import Any, Final

import pytest
from support.running import budget

QUIET_S: Final = 960.0
"""More than the longest `timeout` of a test that CI runs."""
QUIET: Final = "KLAMM_TEST_QUIET_S"
"""The variable that sets another number of seconds."""
_KILL_AFTER_S: Final = 5.0


class Stuck:
    """Watches the reports of a session's test processes. Outside of CI nobody is watched: a debugger may hold a test."""

    def __init__(self) -> None:
        self._quiet_s = float(os.environ.get(QUIET) or QUIET_S)
        self._pids: set[int] = set()
        self._last = time.monotonic()
        self._running: dict[str, None] = {}
        self._done = threading.Event()

    def pytest_sessionstart(self) -> None:
        """Starts the watch."""
        if budget.end() is not None:
            threading.Thread(target=self._look, name="stuck", daemon=True).start()

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodeready(self, node: Any) -> None:
        """Notes a test process of xdist."""
        self._last = time.monotonic()
        self._pids.add(_pid(node))

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Forgets a test process that has ended."""
        self._last = time.monotonic()
        self._pids.discard(_pid(node))

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Notes the begin of a test."""
        self._last = time.monotonic()
        self._running[nodeid] = None

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """Notes the end of a test."""
        self._last = time.monotonic()
        self._running.pop(nodeid, None)

    def pytest_sessionfinish(self) -> None:
        """Ends the watch: what runs now is run by `again`, which has its own end."""
        self._done.set()

    def _look(self) -> None:
        while not self._done.wait(min(self._quiet_s / 4, 15)):
            if time.monotonic() - self._last < self._quiet_s:
                continue
            self._say()
            if not self._pids:
                faulthandler.dump_traceback(sys.__stderr__ or 2)
                os._exit(pytest.ExitCode.INTERNAL_ERROR)
            self._end()
            self._last = time.monotonic()

    def _say(self) -> None:
        names = ", ".join(self._running) or "no test"
        print(
            f"\nnothing happened for {self._quiet_s:.0f} s, so the test processes are ended; began and did not end: {names}",
            file=sys.__stderr__,
            flush=True,
        )
        self._running.clear()

    def _end(self) -> None:
        """Ends the test processes. One whose end is not seen is forgotten all the same: then the main process is next."""
        pids, self._pids = self._pids, set()
        for pid in pids:
            _kill(pid, signal.SIGABRT)  # pytest's faulthandler prints all threads then
        if not self._done.wait(_KILL_AFTER_S):
            for pid in pids:
                _kill(pid, signal.SIGKILL)  # a process that was stopped does not see the other signal


def _pid(node: Any) -> int:
    """Returns the process of a node of xdist, which does not say it by itself."""
    return int(node.gateway._io.popen.pid)


def _kill(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return
