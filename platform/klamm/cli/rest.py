"""`klamm rest`: run a REST proxy."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from klamm.cli.common import OverrideOption, reported
from klamm.cli.context import Commands

app = Commands(help="Run a REST proxy.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Run a REST proxy."""


@app.command()
def start(
    config: Annotated[
        Path | None,
        typer.Argument(
            metavar="[rest.properties]", help="Confluent's kafka-rest.properties.", show_default=False
        ),
    ] = None,
    override: OverrideOption = None,
) -> None:
    """Run a REST proxy in the foreground.

    Ends with SIGTERM or Ctrl-C. It has v2 and v3 of the API of Confluent's REST proxy, and stands before any cluster. Avro, JSON Schema
    and Protobuf need schema.registry.url and the extra `schemas`. Prints `ready rest-proxy=http://HOST:PORT` once it serves.

    SIGHUP reads certificates and users again; those that cannot be used are said, and the old ones stay.
    """
    from klamm.restproxy.config import ProxyConfig
    from klamm.restproxy.server import main
    from klamm_base.properties import layered

    with reported(server=True):
        raise typer.Exit(main(ProxyConfig.from_properties(layered(config, override or []))))
