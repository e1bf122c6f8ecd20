"""Templates, and how values are written in them. Every value is escaped by Jinja."""

from __future__ import annotations

import datetime as dt
import functools
import hashlib
import json
import time
from importlib.resources import files
from typing import Any, Final
from urllib.parse import quote, urlencode

import jinja2

from klamm_base.version import __version__

NOT_KNOWN: Final = "\N{EN DASH}"
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_AGES: Final = (
    (86400 * 2, 86400, "days"),
    (3600 * 2, 3600, "hours"),
    (120, 60, "minutes"),
    (0, 1, "seconds"),
)


def size(number: float | None) -> str:
    """Returns `1.5 MiB`; a dash for what is not known."""
    if number is None:
        return NOT_KNOWN
    value = float(number)
    for unit in _UNITS:
        if abs(value) < 1024 or unit == _UNITS[-1]:
            return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"
        value /= 1024
    raise AssertionError("the last unit takes everything")


def number(value: float | None) -> str:
    """Returns `1,234,567`; a dash for what is not known."""
    if value is None:
        return NOT_KNOWN
    return f"{value:,.0f}" if float(value).is_integer() or abs(value) >= 1000 else f"{value:,.2f}"


def moment(ms: float | None) -> str:
    """Returns `2026-01-31 23:59:59.123`, in UTC."""
    if ms is None or ms < 0:
        return NOT_KNOWN
    try:
        found = dt.datetime.fromtimestamp(ms / 1000, dt.UTC)
    except (ValueError, OverflowError, OSError):
        return str(ms)
    return found.strftime("%Y-%m-%d %H:%M:%S.") + f"{int(ms) % 1000:03d}"


def ago(ms: float | None) -> str:
    """Returns `5 minutes ago`."""
    return NOT_KNOWN if ms is None else f"{lasting(time.time() * 1000 - ms)} ago"


def lasting(ms: float | None) -> str:
    """Returns `5 minutes`."""
    if ms is None:
        return NOT_KNOWN
    seconds = max(0.0, ms / 1000)
    for least, unit_s, name in _AGES:
        if seconds >= least:
            return f"{seconds / unit_s:.0f} {name}"
    return ""


def counted(value: float, noun: str, many: str = "") -> str:
    """Returns `1 record`, `2,000 records`."""
    return f"{number(value)} {noun if value == 1 else many or noun + 's'}"


_GOOD: Final = frozenset({"RUNNING", "Stable", "ready", "healthy", "good", "PROMOTED", "OK"})
_BAD: Final = frozenset(
    {
        "FAILED",
        "Dead",
        "broken",
        "failed",
        "unhealthy",
        "bad",
        "NOT RUNNING",
        "SILENT",
        "unreachable",
        "ERR",
        "STOP",
        "STALL",
        "REWIND",
    }
)
_IDLE: Final = frozenset({"PAUSED", "STOPPED", "Empty", "UNASSIGNED"})


def tone(state: str | None) -> str:
    """Returns the class of a state: good, bad, idle or busy. The word itself is always shown beside the colour."""
    if state in _GOOD:
        return "good"
    if state in _BAD:
        return "bad"
    return "idle" if state in _IDLE else "busy"


def in_path(value: object) -> str:
    """Returns a name as a part of a path."""
    return quote(str(value), safe="")


def query(given: dict[str, Any], **changed: Any) -> str:
    """Returns `?a=b`, from the present parameters with some changed; None and "" leave a parameter out."""
    merged = {k: v for k, v in {**given, **changed}.items() if v not in (None, "")}
    return "?" + urlencode(merged, doseq=True) if merged else "?"


def pretty_json(value: Any) -> str:
    """Returns JSON with line breaks."""
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)


@functools.cache
def asset_version() -> str:
    """Returns a word that changes with the assets, for their URLs: browsers keep them until then."""
    digest = hashlib.sha256(__version__.encode())
    for name in ("console.css", "console.js"):
        digest.update(files("klamm.console").joinpath("static", name).read_bytes())
    return digest.hexdigest()[:12]


@functools.cache
def environment() -> jinja2.Environment:
    """Returns the templates of the package."""
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("klamm.console", "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        auto_reload=False,
        cache_size=200,
    )
    made.filters |= {
        "size": size, "number": number, "moment": moment, "ago": ago, "lasting": lasting, "tone": tone,
        "path": in_path, "pretty_json": pretty_json,
    }  # fmt: skip
    made.globals |= {"query": query, "counted": counted, "version": __version__, "assets": asset_version()}
    return made


def rendered(template: str, **values: Any) -> str:
    """Returns a template with its values."""
    return environment().get_template(template).render(**values)
