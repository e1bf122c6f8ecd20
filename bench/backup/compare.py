"""`klamm backup create`, `verify` and `restore` over a filled topic, beside what the fastest C client needs to read it.

    python -m bench.backup.compare [--runs 3] [--mb 1000] [--size 1000] [--broker klamm|kafka] [--codecs none,lz4] [--write]

The peer is a consumer of librdkafka in a process of its own, which writes keys and values to one file: no offsets, times, headers,
checksums or increments. Half of each value is bytes by chance; MB are those of the values. CPU seconds are
those of the process. Runs alternate.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench import arguments, report
from bench.report import Row
from bench.servers import Kafka, Klamm, Server
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

TOPIC, PARTITIONS = "bench", 4
ROWS = [
    Row("mb_s", "create, MB/s", 0),
    Row("cpu_s_gb", "create, CPU s/GB", 2),
    Row("broker_cpu_s_gb", "create, CPU s/GB of the broker", 2),
    Row("stored_mb", "stored, MB", 0),
    Row("verify_cpu_s_gb", "verify, CPU s/GB", 2),
    Row("restore_mb_s", "restore, MB/s", 0),
    Row("restore_cpu_s_gb", "restore, CPU s/GB", 2),
    Row("memory_mb", "most memory of the command, MB", 0),
]
READER = f"""
import sys
from confluent_kafka import Consumer, TopicPartition
consumer = Consumer({{"bootstrap.servers": sys.argv[1], "group.id": "g", "enable.partition.eof": True, "auto.offset.reset": "earliest"}})
consumer.assign([TopicPartition("{TOPIC}", p, 0) for p in range({PARTITIONS})])
left = {PARTITIONS}
with open(sys.argv[2], "wb") as out:
    while left:
        for message in consumer.consume(10_000, 1):
            if message.error():
                left -= 1
                continue
            out.write(message.key() or b"")
            out.write(message.value())
"""


def fill(server: Server, mb: int, size: int, codec: str) -> None:
    """Write the topic."""
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(60)
    producer = Producer(
        {"bootstrap.servers": server.bootstrap, "compression.type": codec, "linger.ms": 20, "batch.size": 131_072,
         "queue.buffering.max.messages": 1_000_000, "queue.buffering.max.kbytes": 1_000_000}
    )  # fmt: skip
    rest = b"x" * (size - size // 2)
    for i in range(mb * 1_000_000 // size):
        producer.produce(TOPIC, random.randbytes(size // 2) + rest, b"%d" % i, partition=i % PARTITIONS)
        if not i % 1000:
            producer.poll(0)
    producer.flush()


def timed(*command: str) -> tuple[float, float, float]:
    """Run a command. Returns its seconds, its CPU seconds, and its most memory in MB."""
    begin = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.monotonic() - begin
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{command[:3]} ended with {process.returncode}")
    return seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1000


def ours(server: Server, work: Path, mb: int, run: int) -> dict[str, float]:
    """Measure one round of create, verify and restore."""
    klamm, folder = str(Path(sys.executable).with_name("klamm")), work / "backup"
    broker = server.cpu_s()
    at = ("-b", server.bootstrap)
    seconds, cpu, memory = timed(klamm, "backup", "create", str(folder), *at, "-t", TOPIC)
    broker = server.cpu_s() - broker
    stored = sum(p.stat().st_size for p in folder.rglob("*.chunk")) / 1e6
    _, verify_cpu, _ = timed(klamm, "backup", "verify", str(folder))
    copy = f"copy{run}"
    back, back_cpu, _ = timed(
        klamm, "backup", "restore", str(folder), *at, "--rename", f"{TOPIC}={copy}", "--parts", "topics"
    )
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    admin.delete_topics([copy])[copy].result(60)
    shutil.rmtree(folder)
    gb = mb / 1000
    return {
        "mb_s": mb / seconds, "cpu_s_gb": cpu / gb, "broker_cpu_s_gb": broker / gb, "stored_mb": stored,
        "verify_cpu_s_gb": verify_cpu / gb, "restore_mb_s": mb / back, "restore_cpu_s_gb": back_cpu / gb,
        "memory_mb": memory,
    }  # fmt: skip


def reader(server: Server, work: Path, mb: int) -> dict[str, float]:
    """Measure the C client."""
    broker = server.cpu_s()
    seconds, cpu, memory = timed(sys.executable, "-c", READER, server.bootstrap, str(work / "out"))
    broker = server.cpu_s() - broker
    stored = (work / "out").stat().st_size / 1e6
    gb = mb / 1000
    none = {"verify_cpu_s_gb": 0.0, "restore_mb_s": 0.0, "restore_cpu_s_gb": 0.0}
    return none | {
        "mb_s": mb / seconds, "cpu_s_gb": cpu / gb, "broker_cpu_s_gb": broker / gb, "stored_mb": stored,
        "memory_mb": memory,
    }  # fmt: skip


def main() -> None:
    parser = arguments.parser(__doc__)
    arguments.add_volume(parser)
    arguments.add_broker(parser, "the broker that holds the topic")
    parser.add_argument("--codecs", default="none,lz4")
    args = parser.parse_args()
    texts = []
    for codec in args.codecs.split(","):
        results: report.Results = {"klamm": [], "C client to a file": []}
        with tempfile.TemporaryDirectory() as name:
            work = Path(name)
            server: Server = (Klamm if args.broker == "klamm" else Kafka)(work / "broker")
            server.start()
            try:
                fill(server, args.mb, args.size, codec)
                for run in range(args.runs):
                    results["klamm"].append(ours(server, work, args.mb, run))
                    results["C client to a file"].append(reader(server, work, args.mb))
            finally:
                server.stop()
        title = f"Batches compressed by {codec}" if codec != "none" else "Batches without compression"
        texts.append(f"{title}:\n\n{report.table(results, ROWS)}\n\n{report.spread(results, ROWS)}")
        print(texts[-1], flush=True)
    if args.write:
        intro = (
            f"{report.machine()}; {args.mb} MB of records of {args.size} bytes in {PARTITIONS} partitions, broker: {args.broker}, "
            f"{args.runs} runs. `python -m bench.backup.compare` measures it. The C client writes keys and values alone, without compression; "
            "it verifies and restores nothing."
        )
        report.write("backup", "\n\n".join(["## Backup", intro, *texts]))


if __name__ == "__main__":
    main()
