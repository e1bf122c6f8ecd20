"""The log job for whoever reads its topics by Kafka Connect: rows as records of JsonConverter, schema included.

    function = "klamm_spark.jobs.log_connect:logs"      # with the same [query.options]

Frames `documents` (`key`, `value`, `kind`) and `rates` (`key`, `value`). Columns of tables have no dots: `service.name` is
`service_name` here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from klamm_spark.jobs import logs as job
from klamm_spark.jobs.log_options import read_options
from klamm_spark.jobs.log_windows import rates

_TYPES: Final = {
    "string": "string", "integer": "int32", "long": "int64", "float": "float", "double": "double", "boolean": "boolean",
}  # fmt: skip
_INNER: Final = frozenset({"line", "line_id", "event_time", "kind", "rest", "whole", "taken", "recorded"})
_UNPARSED: Final = (
    "doc_id", "@timestamp", "message", "error.message", "log.file.path", "log.offset", "topic", "partition", "offset",
)  # fmt: skip


def logs(df: DataFrame, spark: SparkSession, options: Mapping[str, Any]) -> dict[str, DataFrame]:
    """Runs the log job. Raises ConfigError for a setting that cannot be used."""
    job.prepare(spark)
    wanted = read_options(options)
    rows = job.enriched(job.parsed(job.lines(df, wanted), wanted), spark, wanted)
    single = job.once(rows, wanted)
    event = value(single, [n for n in single.columns if n not in _INNER])
    other = value(single, _UNPARSED)
    counted = rates(rows, wanted)
    of_kind = F.when(F.col("kind") == "unparsed", other).otherwise(event).alias("value")
    return {
        "documents": single.select(F.col("doc_id").alias("key"), "kind", of_kind),
        "rates": counted.select(F.col("doc_id").alias("key"), value(counted, counted.columns).alias("value")),
    }


def value(df: DataFrame, names: Sequence[str]) -> Column:
    """Returns these columns of a row as `{"schema": …, "payload": …}`, with lists and objects as JSON text."""
    columns = []
    for name in names:
        column = F.col(f"`{name}`")
        plain = df.schema[name].dataType.typeName() in _TYPES
        columns.append((column if plain else F.to_json(column)).alias(name.replace(".", "_")))
    found = [
        {"field": f.name, "type": _TYPES[f.dataType.typeName()], "optional": True}
        for f in df.select(*columns).schema
    ]
    schema = json.dumps({"type": "struct", "optional": False, "fields": found}, separators=(",", ":"))
    payload = F.to_json(F.struct(*columns), {"ignoreNullFields": "false"})
    return F.concat(F.lit(f'{{"schema":{schema},"payload":'), payload, F.lit("}"))
