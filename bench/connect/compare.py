"""Klamm's Connect worker against Kafka's, alternating in one run: file source and file sink on each one's own broker.

    python -m bench.connect.compare [--runs 3] [--mb 100] [--write]

A file of 100-byte lines goes into a topic of one partition and out to a second file, StringConverter on both
sides; the files are compared. Measures records/s and CPU seconds per million records of the worker (with all its
processes), milliseconds from POST to a running task, seconds to a healthy worker, and the worker's memory
(proportional set size: what its processes share counts once).
"""

from __future__ import annotations

import contextlib
import filecmp
import json
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path

import psutil
from bench import arguments, report
from bench.broker import load
from bench.report import Row
from bench.servers import KAFKA_HOME, Kafka, Klamm, Server, free_port
from confluent_kafka import Consumer, KafkaException, TopicPartition

STRING = "org.apache.kafka.connect.storage.StringConverter"
WAIT_S = 300
ROWS = [
    Row("source_rec_s", "file source, records/s", 0),
    Row("source_cpu", "file source, worker CPU s per million records", 2),
    Row("sink_rec_s", "file sink, records/s", 0),
    Row("sink_cpu", "file sink, worker CPU s per million records", 2),
    Row("running_ms", "POST to running task, ms", 0),
    Row("healthy_s", "start to healthy worker, s", 2),
    Row("idle_mb", "worker's memory idle, MB", 0),
    Row("loaded_mb", "worker's memory with source and sink after load, MB", 0),
]


class Worker(ABC):
    """A distributed worker process on a broker."""

    def __init__(self, directory: Path, bootstrap: str) -> None:
        self.directory, self.bootstrap, self.port = directory, bootstrap, free_port()
        self.process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def command(self, properties: Path) -> list[str]:
        """The command line that runs the worker in the foreground."""

    def start(self) -> float:
        properties = self.directory / "worker.properties"
        topics = "".join(
            f"{p}.storage.topic=connect-{p}\n{p}.storage.replication.factor=1\n"
            for p in ("config", "offset", "status")
        )
        properties.write_text(
            f"bootstrap.servers={self.bootstrap}\ngroup.id=bench\nlisteners=http://127.0.0.1:{self.port}\n"
            f"key.converter={STRING}\nvalue.converter={STRING}\noffset.flush.interval.ms=1000\n{topics}"
        )
        begin = time.monotonic()
        with (self.directory / "worker.log").open("wb") as log:
            self.process = subprocess.Popen(self.command(properties), stdout=log, stderr=log)
        until(lambda: self.answers("/health"), "a healthy worker", 0.02)
        return time.monotonic() - begin

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()

    def answers(self, path: str) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10) as answer:
                return answer.status == 200
        except OSError:
            return False

    def call(self, method: str, path: str, body: object = None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}", data, {"Content-Type": "application/json"}, method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as e:
            raise OSError(f"{method} {path}: {e.code} {e.read()[:500]!r}") from e

    def run_connector(self, name: str, **config: str) -> float:
        """POST it; milliseconds until its task runs."""
        begin = time.monotonic()
        self.call(
            "POST",
            "/connectors",
            {"name": name, "config": {k.replace("__", "."): v for k, v in config.items()}},
        )

        def runs() -> bool:
            with contextlib.suppress(OSError):  # 404 until it has a status
                tasks = self.call("GET", f"/connectors/{name}/status")["tasks"]
                return bool(tasks) and tasks[0]["state"] == "RUNNING"
            return False

        until(runs, f"{name} to run", 0.005)
        return (time.monotonic() - begin) * 1e3

    def processes(self) -> list[psutil.Process]:
        assert self.process is not None
        parent = psutil.Process(self.process.pid)
        return [parent, *parent.children(recursive=True)]

    def cpu_s(self) -> float:
        return sum(t.user + t.system for p in self.processes() for t in [p.cpu_times()])

    def memory_mb(self) -> float:
        infos = [p.memory_full_info() for p in self.processes()]
        return sum(getattr(i, "pss", i.rss) for i in infos) / 1e6


class KlammWorker(Worker):
    def command(self, properties: Path) -> list[str]:
        return [str(Path(sys.executable).with_name("klamm")), "connect", "distributed", str(properties)]


class KafkaWorker(Worker):
    def command(self, properties: Path) -> list[str]:
        with properties.open("a") as file:
            file.write(f"plugin.path={KAFKA_HOME}/plugins\nplugin.discovery=service_load\n")
        return [
            "java", "-Xms256M", "-Xmx2G", "-XX:+UseG1GC", f"-Dlog4j2.configurationFile={KAFKA_HOME / 'conf/log4j2.properties'}",
            "-cp", f"{KAFKA_HOME}/libs/*:{KAFKA_HOME}/plugins/connect-file/*",
            "org.apache.kafka.connect.cli.ConnectDistributed", str(properties),
        ]  # fmt: skip


def until(condition: Callable[[], bool], what: str, step_s: float) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {WAIT_S} s for {what}")
        time.sleep(step_s)


def end_offset(consumer: Consumer, topic: str) -> int:
    try:
        return int(consumer.get_watermark_offsets(TopicPartition(topic, 0), 5)[1])
    except KafkaException:
        return 0  # not made yet


def measure(server: Server, worker_type: type[Worker], lines: Path, records: int) -> dict[str, float]:
    server.start()
    worker = worker_type(server.directory, server.bootstrap)
    try:
        result = {"healthy_s": worker.start()}
        time.sleep(2)
        result["idle_mb"] = worker.memory_mb()
        watcher = Consumer({"bootstrap.servers": server.bootstrap, "group.id": "bench-watch"})
        warm = lines.with_name("warm.txt")
        move(server, worker, warm, sum(1 for _ in warm.open("rb")), watcher, "warm")
        result |= move(server, worker, lines, records, watcher, "main")
        watcher.close()
        return result
    finally:
        worker.stop()
        server.stop()


def move(
    server: Server, worker: Worker, lines: Path, records: int, watcher: Consumer, topic: str
) -> dict[str, float]:
    out = server.directory / f"{topic}.out"
    load.create_topic(server.bootstrap, 1, topic)
    cpu, begin = worker.cpu_s(), time.monotonic()
    running_ms = worker.run_connector(
        f"{topic}-source", connector__class="FileStreamSource", tasks__max="1", file=str(lines), topic=topic
    )
    until(lambda: end_offset(watcher, topic) >= records, "the source", 0.01)
    source_s, source_cpu = time.monotonic() - begin, worker.cpu_s() - cpu
    cpu, begin = worker.cpu_s(), time.monotonic()
    worker.run_connector(
        f"{topic}-sink", connector__class="FileStreamSink", tasks__max="1", file=str(out), topics=topic
    )
    size = lines.stat().st_size
    until(lambda: out.exists() and out.stat().st_size >= size, "the sink", 0.01)
    sink_s, sink_cpu = time.monotonic() - begin, worker.cpu_s() - cpu
    if not filecmp.cmp(lines, out, shallow=False):
        raise RuntimeError("what came out is not what went in")
    millions = records / 1e6
    return {
        "running_ms": running_ms,
        "source_rec_s": records / source_s,
        "source_cpu": source_cpu / millions,
        "sink_rec_s": records / sink_s,
        "sink_cpu": sink_cpu / millions,
        "loaded_mb": worker.memory_mb(),
    }


def main() -> int:
    parser = arguments.parser(__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--mb", type=int, default=100, help="size of the file, in MB of 100-byte lines")
    args = parser.parse_args()
    kinds: list[tuple[type[Server], type[Worker]]] = [(Klamm, KlammWorker)]
    if (missing := Kafka.missing()) is None:
        kinds.append((Kafka, KafkaWorker))
    else:
        print(f"Apache Kafka is left out: {missing}", file=sys.stderr)
    results: report.Results = {server.name: [] for server, _ in kinds}
    with tempfile.TemporaryDirectory(prefix="klamm-bench-") as tmp:
        lines, records = Path(tmp) / "lines.txt", args.mb * 10_000
        for path, count in ((lines, records), (lines.with_name("warm.txt"), records // 2)):
            with path.open("w") as file:
                file.writelines(f"{i:09d}{'x' * 90}\n" for i in range(count))
        for run in range(args.runs):
            for server, worker in kinds if run % 2 == 0 else kinds[::-1]:
                result = measure(server(Path(tmp) / f"{server.name}-{run}"), worker, lines, records)
                results[server.name].append(result)
                shown = ", ".join(f"{k}={v:.2f}" for k, v in result.items())
                print(f"run {run + 1}/{args.runs} {server.name}: {shown}", flush=True)
    text = f"{report.table(results, ROWS)}\n\n{report.spread(results, ROWS)}"
    print(f"\n{text}")
    if args.write:
        about = (
            f"`python -m bench.connect.compare --runs {args.runs} --mb {args.mb}`, {report.machine()}; medians; each worker on "
            "its own broker, after a warm-up with a file half as long. Kafka Connect 4.3.1 with its stock heap."
        )
        report.write("bench/connect", f"## Connect: file to topic to file\n\n{about}\n\n{text}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
