"""The sink against a genuine Elasticsearch, through a real worker and broker, or as a task of its own."""

from __future__ import annotations

import contextlib
import itertools
import json
import random
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from support.connect_worker import STRING, WorkerProcess, wait_for, worker_properties
from support.elasticsearch import call, documents, require, unique_index
from support.exactly_once import kill_9, task_pid

from klamm.testing import EmbeddedBroker
from klamm.testing.elasticsearch import ElasticsearchServer
from klamm.testing.elasticsearch_setup import Credentials, Tls
from klamm_connectors.elasticsearch.task import ElasticsearchSinkTask
from klamm_plugins.batch import JSON, TEXT, SinkBatch
from klamm_plugins.converters.json import JsonConverter
from klamm_plugins.errors import ConnectError, DataError
from klamm_plugins.records import SinkRecord, TopicPartition
from klamm_plugins.schema import INT32, SchemaBuilder, Struct
from klamm_plugins.testing import MemorySinkContext

pytestmark = pytest.mark.usefixtures("elasticsearch")

PARTITIONS = 2
Model = dict[str, dict[str, object]]


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[WorkerProcess]:
    """Yields a worker on a broker of its own; keys are text, values JSON without schemas."""
    with EmbeddedBroker(tmp_path / "data") as broker:
        converters = {"key.converter": STRING, "value.converter.schemas.enable": "false"}
        properties = worker_properties(broker.bootstrap, "es", **converters)
        process = WorkerProcess(properties, tmp_path)
        try:
            yield process.wait_ready()
        finally:
            process.end()


def topic_of(worker: WorkerProcess, name: str) -> Producer:
    """Returns a producer, after the topic was made."""
    bootstrap = {"bootstrap.servers": worker._properties["bootstrap.servers"]}
    admin = AdminClient(bootstrap)
    for future in admin.create_topics([NewTopic(name, PARTITIONS)]).values():
        future.result()
    return Producer(bootstrap)


def read(worker: WorkerProcess, topic: str, count: int) -> list[Message]:
    """Returns the first `count` records of a topic."""
    consumer = Consumer(
        {
            "bootstrap.servers": worker._properties["bootstrap.servers"],
            "group.id": "reader",
            "auto.offset.reset": "earliest",
        }
    )
    found: list[Message] = []

    def enough() -> bool:
        found.extend(m for m in consumer.consume(count, 0.2) if m.error() is None)
        return len(found) >= count

    try:
        consumer.subscribe([topic])
        wait_for(enough, lambda: f"{len(found)} of {count} records in {topic}\n{worker.log[-2000:]}")
    finally:
        consumer.close()
    return found


def sink(worker: WorkerProcess, server: ElasticsearchServer, topic: str, **more: str) -> None:
    answer = worker.create(
        topic,
        connector__class="ElasticsearchSink",
        connection__url=server.url,
        topics=topic,
        **{"behavior__on__null__values": "delete", "tasks__max": "1", **more},
    )
    assert answer.status == 201, answer.content


def produce(producer: Producer, topic: str, model: Model, numbers: range, seed: int) -> None:
    """Documents, changes and deletions of few keys; `model` is what must be there at the end."""
    draw = random.Random(seed)
    for n in numbers:
        key = f"key-{draw.randrange(300)}"
        if draw.random() < 0.1:
            model.pop(key, None)
            producer.produce(topic, key=key)
        else:
            model[key] = {"n": n, "text": f"é {n}"}
            producer.produce(topic, key=key, value=json.dumps(model[key]))
    assert producer.flush(60) == 0


def test_a_topic_becomes_an_index(worker: WorkerProcess, elasticsearch_server: ElasticsearchServer) -> None:
    topic = unique_index("orders")
    producer, model = topic_of(worker, topic), {}
    produce(producer, topic, model, range(3000), 1)
    dead = f"{topic}-dead"
    sink(
        worker,
        elasticsearch_server,
        topic,
        errors__tolerance="all",
        errors__deadletterqueue__topic__name=dead,
        errors__deadletterqueue__topic__replication__factor="1",
        errors__deadletterqueue__context__headers__enable="true",
    )
    wait_for(lambda: documents(elasticsearch_server, topic) == model, lambda: worker.log, 60)
    producer.produce(topic, key="bad", value=b'{"n": "not a number"}')
    producer.produce(topic, key="worse", value=b"[1, 2]")
    produce(producer, topic, model, range(3000, 3500), 2)
    wait_for(lambda: documents(elasticsearch_server, topic) == model, lambda: worker.log, 60)
    worker.wait_state(topic, "RUNNING", "RUNNING")
    letters = {m.key(): dict(m.headers() or []) for m in read(worker, dead, 2)}
    message = "__connect.errors.exception.message"
    assert b"failed to parse field [n]" in letters[b"bad"][message]
    assert b"must be a JSON object" in letters[b"worse"][message]


def test_a_configuration_that_is_wrong_is_refused_without_its_password(worker: WorkerProcess) -> None:
    config = {
        "connector.class": "io.confluent.connect.elasticsearch.ElasticsearchSinkConnector",
        "topics": "t",
        "connection.url": "http://me:hunter2@h:9200",
        "proxy.host": "p",
    }
    answer = worker.request("POST", "/connectors", {"name": "x", "config": config})
    assert answer.status == 400
    assert "connection.username" in answer.message
    assert "cannot be used: requests go straight" in answer.message
    assert "hunter2" not in answer.body.decode() + worker.log


class Reporter:
    """A dead letter topic in memory."""

    def __init__(self) -> None:
        self.reported: list[tuple[SinkRecord, Exception]] = []

    def report(self, record: SinkRecord, error: Exception) -> None:
        self.reported.append((record, error))


class Running:
    """A task without a worker, on one partition."""

    def __init__(self, server: ElasticsearchServer, topic: str, **props: str) -> None:
        config = {"connection.url": server.url, **{k.replace("__", "."): v for k, v in props.items()}}
        self.place = TopicPartition(topic, 0)
        self.context = MemorySinkContext(config)
        self.context.assignment = frozenset({self.place})
        self.task = ElasticsearchSinkTask()
        self.task.initialize(self.context)
        self.task.start(config)
        self.task.open([self.place])
        self.end = 0

    def put(self, *values: object, keys: list[str] | None = None, schema: object = None) -> None:
        records = [
            SinkRecord(self.place.topic, 0, None, keys[i] if keys else f"k{i}", schema, v, self.end + i, 1000)
            for i, v in enumerate(values)
        ]
        self.end += len(records)
        self.task.put(records)

    def finish(self, timeout_s: float = 60) -> None:
        """Waits until everything may be committed."""
        wait_for(self.round, lambda: f"committable: {self.committable()} of {self.end}", timeout_s)

    def round(self) -> bool:
        self.task.put([])
        return self.committable() == self.end

    def committable(self) -> int:
        return self.task.pre_commit({self.place: self.end}).get(self.place, 0)


@pytest.fixture
def run(elasticsearch_server: ElasticsearchServer) -> Iterator[Callable[..., Running]]:
    """Starts tasks on the shared server and ends them."""
    with contextlib.ExitStack() as stack:

        def start(topic: str, server: ElasticsearchServer = elasticsearch_server, **props: str) -> Running:
            running = Running(server, topic, **props)
            stack.callback(running.task.stop)
            return running

        yield start


def test_bad_documents_are_reported_one_by_one(run, elasticsearch_server) -> None:
    topic = unique_index("bad")
    running, reporter = run(topic), Reporter()
    running.context.errant_record_reporter = reporter
    running.put({"n": 0})
    running.finish()
    values: list[object] = [{"n": i} if i % 10 else {"n": f"number {i}"} for i in range(50)]
    values[7] = "no JSON"
    running.put(*values)
    running.finish()
    found = documents(elasticsearch_server, topic)
    bad = {7, *range(0, 50, 10)}
    assert found == {f"k{i}": v for i, v in enumerate(values) if i not in bad} | {"k0": {"n": 0}}
    assert {r.key for r, _ in reporter.reported} == {f"k{i}" for i in bad}
    assert all(f"{topic}-0@{r.offset}" in str(e) for r, e in reporter.reported)
    assert any("failed to parse field [n]" in str(e) for _, e in reporter.reported)


def test_bytes_of_the_topic_end_where_converted_values_end(run, elasticsearch_server) -> None:
    """The server refuses a name that comes twice and numbers beyond its own; readers of JSON take them."""
    texts = [
        b'{"n": 1}',
        b'{"n":2,"n":3}',
        b'{"o":{"x":1,"x":"y"},"n":4}',
        b'{"n":18446744073709551616000}',
        b'{"n":\n5}',
        b'\r\n {"n":6}',
        b'{"n":"no number"}',
        b'{"u":"\xc3\xa9 \xf0\x9f\x98\x80","n":1e2}',
        b"[1]",
        b"null",
    ]
    converter = JsonConverter()
    converter.configure({"schemas.enable": "false"}, is_key=False)
    raw = converter.raw_values("t", texts, (JSON, TEXT))
    assert raw is not None
    found = []
    for way, method in itertools.product(("raw", "converted"), ("insert", "upsert")):
        topic = unique_index(f"{way}-{method}")
        running, reporter = run(topic, write__method=method, behavior__on__null__values="delete"), Reporter()
        running.context.errant_record_reporter = reporter
        running.put({"n": 0, "o": {"x": "z"}}, keys=["first"])
        running.finish()
        values = raw[1] if way == "raw" else raw[1].decode(raw[1].data)
        keys = [f"k{i}" for i in range(len(texts))]
        batch = SinkBatch(running.place, range(1, 1 + len(texts)), values, keys=keys)
        running.end += len(texts)
        running.task.put_batches([batch])
        running.finish()
        bad = sorted((r.key, type(e).__name__) for r, e in reporter.reported)
        found.append((documents(elasticsearch_server, topic), bad))
    assert found[0] == found[2]
    assert found[1] == found[3]
    assert found[0][0]["k1"] == {"n": 3}
    assert [key for key, _ in found[0][1]] == ["k3", "k6", "k8"]


@pytest.mark.parametrize("policy", ["fail", "warn", "ignore"])
def test_bad_documents_by_policy(run, elasticsearch_server, policy, caplog) -> None:
    topic = unique_index("policy")
    running = run(topic, behavior__on__malformed__documents=policy)
    running.put({"n": 0}, keys=["a"])
    running.finish()
    running.put({"n": 1}, {"n": "x"}, {"n": 2}, keys=["b", "c", "d"])
    if policy == "fail":
        with pytest.raises(DataError, match="failed to parse field"):
            running.finish()
        assert running.committable() < running.end
    else:
        running.finish()
        assert ("failed to parse" in caplog.text) == (policy == "warn")
    assert documents(elasticsearch_server, topic) == {"a": {"n": 0}, "b": {"n": 1}, "d": {"n": 2}}


def test_a_document_that_the_whole_request_is_refused_for_is_found(run, elasticsearch_server) -> None:
    topic = unique_index("upper")
    mapping = f"{topic}:{topic},{topic}-2:{topic}"
    call(elasticsearch_server, "PUT", topic)
    running, reporter = (
        run(
            topic,
            key__ignore="true",
            external__resource__usage="INDEX",
            topic__to__external__resource__mapping=mapping,
        ),
        Reporter(),
    )
    running.context.errant_record_reporter = reporter
    deep = '{"a":' * 1200 + "1" + "}" * 1200  # deeper than the server reads
    running.put(*({"n": i} for i in range(20)), deep, *({"n": i} for i in range(20)))
    running.finish()
    assert len(documents(elasticsearch_server, topic)) == 40
    assert [r.offset for r, _ in reporter.reported] == [20]


def test_upserts_change_fields_and_keep_their_order(run, elasticsearch_server) -> None:
    topic = unique_index("upsert")
    running = run(topic, write__method="upsert", behavior__on__null__values="delete", batch__size="20")
    model: Model = {}
    draw = random.Random(5)
    for _ in range(10):
        keys = [f"k{draw.randrange(6)}" for _ in range(40)]
        values: list[object] = []
        for key in keys:
            if draw.random() < 0.05:
                model.pop(key, None)
                values.append(None)
            else:
                change = {f"f{draw.randrange(4)}": draw.randrange(1000)}
                model.setdefault(key, {}).update(change)
                values.append(change)
        running.put(*values, keys=keys)
    running.finish()
    assert documents(elasticsearch_server, topic) == model


def test_records_that_come_again_change_nothing(run, elasticsearch_server) -> None:
    topic = unique_index("again")
    for _ in range(2):
        running = run(topic)
        running.put({"n": 1}, {"n": 2}, {"n": 3}, keys=["a", "b", "a"])
        running.finish()
    assert documents(elasticsearch_server, topic) == {"a": {"n": 3}, "b": {"n": 2}}


def test_a_topic_that_was_made_anew_is_noticed(run, elasticsearch_server, caplog) -> None:
    """Its offsets begin below the versions of the index: the server keeps what it has, and that is said."""
    topic = unique_index("anew")
    running = run(topic)
    running.end = 1000
    running.put({"n": 1}, {"n": 2}, keys=["a", "b"])
    running.finish()
    running = run(topic)
    running.put({"n": 3}, {"n": 4}, {"n": 5}, keys=["a", "b", "c"])
    running.finish()
    found = {"a": {"n": 1}, "b": {"n": 2}, "c": {"n": 5}}
    assert documents(elasticsearch_server, topic) == found
    said = [r for r in caplog.records if "the topic was made anew" in r.getMessage()]
    assert said
    assert {r.levelname for r in said} == {"WARNING"}
    counted = [int(r.getMessage().split()[0]) for r in said]
    assert sum(counted) == 2
    assert "version there 1001" in caplog.text


def test_a_new_index_gets_its_mapping_from_the_schema(run, elasticsearch_server) -> None:
    topic = unique_index("mapped")
    schema = SchemaBuilder.struct().field("n", INT32).build()
    running = run(topic)
    running.put(Struct(schema, n=5), keys=["a"], schema=schema)
    running.finish()
    _, answer = call(elasticsearch_server, "GET", f"{topic}/_mapping")
    assert answer[topic]["mappings"] == {"properties": {"n": {"type": "integer"}}}


def test_documents_are_created_in_data_streams(run, elasticsearch_server, caplog) -> None:
    topic = unique_index("stream")
    template = {"index_patterns": [f"logs-app-{topic}*"], "data_stream": {}, "priority": 500}
    status, answer = call(elasticsearch_server, "PUT", f"_index_template/{topic}", template)
    assert status == 200, answer
    for _ in range(2):  # the second time all are there
        running = run(topic, data__stream__type="logs", data__stream__dataset="app", key__ignore="true")
        running.put(*({"m": i} for i in range(10)))
        running.finish()
    found = documents(elasticsearch_server, f"logs-app-{topic}")
    assert {d["m"] for d in found.values()} == set(range(10))
    assert len(found) == 10
    assert {d["@timestamp"] for d in found.values()} == {"1970-01-01T00:00:01Z"}
    assert "10 records of" in caplog.text
    caplog.clear()
    running = run(topic, data__stream__type="logs", data__stream__dataset="app")
    running.put({"m": 100}, {"m": 101}, keys=["x", "x"])
    running.finish()
    assert "1 records of" in caplog.text
    assert "set key.ignore=true" in caplog.text


def test_a_target_that_is_not_there_fails_with_its_name(run) -> None:
    running = run(
        "t", external__resource__usage="INDEX", topic__to__external__resource__mapping="t:no-such-index"
    )
    running.put({"n": 1})
    with pytest.raises(ConnectError, match="no-such-index"):
        running.finish()


@pytest.mark.timeout(300)
def test_https_and_credentials(tmp_path: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed (Debian: apt-get install openssl)")
    certificate, key = tmp_path / "c.pem", tmp_path / "k.pem"
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        *names,
        "-keyout",
        key,
        "-out",
        certificate,
    ]
    subprocess.run(command, check=True, capture_output=True)
    users = Credentials("ci", "one two"), Tls(certificate, key)
    with ElasticsearchServer(require(), credentials=users[0], tls=users[1]) as server:
        safe = {
            "elastic__security__protocol": "SSL",
            "elastic__https__ssl__truststore__location": str(certificate),
            "connection__username": "ci",
        }
        running = Running(server, "safe", connection__password="one two", **safe)
        running.put({"n": 1}, keys=["a"])
        running.finish()
        running.task.stop()
        assert documents(server, "safe") == {"a": {"n": 1}}
        for wrong, sentence in (
            ({**safe, "connection__password": "hunter2"}, "unable to authenticate user"),
            ({"connection__username": "ci", "connection__password": "hunter2"}, "TLS failed"),
        ):
            running = Running(server, "safe", **wrong)
            running.put({"n": 1}, keys=["a"])
            with pytest.raises(ConnectError, match=sentence) as e:
                running.finish()
            assert "hunter2" not in str(e.value)
            running.task.stop()


@pytest.mark.timeout(300)
def test_a_server_that_has_no_room_is_waited_for() -> None:
    """429 of the genuine server: its memory for indexing is smaller than what is under way."""
    limits = {"indexing_pressure.memory.limit": "400kb", "http.max_content_length": "2mb"}
    with ElasticsearchServer(require(), settings=limits) as server:
        topic = unique_index("busy")
        running = Running(server, topic, max__retries="0", max__buffered__records="3000")
        for start in range(0, 6000, 500):
            values = ({"n": start + i, "text": "x" * 500} for i in range(500))
            running.put(*values, keys=[f"k{start + i}" for i in range(500)])
        running.finish(90)
        running.context.errant_record_reporter = reporter = Reporter()
        for size in (
            500_000,
            3_000_000,
        ):  # more than its memory for indexing, and more than a request may have
            big = {"n": size, "text": "x" * size}
            running.put(
                {"n": 6000 + size}, big, {"n": 6001 + size}, keys=[f"a{size}", f"b{size}", f"c{size}"]
            )
        running.finish(90)
        running.task.stop()
        found = documents(server, topic)
        assert {r.key for r, _ in reporter.reported} == {"b500000", "b3000000"}  # of two requests at once
        assert len([k for k in found if k[0] in "abc"]) == 4
        found = {k: d for k, d in found.items() if k[0] == "k"}
        assert sorted(d["n"] for d in found.values()) == list(range(6000))
        _, stats = call(server, "GET", "_nodes/stats/indexing_pressure")
        (node,) = stats["nodes"].values()
        assert node["indexing_pressure"]["memory"]["total"]["coordinating_rejections"] > 0


@pytest.mark.timeout(300)
def test_nothing_is_lost_when_server_and_task_are_killed(worker: WorkerProcess) -> None:
    with ElasticsearchServer(require()) as server:
        topic = unique_index("killed")
        producer, model = topic_of(worker, topic), {}
        produce(producer, topic, model, range(2000), 1)
        sink(worker, server, topic)
        wait_for(lambda: len(documents(server, topic)) > 10, lambda: worker.log, 60)
        with ThreadPoolExecutor(1) as pool:
            more = pool.submit(produce_for_long, producer, topic, model)
            time.sleep(0.7)
            server.kill()
            wait_for(lambda: "Elasticsearch does not take documents" in worker.log, lambda: worker.log, 60)
            worker.wait_state(topic, "RUNNING", "RUNNING")
            for _ in range(2):
                kill_task(worker, topic)
                worker.wait_state(topic, "RUNNING", "RUNNING")
                time.sleep(1)
            server.start()
            time.sleep(0.5)
            kill_task(worker, topic)
            more.result()
        wait_for(lambda: documents(server, topic) == model, lambda: worker.log[-3000:], 120)
        worker.wait_state(topic, "RUNNING", "RUNNING")


@pytest.mark.timeout(300)
def test_updates_keep_their_order_while_partitions_move(
    worker: WorkerProcess, elasticsearch_server: ElasticsearchServer
) -> None:
    """Updates have no versions: what one task has under way must not come after what the next one sends."""
    topic = unique_index("moving")
    producer, model = topic_of(worker, topic), {}
    produce(producer, topic, model, range(2000), 1)
    settings = {"write__method": "upsert", "batch__size": "50", "linger__ms": "5"}
    sink(worker, elasticsearch_server, topic, **settings)
    wait_for(lambda: len(documents(elasticsearch_server, topic)) > 10, lambda: worker.log, 60)
    for n, tasks in enumerate(("2", "1", "2")):
        start = 2000 + n * 4000
        produce(producer, topic, model, range(start, start + 4000), n)
        config = worker.request("GET", f"/connectors/{topic}/config").content
        assert (
            worker.request("PUT", f"/connectors/{topic}/config", {**config, "tasks.max": tasks}).status == 200
        )
        running = ["RUNNING"] * (int(tasks) + 1)
        wait_for(lambda states=running: worker.state(topic) == states, lambda: worker.log[-3000:], 60)
    wait_for(lambda: documents(elasticsearch_server, topic) == model, lambda: worker.log[-3000:], 90)


def produce_for_long(producer: Producer, topic: str, model: Model) -> None:
    for n in range(2000, 22000, 1000):
        produce(producer, topic, model, range(n, n + 1000), n)
        time.sleep(0.3)


def kill_task(worker: WorkerProcess, topic: str) -> None:
    """Kills the process of its task (`kill -9`); there is another one afterwards, not one that is to be started later."""
    find = partial(task_pid, worker.process.pid, f"{topic}-0")
    wait_for(find, lambda: worker.log)
    killed = find()
    assert kill_9(killed)
    wait_for(lambda: find() not in (None, killed), lambda: worker.log)
