"""LogTail's keys, and the agent's `Input` that they describe.

The keys are those of an [[inputs]] table of agent.toml, with dots for underscores. The same code reads and checks them;
`settings` takes the tables (parsing, masks) as TOML.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from klamm_base.configdef import ConfigDef, Importance, Type, between, invalid, one_of
from klamm_base.errors import ConfigError as BaseConfigError
from klamm_plugins.errors import ConfigError

if TYPE_CHECKING:
    from klamm_agent.config.inputs import Input

ROOT: Final = "root"
INODE: Final = "inode"
INPUT: Final = "input"
POSITION: Final = "position"
TASKS: Final = "logtail.tasks"
TASK: Final = "logtail.task"

_KINDS: Final = ("file", "journald", "syslog")
_KEYS: Final[tuple[tuple[str, Type, Any, Importance, str], ...]] = (
    ("topic", Type.STRING, None, Importance.HIGH, "The topic that takes the events."),
    ("paths", Type.LIST, None, Importance.HIGH, "Patterns of the files to follow, absolute, with *, ?, [...] and **."),
    ("exclude", Type.LIST, None, Importance.MEDIUM, "Patterns of files that are left out."),
    ("type", Type.STRING, "file", Importance.MEDIUM, "file, journald, or syslog (its listen in settings)."),
    ("format", Type.STRING, "raw", Importance.HIGH, "raw: an event's text. json: an ECS document, as text."),
    ("fields", Type.STRING, None, Importance.MEDIUM, "A JSON object that is added to each document."),
    ("start.position", Type.STRING, "beginning", Importance.MEDIUM, "end: files that are there at the first start are read from their end."),
    ("encoding", Type.STRING, "utf-8", Importance.LOW, "Of the files."),
    ("max.line.bytes", Type.INT, 500_000, Importance.LOW, "Longer lines are split, or cut off."),
    ("long.lines", Type.STRING, "split", Importance.LOW, "What becomes of longer lines: split or truncate."),
    ("multiline", Type.STRING, None, Importance.MEDIUM, "How lines make an event: a preset (python, java, go, ruby), several by commas, or a JSON object with the keys of the agent's multiline table."),
    ("container", Type.STRING, "off", Importance.MEDIUM, "Logs of containers: off, auto, cri or docker."),
    ("order", Type.STRING, "parallel", Importance.LOW, "Which files are read first when there is much to read: parallel, oldest_first or newest_first."),
    ("compression", Type.STRING, "auto", Importance.LOW, "Files that are packed: auto (by content), gzip, or none."),
    ("ignore.older", Type.STRING, None, Importance.LOW, "Files that did not change for this long (24h) are not read until they change."),
    ("close.inactive", Type.STRING, "5m", Importance.LOW, "How long a file is kept open without growth."),
    ("rotate.wait", Type.STRING, "5s", Importance.LOW, "How long a rotated file must be quiet before its last line needs no end."),
    ("close.rotated", Type.STRING, "60s", Importance.LOW, "How long a file that was renamed away or removed is watched."),
    ("key", Type.STRING, "none", Importance.LOW, "Record key: none, path or host."),
    ("settings", Type.STRING, None, Importance.MEDIUM, "Further keys and tables of the input, as TOML: what agent.toml has in an [[inputs]] table."),
)  # fmt: skip
_TOP: Final = re.compile(r"[.\[]")
_NEEDED: Final = {"topic": "topic", "paths": "/*"}
_NOT_IN_TABLE: Final = frozenset({"settings", "fields", "multiline"})


def config_def() -> ConfigDef:
    found = ConfigDef()
    for name, kind, default, importance, documentation in _KEYS:
        validator = one_of(*_KINDS) if name == "type" else None
        found.define(
            name, kind, default, importance=importance, documentation=documentation, validator=validator
        )
    found.define(
        "value.as",
        Type.STRING,
        "string",
        validator=one_of("string", "bytes"),
        importance=Importance.LOW,
        documentation="string: values are text, for StringConverter. bytes: as they are, for ByteArrayConverter.",
    )
    return found.define(
        "scan.interval.ms",
        Type.INT,
        1000,
        validator=between(10),
        importance=Importance.LOW,
        documentation="How often patterns are looked at.",
    )


def parse(props: Mapping[str, str]) -> Input:
    """Reads the input that `props` describe. Raises ConfigError, whose key is the connector's."""
    from klamm_agent.config.inputs import read_input
    from klamm_agent.config.values import Values

    parsed = config_def().parse(props)
    text = parsed["settings"] or ""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as e:
        raise ConfigError(str(invalid("settings", text, f"is not TOML: {e}")), key="settings") from e
    for name, *_ in _KEYS:
        if props.get(name) and name not in _NOT_IN_TABLE:
            table[name.replace(".", "_")] = parsed[name]
    if parsed["fields"]:
        table["fields"] = _object("fields", parsed["fields"])
    if parsed["multiline"]:
        written = parsed["multiline"].strip()
        table["multiline"] = (
            _object("multiline", written)
            if written.startswith("{")
            else [part.strip() for part in written.split(",")]
        )
    for path in (*(parsed["paths"] or ()), *(parsed["exclude"] or ())):
        if not Path(path).is_absolute():
            key = "paths" if path in (parsed["paths"] or ()) else "exclude"
            raise ConfigError(str(invalid(key, path, "An absolute path is expected")), key=key)
    try:
        return read_input(Values("settings", text, Path("/")), table, "")
    except BaseConfigError as e:
        raise _named(e, props) from e


def errors_of(props: Mapping[str, str]) -> Iterator[ConfigError]:
    """Yields the errors of a configuration, a key at a time: it corrects each wrong key to find the next.

    Errors of `settings` come last: the meaning of the others depends on it.
    """
    rest = dict(props)
    for _ in _KEYS:
        try:
            parse(rest)
        except ConfigError as e:
            yield e
            if e.key in _NEEDED and rest.get(e.key) != _NEEDED[e.key] and rest.get("type", "file") == "file":
                rest[e.key] = _NEEDED[e.key]
            elif rest.pop(e.key or "", None) is None or e.key == "settings":
                return
        else:
            return


def _named(error: BaseConfigError, props: Mapping[str, str]) -> ConfigError:
    """Returns the error with the connector's name of the key, and with the line only for a key of `settings`."""
    key = (error.key or "").removeprefix(".")  # "" is the input's table
    dotted = key.replace("_", ".")
    text = str(error).replace("[.", "[", 1)
    if (top := _TOP.split(key)[0].replace("_", ".")) in props:
        text = text.removeprefix("settings: ")
        return ConfigError(dotted + text.removeprefix(key) if text.startswith(key) else text, key=top)
    if not props.get("settings"):
        text = text.removeprefix("settings: ")
        text = dotted + text.removeprefix(key) if text.startswith(key) else text
        return ConfigError(text, key=dotted)
    return ConfigError(text, key="settings")


def _object(key: str, text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ConfigError(str(invalid(key, text, "A JSON object is expected")), key=key)
    return found
