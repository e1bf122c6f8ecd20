"""The sum of a job's events: for `klamm spark status`, the status of a task, and metrics. Pure; times are epoch
seconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from klamm_base.metrics_text import Family, Number, Sample

STARTING: Final = "STARTING"
RUNNING: Final = "RUNNING"
STOPPED: Final = "STOPPED"
FAILED: Final = "FAILED"
_LAST: Final = (
    "batch", "at", "input_rows_per_s", "rows_per_s", "duration_ms", "phases_ms", "state_rows", "state_bytes", "watermark", "lost",
    "lag", "offsets", "position", "observed",
)  # fmt: skip
"""Figures of a query that come from its last progress."""
_SINK: Final = ("documents", "refused", "throttled")


@dataclass(slots=True)
class JobStatus:
    """The status after all events so far. `take` adds an event."""

    name: str
    state: str = STARTING
    since: float = 0.0
    error: str | None = None
    spark: str | None = None
    queries: dict[str, dict[str, Any]] = field(default_factory=dict)
    drift: dict[str, Any] = field(default_factory=dict)
    pid: int | None = None
    waiting: str | None = None
    """The reason for waiting, until another event comes: first records, a source or an output's target that is away."""
    _output: str | None = None

    def take(self, event: Mapping[str, Any], now: float) -> None:
        self._wait(event)
        match event["event"]:
            case "started":
                self._begin(RUNNING, now)
                self.spark = event["spark"]
                for name in event["queries"]:
                    self.queries.setdefault(name, _nothing())
            case "progress":
                self._progress(event)
            case "lag":
                self.queries.setdefault(event["query"], _nothing())["lag"] = dict(event["lag"])
            case "drift":
                self.drift = {k: v for k, v in event.items() if k != "event"}
            case "failed":
                self._begin(FAILED, now)
                self.error = f"{event['error']}: {event['message']}"
            case "stopped":
                self._begin(STOPPED, now)

    def _wait(self, event: Mapping[str, Any]) -> None:
        """Ends or keeps a wait: another query's batch does not end the wait for an output."""
        kind = event["event"]
        if kind in {"drift", "lag"} or (
            kind == "progress" and self._output is not None and event["query"] != self._output
        ):
            return
        self.waiting = event["for"] if kind == "waiting" else None
        self._output = event.get("output") if kind == "waiting" else None

    def _begin(self, state: str, now: float) -> None:
        self.state, self.since = state, now

    def _progress(self, event: Mapping[str, Any]) -> None:
        query = self.queries.setdefault(event["query"], _nothing())
        if event["rows"] or event["batch"] != query.get("batch"):
            query["batches"] += 1
        query["rows"] += event["rows"]
        query["late"] += event.get("late", 0)
        for key, value in event.get("sink", {}).items():
            if isinstance(value, int | float) and not isinstance(value, bool):
                query["sink"][key] = value + (query["sink"].get(key, 0) if key in _SINK else 0)
        query |= {key: event[key] for key in _LAST if key in event and event[key] is not None}

    @property
    def rows(self) -> int:
        return sum(q["rows"] for q in self.queries.values())

    def lag(self) -> int | None:
        """Returns the unread records of the slowest query; None: unknown."""
        known = [sum(q["lag"].values()) for q in self.queries.values() if q.get("lag")]
        return max(known, default=None)

    def to_json(self) -> dict[str, Any]:
        return {
            "job": self.name,
            "state": self.state,
            "since": self.since,
            "error": self.error,
            "spark": self.spark,
            "pid": self.pid,
            "waiting": self.waiting,
            "queries": self.queries,
            "drift": self.drift,
        }


def _nothing() -> dict[str, Any]:
    return {"batches": 0, "rows": 0, "late": 0, "sink": {}, "lag": {}}


def timestamp_s(text: Any) -> float | None:
    """Converts Spark's time to epoch seconds; None for a missing time and for the epoch, which Spark writes before
    the first row.
    """
    if not isinstance(text, str):
        return None
    try:
        found = datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None
    return found if found > 0 else None


_FIGURES: Final[tuple[tuple[str, str, str, float], ...]] = (
    ("input_rows_total", "rows", "Rows read since the job was started.", 1),
    ("batches_total", "batches", "Batches done since the job was started.", 1),
    ("late_rows_total", "late", "Rows behind the watermark, which Spark left out.", 1),
    ("input_rows_per_second", "input_rows_per_s", "Rows that arrived a second, at the last batch.", 1),
    ("processed_rows_per_second", "rows_per_s", "Rows processed a second, in the last batch.", 1),
    ("batch_duration_seconds", "duration_ms", "How long the last batch took.", 1e-3),
    ("state_rows", "state_rows", "Rows of state.", 1),
    ("state_bytes", "state_bytes", "Memory of the state.", 1),
    ("lost_rows_total", "lost", "Records that were gone before they were read.", 1),
)


def samples(status: JobStatus) -> Iterator[tuple[str, str, dict[str, str], Number]]:
    """Yields metric, help, labels and value of everything that is known."""
    for name, query in sorted(status.queries.items()):
        labels = {"query": name}
        for metric, key, about, factor in _FIGURES:
            if isinstance(value := query.get(key), int | float):
                yield f"klamm_spark_{metric}", about, labels, value if factor == 1 else value * factor
        for topic, behind in sorted(query["lag"].items()):
            yield "klamm_spark_lag", "Records behind.", labels | {"topic": topic}, behind
        for topic, places in sorted(query.get("offsets", {}).items()):
            for partition, offset in sorted(places.items(), key=lambda place: int(place[0])):
                place = labels | {"topic": topic, "partition": str(partition)}
                yield "klamm_spark_position", "The next offset to be read.", place, offset
        for key, metric in (("watermark", "watermark"), ("at", "last_progress")):
            if (at := timestamp_s(query.get(key))) is not None:
                yield (
                    f"klamm_spark_{metric}_timestamp_seconds",
                    f"Time of the {metric.replace('_', ' ')}.",
                    labels,
                    at,
                )
        for key in _SINK:
            if key in query["sink"]:
                yield f"klamm_spark_sink_{key}_total", f"Of the writer: {key}.", labels, query["sink"][key]
    if status.drift:
        about = "JSON values that could not be read in full by the schema."
        yield "klamm_spark_unreadable_values_total", about, {}, status.drift.get("corrupt", 0)
    for topic, count in sorted(status.drift.get("records", {}).items()):
        about = "Records found to be otherwise than the schema says; samples where a batch is large."
        yield "klamm_spark_schema_drift_total", about, {"topic": topic}, count


def families(status: JobStatus) -> Iterator[Family]:
    """Yields the metrics in Prometheus' form."""
    up = 1 if status.state == RUNNING else 0
    yield Family(
        "klamm_spark_up", "gauge", "1 while the queries of the job run.", [Sample({"job": status.name}, up)]
    )
    if status.error is not None:
        labels = {"job": status.name, "error": status.error.partition(":")[0]}
        yield Family("klamm_spark_last_error", "gauge", "1: the kind of the last error.", [Sample(labels, 1)])
    found: dict[str, tuple[str, list[Sample]]] = {}
    for metric, about, labels, value in samples(status):
        found.setdefault(metric, (about, []))[1].append(Sample({**labels}, value))
    for metric, (about, entries) in found.items():
        yield Family(metric, "counter" if metric.endswith("_total") else "gauge", about, entries)
