"""From a `Job` to running streaming queries."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from klamm_base.errors import ConfigError
from klamm_spark.pipeline import INPUT_VIEW, OUR_FORMATS, Job, Output, Query, Source

CORRUPT: Final = "_corrupt"
_PLAIN_NAME: Final = re.compile(r"\w[\w-]*")


def start(job: Job, spark: SparkSession) -> list[StreamingQuery]:
    """Start one streaming query per output; each has its checkpoint below the job's. Raises ConfigError."""
    given = read_source(job.source, spark)
    frames = transform(job, given, spark)
    started: list[StreamingQuery] = []
    try:
        for output in job.outputs:
            query = _start_output(job, output, _frame(output, frames, spark))
            started.append(query)
    except BaseException:
        for query in started:
            query.stop()
        raise
    return started


def read_source(source: Source, spark: SparkSession) -> DataFrame:
    """The input as columns, see `value_columns`, with its watermark."""
    stream = spark.readStream.format("klamm").options(**source.reader_options()).load()
    frame = value_columns(stream, source)
    if source.watermark_column is not None and source.watermark_delay is not None:
        frame = frame.withWatermark(source.watermark_column, source.watermark_delay)
    return frame


def value_columns(frame: DataFrame, source: Source) -> DataFrame:
    """Values by `value_format`: bytes as they are, text, or the fields of JSON documents as columns.

    With JSON, Kafka's columns (key as text, topic, partition, offset, timestamp, headers) stand behind the fields; one
    whose name a field has is called `_name`. What is no JSON has null in every field and its text in `_corrupt`.
    """
    if source.value_format == "bytes":
        return frame
    text = frame.withColumns({"key": F.col("key").cast("string"), "value": F.col("value").cast("string")})
    if source.value_format == "string":
        return text
    parsed = F.from_json(
        "value", f"{source.schema}, {CORRUPT} STRING", {"columnNameOfCorruptRecord": CORRUPT}
    )
    whole = text.withColumn("_parsed", parsed)
    schema: Any = whole.schema["_parsed"].dataType
    taken = {f.name.lower() for f in schema.fields}
    kafkas = [
        F.col(c).alias(f"_{c}" if c.lower() in taken else c)
        for c in frame.columns
        if c not in {"value", "timestampType"}
    ]
    return whole.select("_parsed.*", *kafkas)


def transform(job: Job, given: DataFrame, spark: SparkSession) -> dict[str, DataFrame]:
    """Frames by the names under which outputs ask for them; "" is the one for outputs that do not ask."""
    given.createOrReplaceTempView(INPUT_VIEW)
    frames = {INPUT_VIEW: given}
    for name, text in job.query.views.items():
        frames[name] = spark.sql(text)
        frames[name].createOrReplaceTempView(name)
    if job.query.function is not None:
        found = _called(job.query, _function(job.query.function), given, spark)
        results = found if isinstance(found, dict) else {"": found}
        if not results or not all(isinstance(f, DataFrame) for f in results.values()):
            raise ConfigError(
                f"{job.query.function} returned {type(found).__name__}: return a DataFrame or a dict of them",
                key="query.function",
            )
        frames |= results
    elif job.query.sql is not None:
        frames[""] = spark.sql(job.query.sql)
    else:
        frames[""] = given
    return frames


def _called(query: Query, function: Callable[..., Any], given: DataFrame, spark: SparkSession) -> Any:
    """A function that takes a third argument gets the query's options."""
    if len(inspect.signature(function).parameters) > 2:
        return function(given, spark, query.options)
    if query.options:
        raise ConfigError(f"[query.options]: {query.function} takes no options", key="query.options")
    return function(given, spark)


def _function(name: str) -> Callable[..., Any]:
    module_name, _, attribute = name.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as e:
        if e.name is None or not module_name.startswith(e.name):
            raise
        raise ConfigError(
            f"[query] function = {name!r}: there is no module {module_name}", key="query.function"
        ) from None
    function: Callable[..., Any] | None = getattr(module, attribute, None)
    if not callable(function):
        raise ConfigError(
            f"[query] function = {name!r}: {module_name} has no function {attribute}", key="query.function"
        )
    return function


def _frame(output: Output, frames: dict[str, DataFrame], spark: SparkSession) -> DataFrame:
    """By its query (a name or SQL), else by its own name, else the query's one result."""
    if output.query is None:
        frame = frames.get(output.name, frames.get(""))
        if frame is None:
            raise _no_frame(output, output.name, frames)
        return frame
    if output.query in frames:
        return frames[output.query]
    if _PLAIN_NAME.fullmatch(output.query.strip()):
        raise _no_frame(output, output.query, frames)
    for name, frame in frames.items():
        if name:
            frame.createOrReplaceTempView(name)
    return spark.sql(output.query)


def _no_frame(output: Output, name: str, frames: dict[str, DataFrame]) -> ConfigError:
    known = ", ".join(sorted(n for n in frames if n))
    return ConfigError(
        f"[[outputs]] {output.name}: there is no {name} to write; there are {known}", key="outputs.query"
    )


def _start_output(job: Job, output: Output, frame: DataFrame) -> StreamingQuery:
    options = dict(output.options)
    if output.format == "klamm":
        options = _client_options(job.source) | options
    writer = frame.writeStream.queryName(f"{job.name}/{output.name}").outputMode(output.mode)
    writer = writer.option("checkpointLocation", checkpoint_of(job, output))
    if job.available_now:
        writer = writer.trigger(availableNow=True)
    elif output.trigger is not None:
        writer = writer.trigger(processingTime=output.trigger)
    if output.partition_by:
        writer = writer.partitionBy(*output.partition_by)
    if output.format in OUR_FORMATS and output.mode != "append":
        return _by_batches(writer, output, options).start()
    return writer.format(output.spark_format).options(**options).start()


def _by_batches(writer: DataStreamWriter, output: Output, options: dict[str, str]) -> DataStreamWriter:
    """Spark streams into Python data sources in append mode only; batch by batch the other modes reach them too."""

    def write(batch: DataFrame, number: int) -> None:
        batch.write.format(output.spark_format).options(**options).mode("append").save()

    return writer.foreachBatch(write)


def _client_options(source: Source) -> dict[str, str]:
    """Where the input comes from is where an output to topics goes, unless it says otherwise."""
    shared = {
        k: v
        for k, v in source.options.items()
        if k.lower().startswith(("kafka.sasl.", "kafka.ssl.", "kafka.security."))
    }
    return {"kafka.bootstrap.servers": source.bootstrap_servers} | shared


def checkpoint_of(job: Job, output: Output) -> str:
    """A path of the local file system is made absolute; others (s3a://…) are taken as they are."""
    base = job.checkpoint if "://" in job.checkpoint else str(Path(job.checkpoint).expanduser().resolve())
    return f"{base.rstrip('/')}/{output.name}"
