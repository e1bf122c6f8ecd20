"""Records as `klamm consume` prints them: by a pattern, as JSON, YAML or CSV."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import typer

from klamm.cli.consume_options import Record
from klamm.cli.output import Format
from klamm.records.formats import json_value

DEFAULT_FORMAT: Final = "%v\\n"
Piece = Callable[[Any], bytes]
_PLACES: Final[dict[str, Piece]] = {
    "t": lambda m: m.topic().encode(),
    "p": lambda m: b"%d" % m.partition(),
    "o": lambda m: b"%d" % m.offset(),
    "k": lambda m: _or_null(m.key()),
    "v": lambda m: _or_null(m.value()),
    "d": lambda m: b"%d" % m.timestamp()[1],
    "h": lambda m: b",".join(name.encode() + b"=" + _or_null(value) for name, value in m.headers() or []),
    "H": lambda m: b"%d" % len(m.headers() or []),
    "K": lambda m: b"%d" % (-1 if m.key() is None else len(m.key())),
    "V": lambda m: b"%d" % (-1 if m.value() is None else len(m.value())),
    "T": lambda m: b"%d" % len(m.topic()),
    "e": lambda m: b"%d" % m.leader_epoch(),
    "%": lambda m: b"%",
}
_COLUMNS: Final = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def lines(output: Format | None, pattern: str) -> tuple[bytes, Piece]:
    """Return what stands before all records, and the function that prints one. Raises BadParameter for a bad pattern."""
    match output:
        case Format.JSON | Format.JSONL:
            return b"", _as_json
        case Format.YAML:
            return b"", _as_yaml
        case Format.CSV:
            return ",".join(_COLUMNS).encode() + b"\n", _as_csv
        case Format.WIDE:
            return b"", _as_wide
        case _:
            return b"", formatter(pattern)


def _or_null(data: bytes | None) -> bytes:
    """Return the bytes unchanged, so that a pipe gets what the topic holds; `null` for a tombstone."""
    return b"null" if data is None else data


def formatter(pattern: str) -> Piece:
    """Return a function that formats a message by a pattern (kcat's and rpk's letters).

    Raises BadParameter for a bad pattern.
    """
    pieces: list[Piece] = []
    for literal, letter in re.findall(r"([^%]+)|%(.?)", pattern):
        if literal:
            pieces.append(lambda _m, s=_backslashes(literal).encode(): s)  # type: ignore[misc]
        elif letter in _PLACES:
            pieces.append(_PLACES[letter])
        else:
            raise typer.BadParameter(f"%{letter} is not one of %{' %'.join(_PLACES)}", param_hint="--format")
    return lambda message: b"".join([piece(message) for piece in pieces])


def _backslashes(literal: str) -> str:
    return literal.replace("\\n", "\n").replace("\\t", "\t").replace("\\r", "\r").replace("\\0", "\0")


def _json_of(m: Any, part: str) -> Any:
    """Return a key or value for JSON: a decoded one as it is."""
    value = getattr(m, f"{part}_value") if isinstance(m, Record) else getattr(m, part)()
    return json_value(value) if isinstance(value, bytes) else value


def _fields(m: Any) -> dict[str, Any]:
    return {
        "topic": m.topic(),
        "partition": m.partition(),
        "offset": m.offset(),
        "timestamp": m.timestamp()[1],
        "key": _json_of(m, "key"),
        "value": _json_of(m, "value"),
        "headers": [[name, json_value(value)] for name, value in m.headers() or []],
    }


def _as_json(m: Any) -> bytes:
    return json.dumps(_fields(m), ensure_ascii=False).encode() + b"\n"


def _as_yaml(m: Any) -> bytes:
    """Return an item of a list, so that all records are one document."""
    from klamm.cli.output import yaml

    return yaml([_fields(m)]).encode()


def _as_csv(m: Any) -> bytes:
    return ",".join(map(_csv_cell, _fields(m).values())).encode() + b"\n"


def _csv_cell(value: Any) -> str:
    """Return a cell. Null is an empty one, empty text has quotes; what is neither text nor a number is JSON."""
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return '"' + text.replace('"', '""') + '"' if not text or re.search('[",\r\n]', text) else text


def _as_wide(m: Any) -> bytes:
    """Return the record behind its place and its time, with its headers, between tabs."""
    at = m.timestamp()[1]
    place = f"{m.topic()}-{m.partition()}@{m.offset()}\t{_time(at)}\t".encode()
    return place + b"\t".join([_or_null(m.key()), _or_null(m.value()), _PLACES["h"](m)]) + b"\n"


def _time(ms: int) -> str:
    try:
        return (_EPOCH + timedelta(milliseconds=ms)).isoformat(timespec="milliseconds") if ms >= 0 else "-"
    except OverflowError:
        return str(ms)
