"""`python -m klamm_spark.driver`: runs one job. The job comes as one JSON line on standard input, events leave as JSON
lines on standard output (`events` has their shapes); the log is standard error.

It ends when its queries end, on SIGTERM, when standard input closes, or on another line, `{"stop": SECONDS}`, which says
how long a batch may take to end. Queries are stopped between two batches where that is soon; a batch that is cut off is
run again from the checkpoint. When whoever started it is gone it ends at once: somebody may start the job again already.
Exit code 0: stopped as asked; 1: failed, after a `failed` event. The Java process ends with this one in any case: it
holds the other end of a pipe.
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
from pathlib import Path
from types import FrameType
from typing import Any, Final, TextIO

from klamm_base import logs
from klamm_spark import events
from klamm_spark.java import need_java, need_packages
from klamm_spark.lock import locked
from klamm_spark.pipeline import Job, job_from_json

log = logging.getLogger(__name__)

BOUNDARY_S: Final = 8.0
"""How long a stop waits for a batch to end."""
EXIT_S: Final = 20.0
"""When the process ends at the latest after it was asked to."""
LOOK_S: Final = 0.2


class Stop(threading.Event):
    """The order to stop, and how long a batch may then take to end."""

    batch_s = BOUNDARY_S


class Reporter:
    """Writes events, from any thread. A reader that went away is the same as being asked to stop."""

    def __init__(self, out: TextIO, stop: threading.Event) -> None:
        self._out = out
        self._stop = stop
        self._lock = threading.Lock()
        self.rows = 0
        self.batches = 0

    def send(self, event: dict[str, Any]) -> None:
        with self._lock:
            if event["event"] == "progress":
                self.rows += event["rows"]
                self.batches += 1
            try:
                self._out.write(json.dumps(event) + "\n")
                self._out.flush()
            except (BrokenPipeError, ValueError):
                self._stop.set()


def main() -> int:
    """Run the job of standard input."""
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
    try:
        job = job_from_json(json.loads(line))
        checkpoint = job.checkpoint
        _run(job, reporter, stop)
    except Exception as e:
        log.debug("failed", exc_info=True)
        if not (stop.is_set() and _java_went_first()):
            reporter.send(events.failed(e, checkpoint))
            return 1
        log.info("Java ended before its queries were stopped; what was cut off is run again")
    reporter.send({"event": "stopped", "rows": reporter.rows})
    return 0


def _private_output() -> TextIO:
    """Standard output for events alone: whatever Java or a job prints goes to standard error."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.set_inheritable(out.fileno(), False)
    os.dup2(2, 1)
    return out


def _java_went_first() -> bool:
    """A service manager's SIGTERM goes to all processes, and Java's end is no failure then."""
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
    """A stop that hangs in Java is cut short; the checkpoint says where to go on."""
    stop.wait()
    time.sleep(EXIT_S)
    _end(f"not stopped within {EXIT_S:.0f} s; ending")


def _end(why: str) -> None:
    """End at once, Java first: it must not write while another process runs the job again."""
    log.warning(why)
    if (session := sys.modules.get("klamm_spark.session")) is not None:
        session.kill_java()
    os._exit(1)


def _run(job: Job, reporter: Reporter, stop: Stop) -> None:
    need_packages()
    need_java()
    with _checkpoint_of_its_own(job, stop) as held:
        if not stop.is_set():
            _run_queries(job, reporter, stop, held)


@contextlib.contextmanager
def _checkpoint_of_its_own(job: Job, stop: Stop) -> Iterator[tuple[int, ...]]:
    """Where another process of this machine could take the same directory."""
    if not job.master.startswith("local") or "://" in job.checkpoint:
        yield ()
        return
    with locked(Path(job.checkpoint).expanduser().resolve(), stop) as held:
        yield (held,)


def _run_queries(job: Job, reporter: Reporter, stop: Stop, held: tuple[int, ...]) -> None:
    from klamm_spark.session import close_session, open_session, prepare_environment

    java = need_java()
    prepare_environment(job.master, job.python_path)
    spark = open_session(job.name, job.master, job.spark, held=held)
    try:
        if not stop.is_set():
            from klamm_spark import job as jobs

            spark.streams.addListener(_listener(reporter))
            queries = jobs.start(job, spark)
            names = [o.name for o in job.outputs]
            reporter.send(
                {"event": "started", "queries": names, "spark": spark.version, "java": java.version}
            )
            try:
                _watch(queries, stop)
            finally:
                _stop_queries(queries, reporter, stop.batch_s)
            _raise_failure(queries)
    finally:
        close_session(spark)


def _watch(queries: list[Any], stop: threading.Event) -> None:
    """Return when asked to stop, when a query failed, or when all are done."""
    while not stop.wait(LOOK_S):
        if any(q.exception() is not None for q in queries) or not any(q.isActive for q in queries):
            return


def _stop_queries(queries: list[Any], reporter: Reporter, batch_s: float) -> None:
    """Between two batches where possible: a file sink then has no half batch to clean up."""
    deadline = time.monotonic() + batch_s
    seen = reporter.batches
    for query in queries:
        while (
            query.isActive
            and query.status["isTriggerActive"]
            and reporter.batches == seen
            and time.monotonic() < deadline
        ):
            time.sleep(0.05)
        query.stop()


def _raise_failure(queries: list[Any]) -> None:
    for query in queries:
        error = query.exception()
        if error is not None:
            raise error


def _listener(reporter: Reporter) -> Any:
    from pyspark.sql.streaming.listener import (
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
        StreamingQueryListener,
    )

    class Listener(StreamingQueryListener):
        def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
            pass

        def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
            reporter.send(events.progress(json.loads(event.progress.json)))

        def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
            pass

    return Listener()


if __name__ == "__main__":
    sys.exit(main())
