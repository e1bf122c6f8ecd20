"""Every bench beside its peer, one after the other, two soaks, and the summary of docs/performance.md.

    python -m bench.all.compare [--only broker,mirror] [--list]

Each bench rewrites its section of docs/performance.md, each soak its section of docs/reliability.md; at the end the
summary and the chart are made anew. What fails or whose peer is not here leaves its section as it was; the exit code is
then 1. All of it takes some four and a half hours, and nothing else should run beside it.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from bench import summary


@dataclass(frozen=True, slots=True)
class Bench:
    """A bench: the module with its arguments, and about how many minutes it takes on two cores."""

    name: str
    command: str
    minutes: int


BENCHES = [
    Bench("broker", "bench.broker.compare --runs 5", 25),
    Bench("growth", "bench.growth.compare", 20),
    Bench("connect", "bench.connect.compare --runs 3", 6),
    Bench("paths", "bench.paths --runs 3", 12),
    Bench("sources", "bench.sources.files --runs 3", 3),
    Bench("mysql", "bench.mysql.compare --runs 3", 4),
    Bench("sinks", "bench.sinks.compare --runs 3", 8),
    Bench("databases", "bench.sinks.databases --runs 3", 6),
    Bench("elasticsearch", "bench.elasticsearch.compare --runs 3", 5),
    Bench("codecs", "bench.codecs.compare --rounds 7 --records 2000", 2),
    Bench("mirror", "bench.mirror.compare --runs 2 --mb 500 --codecs none,lz4,zstd", 12),
    Bench("mirror-kafka", "bench.mirror.compare --runs 2 --mb 500 --broker kafka --codecs none,lz4,zstd", 14),
    Bench("mirror-many", "bench.mirror.many --partitions 8,1000", 6),
    Bench("mirror-start", "bench.mirror.start --starts 4", 4),
    Bench("mirror-distance", "bench.mirror.distance --rates 50,500", 6),
    Bench("backup", "bench.backup.compare --runs 3 --mb 500", 4),
    Bench("agent", "bench.agent.compare --runs 3 --format raw", 6),
    Bench("agent-json", "bench.agent.compare --runs 2 --format json", 8),
    Bench("agent-rotate", "bench.agent.compare --runs 3 --format raw --rotate", 8),
    Bench("registry", "bench.registry.compare", 2),
    Bench("spark", "bench.spark.compare", 5),
    Bench("spark-latency", "bench.spark.latency", 5),
    Bench("pipeline", "bench.pipeline.compare", 30),
    Bench("soak-agent", "support.agent_soak --kills 200", 8),
    Bench("soak-mixed", "support.mixed.soak --minutes 60", 62),
]
_TESTS = Path(__file__).parents[2] / "tests"
"""The root of the soaks' modules."""


def run(chosen: list[Bench]) -> list[str]:
    """Runs the benches; returns the names of those that failed."""
    failed: list[str] = []
    environment = os.environ | {"PYTHONPATH": str(_TESTS)}
    left = sum(bench.minutes for bench in chosen)
    for n, bench in enumerate(chosen, 1):
        print(
            f"\n== {n}/{len(chosen)} {bench.name}: about {bench.minutes} minutes, {left} to the end",
            flush=True,
        )
        began = time.monotonic()
        code = subprocess.run(
            [sys.executable, "-m", *bench.command.split(), "--write"], check=False, env=environment
        ).returncode
        left -= bench.minutes
        print(
            f"== {bench.name}: {'done' if code == 0 else f'exit code {code}'} after {(time.monotonic() - began) / 60:.0f} minutes"
        )
        if code:
            failed.append(bench.name)
    return failed


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="./dev bench all", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="some of: " + ", ".join(bench.name for bench in BENCHES))
    parser.add_argument("--list", action="store_true", help="print the commands, and run nothing")
    args = parser.parse_args()
    wanted = [name for name in args.only.split(",") if name]
    known = {bench.name for bench in BENCHES}
    if unknown := [name for name in wanted if name not in known]:
        parser.error(f"--only {unknown[0]}: one of {', '.join(bench.name for bench in BENCHES)}")
    chosen = [bench for bench in BENCHES if not wanted or bench.name in wanted]
    if args.list:
        for bench in chosen:
            print(f"python -m {bench.command} --write  # {bench.minutes} minutes")
        return 0
    failed = run(chosen)
    summary.write()
    print(f"\n{summary.table(summary.look(summary.pages()))}")
    if failed:
        print(f"\nnot measured anew: {', '.join(failed)}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
