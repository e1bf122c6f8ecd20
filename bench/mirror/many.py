"""The mirror with many partitions that say little, beside MirrorMaker 2: what they cost, and how soon a record arrives.

    python -m bench.mirror.many [--partitions 8,1000] [--seconds 20] [--records 300] [--tasks 1]
        [--broker klamm|kafka] [--without-mm2] [--write]

Measures, with all partitions idle, the CPU of the source's broker and of the mirror, and the traffic between them; then
the time of single records from the producer's call at the source to the consumer's at the target; then the mirror's
memory (proportional set size).
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench import arguments, report
from bench.connect.compare import until
from bench.mirror.compare import Mirror, chosen
from bench.mirror.distance import far_source
from bench.mirror.line import Line
from bench.report import Row
from bench.servers import Server
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

ROWS = [
    Row("source_cpu", "idle: CPU of the source's broker, % of a core", 2),
    Row("mirror_cpu", "idle: CPU of the mirror, % of a core", 2),
    Row("requests_s", "idle: requests a second to the source", 1),
    Row("kb_s", "idle: KB a second to and from the source", 1),
    Row("p50_ms", "single record, p50, ms", 1),
    Row("p99_ms", "single record, p99, ms", 1),
    Row("memory_mb", "memory of the mirror, MB", 0),
]
PER_TOPIC = 100
SETTLE_S = 5.0
PAUSE_S = 0.02


def make_topics(bootstrap: str, partitions: int) -> dict[str, int]:
    """Makes topics of at most 100 partitions. Returns their numbers of partitions."""
    counts = {
        f"bench-{first // PER_TOPIC}": min(PER_TOPIC, partitions - first)
        for first in range(0, partitions, PER_TOPIC)
    }
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for done in admin.create_topics([NewTopic(name, count, 1) for name, count in counts.items()]).values():
        done.result(60)
    return counts


class Probe:
    """A producer at the source and a consumer of all mirrored partitions at the target."""

    def __init__(self, source: str, target: str, topics: dict[str, int]) -> None:
        self._places = [(topic, index) for topic, count in topics.items() for index in range(count)]
        self._producer = Producer({"bootstrap.servers": source, "linger.ms": 0, "acks": 1})
        self._consumer = Consumer(
            {"bootstrap.servers": target, "group.id": "bench", "auto.offset.reset": "earliest",
             "fetch.wait.max.ms": 500, "topic.metadata.refresh.interval.ms": 500}
        )  # fmt: skip

    def assign(self) -> None:
        """Reads from the target from now on: its topics must be there."""
        self._consumer.assign([TopicPartition(f"source.{topic}", index, 0) for topic, index in self._places])

    def send(self, topic: str, index: int) -> float:
        """Returns the seconds until the record is at the target."""
        mark = f"{random.getrandbits(60)}".encode()
        began = time.monotonic()
        self._producer.produce(topic, mark, partition=index)
        self._producer.poll(0)
        deadline = began + 60
        while time.monotonic() < deadline:
            message = self._consumer.poll(1)
            self._producer.poll(0)
            if message is not None and message.error() is None and message.value() == mark:
                return time.monotonic() - began
        raise TimeoutError(f"a record for {topic}-{index} did not arrive within a minute")

    def times(self, count: int) -> list[float]:
        """Returns the seconds of so many records to partitions by chance."""
        found = []
        for _ in range(count):
            found.append(self.send(*random.choice(self._places)))
            time.sleep(PAUSE_S)
        return found

    def close(self) -> None:
        self._consumer.close()


def idle(mirror: Mirror, server: Server, line: Line, seconds: float) -> dict[str, float]:
    """Measures what idle partitions cost."""
    figures: list[Callable[[], float]] = [
        server.cpu_s, mirror.cpu_s, lambda: line.passed()[1], lambda: line.passed()[0] + line.passed()[2],
    ]  # fmt: skip
    before, began = [figure() for figure in figures], time.monotonic()
    time.sleep(seconds)
    passed = time.monotonic() - began
    rates = [(figure() - b) / passed for figure, b in zip(figures, before, strict=True)]
    names = ("source_cpu", 100), ("mirror_cpu", 100), ("requests_s", 1), ("kb_s", 1e-3)
    return {name: rate * scale for (name, scale), rate in zip(names, rates, strict=True)}


def run(
    kind: type[Mirror], broker: type[Server], partitions: int, args: argparse.Namespace
) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="klamm-bench-") as tmp:
        work = Path(tmp)
        server, target = far_source(broker, work / "source"), broker(work / "target")
        server.start()
        target.start()
        try:
            with Line(server) as line:
                topics = make_topics(line.bootstrap, partitions)
                mirror = kind(work / "mirror", line, target, "target", topics="bench-.*", tasks=args.tasks)
                mirror.start()
                try:
                    return measured(mirror, server, target, line, topics, args)
                except BaseException:
                    print((mirror.directory / "mirror.log").read_text()[-3000:], file=sys.stderr)
                    raise
                finally:
                    mirror.stop()
        finally:
            server.stop()
            target.stop()


def measured(
    mirror: Mirror,
    server: Server,
    target: Server,
    line: Line,
    topics: dict[str, int],
    args: argparse.Namespace,
) -> dict[str, float]:
    admin = AdminClient({"bootstrap.servers": target.bootstrap})
    wanted = {f"source.{topic}" for topic in topics}
    until(lambda: wanted <= set(admin.list_topics(timeout=10).topics), "the topics", 0.2)
    back = AdminClient({"bootstrap.servers": line.bootstrap})  # the flow back only sends heartbeats
    until(lambda: "heartbeats" in back.list_topics(timeout=10).topics, "the flow back", 0.2)
    probe = Probe(line.bootstrap, target.bootstrap, topics)
    try:
        probe.assign()
        for topic in topics:
            probe.send(topic, 0)
        time.sleep(SETTLE_S)
        found = idle(mirror, server, line, args.seconds)
        times = sorted(probe.times(args.records))
        found["p50_ms"] = statistics.median(times) * 1000
        found["p99_ms"] = times[int(len(times) * 0.99)] * 1000
        found["memory_mb"] = mirror.memory_mb()
        return found
    finally:
        probe.close()


def main() -> int:
    parser = arguments.parser(__doc__)
    parser.add_argument("--partitions", default="8,1000")
    parser.add_argument("--seconds", type=float, default=20, help="how long to watch idle partitions")
    parser.add_argument("--records", type=int, default=300, help="single records")
    parser.add_argument("--tasks", type=int, default=1)
    arguments.add_broker(parser, "source and target")
    parser.add_argument("--without-mm2", action="store_true")
    args = parser.parse_args()
    texts = []
    broker, mirrors = chosen(args.broker, without_mm2=args.without_mm2)
    for partitions in (int(p) for p in args.partitions.split(",")):
        results: report.Results = {}
        for kind in mirrors:
            results[kind.name] = [run(kind, broker, partitions, args)]
            shown = ", ".join(f"{k}={v:.2f}" for k, v in results[kind.name][0].items())
            print(f"{partitions} partitions, {kind.name}: {shown}", flush=True)
        texts.append(f"{partitions:,} partitions:\n\n{report.table(results, ROWS)}")
        print(f"\n{texts[-1]}\n", flush=True)
    if args.write:
        about = (
            f"`python -m bench.mirror.many --partitions {args.partitions} --seconds {args.seconds:g} --records {args.records} "
            f"--tasks {args.tasks} --broker {args.broker}`, {report.machine()}; one run."
        )
        whole = "\n\n".join(texts)
        report.write("bench/mirror/many", f"## Mirror: many partitions\n\n{about}\n\n{whole}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
