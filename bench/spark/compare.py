"""Our data source for topics against Spark's own Kafka connector, alternating, on one broker of ours.

    python -m bench.spark.compare [--runs 3] [--records 1000000] [--write]

JSON lines of about 136 bytes in four partitions. `batch`: parsed, grouped and counted, the second time in a session;
`stream`: parsed and written to Parquet in five batches, from a cold start of the query. Each run is a process of its own
(driver, Java and workers counted together), the results of both are compared. The peer's jars come from
`klamm spark setup --kafka-connector`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
from bench import arguments, report
from bench.broker import load
from bench.report import Row
from bench.servers import Klamm
from confluent_kafka import Producer

from klamm_spark import kafka_jars

PARTITIONS, BATCHES = 4, 5
SCHEMA = "id BIGINT, service STRING, status INT, ms DOUBLE, text STRING"
ROWS = [
    Row("batch_rec_s", "batch parse and aggregate, records/s", 0),
    Row("batch_cpu", "batch, CPU s per million records", 2),
    Row("stream_rec_s", "stream to Parquet, records/s", 0),
    Row("stream_cpu", "stream, CPU s per million records", 2),
]


def fill(bootstrap: str, records: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "batch.size": 1 << 20})
    for i in range(records):
        line = {
            "id": i,
            "service": f"service-{i % 40}",
            "status": 200 + i % 5 * 100,
            "ms": i % 997 / 7,
            "text": "x" * 48,
        }
        while True:
            try:
                producer.produce("lines", json.dumps(line), partition=i % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(120) == 0


def child(name: str, bootstrap: str, records: int, directory: Path) -> dict[str, float]:
    """One run in a process of its own."""
    command = [
        sys.executable,
        "-m",
        "bench.spark.compare",
        "--child",
        name,
        bootstrap,
        str(records),
        str(directory),
    ]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def family_cpu_s() -> float:
    """CPU of this process, Java and the workers, also of those that ended."""
    me = psutil.Process()
    total = 0.0
    for p in (me, *me.children(recursive=True)):
        try:
            t = p.cpu_times()
        except psutil.NoSuchProcess:  # its parent has counted it
            continue
        total += t.user + t.system + (t.children_user + t.children_system if p != me else 0)
    return total


def run(name: str, bootstrap: str, records: int, directory: Path) -> dict[str, float]:
    from pyspark.sql import functions as F  # noqa: N812

    from klamm_spark.session import LOCAL_FILES, open_session

    settings = LOCAL_FILES | ({} if name == "klamm" else kafka_jars.settings())
    spark = open_session("bench", "local[2]", settings)
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": "lines", "startingOffsets": "earliest"}
    results: dict[str, float] = {}

    def parsed(frame):
        return frame.select(F.from_json(F.col("value").cast("string"), SCHEMA).alias("d")).select("d.*")

    for _ in range(2):  # the second one counts: compiled and warm
        frame = parsed(spark.read.format(name).options(**options).load())
        cpu, begin = family_cpu_s(), time.monotonic()
        found = (
            frame.groupBy("service", "status")
            .agg(F.count("*").alias("n"), F.avg("ms"))
            .agg(F.sum("n"))
            .first()
        )
        took, used = time.monotonic() - begin, family_cpu_s() - cpu
        assert found[0] == records
    results["batch_rec_s"], results["batch_cpu"] = records / took, used / records * 1e6

    stream = (
        spark.readStream.format(name).options(**options, maxOffsetsPerTrigger=str(records // BATCHES)).load()
    )
    out = directory / "out"
    cpu, begin = family_cpu_s(), time.monotonic()
    writer = parsed(stream).writeStream.format("parquet").option("path", str(out))
    query = writer.option("checkpointLocation", str(directory / "cp")).trigger(availableNow=True).start()
    query.awaitTermination()
    took, used = time.monotonic() - begin, family_cpu_s() - cpu
    ids = spark.read.parquet(str(out)).agg(F.count("id"), F.countDistinct("id")).first()
    assert tuple(ids) == (records, records)
    results["stream_rec_s"], results["stream_cpu"] = records / took, used / records * 1e6
    spark.stop()
    return results


def main() -> None:
    if sys.argv[1:2] == ["--child"]:
        name, bootstrap, records, directory = sys.argv[2:]
        print(json.dumps(run(name, bootstrap, int(records), Path(directory))))
        return
    parser = arguments.parser(__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--records", type=int, default=1_000_000)
    args = parser.parse_args()
    formats = {"klamm": "klamm"}
    if kafka_jars.find():
        formats["kafka"] = "kafka"
    else:
        print("no peer: klamm spark setup --kafka-connector fetches its jars", file=sys.stderr)
    results: report.Results = {name: [] for name in formats}
    with tempfile.TemporaryDirectory(prefix="klamm-bench-") as work:
        broker = Klamm(Path(work))
        broker.start()
        try:
            load.create_topic(broker.bootstrap, PARTITIONS, "lines")
            fill(broker.bootstrap, args.records)
            for number in range(args.runs):
                for name, form in formats.items():
                    directory = Path(work) / f"{name}-{number}"
                    results[name].append(child(form, broker.bootstrap, args.records, directory))
                    print(name, results[name][-1], file=sys.stderr)
        finally:
            broker.stop()
    text = f"{report.machine()}, {args.records:,} records, {args.runs} runs\n\n{report.table(results, ROWS)}\n\n{report.spread(results, ROWS)}"
    print(text)
    if args.write:
        report.write("spark", text)


if __name__ == "__main__":
    main()
