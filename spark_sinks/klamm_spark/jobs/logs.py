"""Logs of any format from topics: parsed, enriched, without repetitions, as ECS documents, and counted per window.

    function = "klamm_spark.jobs.logs:logs"     # [query]; its settings are [query.options], see docs/pipeline.md

Input: one line a record, bare or in the log agent's JSON envelope. Frames:

- `documents`: every line, once: `doc_id`, `kind` (events, late, unparsed), `data_stream` (`logs-DATASET-NAMESPACE`; late and
  unparsed lines have a dataset of their own), and the ECS document as JSON text in `document`;
- `events`, `late`, `unparsed`: the same apart, with a column for each field;
- `rates`: lines, errors and error rate per service and window; `statistics`: per service and level, with percentiles
  of `event.duration` in milliseconds.

No line is dropped: one that no format takes is unparsed, with the reason; one whose time cannot be read is an event of the time
of its record, tagged `_dateparsefailure`. With `late_after`, a line that came to its topic later than this after its own time is
late, and not counted in windows: the same line is late in every query and in every run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from klamm_spark.datasource.agent_lines import COLUMNS, usable
from klamm_spark.jobs import log_enrich, log_formats
from klamm_spark.jobs.log_formats import CANONICAL, TimeForm
from klamm_spark.jobs.log_options import Format, LogOptions, read_options
from klamm_spark.jobs.log_windows import rates, statistics

_ENVELOPE: Final = (
    "message string, log struct<file: struct<path: string>, offset: bigint>, host struct<name: string>, "
    "service struct<name: string>"
)
_SEEN_AT: Final = "_klamm_seen_at"
_ISO: Final = "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'"
_ORIGIN: Final = ("topic", "partition", "offset", "timestamp")
_FROM_AGENT: Final = {"log.file.path": "string", "log.offset": "bigint", "host.name": "string"}
_HIDDEN: Final = frozenset(
    {
        "line", "line_id", "doc_id", "event_time", "kind", "is_error", "rest", "whole", "taken", "recorded", "topic", "partition",
        "offset",
    }
)  # fmt: skip
"""Columns that are no fields of a document."""
_OURS: Final = frozenset(
    {*_FROM_AGENT, "@timestamp", "event.dataset", "event.original", "error.message", "tags", "kafka"}
)
LONGEST_ID: Final = 512
"""The bytes of an id that Elasticsearch accepts. A line with a longer id gets its record's id, as a line
without any does.
"""
_WRONG: Final = "ERROR|FATAL|CRITICAL|SEVERE|ALERT|EMERG|PANIC|^ERR$|^CRIT$"


def logs(df: DataFrame, spark: SparkSession, options: Mapping[str, Any]) -> dict[str, DataFrame]:
    """Runs the job. Raises ConfigError for a setting that cannot be used."""
    prepare(spark)
    return frames(df, spark, read_options(options))


def reader_options(options: Mapping[str, Any]) -> dict[str, str]:
    """Returns options of `format("klamm")` that make the job's work less. Raises ConfigError for settings that cannot be used."""
    wanted = read_options(options)
    if not wanted.envelope or any(f.type == "ecs" for f in wanted.formats):  # they take records as they are
        return {}
    id_ = wanted.id_pattern
    return {"agentLines": "true"} | ({"agentLines.id": id_} if id_ is not None and usable(id_) else {})


def prepare(spark: SparkSession) -> None:
    """Sets the session's settings that the job's columns rely on."""
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    spark.conf.set("spark.sql.mapKeyDedupPolicy", "LAST_WIN")


def frames(df: DataFrame, spark: SparkSession, options: LogOptions) -> dict[str, DataFrame]:
    """Returns all outputs of one input."""
    rows = enriched(parsed(lines(df, options), options), spark, options)
    single = once(rows, options)
    return {
        "documents": documents(single, options),
        **{kind: single.where(F.col("kind") == kind).drop("kind") for kind in ("events", "late", "unparsed")},
        "rates": rates(rows, options),
        "statistics": statistics(rows, options),
    }


def lines(df: DataFrame, options: LogOptions) -> DataFrame:
    """Turns records into lines with their origin."""
    text = F.col("value").cast("string")
    if not options.envelope:
        nothing = {n: F.lit(None).cast(t).alias(n) for n, t in {**_FROM_AGENT, "_service": "string"}.items()}
        return df.select(*_ORIGIN, text.alias("line"), text.alias("record"), *nothing.values())
    # A record without an envelope (from another producer, or a broken one) is a line as it is.
    cut = [F.col(name) for name in COLUMNS if name in df.columns]
    whole = F.from_json(text, _ENVELOPE)
    if cut:
        whole = F.when(F.col("_line").isNull(), whole)
    both = df.select(*_ORIGIN, text.alias("text"), *cut, whole.alias("e"))

    def either(name: str, inside: str) -> Column:
        return F.coalesce(name, inside) if cut else F.col(inside)

    return both.select(
        *_ORIGIN,
        F.coalesce(either("_line", "e.message"), "text").alias("line"),
        F.col("text").alias("record"),
        either("_path", "e.log.file.path").alias("log.file.path"),
        either("_position", "e.log.offset").alias("log.offset"),
        either("_host", "e.host.name").alias("host.name"),
        either("_service", "e.service.name").alias("_service"),
        *(["_id"] if cut else []),
    )


def parsed(df: DataFrame, options: LogOptions) -> DataFrame:
    """Adds the fields of the first format that accepts the line."""
    raw = [f"_raw{n}" for n in range(len(options.formats))]
    before: Column | None = None
    for name, format_ in zip(raw, options.formats, strict=True):
        log_formats.check_time(format_, df.sparkSession)
        df = log_formats.parsed(df, name, format_, before)
        mine = log_formats.understood(F.col(name), format_)
        before = mine if before is None else before | mine
    # Spark would move every later filter to before this step, and with it all of the parsing, once for each
    # mention of a column. It moves none through a generator.
    df = (
        df.withColumn("_all", F.explode(F.array(F.struct(*raw))))
        .drop(*raw)
        .select("*", "_all.*")
        .drop("_all")
    )
    return _typed(df, options, raw)


@dataclass(slots=True)
class _Found:
    """The columns of the formats, each null for lines of the others. A line has the first that is not null."""

    fields: dict[str, list[Column]]
    times: dict[TimeForm, list[Column]]
    """Texts of times, by the way in which they are written."""
    rests: list[Column]
    datasets: list[Column]
    wholes: list[Column]
    taken: list[Column]
    """Names at the top of documents that are copied unchanged."""
    ours: frozenset[str]
    """Names that documents get besides those of the formats."""


def _typed(df: DataFrame, options: LogOptions, raw: list[str]) -> DataFrame:
    """Puts the columns of all formats beside each other: a line has those of its own."""
    looked_up = {to for lookup in options.lookups for to in lookup.fields.values()}
    ours = _OURS | looked_up | set(log_enrich.ADDED)
    found = _Found({name: [] for name in (*CANONICAL, "timestamp")}, {}, [], [], [], [], ours)
    for name, format_ in zip(raw, options.formats, strict=True):
        kind = df.schema[name].dataType
        _gather(found, F.col(name), format_, kind if isinstance(kind, StructType) else None)
    return _identified(_columns(df, found), options)


def _gather(found: _Found, column: Column, format_: Format, schema: StructType | None) -> None:
    mine = log_formats.understood(column, format_)
    known = log_formats.fields(column, format_, schema)
    if (took := log_formats.duration(column, format_, schema)) is not None:
        known.pop(format_.duration_field or "", None)
        known["event.duration"] = took
    for field, value in {**known, **{k: F.lit(v) for k, v in format_.set.items()}}.items():
        typed = value.try_cast(CANONICAL[field]) if field in CANONICAL else value
        found.fields.setdefault(field, []).append(F.when(mine, typed))
    text = known.get(format_.time_field, known.get("timestamp"))
    if text is not None:
        found.times.setdefault(log_formats.time_form(format_), []).append(F.when(mine, text.cast("string")))
    if (rest := log_formats.rest(column, format_, {*found.ours, *format_.set})) is not None:
        found.rests.append(F.when(mine, rest))
    if format_.type == "ecs":
        found.wholes.append(F.when(mine, F.rtrim("record")))
        found.taken.append(F.when(mine, F.map_keys(column)))
    found.datasets.append(F.when(mine, format_.name))


def _columns(df: DataFrame, found: _Found) -> DataFrame:
    """Makes one column for each field. The level of an access log follows from its status."""
    fields = {k: v for k, v in found.fields.items() if k != "timestamp"}
    own = {k: F.coalesce(*v) if v else F.lit(None).cast(CANONICAL[k]) for k, v in fields.items()}
    agents = {
        n: F.coalesce(own.pop(n), F.col(f"`{n}`")) if n in own else F.col(f"`{n}`") for n in _FROM_AGENT
    }
    times = {f"_time{n}": F.coalesce(*texts) for n, texts in enumerate(found.times.values())}
    columns = df.select(
        *("topic", "partition", "offset", "line", "_service"),
        *(["_id"] if "_id" in df.columns else []),
        F.col("timestamp").alias("recorded"),
        *(
            column.alias(name)
            for name, column in {**agents, "event.dataset": F.coalesce(*found.datasets), **own}.items()
        ),
        *(text.alias(name) for name, text in times.items()),
        (F.coalesce(*found.rests) if found.rests else F.lit(None).cast("string")).alias("rest"),
        (F.coalesce(*found.wholes) if found.wholes else F.lit(None).cast("string")).alias("whole"),
        (F.coalesce(*found.taken) if found.taken else F.lit(None).cast("array<string>")).alias("taken"),
    )
    for name, form in zip(times, found.times, strict=True):
        columns = log_formats.read_time(columns, name, form)
    status = F.col("`http.response.status_code`")
    by_status = F.when(status >= 500, "ERROR").when(status >= 400, "WARN").when(status.isNotNull(), "INFO")
    return columns.withColumns(
        {
            "log.level": F.coalesce("`log.level`", by_status),
            "service.name": F.coalesce("`service.name`", "_service", "`event.dataset`"),
            "_seen": F.coalesce(*times) if times else F.lit(None).cast("timestamp"),
        }
    ).drop("_service", *times)


def _identified(df: DataFrame, options: LogOptions) -> DataFrame:
    record = F.concat_ws("-", "topic", "partition", "offset")
    line_id = F.coalesce(_usable(F.col("`event.id`")), record)
    if options.id_pattern is not None:
        found = F.regexp_extract("line", options.id_pattern, 1)
        df = df.withColumn("_id", F.coalesce("_id", found) if "_id" in df.columns else found)
        line_id = F.coalesce(_usable(F.col("_id")), line_id)
    event_time = F.coalesce("_seen", "recorded")
    understood = F.col("`event.dataset`").isNotNull()
    late = F.lit(False)
    if options.late_after is not None:
        late = event_time < F.col("recorded") - F.expr(f"interval {options.late_after}")
    level, status = F.upper("`log.level`"), F.col("`http.response.status_code`")
    said = F.col("`error.message`") if "error.message" in df.columns else F.lit(None).cast("string")
    return df.withColumns(
        {
            "line_id": line_id,
            "doc_id": line_id if options.identity == "line" else record,
            # A clock that is ahead must not close everybody's windows.
            "event_time": F.least(event_time, F.col("recorded")),
            "@timestamp": F.date_format(F.when(understood, event_time).otherwise(F.col("recorded")), _ISO),
            "kind": F.when(~understood, "unparsed").when(late, "late").otherwise("events"),
            "is_error": F.coalesce(level.rlike(_WRONG), F.lit(False))
            | F.coalesce(status >= 500, F.lit(False)),
            "tags": F.when(~understood, F.array(F.lit("_parsefailure"))).when(
                F.col("_seen").isNull(), F.array(F.lit("_dateparsefailure"))
            ),
            "error.message": F.when(~understood, "no format takes this line").otherwise(said),
            "message": F.when(understood, F.coalesce("message", "line")).otherwise(F.col("line")),
        }
    ).drop("_seen", "_id")


def _usable(identity: Column) -> Column:
    return F.when((identity != "") & (F.octet_length(identity) <= LONGEST_ID), identity)


def enriched(df: DataFrame, spark: SparkSession, options: LogOptions) -> DataFrame:
    """Adds the fields from the user agent and from lookup tables."""
    if options.user_agent:
        df = log_enrich.user_agent(df)
    for lookup in options.lookups:
        df = log_enrich.looked_up(df, lookup, spark)
    return df


def once(df: DataFrame, options: LogOptions) -> DataFrame:
    """Leaves out a line that came again within `watermark`.

    It goes by the time of the batches, which a repeated batch keeps. By a line's own time Spark would leave out
    every line behind its watermark, repeated or not.
    """
    if not options.deduplicate:
        return df
    if not df.isStreaming:
        return df.dropDuplicates(["doc_id"])
    seen = df.withColumn(_SEEN_AT, F.current_timestamp()).withWatermark(_SEEN_AT, options.watermark)
    return seen.dropDuplicatesWithinWatermark(["doc_id"]).drop(_SEEN_AT)


def documents(df: DataFrame, options: LogOptions) -> DataFrame:
    """Makes ECS documents: every field with a value, the line's other contents, and its origin.

    A line that was a document before stays one, and gets the added fields.
    """
    origin = F.struct("topic", "partition", "offset").alias("kafka")
    more = [F.col("line").alias("event.original")] if options.original else []
    names = [n for n in df.columns if n not in _HIDDEN]
    df = df.withColumn("_text", F.to_json(F.struct(*(F.col(f"`{n}`") for n in names), origin, *more)))
    text = F.col("_text")
    document = F.when(F.col("rest").isNull(), text).otherwise(_merged(text, F.col("rest")))
    if any(f.type == "ecs" for f in options.formats):
        looked_up = {to for lookup in options.lookups for to in lookup.fields.values()}
        added = [
            n
            for n in names
            if n in {"event.dataset", *looked_up, *(log_enrich.ADDED if options.user_agent else ())}
        ]
        document = F.when(F.col("whole").isNotNull(), _completed(added, origin)).otherwise(document)
    dataset = F.when(F.col("kind") == "events", F.col("`event.dataset`")).otherwise(F.col("kind"))
    stream = F.concat(F.lit("logs-"), dataset, F.lit(f"-{options.namespace}"))
    return df.select("doc_id", "kind", stream.alias("data_stream"), document.alias("document"))


def _completed(added: list[str], origin: Column) -> Column:
    """Adds these columns to a document that came whole, where it has no field of the name.

    Elasticsearch rejects JSON with the same name twice.
    """

    def missing(name: str, value: Column) -> Column:
        return F.when(~F.array_contains("taken", name), value).alias(name)

    columns = [missing(n, F.col(f"`{n}`")) for n in added]
    text = F.to_json(F.struct(*columns, missing("kafka", origin)))
    inside = F.substring(text, F.lit(2), F.length(text) - 2)
    return F.when(text == "{}", F.col("whole")).otherwise(_merged(F.col("whole"), inside))


def _merged(document: Column, inside: Column) -> Column:
    """Appends fields to a JSON object."""
    return F.concat(F.substring(document, F.lit(1), F.length(document) - 1), F.lit(","), inside, F.lit("}"))
