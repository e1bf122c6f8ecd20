"""`python -m klamm_spark.driver` runs one job. The job comes as one JSON line on standard input, events leave
as JSON lines on standard output (`events` has their shapes); the log goes to standard error.

The process ends when its queries end, on SIGTERM, when standard input closes, or on another line, `{"stop":
SECONDS}`, which says how long a batch may take to end. It stops queries between two batches if that is
soon; otherwise it cuts the batch off, and the batch runs again from the checkpoint. When its starter is
gone, the process ends at once: somebody may be starting the job again already. Exit code 0: stopped as
asked; 1: failed, after a `failed` event. The Java process always ends with this process, because it holds
the other end of a pipe.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from types import FrameType
from typing import Any, Final, TextIO

from klamm_base import logs
from klamm_spark import events
from klamm_spark.beside import STATUS, LocalFiles, local_place
from klamm_spark.java import need_java, need_packages
from klamm_spark.lock import locked
from klamm_spark.model import Job
from klamm_spark.pipeline import job_from_json
from klamm_spark.status import JobStatus

log = logging.getLogger(__name__)

BOUNDARY_S: Final = 8.0
"""A stop waits so long for a batch to end."""
EXIT_S: Final = 20.0
"""The process ends at the latest this long after it was asked to."""
LOOK_S: Final = 0.2
STATUS_S: Final = 1.0
"""The status is written at most this often."""
RUN: Final = "run"
CHECK: Final = "check"
"""Values of `order` in the job's line: run the job, or only say whether its queries fit their checkpoints."""


class Stop(threading.Event):
    """The order to stop, with the time that a batch may then take to end."""

    batch_s = BOUNDARY_S


class Reporter:
    """Writes events, from any thread. A reader that went away counts as an order to stop."""

    def __init__(self, out: TextIO, stop: threading.Event) -> None:
        self._out = out
        self._stop = stop
        self._lock = threading.Lock()
        self.rows = 0
        self.status: StatusFile | None = None

    def send(self, event: dict[str, Any]) -> None:
        with self._lock:
            if event["event"] == "progress":
                self.rows += event["rows"]
            if self.status is not None:  # first: whoever hears of it may look there
                self.status.take(event)
            try:
                self._out.write(json.dumps(event) + "\n")
                self._out.flush()
            except (BrokenPipeError, ValueError):
                self._stop.set()


class StatusFile:
    """The job's last events, kept beside a checkpoint of this machine for `klamm spark status`."""

    def __init__(self, job: Job) -> None:
        place = local_place(job.checkpoint)
        self._files = None if place is None else LocalFiles(place)
        self._status = JobStatus(job.name, since=time.time(), pid=os.getpid())
        self._written = 0.0
        self._lock = threading.Lock()
        self._later: threading.Timer | None = None
        self._write()  # what an earlier process said is no longer so

    def take(self, event: dict[str, Any]) -> None:
        with self._lock:
            self._status.take(event, time.time())
            left = STATUS_S - (time.monotonic() - self._written)
            if event["event"] != "progress" or left <= 0:
                self._write()
            elif self._later is None:  # perhaps nothing comes behind it
                self._later = threading.Timer(left, self._write_later)
                self._later.daemon = True
                self._later.start()

    def _write_later(self) -> None:
        with self._lock:
            self._later = None
            self._write()

    def _write(self) -> None:
        self._written = time.monotonic()
        if self._files is None:
            return
        try:
            data = self._status.to_json() | {"written": time.time()}
            self._files.write(STATUS, json.dumps(data).encode(), durable=False)
        except OSError as e:
            log.warning("the status of the job cannot be written: %s", e)


def main() -> int:
    """Runs the job from standard input."""
    out = _private_output()
    logs.configure(os.environ.get("KLAMM_LOG_LEVEL", "INFO"), prefix="spark ")
    logging.getLogger("py4j").setLevel(logging.WARNING)
    stop = Stop()

    def on_signal(number: int, frame: FrameType | None) -> None:
        stop.set()

    signal.signal(signal.SIGTERM, on_signal)
    signal.signal(signal.SIGINT, on_signal)
    owner = os.getppid()
    line = sys.stdin.readline()
    reporter = Reporter(out, stop)
    threading.Thread(target=_watch_owner, args=(stop, owner), daemon=True, name="owner").start()
    threading.Thread(target=_end_in_time, args=(stop,), daemon=True, name="end-in-time").start()
    checkpoint = "?"
    with (
        contextlib.ExitStack() as until_told
    ):  # nobody else has the checkpoint before the status says how this ended
        try:
            told = json.loads(line)
            order = told.pop("order", RUN)
            job = job_from_json(told)
            checkpoint = job.checkpoint
            _run(job, order, reporter, stop, until_told)
        except Exception as e:
            log.debug("failed", exc_info=True)
            if not (stop.is_set() and _java_went_first()):
                reporter.send(events.failed(e, checkpoint))
                return 1
            log.info("Java ended before its queries were stopped; what was cut off is run again")
        reporter.send({"event": "stopped", "rows": reporter.rows})
    return 0


def _private_output() -> TextIO:
    """Reserves standard output for events: output of Java or of a job goes to standard error."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.set_inheritable(out.fileno(), False)
    os.dup2(2, 1)
    return out


def _java_went_first() -> bool:
    """Returns True when Java ended first: a service manager's SIGTERM goes to all processes, so this is no failure."""
    session = sys.modules.get("klamm_spark.session")
    return session is not None and bool(session.java_ended(3.0))


def _watch_owner(stop: Stop, owner: int) -> None:
    for line in iter(sys.stdin.readline, ""):
        with contextlib.suppress(ValueError, KeyError, TypeError):
            stop.batch_s = float(json.loads(line)["stop"])
            stop.set()
    stop.set()
    while os.getppid() == owner:
        time.sleep(LOOK_S)
    _end("whoever started this is gone; ending")


def _end_in_time(stop: threading.Event) -> None:
    """Cuts short a stop that hangs in Java. The checkpoint says where to continue."""
    stop.wait()
    time.sleep(EXIT_S)
    _end(f"not stopped within {EXIT_S:.0f} s; ending")


def _end(why: str) -> None:
    """Ends at once, Java first: it must not write while another process runs the job again."""
    log.warning(why)
    if (session := sys.modules.get("klamm_spark.session")) is not None:
        session.kill_java()
    os._exit(1)


def _run(job: Job, order: str, reporter: Reporter, stop: Stop, until_told: contextlib.ExitStack) -> None:
    need_packages()
    need_java()
    from klamm_spark import running

    if order == CHECK:
        running.check(job, reporter)
        return
    held = until_told.enter_context(_checkpoint_of_its_own(job, stop))
    if not stop.is_set():
        reporter.status = StatusFile(job)
        running.run(job, reporter, stop, held)


@contextlib.contextmanager
def _checkpoint_of_its_own(job: Job, stop: Stop) -> Iterator[tuple[int, ...]]:
    """Locks the checkpoint where another process of this machine could take the same directory."""
    place = local_place(job.checkpoint)
    if place is None:
        yield ()
        return
    with locked(place, stop) as held:
        yield (held,)


if __name__ == "__main__":
    sys.exit(main())
