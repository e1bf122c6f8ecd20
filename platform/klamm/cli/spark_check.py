"""`klamm spark check`, `status` and `schema`: compare a job with its checkpoint, and show its state and the arriving
data.
"""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from klamm.cli.common import EXIT_FAILED, EXIT_USAGE, fail, reported
from klamm.cli.output import Format, FormatOption, print_rows
from klamm.cli.spark_log import without_traces

if TYPE_CHECKING:
    from klamm_spark.beside import LocalFiles
    from klamm_spark.model import Job

PipelineArgument = Annotated[
    Path, typer.Argument(help="The job, a TOML file: docs/spark.md.", metavar="PIPELINE.toml")
]
CheckpointOption = Annotated[
    str | None, typer.Option("--checkpoint", help="Where the job keeps its place, instead of the file's.")
]
_CHECK_S = 300.0


def check(
    pipeline: PipelineArgument,
    checkpoint: CheckpointOption = None,
    verbose: Annotated[bool, typer.Option("--verbose", help="Show Spark's log with stack traces.")] = False,
    output: FormatOption = Format.TABLE,
) -> None:
    """Say what has changed in a job since its last run.

    Compares the job with its checkpoint, and says what each change means. Starts nothing. Exit code 1 when a change
    does not fit: the job would refuse to start.
    """
    from klamm_spark import java

    with reported():
        job = _job(pipeline, checkpoint, contents=True)
        java.need_packages()
        java.need_java()
        found = _ask(job, pipeline, verbose=verbose)
        rows = [
            {"output": one["output"], "batch": one["batch"], "level": level, "change": what}
            for one in found
            for level, what in [(c["level"], c["what"]) for c in one["changes"]]
            or [("safe", "new" if one["batch"] is None else "nothing has changed")]
        ]
        if job.source.read == "batch":
            typer.echo("the job reads batches: it has no state that a change could break", err=True)
        print_rows(rows, ("output", "batch", "level", "change"), output)
    if any(r["level"] == "breaks" for r in rows):
        raise typer.Exit(EXIT_FAILED)


def status(
    pipeline: PipelineArgument,
    checkpoint: CheckpointOption = None,
    watch: Annotated[bool, typer.Option("--watch", help="Every two seconds, until Ctrl-C.")] = False,
    output: FormatOption = Format.TABLE,
) -> None:
    """Show how a job is.

    Shows whether it runs, its queries with lag, rates, state and watermark, and how the arriving data has changed.
    Reads files beside the job's checkpoint, on the machine that has it.
    """
    from klamm_spark.beside import STATUS, read_json

    with reported():
        files = _beside(
            _job(pipeline, checkpoint), "ask the job itself ([metrics] port, or the connector's status)"
        )
        while True:
            found = read_json(files, STATUS)
            if not found:
                fail(f"there is no status in {files.directory}: the job was not started here yet")
            _print_status(_with_life(found, files), output)
            if not watch:
                return
            time.sleep(2)


def schema(
    pipeline: PipelineArgument,
    checkpoint: CheckpointOption = None,
    adopt: Annotated[
        bool, typer.Option("--adopt", help="Take what is new into the schema, for the next start of the job.")
    ] = False,
    output: FormatOption = Format.TABLE,
) -> None:
    """Show the schema that a job inferred from its topics.

    Shows the arriving fields that it does not name, too.
    """
    from klamm_spark.beside import SCHEMA, read_json, write_json
    from klamm_spark.schema_kept import adopted, rows

    with reported():
        files = _beside(
            _job(pipeline, checkpoint),
            f"its schema is in {SCHEMA} there; to change it, write it into [source] schema",
        )
        kept = read_json(files, SCHEMA)
        if not kept:
            fail(f"no schema is kept in {files.directory}: the job has not read JSON values yet")
        if adopt:
            if not kept.get("inferred"):
                fail(
                    'the schema stands in the job\'s file: change it there (or set schema = "infer")',
                    EXIT_USAGE,
                )
            kept = adopted(kept)
            write_json(files, SCHEMA, kept)
        print_rows(rows(kept), ("topic", "field", "type", "drift", "count"), output)


def _job(pipeline: Path, checkpoint: str | None, *, contents: bool = False) -> Job:
    from klamm_spark.pipeline import load

    job = load(pipeline, contents=contents)
    return job if checkpoint is None else dataclasses.replace(job, checkpoint=checkpoint)


def _beside(job: Job, otherwise: str) -> LocalFiles:
    """Return the files beside the checkpoint.

    Fails with `otherwise` as advice where the checkpoint is no directory of this machine.
    """
    from klamm_spark.beside import LocalFiles, local_place

    place = local_place(job.checkpoint)
    if place is None:
        fail(f"the checkpoint {job.checkpoint} is not on this machine: {otherwise}")
    assert place is not None
    return LocalFiles(place)


def _ask(job: Job, pipeline: Path, *, verbose: bool) -> list[dict[str, Any]]:
    """Return the driver's answer. Raises ConfigError or KlammError."""
    from klamm_base.errors import ConfigError, KlammError
    from klamm_spark.pipeline import place_in
    from klamm_spark.process import DriverProcess

    driver = DriverProcess(job, order="check", on_line=None if verbose else without_traces())
    deadline = time.monotonic() + _CHECK_S
    try:
        while time.monotonic() < deadline:
            event = driver.next_event(0.5)
            if event is None:
                continue
            match event["event"]:
                case "changes":
                    found: list[dict[str, Any]] = event["outputs"]
                    return found
                case "failed":
                    if event["error"] != "ConfigError":
                        raise KlammError(event["message"])
                    raise ConfigError(event["message"], source=place_in(pipeline, event.get("key")))
                case "ended":
                    raise KlammError(f"the driver process ended unexpectedly (exit code {event['code']})")
        raise KlammError(f"Spark did not answer within {_CHECK_S:.0f} s")
    finally:
        driver.kill()


def _with_life(found: dict[str, Any], files: LocalFiles) -> dict[str, Any]:
    """Return a status that is right about a killed process, too: the process could not say so, but its lock is free."""
    from klamm_spark.lock import in_use

    if found["state"] in {"STARTING", "RUNNING"} and not in_use(files.directory):
        return found | {
            "state": "KILLED",
            "waiting": None,
            "error": "the process ended without a word; start the job again",
        }
    return found


def _print_status(found: dict[str, Any], output: Format) -> None:
    if output not in {Format.TABLE, Format.WIDE}:
        print_rows([found], tuple(found), output)
        return
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(found["since"]))
    typer.echo(
        f"{found['job']} {found['state']} since {since}"
        + (f", waiting for {found['waiting']}" if found.get("waiting") else "")
        + (f": {found['error']}" if found["error"] else "")
    )
    rows = [
        {
            "query": name,
            "batch": q.get("batch"),
            "rows": q["rows"],
            "rows/s": q.get("rows_per_s"),
            "lag": sum(q["lag"].values()) if q["lag"] else None,
            "ms": q.get("duration_ms"),
            "state": q.get("state_rows"),
            "late": q["late"],
            "watermark": q.get("watermark"),
            "last": q.get("at"),
        }
        for name, q in found["queries"].items()
    ]
    print_rows(
        rows, ("query", "batch", "rows", "rows/s", "lag", "ms", "state", "late", "watermark", "last"), output
    )
    from klamm_spark.schema_drift import sentence

    for topic, drift in found["drift"].get("topics", {}).items():
        for entry in drift["found"]:
            typer.echo(f"{sentence(topic, entry)} (seen {entry['count']} times in samples)")
