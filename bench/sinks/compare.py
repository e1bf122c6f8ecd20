"""Topic to Elasticsearch and topic to file: the task's CPU by stage, beside the limit, alternating in one run.

    python -m bench.sinks.compare [--runs 3] [--documents 200000] [--lines 1000000] [--only elasticsearch|file] [--write]

One of Klamm's brokers, one genuine Elasticsearch, one partition; the task runs in a process of its own with the runtime's loop
around it (`bench.sinks.task`). Values are JSON (log lines of 240 bytes) for Elasticsearch, lines of 100 bytes for the file.

- to Elasticsearch: ids are topic+partition+offset, then ids from keys with external versions, then the former with a
  transform that adds a field. The limit is prepared bodies of the same documents (`bench.elasticsearch.compare`).
- to a file: StringConverter, then JSON texts without schemas. The limit is a consumer of the same client that writes its values, joined, and does nothing else.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench import arguments, report
from bench.broker import load
from bench.connect.compare import STRING, until
from bench.elasticsearch.compare import LOOK_S, Arrivals, check, document, make_index, raw
from bench.report import Row
from bench.servers import Klamm
from confluent_kafka import Consumer, Message, Producer, TopicPartition

from klamm.testing.elasticsearch import ElasticsearchServer, Installation, find

STAGES = ("consumer", "converter", "transform", "connector", "loop")
ROWS = [
    Row("rate", "records/s", 0),
    Row("cpu", "CPU of the task's process, µs per record", 2),
    *(Row(stage, f"of it: {stage}", 2) for stage in STAGES),
    Row("start", "CPU s until the task runs", 2),
]
INDEX_ROWS = [
    Row("rate", "records/s, from the first documents on", 0),
    *ROWS[1:],
    Row("first", "s from the process's start to the first documents", 2),
]
JSON = {
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "false",
}
ELASTICSEARCH = {
    "connector.class": "ElasticsearchSink",
    "read.timeout.ms": "60000",
    "key.converter": STRING,
    **JSON,
}
BY_OFFSET = {"key.ignore": "true"}
INSERT = {
    "transforms": "i",
    "transforms.i.type": "org.apache.kafka.connect.transforms.InsertField$Value",
    "transforms.i.static.field": "site",
    "transforms.i.static.value": "b",
}
FILE = {"connector.class": "FileStreamSink", "key.converter": STRING, "value.converter": STRING}


def task(
    bootstrap: str,
    name: str,
    config: dict[str, str],
    count: int,
    arrived: Callable[[], bool],
    program: str = "bench.sinks.task",
    offset: dict[str, Any] | None = None,
) -> dict[str, float]:
    """Runs a task until `arrived`, and returns its figures. `offset` is where a source begins."""
    order = {"name": name, "bootstrap": bootstrap, "config": {"name": name, **config}, "offset": offset}
    process = subprocess.Popen(
        [sys.executable, "-m", program, json.dumps(order)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    if process.stdout.readline() != "running\n":
        raise RuntimeError(f"{name} did not start")
    begin = time.monotonic()
    until(lambda: process.poll() is not None or arrived(), name, LOOK_S)
    seconds = time.monotonic() - begin
    said, _ = process.communicate("stop\n", timeout=60)
    figures = json.loads(said.splitlines()[-1])
    start = figures.pop("start")
    found = {stage: spent / count * 1e6 for stage, spent in figures.items()}
    return {"rate": count / seconds, "cpu": sum(found.values()), **found, "start": start}


def to_elasticsearch(
    server: ElasticsearchServer, bootstrap: str, name: str, count: int, more: dict[str, str]
) -> dict[str, float]:
    make_index(server, name)
    target = {
        "connection.url": server.url,
        "topics": "documents",
        "external.resource.usage": "INDEX",
        "topic.to.external.resource.mapping": f"documents:{name}",
    }
    arrivals = Arrivals(server, name, count)
    found = task(bootstrap, name, ELASTICSEARCH | target | more, count, arrivals)
    check(server, name, count)
    return found | _of_index(arrivals.figures)


def _of_index(figures: dict[str, float]) -> dict[str, float]:
    return {"rate": figures["docs_s"], "first": figures["first_s"]}


def limit(server: ElasticsearchServer, name: str, count: int) -> dict[str, float]:
    found = raw(server, name, count, 5)
    cpu = {"cpu": found["client_us"], "connector": found["client_us"]}
    return {row.key: 0.0 for row in ROWS} | cpu | _of_index(found)


def to_file(
    bootstrap: str, name: str, path: Path, count: int, size: int, more: dict[str, str]
) -> dict[str, float]:
    config = FILE | {"topics": "lines", "file": str(path)} | more
    found = task(bootstrap, name, config, count, lambda: path.exists() and path.stat().st_size >= size)
    path.unlink()
    return found


def copy(bootstrap: str, path: Path, count: int) -> dict[str, float]:
    """The limit of the file sink."""
    like_ours = {
        "queued.max.messages.kbytes": 32 << 10,
        "fetch.queue.backoff.ms": 10,
        "enable.auto.offset.store": False,
    }
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "copy", "enable.auto.commit": False, **like_ours}
    )
    consumer.assign([TopicPartition("lines", 0, 0)])
    before, begin, found = resource.getrusage(resource.RUSAGE_SELF), time.monotonic(), 0
    with path.open("wb", buffering=0) as file:
        while found < count:
            messages: list[Message] = consumer.consume(2000, 0.5)
            values: Any = list(map(Message.value, messages))
            file.write(b"\n".join(values) + b"\n" if values else b"")
            found += len(messages)
    seconds, after = time.monotonic() - begin, resource.getrusage(resource.RUSAGE_SELF)
    consumer.close()
    path.unlink()
    cpu = (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / count * 1e6
    return {row.key: 0.0 for row in ROWS} | {"rate": count / seconds, "cpu": cpu, "consumer": cpu}


def fill(
    bootstrap: str,
    topic: str,
    count: int,
    make: Callable[[int], bytes | None],
    key: Callable[[int], str] = "key-{}".format,
) -> None:
    """Makes a topic of one partition with these values and keys."""
    load.create_topic(bootstrap, 1, topic)
    producer = Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 20, "queue.buffering.max.messages": 1_000_000}
    )
    for n in range(count):
        producer.produce(topic, make(n), key(n))
        if n % 10_000 == 0:
            producer.poll(0)
    if producer.flush(120):
        raise RuntimeError("the topic could not be filled")


def alternate(runs: int, ways: dict[str, Callable[[int], dict[str, float]]]) -> report.Results:
    results: report.Results = {name: [] for name in ways}
    for run in range(runs):
        for name in list(ways)[:: 1 if run % 2 == 0 else -1]:
            result = ways[name](run)
            results[name].append(result)
            print(
                f"run {run + 1}/{runs} {name}: " + ", ".join(f"{k}={v:.2f}" for k, v in result.items()),
                flush=True,
            )
    return results


def elasticsearch(bootstrap: str, runs: int, count: int) -> report.Results:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    found = find(Path(os.environ.get("ELASTICSEARCH_HOME") or cache / "klamm-elasticsearch"))
    if not isinstance(found, Installation):
        raise SystemExit(f"{found}; tests/peers/fetch_elasticsearch.sh fetches it")
    fill(bootstrap, "documents", count, document)
    with ElasticsearchServer(found, heap_mb=1024) as server:
        raw(server, "warm", count, 5)  # the server's compiler
        to_elasticsearch(server, bootstrap, "warm-2", count, BY_OFFSET)
        return alternate(
            runs,
            {
                "sink": lambda n: to_elasticsearch(server, bootstrap, f"offset-{n}", count, BY_OFFSET),
                "raw bulk": lambda n: limit(server, f"raw-{n}", count),
                "ids from keys": lambda n: to_elasticsearch(server, bootstrap, f"key-{n}", count, {}),
                "InsertField": lambda n: to_elasticsearch(
                    server, bootstrap, f"insert-{n}", count, BY_OFFSET | INSERT
                ),
            },
        )


def file(bootstrap: str, work: Path, runs: int, count: int) -> report.Results:
    line = b"x" * 90
    fill(bootstrap, "lines", count, lambda n: b"%09d%b" % (n, line))
    fill(bootstrap, "texts", count, lambda n: b'"%09d%b"' % (n, line))
    texts = JSON | {"topics": "texts"}
    return alternate(
        runs,
        {
            "sink": lambda n: to_file(bootstrap, f"file-{n}", work / "out", count, count * 100, {}),
            "copy": lambda n: copy(bootstrap, work / "copy", count),
            "JSON": lambda n: to_file(bootstrap, f"json-{n}", work / "out", count, count * 100, texts),
        },
    )


def table(results: report.Results, rows: list[Row] = ROWS) -> str:
    return f"{report.table(results, rows)}\n\n{report.spread(results, rows[:2])}"


def main() -> int:
    parser = arguments.parser(__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--documents", type=int, default=200_000)
    parser.add_argument("--lines", type=int, default=1_000_000)
    parser.add_argument("--only", choices=("elasticsearch", "file"))
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="klamm-bench-") as tmp:
        broker = Klamm(Path(tmp) / "broker")
        broker.start()
        try:
            parts = []
            if args.only != "file":
                found = elasticsearch(broker.bootstrap, args.runs, args.documents)
                parts.append(
                    f"### To Elasticsearch ({args.documents} documents of 240 bytes)\n\n{table(found, INDEX_ROWS)}"
                )
            if args.only != "elasticsearch":
                found = file(broker.bootstrap, Path(tmp), args.runs, args.lines)
                parts.append(f"### To a file ({args.lines} lines of 100 bytes)\n\n{table(found)}")
        finally:
            broker.stop()
    text = "\n\n".join(parts)
    print(f"\n{text}")
    if args.write:
        counts = f"--runs {args.runs} --documents {args.documents} --lines {args.lines}"
        about = f"`python -m bench.sinks.compare {counts}`, {report.machine()}; medians."
        report.write("bench/sinks", f"## Sinks: a task's CPU by stage\n\n{about}\n\n{text}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
