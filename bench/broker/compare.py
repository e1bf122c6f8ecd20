"""Klamm's broker against Apache Kafka, alternating in one run, the same C client and settings for both.

    python bench/broker/compare.py [--runs 3] [--mb 512] [--record-size 1024] [--partitions 4] [--write]

Measures produce and consume MB/s (1 MB = 1e6 bytes of record values) and broker CPU seconds per GB,
p50 and p99 of single 100-byte acknowledged messages, seconds from exec to the first Metadata answer, and RSS
idle and after the load. Prints medians and ratios; `--write` puts them into docs/performance.md. Machines are
noisy: read the ratios, and CPU seconds before MB/s.
"""

from __future__ import annotations

import argparse
import datetime as dt
import os
import platform
import statistics
import sys
import tempfile
import time
from pathlib import Path

import confluent_kafka
import load
from servers import Kafka, Klamm, Server

IDLE_S = 3
ROWS = [  # key, what the table says, digits, True when more is better
    ("produce_mb_s", "produce, MB/s", 0, True),
    ("produce_cpu", "produce, broker CPU s/GB", 2, False),
    ("consume_mb_s", "consume, MB/s", 0, True),
    ("consume_cpu", "consume, broker CPU s/GB", 2, False),
    ("p50_us", "100-byte message, p50, µs", 0, False),
    ("p99_us", "100-byte message, p99, µs", 0, False),
    ("start_s", "start to first Metadata answer, s", 2, False),
    ("rss_idle_mb", "RSS idle, MB", 0, False),
    ("rss_loaded_mb", "RSS after load, MB", 0, False),
]


def measure(server: Server, args: argparse.Namespace) -> dict[str, float]:
    result = {"start_s": server.start()}
    try:
        time.sleep(IDLE_S)
        result["rss_idle_mb"] = server.rss_mb()
        warm = load.create_topic(server.bootstrap, args.partitions)
        throughput(server, warm, args, mb=args.warm_mb)  # lets the JVM compile what it will run
        load.delete_topic(server.bootstrap, warm)
        topic = load.create_topic(server.bootstrap, args.partitions)
        result |= throughput(server, topic, args, mb=args.mb)
        took = sorted(load.latency_us(server.bootstrap, topic, messages=args.messages))
        result["p50_us"] = took[len(took) // 2]
        result["p99_us"] = took[len(took) * 99 // 100]
        result["rss_loaded_mb"] = server.rss_mb()
    finally:
        server.stop()
    return result


def throughput(server: Server, topic: str, args: argparse.Namespace, *, mb: int) -> dict[str, float]:
    records = mb * 1_000_000 // args.record_size
    gb = records * args.record_size / 1e9
    before = server.cpu_s()
    written = load.produce(
        server.bootstrap, topic, records=records, size=args.record_size, partitions=args.partitions
    )
    between = server.cpu_s()
    read = load.consume(server.bootstrap, topic, records=records, partitions=args.partitions)
    after = server.cpu_s()
    return {
        "produce_mb_s": gb * 1e3 / written,
        "produce_cpu": (between - before) / gb,
        "consume_mb_s": gb * 1e3 / read,
        "consume_cpu": (after - between) / gb,
    }


def table(results: dict[str, list[dict[str, float]]]) -> str:
    names = list(results)
    lines = [
        "| | " + " | ".join(names) + " | klamm / kafka |",
        "|---|" + "---|" * (len(names) + 1),
    ]
    for key, label, digits, _more in ROWS:
        medians = [statistics.median(run[key] for run in results[name]) for name in names]
        ratio = f"{medians[0] / medians[1]:.2f}" if len(medians) == 2 else "no peer"
        cells = [f"{m:,.{digits}f}" for m in medians]
        lines.append(f"| {label} | " + " | ".join(cells) + f" | {ratio} |")
    return "\n".join(lines)


def spread(results: dict[str, list[dict[str, float]]]) -> str:
    lines = ["every run (min to max):", ""]
    for key, label, digits, _more in ROWS:
        cells = [
            f"{name} {min(r[key] for r in runs):,.{digits}f} to {max(r[key] for r in runs):,.{digits}f}"
            for name, runs in results.items()
        ]
        lines.append(f"- {label}: " + "; ".join(cells))
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--mb", type=int, default=512, help="record bytes a run, in MB")
    parser.add_argument("--warm-mb", type=int, default=256, help="record bytes before measuring, in MB")
    parser.add_argument("--record-size", type=int, default=1024, help="bytes")
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--messages", type=int, default=3000, help="single messages for the latency")
    parser.add_argument(
        "--dir", type=Path, default=None, help="where the data goes (default: a temporary folder)"
    )
    parser.add_argument("--write", action="store_true", help="put the figures into docs/performance.md")
    args = parser.parse_args()
    kinds: list[type[Server]] = [Klamm]
    missing = Kafka.missing()
    if missing is None:
        kinds.append(Kafka)
    else:
        print(f"Apache Kafka is left out: {missing}", file=sys.stderr)
    results: dict[str, list[dict[str, float]]] = {kind.name: [] for kind in kinds}
    with tempfile.TemporaryDirectory(prefix="klamm-bench-", dir=args.dir) as tmp:
        for run in range(args.runs):
            for kind in kinds if run % 2 == 0 else kinds[::-1]:  # neither is always first
                result = measure(kind(Path(tmp) / f"{kind.name}-{run}"), args)
                results[kind.name].append(result)
                print(
                    f"run {run + 1}/{args.runs} {kind.name}: "
                    + ", ".join(f"{k}={v:.2f}" for k, v in result.items())
                )
    print("\n" + table(results) + "\n\n" + spread(results))
    if args.write:
        write(results, args)
    return 0


def write(results: dict[str, list[dict[str, float]]], args: argparse.Namespace) -> None:
    page = Path(__file__).parents[2] / "docs" / "performance.md"
    head, mark = "<!-- bench/broker -->", "<!-- end bench/broker -->"
    text = page.read_text() if page.exists() else f"# Performance\n\n{head}\n{mark}\n"
    before, rest = text.split(head, 1)
    _, after = rest.split(mark, 1)
    about = (
        f"`bench/broker/compare.py --runs {args.runs} --mb {args.mb}`, {dt.datetime.now(tz=dt.UTC).date()}, {os.cpu_count()} cores, "
        f"Python {platform.python_version()}, librdkafka {confluent_kafka.libversion()[0]}, "
        f"{args.partitions} partitions, {args.record_size}-byte records, acks=1, "
        f"{load.BATCH_BYTES // 1024} KiB batches; medians, Apache Kafka 4.3.1 with its stock heap."
    )
    page.write_text(f"{before}{head}\n{about}\n\n{table(results)}\n\n{spread(results)}\n{mark}{after}")


if __name__ == "__main__":
    sys.exit(main())
