"""Resets a job: reads its checkpoint, removes it, and sets where the next start reads from. Needs no Spark.

`START` beside the checkpoint holds the offsets of the next start, in the form of Spark's `startingOffsets`.
It is read only while there is no checkpoint, and it is written before anything is removed: an interrupted
reset is repeated, and a job that starts in between continues where it was. Files that outputs wrote stay.
Only the list of the batches that they hold is removed, because a file sink skips batches whose numbers it
knows.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from klamm_base.errors import ConfigError
from klamm_base.files import write_atomically
from klamm_spark.beside import PLAN, POSITION, STATUS, local_place
from klamm_spark.datasource.offsets import Partition, flat, nested
from klamm_spark.datasource.option_values import EARLIEST
from klamm_spark.lock import locked
from klamm_spark.model import STARTS, Job

START: Final = "klamm-start.json"
_FILE_SINK: Final = "_spark_metadata"


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """One output's checkpoint: the query's id, the last committed batch (None: none), and the next offsets to read."""

    output: str
    query: str
    batch: int | None
    next: Mapping[Partition, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The steps of a reset. `remove`: paths below the checkpoint, and lists of file sinks."""

    checkpoint: Path
    standings: tuple[Standing, ...]
    start: Mapping[Partition, int]
    remove: tuple[Path, ...]


def place(job: Job) -> Path:
    """Returns the checkpoint's directory. Raises ConfigError for a directory that is not on this machine."""
    found = local_place(job.checkpoint)
    if found is None:
        raise ConfigError(
            f"the checkpoint {job.checkpoint} is not on this machine: remove it with the tool of its store, and give "
            "starting_offsets in [source]",
            key="checkpoint",
        )
    return found


def standings(checkpoint: Path) -> tuple[Standing, ...]:
    """Returns the position in each output's checkpoint. Raises ConfigError for a checkpoint that cannot be read."""
    found = []
    for metadata in sorted(checkpoint.glob("[!.]*/metadata")):
        try:
            found.append(_standing(metadata))
        except (OSError, ValueError, KeyError, TypeError) as e:
            raise ConfigError(
                f"the checkpoint {metadata.parent} cannot be read: {e}", key="checkpoint"
            ) from None
    return tuple(found)


def _standing(metadata: Path) -> Standing:
    directory = metadata.parent
    query = str(json.loads(metadata.read_text())["id"])
    done = [int(p.name) for p in (directory / "commits").glob("*") if p.name.isdecimal()]
    if not done:
        return Standing(output=directory.name, query=query, batch=None, next={})
    lines = (directory / "offsets" / str(max(done))).read_text().splitlines()
    return Standing(output=directory.name, query=query, batch=max(done), next=_offsets(lines[2:]))


def _offsets(sources: list[str]) -> dict[Partition, int]:
    """Returns the offsets of a query's topics: our sources have `partitions`, Spark's Kafka source the offsets alone."""
    answer: dict[Partition, int] = {}
    for line in sources:
        found: Any = json.loads(line) if line.startswith("{") else None
        if not isinstance(found, dict):
            continue
        told = found.get("partitions", found)
        if isinstance(told, dict) and all(isinstance(v, dict) for v in told.values()):
            answer.update(flat(told))
    return answer


def current(found: tuple[Standing, ...]) -> dict[Partition, int]:
    """Returns what all outputs have read: where they differ, the offset of the one furthest behind."""
    answer: dict[Partition, int] = {}
    for standing in found:
        for partition, offset in standing.next.items():
            answer[partition] = min(offset, answer.get(partition, offset))
    return answer


def plan(job: Job, found: tuple[Standing, ...], start: Mapping[Partition, int]) -> Plan:
    """Collects everything below the checkpoint that Spark or Klamm wrote for this position, and lists of file sinks."""
    checkpoint = place(job)
    ours = [checkpoint / name for name in (PLAN, POSITION, STATUS)]
    lists = [
        directory / _FILE_SINK
        for o in job.outputs
        if (path := o.options.get("path")) and (directory := local_place(path)) is not None
    ]
    halves = sorted(checkpoint.glob(".*.removed.*"))  # of a reset that was killed
    remove = [*(checkpoint / s.output for s in found), *ours, *lists, *halves]
    return Plan(
        checkpoint=checkpoint, standings=found, start=start, remove=tuple(p for p in remove if p.exists())
    )


def carry_out(planned: Plan) -> None:
    """Writes the start, then removes the files. Raises ConfigError while a process runs the job."""
    with locked(planned.checkpoint, threading.Event(), wait_s=0):
        write_atomically(planned.checkpoint / START, json.dumps(nested(planned.start)).encode())
        for path in planned.remove:
            if path.is_dir():
                # Rename first: half a checkpoint must not look like one.
                going = path
                if not path.name.startswith("."):
                    going = path.rename(path.with_name(f".{path.name}.removed.{os.getpid()}"))
                shutil.rmtree(going)
            else:
                path.unlink(missing_ok=True)


def begun(job: Job) -> Job:
    """Returns the job with the start of its last reset, if there was one. Raises ConfigError when it cannot be read."""
    checkpoint = local_place(job.checkpoint)
    if checkpoint is None or job.source.format is not None:
        return job
    path = checkpoint / START
    try:
        text = path.read_text()
        start = nested(flat(json.loads(text)))
    except FileNotFoundError:
        return job
    except (OSError, ValueError, AttributeError, TypeError) as e:
        raise ConfigError(
            f"{path} cannot be used: {e}; remove it to begin at starting_offsets", key="checkpoint"
        ) from None
    return _starting(job, start)


def fitting(job: Job, there: Iterable[Partition]) -> Job:
    """Fits the start of a reset to the present partitions: Spark wants exactly these. New ones begin with their
    first record.
    """
    start = flat(json.loads(job.source.starting_offsets))
    return _starting(job, nested({p: start.get(p, EARLIEST) for p in there}))


def _starting(job: Job, start: Mapping[str, Mapping[str, int]]) -> Job:
    options = {k: v for k, v in job.source.options.items() if k.lower() not in STARTS}
    source = dataclasses.replace(job.source, starting_offsets=json.dumps(start), options=options)
    return dataclasses.replace(job, source=source)
