"""`klamm connect`: run a Connect worker."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from klamm.cli.common import OverrideOption, reported
from klamm.cli.context import Commands
from klamm_base.errors import ConfigError

app = Commands(help="Run a Connect worker.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Run a Connect worker."""


@app.command()
def standalone(
    config: Annotated[
        Path, typer.Argument(metavar="worker.properties", help="Kafka Connect's worker properties.")
    ],
    connectors: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[connector.properties]…",
            help="A file per connector: properties, or JSON as POST /connectors takes it.",
            show_default=False,
        ),
    ] = None,
    override: OverrideOption = None,
) -> None:
    """Run a standalone worker in the foreground.

    Ends with SIGTERM or Ctrl-C. Runs the connectors of the files, alone; source offsets are kept in
    offset.storage.file.filename. Prints `ready rest=http://HOST:PORT` once it serves.
    """
    from klamm.connect.standalone import main, read_connector, worker_config
    from klamm_base.properties import layered

    with reported(server=True):
        props = layered(config, override or [])
        files = [read_connector(path) for path in connectors or ()]
        raise typer.Exit(main(worker_config(props, props.source), files))


@app.command()
def distributed(
    config: Annotated[
        Path, typer.Argument(metavar="worker.properties", help="Kafka Connect's worker properties.")
    ],
    override: OverrideOption = None,
) -> None:
    """Run a distributed worker in the foreground.

    Ends with SIGTERM or Ctrl-C. Connectors are made over its REST API and kept in the cluster's config, offset and
    status topics. Prints `ready rest=http://HOST:PORT` once it serves.
    """
    from klamm.connect.config import WorkerConfig
    from klamm.connect.worker import main
    from klamm_base.properties import layered

    with reported(server=True):
        props = layered(config, override or [])
        raise typer.Exit(main(WorkerConfig.from_properties(props, props.source)))


@app.command()
def password() -> None:
    """Make the `password` of a user in `rest.auth.file`.

    Asks for the password, or reads it as a line where standard input is no terminal.
    """
    from klamm.web.passwords import hash_password

    with reported():
        given = (
            typer.prompt("Password", hide_input=True, confirmation_prompt=True)
            if sys.stdin.isatty()
            else sys.stdin.readline().rstrip("\n")
        )
        if not given:
            raise ConfigError("the password is empty")
        typer.echo(f'password = "{hash_password(given)}"')


@app.command()
def token() -> None:
    """Make a token for REST clients.

    Prints the token, and its `sha256` for `rest.auth.file`.
    """
    from klamm.web.passwords import new_token

    with reported():
        made, digest = new_token()
        typer.echo(f"token (shown this once): {made}")
        typer.echo(f'sha256 = "{digest}"')
