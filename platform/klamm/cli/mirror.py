"""`klamm mirror`: MirrorMaker's dedicated mode."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from klamm.cli import mirror_plan, mirror_verify
from klamm.cli.common import EXIT_USAGE, Output, OutputOption, OverrideOption, reported
from klamm.cli.context import Commands
from klamm.cli.mirror_options import ConfigArgument, FlowArgument

if TYPE_CHECKING:
    from klamm.mirror.shapes import MirrorStatus

EXIT_NOT_RUNNING: Final = 3
METRICS_PORT: Final = "klamm.metrics.port"

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

    from klamm.mirror import files, supervisor
    from klamm.mirror.metrics import FlowsMetrics, own_families
    from klamm.mirror.places import keeping, place_of
    from klamm.up.supervisor import ChildSpec

    with reported(server=True):
        mirror = files.load(config, override)
        targets = [a.strip() for word in clusters or () for a in word.split(",") if a.strip()]
        if targets:
            mirror = mirror.towards(targets)
        # The supervisor serves the metrics of all flows.
        overrides = [
            word for each in (*(override or ()), f"{METRICS_PORT}=-1") for word in ("--override", each)
        ]
        line = "ready mirror=" + ",".join(f.name for f in mirror.enabled)
        places = [place_of(config, flow.name) for flow in mirror.flows]
        served = None
        if mirror.metrics.port >= 0:
            served = mirror.metrics, FlowsMetrics({p.flow: p.socket for p in places}, own_families)
        specs = [
            ChildSpec(f"flow {f.name}", ("mirror", "flow", str(config), f.name, *overrides))
            for f in mirror.flows
        ]
        with keeping(places):
            try:
                asyncio.run(supervisor.run(specs, lambda url: _say_ready(line, url), metrics=served))
            except supervisor.FlowRefused:
                raise typer.Exit(EXIT_USAGE) from None


def _say_ready(line: str, metrics: str | None) -> None:
    typer.echo(f"{line} metrics={metrics}" if metrics else line)


@app.command()
def flow(
    config: ConfigArgument,
    name: FlowArgument,
    override: OverrideOption = None,
) -> None:
    """Run one flow of a file in the foreground.

    `start` runs this for each flow; use it to spread flows over machines yourself. Prints `ready flow=A->B` once its
    connectors run.
    """
    import asyncio

    from klamm.mirror import files
    from klamm.mirror.flow import run
    from klamm.mirror.places import claimed, place_of

    with reported(server=True):
        mirror = files.load(config, override, warn=False)
        wanted, place = mirror.flow(name), place_of(config, name)
        with claimed(place):
            asyncio.run(
                run(wanted, place, lambda url: _say_ready(f"ready flow={name}", url), metrics=mirror.metrics)
            )


@app.command()
def status(
    config: ConfigArgument,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Show it again and again, until Ctrl-C.")
    ] = False,
    interval: Annotated[
        float, typer.Option("--interval", metavar="SECONDS", min=0.1, help="The pause of --watch.")
    ] = 1.0,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "--topic", metavar="NAME", help="Only partitions of this topic (orders*); several times."
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All partitions, not only the worst.")] = False,
    output: OutputOption = Output.TABLE,
    override: OverrideOption = None,
) -> None:
    """Show how the flows of a file are: state, lag, rates, gaps, stopped partitions.

    Asks the running processes on this machine. Exit code 3: nothing runs. With `-o json` and `--watch`, prints a line
    of JSON for each look.
    """
    import asyncio

    from klamm.cli.mirror_watch import show, shown_until_interrupted
    from klamm.mirror.status import flows_of, runs, status_of

    with reported():
        flows = flows_of(config, override)

        def look() -> MirrorStatus:
            return asyncio.run(status_of(config, flows))

        if watch:
            shown_until_interrupted(look, interval, topic or (), output, everything=everything)
            return
        found = look()
        show(found, topic or (), output, everything=everything)
        if not runs(found):
            raise typer.Exit(EXIT_NOT_RUNNING)


for command in (mirror_plan, mirror_verify):
    command.register(app)
