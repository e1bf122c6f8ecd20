"""A pytest plugin that runs a failed test again, alone, when it starts processes.

A process, peer or suite test that failed is run again after all others have ended, in a pytest process of its own, up to twice.
If it passes then, it does not fail the run: it is listed as `FLAKY name: first error`, and appended to the file that
KLAMM_TEST_FLAKY names. One that skips itself then has not passed. A pure test is never run again: it has no race to lose, unless its test process ended under it.
Tests whose set-up failed with the same error share a server that did not start: they are run again together, as one failure.
In CI nothing is run again later than ten minutes after the end of the budget, when a slice is ended, too.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

import pytest
from support.running import budget

ENDED: Final = "ended"
"""The kind, unknown to xdist, of a test whose process ended under it."""
AGAIN: Final = frozenset({"process", "peer", "suite", ENDED})
TIMES: Final = 2
MOST: Final = 10
"""More failures than these are a defect and no races: none is run again then. A server that did not start is one."""
SHOWN_MAX: Final = 8000
"""Characters of a first failure that are printed."""
FLAKY_FILE: Final = "KLAMM_TEST_FLAKY"
FAILED: Final = ("failed", "error")


class Again:
    """Runs failed tests again at the end of a session, and takes those that pass then out of its failures."""

    def __init__(self) -> None:
        self._flaky: dict[str, str] = {}
        self._said: list[str] = []

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Runs after xdist has ended its processes, and before the summary is printed."""
        if session.exitstatus != pytest.ExitCode.TESTS_FAILED:
            return
        stats = session.config.pluginmanager.getplugin("terminalreporter").stats
        failures = _failures(stats)
        candidates = {name: r for name, r in failures.items() if getattr(r, "kind", ENDED) in AGAIN}
        groups = _groups(candidates)
        if len(groups) > MOST:
            self._said.append(
                f"{len(candidates)} tests failed that start processes: none of them is run again"
            )
            return
        for names in groups:
            if _pass(names, session.config.rootpath):
                self._flaky |= {name: _first_line(candidates[name]) for name in names}
        for category in FAILED:
            stats[category] = [r for r in stats.get(category, ()) if r.nodeid not in self._flaky]
            if not stats[category]:
                del stats[category]
        if self._flaky:
            stats["flaky"] = [failures[name] for name in self._flaky]
            self._write()
        if not _failures(stats):
            session.exitstatus = pytest.ExitCode.OK

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Prints the tests that failed first and passed then, and how they failed: nobody may be able to see it again."""
        for line in self._said:
            terminalreporter.write_line(line)
        for report in terminalreporter.stats.get("flaky", ()):
            terminalreporter.section(f"first failure of {report.nodeid}", sep="_")
            terminalreporter.write_line(str(report.longrepr)[-SHOWN_MAX:])
        for name, error in self._flaky.items():
            terminalreporter.write_line(f"FLAKY {name}: {error}", yellow=True)

    def _write(self) -> None:
        if not (path := os.environ.get(FLAKY_FILE)):
            return
        with Path(path).open("a", encoding="utf-8") as file:
            file.writelines(json.dumps([name, error]) + "\n" for name, error in self._flaky.items())


def _failures(stats: Mapping[str, Sequence[pytest.TestReport]]) -> dict[str, pytest.TestReport]:
    """Returns the first failed report of each test."""
    found: dict[str, pytest.TestReport] = {}
    for category in FAILED:
        for report in stats.get(category, ()):
            found.setdefault(report.nodeid, report)
    return found


def _first_line(report: pytest.TestReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    text = crash.message if crash else str(report.longrepr)
    return next((line.strip() for line in text.splitlines() if line.strip()), "no error text")[:300]


def _groups(failures: Mapping[str, pytest.TestReport]) -> list[list[str]]:
    """Returns the tests to run again together: those whose set-up failed with one error, every other by itself."""
    groups: dict[str, list[str]] = {}
    for name, report in failures.items():
        groups.setdefault(_first_line(report) if report.when == "setup" else name, []).append(name)
    return list(groups.values())


def _pass(names: Sequence[str], root: Path) -> bool:
    """Runs tests again, until they pass or their turns are used."""
    name = names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
    for turn in range(1, TIMES + 1):
        until = budget.end(late=True)
        if until is not None and time.time() >= until:
            print(f"\nnot run again, since CI's budget is used: {name}", flush=True)
            return False
        outcome, said = _run_alone(names, root, until)
        print(f"\nrun again, alone ({turn}): {outcome} {name}", flush=True)
        if outcome == "passed":
            return True
        print(said, flush=True)
    return False


def _run_alone(names: Sequence[str], root: Path, until: float | None) -> tuple[str, str]:
    """Runs tests, at most until a time; returns how they ended, and the end of what they printed."""
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "results.xml"
        command = [sys.executable, "-m", "pytest", "-n", "0", "-p", "no:cacheprovider", "-q"]
        try:
            done = subprocess.run(
                [*command, f"--junit-xml={results}", *names],
                cwd=root,
                capture_output=True,
                text=True,
                check=False,
                timeout=None if until is None else until - time.time(),
            )
        except subprocess.TimeoutExpired:
            return "FAILED", "ended, since CI's budget is used"
        said = f"{done.stdout[-8000:]} {done.stderr[-2000:]}"
        if done.returncode:
            return "FAILED", said
        suite = ET.parse(results).find("testsuite")
        passed = suite is not None and int(suite.get("tests", 0)) - int(suite.get("skipped", 0)) == len(names)
        return ("passed" if passed else "SKIPPED"), said
