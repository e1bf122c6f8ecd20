"""`python -m support.workers.soak --rebalances 500`: rounds of faults on a group of three Connect workers.

Rounds alternate between at-least-once and exactly-once sources; each has a seed, and one more for each further round.
The exit code is 1 when a round found a violation. With `--write` the table goes into docs/reliability.md.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import Final

from support.workers.judge import RULES
from support.workers.round import Result, Round

PER_ROUND: Final = 50
PAGE: Final = Path(__file__).parents[3] / "docs/reliability.md"
BEGIN, END = "<!-- soak of workers: begin -->", "<!-- soak of workers: end -->"


def run_round(
    seed: int, rebalances: int, *, exactly_once: bool, keep: Path | None = None, say=print
) -> Result:
    """Runs one round in a temporary directory; what it leaves stays in `keep` when it found something."""
    with tempfile.TemporaryDirectory(prefix="klamm-workers-") as temporary:
        work, good = Path(temporary), False
        try:
            result = Round(work, seed=seed, exactly_once=exactly_once, say=say).run(rebalances)
            good = result.good
        finally:
            if not good and keep is not None:
                shutil.copytree(work, keep / f"workers-{seed}", dirs_exist_ok=True)
                say(f"seed {seed}: files and logs are in {keep / f'workers-{seed}'}")
        return result


def table(results: list[Result], failed: list[str]) -> str:
    faults, checked, found = Counter[str](), Counter[str](), Counter[str]()
    for result in results:
        faults.update(result.faults)
        checked.update(result.checked)
        found.update(v.rule for v in result.violations)
    rows = [
        ("rebalances", sum(r.rebalances for r in results)),
        ("faults", faults.total()),
        *((f"faults: {name}", count) for name, count in sorted(faults.items(), key=lambda i: -i[1])),
        *((f"{what} checked", count) for what, count in checked.items()),
        *((f"violations: {rule}", found[rule]) for rule in RULES),
        ("rounds", len(results) + len(failed)),
        ("rounds that failed", len(failed) + sum(not r.good for r in results)),
    ]  # fmt: skip
    lines = ["| what | number |", "|---|---|", *(f"| {what} | {number:,} |" for what, number in rows)]
    seconds, slowest = sum(r.seconds for r in results), max((r.slowest_s for r in results), default=0)
    took = sorted(s for r in results for s in r.takeovers_s) or [0.0]
    lines.append(
        f"\n{seconds / 60:.0f} minutes; the slowest recovery after a fault took {slowest:.1f} s. What a worker that was "
        f"killed or stopped had ran elsewhere after {took[len(took) // 2]:.1f} s (median), {took[-1]:.1f} s (longest)."
    )
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev soak connect", description=__doc__)
    parser.add_argument("--rebalances", type=int, default=500)
    parser.add_argument("--per-round", type=int, default=PER_ROUND)
    parser.add_argument("--seed", type=int, default=None, help="seed of the first round; default: random")
    parser.add_argument("--mode", choices=["at-least-once", "exactly-once"], help="default: by turns")
    parser.add_argument("--keep", type=Path, default=Path("soak-failures"), help="where failed rounds go")
    parser.add_argument("--write", action="store_true", help="write the table into docs/reliability.md")
    asked = parser.parse_args()
    first = random.randrange(1 << 20) if asked.seed is None else asked.seed
    results: list[Result] = []
    failed: list[str] = []
    number, left = 0, asked.rebalances
    while left > 0:
        exactly = asked.mode == "exactly-once" if asked.mode else number % 2 == 1
        seed, count = first + number, min(left, asked.per_round)
        say(
            f"round {number + 1}: seed {seed}, {'exactly' if exactly else 'at least'} once ({left} rebalances left)"
        )
        try:
            result = run_round(seed, count, exactly_once=exactly, keep=asked.keep, say=say)
        except Exception:
            failed.append(f"seed {seed}: {traceback.format_exc()}")
            say(failed[-1])
        else:
            results.append(result)
            for violation in result.violations:
                say(f"VIOLATION seed {seed}: {violation}")
        left -= count
        number += 1
        if asked.write:
            text = PAGE.read_text()
            head, _, rest = text.partition(BEGIN)
            _, _, tail = rest.partition(END)
            PAGE.write_text(f"{head}{BEGIN}\n{table(results, failed)}\n{END}{tail}")
    print(table(results, failed))
    return bool(failed or any(not r.good for r in results))


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S', time.gmtime())} {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
