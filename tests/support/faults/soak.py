"""`python -m support.faults.soak --cycles 1000 --seed N`: rounds of kill cycles, one after the other.

A round has a seed (`--seed`, and one more for each further round), a data directory and a mode of the broker of its
own; the same round is run again by `--cycles` of one round, its seed and its `--mode`. Prints progress, and a table at
the end; the exit code is 1 when a round found a violation. With `--write` the table goes into docs/reliability.md, after every
round.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Final

from support.faults.round import Result, Round, work_dir
from support.faults.servers import KlammServer
from support.faults.settings import COMMON, MODES
from support.history import RULES, History

CYCLES_PER_ROUND: Final = 50
PAGE: Final = Path(__file__).parents[3] / "docs/reliability.md"
TOLD: Final = {
    "zombies": "fenced producers that tried to commit",
    "sessions given up": "idempotent producers that gave their session up",
}
BEGIN, END = "<!-- soak: begin -->", "<!-- soak: end -->"


class Totals:
    """Everything that all rounds did and found."""

    def __init__(self) -> None:
        self.seeds: list[int] = []
        self.examined: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self.transactions: Counter[str] = Counter()
        self.violations: Counter[str] = Counter()
        self.modes: Counter[str] = Counter()
        self.failed: list[str] = []
        self.seconds = 0.0
        self.rounds = 0

    def add(self, mode: str, result: Result) -> None:
        self.modes[mode] += sum(result.faults.values())
        self.examined.update(result.verdict.examined)
        self.faults.update(result.faults)
        self.transactions.update(result.transactions)
        self.violations.update(v.rule for v in result.verdict.violations)
        self.seconds += result.seconds
        if not result.good:
            self.failed.append(f"seed {result.seed}, mode {mode}: {result.verdict} {result.problems or ''}")

    @property
    def cycles(self) -> int:
        return sum(self.faults.values())

    def table(self) -> str:
        """Returns the verdict as Markdown."""
        rows = [
            ("cycles", self.cycles),
            *((f"cycles: {kind}", count) for kind, count in sorted(self.faults.items(), key=lambda i: -i[1])),
            *((f"cycles in mode “{mode}”", count) for mode, count in self.modes.items()),
            *((f"{what} checked", count) for what, count in self.examined.items()),
            *((TOLD.get(what, f"transactions {what}"), n) for what, n in self.transactions.items()),
            *((f"violations: {rule}", self.violations[rule]) for rule in RULES),
            ("rounds", self.rounds),
            ("rounds that failed", len(self.failed)),
        ]  # fmt: skip
        lines = ["| what | number |", "|---|---|", *(f"| {what} | {number:,} |" for what, number in rows)]
        first, last = (min(self.seeds), max(self.seeds)) if self.seeds else (0, 0)
        lines.append(f"\nSeeds {first} to {last}, {self.seconds / 60:.0f} minutes.")
        return "\n".join(lines)


def run_alone(mode: str, seed: int, cycles: int, keep: Path | None) -> Result:
    """Runs a round in a process of its own, whose memory and threads end with it. The history stays there."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(_run_and_forget, mode, seed, cycles, keep).result()


def _run_and_forget(mode: str, seed: int, cycles: int, keep: Path | None) -> Result:
    result = run_round(mode, seed, cycles, keep, say=say)
    result.history = History()
    return result


def run_round(mode: str, seed: int, cycles: int, keep: Path | None, *, say=print) -> Result:
    """Runs one round in a temporary directory; what it leaves stays in `keep` when it found something."""
    with tempfile.TemporaryDirectory(prefix="klamm-soak-") as temporary:
        work = work_dir(Path(temporary), seed)
        server = KlammServer(work, {**COMMON, **MODES[mode]})
        good = False
        try:
            result = Round(server, seed=seed, cycles=cycles, say=say).run()
            good = result.good
        finally:
            server.kill()
            if not good and keep is not None:
                shutil.copytree(work, keep / work.name, dirs_exist_ok=True)
                say(f"seed {seed}: data directory and log of the broker are in {keep / work.name}")
        return result


def write(table: str) -> None:
    """Put the table into its place in docs/reliability.md."""
    text = PAGE.read_text()
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    PAGE.write_text(f"{head}{BEGIN}\n{table}\n{END}{tail}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev soak", description=__doc__)
    parser.add_argument("--cycles", type=int, default=1000)
    parser.add_argument("--per-round", type=int, default=CYCLES_PER_ROUND)
    parser.add_argument("--seed", type=int, default=None, help="seed of the first round; default: random")
    parser.add_argument("--mode", choices=MODES, default=None, help="default: one after the other")
    parser.add_argument("--keep", type=Path, default=Path("soak-failures"), help="where failed rounds go")
    parser.add_argument("--write", action="store_true", help="write the table into docs/reliability.md")
    asked = parser.parse_args()
    first = random.randrange(1 << 20) if asked.seed is None else asked.seed
    totals, number, left = Totals(), 0, asked.cycles
    while left > 0:
        seed, cycles = first + number, min(left, asked.per_round)
        mode = asked.mode or list(MODES)[number % len(MODES)]
        say(f"round {number + 1}: seed {seed}, mode {mode}, {cycles} cycles ({asked.cycles - left} done)")
        totals.seeds.append(seed)
        totals.rounds += 1
        try:
            result = run_alone(mode, seed, cycles, asked.keep)
        except Exception:
            totals.failed.append(f"seed {seed}, mode {mode}: {traceback.format_exc()}")
            say(totals.failed[-1])
        else:
            totals.add(mode, result)
            say(f"seed {seed}: {'good' if result.good else totals.failed[-1]} ({result.seconds:.0f} s)")
        if asked.write:
            write(totals.table())
        left -= cycles
        number += 1
    print(totals.table())
    for failure in totals.failed:
        print(f"FAILED {failure}")
    return bool(totals.failed)


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S', time.gmtime())} {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
