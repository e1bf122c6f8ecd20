"""The form in which an exception leaves a child: its class for the restart policy, its trace for the status
API.

The trace begins as Kafka's does, with the outermost error and its message, then the frames, then `Caused
by:`. Values of password keys are hidden in it, wherever a plugin's message quotes them.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable
from typing import Any, Final

from klamm.connect.child.control import Control
from klamm.connect.children.channel import Message
from klamm.connect.settings.restart_policy import ErrorClass
from klamm_base.configdef import Password
from klamm_plugins.errors import (
    ConfigError,
    ConnectError,
    DataError,
    PluginBrokenError,
    PluginNotFoundError,
    RetriableError,
)

# Long enough for any cause, short enough for the status topic.
TRACE_CHARS_MAX: Final = 32 << 10
_FRAMES_MAX: Final = 30
# Shorter passwords are not hidden: with every "a" hidden a trace would be unreadable and nothing protected.
_SECRET_CHARS_MIN: Final = 4


def classify(error: BaseException) -> ErrorClass:
    """Returns the class by which the restart policy judges the error."""
    match error:
        case DataError():
            return ErrorClass.DATA
        case ConfigError() | PluginNotFoundError() | PluginBrokenError():  # the worker sees when it is mended
            return ErrorClass.CONFIG
        case RetriableError():
            return ErrorClass.RETRIABLE
        case ConnectError():
            # "Tolerance exceeded" and similar errors are judged by their cause.
            return ErrorClass.DATA if isinstance(error.__cause__, DataError) else ErrorClass.CONNECT
        case MemoryError():
            return ErrorClass.MEMORY
        case _:
            return ErrorClass.UNKNOWN


def trace(error: BaseException, secrets: Iterable[str] = ()) -> str:
    """Returns the text for the status API."""
    parts: list[str] = []
    said: list[str] = []
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        text = str(current)
        # An error often quotes its cause; the quoted text is shown once.
        known = any(earlier.endswith(text) for earlier in said)
        parts.append(("Caused by: " if parts else "") + _one(current, "" if known else text))
        said.append(text)
        suppressed = current.__suppress_context__
        current = current.__cause__ or (None if suppressed else current.__context__)
    return _hidden("".join(parts), secrets)[:TRACE_CHARS_MAX]


def _hidden(text: str, secrets: Iterable[str]) -> str:
    for secret in sorted({s for s in secrets if len(s) >= _SECRET_CHARS_MIN}, key=len, reverse=True):
        text = text.replace(secret, Password.HIDDEN)
    return text


def _one(error: BaseException, message: str) -> str:
    cls = type(error)
    name = cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"
    frames = traceback.extract_tb(error.__traceback__)[-_FRAMES_MAX:]
    lines = [f"\tat {f.name} ({f.filename}:{f.lineno})" for f in reversed(frames)]
    return "\n".join([f"{name}: {message}" if message else name, *lines]) + "\n"


def notice(error: BaseException, secrets: Iterable[str] = ()) -> dict[str, Any]:
    """Returns the fields of the `failed` event."""
    return {
        "error": classify(error).value,
        "message": _hidden(str(error), secrets),
        "trace": trace(error, secrets),
    }


def answer_safely(
    control: Control, request: Message, work: Callable[[], Any], secrets: Iterable[str] = ()
) -> None:
    """Answers a request with the result of `work`, or with the message of its error."""
    try:
        result = work()
    except Exception as e:
        control.answer(request, error=notice(e, secrets))
    else:
        control.answer(request, result=result)
