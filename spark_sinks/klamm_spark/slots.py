"""Checks real-time mode's need for slots: it keeps a task for each partition all the time.

A partition without a slot is never read, and Spark says nothing.
"""

from __future__ import annotations

import re
from typing import Any, Final

from klamm_base.errors import ConfigError
from klamm_spark.datasource.cluster import Cluster
from klamm_spark.datasource.offsets import Partition
from klamm_spark.datasource.options import read_options
from klamm_spark.model import Job

_LOCAL: Final = re.compile(r"local(?:\[\s*(\d+|\*)\s*(?:,.*)?\])?")
_TOPICS: Final = ("subscribe", "subscribepattern", "assign", "kafka.")


def slots(master: str, cores: int) -> int | None:
    """Returns how many tasks a master runs at a time on a machine of `cores`; None for a cluster, whose size may change."""
    found = _LOCAL.fullmatch(master.strip())
    if found is None:
        return None
    return cores if found[1] == "*" else int(found[1] or 1)


def check(job: Job, partitions: int, there: int) -> None:
    """Raises ConfigError if partitions would have to wait for ever."""
    real_time = sum(output.real_time is not None for output in job.outputs)
    others = len(job.outputs) > real_time
    needed = real_time * partitions + others
    if needed <= there:
        return
    raise ConfigError(
        f"real-time mode needs a task for each of {partitions} partitions all the time"
        f"{f', for each of {real_time} outputs' if real_time > 1 else ''}{', and one for the other outputs' if others else ''}: "
        f'master = "{job.master}" has {there}, set [job] master = "local[{needed}]"',
        key="job.master",
    )


def need_slots(job: Job, spark: Any) -> None:
    """Asks for the topics' partitions and compares. Raises ConfigError."""
    if job.source.format is not None or all(output.real_time is None for output in job.outputs):
        return
    cores = int(spark.sparkContext._jvm.java.lang.Runtime.getRuntime().availableProcessors())  # noqa: SLF001
    there = slots(job.master, cores)
    if there is None:
        return
    check(job, len(partitions(job)), there)


def partitions(job: Job) -> list[Partition]:
    """Returns the partitions of the job's topics, whichever connector reads them."""
    options = {k: v for k, v in job.source.reader_options().items() if k.lower().startswith(_TOPICS)}
    cluster = Cluster(read_options(options))
    return cluster.subscribed(cluster.topics())
