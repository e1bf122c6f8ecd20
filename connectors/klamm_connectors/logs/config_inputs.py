"""[[inputs]] of agent.toml, checked."""

from __future__ import annotations

import glob
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from klamm_connectors.logs.config_values import Values, is_json

_TOPIC: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_TAKEN_FIELDS: Final = ("@timestamp", "message", "log")


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """One [[inputs]] table; times in seconds."""

    type: str = "file"
    paths: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    topic: str
    format: str = "raw"
    fields: dict[str, Any] = field(default_factory=dict)
    start_position: str = "beginning"
    encoding: str = "utf-8"
    max_line_bytes: int = 500_000
    ignore_older: float | None = None
    close_inactive: float = 300.0
    rotate_wait: float = 5.0
    close_rotated: float = 60.0
    key: str = "none"


def read_input(v: Values, table: dict[str, Any], at: str) -> Input:
    """One [[inputs]] table. Raises ConfigError."""
    kind = v.choice(table, at, "type", "file", ("file",))
    v.known(table, at, tuple(Input.__dataclass_fields__))
    topic = v.text(table, at, "topic")
    if not _TOPIC.fullmatch(topic) or topic in {".", ".."}:
        raise v.error(
            at, "topic", f"= {topic!r}: a topic's name has up to 249 letters, digits, '.', '_' and '-'"
        )
    form = v.choice(table, at, "format", "raw", ("raw", "json"))
    return Input(
        type=kind,
        paths=_patterns(v, at, "paths", v.texts(table, at, "paths")),
        exclude=_patterns(v, at, "exclude", v.texts(table, at, "exclude", default=())),
        topic=topic,
        format=form,
        fields=_fields(v, table, at, form),
        start_position=v.choice(table, at, "start_position", "beginning", ("beginning", "end")),
        encoding=_encoding(v, table, at, form),
        max_line_bytes=v.number(table, at, "max_line_bytes", 500_000, least=16, most=100_000_000),
        ignore_older=v.duration(table, at, "ignore_older", None),
        close_inactive=v.duration(table, at, "close_inactive", 300.0) or 0.0,
        rotate_wait=v.duration(table, at, "rotate_wait", 5.0) or 0.0,
        close_rotated=v.duration(table, at, "close_rotated", 60.0) or 0.0,
        key=v.choice(table, at, "key", "none", ("none", "path", "host")),
    )


def _fields(v: Values, table: dict[str, Any], at: str, form: str) -> dict[str, Any]:
    found = table.get("fields", {})
    if not isinstance(found, dict):
        raise v.error(at, "fields", f'= {found!r}: a table such as {{ service = "shop" }} is expected')
    if found and form != "json":
        raise v.error(at, "fields", 'has an effect with format = "json" only')
    for name, value in found.items():
        if name in _TAKEN_FIELDS:
            raise v.error(at, "fields", f"names {name!r}, which the agent sets itself")
        if not is_json(value):
            raise v.error(
                at, "fields", f"holds {name} = {value}, which JSON cannot express; write it as text"
            )
    return found


def _encoding(v: Values, table: dict[str, Any], at: str, form: str) -> str:
    encoding = v.text(table, at, "encoding", "utf-8")
    try:
        usable = "\n\r{}".encode(encoding) == b"\n\r{}" and b"\n".decode(encoding) == "\n"
    except (LookupError, UnicodeError):
        raise v.error(at, "encoding", f"= {encoding!r}: no such encoding is known") from None
    if not usable:
        raise v.error(
            at,
            "encoding",
            f"= {encoding!r}: only encodings in which a line ends with the one byte 0A can be read",
        )
    if form == "raw" and "encoding" in table and encoding.lower().replace("_", "-") not in {"utf-8", "utf8"}:
        raise v.error(
            at,
            "encoding",
            f'= {encoding!r} has an effect with format = "json" only: raw lines stay as they are',
        )
    return encoding


def _patterns(v: Values, at: str, key: str, paths: tuple[str, ...]) -> tuple[str, ...]:
    """Absolute ones; the folder of the configuration is no pattern, whatever its name holds."""
    base = Path(glob.escape(str(v.base.absolute())))
    found = []
    for path in paths:
        if "\0" in path:
            raise v.error(at, key, f"= {path!r}: a path cannot hold NUL")
        try:
            found.append(os.path.normpath(base / Path(path).expanduser()))
        except RuntimeError:
            raise v.error(at, key, f"= {path!r}: the home folder cannot be found") from None
    return tuple(found)
