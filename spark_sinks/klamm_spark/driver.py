"""`python -m klamm_spark.driver`: runs one job. The job comes as one JSON line on standard input, events leave as JSON
lines on standard output (`events` has their shapes); the log is standard error.

It ends when its queries end, on SIGTERM, or when standard input closes, which is how it learns that whoever started
it is gone. Queries are stopped between two batches where that is soon; a batch that is cut off is run again from the
checkpoint. Exit code 0: stopped as asked; 1: failed, after a `failed` event. The Java process ends with this
one in any case: it holds the other end of a pipe.
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
from types import FrameType
from typing import Any, Final, TextIO

from klamm_base import logs
from klamm_spark import events
from klamm_spark.java import need_java, need_packages
from klamm_spark.pipeline import Job, job_from_json

log = logging.getLogger(__name__)

BOUNDARY_S: Final = 8.0
"""How long a stop waits for a batch to end."""
EXIT_S: Final = 20.0
"""When the process ends at the latest after it was asked to."""
LOOK_S: Final = 0.2


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
    stop = threading.Event()

    def on_signal(number: int, frame: FrameType | None) -> None:
        stop.set()

    signal.signal(signal.SIGTERM, on_signal)
    signal.signal(signal.SIGINT, on_signal)
    line = sys.stdin.readline()
    reporter = Reporter(out, stop)
    threading.Thread(target=_watch_owner, args=(stop,), daemon=True, name="owner").start()
    threading.Thread(target=_end_in_time, args=(stop,), daemon=True, name="end-in-time").start()
    checkpoint = "?"
    try:
        job = job_from_json(json.loads(line))
        checkpoint = job.checkpoint
        _run(job, reporter, stop)
    except Exception as e:
        log.debug("failed", exc_info=True)
        reporter.send(events.failed(e, checkpoint))
        return 1
    reporter.send({"event": "stopped", "rows": reporter.rows})
    return 0


def _private_output() -> TextIO:
    """Standard output for events alone: whatever Java or a job prints goes to standard error."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.set_inheritable(out.fileno(), False)
    os.dup2(2, 1)
    return out


def _watch_owner(stop: threading.Event) -> None:
    while sys.stdin.readline():
        pass
    stop.set()


def _end_in_time(stop: threading.Event) -> None:
    """A stop that hangs in Java is cut short; the checkpoint says where to go on."""
    stop.wait()
    time.sleep(EXIT_S)
    log.warning("not stopped within %.0f s; ending", EXIT_S)
    os._exit(1)


def _run(job: Job, reporter: Reporter, stop: threading.Event) -> None:
    need_packages()
    java = need_java()
    from klamm_spark.session import open_session, prepare_environment

    prepare_environment(job.master, job.python_path)
    spark = open_session(job.name, job.master, job.spark)
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
                _stop_queries(queries, reporter)
            _raise_failure(queries)
    finally:
        with contextlib.suppress(Exception):  # the gateway may be gone; the process ends now in any case
            spark.stop()


def _watch(queries: list[Any], stop: threading.Event) -> None:
    """Return when asked to stop, when a query failed, or when all are done."""
    while not stop.wait(LOOK_S):
        if any(q.exception() is not None for q in queries) or not any(q.isActive for q in queries):
            return


def _stop_queries(queries: list[Any], reporter: Reporter) -> None:
    """Between two batches where possible: a file sink then has no half batch to clean up."""
    deadline = time.monotonic() + BOUNDARY_S
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
