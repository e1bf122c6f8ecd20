"""Writes frames to their targets: streaming queries, or one batch at a time."""

from __future__ import annotations

from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from klamm_spark import figures
from klamm_spark.beside import local_place
from klamm_spark.checks import client_options
from klamm_spark.model import AVAILABLE_NOW, OUR_FORMATS, Job, Output

_QUERY_ID: Final = "sql.streaming.queryId"
_POOL: Final = "spark.scheduler.pool"
"""The pool that a query's tasks wait in. With one for each output, a long batch of one does not hold up another's."""


def start_output(job: Job, output: Output, frame: DataFrame) -> StreamingQuery:
    """Starts the streaming query of one output, in a scheduler pool of its own."""
    context = frame.sparkSession.sparkContext
    context.setLocalProperty(_POOL, output.name)
    try:
        return _start(job, output, frame)
    finally:
        context.setLocalProperty(_POOL, None)  # type: ignore[arg-type]  # none again; PySpark tells of texts only


def _start(job: Job, output: Output, frame: DataFrame) -> StreamingQuery:
    writer = frame.writeStream.queryName(f"{job.name}/{output.name}").outputMode(output.mode)
    writer = writer.option("checkpointLocation", checkpoint_of(job, output))
    if how := trigger(job, output):
        writer = writer.trigger(**how)
    if output.by_batches:

        def write(batch: DataFrame, number: int) -> None:
            write_batch(job, output, batch, number)

        return writer.foreachBatch(write).start()
    if output.partition_by:
        writer = writer.partitionBy(*output.partition_by)
    return writer.format(output.spark_format).options(**options(job, output)).start()


def trigger(job: Job, output: Output) -> dict[str, Any]:
    """Returns Spark's trigger arguments; none for its default, one batch after the other."""
    if job.available_now or output.trigger == AVAILABLE_NOW:
        return {"availableNow": True}
    if output.real_time is not None:
        return {"realTime": output.real_time}
    return {} if output.trigger is None else {"processingTime": output.trigger}


def write_batch(job: Job, output: Output, batch: DataFrame, number: int) -> None:
    """Writes one batch. In complete mode it replaces the contents (a table keeps its definition)."""
    settings = options(job, output)
    if figures.OPTION in settings:
        settings[figures.OPTION] += f"-{number}"
    if output.exactly_once:
        # Do not use a name of ours: with another checkpoint batches count from 0, and would be taken for written ones.
        query = batch.sparkSession.sparkContext.getLocalProperty(_QUERY_ID)
        settings = {"txnVersion": str(number)} | ({} if query is None else {"txnAppId": query}) | settings
    whole = output.mode == "complete" and output.format not in OUR_FORMATS  # ours write by id, or records
    if whole and output.format == "jdbc":
        settings = {"truncate": "true"} | settings
    writer = batch.write.format(output.spark_format).options(**settings)
    if output.partition_by:
        writer = writer.partitionBy(*output.partition_by)
    writer.mode("overwrite" if whole else "append").save()


def options(job: Job, output: Output) -> dict[str, str]:
    """Returns the writer's options. An output to topics goes where the input comes from, unless it says otherwise."""
    given = dict(output.options)
    if output.format in OUR_FORMATS:
        given[figures.OPTION] = figures.option(output.name)
    return client_options(job.source) | given if output.format in {"klamm", "kafka"} else given


def base_of(job: Job) -> str:
    """Returns the job's checkpoint. A local path is made absolute; others (s3a://…) stay as they are."""
    place = local_place(job.checkpoint)
    return job.checkpoint.rstrip("/") if place is None else str(place)


def on_this_machine(job: Job) -> bool:
    """Returns whether the checkpoint and all directories of outputs are local to this machine, and it works alone."""
    places = [job.checkpoint, *(path for o in job.outputs if (path := o.options.get("path")))]
    return job.master.startswith("local") and all(local_place(p) is not None for p in places)


def checkpoint_of(job: Job, output: Output) -> str:
    return f"{base_of(job)}/{output.name}"
