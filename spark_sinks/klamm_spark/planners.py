"""Ends the Python processes that Spark needs to plan queries and keeps afterwards.

Spark has a daemon for each step of planning (to look formats up, to make a source, to ask for its reader), and an idle process of
it. These processes import what a task imports, and together hold some 240 MB. A query needs them before its first batch only.
Spark's daemon makes a new process when one is needed and has gone.
"""

from __future__ import annotations

import logging
import time
from typing import Any, Final

from pyspark.sql import SparkSession

from klamm_spark.model import Job

log = logging.getLogger(__name__)

LOOK_UP: Final = "lookup_data_sources"
_CREATE: Final = "create_data_source"
_READER: Final = "plan_data_source_read"
_GONE_S: Final = 2.0


def before_batches(job: Job) -> list[str]:
    """Returns the steps that no query of the job needs again after its first batch."""
    if any(output.by_batches for output in job.outputs):  # each batch of these makes its target anew
        return [_READER]
    return [_READER, _CREATE]


def end_idle(spark: SparkSession, *steps: str) -> int:
    """Ends the processes of these steps, not their daemons. Returns how many. Call it while no query needs them.

    Spark discards a process that has ended, but tells its daemon so: without a daemon, planning would fail.
    """
    ends = tuple(f" pyspark.sql.worker.{step}" for step in steps)
    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001
    idle = [
        process
        for daemon in jvm.java.lang.ProcessHandle.current().children().toArray()
        if str(daemon.info().commandLine().orElse("")).rstrip().endswith(ends)
        for process in daemon.children().toArray()
    ]
    for process in idle:
        process.destroy()
    until = time.monotonic() + _GONE_S  # Spark would use one that is about to end
    while any(process.isAlive() for process in idle) and time.monotonic() < until:
        time.sleep(0.02)
    log.debug("ended %d idle processes: %s", len(idle), ", ".join(steps))
    return len(idle)
