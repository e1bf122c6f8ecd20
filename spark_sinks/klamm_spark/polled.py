"""Batch reads of a source, again and again: all of it each time, or the rows whose column has grown.

The position is the highest value that was read, as text. It is kept (by the listener of our events, or
beside the checkpoint) after all outputs have the rows. A read that was cut off is repeated, so delivery is
at least once.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
import threading
import time
from datetime import UTC, datetime
from typing import Any, Final, Protocol

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from klamm_base.errors import ConfigError
from klamm_spark import events
from klamm_spark import job as jobs
from klamm_spark.beside import POSITION, files_of, read_json, write_json
from klamm_spark.model import Job
from klamm_spark.outputs import base_of, write_batch
from klamm_spark.sources import read_batch

log = logging.getLogger(__name__)

LOOK_S: Final = 0.2
FAILURES_MAX: Final = 10
"""The number of successive reads that may fail before the job does."""
_UNITS_S: Final = {"ms": 1e-3, "mi": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_ORDERED: Final = re.compile(r"(tiny|small|big)?int|float|double|decimal.*|date|timestamp(_ntz)?|string")
_WITH_ZONE: Final = "yyyy-MM-dd HH:mm:ss.SSSSSSXXX"
"""The format of kept timestamps. It has the zone, because an hour comes twice a year."""


class _Reports(Protocol):
    def send(self, event: dict[str, Any]) -> None: ...


class _Stopping(Protocol):
    batch_s: float

    def is_set(self) -> bool: ...
    def wait(self, timeout: float | None = None) -> bool: ...


def seconds(text: str) -> float:
    """Converts `10 seconds`, `5ms` and the like to seconds."""
    found = re.fullmatch(r"(\d+)\s*([a-z]+)", text.strip())
    if found is None:
        raise ConfigError(f"{text!r} is no time such as '10 seconds'")
    unit = found[2]
    by = _UNITS_S["mi"] if unit.startswith(("ms", "milli")) else _UNITS_S[unit[0]]
    return int(found[1]) * by


class Polled:
    """Reads, writes and remembers; then waits for the next time."""

    def __init__(self, job: Job, spark: SparkSession, reporter: _Reports) -> None:
        self._job, self._spark, self._reporter = job, spark, reporter
        self._files = files_of(base_of(job), spark)
        told = read_json(self._files, POSITION) if job.position is None else json.loads(job.position)
        self._value: str | None = told.get("value") if told.get("column") == job.source.poll.column else None
        self._failures = 0
        self._number = int(told.get("batch", -1)) + 1
        self._read_before = job.position is not None and self._number > 0
        """Somebody who keeps the position started us again, and there is nothing but what was read."""
        if self._value is None:
            self._value = job.source.poll.start

    def check(self) -> None:
        """Checks the query and the column before anything is written. Raises ConfigError."""
        given = read_batch(self._job.source, self._spark)
        kind = self._type(given)
        if kind is not None and kind.startswith("timestamp") and self._job.source.poll.delay is None:
            log.warning(
                "[source.poll] column = %r is a timestamp without delay: a later row with a time that was already read is "
                "never read",
                self._job.source.poll.column,
            )
        jobs.frames(self._job, self._spark, given)

    def run(self, stop: _Stopping) -> None:
        """Runs until asked to stop; without an interval, once. Cuts off a read that then takes too long."""
        over = threading.Event()
        threading.Thread(target=self._cut_off, args=(stop, over), daemon=True, name="cut-off").start()
        try:
            self._repeat(stop)
        finally:
            over.set()

    def _repeat(self, stop: _Stopping) -> None:
        poll = self._job.source.poll
        every = None if poll.interval is None or self._job.available_now else seconds(poll.interval)
        if every is None and poll.column is None and self._read_before:
            return
        while True:
            begun = time.monotonic()
            self._once_if_it_can(stop, patient=every is not None)
            if every is None or stop.wait(max(0.0, every - (time.monotonic() - begun))):
                return

    def _cut_off(self, stop: _Stopping, over: threading.Event) -> None:
        while not stop.is_set():
            if over.wait(LOOK_S):
                return
        if over.wait(stop.batch_s):
            return
        log.info("the read that is under way is cut off, and done again at the next start")
        with contextlib.suppress(Py4JError):  # Java has ended
            self._spark.sparkContext.cancelAllJobs()

    def _once_if_it_can(self, stop: _Stopping, *, patient: bool) -> None:
        """Reads once. A source that is away is asked again the next time: a new start of Spark would cost more and
        help no more.
        """
        try:
            self._once()
        except Exception as e:
            if stop.is_set():
                log.info("not finished when it was stopped: %s", str(e).partition("\n")[0][:200])
                return
            failed = events.failed(e, self._job.checkpoint)
            self._failures += 1
            if not patient or not failed["retriable"] or self._failures > FAILURES_MAX:
                raise
            log.warning("read %d failed, tried again: %s", self._number, failed["message"])
            self._reporter.send({"event": "waiting", "for": f"the source: {failed['message']}"[:300]})
        else:
            self._failures = 0

    def _once(self) -> None:
        begun = time.monotonic()
        found = self._new_rows()
        if found is None:
            self._tell(0, begun, {})
            return
        rows, value = found
        counted = Observation("klamm_rows")
        given = rows.observe(counted, F.count(F.lit(1)).alias("rows"))
        frames = jobs.frames(self._job, self._spark, given)
        for output in self._job.outputs:
            write_batch(self._job, output, frames[output.name], self._number)
        self._value = value
        self._keep()
        self._tell(_rows(counted), begun, {"position": self._position()})
        self._number += 1

    def _type(self, frame: DataFrame) -> str | None:
        column = self._job.source.poll.column
        if column is None:
            return None
        types = {f.name.lower(): f.dataType.simpleString() for f in frame.schema.fields}
        if column.lower() not in types:
            raise ConfigError(
                f"[source.poll] column = {column!r}: there is no such column; there are {', '.join(frame.columns)}",
                key="source.poll.column",
            )
        kind = types[column.lower()]
        if not _ORDERED.fullmatch(kind):
            raise ConfigError(
                f"[source.poll] column = {column!r} is {kind}: use a number, a date, a timestamp or a text",
                key="source.poll.column",
            )
        delay = self._job.source.poll.delay
        if delay is not None and not kind.startswith(("timestamp", "date")):
            raise ConfigError(
                f"[source.poll] delay is for timestamps and dates; {column} is {kind}",
                key="source.poll.delay",
            )
        if delay is None and kind == "date":
            raise ConfigError(
                f"[source.poll] column = {column!r} is a date: later rows of a day that was already read would be skipped. Set delay: "
                "a day is then read when it has been over for so long",
                key="source.poll.delay",
            )
        return kind

    def _new_rows(self) -> tuple[DataFrame, str | None] | None:
        """Returns the rows to read now and the position after them; None when there are none."""
        frame = read_batch(self._job.source, self._spark)
        kind, poll = self._type(frame), self._job.source.poll
        if kind is None or poll.column is None:
            return frame, None
        column = F.col(f"`{poll.column}`")
        if self._value is not None:
            frame = frame.where(column > F.lit(self._value).cast(kind))
        if poll.delay is not None:
            before = F.lit(datetime.fromtimestamp(time.time() - seconds(poll.delay), UTC)).cast(kind)
            frame = frame.where(column < before if kind == "date" else column <= before)
        highest = F.max(column)
        shown = F.date_format(highest, _WITH_ZONE) if kind == "timestamp" else highest.cast("string")
        last = frame.agg(shown).collect()[0][0]
        return None if last is None else (frame.where(column <= F.lit(last).cast(kind)), last)

    def _position(self) -> dict[str, Any]:
        return {"column": self._job.source.poll.column, "value": self._value, "batch": self._number}

    def _keep(self) -> None:
        if self._job.position is None:
            write_json(self._files, POSITION, self._position())

    def _tell(self, rows: int, begun: float, place: dict[str, Any]) -> None:
        took = time.monotonic() - begun
        event = {
            "event": "progress",
            "batch": self._number,
            "at": datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "rows": rows,
            "input_rows_per_s": round(rows / took, 1),
            "rows_per_s": round(rows / took, 1),
            "duration_ms": round(took * 1000),
            "phases_ms": {},
            "lag": {},
            "offsets": {},
            "lost": 0,
            "state_rows": 0,
            "state_bytes": 0,
            "late": 0,
            "watermark": None,
        }
        for n, output in enumerate(self._job.outputs):
            self._reporter.send(event | place | {"query": output.name} | ({"rows": 0} if n else {}))


def _rows(counted: Observation) -> int:
    """Returns the observed rows; 0 when Spark found that the query takes nothing and looked at no row."""
    try:
        return int(counted.get["rows"])
    except Py4JError:
        return 0
