"""Windowed error rates, computed again from the source files and compared with the rates that the job wrote.

Shares no code with the job: an error that both made alike would go unseen.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, NamedTuple

_ACCESS: Final = re.compile(
    rb'\S+ \S+ \S+ \[([^\]]+)\] "\S+ \S+ [^"]+" (\d{3}) \S+ "[^"]*" "[^"]*" [\d.]+ (\S+) rid=[0-9a-f]{32}'
)


class Window(NamedTuple):
    """A service's window by its start (ms since the epoch)."""

    service: str
    start_ms: int


class Rate(NamedTuple):
    lines: int
    errors: int


class Entry(NamedTuple):
    """The fields of a parsed line that the rates need."""

    service: str
    time_ms: int
    error: bool


@dataclass(slots=True)
class Expected:
    """The result of reading the files: the rate of every window, and the number of lines that are neither kind of log."""

    rates: dict[Window, Rate] = field(default_factory=dict)
    unparsable: int = 0


@dataclass(frozen=True, slots=True)
class Difference:
    """A window whose rate differs; None for a side that has no such window."""

    window: Window
    expected: Rate | None
    found: Rate | None


@dataclass(frozen=True, slots=True)
class RateComparison:
    windows: int
    differences: list[Difference]


def parse(line: bytes) -> Entry | None:
    """Parses an access or application log line. Returns None for anything else."""
    if line.startswith(b"{"):
        return _application(line)
    found = _ACCESS.fullmatch(line)
    if found is None:
        return None
    time = datetime.strptime(found[1].decode(), "%d/%b/%Y:%H:%M:%S %z")
    return Entry(found[3].decode(), int(time.timestamp()) * 1000, found[2] >= b"500")


def _application(line: bytes) -> Entry | None:
    try:
        document = json.loads(line)
        time = datetime.fromisoformat(document["@timestamp"])
        return Entry(
            document["service"], round(time.timestamp() * 1000), document["level"] in {"ERROR", "FATAL"}
        )
    except (ValueError, KeyError, TypeError):
        return None


def expected(lines: Iterable[bytes], window_ms: int) -> Expected:
    """Computes the rates of all lines."""
    result = Expected()
    counts: dict[Window, list[int]] = {}
    for line in lines:
        entry = parse(line)
        if entry is None:
            result.unparsable += 1
            continue
        window = Window(entry.service, entry.time_ms - entry.time_ms % window_ms)
        count = counts.setdefault(window, [0, 0])
        count[0] += 1
        count[1] += entry.error
    result.rates = {window: Rate(*count) for window, count in counts.items()}
    return result


def found(rows: Iterable[Mapping[str, Any]]) -> dict[Window, Rate]:
    """Reads the rates that the job wrote: service, window_start (ISO, UTC), lines, errors."""
    return {
        Window(str(row["service"]), _ms(str(row["window_start"]))): Rate(
            int(row["lines"]), int(row["errors"])
        )
        for row in rows
    }


def _ms(stamp: str) -> int:
    return round(datetime.fromisoformat(stamp).timestamp() * 1000)


def compare(wanted: Mapping[Window, Rate], got: Mapping[Window, Rate]) -> RateComparison:
    """Compares every window of either side."""
    windows = sorted(wanted.keys() | got.keys())
    differences = [Difference(w, wanted.get(w), got.get(w)) for w in windows if wanted.get(w) != got.get(w)]
    return RateComparison(len(windows), differences)
