"""`klamm mirror`: MirrorMaker's dedicated mode."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from klamm.cli.common import EXIT_USAGE, Output, OutputOption, OverrideOption, print_rows, reported

app = typer.Typer(help="Mirror topics between clusters (MirrorMaker).", no_args_is_help=True)

ConfigArgument = Annotated[
    Path, typer.Argument(metavar="mm2.properties", help="MirrorMaker 2's properties: clusters and flows.")
]
ClustersOption = Annotated[
    list[str] | None,
    typer.Option("--clusters", metavar="ALIAS", help="Only flows into this cluster; several by commas."),
]


@app.callback()
def _group() -> None:
    """Mirror topics between clusters (MirrorMaker)."""


@app.command()
def start(config: ConfigArgument, clusters: ClustersOption = None, override: OverrideOption = None) -> None:
    """Run the flows of a file in the foreground until SIGTERM or Ctrl-C, which stops them all cleanly.

    Prints `ready mirror=A->B,…` once every flow runs. A flow whose cluster cannot be reached waits for it; the others
    go on meanwhile.
    """
    import asyncio

    from klamm.mirror import files, supervisor
    from klamm.up.supervisor import ChildSpec

    with reported(server=True):
        mirror = files.load(config, override)
        targets = [a.strip() for word in clusters or () for a in word.split(",") if a.strip()]
        if targets:
            mirror = mirror.towards(targets)
        overrides = [word for each in override or () for word in ("--override", each)]
        specs = [
            ChildSpec(f"flow {f.name}", ("mirror", "flow", str(config), f.name, *overrides))
            for f in mirror.flows
        ]
        line = "ready mirror=" + ",".join(f.name for f in mirror.enabled)
        try:
            asyncio.run(supervisor.run(specs, lambda: typer.echo(line)))
        except supervisor.FlowRefused:
            raise typer.Exit(EXIT_USAGE) from None


@app.command()
def flow(
    config: ConfigArgument,
    name: Annotated[str, typer.Argument(metavar="A->B", help="The flow.")],
    override: OverrideOption = None,
) -> None:
    """Run one flow of a file in the foreground: what `start` runs for each, for those who spread flows themselves.

    Prints `ready flow=A->B` once its connectors run.
    """
    import asyncio

    from klamm.mirror import files
    from klamm.mirror.flow import claimed, run

    with reported(server=True):
        wanted = files.load(config, override, warn=False).flow(name)
        with claimed(config, wanted) as identity:
            asyncio.run(run(wanted, identity, lambda: typer.echo(f"ready flow={name}")))


@app.command()
def status(
    config: ConfigArgument, output: OutputOption = Output.TABLE, override: OverrideOption = None
) -> None:
    """Show what the flows' connectors and tasks said last, from the status topics at the targets."""
    from klamm.mirror import files
    from klamm.mirror.status import rows

    with reported():
        mirror = files.load(config, override, warn=False)
        found = [row for each in mirror.flows for row in rows(each)]
        print_rows(found, ["flow", "connector", "task", "state", "worker", "trace"], output)
