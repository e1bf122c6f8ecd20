"""`klamm mirror start` against MirrorMaker 2, alternating in one run over the same filled topic.

    python -m bench.mirror.compare [--runs 3] [--mb 1000] [--size 1000] [--broker klamm|kafka] [--codecs none,lz4,zstd]
        [--write]

Source and target are brokers of one kind, the same for both mirrors; each run has a fresh target, which has found a group's
coordinator before the launch, as any broker in use has. Half of each value is
bytes by chance, the rest compresses well; MB are those of the values. Measures MB/s and
CPU seconds per GB of the mirror (with all its processes) from the first record at the target to the last, the
seconds from launch to that first record, and its memory (proportional set size).
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from pathlib import Path

import psutil
from bench import arguments, report
from bench.connect.compare import until
from bench.mirror.line import Line
from bench.report import Row
from bench.servers import KAFKA_HOME, Kafka, Klamm, Server
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

TOPIC, PARTITIONS = "bench", 4
ROWS = [
    Row("mb_s", "copy, MB/s", 0),
    Row("cpu_s_gb", "copy, CPU s/GB of the mirror", 2),
    Row("total_cpu_s", "CPU s of the mirror from launch to the last record", 1),
    Row("first_s", "launch to first record at the target, s", 2),
    Row("memory_mb", "memory of the mirror after the copy, MB", 0),
]


class Mirror(ABC):
    """A mirror process from `source` to `target`, whose alias is `alias`. `more` are lines of the file."""

    name: str

    def __init__(
        self, directory: Path, source: Server | Line, target: Server, alias: str,
        *, topics: str = TOPIC, tasks: int = PARTITIONS, more: str = "",
    ) -> None:  # fmt: skip
        self.directory, self.process = directory, None
        directory.mkdir(parents=True)
        self.properties = directory / "mm2.properties"
        self.properties.write_text(
            f"""\
clusters=source,{alias}
source.bootstrap.servers={source.bootstrap}
{alias}.bootstrap.servers={target.bootstrap}
source->{alias}.enabled=true
source->{alias}.topics={topics}
{alias}->source.enabled=false
tasks.max={tasks}
{more}
replication.factor=1
checkpoints.topic.replication.factor=1
heartbeats.topic.replication.factor=1
offset-syncs.topic.replication.factor=1
config.storage.replication.factor=1
offset.storage.replication.factor=1
status.storage.replication.factor=1
"""
        )

    @abstractmethod
    def command(self) -> list[str]:
        """The command line that runs the mirror in the foreground."""

    def start(self) -> None:
        with (self.directory / "mirror.log").open("wb") as log:
            self.process = subprocess.Popen(self.command(), stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def stop(self) -> None:
        assert self.process is not None
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def _processes(self) -> list[psutil.Process]:
        assert self.process is not None
        if self.process.poll() is not None:
            raise RuntimeError(f"{self.name} left with exit code {self.process.returncode}: see its log")
        parent = psutil.Process(self.process.pid)
        return [parent, *parent.children(recursive=True)]

    def cpu_s(self) -> float:
        """Returns the CPU seconds of the processes that live; helpers of the start that have ended are left out."""
        return sum(t.user + t.system for p in self._processes() for t in [p.cpu_times()])

    def memory_mb(self) -> float:
        infos = [p.memory_full_info() for p in self._processes()]
        return sum(getattr(i, "pss", i.rss) for i in infos) / 1e6


class KlammMirror(Mirror):
    name = "klamm"

    def command(self) -> list[str]:
        return [str(Path(sys.executable).with_name("klamm")), "mirror", "start", str(self.properties)]


class MirrorMaker2(Mirror):
    name = "MirrorMaker 2"

    def command(self) -> list[str]:
        return [
            "java", "-Xms256M", "-Xmx2G", "-XX:+UseG1GC",
            f"-Dlog4j2.configurationFile={KAFKA_HOME / 'conf/log4j2.properties'}", "-cp", f"{KAFKA_HOME}/libs/*",
            "org.apache.kafka.connect.mirror.MirrorMaker", str(self.properties),
        ]  # fmt: skip


def fill(
    server: Server | Line, megabytes: int, size: int, partitions: int = PARTITIONS, codec: str = "none"
) -> int:
    """Fills the topic with records of `size` bytes. Returns their number."""
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    admin.create_topics([NewTopic(TOPIC, partitions, 1)])[TOPIC].result(30)
    producer = Producer(
        {
            "bootstrap.servers": server.bootstrap,
            "linger.ms": 20,
            "batch.size": 262_144,
            "partitioner": "random",
            "compression.type": codec,
        }
    )
    records = megabytes * 1_000_000 // size
    chance = random.Random(size).randbytes(1 << 20)
    for i in range(records):
        begin = i * 997 % (len(chance) - size)
        value = b"%012d" % i + chance[begin : begin + size // 2] + b"x" * (size - size // 2 - 12)
        while True:
            try:
                producer.produce(TOPIC, value, partition=i % partitions)
                break
            except BufferError:
                producer.poll(0.1)
        if i % 1000 == 0:
            producer.poll(0)
    if producer.flush(120):
        raise RuntimeError("the source could not be filled")
    return records


def arrived(watcher: Consumer, partitions: int = PARTITIONS) -> int:
    """Records at the target."""
    total = 0
    for partition in range(partitions):
        try:
            total += watcher.get_watermark_offsets(TopicPartition(f"source.{TOPIC}", partition), 5)[1]
        except KafkaException:
            return 0  # not made yet
    return total


def measure(
    mirror: Mirror, target: Server, records: int, size: int, partitions: int = PARTITIONS
) -> dict[str, float]:
    watcher = Consumer({"bootstrap.servers": target.bootstrap, "group.id": "bench-watch"})
    # The watcher looks for its group's coordinator at once, for which Kafka makes 50 partitions: not while we measure.
    watcher.committed([TopicPartition(f"source.{TOPIC}", 0)], timeout=60)
    launched = time.monotonic()
    mirror.start()
    try:
        until(lambda: arrived(watcher, partitions) > 0, "the first record", 0.02)
        first, cpu, before = time.monotonic(), mirror.cpu_s(), arrived(watcher, partitions)
        until(lambda: arrived(watcher, partitions) >= records, "the last record", 0.02)
        copy_s, gigabytes = time.monotonic() - first, (records - before) * size / 1e9
        return {
            "mb_s": gigabytes * 1000 / copy_s,
            "cpu_s_gb": (mirror.cpu_s() - cpu) / gigabytes,
            "total_cpu_s": mirror.cpu_s(),
            "first_s": first - launched,
            "memory_mb": mirror.memory_mb(),
        }
    finally:
        mirror.stop()
        watcher.close()


def compared(
    broker: type[Server], mirrors: list[type[Mirror]], codec: str, args: argparse.Namespace
) -> report.Results:
    """Runs the mirrors alternately over one source, whose batches are compressed by this codec."""
    results: report.Results = {mirror.name: [] for mirror in mirrors}
    with tempfile.TemporaryDirectory(prefix="klamm-bench-") as tmp:
        source = broker(Path(tmp) / "source")
        source.start()
        try:
            records = fill(source, args.mb, args.size, codec=codec)
            for run in range(args.runs):
                for kind in mirrors if run % 2 == 0 else mirrors[::-1]:
                    result = run_of(kind, Path(tmp), run, source, broker, records, args.size)
                    results[kind.name].append(result)
                    shown = ", ".join(f"{k}={v:.2f}" for k, v in result.items())
                    print(f"{codec}, run {run + 1}/{args.runs} {kind.name}: {shown}", flush=True)
        finally:
            source.stop()
    return results


def run_of(
    kind: type[Mirror], work: Path, run: int, source: Server, broker: type[Server], records: int, size: int
) -> dict[str, float]:
    """Measures one mirror with a fresh target."""
    alias = f"target{run}{kind.__name__.lower()}"
    target = broker(work / alias)
    target.start()
    mirror = kind(work / f"mirror-{alias}", source, target, alias)
    try:
        return measure(mirror, target, records, size)
    except BaseException:
        print((mirror.directory / "mirror.log").read_text()[-3000:], file=sys.stderr)
        raise
    finally:
        target.stop()


def chosen(broker: str, *, without_mm2: bool = False) -> tuple[type[Server], list[type[Mirror]]]:
    """Returns the broker of `--broker`, and the mirrors to compare: without MirrorMaker where it is not here."""
    mirrors: list[type[Mirror]] = [KlammMirror]
    if (missing := Kafka.missing()) is not None:
        print(f"MirrorMaker 2 is left out: {missing}", file=sys.stderr)
    elif not without_mm2:
        mirrors.append(MirrorMaker2)
    return Klamm if broker == "klamm" else Kafka, mirrors


def main() -> int:
    parser = arguments.parser(__doc__)
    arguments.add_volume(parser)
    arguments.add_broker(parser, "source and target")
    parser.add_argument("--codecs", default="none", help="of the source's batches: none,gzip,snappy,lz4,zstd")
    args = parser.parse_args()
    broker, mirrors = chosen(args.broker)
    texts = []
    for codec in args.codecs.split(","):
        results = compared(broker, mirrors, codec, args)
        texts.append(f"{codec}:\n\n{report.table(results, ROWS)}\n\n{report.spread(results, ROWS)}")
        print(f"\n{texts[-1]}")
    if args.write:
        about = (
            f"`python -m bench.mirror.compare --runs {args.runs} --mb {args.mb} --size {args.size} --broker {args.broker} "
            f"--codecs {args.codecs}`, {report.machine()}; medians; {PARTITIONS} partitions, the same source for all runs "
            "of a codec, a fresh target for each. MirrorMaker 2 of Kafka 4.3.1, dedicated mode."
        )
        section = "bench/mirror" if args.broker == "klamm" else "bench/mirror/kafka"
        title = f"## Mirror: topic to topic{'' if args.broker == 'klamm' else ', between brokers of Apache Kafka'}"
        whole = "\n\n".join(texts)
        report.write(section, f"{title}\n\n{about}\n\n{whole}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
