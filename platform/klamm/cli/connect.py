"""`klamm connect`: run a Connect worker."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from klamm.cli.common import OverrideOption, reported

app = typer.Typer(help="Run a Connect worker.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Run a Connect worker."""


@app.command()
def distributed(
    config: Annotated[
        Path, typer.Argument(metavar="worker.properties", help="Kafka Connect's worker properties.")
    ],
    override: OverrideOption = None,
) -> None:
    """Run a distributed worker in the foreground until SIGTERM or Ctrl-C.

    Connectors are made over its REST API and kept in the cluster's config, offset and status topics. Prints
    `ready rest=http://HOST:PORT` once it serves.
    """
    from klamm.connect.config import WorkerConfig
    from klamm.connect.worker import main
    from klamm_base.properties import layered

    with reported(server=True):
        props = layered(config, override or [])
        raise typer.Exit(main(WorkerConfig.from_properties(props, props.source)))
