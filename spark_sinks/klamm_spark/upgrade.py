"""Checks, before a job starts, that each query is still the one that wrote its checkpoint. `compat` judges;
this asks Spark.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.sql import DataFrame, SparkSession

from klamm_base.errors import ConfigError
from klamm_spark.beside import PLAN, Files, files_of, read_json, write_json
from klamm_spark.compat import Change, Standing, judge
from klamm_spark.model import Job, Output
from klamm_spark.outputs import base_of
from klamm_spark.plan import describe, file_target, standing

log = logging.getLogger(__name__)

_UNREAD: Final = Change("careful", "the plan of the query could not be read: Spark alone will judge")


@dataclass(frozen=True, slots=True)
class Examined:
    """One output: its query's present form, the state of its checkpoint, and the changes."""

    output: Output
    plan: Mapping[str, Any] | None
    """None: Spark's plan could not be read."""
    standing: Standing
    changes: Sequence[Change]

    @property
    def breaks(self) -> list[str]:
        return [c.what for c in self.changes if c.level == "breaks"]

    def to_json(self) -> dict[str, Any]:
        return {
            "output": self.output.name,
            "batch": self.standing.done,
            "unfinished": self.standing.planned if self.standing.planned != self.standing.done else None,
            "changes": [c.to_json() for c in self.changes],
        }


def examine(job: Job, frames: Mapping[str, DataFrame], spark: SparkSession) -> list[Examined]:
    """Compares every output with the checkpoint. Writes nothing."""
    beside = files_of(base_of(job), spark)
    known = read_json(beside, PLAN).get("outputs", {})
    found = []
    for output in job.outputs:
        path = file_target(output)
        target = None if path is None else files_of(path, spark)
        stands = standing(output, beside, target)
        plan = _described(job, output, frames[output.name], spark)
        changes = [_UNREAD] if plan is None else judge(known.get(output.name), plan, stands)
        found.append(Examined(output, plan, stands, changes))
    return found


def _described(job: Job, output: Output, frame: DataFrame, spark: SparkSession) -> dict[str, Any] | None:
    """Describes a query; None for a plan of an unknown kind, which is no reason to refuse it."""
    try:
        return describe(job, output, frame, spark)
    except (Py4JError, AttributeError, TypeError) as e:
        log.warning("%s: the plan of the query could not be read: %s", output.name, str(e).partition("\n")[0])
        return None


def allow(job: Job, found: Sequence[Examined]) -> None:
    """Reports the changes. Raises ConfigError for a query that does not fit, unless the job accepts it."""
    for one in found:
        for change in one.changes:
            if change.level != "safe":
                log.warning("%s: %s", one.output.name, change.what)
    broken = [f"{one.output.name}: {what}" for one in found for what in one.breaks]
    if broken and not job.accept_changes:
        raise ConfigError(
            f"the checkpoint in {base_of(job)} was written by another version of this query: {'; '.join(broken)}. Change the query "
            "back, or set another checkpoint to begin anew (accept_changes starts it as it is)",
            key="checkpoint",
        )


def keep(beside: Files, found: Sequence[Examined]) -> None:
    """Stores the queries' present form for the next start; those of removed outputs stay. Raises OSError."""
    known = read_json(beside, PLAN)
    outputs = known.get("outputs", {})
    now = outputs | {one.output.name: dict(one.plan) for one in found if one.plan is not None}
    if now != outputs:
        write_json(beside, PLAN, {"version": 1, "outputs": now})
