"""The part of CI that has a budget: process and peer tests in slices, until the time is used.

A slice is a few files of one folder. First come files that the last changes reach, the closest before the others, for at most
half of the time. Then come the slices from where this commit's turn begins: each begins the turn of another commit, and time
is kept for it, so that a few dozen commits run all of them. A slice starts only if it fits, by the seconds that
`tests/durations.json` knows of its files. A slice that is still running ten minutes after the end of the budget is ended and fails.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Final

from support.running import budget, changed
from support.running.again import FLAKY_FILE
from support.running.slowest import DURATIONS

ROOT: Final = Path(__file__).parents[3]
MARKS: Final = "(process or peer) and not essential"
UNKNOWN_S: Final = 30.0
"""The seconds of a file that no run has measured."""
SLICE_S: Final = 240.0
"""The seconds of tests, in one process, after which a slice is closed."""
START_S: Final = 20.0
"""The seconds of a slice beside its tests: two processes that collect them, and servers that stop."""
WORKERS: Final = 2
CHANGED_SHARE: Final = 1 / 2
RECENT_HOURS: Final = 6
NOTHING_COLLECTED: Final = 5
ENDING_S: Final = 30.0
"""The seconds that an ended slice has to stop its servers."""
GOLDEN: Final = (math.sqrt(5) - 1) / 2
"""The part of a round by which turns of following commits differ: it spreads any number of them evenly."""


@dataclass(frozen=True, slots=True)
class Slice:
    """Test files that run together, and the seconds that each takes."""

    seconds: Mapping[str, float]

    @property
    def files(self) -> tuple[str, ...]:
        """Returns the test files."""
        return tuple(self.seconds)

    @property
    def wall_s(self) -> float:
        """Returns the seconds that the slice is expected to take: a file runs in one process (`--dist loadfile`)."""
        return START_S + max(*self.seconds.values(), sum(self.seconds.values()) / WORKERS)

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
        taken: dict[str, float] = {}
        for file in group:
            took = known.get(file, UNKNOWN_S)
            if taken and sum(taken.values()) + took > SLICE_S:
                found.append(Slice(taken))
                taken = {}
            taken[file] = took
        found.append(Slice(taken))
    return found


def plan(
    files: Iterable[str], reached: Mapping[str, int], known: dict[str, float], *, commits: int, left_s: float
) -> Plan:
    """Plans a run; `reached` has the steps from a change to each file that it reaches, the fewest of which come first."""
    files = set(files)
    made = Plan(turn=_turn(cut(files, known), commits))
    first_of_turn_s = made.turn[0].wall_s if made.turn else 0.0
    changed_s = min(left_s * CHANGED_SHARE, left_s - first_of_turn_s)
    for steps in sorted(set(reached.values())):
        as_close = cut((file for file in files if reached.get(file) == steps), known)
        for one in sorted(as_close, key=lambda s: s.wall_s):
            if one.wall_s <= changed_s:
                made.first.append(one)
                changed_s -= one.wall_s
    taken = {file for one in made.first for file in one.files}
    rest = [{file: s for file, s in one.seconds.items() if file not in taken} for one in made.turn]
    made.turn = [Slice(seconds) for seconds in rest if seconds]
    return made


def _turn(slices: list[Slice], commits: int) -> list[Slice]:
    """Rotates slices so that each is the first for one of as many commits as there are slices."""
    if not slices:
        return []
    step = next(
        step
        for step in range(round(GOLDEN * len(slices)) or 1, 2 * len(slices))
        if math.gcd(step, len(slices)) == 1
    )
    begin = commits * step % len(slices)
    return slices[begin:] + slices[:begin]


def fits(one: Slice, *, now: float, until: float) -> bool:
    """Decides whether a slice is expected to end in time."""
    return now + one.wall_s <= until


def run() -> int:
    """Runs the slices that fit, prints which did and which did not, and returns the exit code."""
    until = budget.start_here()
    known = json.loads(DURATIONS.read_text()) if DURATIONS.exists() else {}
    steps = changed.steps_to_tests(changed.files_of_commits(hours=RECENT_HOURS))
    reached = {file: n for file, n in steps.items() if n < changed.FAR}
    made = plan(_files(), reached, known, commits=_commits(), left_s=until - time.time())
    ran: list[str] = []
    left: list[str] = []
    failed: list[str] = []
    for one in made.first + made.turn:
        if not fits(one, now=time.time(), until=until):
            left.append(str(one))
            continue
        print(f"\n== slice {one}", flush=True)
        ran.append(str(one))
        code = _pytest(
            ["-m", MARKS, "-n", str(WORKERS), "--dist", "loadfile", *one.files], until + budget.GRACE_S
        )
        if code is None:
            failed.append(
                f"{one}: ended, since it still ran {budget.GRACE_S / 60:.0f} minutes after the end of the budget"
            )
        elif code not in {0, NOTHING_COLLECTED}:
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


def _commits() -> int:
    """Returns the number of commits up to this one; in a shallow clone, which cannot know it, a number made of the commit's hash."""
    if changed.git("rev-parse", "--is-shallow-repository") == ["true"]:
        return int(changed.git("rev-parse", "HEAD")[0], 16)
    return int("".join(changed.git("rev-list", "--count", "HEAD")) or 0)


def _pytest(arguments: list[str], deadline: float) -> int | None:
    """Runs pytest and returns its exit code; ends it at the deadline, with all that it started, and returns None then."""
    command = [sys.executable, "-m", "support.running.session", *arguments]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "tests")}
    with subprocess.Popen(command, cwd=ROOT, env=environment, start_new_session=True) as process:
        try:
            return process.wait(deadline - time.time())
        except subprocess.TimeoutExpired:
            return None
        finally:
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends what still runs of a slice: by SIGINT, at which pytest stops the servers of its tests, then by SIGKILL."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(ENDING_S)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


if __name__ == "__main__":
    print_flaky(Path(os.environ[FLAKY_FILE]))
