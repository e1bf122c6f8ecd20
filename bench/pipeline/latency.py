"""From a line's time to the search that finds it, and the CPU of every stage meanwhile."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from support.elasticsearch import require
from support.pipeline.memory import Watch

from klamm.demo.logs.lines import Lines, Plan
from klamm.demo.logs.pipeline import Pipeline
from klamm.demo.logs.target import ElasticsearchTarget
from klamm.testing import EmbeddedBroker
from klamm.testing.elasticsearch import ElasticsearchServer
from klamm_spark.java import need_java

LOOK_S: Final = 0.1
LATE_S: Final = 15.0
"""The seconds that a look goes back behind the newest line that was found."""
STALLED_S: Final = 120.0
"""Lines are missing if no other has come for so long."""
SAMPLED_A_S: Final = 20
"""About as many lines a second are looked for: more, and the search is a good part of what Elasticsearch does."""


@dataclass(slots=True, kw_only=True)
class Found:
    """One rate. `cpu_s` per million lines and `most_mb` by stage."""

    rate: int
    latencies_s: list[float] = field(repr=False)
    lost: int
    cpu_s: dict[str, float]
    most_mb: dict[str, float]
    batch_ms: float

    @property
    def p50(self) -> float:
        return statistics.median(self.latencies_s)

    @property
    def p99(self) -> float:
        return statistics.quantiles(self.latencies_s, n=100)[98]


class Searcher:
    """Looks for sampled lines; the first answer that has a line is when it could be searched."""

    def __init__(self, target: ElasticsearchTarget, first_s: float, rate: int) -> None:
        from elasticsearch import Elasticsearch

        # Ids begin with random hexadecimal digits: one line in 256 for each of these beginnings
        self._sample = [f"{n:02x}" for n in range(max(1, min(64, SAMPLED_A_S * 256 // rate)))]

        self._client = Elasticsearch(target.url, request_timeout=60)
        self._index = target.index("events")
        self._first_s = self._newest_s = first_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.seen: dict[str, float] = {}
        """The time at which a line was found, by its id; seconds since the epoch."""

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End, after a last look for lines that came so late that no look before had them."""
        self._stop.set()
        self._thread.join()
        self._look(self._first_s)
        self._client.close()

    def _run(self) -> None:
        while not self._stop.is_set():
            began = time.time()
            self._look(max(self._first_s, self._newest_s - LATE_S))
            self._stop.wait(max(0.0, LOOK_S - (time.time() - began)))

    def _look(self, since_s: float) -> None:
        hits = self._search(since_s)
        now = time.time()
        for hit in hits:
            id_, at = hit["fields"]["event.id"][0], hit["fields"]["@timestamp"][0]
            self.seen.setdefault(id_, now)
            self._newest_s = max(self._newest_s, datetime.fromisoformat(at).timestamp())

    def _search(self, since_s: float) -> list[dict[str, Any]]:
        since = datetime.fromtimestamp(since_s, UTC).isoformat()
        answer = self._client.search(
            index=self._index,
            size=10_000,
            source=False,
            track_total_hits=False,
            docvalue_fields=[{"field": "event.id"}, {"field": "@timestamp", "format": "strict_date_time"}],
            query={
                "bool": {
                    "filter": [
                        {"range": {"@timestamp": {"gte": since}}},
                        {"bool": {"should": [{"prefix": {"event.id": p}} for p in self._sample]}},
                    ]
                }
            },
            sort=["_doc"],
        )
        return list(answer["hits"]["hits"])


def run(work: Path, rate: int, seconds: int, warm_s: int) -> Found:
    """One rate from a cold start for `seconds`; the first `warm_s` do not count."""
    with ElasticsearchServer(require(), heap_mb=1024) as server:
        target = ElasticsearchTarget(server.url, "bench-logs")
        target.prepare()
        broker = EmbeddedBroker(work / "data")
        with Pipeline(work, target, java=need_java().environment(), broker=broker) as pipeline:
            pipeline.start_processing(print)
            plan = pipeline.start_logging(seed=7, rate=rate, total=rate * seconds)
            searcher = Searcher(target, plan.start_ms / 1000, rate)
            searcher.start()
            watch = Watch(
                lambda: {
                    "services that log": pipeline.generator.process.pid,
                    "agent": pipeline.agent.process.pid,
                    "broker": broker.pid,
                    "Spark": pipeline.spark.process.pid,
                    "Elasticsearch": server.pid,
                },
                every_s=0.5,
            )
            while pipeline.generator.lines < rate * warm_s:
                pipeline.check()
                time.sleep(0.1)
            watch.look()
            before, from_line = {n: u.cpu_s for n, u in watch.usage.items()}, pipeline.generator.lines
            batches: list[float] = []
            with watch:
                while not pipeline.generator.done:
                    pipeline.check()
                    batches += [float(e["duration_ms"]) for e in pipeline.spark.progress.values()]
                    time.sleep(1)
                watch.look()
                lines = pipeline.generator.lines - from_line
                used = {n: (u.cpu_s - before[n]) / lines * 1e6 for n, u in watch.usage.items()}
            batches += _drain(pipeline, target)
            lost = plan.total - target.count()
            searcher.stop()
    latencies = _latencies(plan, searcher.seen, plan.start_ms + warm_s * 1000)
    if len(latencies) < 2 or not batches:
        raise RuntimeError(
            f"{len(latencies)} lines were found and {len(batches)} batches seen: the machine has too much to do, or "
            "--seconds is too short"
        )
    return Found(
        rate=rate,
        latencies_s=latencies,
        lost=lost,
        cpu_s=used,
        most_mb={n: u.most_mb for n, u in watch.usage.items()},
        batch_ms=statistics.median(batches),
    )


def _latencies(plan: Plan, seen: Mapping[str, float], first_ms: int) -> list[float]:
    """Returns the seconds from when a line was due, `first_ms` or later, until it was found.

    The plan says when that was. The time in an access log's line has whole seconds, and would add half a second on average.
    """
    lines = Lines(plan)
    due = ((lines.id(n), plan.due_ms(n)) for n in range(plan.total))
    return [seen[id_] - ms / 1000 for id_, ms in due if ms >= first_ms and id_ in seen]


def _drain(pipeline: Pipeline, target: ElasticsearchTarget) -> list[float]:
    """Waits until all lines are through, as long as some still come. Returns the batches' times, in ms.

    A fixed time would count lines as missing that a busy machine has not come to.
    """
    batches: list[float] = []
    count, until = -1, time.monotonic() + STALLED_S
    while not pipeline.drained():
        pipeline.check()
        batches += [float(e["duration_ms"]) for e in pipeline.spark.progress.values()]
        if (now := target.count()) != count:
            count, until = now, time.monotonic() + STALLED_S
        elif time.monotonic() > until:
            break
        time.sleep(0.5)
    return batches


def table(found: Sequence[Found]) -> str:
    """All rates, and what each stage used."""
    head = " | ".join(f"{f.rate:,} lines/s" for f in found)
    lines = [f"| | {head} |", "|---|" + "---|" * len(found)]

    def row(name: str, cells: list[str]) -> None:
        lines.append(f"| {name} | " + " | ".join(cells) + " |")

    row("line → searchable, p50, s", [f"{f.p50:.2f}" for f in found])
    row("line → searchable, p99, s", [f"{f.p99:.2f}" for f in found])
    row("lines that were looked for", [f"{len(f.latencies_s):,}" for f in found])
    row("a batch of Spark's, median, ms", [f"{f.batch_ms:,.0f}" for f in found])
    row("lines missing at the end", [f"{f.lost:,}" for f in found])
    for stage in found[0].cpu_s:
        row(f"CPU s per million lines: {stage}", [f"{f.cpu_s[stage]:,.1f}" for f in found])
    for stage in found[0].most_mb:
        row(f"most memory, MB: {stage}", [f"{f.most_mb[stage]:,.0f}" for f in found])
    return "\n".join(lines)
