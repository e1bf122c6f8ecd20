"""Events of the driver process: one JSON line each. Pure: Spark's progress and errors in, our events out.

{"event": "started", "queries": ["parquet"], "spark": "4.2.0", "java": 17}
{"event": "progress", "query": "parquet", "batch": 3, "at": "2026-01-01T00:00:00.000Z", "rows": 1000, "input_rows_per_s": 800.0,
 "rows_per_s": 812.5, "duration_ms": 1230, "phases_ms": {"addBatch": 1100}, "lag": {"orders": 12}, "offsets": {"orders": {"0": 512}},
 "lost": 0, "state_rows": 0, "state_bytes": 0, "late": 0, "watermark": null}   observed, position: where there are some
{"event": "changes", "outputs": [{"output": "parquet", "batch": 3, "unfinished": null, "changes": [{"level": "safe", "what": "…"}]}]}
{"event": "waiting", "for": "records"}   before "started": the schema is inferred from what arrives
{"event": "waiting", "for": "the output logs: http://es:9200: Connection refused", "output": "logs"}   again every 30 s
{"event": "lag", "query": "logs", "lag": {"orders": 5120}}   while a batch takes long, every 10 s
{"event": "drift", "topics": {"orders": {"found": [{"kind": "new", "field": "x", "now": "BIGINT"}]}}, "records": {"orders": 3}, "corrupt": 0}
{"event": "failed", "error": "ConfigError", "message": "one sentence", "key": "query.sql", "retriable": false}   key: null where no key is meant
{"event": "stopped", "rows": 5120}
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from klamm_base.errors import ConfigError, KlammError
from klamm_spark.datasource.offsets import Position, flat, lag, nested

_CAUSE: Final = re.compile(r"^(?:: )?(?:[\w.]+\.)?(\w+(?:Error|Exception)): (.+)$", re.MULTILINE)
_ERROR_CLASS: Final = re.compile(r"\[([A-Z][A-Z0-9_.]+)\]\s*")
_INCOMPATIBLE: Final = re.compile(
    r"sources? in the checkpoint offsets|STATE_STORE_(KEY|VALUE)_SCHEMA|STATE_STORE_.*SCHEMA_NOT_COMPATIBLE|INVALID_CHECKPOINT"
    r"|CANNOT_LOAD_STATE_STORE|STATEFUL_OPERATOR_NOT_MATCH|STREAMING_STATEFUL_OPERATOR|number of state store|UNSUPPORTED_OFFSET"
    r"|STREAM_FAILED_OFFSET|schema of (the )?(state|query)|different number of (partitions|stateful)"
)
_HOPELESS: Final = frozenset(
    {
        "ConfigError", "DataLossError", "NotReproducibleError", "AnalysisException", "ParseException", "JavaError", "BadDocumentError",
        "DATA_SOURCE_NOT_FOUND", "IllegalArgumentException",
        "ModuleNotFoundError", "ImportError", "SyntaxError", "IndentationError", "NameError", "AttributeError", "TypeError",
    }
)  # fmt: skip
"""Errors that another start does not cure: in the configuration, in SQL, in a function, in the data."""


def progress(data: Mapping[str, Any]) -> dict[str, Any]:
    """Turns Spark's StreamingQueryProgress (as its JSON) into an event."""
    name = str(data.get("name") or "")
    phases = {k: v for k, v in data.get("durationMs", {}).items() if v}
    operators = data.get("stateOperators", ())
    event: dict[str, Any] = {
        "event": "progress",
        "query": name.rpartition("/")[2],
        "batch": data.get("batchId", 0),
        "at": data.get("timestamp"),
        "rows": data.get("numInputRows", 0),
        "input_rows_per_s": round(_figure(data.get("inputRowsPerSecond")), 1),
        "rows_per_s": round(_figure(data.get("processedRowsPerSecond")), 1),
        "duration_ms": data.get("batchDuration", phases.get("triggerExecution", 0)),
        "phases_ms": phases,
        "lag": {},
        "offsets": {},
        "lost": 0,
        "state_rows": sum(s.get("numRowsTotal", 0) for s in operators),
        "state_bytes": sum(s.get("memoryUsedBytes", 0) for s in operators),
        "late": sum(s.get("numRowsDroppedByWatermark", 0) for s in operators),
        "watermark": data.get("eventTime", {}).get("watermark"),
    }
    if observed := data.get("observedMetrics"):
        event["observed"] = observed
    for source in data.get("sources", ()):
        _add_source(event, source)
    return event


def _add_source(event: dict[str, Any], source: Mapping[str, Any]) -> None:
    end, latest = _position(source.get("endOffset")), _position(source.get("latestOffset"))
    if end is None:
        event["position"] = source.get("endOffset")
        return
    event["offsets"] |= nested(end.next)
    event["lost"] += end.lost
    if latest is not None:
        event["lag"] |= lag(end, latest.next)


def _figure(value: Any) -> float:
    """Reads a rate. For a batch that took no time, Spark writes none or a text such as NaN."""
    return float(value) if isinstance(value, (int, float)) and value == value else 0.0  # noqa: PLR0124


def _position(data: Any) -> Position | None:
    if isinstance(data, str):
        data = json.loads(data)
    if not isinstance(data, Mapping):
        return None
    if "partitions" in data:
        return Position.from_json(data)
    if data and all(
        isinstance(v, Mapping) and v and all(_is_place(*i) for i in v.items()) for v in data.values()
    ):
        return Position(flat(data))  # Spark's Kafka connector writes no more than the offsets
    return None


def _is_place(partition: Any, offset: Any) -> bool:
    return str(partition).isdecimal() and isinstance(offset, int)


def failed(error: BaseException, checkpoint: str) -> dict[str, Any]:
    """Makes the event for the job's final error: error class and one sentence, without Java's stack trace."""
    if isinstance(error, KlammError):
        kind, message = type(error).__name__, str(error)
    else:
        kind, message = explain(f"{type(error).__name__}: {error}", checkpoint)
    hopeless = kind in _HOPELESS or type(error).__name__ in _HOPELESS
    key = error.key if isinstance(error, ConfigError) else None
    return {"event": "failed", "error": kind, "message": message, "key": key, "retriable": not hopeless}


def said_by_spark(error: BaseException) -> str:
    """Returns the first line of an error of Spark's parser or analyzer, with its error class."""
    text = str(error)
    found = _ERROR_CLASS.search(text)
    return _first_line(f": {text[found.start() :]}" if found else f": {text}")


def explain(text: str, checkpoint: str) -> tuple[str, str]:
    """Returns error class and sentence of a Spark error's text.

    A Python error in a worker comes as a traceback within Java's: its last line is the error. Otherwise it is
    the first line of Spark's own message, which begins with its error class.
    """
    if _INCOMPATIBLE.search(text):
        return "ConfigError", (
            f"the checkpoint in {checkpoint} was written by another version of this query and does not fit it "
            f"({_first_line(text)}); change the query back, or set another checkpoint to begin anew"
        )
    causes = _CAUSE.findall(text.partition("\nDriver stacktrace")[0])
    ours = [c for c in causes if not c[0].startswith(("Py4J", "Spark", "StreamingQuery", "PythonException"))]
    if ours:
        kind, message = ours[-1]
        return kind, message.strip()
    found = _ERROR_CLASS.search(text)
    if found:
        return found[1], _first_line(f": {text[found.start() :]}")
    return text.partition(":")[0].strip(), _first_line(text)


def _first_line(text: str) -> str:
    line = next((x.strip() for x in text.partition(": ")[2].splitlines() if x.strip()), text.strip())
    return line[:600]
