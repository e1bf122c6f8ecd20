"""The texts of notices: a JSON body, a letter, and templates with `${name}`. Pure.

A template is Python's `string.Template`: `${group}` stands for the group's name, `$$` for a dollar. In a template for JSON
each value is escaped as the inside of a JSON string is; `${partitions}` and `${result}` are JSON themselves.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping
from string import Template
from typing import Any, Final

from klamm.lag.incidents import Notice
from klamm_base.errors import ConfigError

_JSON: Final = frozenset({"partitions", "result"})
NAMES: Final = (
    "id", "event", "start", "cluster", "group", "kind", "status", "severity", "complete", "totallag", "maxlag",
    "maxlag_topic", "maxlag_partition", "time_lag_ms", "partition_count", "partitions", "result",
)  # fmt: skip
"""The names that a template may hold beside `extras_NAME`."""


def values_of(notice: Notice, extras: Mapping[str, str]) -> dict[str, str]:
    """Returns the values of a notice by their names in templates."""
    status, worst = notice.status, notice.status.max_lag
    result = status.shown(every=False)
    values: dict[str, Any] = {
        "id": notice.incident,
        "event": "open" if notice.opened else "close",
        "start": _time(notice.began_ms),
        "cluster": status.cluster,
        "group": status.group,
        "kind": status.kind,
        "status": status.status.name,
        "severity": status.status.name,
        "complete": result["complete"],
        "totallag": status.total_lag,
        "maxlag": worst.lag if worst is not None else 0,
        "maxlag_topic": worst.partition.topic if worst is not None else "",
        "maxlag_partition": worst.partition.partition if worst is not None else "",
        "time_lag_ms": status.time_lag_ms if status.time_lag_ms is not None else "",
        "partition_count": len(status.partitions),
        "partitions": json.dumps(result["partitions"]),
        "result": json.dumps(result),
    }
    extra = {f"extras_{name.replace('-', '_')}": value for name, value in extras.items()}
    return {name: str(value) for name, value in values.items()} | extra


def filled(template: str, values: Mapping[str, str], *, as_json: bool) -> str:
    """Returns a template with its values."""
    if as_json:
        values = {n: v if n in _JSON else json.dumps(v)[1:-1] for n, v in values.items()}
    return Template(template).substitute(values)


def check_template(text: str, source: str, extras: Mapping[str, str]) -> None:
    """Raises ConfigError for a template that cannot be filled in."""
    known = {*NAMES, *(f"extras_{name.replace('-', '_')}" for name in extras)}
    template = Template(text)
    if not template.is_valid():
        raise ConfigError("a $ that begins no name; write $$ for a dollar", source=source)
    if wrong := sorted(set(template.get_identifiers()) - known):
        raise ConfigError(f"there is no ${{{wrong[0]}}}; there are {', '.join(sorted(known))}", source=source)


def json_body(notice: Notice, extras: Mapping[str, str]) -> str:
    """Returns a notice as JSON, with Burrow's status as `result`."""
    return json.dumps(
        {
            "id": notice.incident,
            "event": "open" if notice.opened else "close",
            "start": _time(notice.began_ms),
            "cluster": notice.status.cluster,
            "group": notice.status.group,
            "status": notice.status.status.name,
            "result": notice.status.shown(every=False),
            "extras": dict(extras),
        }
    )


def letter(notice: Notice) -> tuple[str, str]:
    """Returns subject and text of a letter."""
    status = notice.status
    said = status.status.name if notice.opened else "OK again" if status.partitions else "gone"
    lines = [
        f"Group {status.group} of cluster {status.cluster} is {said}.",
        "",
        f"Since:      {_time(notice.began_ms)}",
        f"Total lag:  {status.total_lag}",
        f"Incident:   {notice.incident}",
    ]
    if status.time_lag_ms is not None:
        lines.insert(4, f"Time lag:   {status.time_lag_ms / 1000:g} s")
    bad = [p for p in status.partitions if p.status > 1]
    lines += ["", *(f"{p.partition}  {p.status.name}  lag {p.lag}" for p in bad[:100])]
    if len(bad) > 100:
        lines.append(f"and {len(bad) - 100} more")
    return f"[{said}] lag of {status.group} ({status.cluster})", "\n".join(lines).rstrip() + "\n"


def _time(at_ms: int) -> str:
    return (
        dt.datetime.fromtimestamp(at_ms / 1000, dt.UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    )
