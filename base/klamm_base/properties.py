"""Configuration as Kafka's users write it: `.properties` files, environment, `--override` flags.

A `Properties` is a mapping of strings in which every value knows its origin (`server.properties:12`), so that an
error can name it. Later layers win: file < environment < flags. Parsing follows java.util.Properties (comments,
continuation lines, escapes). Files are read as UTF-8; a file that is no UTF-8 is read as ISO-8859-1, as Java
does.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from klamm_base.configdef import ConfigDef, parse_key
from klamm_base.errors import ConfigError

log = logging.getLogger(__name__)

ENV_PREFIX: Final = "KLAMM_"
# Settings of Klamm's own commands, not properties of a broker or a worker.
ENV_RESERVED: Final = frozenset(
    {
        "KLAMM_AUDIT_LOG",
        "KLAMM_BOOTSTRAP_SERVER",
        "KLAMM_DEBUG",
        "KLAMM_JAVA_DIR",
        "KLAMM_LAG_TOKEN",
        "KLAMM_LAG_URL",
        "KLAMM_LAG_USER",
        "KLAMM_LOG_LEVEL",
        "KLAMM_PROFILE",
        "KLAMM_REST_CACERT",
        "KLAMM_REST_PASSWORD",
        "KLAMM_REST_TOKEN",
        "KLAMM_REST_URL",
        "KLAMM_REST_USER",
        "KLAMM_SPARK_DIR",
        "KLAMM_SPARK_KAFKA_DIR",
        "KLAMM_SQL_URL",
        "KLAMM_TEST_BOOTSTRAP",
    }
)

_ENVIRONMENT: Final = "environment "
_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class Properties(Mapping[str, str]):
    """String values by key; `source(key)` is a value's origin. Immutable: layering makes a new mapping."""

    def __init__(
        self, values: Mapping[str, str] | None = None, sources: Mapping[str, str] | None = None
    ) -> None:
        self._values = dict(values or {})
        self._sources = dict(sources or {})

    def __getitem__(self, key: str) -> str:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def source(self, key: str) -> str | None:
        """Returns `file:line`, `environment NAME` or `--override`; None when the value came from code."""
        return self._sources.get(key)

    def over(self, values: Mapping[str, str], source: str | None = None) -> Properties:
        """Returns a copy with a new layer on top. `source` is the origin of plain mappings."""
        sources = dict(self._sources)
        for key in values:
            origin = values.source(key) if isinstance(values, Properties) else source
            if origin is None:
                sources.pop(key, None)
            else:
                sources[key] = origin
        return Properties({**self._values, **values}, sources)


def load_properties(path: Path | str) -> Properties:
    """Reads a `.properties` file. Raises ConfigError naming file and line; warns about a key that is given twice."""
    path = Path(path)
    try:
        data = path.read_bytes()
    except OSError as e:
        from klamm_base.unreadable import why_unreadable

        raise ConfigError(why_unreadable(path, e), source=str(path)) from None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as e:
        at = data.count(b"\n", 0, e.start) + 1
        log.warning("%s:%d: not UTF-8; the file is read as ISO-8859-1", path, at)
        text = data.decode("iso-8859-1")
    values: dict[str, str] = {}
    sources: dict[str, str] = {}
    for where, key, value in entries(text, f"{path}:"):
        if key in values:
            log.warning("%s: %s was already set at %s; the later value counts", where, key, sources[key])
        values[key], sources[key] = value, where
    return Properties(values, sources)


def entries(text: str, place: str) -> Iterator[tuple[str, str, str]]:
    """Yields where it stands (`place` and the line), key and value of each entry. Raises ConfigError."""
    for number, line in _logical_lines(text):
        where = f"{place}{number}"
        yield where, *_split(line, where)


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yields (number of its first line, text) of each entry: comments dropped, continuation lines joined."""
    joined, start = "", 0
    for number, raw in enumerate(re.split(r"\r\n|\r|\n", text), 1):
        line = raw.lstrip(" \t\f")
        if not joined:
            if not line or line[0] in "#!":
                continue
            start = number
        tail = len(line) - len(line.rstrip("\\"))
        if tail % 2:
            joined += line[:-1]
            continue
        yield start, joined + line
        joined = ""
    if joined:
        yield start, joined


def _split(line: str, where: str) -> tuple[str, str]:
    end = 0
    while end < len(line) and line[end] not in "=: \t\f":
        end += 2 if line[end] == "\\" else 1
    rest = line[end:].lstrip(" \t\f")
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(" \t\f")
    return _unescape(line[:end], where), _unescape(rest, where)


def _unescape(text: str, where: str) -> str:
    if "\\" not in text:
        return text
    out, i = [], 0
    while i < len(text):
        if text[i] != "\\":
            out.append(text[i])
            i += 1
            continue
        mark = text[i + 1 : i + 2]
        if mark == "u":
            digits = text[i + 2 : i + 6]
            if not re.fullmatch(r"[0-9a-fA-F]{4}", digits):
                raise ConfigError(f"\\u{digits}: four hexadecimal digits must follow \\u", source=where)
            out.append(chr(int(digits, 16)))
            i += 6
        else:
            out.append(_ESCAPES.get(mark, mark))
            i += 2
    # two \u escapes of a surrogate pair are one character
    return "".join(out).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def from_environment(environ: Mapping[str, str] | None = None, *, prefix: str = ENV_PREFIX) -> Properties:
    """Returns properties named as in apache/kafka's image: KLAMM_LOG_RETENTION_MS is log.retention.ms.

    `_` stands for `.`, `__` for `_`, `___` for `-`.
    """
    environ = os.environ if environ is None else environ
    values, sources = {}, {}
    for name in sorted(environ):
        if name.startswith(prefix) and name not in ENV_RESERVED and len(name) > len(prefix):
            key = re.sub("_+", _environment_separator, name[len(prefix) :].lower())
            values[key], sources[key] = environ[name], f"{_ENVIRONMENT}{name}"
    return Properties(values, sources)


def is_from_environment(source: str | None) -> bool:
    """Returns whether a value with this source came from the environment.

    All processes share the environment: an unknown name there may be meant for another process, so it is no mistake
    by itself.
    """
    return source is not None and source.startswith(_ENVIRONMENT)


def _environment_separator(match: re.Match[str]) -> str:
    return {"_": ".", "__": "_", "___": "-"}.get(match[0], match[0])


def from_overrides(overrides: Iterable[str]) -> Properties:
    """Returns the `key=value` words of `--override`. Raises ConfigError for a word without `=`."""
    values = {}
    for word in overrides:
        key, equals, value = word.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"{word!r} is not key=value", source="--override")
        values[key.strip()] = value.strip()
    return Properties().over(values, "--override")


def layered(path: Path | str | None, overrides: Iterable[str] = ()) -> Properties:
    """Returns a server's properties: the file (if any), then the environment, then `--override`s."""
    base = load_properties(path) if path is not None else Properties()
    return base.over(from_environment()).over(from_overrides(overrides))


def parse(definition: ConfigDef, props: Mapping[str, str]) -> dict[str, Any]:
    """Returns typed values. Raises ConfigError that lists every bad value with its source, not only the first."""
    values: dict[str, Any] = {}
    problems: list[ConfigError] = []
    for key in definition:
        try:
            values[key.name] = parse_key(key, props)
        except ConfigError as e:
            source = props.source(key.name) if isinstance(props, Properties) else None
            problems.append(ConfigError(str(e), key=key.name, source=source))
    raise_all(problems)
    return values


def raise_all(problems: Sequence[ConfigError]) -> None:
    """Raises the only problem as it is, or one ConfigError with a line for each."""
    if len(problems) == 1:
        raise problems[0]
    if problems:
        raise ConfigError("\n".join(str(p) for p in problems))


def suggestion(name: str, known: Iterable[str]) -> str:
    """Returns `; did you mean X?` for a name that looks like a known name, else an empty text."""
    names = list(known)
    swapped = [each for each in names if sorted(each) == sorted(name)]  # fiel: its ratio to file is low
    import difflib  # takes milliseconds, and is for errors only

    near = swapped or difflib.get_close_matches(name, names, n=1, cutoff=0.8)
    return f"; did you mean {near[0]}?" if near else ""
