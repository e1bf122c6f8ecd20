"""Turns a `Job` into running streaming queries: input, query, and a frame for every output."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
from collections.abc import Callable
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery

from klamm_base.errors import ConfigError
from klamm_spark.blame import reading
from klamm_spark.model import INPUT_VIEW, Job, Output, Query, Source
from klamm_spark.outputs import start_output
from klamm_spark.reset import begun
from klamm_spark.sources import read_source

_PLAIN_NAME: Final = re.compile(r"\w[\w-]*")
_LOG_JOBS: Final = frozenset({"klamm_spark.jobs.logs:logs", "klamm_spark.jobs.log_connect:logs"})
_ASKS_INPUT: Final = re.compile(rf"\b{INPUT_VIEW}\b", re.IGNORECASE)


def frames(job: Job, spark: SparkSession, given: DataFrame | None = None) -> dict[str, DataFrame]:
    """Returns the frame of every output, by the output's name. Starts nothing. Raises ConfigError."""
    found = transform(job, read_source(input_of(begun(job)), spark) if given is None else given, spark)
    answer = {}
    for n, output in enumerate(job.outputs):
        try:
            answer[output.name] = as_records(output, _frame(output, found, spark))
        except ConfigError as e:
            key = (e.key or "").replace("outputs.", f"outputs[{n}].", 1)
            raise ConfigError(str(e), key=key) from e
    return answer


def input_of(job: Job) -> Source:
    """Returns the source, with the options that make less work for a log job. Raises ConfigError.

    They leave values out, so they are not for jobs that have other uses for the input.
    """
    source = job.source
    plain = source.format is None and source.connector == "klamm" and source.value_format == "bytes"
    texts = [*job.query.views.values(), *(o.query or o.name for o in job.outputs)]
    if job.query.function not in _LOG_JOBS or not plain or any(_ASKS_INPUT.search(text) for text in texts):
        return source
    from klamm_spark.jobs.logs import reader_options

    return dataclasses.replace(source, options={**reader_options(job.query.options), **source.options})


def as_records(output: Output, frame: DataFrame) -> DataFrame:
    """Makes keys and values of records from rows, where the output asks for it. Raises ConfigError."""
    if output.value is None:
        return frame
    known = {c.lower() for c in frame.columns}
    if absent := [c for c in output.key if c.lower() not in known]:
        raise ConfigError(
            f"[[outputs]] {output.name} key: there is no column {absent[0]}; there are {', '.join(frame.columns)}",
            key="outputs.key",
        )
    value = F.to_json(F.struct("*")).alias("value")
    if not output.key:
        return frame.select(value)
    one = len(output.key) == 1
    key = (
        F.col(f"`{output.key[0]}`").cast("string")
        if one
        else F.to_json(F.struct(*(f"`{c}`" for c in output.key)))
    )
    return frame.select(key.alias("key"), value)


def start(job: Job, of_output: dict[str, DataFrame]) -> list[StreamingQuery]:
    """Starts one streaming query per output, each with its checkpoint below the job's."""
    started: list[StreamingQuery] = []
    try:
        for output in job.outputs:
            query = start_output(job, output, of_output[output.name])
            started.append(query)
    except BaseException:
        for query in started:
            query.stop()
        raise
    return started


def transform(job: Job, given: DataFrame, spark: SparkSession) -> dict[str, DataFrame]:
    """Returns frames by the names that outputs use; "" is the frame for outputs that name none."""
    given.createOrReplaceTempView(INPUT_VIEW)
    frames = {INPUT_VIEW: given}
    for name, text in job.query.views.items():
        with reading(f"[query] views.{name}", f"query.views.{name}"):
            frames[name] = spark.sql(text)
        frames[name].createOrReplaceTempView(name)
    if job.query.function is not None:
        with reading(f"[query] function = {job.query.function!r}", "query.function"):
            found = _called(job.query, _function(job.query.function), given, spark)
        results = found if isinstance(found, dict) else {"": found}
        if not results or not all(isinstance(f, DataFrame) for f in results.values()):
            raise ConfigError(
                f"{job.query.function} returned {type(found).__name__}: return a DataFrame or a dict of them",
                key="query.function",
            )
        frames |= results
    elif job.query.sql is not None:
        with reading("[query] sql", "query.sql"):
            frames[""] = spark.sql(job.query.sql)
    else:
        frames[""] = given
    return frames


def _called(query: Query, function: Callable[..., Any], given: DataFrame, spark: SparkSession) -> Any:
    """Calls the function, with the query's options if it takes a third argument."""
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
    """Returns an output's frame: by its query (a name or SQL), else by its own name, else the query's one result."""
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
    with reading(f"[[outputs]] {output.name} query", "outputs.query"):
        return spark.sql(output.query)


def _no_frame(output: Output, name: str, frames: dict[str, DataFrame]) -> ConfigError:
    known = ", ".join(sorted(n for n in frames if n))
    return ConfigError(
        f"[[outputs]] {output.name}: there is no {name} to write; there are {known}", key="outputs.query"
    )
