"""The report at the end: compares source files and target by id, and computes the windowed rates again.

It reads the files and the target only, and trusts nothing that agent, broker or Spark say of themselves.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from klamm.demo.logs import rates
from klamm.demo.logs.job import WINDOW_MS
from klamm.demo.logs.lines import ID_PATTERN
from klamm.demo.logs.target import Target
from klamm.reconcile import files
from klamm.reconcile import report as texts
from klamm.reconcile.compare import Comparison
from klamm.reconcile.spill import reconcile

PATTERN: Final = "**/*.log*"
SHOWN: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The result of the comparison. `unparsable` counts the lines of the files that are neither kind of log."""

    target: str
    note: str
    files: int
    seconds: float
    comparison: Comparison
    unparsable: int
    rates: rates.RateComparison

    @property
    def complete(self) -> bool:
        """True when everything matches."""
        return (
            self.comparison.complete
            and self.comparison.unparsed == self.unparsable
            and not self.rates.differences
        )

    def as_dict(self) -> dict[str, Any]:
        """Returns the report for `--json`."""
        return {
            "complete": self.complete,
            "target": self.target,
            "note": self.note,
            "files": self.files,
            "seconds": round(self.seconds, 1),
            "lines": texts.as_dict(self.comparison),
            "unparsable_lines_of_files": self.unparsable,
            "windows": {
                "compared": self.rates.windows,
                "differing": [
                    {
                        "service": d.window.service,
                        "start": _iso(d.window.start_ms),
                        "expected": d.expected and d.expected._asdict(),
                        "found": d.found and d.found._asdict(),
                    }
                    for d in self.rates.differences
                ],
            },
        }


def make(directory: Path, target: Target, *, note: str, seconds: float) -> Report:
    """Reads both sides and compares them. Raises KlammError when one side cannot be read."""
    paths = files.expand([str(directory / PATTERN)])
    comparison = reconcile(files.source_lines(paths, files.identifier(ID_PATTERN)), target.documents())
    wanted = rates.expected((line.data for line in files.raw_lines(paths)), WINDOW_MS)
    return Report(
        target=f"{target.name}: {target.where}",
        note=note,
        files=len(paths),
        seconds=seconds,
        comparison=comparison,
        unparsable=wanted.unparsable,
        rates=rates.compare(wanted.rates, rates.found(target.rates())),
    )


def write(report: Report, path: Path) -> None:
    """Writes the report as JSON."""
    path.write_text(json.dumps(report.as_dict(), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def show(report: Report) -> None:
    """Prints the report."""
    from rich.console import Console
    from rich.table import Table

    found = report.comparison
    table = Table(title="Source files against target, line by line", title_justify="left")
    table.add_column("")
    table.add_column("", justify="right")
    for name, count, bad in (
        (f"lines in {report.files} source files", found.source_lines, False),
        ("delivered", found.delivered, found.delivered != found.source_lines),
        ("of these in the place for unparsed lines", found.unparsed, found.unparsed != report.unparsable),
        ("unparsable lines in the files", report.unparsable, found.unparsed != report.unparsable),
        ("documents in the target", found.documents, found.documents != found.source_lines),
        *(
            (kind.replace("_", " "), listing.count, listing.count > 0)
            for kind, listing in found.differences.items()
        ),
        ("windows of error rates", report.rates.windows, False),
        ("of these different", len(report.rates.differences), bool(report.rates.differences)),
    ):
        table.add_row(name, f"{count:,}", style="red" if bad else "")
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 110)
    console.print(table)
    for line in _details(report):
        console.print(line, soft_wrap=True, markup=False)
    console.print(f"target: {report.target}", soft_wrap=True, markup=False)
    if report.note:
        console.print(report.note, soft_wrap=True, markup=False)
    if report.complete:
        speed = found.source_lines / report.seconds
        console.print(
            f"everything matches: {found.source_lines:,} lines in {report.seconds:.0f} s ({speed:,.0f} a second), "
            "each in the target once"
        )
    else:
        console.print("NOT EQUAL: see above")


def _details(report: Report) -> list[str]:
    lines = []
    for kind, listing in report.comparison.differences.items():
        lines += [f"{kind.replace('_', ' ')}: {texts.item(i)}" for i in listing.items[:SHOWN]]
        if listing.count > SHOWN:
            lines.append(f"{kind.replace('_', ' ')}: and {listing.count - SHOWN:,} more")
    for d in report.rates.differences[:SHOWN]:
        lines.append(
            f"window {d.window.service} {_iso(d.window.start_ms)}: files {d.expected}, target {d.found}"
        )
    return lines


def _iso(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="seconds")
