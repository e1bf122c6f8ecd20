"""Access and application logs from topics: parsed, enriched, and counted as error rates per service and window.

Input: one line a record, as the log agent writes it, bare or in its JSON envelope. Output:

- `events`: a row for every line that was understood, columns in `EVENT_COLUMNS`;
- `unparsed`: every other line as it came, with where it came from and why it is here. None is dropped;
- `documents`: both of these in one frame, so that one query reads the topics: `doc_id`, `kind` (events or unparsed), and
  the row as JSON text in `document`;
- `rates`: lines, errors and error rate per service and window.

`doc_id` is a row's identity in the target, so that what is written twice is one document. With `identity = record` it
is topic-partition-offset: a batch that Spark writes again changes nothing. With `identity = line` (the default) it is
the id that the line itself has, or topic-partition-offset for one without: then neither does a line that the *agent* sent
again after a crash. A rate's is service and window.

Settings are Spark settings named `spark.klamm.logs.*`, see `Options`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - what all of Spark's documentation calls it

from klamm_base.errors import ConfigError

ACCESS: Final = (
    r'^(\S+) \S+ (\S+) \[([^\]]+)\] "(\S+) (\S+) ([^"]+)" (\d{3}) (\d+|-) "([^"]*)" "([^"]*)" '
    r"(\d+\.\d+) (\S+) rid=([0-9a-f]{32})$"
)
"""Nginx's combined format, followed by $request_time, $host and rid=$request_id."""
_ACCESS_FIELDS: Final = (
    "client_ip", "user", "time", "method", "path", "protocol", "status", "bytes", "referrer", "user_agent",
    "seconds", "service", "id",
)  # fmt: skip
_SEPARATOR: Final = "\x01"
APPLICATION: Final = (
    "`@timestamp` string, id string, level string, service string, trace_id string, duration_ms double, "
    "message string, _corrupt string"
)
ENVELOPE: Final = (
    "message string, log struct<file: struct<path: string>, offset: bigint>, host struct<name: string>"
)
LINE_ID: Final = r'(?:rid=|"id":")([0-9a-f]{32})'
AGENT_FAMILIES: Final = (
    ("(?i)bot|crawler|spider", "Bot"),
    (r"Edg/", "Edge"),
    (r"OPR/", "Opera"),
    (r"Firefox/", "Firefox"),
    (r"Chrome/", "Chrome"),
    (r"Version/.*Safari/", "Safari"),
    (r"^curl/", "curl"),
    (r"^python-", "Python"),
)
"""The first that is found names the browser: Edge says that it is Chrome, and Chrome that it is Safari."""
EVENT_COLUMNS: Final = (
    "doc_id", "@timestamp", "event_id", "dataset", "service", "owner", "tier", "level", "message", "trace_id",
    "duration_ms", "method", "path", "status", "status_class", "bytes", "client_ip", "user_agent",
    "user_agent_family", "is_error", "file", "file_offset", "topic", "partition", "offset",
)  # fmt: skip
_ISO: Final = "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """`services`: the lookup table, service → {"owner", "tier"} (as a setting: JSON). `identity`: line or record, see
    above. `distinct`: whether rates count a line that came twice once; it costs eight bytes of state per line of the
    windows that are open. Lines later than `watermark` are not counted, and the query's progress says how many.
    """

    window: str = "10 seconds"
    watermark: str = "10 minutes"
    services: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    envelope: bool = True
    identity: str = "line"
    distinct: bool = True


def lines(df: DataFrame, options: Options) -> DataFrame:
    """Records as lines: `line`, `line_id`, `doc_id`, and where they come from."""
    text = F.col("value").cast("string")
    origin = ("topic", "partition", "offset", "timestamp")
    if options.envelope:
        # A record without an envelope (another producer's, or a broken one) is a line as it is
        inner = F.from_json(text, ENVELOPE)
        df = df.select(*origin, text.alias("text"), inner.alias("envelope")).select(
            *origin,
            F.coalesce("envelope.message", "text").alias("line"),
            F.col("envelope.log.file.path").alias("file"),
            F.col("envelope.log.offset").alias("file_offset"),
        )
    else:
        df = df.select(
            *origin,
            text.alias("line"),
            F.lit(None).cast("string").alias("file"),
            F.lit(None).cast("bigint").alias("file_offset"),
        )
    record = F.concat_ws("-", "topic", "partition", "offset")
    own = F.regexp_extract("line", LINE_ID, 1)
    df = df.withColumn("line_id", F.when(own != "", own).otherwise(record))
    return df.withColumn("doc_id", F.col("line_id") if options.identity == "line" else record)


def parsed(df: DataFrame, options: Options) -> DataFrame:
    """Lines with what is in them: `ts` is null where a line is neither kind of log."""
    # One match for all groups: regexp_extract would match anew for each of them
    replacement = _SEPARATOR.join(f"${n + 1}" for n in range(len(_ACCESS_FIELDS)))
    groups = F.split(F.regexp_replace("line", ACCESS, replacement), _SEPARATOR)
    document = F.from_json("line", APPLICATION, {"columnNameOfCorruptRecord": "_corrupt"})
    df = df.withColumn("is_app", F.col("line").startswith("{"))
    both = F.struct(F.when(~F.col("is_app"), groups).alias("a"), F.when(F.col("is_app"), document).alias("j"))
    # Spark would move every filter on what follows to before this, and with it all of the parsing, once for each
    # mention of a column. It moves none through a generator.
    df = df.withColumn("both", F.explode(F.array(both))).select("*", "both.*").drop("both")
    df = df.withColumns(
        {
            "a": F.when(F.size("a") == len(_ACCESS_FIELDS), F.col("a")),
            "j": F.when(F.col("j._corrupt").isNull(), F.col("j")),
        }
    )
    time = F.coalesce(
        F.try_to_timestamp(_access("time"), F.lit("dd/MMM/yyyy:HH:mm:ss Z")),
        F.col("j.`@timestamp`").try_cast("timestamp"),
    )
    service = F.coalesce(_access("service"), F.col("j.service"))
    level = F.col("j.level")
    understood = time.isNotNull() & service.isNotNull() & (~F.col("is_app") | level.isNotNull())
    df = df.withColumn("ts", F.when(understood, time)).withColumn("service", service)
    return _enriched(_columns(df), options)


def _access(name: str) -> Column:
    return F.col("a")[_ACCESS_FIELDS.index(name)]


def _columns(df: DataFrame) -> DataFrame:
    status = _access("status").try_cast("int")
    return df.withColumns(
        {
            "@timestamp": F.date_format("ts", _ISO),
            "event_id": F.col("line_id"),
            "dataset": F.when(F.col("is_app"), "app").otherwise("access"),
            "status": status,
            "status_class": F.concat((status / 100).cast("int").cast("string"), F.lit("xx")),
            "level": F.coalesce(
                "j.level", F.when(status >= 500, "ERROR").when(status >= 400, "WARN").otherwise("INFO")
            ),
            "message": F.coalesce(
                "j.message", F.concat_ws(" ", _access("method"), _access("path"), _access("status"))
            ),
            "trace_id": F.coalesce("j.trace_id", _access("id")),
            "duration_ms": F.coalesce("j.duration_ms", _access("seconds").try_cast("double") * 1000),
            "method": _access("method"),
            "path": _access("path"),
            "bytes": _access("bytes").try_cast("bigint"),
            "client_ip": _access("client_ip"),
            "user_agent": _access("user_agent"),
            "user_agent_family": _family(_access("user_agent")),
            "is_error": F.coalesce(status >= 500, F.col("j.level").isin("ERROR", "FATAL")),
        }
    )


def _family(agent: Column) -> Column:
    family = F.when(agent.isNull(), None)
    for pattern, name in AGENT_FAMILIES:
        family = family.when(agent.rlike(pattern), name)
    return family.otherwise("Other")


def _enriched(df: DataFrame, options: Options) -> DataFrame:
    """With the service's owner and tier; `unknown` for a service that is not in the table."""
    found: dict[str, Column] = {}
    for name in ("owner", "tier"):
        pairs = [F.lit(v) for s, row in options.services.items() if name in row for v in (s, row[name])]
        value = F.create_map(*pairs)[F.col("service")] if pairs else F.lit(None).cast("string")
        found[name] = F.coalesce(value, F.lit("unknown"))
    return df.withColumns(found)


def events(df: DataFrame) -> DataFrame:
    """Of parsed lines, those that were understood."""
    return df.where(F.col("ts").isNotNull()).select(*EVENT_COLUMNS)


def unparsed(df: DataFrame) -> DataFrame:
    """Of parsed lines, the others, whole."""
    return df.where(F.col("ts").isNull()).select(*_unparsed_columns())


def _unparsed_columns() -> list[Column]:
    reason = F.when(F.col("is_app"), "not a JSON document with @timestamp, level and service").otherwise(
        "not an access log line in the format expected"
    )
    return [
        F.col("doc_id"),
        F.date_format("timestamp", _ISO).alias("@timestamp"),
        F.col("line").alias("message"),
        reason.alias("reason"),
        *map(F.col, ("file", "file_offset", "topic", "partition", "offset")),
    ]


def documents(df: DataFrame) -> DataFrame:
    """Of parsed lines, all: which kind of document each is, and the document."""
    event, other = F.struct(*map(_column, EVENT_COLUMNS)), F.struct(*_unparsed_columns())
    return df.select("doc_id", *_by_kind(F.to_json(event), F.to_json(other), "document"))


def _by_kind(event: Column, other: Column, name: str) -> list[Column]:
    understood = F.col("ts").isNotNull()
    kind = F.when(understood, "events").otherwise("unparsed").alias("kind")
    return [kind, F.when(understood, event).otherwise(other).alias(name)]


def _column(name: str) -> Column:
    return F.col(f"`{name}`")


def rates(df: DataFrame, options: Options) -> DataFrame:
    """Of parsed lines, how many were errors, per service and window. For update mode: a window's row is written again
    as long as lines for it arrive, under the same id.
    """
    key = F.xxhash64("line_id") if options.distinct else F.lit(1)
    gather = (lambda c: F.size(F.collect_set(c))) if options.distinct else F.count
    counted = (
        df.where(F.col("ts").isNotNull())
        .withWatermark("ts", options.watermark)
        .groupBy(F.window("ts", options.window), "service", "owner", "tier")
        .agg(gather(key).alias("lines"), gather(F.when(F.col("is_error"), key)).alias("errors"))
    )
    start = F.date_format("window.start", _ISO)
    return counted.select(
        F.concat_ws("-", "service", start).alias("doc_id"),
        start.alias("@timestamp"),
        "service",
        "owner",
        "tier",
        start.alias("window_start"),
        F.date_format("window.end", _ISO).alias("window_end"),
        "lines",
        "errors",
        (F.col("errors") / F.col("lines")).alias("error_rate"),
    )


def frames(df: DataFrame, options: Options) -> dict[str, DataFrame]:
    """All outputs of one input."""
    understood = parsed(lines(df, options), options)
    return {
        "events": events(understood),
        "unparsed": unparsed(understood),
        "documents": documents(understood),
        "rates": rates(understood, options),
    }


def logs(df: DataFrame, spark: SparkSession) -> dict[str, DataFrame]:
    """The job: `function = "klamm_spark.jobs.logs:logs"`. Raises ConfigError for a setting that cannot be used."""
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    return frames(df, options_from(_settings(spark)))


def logs_for_connect(df: DataFrame, spark: SparkSession) -> dict[str, DataFrame]:
    """`documents` and `rates` as records for Kafka Connect's JsonConverter, schema included: columns `key`, `value`,
    and `kind` where there are two.
    """
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    options = options_from(_settings(spark))
    understood = parsed(lines(df, options), options)
    event = connect_value(understood, [_column(c) for c in EVENT_COLUMNS])
    other = connect_value(understood, _unparsed_columns())
    counted = rates(understood, options)
    value = connect_value(counted, [_column(c) for c in counted.columns])
    return {
        "documents": understood.select(F.col("doc_id").alias("key"), *_by_kind(event, other, "value")),
        "rates": counted.select(F.col("doc_id").alias("key"), value.alias("value")),
    }


def connect_value(df: DataFrame, columns: Sequence[Column]) -> Column:
    """These columns of a row as `{"schema": …, "payload": …}`."""
    found = [
        {"field": f.name, "type": _CONNECT_TYPES[f.dataType.typeName()], "optional": True}
        for f in df.select(*columns).schema
    ]
    schema = json.dumps({"type": "struct", "optional": False, "fields": found}, separators=(",", ":"))
    payload = F.to_json(F.struct(*columns), {"ignoreNullFields": "false"})
    return F.concat(F.lit(f'{{"schema":{schema},"payload":'), payload, F.lit("}"))


_CONNECT_TYPES: Final = {
    "string": "string", "integer": "int32", "long": "int64", "double": "double", "boolean": "boolean",
}  # fmt: skip
_PREFIX: Final = "spark.klamm.logs."


def _settings(spark: SparkSession) -> dict[str, str]:
    names = {f.name: spark.conf.get(_PREFIX + f.name, None) for f in fields(Options)}
    return {name: value for name, value in names.items() if value is not None}


def options_from(settings: Mapping[str, str]) -> Options:
    """Options from texts. Raises ConfigError."""
    found: dict[str, Any] = dict(settings)
    for name in ("envelope", "distinct"):
        if name in found:
            found[name] = _choice(name, found[name], ("true", "false")) == "true"
    if "identity" in found:
        _choice("identity", found["identity"], ("line", "record"))
    if "services" in found:
        found["services"] = _services(found["services"])
    return Options(**found)


def _choice(name: str, value: str, allowed: tuple[str, ...]) -> str:
    if value not in allowed:
        raise ConfigError(f"{_PREFIX}{name} = {value!r}: use {' or '.join(allowed)}", key=_PREFIX + name)
    return value


def _services(text: str) -> dict[str, dict[str, str]]:
    try:
        found = json.loads(text)
    except ValueError as e:
        raise ConfigError(f"{_PREFIX}services is no JSON: {e}", key=f"{_PREFIX}services") from None
    if not isinstance(found, dict) or not all(isinstance(row, dict) for row in found.values()):
        raise ConfigError(
            f'{_PREFIX}services: write {{"SERVICE": {{"owner": "…", "tier": "…"}}}}', key=f"{_PREFIX}services"
        )
    return found
