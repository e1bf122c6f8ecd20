"""Options that several commands share, declared once as the fields of a dataclass.

A command takes such a dataclass as one parameter: `def status(worker: Worker, name: Name)`. `with_contexts` shows typer
the options in place of the parameter, and builds the object from their values when the command runs.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields, is_dataclass
from functools import wraps
from typing import Any, get_type_hints

_KEYWORD = inspect.Parameter.KEYWORD_ONLY


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
