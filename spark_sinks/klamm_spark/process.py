"""The driver process from outside: starts it, reads its events, stops it. `klamm spark run` and the connectors
use it.

The driver has a process group of its own, so that a Ctrl-C reaches only its starter. When the starter ends
in whatever way, the driver's standard input closes, and the driver and its Java process stop by themselves.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

from klamm_spark.model import Job

STOP_S: Final = 25.0
KILL_S: Final = 5.0
ENDED: Final = "ended"


class DriverProcess:
    """One run, or one check (`order`), of one job. `next_event` returns its events; the last is always `{"event":
    "ended", "code": n}`.
    """

    def __init__(
        self,
        job: Job,
        *,
        order: str = "run",
        env: Mapping[str, str] | None = None,
        on_line: Callable[[str], None] | None = None,
    ) -> None:
        """Starts the process. `on_line` gets each line of its log, in a thread; without it the log goes to our
        standard error.
        """
        self._events: queue.Queue[dict[str, Any]] = queue.Queue()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "klamm_spark.driver"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=None if on_line is None else subprocess.PIPE,
            env=dict(os.environ if env is None else env),
            start_new_session=True,
        )
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it ended at once: the events say so
            self._process.stdin.write(json.dumps(job.to_json() | {"order": order}).encode() + b"\n")
            self._process.stdin.flush()
        self._log: threading.Thread | None = None
        if on_line is not None:
            self._log = threading.Thread(target=self._tell, args=(on_line,), daemon=True, name="spark-log")
            self._log.start()
        threading.Thread(target=self._read, daemon=True, name="spark-events").start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def next_event(self, timeout_s: float) -> dict[str, Any] | None:
        """Returns the next event; None when there is none in time."""
        try:
            return self._events.get(timeout=timeout_s) if timeout_s > 0 else self._events.get_nowait()
        except queue.Empty:
            return None

    def ask_to_stop(self, batch_s: float | None = None) -> None:
        """Asks the process to stop between two batches, waiting up to `batch_s` for the running one. Returns at once."""
        assert self._process.stdin is not None
        if batch_s is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGTERM)
        else:
            with contextlib.suppress(BrokenPipeError, ValueError):  # it has ended, or its input is closed
                self._process.stdin.write(b'{"stop": %g}\n' % batch_s)
                self._process.stdin.flush()

    def stop(self, timeout_s: float = STOP_S) -> int:
        """Stops the process and returns its exit code. Kills it, with all that it started, when it does not end in time."""
        self.ask_to_stop()
        try:
            code = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._kill_group()
            code = self._process.wait(KILL_S)
        self._close()
        return code

    def kill(self) -> None:
        """Ends the process and all that it started, at once."""
        self._kill_group()
        self._process.wait(KILL_S)
        self._close()

    def _kill_group(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def _close(self) -> None:
        if self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                with contextlib.suppress(ValueError):  # half a line of a process that was killed
                    self._events.put(json.loads(line))
        code = self._process.wait()
        self._kill_group()  # a Java process that hangs in its end
        if self._log is not None:
            self._log.join(KILL_S)  # what it said last comes before its end
        self._events.put({"event": ENDED, "code": code})

    def _tell(self, on_line: Callable[[str], None]) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as lines:
            for line in lines:
                on_line(line.decode("utf-8", "replace"))
