"""`klamm up`: everything on this machine with one command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from klamm.cli.common import EXIT_USAGE, reported
from klamm.cli.context import utf8_path

BROKER_PORT: Final = 9092
REST_PORT: Final = 8083
METRICS_PORT: Final = 9404


def up(
    data_dir: Annotated[
        Path, typer.Option("--data-dir", callback=utf8_path, help="Where topics and settings are kept.")
    ] = Path("klamm-data"),
    broker_port: Annotated[
        int | None,
        typer.Option("--broker-port", min=0, max=65535, help=f"Broker; default {BROKER_PORT}, 0: any free."),
    ] = None,
    rest_port: Annotated[
        int | None,
        typer.Option(
            "--rest-port", min=0, max=65535, help=f"Connect's REST; default {REST_PORT}, 0: any free."
        ),
    ] = None,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            "--metrics-port",
            min=0,
            max=65535,
            help=f"The broker's /metrics; default {METRICS_PORT}, 0: any free.",
        ),
    ] = None,
) -> None:
    """Run a broker and a Connect worker on loopback.

    Ctrl-C stops both cleanly. Prints `ready broker=… rest=… metrics=… data-dir=…` once both serve. A default port
    that is taken is replaced by a free one, and said; a port that was asked for must be free.
    """
    import asyncio

    from klamm.up import embedded, ports, supervisor
    from klamm_base.files import exposed

    # The lock first: a directory that is in use ends the command, which then needs no ports
    with reported(server=True), embedded.locked(data_dir):
        if (said := exposed(data_dir)) is not None:
            typer.echo(said, err=True)
        broker, said_broker = ports.choose(broker_port, BROKER_PORT, "--broker-port")
        rest, said_rest = ports.choose(rest_port, REST_PORT, "--rest-port", frozenset({broker}))
        taken = frozenset({broker, rest})
        metrics, said_metrics = ports.choose(metrics_port, METRICS_PORT, "--metrics-port", taken)
        for said in filter(None, (said_broker, said_rest, said_metrics)):
            typer.echo(said, err=True)
        specs = embedded.children(data_dir, broker, rest, metrics)
        line = (
            f"ready broker=127.0.0.1:{broker} rest=http://127.0.0.1:{rest} "
            f"metrics=http://127.0.0.1:{metrics}/metrics data-dir={data_dir}"
        )
        try:
            asyncio.run(supervisor.run(specs, lambda: typer.echo(line)))
        except supervisor.NotReadyError as e:
            if e.code == EXIT_USAGE:  # the child has said what is wrong with its settings
                raise typer.Exit(EXIT_USAGE) from None
            raise
