"""Memory and idle CPU with more and more of one thing: flat per unit, or not.

    python -m bench.growth.compare [--only partitions,connections] [--counts 10,100] [--write]

For each count a process of its own is started, gets its units, rests, and is measured while nothing happens. The cost
per unit is what it holds more than with the count before, divided by the units that it has more. There is no peer: the
question is whether the cost per unit stays the same.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from itertools import pairwise
from pathlib import Path

from bench import report
from bench.growth.of_agent import Files
from bench.growth.of_broker import Connections, Groups, Partitions
from bench.growth.of_worker import Connectors, SharedConnectors
from bench.growth.units import Figures, Unit

UNITS: dict[str, type[Unit]] = {
    "partitions": Partitions,
    "connections": Connections,
    "groups": Groups,
    "connectors": Connectors,
    "shared-connectors": SharedConnectors,
    "files": Files,
}


def table(unit: type[Unit], figures: list[Figures]) -> str:
    """Returns the figures of all counts and what one more unit costs, as Markdown."""
    lines = [
        f"| {unit.name} | until all are there, s | CPU s for it | {unit.holder}, MB | KB for one more | idle, % of a core | ms of CPU a minute for one more | start with them, s |",
        "|---|---|---|---|---|---|---|---|",
    ]
    before: list[Figures | None] = [None, *figures]
    for earlier, now in pairwise(before):
        assert now is not None
        more = ("", "")
        if earlier is not None:
            added = now.count - earlier.count
            kb = (now.memory_mb - earlier.memory_mb) * 1e3 / added
            ms = (now.idle_percent - earlier.idle_percent) * 600 / added
            more = (f"{kb:,.1f}", f"{ms:,.2f}")
        again = f"{now.again_s:.2f}" if now.again_s else ""
        lines.append(
            f"| {now.count:,} | {now.ready_s:,.2f} | {now.ready_cpu_s:,.2f} | {now.memory_mb:,.0f} | {more[0]} | {now.idle_percent:.2f} | {more[1]} | {again} |"
        )
    return "\n".join(lines)


def run(unit: type[Unit], counts: tuple[int, ...]) -> list[Figures]:
    figures = []
    for count in counts:
        with tempfile.TemporaryDirectory(prefix="klamm-growth-") as work, unit(Path(work) / "w") as one:
            figures.append(one.measure(count))
        print(f"{unit.name}: {figures[-1]}", flush=True)
    return figures


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev bench growth", description=__doc__)
    parser.add_argument("--only", default=",".join(UNITS), help="which, by commas: " + ", ".join(UNITS))
    parser.add_argument("--counts", help="how many, by commas (default: each one's own)")
    parser.add_argument("--write", action="store_true", help="write the tables into docs/performance.md")
    asked = parser.parse_args()
    unknown = [name for name in asked.only.split(",") if name not in UNITS]
    if unknown:
        parser.error(f"--only {unknown[0]}: one of {', '.join(UNITS)}")
    for name in asked.only.split(","):
        unit = UNITS[name]
        counts = tuple(int(n) for n in asked.counts.split(",")) if asked.counts else unit.counts
        text = f"## Growth: {unit.name}\n\n`python -m bench.growth.compare --only {name}`, {report.machine()}\n\n{table(unit, run(unit, counts))}"
        print(text)
        if asked.write:
            report.write(f"bench/growth/{name}", text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
