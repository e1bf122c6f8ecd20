"""The parts of a streaming query, as `compat` compares them: sources, operators with state, watermarks, results.

They are read from Spark's analyzed plan; nothing runs and no source is asked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from klamm_spark.beside import Files, last_number
from klamm_spark.compat import FILES, Standing
from klamm_spark.model import Job, Output
from klamm_spark.secrets import bare, without_user

VERSION: Final = 1
_ID: Final = re.compile(r"#\d+L?(?:-T\d+ms)?")
_REFERENCE: Final = re.compile(r"[\w.]+(?:\([^()#]*\))?#(\d+)L?(?:-T\d+ms)?")
_OBJECT: Final = re.compile(r"@[0-9a-f]{4,}")
_COLUMN: Final = re.compile(r"precisetimestampconversion\(([^(),]+), TimestampType")
_SLIDE: Final = re.compile(r"% (\d+)\)")
_LENGTH: Final = re.compile(r"\+ (\d+)\), LongType")
_SESSION: Final = re.compile(r"(?s)named_struct\(start.*cast\((\S+) \+ cast\((.+?) as interval\)")
_OF_INPUT: Final = ("_parsed#", "cast(key#", "cast(value#")
"""Beginnings of the expressions from which `sources.value_columns` makes columns. A new field among them does
not change the query.
"""
_DEPTH: Final = 8
_KEPT: Final = (
    "kafka.bootstrap.servers", "subscribe", "subscribePattern", "assign", "path", "paths", "dbtable", "query", "url",
)  # fmt: skip
"""Options that say what is read. All others may change freely, or hold secrets."""
_TARGETS: Final = ("path", "topic", "index", "table", "dbtable")


def describe(job: Job, output: Output, frame: DataFrame, spark: SparkSession) -> dict[str, Any]:
    """Returns the description of one output's query, as JSON."""
    root: Any = frame._jdf.queryExecution().analyzed()  # noqa: SLF001
    nodes = list(_nodes(root))
    names = _definitions(nodes)
    return {
        "version": VERSION,
        "spark": spark.version,
        "sources": [s for n in nodes if (s := _source(n)) is not None],
        "stateful": [s for n in nodes if (s := _stateful(n, names)) is not None],
        "watermarks": [
            {"column": n.eventTime().sql().replace("`", ""), "delay": str(n.delay().toString())}
            for n in nodes
            if _kind(n) == "EventTimeWatermark"
        ],
        "output": _output(output),
        "columns": [[f.name, f.dataType.simpleString()] for f in frame.schema.fields],
        "state": {
            "provider": spark.conf.get("spark.sql.streaming.stateStore.providerClass"),
            "partitions": spark.conf.get("spark.sql.shuffle.partitions"),
        },
    }


def standing(output: Output, files: Files, target: Files | None) -> Standing:
    """Returns the contents of an output's checkpoint. `target` is the directory of a file sink."""
    folder = output.name
    return Standing(
        planned=last_number(files.names(f"{folder}/offsets")),
        done=last_number(files.names(f"{folder}/commits")),
        files=None if target is None else last_number(target.names("_spark_metadata")),
    )


def file_target(output: Output) -> str | None:
    """Returns the directory of Spark's file sink; None for another sink."""
    if output.format not in FILES or output.by_batches:
        return None
    return {k.lower(): v for k, v in output.options.items()}.get("path")


def _output(output: Output) -> dict[str, Any]:
    options = {k.lower(): v for k, v in output.options.items()}
    target = next((options[k] for k in _TARGETS if k in options), None)
    url = options.get("url") or options.get("hosts")
    parts = [p for p in (url and bare(url), target and without_user(target)) if p]
    return {
        "format": output.format,
        "mode": output.mode,
        "partition_by": list(output.partition_by),
        "target": " ".join(parts) or None,
    }


def _nodes(node: Any) -> Iterator[Any]:
    """Yields children before their parents, as Spark numbers operators with state."""
    children = node.children()
    for i in range(children.size()):
        yield from _nodes(children.apply(i))
    yield node


def _kind(node: Any) -> str:
    return str(node.getClass().getSimpleName())


def _sequence(found: Any) -> list[Any]:
    return [found.apply(i) for i in range(found.size())]


def _source(node: Any) -> dict[str, Any] | None:
    match _kind(node):
        case "StreamingRelationV2":
            return {
                "kind": str(node.sourceName()),
                "options": _options(node.extraOptions().asCaseSensitiveMap()),
            }
        case "StreamingRelation":
            source = node.dataSource()
            found = _options(_java_map(source.options()))
            return {"kind": str(source.className()), "options": found}
        case "StreamingDataSourceV2Relation" | "StreamingExecutionRelation":
            return {"kind": _ID.sub("", str(node.toString()).splitlines()[0])[:200], "options": {}}
    return None


def _java_map(scala_map: Any) -> dict[str, str]:
    answer = {}
    pairs = scala_map.iterator()
    while pairs.hasNext():
        pair = pairs.next()
        answer[str(pair.productElement(0))] = str(pair.productElement(1))
    return answer


def _options(found: Mapping[str, Any]) -> dict[str, str]:
    kept = {k.lower(): k for k in _KEPT}
    answer = {kept[str(k).lower()]: str(v) for k, v in found.items() if str(k).lower() in kept}
    return {k: bare(v) if k == "url" else without_user(v) for k, v in sorted(answer.items())}


def _stateful(node: Any, names: Mapping[int, str]) -> dict[str, Any] | None:
    kind = _kind(node)
    children = _sequence(node.children())
    if not children or not all(c.isStreaming() for c in children):
        return None
    match kind:
        case "Aggregate":
            keys = _sequence(node.groupingExpressions())
            values = [e for e in _sequence(node.aggregateExpressions()) if _is_aggregate(e)]
            return {
                "kind": "aggregation",
                "keys": [_column(e, names) for e in keys],
                "values": [_column(e, names) for e in values],
            }
        case "Deduplicate" | "DeduplicateWithinWatermark":
            said = "deduplication" + (" within the watermark" if kind.endswith("Watermark") else "")
            return {"kind": said, "keys": [_column(e, names) for e in _sequence(node.keys())]}
        case "Distinct":
            return {"kind": "distinct", "keys": [_column(e, names) for e in _sequence(node.output())]}
        case "Join":
            condition = node.condition()
            text = _text(condition.get(), names) if condition.isDefined() else "everything"
            return {
                "kind": f"{str(node.joinType().sql()).lower()} join of streams",
                "text": f"on {text}",
            }
        case "GlobalLimit":
            return {"kind": "limit"}
    if "WithState" in kind:
        head = str(node.toString()).splitlines()[0]
        return {"kind": "grouped state", "text": _OBJECT.sub("", _ID.sub("", head.lstrip("~")))[:1000]}
    return None


def _is_aggregate(expression: Any) -> bool:
    """Returns whether a result of an aggregation holds state: an aggregate function does, a key or a constant does not."""
    return bool(re.search(r"AggregateExpression", _classes(expression)))


def _classes(expression: Any) -> str:
    below = [_classes(child) for child in _sequence(expression.children())]
    return " ".join([_kind(expression), *below])


def _column(expression: Any, names: Mapping[int, str]) -> dict[str, str]:
    return {"expression": _text(expression, names), "type": str(expression.dataType().simpleString())}


def _definitions(nodes: list[Any]) -> dict[int, str]:
    """Returns the expressions behind the names that a plan gives on its way (`window#8`). The input's own columns stay
    names.
    """
    answer = {}
    for node in nodes:
        for expression in _expressions(node):
            if _kind(expression) == "Alias":
                text = str(expression.child().toString())
                if not text.startswith(_OF_INPUT):
                    answer[_number(expression)] = _window(text)
        if (
            _kind(node) == "Expand"
        ):  # windows that overlap: a row goes to several, of which one is enough to know them
            for column, expression in zip(
                _sequence(node.output()), _sequence(node.projections().apply(0)), strict=True
            ):
                if "precisetimestampconversion" in (text := str(expression.toString())):
                    answer[_number(column)] = _window(text)
    return answer


def _expressions(node: Any) -> list[Any]:
    match _kind(node):
        case "Project":
            return _sequence(node.projectList())
        case "Aggregate":
            return _sequence(node.aggregateExpressions())
    return []


def _text(expression: Any, names: Mapping[int, str]) -> str:
    """Writes an expression over the input's columns, with the query's names replaced by their definitions."""
    text = str((expression.child() if _kind(expression) == "Alias" else expression).toString())
    for _ in range(_DEPTH):
        resolved = _REFERENCE.sub(lambda m: _resolved(m, names), text)
        if resolved == text:
            break
        text = resolved
    return _ID.sub("", text)


def _resolved(reference: re.Match[str], names: Mapping[int, str]) -> str:
    definition = names.get(int(reference[1]))
    if definition is None:
        return reference[0]
    return f"({definition})" if " " in definition and not definition.endswith(")") else definition


def _number(attribute: Any) -> int:
    return int(attribute.exprId().id())


def _window(text: str) -> str:
    """Normalizes windows, which Spark writes out as arithmetic of microseconds."""
    if (found := _SESSION.search(text)) is not None:
        return f"session_window({found[1]}, {found[2]})"
    if "precisetimestampconversion" not in text:
        return text
    column, slides, lengths = _COLUMN.search(text), _SLIDE.search(text), _LENGTH.findall(text)
    if column is None or slides is None or not lengths:
        return text
    slide, length = int(slides[1]) / 1e6, int(lengths[-1]) / 1e6
    return f"window({column[1]}, {length:g} s{'' if slide == length else f', every {slide:g} s'})"
