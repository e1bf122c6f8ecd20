"""`klamm mirror`: MirrorMaker's dedicated mode."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, cast

import typer

from klamm.cli import (
    mirror_flow,
    mirror_move,
    mirror_offsets,
    mirror_plan,
    mirror_promote,
    mirror_resolve,
    mirror_topics,
    mirror_verify,
)
from klamm.cli.common import EXIT_USAGE, Output, OutputOption, OverrideOption, fail, reported
from klamm.cli.context import Commands
from klamm.cli.mirror_flow import say_ready
from klamm.cli.mirror_options import ConfigArgument, OptionalConfig
from klamm.cli.rest_client import Login

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from klamm.mirror.shapes import MirrorStatus
    from klamm.mirror.supervisor import Side
    from klamm.mirror.watched import Watched
    from klamm_mirror.settings.mm2_config import MirrorConfig

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
    `metrics` are, with `dedicated.mode.enable.internal.rest=true` where `rest` is.
    """
    import asyncio
    import contextlib

    from klamm.mirror import files, supervisor
    from klamm.mirror.watched import Watched
    from klamm.up.supervisor import ChildSpec

    with reported(server=True), contextlib.ExitStack() as stack:
        mirror = _towards(files.load(config, override, plugins=True), clusters)
        # The supervisor serves the metrics of all flows.
        overrides = [
            word for each in (*(override or ()), f"{METRICS_PORT}=-1") for word in ("--override", each)
        ]
        line = "ready mirror=" + ",".join(f.name for f in mirror.enabled)
        watched = stack.enter_context(contextlib.closing(Watched(config, mirror.flows)))

        def specs(now: MirrorConfig) -> list[ChildSpec]:
            watched.become(now.flows)
            return [
                ChildSpec(f"flow {f.name}", ("mirror", "flow", "run", str(config), f.name, *overrides))
                for f in now.flows
            ]

        begun = supervisor.begin(specs(mirror), mirror.flows)
        again = config, lambda: specs(_towards(files.load(config, override), clusters))
        try:
            sides = _sides(mirror, watched)
            asyncio.run(
                supervisor.run(begun, lambda urls: say_ready(line, urls), sides, again, watched.owner)
            )
        except supervisor.FlowRefused:
            raise typer.Exit(EXIT_USAGE) from None


def _towards(mirror: MirrorConfig, clusters: list[str] | None) -> MirrorConfig:
    targets = [a.strip() for word in clusters or () for a in word.split(",") if a.strip()]
    return mirror.towards(targets) if targets else mirror


def _sides(mirror: MirrorConfig, watched: Watched) -> list[Side]:
    """Return the servers beside the flows."""
    from klamm.mirror.metrics import FlowsMetrics, own_families
    from klamm.mirror.supervisor import MetricsSide

    metrics = FlowsMetrics(lambda: watched.sockets, own_families)
    sides: list[Side] = []
    if mirror.rest is not None:
        from klamm.mirror.rest import MirrorRest

        sides.append(MirrorRest(watched, mirror.rest, metrics))
    if mirror.metrics.port >= 0:
        sides.append(MetricsSide(mirror.metrics, metrics))
    return sides


@app.command()
def status(
    login: Login,
    config: OptionalConfig = None,
    url: Annotated[
        str | None, typer.Option("--url", help="The REST address of a mirror on another machine, not a file.")
    ] = None,
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
    """Show the state, lag, rates, gaps and stops of a file's flows.

    Asks the running processes on this machine, or by --url the REST of a mirror elsewhere. Exit code 3: nothing runs, 1: no topic that is copied matches --topic. With `-o json` and `--watch`, prints a line
    of JSON for each look.
    """
    from klamm.cli.mirror_status import filtered
    from klamm.cli.mirror_watch import show, shown_until_interrupted
    from klamm.mirror.status import runs

    if (config is None) == (url is None):
        raise typer.BadParameter("one of mm2.properties and --url is expected")
    with reported():
        look = _look(config, override) if config is not None else _look_elsewhere(login, url or "")
        if watch:
            shown_until_interrupted(look, interval, topic or (), output, everything=everything)
            return
        found = look()
        show(found, topic or (), output, everything=everything)
        if not runs(found):
            raise typer.Exit(EXIT_NOT_RUNNING)
        if topic and not any(flow["partitions"] for flow in filtered(found, topic)["flows"]):
            fail(f"the mirror copies no topic {', '.join(topic)}")


def _look(config: Path, override: list[str] | None) -> Callable[[], MirrorStatus]:
    """Return a function that asks the processes on this machine."""
    import asyncio

    from klamm.mirror.status import flows_of, status_of

    flows = flows_of(config, override)
    return lambda: asyncio.run(status_of(config, flows))


def _look_elsewhere(login: Login, url: str) -> Callable[[], MirrorStatus]:
    """Return a function that asks a mirror's REST."""
    worker = login.at(url)
    return lambda: cast("MirrorStatus", worker.call("GET", "/status"))


for command in (
    mirror_flow,
    mirror_plan,
    mirror_resolve,
    mirror_verify,
    mirror_offsets,
    mirror_topics,
    mirror_move,
    mirror_promote,
):
    command.register(app)
