"""Log records as ECS documents. Pure; nothing that an application logs makes it fail."""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Mapping
from typing import Any, Final

import orjson

_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_USUAL: Final = len(vars(logging.makeLogRecord({})))  # attributes of a record without extra
_OURS: Final = frozenset({"@timestamp", "message", "log", "process", "host", "error", "labels"})
_PLACES: Final = 4096
_OPTIONS: Final = orjson.OPT_NON_STR_KEYS


class Documents:
    """A maker of documents for one application's records; each gets `fields`. For any thread.

    It encodes once what all records of one line of source code share.
    """

    def __init__(self, host: str, fields: Mapping[str, Any]) -> None:
        self._host, self._fields = host, dict(fields)
        self._is_plain = not _OURS & self._fields.keys()
        rest = encode({"host": {"name": host}} | self._fields) if self._is_plain else b"{}"
        self._rest = rest[1:-1]
        self._places: dict[tuple[Any, ...], bytes] = {}
        self._second: tuple[int, str] = (0, "")

    def of(self, record: logging.LogRecord) -> bytes:
        """Makes a document of a record of the standard library's logging; `extra` goes to `labels`."""
        if not self._is_plain:
            return self._whole(record)
        try:
            message = orjson.dumps(record.getMessage())
        except TypeError:  # lone surrogates
            return self._whole(record)
        more = b""
        if len(record.__dict__) != _USUAL or record.exc_info or record.stack_info:
            found = _more(record)
            more = b"," + encode(found)[1:-1] if found else b""
        created = record.created
        second, shown = self._second
        if second != int(created):
            second = int(created)
            shown = stamp(second)[:-4]
            self._second = second, shown
        where = (record.levelname, record.name, record.pathname, record.lineno, record.funcName,
                 record.process, record.threadName)  # fmt: skip
        place = self._places.get(where) or self._remember(where)
        ms = int((created - second) * 1000)
        return b'{"@timestamp":"%b%03dZ","message":%b,%b%b%b}' % (
            shown.encode(),
            ms,
            message,
            place,
            self._rest,
            more,
        )

    def _remember(self, where: tuple[Any, ...]) -> bytes:
        """Encodes and keeps a document's origin, up to the host."""
        if len(self._places) >= _PLACES:
            self._places.clear()
        found = self._places[where] = encode(_origin(*where))[1:-1] + b","
        return found

    def _whole(self, record: logging.LogRecord) -> bytes:
        found: dict[str, Any] = {"@timestamp": stamp(record.created), "message": record.getMessage()}
        found |= _origin(
            record.levelname, record.name, record.pathname, record.lineno, record.funcName,
            record.process, record.threadName,
        )  # fmt: skip
        more = _more(record)
        labels = more.pop("labels", None)
        found |= {"host": {"name": self._host}} | more | self._fields
        return encode(found if labels is None else found | {"labels": labels})


def _origin(*where: Any) -> dict[str, Any]:
    level, logger, path, line, function, pid, thread = where
    return {
        "log": {
            "level": level.lower(),
            "logger": logger,
            "origin": {"file": {"name": path, "line": line}, "function": function},
        },
        "process": {"pid": pid, "thread": {"name": thread}},
    }


def _more(record: logging.LogRecord) -> dict[str, Any]:
    """Returns the fields that only some records have."""
    found: dict[str, Any] = {}
    if record.exc_info and record.exc_info[0] is not None:
        found["error"] = error(record.exc_info)
    elif record.stack_info:
        found["error"] = {"stack_trace": record.stack_info}
    extra = record.__dict__.keys() - _STANDARD
    if extra:
        found["labels"] = {name: record.__dict__[name] for name in extra}
    return found


def stamp(at: float) -> str:
    """Writes seconds since the epoch as an ECS time."""
    return f"{dt.datetime.fromtimestamp(at, tz=dt.UTC).isoformat(timespec='milliseconds')[:-6]}Z"


def error(exc_info: Any) -> dict[str, Any]:
    """Returns the object `error` for an exception; `exc_info` is as `sys.exc_info()` gives it."""
    return {
        "type": exc_info[0].__name__,
        "message": str(exc_info[1]),
        "stack_trace": logging.Formatter().formatException(exc_info),
    }


def encode(found: dict[str, Any]) -> bytes:
    """Encodes a document as JSON, whatever it holds: values without a JSON form become text."""
    try:
        return orjson.dumps(found, default=_text, option=_OPTIONS)
    except TypeError:
        return orjson.dumps(_plain(found), default=_text)


def _text(value: object) -> str:
    """Returns a value's text, also if it is no UTF-8, such as the name of a file in another encoding."""
    return str(value).encode(errors="backslashreplace").decode()


def _plain(value: Any) -> Any:
    """Returns JSON's values as they are, and the rest (lone surrogates, keys of any kind, huge integers) as text."""
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
