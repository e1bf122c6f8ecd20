"""Settings of the log job, `[query.options]` of a pipeline. Pure: every key is checked, and named when it
cannot be used.
"""

from __future__ import annotations

import re
import zoneinfo
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from klamm_base.errors import ConfigError
from klamm_base.grok import Expanded, Field, GrokError, expand
from klamm_spark.sections import Section, matches, one_of

TYPES: Final = ("grok", "regex", "json", "logfmt", "python", "ecs")
SQL_TYPES: Final = {
    "string": "string", "int": "int", "long": "bigint", "float": "float", "double": "double", "boolean": "boolean",
}  # fmt: skip
UNITS: Final = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
"""Nanoseconds per unit: `event.duration` is in nanoseconds."""
IDENTITIES: Final = ("line", "record")
_INTERVAL: Final = re.compile(r"\d+\s*(milliseconds?|seconds?|minutes?|hours?|days?)")
_NAME: Final = re.compile(r"[a-z][a-z0-9_.]*")
_NAMESPACE: Final = re.compile(r"[a-z0-9][a-z0-9_.]{0,99}")
_FUNCTION: Final = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
_FIELD: Final = re.compile(r"@?[A-Za-z_][A-Za-z0-9_@-]*(?:\.[A-Za-z0-9_@-]+)*")
_OFFSET: Final = re.compile(r"[+-](?:0\d|1[0-7]):[0-5]\d")
_NOT_JAVAS: Final = re.compile(r"\(\?P[<=]")


@dataclass(frozen=True, slots=True)
class Format:
    """One kind of line.

    `when`: a regular expression that lines of this kind contain, a cheap test before the costly one. `rename`:
    field in the line → field of the document. `set`: fields that every such line gets.
    """

    name: str
    type: str
    expanded: Expanded | None = None
    schema: str | None = None
    function: str | None = None
    when: str | None = None
    rename: Mapping[str, str] = field(default_factory=dict)
    set: Mapping[str, str] = field(default_factory=dict)
    target: str = ""
    time_field: str = "timestamp"
    time_format: str | None = None
    time_zone: str = "UTC"
    duration_field: str | None = None
    duration_unit: str = "ms"


@dataclass(frozen=True, slots=True)
class Lookup:
    """A table that events are joined with: `rows`, those of `file` (CSV or JSON lines), or a topic's JSON values,
    latest by key.

    `default`: values of fields whose key the table lacks. `on`: the event's field. `key`: the table's column
    (for a topic without `key`: the record's key). `fields`: column → field.
    """

    on: str
    fields: Mapping[str, str]
    key: str
    file: str | None = None
    topic: str | None = None
    rows: tuple[Mapping[str, Any], ...] = ()
    default: str | None = None
    options: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class LogOptions:
    """The settings, see docs/pipeline.md for each. `late_after` None: every line counts that Spark's watermark
    lets through.
    """

    formats: tuple[Format, ...]
    lookups: tuple[Lookup, ...] = ()
    envelope: bool = True
    namespace: str = "default"
    identity: str = "line"
    id_pattern: str | None = None
    deduplicate: bool = False
    window: str = "10 seconds"
    watermark: str = "10 minutes"
    late_after: str | None = None
    distinct: bool = True
    percentiles: tuple[float, ...] = (50.0, 95.0, 99.0)
    user_agent: bool = True
    original: bool = False


def read_options(data: Mapping[str, Any]) -> LogOptions:
    """Reads the settings. Raises ConfigError."""
    top = Section("query.options", data)
    interval = matches(_INTERVAL, "10 minutes")
    formats = tuple(_format(s) for s in top.sections("formats"))
    if not formats:
        raise ConfigError(
            '[query.options]: name at least one [[query.options.formats]], such as type = "json"',
            key=top.at("formats"),
        )
    names = [f.name for f in formats]
    if twice := {n for n in names if names.count(n) > 1}:
        raise ConfigError(
            f"[[query.options.formats]]: the name {min(twice)} is given twice",
            key=top.at(f"formats[{names.index(min(twice))}].name"),
        )
    options = LogOptions(
        formats=formats,
        lookups=tuple(_lookup(s) for s in top.sections("lookups")),
        envelope=top.flag("envelope", default=True),
        namespace=top.text("namespace", "default", check=matches_name(_NAMESPACE)),
        identity=top.text("identity", "line", check=one_of(IDENTITIES)),
        id_pattern=top.text_or_none("id_pattern", check=_one_group),
        deduplicate=top.flag("deduplicate", default=False),
        window=top.text("window", "10 seconds", check=interval),
        watermark=top.text("watermark", "10 minutes", check=interval),
        late_after=top.text_or_none("late_after", check=interval),
        distinct=top.flag("distinct", default=True),
        percentiles=_percentiles(top.data.get("percentiles", [50, 95, 99])),
        user_agent=top.flag("user_agent", default=True),
        original=top.flag("original", default=False),
    )
    top.asked("percentiles")
    top.done()
    _check_types(options)
    return options


def _format(section: Section) -> Format:
    name = section.text("name", required=True, check=matches_name(_NAME))
    kind = section.text("type", required=True, check=one_of(TYPES))
    time, duration = section.section("time"), section.section("duration")
    found = Format(
        name=name,
        type=kind,
        expanded=_expanded(section, kind),
        schema=section.text_or_none("schema") if kind == "json" else None,
        function=section.text("function", required=True, check=_is_function) if kind == "python" else None,
        when=section.text_or_none("when", check=_is_regex),
        rename=_fields(section, "rename"),
        set=_fields(section, "set", values=False),
        target=section.text("target", name, check=_is_target),
        time_field=time.text("field", "timestamp"),
        time_format=time.text_or_none("format"),
        time_zone=time.text("zone", "UTC", check=_is_zone),
        duration_field=duration.text_or_none("field"),
        duration_unit=duration.text("unit", "ms", check=one_of(tuple(UNITS))),
    )
    for part in (time, duration, section):
        part.done()
    return found


def _expanded(section: Section, kind: str) -> Expanded | None:
    """Expands Grok's expression, or a regular expression with named groups (a grok pattern without references)."""
    if kind not in {"grok", "regex"}:
        return None
    pattern = section.text("pattern", required=True)
    place = section.place("pattern")
    if kind == "regex":
        pattern = re.sub(r"\(\?P<", "(?<", pattern)
        if _NOT_JAVAS.search(pattern):
            raise ConfigError(
                f"{place}: (?P=name) is Python's; Java has no such thing", key=section.at("pattern")
            )
    definitions = {k: str(v) for k, v in section.table("patterns").items()} if kind == "grok" else {}
    try:
        found = expand(pattern, definitions, dialect="java")
    except GrokError as e:
        raise ConfigError(f"{place}: {e}", key=section.at("pattern")) from None
    if not found.fields:
        example = "%{IP:source.ip}" if kind == "grok" else "(?<status>\\d+)"
        raise ConfigError(
            f"{place} captures nothing: name what is to be kept, such as {example}", key=section.at("pattern")
        )
    if kind == "grok":
        return found
    types = section.strings("types")
    if bad := [f"{n} = {t!r}" for n, t in types.items() if t not in SQL_TYPES]:
        raise ConfigError(
            f"{section.place('types')} {bad[0]}: use {', '.join(SQL_TYPES)}", key=section.at("types")
        )
    typed = tuple(Field(f.group, f.name, types.get(f.name, f.type)) for f in found.fields)
    return replace(found, fields=typed)


def _fields(section: Section, key: str, *, values: bool = True) -> dict[str, str]:
    found = section.strings(key)
    for name in found.values() if values else found:
        if not _FIELD.fullmatch(name):
            raise ConfigError(
                f"{section.place(key)}: {name!r} is not a field such as source.ip", key=section.at(key)
            )
    return found


def _lookup(section: Section) -> Lookup:
    file, topic = section.text_or_none("file"), section.text_or_none("topic")
    rows = tuple(s.data for s in section.sections("rows"))
    if [file is None, topic is None, not rows].count(False) != 1:
        raise ConfigError(
            "[[query.options.lookups]]: set file, topic or rows, one of them", key=section.at("file")
        )
    if file is not None and not file.lower().endswith((".csv", ".json", ".jsonl", ".ndjson")):
        raise ConfigError(
            f"[[query.options.lookups]] file = {file!r}: use .csv, .json, .jsonl or .ndjson",
            key=section.at("file"),
        )
    found = Lookup(
        on=section.text("on", required=True),
        fields=_fields(section, "fields"),
        key=section.text("key", required=topic is None),
        file=file,
        topic=topic,
        rows=rows,
        default=section.text_or_none("default"),
        options=section.strings("options"),
    )
    if not found.fields:
        raise ConfigError(
            '[[query.options.lookups]] fields is missing: {COLUMN = "FIELD"}', key=section.at("fields")
        )
    if topic is not None and "kafka.bootstrap.servers" not in found.options:
        raise ConfigError(
            '[[query.options.lookups]] topic needs options."kafka.bootstrap.servers"',
            key=section.at("options"),
        )
    section.done()
    return found


def _percentiles(given: Any) -> tuple[float, ...]:
    if not isinstance(given, list) or not all(
        isinstance(p, (int, float)) and not isinstance(p, bool) and 0 < p < 100 for p in given
    ):
        raise ConfigError(
            f"[query.options] percentiles = {given!r}: use numbers between 0 and 100, such as [50, 99]",
            key="query.options.percentiles",
        )
    return tuple(float(p) for p in given)


def _check_types(options: LogOptions) -> None:
    """Checks that a name has one type: formats share columns."""
    seen: dict[str, tuple[str, str]] = {}
    for n, format_ in enumerate(options.formats):
        for captured in format_.expanded.fields if format_.expanded else ():
            name = format_.rename.get(captured.name, captured.name)
            before = seen.setdefault(name, (captured.type, format_.name))
            if before[0] != captured.type:
                raise ConfigError(
                    f"[[query.options.formats]]: {name} is {before[0]} in {before[1]} and {captured.type} in {format_.name}",
                    key=f"query.options.formats[{n}].pattern",
                )


def matches_name(pattern: re.Pattern[str]) -> Any:
    def check(place: str, value: str) -> None:
        if not pattern.fullmatch(value):
            raise ConfigError(f"{place} = {value!r}: use small letters, digits, _ and .", key=place)

    return check


def _is_target(place: str, value: str) -> None:
    if value and not _FIELD.fullmatch(value):
        raise ConfigError(f'{place} = {value!r}: use the name of a field, or "" for the top level', key=place)


def _is_regex(place: str, value: str) -> None:
    try:
        re.compile(value)
    except re.error as e:
        raise ConfigError(f"{place} = {value!r} is no regular expression: {e}", key=place) from None


def _is_zone(place: str, value: str) -> None:
    try:
        known = bool(_OFFSET.fullmatch(value)) or bool(zoneinfo.ZoneInfo(value).key)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        known = False
    if not known:
        raise ConfigError(f"{place} = {value!r}: use a time zone such as Europe/Berlin or +01:00", key=place)


def _one_group(place: str, value: str) -> None:
    _is_regex(place, value)
    if re.compile(value).groups != 1:
        raise ConfigError(f"{place} = {value!r}: put what is the id into one group (…)", key=place)


def _is_function(place: str, value: str) -> None:
    if not _FUNCTION.fullmatch(value):
        raise ConfigError(f"{place} = {value!r}: write module:function", key=place)
