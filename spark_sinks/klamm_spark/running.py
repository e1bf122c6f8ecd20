"""The work of the driver process once it alone holds its checkpoint: a session, the queries, their progress."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, Protocol

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from klamm_spark import events, figures, reset, schema_watch, slots, upgrade
from klamm_spark import job as jobs
from klamm_spark.beside import Files, files_of
from klamm_spark.java import need_java
from klamm_spark.listener import listen
from klamm_spark.model import Job
from klamm_spark.outputs import base_of, on_this_machine, start_output
from klamm_spark.polled import Polled
from klamm_spark.schema_watch import SchemaWatch
from klamm_spark.session import LOCAL_FILES, close_session, ended_by_java, open_session, prepare_environment
from klamm_spark.sources import read_source
from klamm_spark.standing import Standing

log = logging.getLogger(__name__)

LOOK_S: Final = 0.2
RESTARTS_MAX: Final = 20
_TOO_SLOW: Final = "failed to connect back"


class Reports(Protocol):
    """The receiver of events."""

    def send(self, event: dict[str, Any]) -> None: ...


class Stopping(Protocol):
    """The order to stop, with the time that a batch may then take to end."""

    batch_s: float

    def is_set(self) -> bool: ...
    def wait(self, timeout: float | None = None) -> bool: ...


def run(job: Job, reporter: Reports, stop: Stopping, held: tuple[int, ...]) -> None:
    """Runs the job until it has ended or is to stop. Raises the error that ended it."""
    with _session(job, held) as spark:
        if stop.is_set():
            return
        if job.source.read == "batch":
            _poll(job, spark, reporter, stop)
            return
        files = files_of(base_of(job), spark)
        resolved = schema_watch.resolve(_begun(job), spark, files, reporter, stop)
        if resolved is None:
            return
        job, watch = resolved
        given = read_source(jobs.input_of(job), spark, None if watch is None else schema_watch.observed)
        frames = jobs.frames(job, spark, given)
        found = upgrade.examine(job, frames, spark)
        upgrade.allow(job, found)
        slots.need_slots(job, spark)
        _run_queries(job, spark, frames, _Kept(job, found, files, watch), reporter=reporter, stop=stop)


def _begun(job: Job) -> Job:
    """Returns the job at the position of its last reset, including partitions that came since."""
    begun = reset.begun(job)
    return begun if begun is job else reset.fitting(begun, slots.partitions(job))


def check(job: Job, reporter: Reports) -> None:
    """Reports the changes since the checkpoint was written. Starts nothing and writes nothing."""
    with _session(job, ()) as spark:
        if job.source.read == "batch":
            Polled(job, spark, reporter).check()
            reporter.send({"event": "changes", "outputs": []})
            return
        files = files_of(base_of(job), spark)
        if job.source.infers and job.source.format is None:
            job = schema_watch.as_kept(job, files)
        found = upgrade.examine(job, jobs.frames(job, spark), spark)
        reporter.send({"event": "changes", "outputs": [one.to_json() for one in found]})


def _poll(job: Job, spark: SparkSession, reporter: Reports, stop: Stopping) -> None:
    polled = Polled(job, spark, reporter)
    polled.check()
    _say_started(job, spark, reporter)
    polled.run(stop)


def _say_started(job: Job, spark: SparkSession, reporter: Reports) -> None:
    names = [o.name for o in job.outputs]
    java = need_java().version
    reporter.send({"event": "started", "queries": names, "spark": spark.version, "java": java})


@contextmanager
def _session(job: Job, held: tuple[int, ...]) -> Iterator[SparkSession]:
    prepare_environment(job.master, job.python_path)
    spark = open_session(job.name, job.master, _settings(job), held=held)
    try:
        yield spark
    except Exception as e:
        if (ended := ended_by_java(e)) is not None:
            raise ended from e
        raise
    finally:
        close_session(spark)


def _settings(job: Job) -> dict[str, str]:
    """Returns the job's settings, those for local files, and the jars of Spark's own connector if they are needed
    and not given.
    """
    given = {**(LOCAL_FILES if on_this_machine(job) else {}), **job.spark}
    own = any(o.format == "kafka" for o in job.outputs) or job.source.format == "kafka"
    jars = [j for j in given.get("spark.jars", "").split(",") if j.strip()]
    named = [*jars, given.get("spark.jars.packages", "")]
    if not (own or job.source.connector == "spark") or any("spark-sql-kafka" in j for j in named):
        return given
    from klamm_spark import kafka_jars

    if any(named) and not kafka_jars.find():  # one of these may have it, by a name of its own
        return given
    return given | {"spark.jars": ",".join([*jars, kafka_jars.settings()["spark.jars"]])}


def _run_queries(
    job: Job,
    spark: SparkSession,
    frames: dict[str, DataFrame],
    kept: _Kept,
    *,
    reporter: Reports,
    stop: Stopping,
) -> None:
    kept.those_without_batches()
    standing = Standing(job, reporter)
    listen(spark, lambda progress: _tell(progress, reporter, kept, standing))
    queries = jobs.start(job, frames)
    _say_started(job, spark, reporter)
    over = threading.Event()
    threading.Thread(target=standing.run, args=(over,), daemon=True, name="standing").start()
    try:
        _watch(
            queries,
            lambda n: start_output(job, job.outputs[n], frames[job.outputs[n].name]),
            stop,
        )
    finally:
        over.set()
        _stop_queries(queries, stop.batch_s)
    for query in queries:
        if (error := query.exception()) is not None:
            raise error


class _Kept:
    """Notes a query's form: before its first batch ever, later once a batch shows that Spark accepted it."""

    def __init__(
        self, job: Job, found: list[upgrade.Examined], beside: Files, watch: SchemaWatch | None
    ) -> None:
        self._job, self._beside, self._watch = job, beside, watch
        self._left = {one.output.name: one for one in found}
        self._lock = threading.Lock()

    def those_without_batches(self) -> None:
        for one in list(self._left.values()):
            if one.standing.fresh:
                self.works(one.output.name)

    def look(self, said: dict[str, Any]) -> None:
        """Looks at a batch's report on the values' schema. All outputs read the same values, and one of them reports."""
        if self._watch is None:
            return
        if said["query"] == self._job.outputs[0].name:
            self._watch.take(said)
        else:
            said.get("observed", {}).pop(schema_watch.NAME, None)

    def works(self, name: str) -> None:
        with self._lock:
            one = self._left.get(name)
            if one is not None:
                upgrade.keep(self._beside, [one])
                del self._left[name]


def _tell(progress: dict[str, Any], reporter: Reports, kept: _Kept, standing: Standing) -> None:
    said = events.progress(progress)
    if (did := figures.take(said["query"], said["batch"])) is not None:
        said["sink"] = did
    kept.look(said)
    standing.took(said)
    reporter.send(said)
    try:
        kept.works(said["query"])
    except OSError as e:  # the next batch tries again
        log.warning("the form of query %s could not be kept beside the checkpoint: %s", said["query"], e)


def _watch(
    queries: list[StreamingQuery],
    again: Callable[[int], StreamingQuery],
    stop: Stopping,
) -> None:
    """Returns when asked to stop, when a query failed, or when all are done.

    Spark gives a Python process ten seconds to start, which cannot be changed. On a machine that stalls for as
    long, a query fails for it. It then continues from its checkpoint, here and without a new Java.
    """
    restarts = 0
    while not stop.wait(LOOK_S):
        for n, query in enumerate(queries):
            error = query.exception()
            if error is None:
                continue
            restarts += 1
            if _TOO_SLOW not in str(error) or restarts > RESTARTS_MAX:
                return
            log.warning(
                "a Python process of %s did not start in time: the query is started again", query.name
            )
            queries[n] = again(n)
        if not any(q.isActive for q in queries):
            return


def _stop_queries(queries: list[StreamingQuery], batch_s: float) -> None:
    """Stops between two batches where possible: a file sink then has no half batch to clean up."""
    deadline = time.monotonic() + batch_s
    begun = [_last_batch(q) for q in queries]
    for query, before in zip(queries, begun, strict=True):
        while (
            query.isActive
            and query.status["isTriggerActive"]
            and _last_batch(query) == before
            and time.monotonic() < deadline
        ):
            time.sleep(0.05)
        query.stop()


def _last_batch(query: StreamingQuery) -> int | None:
    """Returns the last finished batch; None before the first."""
    last = query.lastProgress
    return None if last is None else int(last["batchId"])
