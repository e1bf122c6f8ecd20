"""`klamm example`: prints orders as the generator makes them, without a broker."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from klamm_example.datagen import make_order

app = typer.Typer(help="Orders of the example plugin.", no_args_is_help=True)


@app.callback()
def _options() -> None:
    """Orders of the example plugin."""


@app.command()
def orders(
    count: Annotated[int, typer.Argument(help="How many.")] = 3,
    seed: Annotated[int, typer.Option(help="Another seed makes other orders.")] = 0,
) -> None:
    """Print orders, one JSON object a line."""
    for number in range(count):
        order = make_order(seed, 0, number)
        typer.echo(
            json.dumps({name: order[name] for name in ("id", "customer", "item", "quantity", "price")})
        )
