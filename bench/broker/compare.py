"""Klamm's broker against Apache Kafka, alternating in one run, the same C client and settings for both.

    python -m bench.broker.compare [--runs 3] [--mb 512] [--record-size 1024] [--partitions 4] [--write]

Measures produce and consume MB/s (1 MB = 1e6 bytes of record values) and broker CPU seconds per GB,
p50 and p99 of single 100-byte acknowledged messages, seconds from exec to the first Metadata answer, and RSS
idle and after the load. Prints medians and ratios; `--write` puts them into docs/performance.md. Machines are
noisy: read the ratios, and CPU seconds before MB/s.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import confluent_kafka
from bench import report
from bench.broker import load
from bench.report import Row
from bench.servers import Kafka, Klamm, Server

IDLE_S = 3
ROWS = [
    Row("produce_mb_s", "produce, MB/s", 0),
    Row("produce_cpu", "produce, broker CPU s/GB", 2),
    Row("consume_mb_s", "consume, MB/s", 0),
    Row("consume_cpu", "consume, broker CPU s/GB", 2),
    Row("p50_us", "100-byte message, p50, µs", 0),
    Row("p99_us", "100-byte message, p99, µs", 0),
    Row("start_s", "start to first Metadata answer, s", 2),
    Row("rss_idle_mb", "RSS idle, MB", 0),
    Row("rss_loaded_mb", "RSS after load, MB", 0),
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
    results: report.Results = {kind.name: [] for kind in kinds}
    with tempfile.TemporaryDirectory(prefix="klamm-bench-", dir=args.dir) as tmp:
        for run in range(args.runs):
            for kind in kinds if run % 2 == 0 else kinds[::-1]:  # neither is always first
                result = measure(kind(Path(tmp) / f"{kind.name}-{run}"), args)
                results[kind.name].append(result)
                print(
                    f"run {run + 1}/{args.runs} {kind.name}: "
                    + ", ".join(f"{k}={v:.2f}" for k, v in result.items())
                )
    text = f"{report.table(results, ROWS)}\n\n{report.spread(results, ROWS)}"
    print(f"\n{text}")
    if args.write:
        report.write("bench/broker", f"## Broker\n\n{about(args)}\n\n{text}")
    return 0


def about(args: argparse.Namespace) -> str:
    return (
        f"`python -m bench.broker.compare --runs {args.runs} --mb {args.mb} --warm-mb {args.warm_mb}`, "
        f"{report.machine()}, librdkafka {confluent_kafka.libversion()[0]}, {args.partitions} partitions, "
        f"{args.record_size}-byte records, acks=1, {load.BATCH_BYTES // 1024} KiB batches; medians; "
        "Apache Kafka 4.3.1 with its stock heap."
    )


if __name__ == "__main__":
    sys.exit(main())
