"""A pytest plugin that prints the slowest tests and files, and writes the seconds of each file.

`--slowest` prints, `--write-durations` writes `tests/durations.json`, by which CI plans its slices: the seconds of a file's
tests that start processes and do not belong to the essential ones.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

DURATIONS: Final = Path(__file__).parents[2] / "durations.json"
SHOWN: Final = 25
SLICED: Final = frozenset({"process", "peer"})


@dataclass(slots=True)
class Spent:
    """The seconds and process starts of a test or a file."""

    seconds: float = 0.0
    starts: int = 0


class Slowest:
    """Adds up all reports of a session."""

    def __init__(self, *, show: bool, write: bool) -> None:
        self._show = show
        self._write = write
        self._tests: defaultdict[str, Spent] = defaultdict(Spent)
        self._files: defaultdict[str, Spent] = defaultdict(Spent)
        self._kinds: defaultdict[str, Spent] = defaultdict(Spent)
        self._sliced: defaultdict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Adds a phase of a test; its starts are those of the test so far."""
        kind, path = getattr(report, "kind", "pure"), report.nodeid.partition("::")[0]
        starts = getattr(report, "starts", 0) if report.when == "teardown" else 0
        for spent in (self._tests[report.nodeid], self._files[path], self._kinds[kind]):
            spent.seconds += report.duration
            spent.starts += starts
        if kind in SLICED and not report.essential:
            self._sliced[path] += report.duration

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Prints and writes, as it was asked to."""
        if self._show:
            for title, spent in (("tests", self._tests), ("files", self._files), ("kinds", self._kinds)):
                terminalreporter.section(f"slowest {title}: seconds, processes started")
                order = sorted(spent.items(), key=lambda pair: -pair[1].seconds)
                for name, one in order[:SHOWN]:
                    terminalreporter.write_line(f"{one.seconds:8.1f} {one.starts:5} {name}")
        if self._write:
            known = json.loads(DURATIONS.read_text()) if DURATIONS.exists() else {}
            known |= {path: max(1, round(seconds)) for path, seconds in self._sliced.items()}
            kept = {path: s for path, s in sorted(known.items()) if (DURATIONS.parents[1] / path).exists()}
            DURATIONS.write_text(json.dumps(kept, indent=1) + "\n")
            terminalreporter.write_line(f"wrote {DURATIONS}")
