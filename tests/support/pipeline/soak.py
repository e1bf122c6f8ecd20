"""`python -m support.pipeline.soak --lines 1000000`: the log pipeline under random faults, compared line by line.

Agent, broker, Spark and Elasticsearch are killed and paused at random while the lines are written; in the middle
Elasticsearch is away for minutes. The exit code is 1 when a line is missing, came twice, or was counted wrongly. With
`--write` the table goes into docs/reliability.md.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from support.pipeline.round import Plan, Result, Round, rows

from klamm.reconcile import report

PAGE: Final = Path(__file__).parents[3] / "docs/reliability.md"
BEGIN, END = "<!-- soak of the pipeline: begin -->", "<!-- soak of the pipeline: end -->"


def run_round(plan: Plan, keep: Path | None, *, say=print) -> Result:
    """Runs one round in a temporary directory; what it leaves stays in `keep` when it found something."""
    with tempfile.TemporaryDirectory(prefix="klamm-pipeline-") as temporary:
        work, good = Path(temporary), False
        round_ = Round(work, plan, say=say)
        try:
            good = round_.run().good
        finally:
            if not good and keep is not None:
                shutil.copytree(work, keep / f"pipeline-{plan.seed}", dirs_exist_ok=True)
                say(f"seed {plan.seed}: files, logs and state are in {keep / f'pipeline-{plan.seed}'}")
        return round_.result


def table(result: Result, plan: Plan) -> str:
    """Returns what was done and found, and what every stage used, as Markdown."""
    lines = ["| what | number |", "|---|---|", *(f"| {what} | {number:,} |" for what, number in rows(result))]
    lines += ["", "| stage | most memory, MB | memory at the end, MB | CPU, s |", "|---|---|---|---|"]
    lines += [
        f"| {stage} | {used.most_mb:,.0f} | {used.last_mb:,.0f} | {used.cpu_s:,.0f} |"
        for stage, used in result.usage.items()
    ]
    asked = f"Asked while it ran, `klamm reconcile` {'did not agree' if result.said else 'agreed'}."
    lines.append(
        f"\nSeed {plan.seed}, {plan.rate:,} lines a second, Elasticsearch away for {plan.outage_s:.0f} s; "
        f"{result.seconds / 60:.0f} minutes. {result.caught_up_s:.0f} s after the last line was written all were "
        f"there. Spark's driver was started again {result.restarts} times because it gave up. "
        f"{asked if result.asked else ''}\nMemory is the sum of the proportional set sizes of a stage's processes."
    )
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev soak pipeline", description=__doc__)
    parser.add_argument("--lines", type=int, default=1_000_000)
    parser.add_argument("--rate", type=int, default=2000, help="lines a second")
    parser.add_argument("--outage", type=float, default=180, help="seconds without Elasticsearch")
    parser.add_argument("--no-faults", action="store_true", help="only the outage")
    parser.add_argument("--seed", type=int, default=None, help="default: random")
    parser.add_argument("--keep", type=Path, default=Path("soak-failures"), help="where failed rounds go")
    parser.add_argument("--write", action="store_true", help="write the table into docs/reliability.md")
    asked = parser.parse_args()
    plan = Plan(
        seed=random.randrange(1 << 20) if asked.seed is None else asked.seed,
        rate=asked.rate,
        total=asked.lines,
        outage_s=asked.outage,
        faults=not asked.no_faults,
    )
    say(f"seed {plan.seed}: {plan.total:,} lines, {plan.rate:,} a second")
    result = run_round(plan, asked.keep, say=say)
    print(table(result, plan))
    for said in result.said:
        print(said)
    if result.found is not None and not result.good:
        print("\n".join(report.as_text(result.found.comparison)))
        print(*result.found.rates.differences[:20], sep="\n")
    if asked.write:
        head, _, rest = PAGE.read_text().partition(BEGIN)
        _, _, tail = rest.partition(END)
        PAGE.write_text(f"{head}{BEGIN}\n{table(result, plan)}\n{END}{tail}")
    return not result.good


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S', time.gmtime())} {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
