"""Log records as ECS documents. Pure; nothing that an application logs makes it fail."""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Mapping
from typing import Any, Final

import orjson

_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_OPTIONS: Final = orjson.OPT_NON_STR_KEYS


def document(record: logging.LogRecord, host: str, fields: Mapping[str, Any]) -> bytes:
    """A record of the standard library's logging; `fields` are added, `extra` goes to `labels`."""
    found: dict[str, Any] = {
        "@timestamp": stamp(record.created),
        "message": record.getMessage(),
        "log": {
            "level": record.levelname.lower(),
            "logger": record.name,
            "origin": {
                "file": {"name": record.pathname, "line": record.lineno},
                "function": record.funcName,
            },
        },
        "process": {"pid": record.process, "thread": {"name": record.threadName}},
        "host": {"name": host},
    }
    if record.exc_info and record.exc_info[0] is not None:
        found["error"] = error(record.exc_info)
    elif record.stack_info:
        found["error"] = {"stack_trace": record.stack_info}
    if fields:
        found |= fields
    extra = record.__dict__.keys() - _STANDARD
    if extra:
        found["labels"] = {name: record.__dict__[name] for name in extra}
    return encode(found)


def stamp(at: float) -> str:
    """Seconds since the epoch as ECS writes a time."""
    return f"{dt.datetime.fromtimestamp(at, tz=dt.UTC).isoformat(timespec='milliseconds')[:-6]}Z"


def error(exc_info: Any) -> dict[str, Any]:
    """`exc_info` as `sys.exc_info()` gives it, with an exception."""
    return {
        "type": exc_info[0].__name__,
        "message": str(exc_info[1]),
        "stack_trace": logging.Formatter().formatException(exc_info),
    }


def encode(found: dict[str, Any]) -> bytes:
    """As JSON, whatever it holds: what JSON has no form for is text."""
    try:
        return orjson.dumps(found, default=_text, option=_OPTIONS)
    except TypeError:
        return orjson.dumps(_plain(found), default=_text)


def _text(value: object) -> str:
    """Also of what is no UTF-8, such as the name of a file in another encoding."""
    return str(value).encode(errors="backslashreplace").decode()


def _plain(value: Any) -> Any:
    """What JSON holds, as it is; the rest (lone surrogates, keys of any kind, huge integers) as text."""
    match value:
        case dict():
            return {_text(k): _plain(v) for k, v in value.items()}
        case list() | tuple():
            return [_plain(v) for v in value]
        case None | bool() | float():
            return value
        case int() if -(1 << 63) <= value < 1 << 64:
            return value
    return _text(value)
