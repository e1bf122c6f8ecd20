"""`klamm mirror flow`: runs one flow, and adds flows to a file or removes them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from klamm.cli.common import OverrideOption, pairs, reported
from klamm.cli.context import CommandGroup, Commands
from klamm.cli.mirror_options import ConfigArgument, FlowArgument


class _Group(CommandGroup):
    """The commands; a file in place of a command means `run FILE`."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        known = not args or args[0].startswith("-") or self.get_command(ctx, args[0])
        return super().resolve_command(ctx, args if known else ["run", *args])


app = Commands(
    cls=_Group,
    help="Run one flow; add flows to a file, or remove them. `flow FILE 'A->B'` means `flow run FILE 'A->B'`.",
    no_args_is_help=True,
)


def say_ready(line: str, urls: Mapping[str, str]) -> None:
    """Print the ready line, with the addresses of servers."""
    from klamm_base import service_manager

    service_manager.say_ready(" ".join([line, *(f"{name}={url}" for name, url in urls.items())]))


@app.command()
def run(config: ConfigArgument, name: FlowArgument, override: OverrideOption = None) -> None:
    """Run one flow of a file in the foreground.

    `klamm mirror start` runs this for each flow; use it to spread flows over machines yourself. Prints `ready flow=A->B`
    once its connectors run.
    """
    import asyncio

    from klamm.connect.child import forkserver
    from klamm.mirror import files, flow
    from klamm.mirror.places import claimed, place_of

    with reported(server=True):
        mirror = files.load(config, override, warn=False)
        wanted, place = mirror.flow(name), place_of(config, name)
        first = forkserver.forked(flow.modules_of(wanted))
        with claimed(place):
            asyncio.run(
                flow.run(
                    wanted, place, lambda urls: say_ready(f"ready flow={name}", urls), mirror,
                    (config, lambda: files.load(config, override, warn=False)), first=first,
                )
            )  # fmt: skip


@app.command()
def add(
    config: ConfigArgument,
    name: FlowArgument,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="A setting of the flow, such as topics=orders.*; several times.",
        ),
    ] = None,
) -> None:
    """Add a flow to a file, or change settings of one that is there.

    Comments and all other lines stay. A mirror that runs starts the flow within seconds.
    """
    _edit(
        config,
        {f"{name}.{key}": value for key, value in {"enabled": "true", **pairs(settings, "--set")}.items()},
    )


@app.command()
def remove(config: ConfigArgument, name: FlowArgument) -> None:
    """Remove a flow and its settings from a file.

    A mirror that runs stops copying within seconds. Topics and offsets stay, so that the flow goes on when it is added
    again. Heartbeats go on unless emit.heartbeats.enabled=false.
    """
    from klamm_base.properties import load_properties

    with reported():
        there = [key for key in load_properties(config) if key.startswith(f"{name}.")]
        if not there:
            from klamm_base.errors import ConfigError

            raise ConfigError(f"{config} has no flow {name}")
    _edit(config, dict.fromkeys(there))


def _edit(config: Path, changes: Mapping[str, str | None]) -> None:
    from klamm.mirror import files
    from klamm.mirror.edit import change_file, set_property

    def edited(text: str) -> str:
        for key, value in changes.items():
            text = set_property(text, key, value)
        return text

    warnings: list[str] = []

    def check(trial: Path) -> None:
        found = files.load(trial, warn=False).warnings
        warnings.extend(
            said.replace(str(trial), str(config)) for said in found if any(k in said for k in changes)
        )

    with reported():
        changed = change_file(config, edited, check)
        for said in warnings:
            typer.echo(f"klamm: {said}", err=True)
        typer.echo(f"{config}: changed" if changed else f"{config}: nothing to change", err=True)


def register(parent: typer.Typer) -> None:
    """Add the commands to `klamm mirror`."""
    parent.add_typer(app, name="flow")
