"""The keys of [[inputs]] for stages: filters, masks, parsing, names; checked when the file is read."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from klamm_agent.config.values import Values
from klamm_agent.stages.mask import PRESETS, Mask
from klamm_agent.stages.parse import Parser
from klamm_agent.stages.timestamps import Times
from klamm_base.errors import KlammError
from klamm_base.grok import TYPES, parse_definitions

KEYS: Final = (
    "include_lines", "exclude_lines", "mask", "parse", "timestamp", "level", "ecs", "original", "rename", "remove",
    "dead_letter_topic",
)  # fmt: skip
KINDS: Final = ("json", "logfmt", "regex", "grok", "dissect")
_OF_DOCUMENTS: Final = ("parse", "timestamp", "level", "original", "rename", "remove", "dead_letter_topic")
_NAME: Final = re.compile(r"@?[^.\s]+(?:\.[^.\s]+)*")


@dataclass(frozen=True, slots=True, kw_only=True)
class ParseStep:
    """One [[inputs.parse]]."""

    kind: str
    parser: Parser
    field: str = "message"
    target: str = ""
    on_error: str = "keep"
    types: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Timestamp:
    """[inputs.timestamp]: the field that holds the event's time."""

    field: str
    times: Times


@dataclass(frozen=True, slots=True, kw_only=True)
class StageConfig:
    """The stages that one input asks for; empty: none."""

    include_lines: tuple[str, ...] = ()
    exclude_lines: tuple[str, ...] = ()
    masks: tuple[Mask, ...] = ()
    parse: tuple[ParseStep, ...] = ()
    timestamp: Timestamp | None = None
    level: str = ""
    ecs: bool = True
    original: bool = False
    rename: tuple[tuple[str, str], ...] = ()
    remove: tuple[str, ...] = ()
    dead_letter_topic: str = ""


def read_stages(
    v: Values, table: dict[str, Any], at: str, form: str, topic: Callable[[str], str]
) -> StageConfig:
    """Reads the stage keys of one [[inputs]] table; `topic` checks a topic's name. Raises ConfigError."""
    for key in _OF_DOCUMENTS:
        if key in table and form != "json":
            raise v.error(at, key, 'has an effect with format = "json" only: raw lines stay as they are')
    steps = _steps(v, table, at)
    dead = topic("dead_letter_topic") if "dead_letter_topic" in table else ""
    for i, step in enumerate(steps):
        if step.on_error == "dead_letter" and not dead:
            raise v.error(
                at, "dead_letter_topic", f'is missing: [{at}.parse[{i}]] has on_error = "dead_letter"'
            )
    return StageConfig(
        include_lines=_expressions(v, table, at, "include_lines"),
        exclude_lines=_expressions(v, table, at, "exclude_lines"),
        masks=tuple(_mask(v, t, place, form) for t, place in v.tables(table, "mask", at)),
        parse=steps,
        timestamp=_timestamp(v, table, at),
        level=_field(v, table, at, "level", ""),
        ecs=v.flag(table, at, "ecs", default=True),
        original=v.flag(table, at, "original", default=False),
        rename=_names(v, table, at, "rename"),
        remove=v.texts(table, at, "remove", default=()),
        dead_letter_topic=dead,
    )


def _expressions(v: Values, table: dict[str, Any], at: str, key: str) -> tuple[str, ...]:
    found = v.texts(table, at, key, default=())
    for pattern in found:
        _compiled(v, at, key, pattern)
    return found


def _compiled(v: Values, at: str, key: str, pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as e:
        raise v.error(at, key, f"= {pattern!r}: not a regular expression: {e}") from None


def _mask(v: Values, table: dict[str, Any], at: str, form: str) -> Mask:
    v.known(table, at, ("pattern", "preset", "fields", "replacement", "hash_key"))
    given = [k for k in ("pattern", "preset", "fields") if k in table]
    if len(given) != 1:
        raise v.error(
            at,
            "pattern",
            f"or preset or fields: one of them is expected, not {' and '.join(given) or 'none'}",
        )
    pattern = v.text(table, at, "pattern") if "pattern" in table else ""
    replacement = table.get("replacement", "***")
    if not isinstance(replacement, str):
        raise v.error(at, "replacement", f"= {replacement!r}: a text is expected")
    if pattern:
        _compiled(v, at, "pattern", pattern)
        try:
            re.sub(f"{pattern}|", replacement, "")  # the empty match makes `re` read the replacement
        except (re.error, IndexError) as e:
            raise v.error(at, "replacement", f"= {replacement!r}: {e}") from None
    if "fields" in table and form != "json":
        raise v.error(at, "fields", 'has an effect with format = "json" only')
    return Mask(
        pattern=pattern,
        preset=v.choice(table, at, "preset", "", tuple(PRESETS)) if "preset" in table else "",
        fields=v.texts(table, at, "fields", default=()),
        replacement=replacement,
        hash_key=v.text(table, at, "hash_key") if "hash_key" in table else "",
    )


def _steps(v: Values, table: dict[str, Any], at: str) -> tuple[ParseStep, ...]:
    found = table.get("parse", [])
    if isinstance(found, str):  # the short form: parse = "json"
        found = {"type": found}
    if isinstance(found, dict):
        return (_step(v, found, f"{at}.parse"),)
    return tuple(_step(v, t, place) for t, place in v.tables(table, "parse", at))


def _step(v: Values, table: dict[str, Any], at: str) -> ParseStep:
    if "type" not in table:
        raise v.error(at, "type", f"is missing: one of {', '.join(KINDS)}")
    kind = v.choice(table, at, "type", "", KINDS)
    own = {
        "grok": ("patterns", "pattern", "definitions", "pattern_files"),
        "regex": ("patterns", "pattern"),
        "dissect": ("pattern", "append_separator"),
    }.get(kind, ())
    v.known(table, at, ("type", "field", "target", "on_error", "types", *own))
    types = _names(v, table, at, "types")
    for name, to in types:
        if to not in TYPES:
            raise v.error(at, "types", f"says {name} = {to!r}: one of {', '.join(TYPES)} is expected")
    return ParseStep(
        kind=kind,
        parser=_parser(v, table, at, kind),
        field=_field(v, table, at, "field", "message"),
        target=_field(v, table, at, "target", ""),
        on_error=v.choice(table, at, "on_error", "keep", ("keep", "drop", "dead_letter")),
        types=types,
    )


def _parser(v: Values, table: dict[str, Any], at: str, kind: str) -> Parser:
    from klamm_agent.stages.parse.dissect import DissectParser
    from klamm_agent.stages.parse.json import JsonParser
    from klamm_agent.stages.parse.logfmt import LogfmtParser
    from klamm_agent.stages.parse.pattern import PatternParser

    try:
        match kind:
            case "json":
                return JsonParser()
            case "logfmt":
                return LogfmtParser()
            case "dissect":
                separator = table.get("append_separator", " ")
                if not isinstance(separator, str):
                    raise v.error(at, "append_separator", f"= {separator!r}: a text is expected")
                return DissectParser(v.text(table, at, "pattern"), separator)
            case _:
                key = "patterns" if "patterns" in table else "pattern"
                patterns = v.texts(table, at, key) if key == "patterns" else (v.text(table, at, key),)
                if kind == "regex":
                    return PatternParser(patterns, grok=False)
                return PatternParser(patterns, _definitions(v, table, at))
    except KlammError as e:
        if e.__class__.__name__ == "ConfigError":
            raise
        raise v.error(at, "patterns" if "patterns" in table else "pattern", f"cannot be used: {e}") from None


def _definitions(v: Values, table: dict[str, Any], at: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for name in v.texts(table, at, "pattern_files", default=()):
        path = v.base / Path(name).expanduser()
        try:
            found |= parse_definitions(path.read_text(encoding="utf-8"), str(path))
        except (OSError, UnicodeDecodeError) as e:
            why = e.strerror if isinstance(e, OSError) else "it is not UTF-8"
            raise v.error(at, "pattern_files", f"= {name!r}: cannot be read: {why}") from None
    return found | dict(_names(v, table, at, "definitions"))


def _timestamp(v: Values, table: dict[str, Any], at: str) -> Timestamp | None:
    if "timestamp" not in table:
        return None
    inner, place = v.table(table, "timestamp", at), f"{at}.timestamp"
    v.known(inner, place, ("field", "format", "formats", "timezone"))
    key = "formats" if "formats" in inner else "format"
    formats = v.texts(inner, place, key) if key == "formats" else (v.text(inner, place, key, "auto"),)
    zone = v.text(inner, place, "timezone", "local")
    try:
        times = Times(formats, zone)
    except KlammError as e:
        raise v.error(place, "timezone" if "time zone" in str(e) else key, f"cannot be used: {e}") from None
    return Timestamp(field=_field(v, inner, place, "field", "timestamp"), times=times)


def _field(v: Values, table: dict[str, Any], at: str, key: str, default: str) -> str:
    if key not in table:
        return default
    name = v.text(table, at, key)
    if not _NAME.fullmatch(name):
        raise v.error(at, key, f"= {name!r}: a field such as message or log.level is expected")
    return name


def _names(v: Values, table: dict[str, Any], at: str, key: str) -> tuple[tuple[str, str], ...]:
    """Reads a table of texts. TOML reads `a.b = "c"` as a table in a table: this joins the names again."""
    from klamm_agent.config.values import dotted

    found = v.table(table, key, at)
    pairs = dotted(found)
    for name, value in pairs:
        if not isinstance(value, str) or not value:
            raise v.error(at, key, f"says {name} = {value!r}: a text is expected")
    return tuple(pairs)
