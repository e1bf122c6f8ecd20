"""[[inputs]] of agent.toml, checked."""

from __future__ import annotations

import glob
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from klamm_agent.config.braces import braces
from klamm_agent.config.multiline import read_multiline
from klamm_agent.config.readers import KEYS, Settings, read_settings
from klamm_agent.config.stages import KEYS as STAGE_KEYS
from klamm_agent.config.stages import StageConfig, read_stages
from klamm_agent.config.values import Values, is_json
from klamm_agent.framing import containers, encodings
from klamm_agent.framing.multiline import Multiline

_TOPIC: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_OF_FILES: Final = frozenset((
    "paths", "exclude", "start_position", "encoding", "max_line_bytes", "ignore_older", "close_inactive", "rotate_wait",
    "close_rotated", "long_lines", "multiline", "container", "compression", "order",
))  # fmt: skip
"""Keys that inputs of other types do not have."""
_TAKEN_FIELDS: Final = ("@timestamp", "message", "log")


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """One [[inputs]] table; times are in seconds."""

    type: str = "file"
    id: str = ""
    """The input's name in status and metrics; empty: its first pattern or address."""
    paths: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    topic: str
    format: str = "raw"
    fields: dict[str, Any] = field(default_factory=dict)
    start_position: str = "beginning"
    encoding: str = "utf-8"
    max_line_bytes: int = 500_000
    long_lines: str = "split"
    multiline: Multiline | None = None
    container: str = "off"
    compression: str = "auto"
    order: str = "parallel"
    ignore_older: float | None = None
    close_inactive: float = 300.0
    rotate_wait: float = 5.0
    close_rotated: float = 60.0
    key: str = "none"
    stages: StageConfig = field(default_factory=StageConfig)
    options: Settings | None = None
    """The settings of an input that is no file."""

    @property
    def topics(self) -> tuple[str, ...]:
        """All topics that the input's records may go to."""
        dead = self.stages.dead_letter_topic
        return (self.topic, dead) if dead else (self.topic,)


def read_input(v: Values, table: dict[str, Any], at: str) -> Input:
    """Reads one [[inputs]] table. Raises ConfigError."""
    kind = v.choice(table, at, "type", "file", ("file", *KEYS))
    names = [*(n for n in Input.__dataclass_fields__ if n not in {"options", "stages"}), *STAGE_KEYS]
    if kind != "file":
        names = [*KEYS[kind], *(name for name in names if name not in _OF_FILES)]
    v.known(table, at, tuple(names))
    topic = _topic(v, table, at, "topic")
    form = v.choice(table, at, "format", "raw", ("raw", "json"))
    stages = read_stages(v, table, at, form, lambda key: _topic(v, table, at, key))
    if kind != "file":
        options = read_settings(v, table, at, kind)
        return Input(
            type=kind,
            id=v.text(table, at, "id") if "id" in table else "",
            topic=topic,
            format=form,
            fields=_fields(v, table, at, form),
            max_line_bytes=options.max_message_bytes,
            key=v.choice(table, at, "key", "none", ("none", "path", "host")),
            options=options,
            stages=stages,
        )
    return Input(
        type=kind,
        id=v.text(table, at, "id") if "id" in table else "",
        paths=_patterns(v, at, "paths", v.texts(table, at, "paths")),
        exclude=_patterns(v, at, "exclude", v.texts(table, at, "exclude", default=())),
        topic=topic,
        format=form,
        fields=_fields(v, table, at, form),
        start_position=v.choice(table, at, "start_position", "beginning", ("beginning", "end")),
        encoding=_encoding(v, table, at),
        max_line_bytes=v.number(table, at, "max_line_bytes", 500_000, least=16, most=100_000_000),
        long_lines=v.choice(table, at, "long_lines", "split", ("split", "truncate")),
        multiline=read_multiline(v, table, at),
        container=v.choice(table, at, "container", "off", ("off", *containers.FORMATS)),
        order=v.choice(table, at, "order", "parallel", ("parallel", "oldest_first", "newest_first")),
        compression=v.choice(table, at, "compression", "auto", ("auto", "gzip", "none")),
        ignore_older=v.duration(table, at, "ignore_older", None),
        close_inactive=v.duration(table, at, "close_inactive", 300.0) or 0.0,
        rotate_wait=v.duration(table, at, "rotate_wait", 5.0) or 0.0,
        close_rotated=v.duration(table, at, "close_rotated", 60.0) or 0.0,
        key=v.choice(table, at, "key", "none", ("none", "path", "host")),
        stages=stages,
    )


def _topic(v: Values, table: dict[str, Any], at: str, key: str) -> str:
    topic = v.text(table, at, key)
    if not _TOPIC.fullmatch(topic) or topic in {".", ".."}:
        raise v.error(at, key, f"= {topic!r}: a topic's name has up to 249 letters, digits, '.', '_' and '-'")
    return topic


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


def _encoding(v: Values, table: dict[str, Any], at: str) -> str:
    name = v.text(table, at, "encoding", "utf-8")
    try:
        encodings.encoding(name)
    except ValueError as e:
        raise v.error(at, "encoding", f"= {name!r}: {e}") from None
    return name


def _patterns(v: Values, at: str, key: str, paths: tuple[str, ...]) -> tuple[str, ...]:
    """Makes patterns absolute. Wildcards in the name of the configuration's folder count as plain characters."""
    base = Path(glob.escape(str(v.base.absolute())))
    found = []
    for path in paths:
        if "\0" in path:
            raise v.error(at, key, f"= {path!r}: a path cannot hold NUL")
        try:
            found += [os.path.normpath(base / Path(each).expanduser()) for each in braces(path)]
        except RuntimeError:
            raise v.error(at, key, f"= {path!r}: the home folder cannot be found") from None
    return tuple(found)
