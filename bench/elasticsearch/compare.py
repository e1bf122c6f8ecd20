"""The Elasticsearch sink against the server's own limit, alternating in one run.

    python -m bench.elasticsearch.compare [--runs 3] [--documents 200000] [--in-flight 5] [--write]

The same documents (log lines of about 270 bytes) go into two indices of one genuine Elasticsearch: from a topic through a
Klamm worker with the sink, and as prepared bodies of 2000 documents that threads send and whose answers they do not read
item by item, which is as fast as this server takes them. Ids are topic+partition+offset in both; the indices are compared
by count. Measures documents/s, and CPU microseconds per document of what sends and of the server. The broker's CPU is
not counted; it shares the machine.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

import psutil
import urllib3
from bench import arguments, report
from bench.broker import load
from bench.connect.compare import KlammWorker, until
from bench.report import Row
from bench.servers import Klamm
from confluent_kafka import Producer

from klamm.testing.elasticsearch import ElasticsearchServer, Installation, find

ROWS = [
    Row("docs_s", "documents/s, from the first on", 0),
    Row("first_s", "s until the first documents are there", 2),
    Row("client_us", "sender's CPU, µs per document", 2),
    Row("server_us", "Elasticsearch's CPU, µs per document", 1),
]
BATCH = 2000
LOOK_S = 0.05
"""The time between two looks at the index. Each costs the server about a millisecond, on either side."""
LEVELS = ("INFO", "INFO", "INFO", "WARN", "ERROR")


def document(n: int) -> bytes:
    return json.dumps(
        {
            "@timestamp": 1_700_000_000_000 + n,
            "level": LEVELS[n % 5],
            "service": f"service-{n % 20}",
            "status": 200 + n % 300,
            "ms": n % 997 / 10,
            "message": f"GET /api/v1/items/{n % 5000} took a while, request {n:012d}, " + "x" * 60,
            "host": {"name": f"node-{n % 50}"},
        },
        separators=(",", ":"),
    ).encode()


def call(server: ElasticsearchServer, method: str, path: str, body: object = None) -> dict[str, object]:
    request = urllib.request.Request(f"{server.url}/{path}", method=method)
    request.add_header("Content-Type", "application/json")
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(request, data, timeout=120) as answer:
        return json.loads(answer.read() or b"{}")


def cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


def make_index(server: ElasticsearchServer, name: str) -> None:
    settings = {"number_of_shards": 1, "number_of_replicas": 0, "refresh_interval": "30s"}
    call(server, "PUT", name, {"settings": settings})


def check(server: ElasticsearchServer, name: str, count: int) -> None:
    call(server, "POST", f"{name}/_refresh")
    found = call(server, "GET", f"{name}/_count")["count"]
    if found != count:
        raise RuntimeError(f"{name} has {found} documents, not {count}")
    call(server, "DELETE", name)


def indexed(server: ElasticsearchServer, name: str) -> int:
    stats = call(server, "GET", f"{name}/_stats/indexing")
    return stats["_all"]["primaries"]["indexing"]["index_total"]  # type: ignore[index]


class Arrivals:
    """Watches an index fill. Called often, it says whether all `count` documents are there."""

    def __init__(self, server: ElasticsearchServer, name: str, count: int) -> None:
        self._server, self._name, self._count = server, name, count
        self._begin = time.monotonic()
        self._seen: list[tuple[float, int]] = []

    def __call__(self) -> bool:
        found = indexed(self._server, self._name)
        if found:
            self._seen.append((time.monotonic(), found))
        return found >= self._count

    @property
    def figures(self) -> dict[str, float]:
        """`first_s`: seconds until the first documents are there, which a start and a warm-up take; `docs_s`: from then on."""
        (first, before), (last, count) = self._seen[0], self._seen[-1]
        return {"first_s": first - self._begin, "docs_s": (count - before) / (last - first)}


def raw(server: ElasticsearchServer, name: str, count: int, in_flight: int) -> dict[str, float]:
    """Prepared bodies; making them is not measured."""
    make_index(server, name)
    bodies = [
        b"".join(
            b'{"index":{"_index":"%s","_id":"%s+0+%d"}}\n%s\n'
            % (name.encode(), name.encode(), n, document(n))
            for n in range(start, min(start + BATCH, count))
        )
        for start in range(0, count, BATCH)
    ]
    pool = urllib3.HTTPConnectionPool("127.0.0.1", server.port, maxsize=in_flight, timeout=60)
    lock, failures, spent = threading.Lock(), [], []

    def send() -> None:
        try:
            send_all()
        finally:
            spent.append(time.thread_time())

    def send_all() -> None:
        while True:
            with lock:
                if not bodies or failures:
                    return
                body = bodies.pop()
            answer = pool.request(
                "POST", "/_bulk", body=body, headers={"Content-Type": "application/x-ndjson"}
            )
            if answer.status != 200 or b'"errors":false' not in answer.data[:100]:
                failures.append(f"status {answer.status}: {answer.data[:300]!r}")

    es = psutil.Process(server.pid)
    es_before, arrivals = cpu(es), Arrivals(server, name, count)
    threads = [threading.Thread(target=send) for _ in range(in_flight)]
    for thread in threads:
        thread.start()
    until(lambda: arrivals() or bool(failures), "the raw bulk", LOOK_S)
    for thread in threads:
        thread.join()
    if failures:
        raise RuntimeError(failures[0])
    result = figures(count, arrivals, sum(spent), cpu(es) - es_before)
    check(server, name, count)
    return result


def figures(count: int, arrivals: Arrivals, client: float, server: float) -> dict[str, float]:
    return {
        **arrivals.figures,
        "client_us": client / count * 1e6,
        "server_us": server / count * 1e6,
    }


def sink(
    server: ElasticsearchServer, worker: KlammWorker, topic: str, name: str, count: int, in_flight: int
) -> dict[str, float]:
    make_index(server, name)
    es = psutil.Process(server.pid)
    es_before, us_before, arrivals = cpu(es), worker.cpu_s(), Arrivals(server, name, count)
    worker.run_connector(
        name,
        connector__class="ElasticsearchSink",
        tasks__max="1",
        topics=topic,
        connection__url=server.url,
        read__timeout__ms="60000",
        key__ignore="true",
        max__in__flight__requests=str(in_flight),
        value__converter="org.apache.kafka.connect.json.JsonConverter",
        value__converter__schemas__enable="false",
        external__resource__usage="INDEX",
        topic__to__external__resource__mapping=f"{topic}:{name}",
        consumer__override__auto__offset__reset="earliest",
    )
    until(arrivals, "the sink", LOOK_S)
    result = figures(count, arrivals, worker.cpu_s() - us_before, cpu(es) - es_before)
    worker.call("DELETE", f"/connectors/{name}")
    check(server, name, count)
    return result


def fill(bootstrap: str, topic: str, count: int) -> None:
    load.create_topic(bootstrap, 1, topic)
    producer = Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 20, "queue.buffering.max.messages": 1_000_000}
    )
    for n in range(count):
        producer.produce(topic, document(n))
        if n % 10_000 == 0:
            producer.poll(0)
    if producer.flush(120):
        raise RuntimeError("the topic could not be filled")


def main() -> int:
    parser = arguments.parser(__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--documents", type=int, default=200_000)
    parser.add_argument("--in-flight", type=int, default=5)
    args = parser.parse_args()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    found = find(Path(os.environ.get("ELASTICSEARCH_HOME") or cache / "klamm-elasticsearch"))
    if not isinstance(found, Installation):
        print(f"{found}; tests/peers/fetch_elasticsearch.sh fetches it", file=sys.stderr)
        return 1
    results: report.Results = {"klamm": [], "raw bulk": []}
    with (
        tempfile.TemporaryDirectory(prefix="klamm-bench-") as tmp,
        ElasticsearchServer(found, heap_mb=1024) as server,
    ):
        broker = Klamm(Path(tmp) / "broker")
        broker.start()
        worker = KlammWorker(broker.directory, broker.bootstrap)
        try:
            worker.start()
            fill(broker.bootstrap, "documents", args.documents)
            raw(server, "warm", args.documents, args.in_flight)  # the server's compiler
            for run in range(args.runs):
                for name in list(results)[:: 1 if run % 2 == 0 else -1]:
                    if name == "klamm":
                        result = sink(
                            server, worker, "documents", f"sink-{run}", args.documents, args.in_flight
                        )
                    else:
                        result = raw(server, f"raw-{run}", args.documents, args.in_flight)
                    results[name].append(result)
                    shown = ", ".join(f"{k}={v:.2f}" for k, v in result.items())
                    print(f"run {run + 1}/{args.runs} {name}: {shown}", flush=True)
        finally:
            worker.stop()
            broker.stop()
    text = f"{report.table(results, ROWS)}\n\n{report.spread(results, ROWS)}"
    print(f"\n{text}")
    if args.write:
        about = (
            f"`python -m bench.elasticsearch.compare --runs {args.runs} --documents {args.documents}`, "
            f"{report.machine()}, Elasticsearch {found.version} on the same machine; medians."
        )
        report.write("bench/elasticsearch", f"## Topic to Elasticsearch\n\n{about}\n\n{text}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
