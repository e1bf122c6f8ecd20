"""agent.toml: the inputs, the producer and the agent's own settings, checked.

Every error is one sentence with the file, the line and the key; a key that nobody knows is one too.
"""

from __future__ import annotations

import difflib
import glob
import os
import re
import socket
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from klamm_base.errors import ConfigError

_TOPIC: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_TABLE: Final = re.compile(r"\s*\[(\[?)\s*([\w.\"-]+)\s*\]")
_KEY: Final = re.compile(r"\s*\"?([\w.-]+)\"?\s*=")
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)")
_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_TAKEN_FIELDS: Final = ("@timestamp", "message", "log")
_OURS: Final = {
    "bootstrap.servers": "it is bootstrap_servers at the top of the file",
    "acks": "checkpoints count on acks=all",
    "enable.idempotence": "it is always on: records keep their order and come once while the agent runs",
    "transactional.id": "the agent delivers at least once, without transactions",
    "delivery.timeout.ms": "the agent waits for the broker for as long as it takes",
    "message.timeout.ms": "the agent waits for the broker for as long as it takes",
    "buffer.memory": "it is queue_bytes at the top of the file",
    "queue.buffering.max.kbytes": "it is queue_bytes at the top of the file",
    "queue.buffering.max.messages": "it is queue_bytes at the top of the file",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """One [[inputs]] table; times in seconds."""

    paths: tuple[str, ...]
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


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentConfig:
    """A checked agent.toml. `producer` holds librdkafka's names."""

    bootstrap_servers: str
    state_dir: Path
    inputs: tuple[Input, ...]
    producer: dict[str, Any]
    queue_bytes: int = 64 * 1024 * 1024
    agent_id: str = ""
    scan_interval: float = 1.0
    ignored: tuple[tuple[str, str], ...] = ()

    @classmethod
    def load(cls, path: Path) -> AgentConfig:
        """Raises ConfigError."""
        try:
            text = path.read_text(encoding="utf-8")
            document = tomllib.loads(text)
        except OSError as e:
            raise ConfigError(f"cannot be read: {e.strerror}", source=str(path)) from e
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as e:
            raise ConfigError(f"is not TOML: {e}", source=str(path)) from e
        return _Reader(str(path), text, path.parent).agent(document)


class _Reader:
    """Takes values out of the document. `source` of an error is `agent.toml:12`."""

    def __init__(self, name: str, text: str, base: Path) -> None:
        self._name, self._base = name, base
        self._lines = _key_lines(text)

    def _servers(self, document: dict[str, Any]) -> str:
        text = self._text(document, "", "bootstrap_servers")
        for item in text.split(","):
            host, colon, port = item.strip().rpartition(":")
            if not colon or not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
                raise self._error("", "bootstrap_servers", f"= {text!r}: {item.strip()!r} is not host:port")
        return text

    def agent(self, document: dict[str, Any]) -> AgentConfig:
        self._known(
            document, "", ("bootstrap_servers", "state_dir", "queue_bytes", "inputs", "producer", "agent")
        )
        tables = document.get("inputs")
        if not isinstance(tables, list) or not tables or not all(isinstance(t, dict) for t in tables):
            raise self._error("", "inputs", "is missing: at least one [[inputs]] table with paths and topic")
        producer = self._table(document, "producer")
        agent = self._table(document, "agent")
        self._known(agent, "agent", ("id", "scan_interval_ms"))
        config, ignored = self._producer(producer)
        return AgentConfig(
            bootstrap_servers=self._servers(document),
            state_dir=self._base / self._text(document, "", "state_dir"),
            queue_bytes=self._number(document, "", "queue_bytes", 64 * 1024 * 1024, least=1024 * 1024),
            inputs=tuple(self._input(t, f"inputs[{i}]") for i, t in enumerate(tables)),
            producer=config,
            ignored=ignored,
            agent_id=self._text(agent, "agent", "id", socket.gethostname()),
            scan_interval=self._number(agent, "agent", "scan_interval_ms", 1000, least=10) / 1000,
        )

    def _input(self, table: dict[str, Any], at: str) -> Input:
        kind = self._choice(table, at, "type", "file", ("file",))
        self._known(table, at, ("type", *Input.__dataclass_fields__))
        assert kind == "file", "the only kind"
        topic = self._text(table, at, "topic")
        if not _TOPIC.fullmatch(topic) or topic in {".", ".."}:
            raise self._error(
                at, "topic", f"= {topic!r}: a topic's name has up to 249 letters, digits, '.', '_' and '-'"
            )
        form = self._choice(table, at, "format", "raw", ("raw", "json"))
        return Input(
            paths=self._patterns(at, "paths", self._texts(table, at, "paths")),
            exclude=self._patterns(at, "exclude", self._texts(table, at, "exclude", default=())),
            topic=topic,
            format=form,
            fields=self._fields(table, at, form),
            start_position=self._choice(table, at, "start_position", "beginning", ("beginning", "end")),
            encoding=self._encoding(table, at, form),
            max_line_bytes=self._number(table, at, "max_line_bytes", 500_000, least=16, most=100_000_000),
            ignore_older=self._duration(table, at, "ignore_older", None),
            close_inactive=self._duration(table, at, "close_inactive", 300.0) or 0.0,
            rotate_wait=self._duration(table, at, "rotate_wait", 5.0) or 0.0,
            close_rotated=self._duration(table, at, "close_rotated", 60.0) or 0.0,
            key=self._choice(table, at, "key", "none", ("none", "path", "host")),
        )

    def _fields(self, table: dict[str, Any], at: str, form: str) -> dict[str, Any]:
        found = table.get("fields", {})
        if not isinstance(found, dict):
            raise self._error(
                at, "fields", f'= {found!r}: a table such as {{ service = "shop" }} is expected'
            )
        if found and form != "json":
            raise self._error(at, "fields", 'has an effect with format = "json" only')
        for name, value in found.items():
            if name in _TAKEN_FIELDS:
                raise self._error(at, "fields", f"names {name!r}, which the agent sets itself")
            if not _is_json(value):
                raise self._error(
                    at, "fields", f"holds {name} = {value}, which JSON cannot express; write it as text"
                )
        return found

    def _encoding(self, table: dict[str, Any], at: str, form: str) -> str:
        encoding = self._text(table, at, "encoding", "utf-8")
        try:
            usable = "\n\r{}".encode(encoding) == b"\n\r{}" and b"\n".decode(encoding) == "\n"
        except (LookupError, UnicodeError):
            raise self._error(at, "encoding", f"= {encoding!r}: no such encoding is known") from None
        if not usable:
            raise self._error(
                at,
                "encoding",
                f"= {encoding!r}: only encodings in which a line ends with the one byte 0A can be read",
            )
        if (
            form == "raw"
            and "encoding" in table
            and encoding.lower().replace("_", "-") not in {"utf-8", "utf8"}
        ):
            raise self._error(
                at,
                "encoding",
                f'= {encoding!r} has an effect with format = "json" only: raw lines stay as they are',
            )
        return encoding

    def _producer(self, table: dict[str, Any]) -> tuple[dict[str, Any], tuple[tuple[str, str], ...]]:
        from klamm_base.clientconfig import translate

        props = {}
        for name, value in _dotted(table):
            if name in _OURS:
                raise self._error("producer", name, f"cannot be set: {_OURS[name]}")
            if isinstance(value, (dict, list)):
                raise self._error("producer", name, "must be a text, a number, true or false")
            props[name] = str(value).lower() if isinstance(value, bool) else str(value)
        try:
            translated = translate(props, "producer")
        except ConfigError as e:
            line = self._lines.get(("producer", e.key or ""))
            raise ConfigError(
                str(e), key=e.key, source=f"{self._name}:{line}" if line else self._name
            ) from None
        return translated.config, tuple(translated.ignored)

    def _patterns(self, at: str, key: str, paths: tuple[str, ...]) -> tuple[str, ...]:
        """Absolute ones; the folder of the configuration is no pattern, whatever its name holds."""
        base = Path(glob.escape(str(self._base.absolute())))
        found = []
        for path in paths:
            if "\0" in path:
                raise self._error(at, key, f"= {path!r}: a path cannot hold NUL")
            try:
                found.append(os.path.normpath(base / Path(path).expanduser()))
            except RuntimeError:
                raise self._error(at, key, f"= {path!r}: the home folder cannot be found") from None
        return tuple(found)

    def _table(self, document: dict[str, Any], name: str) -> dict[str, Any]:
        found = document.get(name, {})
        if not isinstance(found, dict):
            raise self._error("", name, f"must be a table: [{name}]")
        return found

    def _text(self, table: dict[str, Any], at: str, key: str, default: str | None = None) -> str:
        value = table.get(key, default)
        if value is None:
            raise self._error(at, key, "is missing")
        if not isinstance(value, str) or not value:
            raise self._error(at, key, f"= {value!r}: a text is expected")
        return value

    def _texts(
        self, table: dict[str, Any], at: str, key: str, default: tuple[str, ...] | None = None
    ) -> tuple[str, ...]:
        value = table.get(key, default)
        if value is None:
            raise self._error(at, key, "is missing")
        if isinstance(value, str):
            raise self._error(at, key, f'= {value!r}: a list is expected: ["{value}"]')
        if not isinstance(value, (list, tuple)) or not all(isinstance(v, str) and v for v in value):
            raise self._error(at, key, f"= {value!r}: a list of texts is expected")
        if not value and default is None:
            raise self._error(at, key, "is empty: at least one path or pattern is expected")
        return tuple(value)

    def _number(
        self, table: dict[str, Any], at: str, key: str, default: int, *, least: int, most: int = 1 << 40
    ) -> int:
        value = table.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise self._error(at, key, f"= {value!r}: a whole number from {least} to {most} is expected")
        return value

    def _duration(self, table: dict[str, Any], at: str, key: str, default: float | None) -> float | None:
        value = table.get(key)
        if value is None:
            return default
        match = _DURATION.fullmatch(value) if isinstance(value, str) else None
        if match is None:
            raise self._error(
                at, key, f'= {value!r}: a time such as "500ms", "30s", "5m", "24h" or "7d" is expected'
            )
        return float(match[1]) * _UNITS[match[2]]

    def _choice(
        self, table: dict[str, Any], at: str, key: str, default: str, choices: tuple[str, ...]
    ) -> str:
        value = table.get(key, default)
        if value not in choices:
            raise self._error(at, key, f"= {value!r}: one of {', '.join(choices)} is expected")
        return str(value)

    def _known(self, table: Mapping[str, Any], at: str, names: tuple[str, ...]) -> None:
        for key in table:
            if key not in names:
                near = difflib.get_close_matches(key, names, 1)
                hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(names)}"
                raise self._error(at, key, f"is not a setting; {hint}")

    def _error(self, at: str, key: str, what: str) -> ConfigError:
        line = self._lines.get((at, key)) or self._lines.get((at, ""))
        where = f"[{at}] {key}" if at else key
        return ConfigError(
            f"{where} {what}",
            key=f"{at}.{key}" if at else key,
            source=f"{self._name}:{line}" if line else self._name,
        )


def _is_json(value: Any) -> bool:
    if isinstance(value, dict):
        return all(map(_is_json, value.values()))
    if isinstance(value, list):
        return all(map(_is_json, value))
    if isinstance(value, float):
        return value - value == 0  # neither infinite nor not a number
    return isinstance(value, (str, int, bool))


def _dotted(table: dict[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """`linger.ms = 5` without quotes is a table in a table to TOML: names are put together again."""
    found: list[tuple[str, Any]] = []
    for key, value in table.items():
        if isinstance(value, dict):
            found += _dotted(value, f"{prefix}{key}.")
        else:
            found.append((prefix + key, value))
    return found


def _key_lines(text: str) -> dict[tuple[str, str], int]:
    """Line number by (table, key), as tomllib tells none; the key of a table's own line is empty."""
    lines: dict[tuple[str, str], int] = {}
    table, count = "", {}  # type: ignore[var-annotated]
    for number, line in enumerate(text.splitlines(), 1):
        if match := _TABLE.match(line):
            table = match[2]
            if match[1]:
                count[table] = count.get(table, -1) + 1
                table = f"{table}[{count[table]}]"
            lines.setdefault((table, ""), number)
        elif match := _KEY.match(line):
            lines.setdefault((table, match[1]), number)
    return lines
