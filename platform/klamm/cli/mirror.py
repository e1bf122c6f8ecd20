"""`klamm mirror`: MirrorMaker's dedicated mode."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from klamm.cli import mirror_plan, mirror_verify
from klamm.cli.common import EXIT_USAGE, Output, OutputOption, OverrideOption, print_rows, reported
from klamm.cli.context import Commands
from klamm.cli.mirror_options import ConfigArgument, FlowArgument

app = Commands(help="Mirror topics between clusters (MirrorMaker).", no_args_is_help=True)

ClustersOption = Annotated[
    list[str] | None,
    typer.Option("--clusters", metavar="ALIAS", help="Only flows into this cluster; several by commas."),
]


@app.callback()
def _group() -> None:
    """Mirror topics between clusters (MirrorMaker)."""


@app.command()
def start(config: ConfigArgument, clusters: ClustersOption = None, override: OverrideOption = None) -> None:
    """Run the flows of a file in the foreground.

    SIGTERM or Ctrl-C stops them all cleanly. Prints `ready mirror=A->B,…` once every flow runs. A flow whose cluster
    cannot be reached waits for it; the others go on meanwhile. With `klamm.metrics.port` the line says where
    `metrics` are.
    """
    import asyncio
    import contextlib

    from klamm.mirror import files, supervisor
    from klamm.mirror.metrics import FlowsMetrics, FlowSockets, own_families
    from klamm.up.supervisor import ChildSpec

    with reported(server=True):
        mirror = files.load(config, override)
        targets = [a.strip() for word in clusters or () for a in word.split(",") if a.strip()]
        if targets:
            mirror = mirror.towards(targets)
        overrides = [word for each in override or () for word in ("--override", each)]
        line = "ready mirror=" + ",".join(f.name for f in mirror.enabled)
        with contextlib.ExitStack() as stack:
            paths, served = dict[str, Path](), None
            if mirror.metrics.port >= 0:
                paths = stack.enter_context(FlowSockets(f.name for f in mirror.flows)).paths
                served = mirror.metrics, FlowsMetrics(paths, own_families)
            sockets = {name: ("--metrics-socket", str(path)) for name, path in paths.items()}
            specs = [
                ChildSpec(
                    f"flow {f.name}",
                    ("mirror", "flow", str(config), f.name, *overrides, *sockets.get(f.name, ())),
                )
                for f in mirror.flows
            ]
            running = supervisor.run(specs, lambda url: _say_ready(line, url), metrics=served)
            try:
                asyncio.run(running)
            except supervisor.FlowRefused:
                raise typer.Exit(EXIT_USAGE) from None


def _say_ready(line: str, metrics: str | None) -> None:
    typer.echo(f"{line} metrics={metrics}" if metrics else line)


@app.command()
def flow(
    config: ConfigArgument,
    name: FlowArgument,
    override: OverrideOption = None,
    metrics_socket: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="Serve metrics on this Unix socket, not on klamm.metrics.port."),
    ] = None,
) -> None:
    """Run one flow of a file in the foreground.

    `start` runs this for each flow; use it to spread flows over machines yourself. Prints `ready flow=A->B` once its
    connectors run.
    """
    import asyncio

    from klamm.mirror import files
    from klamm.mirror.flow import claimed, run

    with reported(server=True):
        mirror = files.load(config, override, warn=False)
        wanted = mirror.flow(name)
        metrics = metrics_socket or (mirror.metrics if mirror.metrics.port >= 0 else None)
        with claimed(config, wanted) as identity:
            asyncio.run(
                run(wanted, identity, lambda url: _say_ready(f"ready flow={name}", url), metrics=metrics)
            )


@app.command()
def status(
    config: ConfigArgument, output: OutputOption = Output.TABLE, override: OverrideOption = None
) -> None:
    """Show the last states of the flows' connectors and tasks.

    Reads the status topics at the targets.
    """
    from klamm.mirror import files
    from klamm.mirror.status import rows

    with reported():
        mirror = files.load(config, override, warn=False)
        found = [row for each in mirror.flows for row in rows(each)]
        print_rows(found, ["flow", "connector", "task", "state", "worker", "trace"], output)


for command in (mirror_plan, mirror_verify):
    command.register(app)
