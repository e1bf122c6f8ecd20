"""The mirror over a long line to its source, beside MirrorMaker 2: the share of the line that each of them uses.

    python -m bench.mirror.distance [--rates 50,500] [--round-trip 100] [--partitions 4] [--tasks 1]
        [--seconds 12] [--window 0] [--broker klamm|kafka] [--without-mm2] [--write]

The source is behind a line of `line.c` with a round trip of 100 ms; mirror and target are at its other end. All share
the machine's cores, so a rate that they cannot carry together is no limit of a mirror: the first column says what
plain connections get through the same line with nothing else at work.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from bench import arguments, report
from bench.mirror.compare import Mirror, chosen, fill, measure
from bench.mirror.line import Line, capacity
from bench.report import Row
from bench.servers import Server, free_port

ROWS = [
    Row("mb_s", "copy, MB/s", 1),
    Row("share", "share of the line", 2),
    Row("cpu_s_gb", "CPU s/GB of the mirror", 2),
    Row("memory_mb", "memory of the mirror, MB", 0),
]
SIZE = 1000


def far_source(broker: type[Server], directory: Path) -> Server:
    """Returns a broker, not started, that tells clients the port of its line."""
    source = broker(directory)
    source.advertised_port = free_port()
    return source


def run(
    kind: type[Mirror], work: Path, source: Line, broker: type[Server], args: argparse.Namespace, records: int
) -> dict[str, float]:
    target = broker(work / "target")
    target.start()
    mirror = kind(work / "mirror", source, target, "target", tasks=args.tasks, more=args.more)
    try:
        return measure(mirror, target, records, SIZE, args.partitions)
    except BaseException:
        print((mirror.directory / "mirror.log").read_text()[-3000:], file=sys.stderr)
        raise
    finally:
        target.stop()


def main() -> int:
    parser = arguments.parser(__doc__)
    parser.add_argument("--rates", default="50,500", help="MB/s of the line")
    parser.add_argument("--round-trip", type=float, default=100, help="ms")
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--tasks", type=int, default=1)
    parser.add_argument(
        "--seconds", type=float, default=12, help="how long the line would take, at most 3 GB"
    )
    parser.add_argument("--window", type=int, default=0, help="bytes under way of a connection; 0: no limit")
    arguments.add_broker(parser, "source and target")
    parser.add_argument("--without-mm2", action="store_true")
    parser.add_argument("--more", default="", help="a line for the mirrors' file")
    args = parser.parse_args()
    texts = []
    broker, mirrors = chosen(args.broker, without_mm2=args.without_mm2)
    for rate in (float(r) for r in args.rates.split(",")):
        line = {"round_trip_ms": args.round_trip, "bytes_per_s": int(rate * 1e6), "window": args.window}
        gives = capacity(**line, connections=8)
        print(f"line of {rate:g} MB/s: plain connections get {gives:.1f} MB/s through", flush=True)
        results: report.Results = {}
        for kind in mirrors:
            with tempfile.TemporaryDirectory(prefix="klamm-bench-") as tmp:
                server = far_source(broker, Path(tmp) / "source")
                server.start()
                try:
                    with Line(server) as source:
                        records = fill(source, int(min(rate * args.seconds, 3000)), SIZE, args.partitions)
                        source.use(**line)
                        found = run(kind, Path(tmp), source, broker, args, records)
                finally:
                    server.stop()
            results[kind.name] = [found | {"share": found["mb_s"] / gives}]
            print(f"{kind.name}: {found}", flush=True)
        texts.append(
            f"A line of {rate:g} MB/s; plain connections get {gives:.0f} MB/s through.\n\n"
            f"{report.table(results, ROWS)}"
        )
        print(f"\n{texts[-1]}\n")
    if args.write:
        about = (
            f"`python -m bench.mirror.distance --rates {args.rates} --round-trip {args.round_trip:g} --partitions "
            f"{args.partitions} --tasks {args.tasks} --window {args.window} --broker {args.broker}`, {report.machine()}; one "
            "run; both brokers, the line and the mirror share the cores."
        )
        whole = "\n\n".join(texts)
        report.write("bench/mirror/distance", f"## Mirror: over a long line\n\n{about}\n\n{whole}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
