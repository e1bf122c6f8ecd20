"""Commands of packages that are installed beside Klamm (hook `register_commands`).

The packages are looked up only for a word that is no command of Klamm's, and for help that lists all commands. Then
the hook modules of other packages are imported. A broken package is reported on standard error, and disturbs nothing
else.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Final, cast

import typer

from klamm.cli.common import reported
from klamm.cli.context import CommandGroup
from klamm_base.errors import KlammError
from klamm_plugins.command import Command

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

_NAME: Final = re.compile(r"[a-z][a-z0-9-]*")
# The target parses its words itself, --help too.
_ALL: Final = {"ignore_unknown_options": True, "allow_interspersed_args": False, "help_option_names": []}

Words = Annotated[list[str] | None, typer.Argument(metavar="[ARG]...")]


class Group(CommandGroup):
    """`klamm` itself, with the commands of others behind its own."""

    def list_commands(self, ctx: Any) -> list[str]:
        own = super().list_commands(ctx)
        return [*own, *(name for name in sorted(found()) if name not in own)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        own = super().get_command(ctx, cmd_name)
        if own is not None or not _NAME.fullmatch(cmd_name):
            return own
        command = found().get(cmd_name)
        return None if command is None else _as_typer(command)


@cache
def found() -> dict[str, Command]:
    """Return the commands by name. Reports a broken package once."""
    commands: dict[str, Command] = {}
    for entry_point in sorted({(e.name, e.value): e for e in _strangers()}.values(), key=lambda e: e.name):
        try:
            for command in _commands_of(entry_point):
                if command.name in commands:
                    raise KlammError(f"another package has a command {command.name} already")
                commands[command.name] = command
        except (Exception, SystemExit) as e:
            typer.echo(
                f"klamm: package {entry_point.name} has no usable commands: {type(e).__name__}: {e}", err=True
            )
    return commands


def _strangers() -> list[EntryPoint]:
    from importlib.metadata import (
        entry_points,
    )  # takes ten milliseconds, which Klamm's own commands need not wait for

    return [e for e in entry_points(group="klamm") if e.dist is None or e.dist.name != "klamm"]


def _commands_of(entry_point: EntryPoint) -> Sequence[Command]:
    import pluggy

    from klamm_plugins import hookspecs

    manager = pluggy.PluginManager(hookspecs.PROJECT)
    manager.add_hookspecs(hookspecs)
    manager.register(entry_point.load(), entry_point.name)
    commands: list[Command] = []
    for impl in manager.hook.register_commands.get_hookimpls():
        commands += cast("Sequence[Command]", impl.function())
    for command in commands:
        if not isinstance(command, Command):
            raise KlammError(f"{command!r} is no klamm_plugins.command.Command")
        if not _NAME.fullmatch(command.name):
            raise KlammError(
                f"{command.name!r} is no name of a command: letters, digits and -, in lower case"
            )
    return commands


def _as_typer(command: Command) -> Any:
    """Return a command that hands all words to the target."""
    app = typer.Typer(add_completion=False, rich_markup_mode=None)

    def run(words: Words = None) -> None:
        with reported():
            raise typer.Exit(run_target(command, words or []))

    app.command(command.name, help=command.help, context_settings=_ALL)(run)
    return typer.main.get_command(app)


def run_target(command: Command, words: list[str]) -> int:
    """Import the target of a command, run it and return its exit code. Raises KlammError when the import fails."""
    module, _, name = command.target.partition(":")
    try:
        target: Any = importlib.import_module(module)
        for part in name.split("."):
            target = getattr(target, part)
    except (ImportError, AttributeError) as e:
        raise KlammError(f"command {command.name}: {command.target} cannot be imported: {e}") from e
    if isinstance(target, typer.Typer):
        target = typer.main.get_command(target)
    main: Callable[..., Any] | None = getattr(target, "main", None)
    if main is not None and hasattr(target, "make_context"):
        code = main(args=words, prog_name=f"klamm {command.name}", standalone_mode=True)
    else:
        code = target(words)
    return int(code or 0)
