"""The part of CI that has a budget: process and peer tests in slices, until the time is used.

A slice is a few files of one folder. First come files that the last changes reach, for at most a third of the time; then the
slices from where this commit's turn begins, so that a few commits run all of them. A slice starts only if it fits,
by the seconds that `tests/durations.json` knows of its files.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Final

from support.running import changed
from support.running.again import FLAKY_FILE
from support.running.slowest import DURATIONS

ROOT: Final = Path(__file__).parents[3]
MARKS: Final = "(process or peer) and not essential"
UNKNOWN_S: Final = 30.0
"""The seconds of a file that no run has measured."""
SLICE_S: Final = 240.0
"""The seconds of tests, in one process, after which a slice is closed."""
START_S: Final = 20.0
"""What a slice takes beside its tests: two processes that collect them, and servers that stop."""
WORKERS: Final = 2
CHANGED_SHARE: Final = 1 / 3
RECENT_HOURS: Final = 6
NOTHING_COLLECTED: Final = 5
BUDGET: Final = "KLAMM_CI_BUDGET_MINUTES"
STARTED: Final = "KLAMM_CI_STARTED"


@dataclass(frozen=True, slots=True)
class Slice:
    """Test files that run together, and the seconds that they take in one process."""

    files: tuple[str, ...]
    seconds: float

    @property
    def wall_s(self) -> float:
        """The seconds that the slice is expected to take."""
        return START_S + self.seconds / min(WORKERS, len(self.files))

    def __str__(self) -> str:
        """Names the folder and the files."""
        names = " ".join(Path(file).stem.removeprefix("test_") for file in self.files)
        return f"{Path(self.files[0]).parent}: {names} ({self.wall_s:.0f} s)"


@dataclass(slots=True)
class Plan:
    """Slices of the changed files, which come first, and the others in the order of this commit."""

    first: list[Slice] = field(default_factory=list)
    turn: list[Slice] = field(default_factory=list)


def cut(files: Iterable[str], known: dict[str, float]) -> list[Slice]:
    """Cuts files into slices of one folder each, none longer than it must be."""
    found: list[Slice] = []
    for _, group in groupby(sorted(files), key=lambda file: Path(file).parent):
        taken: list[str] = []
        seconds = 0.0
        for file in group:
            took = known.get(file, UNKNOWN_S)
            if taken and seconds + took > SLICE_S:
                found.append(Slice(tuple(taken), seconds))
                taken, seconds = [], 0.0
            taken.append(file)
            seconds += took
        found.append(Slice(tuple(taken), seconds))
    return found


def plan(
    files: Iterable[str], reached: Iterable[str], known: dict[str, float], *, commits: int, left_s: float
) -> Plan:
    """Plans a run: as many turns as the time asks for, and this commit's turn in front."""
    files = set(files)
    made = Plan()
    used = 0.0
    for one in sorted(cut(files & set(reached), known), key=lambda s: s.wall_s):
        if used + one.wall_s <= left_s * CHANGED_SHARE:
            made.first.append(one)
            used += one.wall_s
    taken = {file for one in made.first for file in one.files}
    rest = cut(files - taken, known)
    if rest:
        whole_s = sum(one.wall_s for one in rest)
        turns = max(1, min(len(rest), round(whole_s / max(1.0, left_s - used) + 0.5)))
        begin = commits % turns * len(rest) // turns
        made.turn = rest[begin:] + rest[:begin]
    return made


def run() -> int:
    """Runs the slices that fit, prints which did and which did not, and returns the exit code."""
    until = float(os.environ.get(STARTED) or time.time()) + 60 * float(os.environ.get(BUDGET) or 30)
    known = json.loads(DURATIONS.read_text()) if DURATIONS.exists() else {}
    commits = int("".join(changed.git("rev-list", "--count", "HEAD")) or 0)
    reached = changed.tests_reached(changed.files_of_commits(hours=RECENT_HOURS))
    made = plan(_files(), reached, known, commits=commits, left_s=until - time.time())
    ran: list[str] = []
    left: list[str] = []
    failed: list[str] = []
    for one in made.first + made.turn:
        if time.time() + one.wall_s > until:
            left.append(str(one))
            continue
        print(f"\n== slice {one}", flush=True)
        ran.append(str(one))
        code = _pytest("-m", MARKS, "-n", str(WORKERS), "--dist", "loadfile", *one.files)
        if code not in {0, NOTHING_COLLECTED}:
            failed.append(str(one))
    for title, names in (("ran", ran), ("not run for want of time", left), ("FAILED", failed)):
        print(f"\n== slices {title}: {len(names)}", *names, sep="\n   ", flush=True)
    return 1 if failed else 0


def print_flaky(path: Path) -> None:
    """Prints the table of the tests that failed first and passed when they were run again."""
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    print(f"\n== flaky tests: {len(rows)}")
    for name, error in rows:
        print(f"FLAKY {name}: {error}")


def _files() -> list[str]:
    """Returns the files that have tests for slices."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "-m", MARKS],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        print(done.stdout[-4000:], done.stderr[-4000:], flush=True)
        sys.exit(done.returncode)
    return sorted({line.partition("::")[0] for line in done.stdout.splitlines() if "::" in line})


def _pytest(*arguments: str) -> int:
    command = [sys.executable, "-m", "support.running.session", *arguments]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "tests")}
    return subprocess.run(command, cwd=ROOT, check=False, env=environment).returncode


if __name__ == "__main__":
    print_flaky(Path(os.environ[FLAKY_FILE]))
