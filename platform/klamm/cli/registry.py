"""`klamm registry`: run a schema registry."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from klamm.cli.common import OverrideOption, reported
from klamm.cli.context import Commands

app = Commands(help="Run a schema registry.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Run a schema registry."""


@app.command()
def start(
    config: Annotated[
        Path | None,
        typer.Argument(
            metavar="[registry.properties]",
            help="Confluent's schema-registry.properties.",
            show_default=False,
        ),
    ] = None,
    override: OverrideOption = None,
) -> None:
    """Run a schema registry in the foreground.

    Ends with SIGTERM or Ctrl-C. It has the REST API of Confluent's registry, and keeps its schemas in the topic _schemas of the
    cluster. Several share a topic: one writes, the others forward. Needs the extra `schemas`. Prints `ready
    registry=http://HOST:PORT` once it serves.

    SIGHUP reads certificates and users again; those that cannot be used are said, and the old ones stay.
    """
    from importlib.util import find_spec

    from klamm.registry.config import RegistryConfig
    from klamm.registry.server import main
    from klamm_base.errors import KlammError
    from klamm_base.extras import how_to_install
    from klamm_base.properties import layered

    with reported(server=True):
        if find_spec("jsonschema") is None or find_spec("google") is None:
            raise KlammError(f"the registry reads schemas with other libraries: {how_to_install('schemas')}")
        raise typer.Exit(main(RegistryConfig.from_properties(layered(config, override or []))))
