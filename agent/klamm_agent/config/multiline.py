"""`multiline` of an input, checked: `multiline = "python"`, a list of presets, or a table."""

from __future__ import annotations

from typing import Any, Final

from klamm_agent.config.values import Values
from klamm_agent.framing.multiline import PRESETS, Multiline, expression

_KEYS: Final = ("preset", "pattern", "negate", "match", "flush_pattern", "max_lines", "timeout")


def read_multiline(v: Values, table: dict[str, Any], at: str) -> Multiline | None:
    """Reads `multiline` of an input; None when the input has none. Raises ConfigError."""
    found = table.get("multiline")
    if found is None:
        return None
    if isinstance(found, (str, list)):
        return Multiline(presets=_presets(v, {"multiline": found}, at, "multiline"))
    if not isinstance(found, dict):
        raise v.error(at, "multiline", f'= {found!r}: a preset such as "python", or a table is expected')
    place = f"{at}.multiline"
    v.known(found, place, _KEYS)
    if ("preset" in found) == ("pattern" in found):
        raise v.error(place, "pattern", f"or preset ({', '.join(PRESETS)}) is expected, one of the two")
    presets: tuple[str, ...] = ()
    pattern = ""
    if "preset" in found:
        presets = _presets(v, found, place, "preset")
        for key in ("negate", "match", "flush_pattern"):
            if key in found:
                raise v.error(place, key, "has an effect with pattern only")
    else:
        pattern = _pattern(v, found, place, "pattern")
    return Multiline(
        presets=presets,
        pattern=pattern,
        negate=v.flag(found, place, "negate", default=False),
        match=v.choice(found, place, "match", "after", ("after", "before")),
        flush_pattern=_pattern(v, found, place, "flush_pattern") if "flush_pattern" in found else "",
        max_lines=v.number(found, place, "max_lines", 500, least=2, most=1_000_000),
        timeout=v.duration(found, place, "timeout", 5.0) or 0.0,
    )


def _pattern(v: Values, table: dict[str, Any], at: str, key: str) -> str:
    text = v.text(table, at, key)
    try:
        expression(text)
    except ValueError as e:
        raise v.error(at, key, f"= {text!r} is no regular expression: {e}") from None
    return text


def _presets(v: Values, table: dict[str, Any], at: str, key: str) -> tuple[str, ...]:
    value = table[key]
    names = (value,) if isinstance(value, str) else v.texts(table, at, key)
    for name in names:
        if name not in PRESETS:
            raise v.error(at, key, f"= {name!r}: presets are {', '.join(PRESETS)}")
    if not names:
        raise v.error(at, key, "is empty: at least one preset is expected")
    return tuple(names)
