"""The log pipeline as a whole: how late a line can be searched, how many lines a second, and what each stage costs.

    python -m bench.pipeline.compare [latency] [throughput] [--rates 1000,5000] [--partitions 1,2,4] [--write]

`latency`: services write lines at a rate; agent, broker, Spark's log job and Elasticsearch are genuine and share the
machine with them. Some 20 lines a second are looked for by searching ten times a second; a line's latency is from when it
was due to the answer that has it. CPU is of each stage's processes while lines are written.

`throughput`: lines that are in topics already, in the agent's documents, go through the log job, into nothing and into
Elasticsearch. Counted is from the end of the batch that completes `--warm-up-lines` (Java compiles what runs often while these go
through) to the end of the last one.

What was asked of the figures, and whether it is met, stands behind each table.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from bench import arguments, bars, report
from bench.pipeline import latency, throughput


def numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def main() -> None:
    parser = arguments.parser(__doc__)
    parser.add_argument("what", nargs="*", choices=["latency", "throughput", []], default=[])
    parser.add_argument("--rates", type=numbers, default=[1000, 5000], help="lines a second")
    parser.add_argument("--seconds", type=int, default=300, help="of each rate")
    parser.add_argument("--warm-up", type=int, default=180, help="seconds of these that do not count")
    parser.add_argument("--partitions", type=numbers, default=[1, 2, 4])
    parser.add_argument("--lines", type=int, default=3_000_000, help="of a throughput run")
    parser.add_argument("--warm-up-lines", type=int, default=1_500_000, help="of these that do not count")
    parser.add_argument("--sinks", default="noop,elasticsearch")
    parser.add_argument("--batch", type=int, default=200_000, help="lines in a batch of a throughput run")
    asked = parser.parse_args()
    what = asked.what or ["latency", "throughput"]
    texts: dict[str, str] = {}
    if "latency" in what:
        found = []
        for rate in asked.rates:
            with tempfile.TemporaryDirectory(prefix="klamm-bench-") as work:
                found.append(latency.run(Path(work), rate, asked.seconds, asked.warm_up))
                print(found[-1], file=sys.stderr)
        texts["latency"] = (
            f"{report.machine()}. {asked.seconds - asked.warm_up} s of each rate, after {asked.warm_up} s in which "
            f"Java compiles what runs often.\n\n{latency.table(found)}"
        )
    if "throughput" in what:
        with tempfile.TemporaryDirectory(prefix="klamm-bench-") as work:
            results = throughput.run(
                Path(work),
                asked.partitions,
                asked.sinks.split(","),
                lines=asked.lines,
                batch=asked.batch,
                warm=asked.warm_up_lines,
            )
        texts["throughput"] = f"{report.machine()}.\n\n{throughput.table(results)}"
    for name, text in texts.items():
        print(text, bars.told(f"bench/pipeline/{name}", text), sep="\n\n")
        if asked.write:
            report.write(f"bench/pipeline/{name}", f"{TITLES[name]}\n\n{text}")


TITLES = {
    "latency": "## Log pipeline: from the line to the search",
    "throughput": "## Log pipeline: lines through Spark",
}


if __name__ == "__main__":
    main()
