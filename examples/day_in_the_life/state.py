"""The state of the system: each record, offset, schema and connector, and how two states differ."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Mapping
from typing import Any, Final

from servers import run, say

State = Mapping[str, Mapping[str, Any]]
INTERNAL: Final = ("connect-configs", "connect-offsets", "connect-status", "_schemas")
"""Topics that are compared by what their servers make of them."""


def take(bootstrap: str, registry: str, connect: str) -> State:
    """Returns what there is, by kind and name."""
    place = ("-b", bootstrap)
    topics = [row["topic"] for row in json.loads(run("topic", "list", "-o", "json", *place, show=False))]
    records: dict[str, Any] = {}
    for topic in topics:
        if topic in INTERNAL or topic.startswith("__"):
            continue
        words = (
            "--from-beginning",
            "-e",
            "-o",
            "jsonl",
            "--key-format",
            "base64",
            "--value-format",
            "base64",
        )
        for line in run("consume", topic, *words, *place, show=False).splitlines():
            record = json.loads(line)
            records[f"{topic}-{record['partition']} at {record['offset']}"] = record
    offsets = {
        f"{row['group']}: {row['topic']}-{row['partition']}": row["current_offset"]
        for row in json.loads(run("group", "describe", "--all-groups", "-o", "json", *place, show=False))
        if row["current_offset"] is not None
    }
    schemas = {
        f"{subject} {version}": _get(f"{registry}/subjects/{subject}/versions/{version}")
        for subject in _get(f"{registry}/subjects")
        for version in _get(f"{registry}/subjects/{subject}/versions")
    }
    names = _get(f"{connect}/connectors")
    return {
        "records (key, value, headers, time, offset)": records,
        "offsets of groups": offsets,
        "schemas with ids": schemas,
        "connectors' settings": {name: _get(f"{connect}/connectors/{name}/config") for name in names},
        "connectors' offsets": {name: _get(f"{connect}/connectors/{name}/offsets") for name in names},
        "connectors' states": {
            name: _get(f"{connect}/connectors/{name}/status")["connector"]["state"] for name in names
        },
    }


def compare(before: State, after: State) -> bool:
    """Prints a table of both; returns whether they are the same, and nothing is empty that was to be compared."""
    say(f"{'':45}{'before':>9}{'after':>9}{'differ':>9}")
    good = True
    for kind, old in before.items():
        new = after[kind]
        differ = [name for name in {**old, **new} if old.get(name) != new.get(name)]
        say(f"{kind:45}{len(old):>9}{len(new):>9}{len(differ):>9}")
        for name in differ[:5]:
            say(f"  {name}: {old.get(name, 'absent')} became {new.get(name, 'absent')}")
        good = good and bool(old) and not differ
    return good


def _get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=30) as answer:  # noqa: S310 - an address of ours
        return json.load(answer)
