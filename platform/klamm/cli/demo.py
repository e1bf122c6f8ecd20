"""`klamm demo`: demonstrations, each of which ends with a proof."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from klamm.cli.common import EXIT_FAILED, reported
from klamm.cli.context import Commands
from klamm.demo.logs.kind import Kind

app = Commands(help="Run a demonstration: nothing is lost.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Run a demonstration that proves: nothing was lost."""


@app.command("files")
def files(
    seconds: Annotated[float, typer.Option("--seconds", help="How long the log file grows.")] = 20.0,
    rate: Annotated[int, typer.Option("--rate", min=1, help="Lines a second.")] = 5000,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave files, topics and logs behind, say where.")
    ] = False,
) -> None:
    """A growing log file → connector → topic → connector → a second file."""
    from klamm.demo.__main__ import run

    leave(run(seconds=seconds, rate=rate, keep=keep))


@app.command("logs")
def logs(
    seconds: Annotated[float, typer.Option("--seconds", min=1, help="How long the services log.")] = 30.0,
    rate: Annotated[int, typer.Option("--rate", min=1, help="Lines a second, of all services.")] = 1000,
    elasticsearch: Annotated[
        str | None,
        typer.Option(
            "--elasticsearch", metavar="URL", envvar="ELASTICSEARCH_URL", help="A server that is there."
        ),
    ] = None,
    target: Annotated[
        Kind, typer.Option("--target", help="auto: Elasticsearch where one can be had, else SQLite.")
    ] = Kind.AUTO,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave files, topics and logs behind, say where.")
    ] = False,
    data_dir: Annotated[
        Path | None, typer.Option("--data-dir", help="Where to work; default: a new temporary directory.")
    ] = None,
    report: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the report there as JSON, too.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="What the services write follows from it.")] = 1915,
) -> None:
    """Services that log → agent → broker → Spark → Elasticsearch.

    Where there is no Elasticsearch: SQLite, through Connect.

    Shows rate, total and lag of every stage, and ends with a report that compares the source files with the target
    line by line, by id. Exit code 1 unless everything matches.
    """
    from klamm.demo.logs.main import Settings, run

    with reported():
        code = run(
            Settings(
                seconds=seconds, rate=rate, elasticsearch=elasticsearch, target=target, keep=keep, seed=seed,
                data_dir=data_dir, report=report,
            )
        )  # fmt: skip
    leave(code)


def leave(code: int) -> None:
    """End with this exit code."""
    if code:
        raise typer.Exit(code if code != 1 else EXIT_FAILED)
