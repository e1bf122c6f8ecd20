"""The input of a job as a DataFrame: topics with their values as columns, or any source of Spark's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from klamm_base.errors import ConfigError
from klamm_spark.blame import reading
from klamm_spark.model import Source

CORRUPT: Final = "_corrupt"


Watching = Callable[[DataFrame, Column], DataFrame]
"""Gets Kafka's columns with the value as text, and the column of unreadable text; `schema_watch.observed`."""


def read_source(source: Source, spark: SparkSession, watching: Watching | None = None) -> DataFrame:
    """Returns the input as columns, see `value_columns`, with its watermark."""
    if source.format is None:
        frame = value_columns(topics(source, spark), source, watching)
    elif source.read == "batch":
        return read_batch(source, spark)
    else:
        if source.infers:
            spark.conf.set("spark.sql.streaming.schemaInference", "true")
        reader = spark.readStream.format(source.format).options(**source.options)
        frame = _with_schema(reader, source).load()
    if source.watermark_column is not None and source.watermark_delay is not None:
        frame = frame.withWatermark(source.watermark_column, source.watermark_delay)
    return frame


def read_batch(source: Source, spark: SparkSession) -> DataFrame:
    """Returns everything that the source has now."""
    assert source.format is not None
    found: DataFrame = _with_schema(spark.read.format(source.format).options(**source.options), source).load()
    return found


def _with_schema(reader: Any, source: Source) -> Any:
    """Gives the schema, if there is one, to a reader of batches or streams."""
    if source.schema is None or source.infers:
        return reader
    with reading("[source] schema", "source.schema"):
        return reader.schema(source.schema)


def topics(source: Source, spark: SparkSession) -> DataFrame:
    """Returns Kafka's columns, by our source or by Spark's own connector; both take the same options."""
    kind = "kafka" if source.connector == "spark" else "klamm"
    return spark.readStream.format(kind).options(**source.reader_options()).load()


def value_columns(frame: DataFrame, source: Source, watching: Watching | None = None) -> DataFrame:
    """Converts values by `value_format`: bytes as they are, text, or the fields of JSON documents as columns.

    With JSON, Kafka's columns (key as text, topic, partition, offset, timestamp, headers) stand behind the
    fields; a column whose name a field has is called `_name`. A value that is no JSON has null in every field
    and its text in `_corrupt`.
    """
    if source.value_format == "bytes":
        return frame
    text = frame.withColumns({"key": F.col("key").cast("string"), "value": F.col("value").cast("string")})
    if source.value_format == "string":
        return text
    if source.infers:
        raise ConfigError("the schema is to be inferred first", key="source.schema")
    parsed = F.from_json(
        "value", f"{source.schema}, {CORRUPT} STRING", {"columnNameOfCorruptRecord": CORRUPT}
    )
    whole = text.withColumn("_parsed", parsed)
    if watching is not None:
        whole = watching(whole, F.col(f"_parsed.{CORRUPT}"))
    with reading("[source] schema", "source.schema"):
        schema: Any = whole.schema["_parsed"].dataType
    taken = {f.name.lower() for f in schema.fields}
    kafkas = [
        F.col(c).alias(f"_{c}" if c.lower() in taken else c)
        for c in frame.columns
        if c not in {"value", "timestampType"}
    ]
    return whole.select("_parsed.*", *kafkas)
