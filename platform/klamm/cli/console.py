"""`klamm console`: run the console."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from klamm.cli.common import OverrideOption, reported
from klamm.cli.context import Commands

app = Commands(help="Run the console.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Run the console."""


@app.command()
def start(
    config: Annotated[
        Path | None, typer.Argument(metavar="[console.properties]", help="Listeners, logins and clusters.")
    ] = None,
    override: OverrideOption = None,
) -> None:
    """Run the console in the foreground until SIGTERM or Ctrl-C.

    A web page over clusters: topics, records, groups, connectors. Without a file: loopback, port 8080, and the broker at
    127.0.0.1:9092. Values come from the file, then the environment (KLAMM_CONSOLE_READ_ONLY is console.read.only), then
    --override. Prints `ready console=http://HOST:PORT` once it serves.

    SIGHUP reads certificates and users again; those that cannot be used are said, and the old ones stay.
    """
    from klamm.console.server import run
    from klamm.console.settings import read_settings
    from klamm.web.process import main
    from klamm_base.properties import layered

    with reported(server=True):
        settings = read_settings(layered(config, override or []))
        raise typer.Exit(main(run(settings)))
