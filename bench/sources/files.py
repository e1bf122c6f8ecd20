"""File to topic: the task's CPU by stage, beside the limits, alternating in one run.

    python -m bench.sources.files [--runs 3] [--lines 1000000] [--write]

One of Klamm's brokers, one partition, lines of 100 bytes; the task runs in a process of its own with the runtime's loop
around it (`bench.sources.task`).

- to a topic: StringConverter, then JSON without schemas.
- The first limit is the same client with the same settings: it reads the file, cuts it into lines, sends them and remembers
  nothing. The second is a copy of the file.
"""

from __future__ import annotations

import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench import arguments, report
from bench.broker import load
from bench.connect.compare import STRING, end_offset
from bench.report import Row
from bench.servers import Klamm
from bench.sinks.compare import JSON, alternate, task
from confluent_kafka import Consumer

from klamm.connect.child import clients
from klamm.connect.model import Kind, TaskId, TaskSpec

STAGES = ("connector", "converter", "producer", "loop")
ROWS = [
    Row("rate", "records/s", 0),
    Row("cpu", "CPU of the task's process, µs per record", 2),
    *(Row(stage, f"of it: {stage}", 2) for stage in STAGES),
    Row("start", "CPU s until the task runs", 2),
]
SOURCE = {"connector.class": "FileStreamSource", "key.converter": STRING, "value.converter": STRING}
CHUNK, IN_FLIGHT = 500, 50_000
Figures = dict[str, float]


def to_topic(bootstrap: str, path: Path, topic: str, count: int, more: dict[str, str]) -> Figures:
    load.create_topic(bootstrap, 1, topic)
    watcher = Consumer({"bootstrap.servers": bootstrap, "group.id": "watch"})
    try:
        return task(
            bootstrap,
            topic,
            SOURCE | {"file": str(path), "topic": topic} | more,
            count,
            lambda: end_offset(watcher, topic) >= count,
            "bench.sources.task",
        )
    finally:
        watcher.close()
        load.delete_topic(bootstrap, topic)


def measured(count: int, run: Callable[[], object]) -> Figures:
    before, begin = resource.getrusage(resource.RUSAGE_SELF), time.monotonic()
    run()
    seconds, after = time.monotonic() - begin, resource.getrusage(resource.RUSAGE_SELF)
    cpu = (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / count * 1e6
    return {row.key: 0.0 for row in ROWS} | {"rate": count / seconds, "cpu": cpu}


def send(bootstrap: str, path: Path, topic: str, count: int) -> Figures:
    """The limit of the file source."""
    load.create_topic(bootstrap, 1, topic)
    worker = {"bootstrap.servers": bootstrap, "group.id": "bench"}
    spec = TaskSpec(id=TaskId(topic, 0), kind=Kind.SOURCE, connector_config={}, task_config={}, worker=worker)
    producer = clients.make_producer(clients.source_producer_config(spec))

    def run() -> None:
        rest = b""
        with path.open("rb", buffering=0) as file:
            while block := file.read(256 << 10):
                *lines, rest = (rest + block).split(b"\n")
                for number, line in enumerate(lines):
                    producer.produce(topic, line, None, 0)
                    if number % CHUNK == 0:
                        producer.poll(0)
                while len(producer) > IN_FLIGHT:
                    producer.poll(0.05)
        producer.flush(60)

    found = measured(count, run)
    load.delete_topic(bootstrap, topic)
    return found | {"producer": found["cpu"]}


def copy(path: Path, target: Path, count: int) -> Figures:
    def run() -> None:
        with path.open("rb") as source, target.open("wb") as made:
            shutil.copyfileobj(source, made, 256 << 10)

    return measured(count, run)


def compare(bootstrap: str, work: Path, runs: int, count: int) -> report.Results:
    path, line = work / "lines", b"x" * 90
    with path.open("wb") as file:
        file.writelines(b"%09d%b\n" % (n, line) for n in range(count))
    return alternate(
        runs,
        {
            "source": lambda n: to_topic(bootstrap, path, f"source-{n}", count, {}),
            "client alone": lambda n: send(bootstrap, path, f"client-{n}", count),
            "JSON": lambda n: to_topic(bootstrap, path, f"json-{n}", count, JSON),
            "copy of the file": lambda _: copy(path, work / "copy", count),
        },
    )


def table(results: report.Results) -> str:
    return f"{report.table(results, ROWS)}\n\n{report.spread(results, ROWS[:2])}"


def main() -> int:
    parser = arguments.parser(__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--lines", type=int, default=1_000_000)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="klamm-bench-") as tmp:
        broker = Klamm(Path(tmp) / "broker")
        broker.start()
        try:
            text = table(compare(broker.bootstrap, Path(tmp), args.runs, args.lines))
        finally:
            broker.stop()
    print(f"\n{text}")
    if args.write:
        about = f"`python -m bench.sources.files --runs {args.runs} --lines {args.lines}`, {report.machine()}; medians; lines of 100 bytes."
        report.write("bench/sources", f"## File to topic: a task's CPU by stage\n\n{about}\n\n{text}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
