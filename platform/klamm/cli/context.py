"""Groups of commands whose shared options are declared once, as the fields of a dataclass.

A command takes such a dataclass as one parameter: `def status(worker: Worker, name: Name)`. `Commands` shows typer
the options in place of the parameter, and builds the object from their values when the command runs.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import Any, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup

from klamm.cli.chosen_context import fill
from klamm.cli.common import reported, shown

_KEYWORD = inspect.Parameter.KEYWORD_ONLY


class Command(TyperCommand):
    """A command that refuses text with bytes that are not UTF-8, before it does anything.

    Paths may have such bytes, and so may what is declared with `parser=raw`. Addresses and logins that nobody gave
    come from the chosen context.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        rest = super().parse_args(ctx, args)
        for parameter in self.params:
            if parameter.type.name == "str":
                for text in _texts(ctx.params.get(parameter.name or "")):
                    _require_utf8(text, ctx, parameter)
        if not ctx.resilient_parsing:
            with reported():
                fill(ctx, self.params)
        return rest


class CommandGroup(TyperGroup):
    """A group of commands that refuses a command's name with bytes that are not UTF-8."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        _require_utf8(args[0], ctx)
        return super().resolve_command(ctx, args)


class Commands(typer.Typer):
    """A group of commands; each may take contexts."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{"cls": CommandGroup, **settings})

    def command(  # type: ignore[override]  # typer names every setting
        self, name: str | None = None, **settings: Any
    ) -> Callable[[Callable[..., None]], Callable[..., None]]:
        """Return a decorator that registers a command under `name`."""
        register = super().command(name, **{"cls": Command, **settings})

        def add(command: Callable[..., None]) -> Callable[..., None]:
            register(with_contexts(command))
            return command

        return add


def raw(word: str) -> str:
    """Return a word as it is: bytes that are not UTF-8 stand in it as Python's surrogate escapes."""
    return word


def utf8_path(ctx: typer.Context, parameter: typer.CallbackParam, path: Path) -> Path:
    """Return a path, which is written into files that are UTF-8. Raises BadParameter for other bytes."""
    _require_utf8(str(path), ctx, parameter)
    return path


def _texts(value: Any) -> list[str]:
    return [v for v in (value if isinstance(value, list | tuple) else [value]) if isinstance(v, str)]


def _require_utf8(text: str, ctx: Any, parameter: Any = None) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise typer.BadParameter(f"'{shown(text)}' is not UTF-8", ctx=ctx, param=parameter) from None


def with_contexts(command: Callable[..., None]) -> Callable[..., None]:
    """Replace each parameter whose annotation is a dataclass by the options that the dataclass declares.

    Help shows these options behind the command's own.
    """
    signature = inspect.signature(command, eval_str=True)
    contexts: dict[str, Any] = {
        p.name: p.annotation for p in signature.parameters.values() if is_dataclass(p.annotation)
    }

    @wraps(command)
    def run(**given: Any) -> None:
        for name, context in contexts.items():
            given[name] = context(**{f.name: given.pop(f.name) for f in fields(context)})
        command(**given)

    own = [p.replace(kind=_KEYWORD) for p in signature.parameters.values() if p.name not in contexts]
    parameters = [*own, *(option for context in contexts.values() for option in _options(context))]
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    return run


def _options(context: Any) -> Iterator[inspect.Parameter]:
    hints = get_type_hints(context, include_extras=True)
    for field in fields(context):
        default = inspect.Parameter.empty if field.default is MISSING else field.default
        yield inspect.Parameter(field.name, _KEYWORD, default=default, annotation=hints[field.name])
