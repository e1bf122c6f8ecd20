"""`klamm broker`: run a broker."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Annotated

import typer

from klamm.cli.common import OverrideOption, reported
from klamm.cli.context import Commands

app = Commands(help="Run a broker.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Run a broker."""


@app.command()
def start(
    config: Annotated[
        Path | None, typer.Argument(metavar="[server.properties]", help="Kafka's broker properties.")
    ] = None,
    override: OverrideOption = None,
) -> None:
    """Run a broker in the foreground until SIGTERM or Ctrl-C.

    Without a file: loopback, port 9092, data in ./klamm-data. Values come from the file, then the environment
    (KLAMM_NUM_PARTITIONS is num.partitions), then --override. Prints `ready broker=HOST:PORT` once it serves.
    """
    gc.disable()  # `run` enables it: modules stay, and collecting them again and again takes a tenth of the start

    from klamm_base.properties import layered
    from klamm_broker.server.config import BrokerConfig
    from klamm_broker.server.main import run

    with reported(server=True):
        run(BrokerConfig.load(layered(config, override or [])))
