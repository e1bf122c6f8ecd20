"""The argument that names a connector, and its path in a worker's REST API."""

from __future__ import annotations

from typing import Annotated

import typer

from klamm.cli.completion import connector_names

Name = Annotated[
    str, typer.Argument(metavar="NAME", autocompletion=connector_names, help="The connector's name.")
]
OptionalName = Annotated[
    str | None,
    typer.Argument(
        metavar="[NAME]",
        autocompletion=connector_names,
        help="Name, when the file or --config does not hold it.",
    ),
]


def path_of(name: str, rest: str = "") -> str:
    """Return the path of a connector, and what follows it."""
    from urllib.parse import quote

    return f"/connectors/{quote(name, safe='')}{rest}"
