"""Tables of medians and ratios, on the terminal and in docs/performance.md."""

from __future__ import annotations

import datetime as dt
import os
import platform
import statistics
import time
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "performance.md"
Results = dict[str, list[dict[str, float]]]
"""Runs by server name, ours first; each run by row key."""


@dataclass(frozen=True, slots=True)
class Row:
    key: str
    label: str
    digits: int


def table(results: Results, rows: list[Row]) -> str:
    """Medians of every row as Markdown, with our figure divided by the peer's."""
    names = list(results)
    peer = names[1] if len(names) > 1 else "peer"
    lines = ["| | " + " | ".join(names) + f" | klamm / {peer} |", "|---|" + "---|" * (len(names) + 1)]
    for row in rows:
        medians = [statistics.median(run[row.key] for run in results[name]) for name in names]
        peers = medians[1] if len(medians) > 1 else None
        ratio = "no peer" if peers is None else f"{medians[0] / peers:.2f}" if peers else ""
        cells = [f"{m:,.{row.digits}f}" for m in medians]
        lines.append(f"| {row.label} | " + " | ".join(cells) + f" | {ratio} |")
    return "\n".join(lines)


def spread(results: Results, rows: list[Row]) -> str:
    """Least and most of every row: how noisy the machine was."""
    lines = ["All runs, least to most:", ""]
    for row in rows:
        cells = [
            f"{name} {min(r[row.key] for r in runs):,.{row.digits}f} to {max(r[row.key] for r in runs):,.{row.digits}f}"
            for name, runs in results.items()
        ]
        lines.append(f"- {row.label}: " + "; ".join(cells))
    return "\n".join(lines)


def machine() -> str:
    """When and where, for the page. How fast a core is tells figures in seconds of one machine from those of another."""
    today = dt.datetime.now(tz=dt.UTC).date()
    return f"{today}, {os.cpu_count()} cores, Python {platform.python_version()} (a core adds a million squares in {_loop_ms():.0f} ms)"


def _loop_ms() -> float:
    """Milliseconds of a loop of Python's own, the median of seven."""
    took = []
    for _ in range(7):
        total, began = 0, time.perf_counter()
        for i in range(1_000_000):
            total += i * i
        took.append((time.perf_counter() - began) * 1e3)
    return statistics.median(took)


def write(section: str, text: str) -> None:
    """Replace one marked section of the page."""
    head, mark = f"<!-- {section} -->", f"<!-- end {section} -->"
    page = PAGE.read_text() if PAGE.exists() else "# Performance\n"
    if head not in page:
        page = f"{page.rstrip()}\n\n{head}\n{mark}\n"
    before, rest = page.split(head, 1)
    _, after = rest.split(mark, 1)
    PAGE.write_text(f"{before}{head}\n{text}\n{mark}{after}")
