"""Lines that are in topics, through the log job: lines a second and CPU, by sink and number of partitions."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import accumulate, islice
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from support.elasticsearch import require
from support.pipeline.memory import Watch

from klamm.demo.logs.job import INPUTS, spark_job
from klamm.demo.logs.lines import Line, Lines, Plan
from klamm.demo.logs.target import ElasticsearchTarget
from klamm.testing import EmbeddedBroker
from klamm.testing.elasticsearch import ElasticsearchServer
from klamm_agent.stages.envelope import Envelope
from klamm_spark.java import need_java
from klamm_spark.model import Job, Output
from klamm_spark.process import ENDED, DriverProcess

LINES_A_SECOND: Final = 20_000
"""By the time that lines carry; the number of windows of error rates follows from it."""
RUN: Final = 1000
"""Lines that the agent reads at once."""
FULL_S: Final = 600.0


@dataclass(slots=True, kw_only=True)
class Cell:
    """One run."""

    sink: str
    partitions: int
    lines_s: float
    cpu_s: float
    """CPU seconds of Spark (driver, Java, Python) per million lines."""
    batches: int
    most_mb: float
    elasticsearch_cpu_s: float = 0.0


def run(
    work: Path, partitions: list[int], sinks: list[str], *, lines: int, batch: int, warm: int
) -> list[Cell]:
    """All cells on one broker. The first `warm` lines of a cell do not count."""
    cells = []
    with EmbeddedBroker(work / "data") as broker, ExitStack() as stack:
        server = None
        if "elasticsearch" in sinks:
            server = stack.enter_context(ElasticsearchServer(require(), heap_mb=1024))
        for number in partitions:
            topics = tuple(f"{name}.{number}" for name in INPUTS)
            fill(broker.bootstrap, topics, number, lines)
            for sink in sinks:
                directory = work / f"{sink}-{number}"
                job = a_job(broker.bootstrap, topics, directory, sink, batch, server)
                cells.append(measure(job, sink, number, server, warm))
                print(cells[-1], file=sys.stderr)
    return cells


def a_job(
    bootstrap: str, topics: tuple[str, ...], directory: Path, sink: str, batch: int, server: Any
) -> Job:
    """The demonstration's job on other topics, until their end; `rates` only where they go somewhere."""
    url = server.url if server is not None else "http://127.0.0.1:1"
    target = ElasticsearchTarget(url, f"bench-{directory.name}")
    job = spark_job(bootstrap, directory / "checkpoint", target)
    outputs = job.outputs[:1]
    if sink == "noop":
        outputs = (Output("documents", "noop", query=job.outputs[0].query),)
    elif sink == "elasticsearch":
        target.prepare()
    elif sink == "both":
        target.prepare()
        outputs = job.outputs
    source = replace(job.source, topics=topics, max_offsets_per_trigger=batch)
    outputs = tuple(replace(o, trigger=None) for o in outputs)
    return replace(job, source=source, outputs=outputs, available_now=True)


def measure(job: Job, sink: str, partitions: int, server: Any, warm: int) -> Cell:
    """Run the job to the end of its topics. Raises RuntimeError when it fails."""
    driver = DriverProcess(job, env=need_java().environment() | _environment())
    watch = Watch(
        lambda: {"Spark": driver.pid, **({"Elasticsearch": server.pid} if server is not None else {})},
        every_s=0.2,
    )
    points: list[tuple[float, int, float, float]] = []
    rows = 0
    with watch:
        for event in _events(driver):
            if event["event"] == "failed":
                raise RuntimeError(event["message"])
            if event["event"] == "progress" and event["query"] == "documents" and event["rows"]:
                rows += event["rows"]
                watch.look()
                beside = watch.usage.get("Elasticsearch")
                points.append(
                    (time.monotonic(), rows, watch.usage["Spark"].cpu_s, beside.cpu_s if beside else 0.0)
                )
    driver.stop()
    counting = [point for point in points if point[1] >= warm]
    if len(counting) < 4:
        raise RuntimeError(f"{len(counting)} batches are too few: more lines, or smaller batches")
    (began, first, cpu, cpu_e), (ended, last, cpu_end, cpu_e_end) = counting[0], counting[-1]
    counted = last - first
    return Cell(
        sink=sink,
        partitions=partitions,
        lines_s=counted / (ended - began),
        cpu_s=(cpu_end - cpu) / counted * 1e6,
        batches=len(counting) - 1,
        most_mb=watch.usage["Spark"].most_mb,
        elasticsearch_cpu_s=(cpu_e_end - cpu_e) / counted * 1e6,
    )


def _environment() -> dict[str, str]:
    import os

    return dict(os.environ)


def _events(driver: DriverProcess) -> Iterator[dict[str, Any]]:
    while True:
        event = driver.next_event(FULL_S)
        if event is None:
            driver.kill()
            raise RuntimeError(f"the job said nothing for {FULL_S:.0f} s")
        yield event
        if event["event"] == ENDED:
            return


def fill(bootstrap: str, topics: tuple[str, ...], partitions: int, lines: int) -> None:
    """Lines as the agent's documents, made by it, spread over the partitions in runs of a thousand."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for made in admin.create_topics([NewTopic(t, partitions, 1) for t in topics]).values():
        made.result(30)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "compression.type": "lz4"})
    start_s = time.time()
    plan = Plan(seed=3, start_ms=int(start_s * 1000), rate=LINES_A_SECOND, total=lines)
    by_kind = dict(zip(("access", "app"), topics, strict=True))
    envelope = Envelope({"host": {"name": "web-1"}, "agent": {"type": "klamm", "id": "web-1"}})
    offset = 0
    lines_of = iter(Lines(plan))
    for number, some in enumerate(iter(lambda: list(islice(lines_of, RUN)), [])):
        read_at = start_s + (number + 1) * RUN / LINES_A_SECOND
        for file, of_file in _by_file(some).items():
            offsets = list(accumulate((len(line.data) for line in of_file[:-1]), initial=offset))
            offset = offsets[-1] + len(of_file[-1].data)
            texts = [line.data[:-1] for line in of_file]
            for document in envelope.wrap(texts, offsets, f"/var/log/{file}", read_at):
                _produce(producer, by_kind[of_file[0].service.kind], document, number % partitions)
    if producer.flush(120):
        raise RuntimeError("the broker did not take all lines")


def _by_file(lines: Iterable[Line]) -> dict[str, list[Line]]:
    found: dict[str, list[Line]] = {}
    for line in lines:
        found.setdefault(line.service.file, []).append(line)
    return found


def _produce(producer: Producer, topic: str, document: bytes, partition: int) -> None:
    while True:
        try:
            producer.produce(topic, document, partition=partition)
        except BufferError:
            producer.poll(0.1)
        else:
            return


def table(cells: list[Cell]) -> str:
    """Every cell in a row."""
    lines = [
        "| into | partitions of each of two topics | lines/s | CPU s per million lines: Spark | Elasticsearch | most memory of Spark, MB |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {c.sink} | {c.partitions} | {c.lines_s:,.0f} | {c.cpu_s:.1f} | "
        f"{f'{c.elasticsearch_cpu_s:.1f}' if c.elasticsearch_cpu_s and c.sink != 'noop' else ''} | {c.most_mb:,.0f} |"
        for c in cells
    ]
    return "\n".join(lines)
