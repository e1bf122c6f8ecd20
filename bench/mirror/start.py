"""The time until a mirror copies its first record between brokers of Apache Kafka that run for a while, beside MirrorMaker 2.

    python -m bench.mirror.start [--starts 5] [--mb 100] [--write]

`bench.mirror.compare` gives each run a fresh target. There, seconds of CPU of the target's own first minute count as the
mirror's. Here both brokers stay, and what a mirror made is deleted before the next start. Klamm goes first, so its first
starts meet the colder brokers.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from bench import arguments, report
from bench.mirror.compare import ROWS, TOPIC, KlammMirror, Mirror, MirrorMaker2, fill, measure
from bench.servers import Kafka, Server
from confluent_kafka.admin import AdminClient

_SIZE = 1000


def empty(server: Server) -> None:
    """Deletes all topics but the source's own and Kafka's."""
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    there = admin.list_topics(timeout=20).topics
    made = [name for name in there if not name.startswith("__") and name != TOPIC]
    for deleted in admin.delete_topics(made).values() if made else ():
        deleted.result(30)


def started(starts: int, megabytes: int) -> report.Results:
    """Starts each mirror so many times over the same two brokers."""
    kinds: list[type[Mirror]] = [KlammMirror, MirrorMaker2]
    results: report.Results = {kind.name: [] for kind in kinds}
    with tempfile.TemporaryDirectory(prefix="klamm-bench-") as tmp:
        source, target = Kafka(Path(tmp) / "source"), Kafka(Path(tmp) / "target")
        source.start()
        target.start()
        try:
            records = fill(source, megabytes, _SIZE)
            for kind in kinds:
                for run in range(starts):
                    alias = f"{kind.__name__.lower()}{run}"
                    mirror = kind(Path(tmp) / alias, source, target, alias)
                    found = measure(mirror, target, records, _SIZE)
                    results[kind.name].append(found)
                    print(f"{kind.name}, start {run + 1}: {found['first_s']:.2f} s", flush=True)
                    empty(source)
                    empty(target)
        finally:
            target.stop()
            source.stop()
    return results


def main() -> int:
    parser = arguments.parser(__doc__)
    parser.add_argument("--starts", type=int, default=5)
    parser.add_argument("--mb", type=int, default=100, help="how much the topic holds")
    args = parser.parse_args()
    if (missing := Kafka.missing()) is not None:
        print(f"there is nothing to measure with: {missing}", file=sys.stderr)
        return 1
    results = started(args.starts, args.mb)
    rows = [row for row in ROWS if row.key in {"first_s", "total_cpu_s"}]
    text = f"{report.table(results, rows)}\n\n{report.spread(results, rows)}"
    print(f"\n{text}")
    if args.write:
        about = (
            f"`python -m bench.mirror.start --starts {args.starts} --mb {args.mb}`, {report.machine()}; medians; two brokers of "
            "Apache Kafka 4.3.1 that stay for all starts. A target that was just made takes a second or two longer: most of its "
            "first seconds are its own compiler's."
        )
        report.write("bench/mirror/start", f"## Mirror: to the first record\n\n{about}\n\n{text}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
