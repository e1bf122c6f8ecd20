"""Latency from topic to topic through Spark: our source and sink, Spark's own Kafka connector, its real-time mode.

    python -m bench.spark.latency [--rate 500] [--seconds 30] [--only NAME,…] [--write]

A producer writes records at a rate, each with the time in its value; a query copies them; a consumer at the end (that reads
committed records) takes the difference. Every case is a session of its own; the first twenty batches and ten seconds are not counted. The
jars of the peer come from `klamm spark setup --kafka-connector`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from bench import arguments, bars, report
from bench.broker import load
from bench.report import Row
from bench.servers import Klamm
from bench.spark.compare import family_cpu_s
from confluent_kafka import Consumer, Producer, TopicPartition

from klamm_spark import kafka_jars

PARTITIONS = 4
WARM, WARM_S = 20, 10.0
CASES = {
    "klamm": {"format": "klamm"},
    "klamm exactly-once": {"format": "klamm", "sink": {"deliveryGuarantee": "exactly-once"}},
    "kafka": {"format": "kafka"},
    "kafka real-time": {"format": "kafka", "realTime": "1 minute"},
}
ROWS = [
    Row("p50_ms", "p50, ms", 0),
    Row("p99_ms", "p99, ms", 0),
    Row("batch_ms", "a batch, ms", 0),
    Row("cpu", "CPU s per s", 2),
]


def run(name: str, bootstrap: str, rate: int, seconds: float, directory: Path) -> dict[str, float]:
    from klamm_spark.session import LOCAL_FILES, open_session

    case: dict[str, Any] = CASES[name]
    settings = LOCAL_FILES | (kafka_jars.settings() if case["format"] == "kafka" else {})
    spark = open_session("bench", "local[4]", settings)
    source = {
        "kafka.bootstrap.servers": bootstrap,
        "subscribe": f"in-{directory.name}",
        "startingOffsets": "latest",
    }
    frame = spark.readStream.format(case["format"]).options(**source).load().select("key", "value")
    target = {"kafka.bootstrap.servers": bootstrap, "topic": f"out-{directory.name}"}
    writer = frame.writeStream.format(case["format"]).options(**target, **case.get("sink", {}))
    writer = writer.option("checkpointLocation", str(directory / "checkpoint"))
    if "realTime" in case:
        writer = writer.outputMode("update").trigger(realTime=case["realTime"])
    query = writer.start()
    found: list[float] = []
    stop = threading.Event()
    threads = [
        threading.Thread(target=produce, args=(bootstrap, source["subscribe"], rate, stop)),
        threading.Thread(target=consume, args=(bootstrap, target["topic"], stop, found)),
    ]
    for thread in threads:
        thread.start()
    while query.isActive and (
        not found or ("realTime" not in case and (query.lastProgress or {}).get("batchId", 0) < WARM)
    ):
        time.sleep(0.1)
    time.sleep(WARM_S)
    found.clear()
    cpu, begin = family_cpu_s(), time.monotonic()
    time.sleep(seconds)
    used, took = family_cpu_s() - cpu, time.monotonic() - begin
    seen = sorted(found)
    stop.set()
    for thread in threads:
        thread.join()
    if query.exception() is not None:
        raise SystemExit(f"{name}: {query.exception()}")
    durations = [p.batchDuration for p in query.recentProgress[-20:] if p.numInputRows]
    print(
        name, [(p.numInputRows, p.durationMs) for p in query.recentProgress[-4:]], len(seen), file=sys.stderr
    )
    query.stop()
    spark.stop()
    return {
        "p50_ms": seen[len(seen) // 2],
        "p99_ms": seen[len(seen) * 99 // 100],
        "batch_ms": sorted(durations)[len(durations) // 2] if durations else 0.0,
        "cpu": used / took,
    }


def produce(bootstrap: str, topic: str, rate: int, stop: threading.Event) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    number, begin = 0, time.monotonic()
    while not stop.is_set():
        due = int((time.monotonic() - begin) * rate)
        while number < due:
            producer.produce(topic, f"{time.time()} {'x' * 100}", str(number), partition=number % PARTITIONS)
            number += 1
        producer.poll(0)
        time.sleep(0.001)
    producer.flush(30)


def consume(bootstrap: str, topic: str, stop: threading.Event, found: list[float]) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench",
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 100,
        }
    )
    consumer.assign([TopicPartition(topic, p, 0) for p in range(PARTITIONS)])
    while not stop.is_set():
        came = [m for m in consumer.consume(500, 0.01) if m.error() is None]
        found += [(time.time() - float(m.value().split()[0])) * 1000 for m in came]
    consumer.close()


def main() -> None:
    if sys.argv[1:2] == ["--child"]:
        name, bootstrap, rate, seconds, directory = sys.argv[2:]
        print(json.dumps(run(name, bootstrap, int(rate), float(seconds), Path(directory))))
        return
    parser = arguments.parser(__doc__)
    parser.add_argument("--rate", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--only", default=",".join(CASES))
    args = parser.parse_args()
    names = args.only.split(",")
    if not kafka_jars.find():
        print("no peer: klamm spark setup --kafka-connector fetches its jars", file=sys.stderr)
        names = [n for n in names if CASES[n]["format"] != "kafka"]
    results: report.Results = {name: [] for name in names}
    with tempfile.TemporaryDirectory(prefix="klamm-bench-") as work:
        broker = Klamm(Path(work))
        broker.start()
        try:
            for i, name in enumerate(names):
                directory = Path(work) / f"case{i}"
                directory.mkdir()
                for topic in ("in", "out"):
                    load.create_topic(broker.bootstrap, PARTITIONS, f"{topic}-{directory.name}")
                command = [sys.executable, "-m", "bench.spark.latency", "--child", name, broker.bootstrap]
                command += [str(args.rate), str(args.seconds), str(directory)]
                done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
                results[name].append(json.loads(done.stdout.splitlines()[-1]))
                print(name, results[name][-1], file=sys.stderr)
        finally:
            broker.stop()
    text = (
        f"{report.machine()}, {args.rate} records/s for {args.seconds:.0f} s\n\n{report.table(results, ROWS)}"
    )
    print(text, bars.told("spark-latency", text), sep="\n\n")
    if args.write:
        report.write("spark-latency", text)


if __name__ == "__main__":
    main()
