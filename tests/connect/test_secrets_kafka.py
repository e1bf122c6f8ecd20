"""Apache Kafka with TLS and SASL: our client, the tools, a worker with its group and tasks, and the mirror.

Sessions end after two seconds there (KIP-368), so everything here authenticates again while it works.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from support.broker import new_name, new_topic
from support.connect_worker import STRING, WorkerProcess, wait_for, worker_properties
from support.klamm import Server
from support.klamm import klamm as run_klamm
from support.mirror import mirror_file, produce, read_all
from support.mirroring import Running, props
from support.secure_kafka import MECHANISMS, PASSWORD, STORE_PASSWORD, SecureKafka, jaas, key

from klamm.kafka_tools import run as kafka_tools
from klamm.testing import EmbeddedBroker
from klamm_base.clientconfig import translate
from klamm_base.oauth import unsecured_token
from klamm_base.security import ClientSecurity
from klamm_kafka.client import AuthenticationFailed, Cluster, ConnectionLost
from klamm_kafka.wire.messages.metadata import MetadataRequest

pytestmark = pytest.mark.usefixtures("apache_kafka")
REAUTH_MS = 2000
LISTENERS = [
    ("SSL", "-"),
    *((protocol, mechanism) for protocol in ("SASL_PLAINTEXT", "SASL_SSL") for mechanism in MECHANISMS),
]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureKafka]:
    settings = {"connections.max.reauth.ms": str(REAUTH_MS)}
    with SecureKafka(tmp_path_factory.mktemp("kafka"), settings) as running:
        yield running


def cluster(java: dict[str, str], **more) -> Cluster:
    security = ClientSecurity.from_properties(java)
    return Cluster(java["bootstrap.servers"], security=security, **more)


@pytest.mark.parametrize(("protocol", "mechanism"), LISTENERS)
async def test_both_clients_reach_every_listener(kafka, protocol, mechanism):
    java = kafka.connection(protocol, mechanism)
    async with cluster(java) as asking:
        await asking.refresh([])
        assert asking.brokers[1].port == kafka.ports[protocol]
        assert (await asking.coordinator("some-group")).version_for(MetadataRequest) >= 12
    admin = AdminClient(translate(java, "admin").config)
    assert await asyncio.to_thread(lambda: 1 in admin.list_topics(timeout=60).brokers)


@pytest.mark.parametrize("store", ["jks", "p12", "pem", "encrypted"])
async def test_both_clients_show_certificates_of_every_store(kafka, store):
    java = kafka.connection("SSL", store="pem" if store == "encrypted" else store) | key("client", store)
    async with cluster(java) as asking:
        await asking.refresh([])
    admin = AdminClient(translate(java, "admin").config)
    assert await asyncio.to_thread(lambda: 1 in admin.list_topics(timeout=60).brokers)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "OAUTHBEARER"])
async def test_a_connection_outlives_its_sessions(kafka, mechanism):
    """Requests of several at a time, for three sessions, on one connection."""
    async with cluster(kafka.connection("SASL_SSL", mechanism)) as asking:
        connection = await asking.any_broker()
        until = time.monotonic() + 3 * REAUTH_MS / 1000
        while time.monotonic() < until:
            answers = await asyncio.gather(
                *(connection.request(MetadataRequest(topics=[])) for _ in range(5))
            )
            assert all(a.brokers for a in answers)
            await asyncio.sleep(0.1)
        assert not connection.closed
        assert await asking.any_broker() is connection


async def test_tokens_from_a_file_and_ones_that_are_too_old(kafka, tmp_path):
    file = tmp_path / "token"
    java = kafka.connection("SASL_SSL", "OAUTHBEARER")
    java["sasl.oauthbearer.token.endpoint.url"] = file.as_uri()
    file.write_text(unsecured_token("ann", time.time(), 3600))
    async with cluster(java) as asking:
        await asking.refresh([])
    admin = AdminClient(translate(java, "admin").config)
    assert await asyncio.to_thread(lambda: 1 in admin.list_topics(timeout=60).brokers)
    file.write_text(unsecured_token("ann", time.time() - 7200, 3600))
    async with cluster(java, timeout_s=3) as asking:  # it looks for a new token in the file meanwhile
        with pytest.raises(
            ConnectionLost, match=r"the token in .*/token has expired at .*; put a new one into it"
        ):
            await asking.refresh([])


async def test_a_wrong_password_is_told_at_once(kafka):
    java = kafka.connection("SASL_SSL", "SCRAM-SHA-256")
    java["sasl.jaas.config"] = jaas("SCRAM-SHA-256", password="not-the-password")
    async with cluster(java, timeout_s=240) as asking, asyncio.timeout(60):  # not when its patience ends
        with pytest.raises(AuthenticationFailed, match=r"SCRAM-SHA-256 as 'ann': Authentication failed") as e:
            await asking.refresh([])
    assert "not-the-password" not in str(e.value)


def test_the_tools_use_a_command_config(kafka, tmp_path, capsys):
    file = tmp_path / "client.properties"
    lines = {k: v.replace("\\", "\\\\") for k, v in kafka.connection("SASL_SSL").items()}
    file.write_text("".join(f"{k}={v}\n" for k, v in lines.items()), encoding="utf-8")
    name = new_name()
    words = ["--bootstrap-server", lines["bootstrap.servers"], "--command-config", str(file)]
    assert kafka_tools.main("kafka-topics", [*words, "--create", "--topic", name]) == 0
    assert kafka_tools.main("kafka-topics", [*words, "--list"]) == 0
    assert name in capsys.readouterr().out


def test_a_worker_its_group_and_its_tasks(kafka, tmp_path):
    """The password is in a file; neither topics nor answers nor the log show it, nor that of the store."""
    name = new_name()
    secrets = tmp_path / "secrets.properties"
    line = jaas("SCRAM-SHA-512").replace("\\", "\\\\")
    secrets.write_text(f"jaas={line}\nstore={STORE_PASSWORD}\n", encoding="utf-8")
    connection = kafka.connection("SASL_SSL") | {
        "sasl.jaas.config": f"${{file:{secrets}:jaas}}",
        "ssl.truststore.password": f"${{file:{secrets}:store}}",
    }
    properties = worker_properties(connection.pop("bootstrap.servers"), name, **connection)
    properties |= {"config.providers": "file", "value.converter": STRING, "key.converter": STRING}
    given, taken = tmp_path / "in.txt", tmp_path / "out.txt"
    given.write_text("".join(f"line {n}\n" for n in range(1000)))
    worker = WorkerProcess(properties, tmp_path)
    try:
        worker.wait_ready(60)
        source = worker.create(f"{name}-in", connector__class="FileStreamSource", file=str(given), topic=name)
        assert source.status == 201, source.body
        override = {
            "consumer__override__sasl__jaas__config": f"${{file:{secrets}:jaas}}",
            "consumer__override__sasl__mechanism": "SCRAM-SHA-512",
        }
        sink = worker.create(
            f"{name}-out", connector__class="FileStreamSink", file=str(taken), topics=name, **override
        )
        assert sink.status == 201, sink.body
        for each in (f"{name}-in", f"{name}-out"):
            worker.wait_state(each, "RUNNING", "RUNNING")
        wait_for(lambda: taken.exists() and taken.read_text() == given.read_text(), lambda: worker.log, 60)
        shown = str(worker.get("/connectors?expand=info&expand=status"))
        assert f"${{file:{secrets}:jaas}}" in shown
        time.sleep(1.5 * REAUTH_MS / 1000)  # the worker's group and its clients go on in new sessions
        with given.open("a") as more:
            more.write("one more\n")
        wait_for(lambda: taken.read_text() == given.read_text(), lambda: worker.log, 60)
        stored = "".join(topic_text(kafka, worker.topic(t)) for t in ("config", "status", "offset"))
        for text in (shown, stored, worker.log):
            assert PASSWORD not in text
            assert STORE_PASSWORD not in text
        assert worker.stop() == 0
    finally:
        worker.end()


def test_workers_of_a_group_hand_over_through_a_secure_cluster(kafka, tmp_path):
    """Two workers with certificates of their own; the first is killed, the second goes on without losing a line."""
    name = new_name()
    connection = kafka.connection("SSL", store="p12")
    properties = worker_properties(connection.pop("bootstrap.servers"), name, **connection)
    properties |= {"session.timeout.ms": "6000", "heartbeat.interval.ms": "1000"}
    properties |= {"value.converter": STRING, "key.converter": STRING}
    given, taken = tmp_path / "in.txt", tmp_path / "out.txt"
    given.write_text("one\n")
    first, second = WorkerProcess(properties, tmp_path), WorkerProcess(properties, tmp_path)
    try:
        for worker in (first, second):
            worker.wait_ready(60)
        second.create(f"{name}-in", connector__class="FileStreamSource", file=str(given), topic=name)
        second.create(f"{name}-out", connector__class="FileStreamSink", file=str(taken), topics=name)
        for each in (f"{name}-in", f"{name}-out"):
            second.wait_state(each, "RUNNING", "RUNNING")
        wait_for(lambda: taken.exists() and taken.read_text() == "one\n", lambda: second.log, 60)
        first.stop(signal.SIGKILL)
        with given.open("a") as more:
            more.write("two\n")
        wait_for(lambda: set(taken.read_text().split()) == {"one", "two"}, lambda: second.log, 60)
        assert second.stop() == 0
    finally:
        first.end()
        second.end()


def topic_text(kafka: SecureKafka, topic: str) -> str:
    """Returns everything that a topic holds."""
    config = {"bootstrap.servers": kafka.address, "group.id": new_name(), "auto.offset.reset": "earliest"}
    consumer = Consumer(config | {"enable.partition.eof": True})
    consumer.subscribe([topic])
    found, ended, until = b"", set(), time.monotonic() + 60
    partitions = len(consumer.list_topics(topic, timeout=60).topics[topic].partitions)
    while len(ended) < partitions and time.monotonic() < until:
        message = consumer.poll(0.5)
        if message is None:
            continue
        if message.error():
            ended.add(message.partition())
        else:
            found += (message.key() or b"") + (message.value() or b"")
    consumer.close()
    assert len(ended) == partitions
    return found.decode("utf-8", "replace")


def test_the_mirror_between_a_cluster_with_tls_and_one_without(kafka, tmp_path):
    topic = new_name()
    producer = Producer({"bootstrap.servers": kafka.address})
    for n in range(500):
        producer.produce(topic, str(n).encode())
    assert producer.flush(60) == 0
    secure = kafka.connection("SASL_SSL", "SCRAM-SHA-256", host="127.0.0.1")
    with EmbeddedBroker(tmp_path / "data") as klamm:
        config = props(secure["bootstrap.servers"], klamm.bootstrap, topics=topic)
        config |= {f"source.cluster.{k}": v for k, v in secure.items()}
        with Running(config) as mirror:
            mirror.until(lambda: mirror.records == 500, "copied")


def test_the_dedicated_mirror_with_secrets_by_reference(kafka, tmp_path):
    """mm2.properties with a SASL_SSL cluster at both ends of a flow each, the password in a file."""
    topic, a, b = new_name(), new_name("a"), new_name("b")
    producer = Producer({"bootstrap.servers": kafka.address})
    for n in range(200):
        producer.produce(topic, str(n).encode())
    assert producer.flush(60) == 0
    secrets = tmp_path / "secrets.properties"
    line = jaas("SCRAM-SHA-512").replace("\\", "\\\\")
    secrets.write_text(f"jaas={line}\nstore={STORE_PASSWORD}\n", encoding="utf-8")
    secure = kafka.connection("SASL_SSL", host="127.0.0.1") | {
        "sasl.jaas.config": f"${{file:{secrets}:jaas}}",
        "ssl.truststore.password": f"${{file:{secrets}:store}}",
    }
    with EmbeddedBroker(tmp_path / "data") as klamm:
        settings = {
            "config.providers": "file",
            "topics": topic,
            "groups": "none",
            f"{a}->{b}.enabled": "true",
        }
        settings |= {f"{kind}.storage.replication.factor": "1" for kind in ("config", "offset", "status")}
        settings |= {f"{b}->{a}.enabled": "true", f"{b}->{a}.topics": f"back-{topic}"}
        settings |= {f"{a}.{key}": value for key, value in secure.items() if key != "bootstrap.servers"}
        clusters = {a: secure["bootstrap.servers"], b: klamm.bootstrap}
        path = mirror_file(tmp_path / "mm2.properties", clusters, settings)
        new_topic(klamm, name=f"back-{topic}")
        with Server("mirror", "start", str(path)) as server:
            produce(klamm.bootstrap, f"back-{topic}", ["x", "y"])
            got = read_all(klamm.bootstrap, f"{a}.{topic}", lambda values: len(set(values)) >= 200)
            assert {str(n) for n in range(200)} == set(got)
            back = read_all(kafka.address, f"{b}.back-{topic}", lambda values: len(set(values)) >= 2)
            assert set(back) == {"x", "y"}
            shown = run_klamm("mirror", "status", str(path))
            assert shown.returncode == 0, shown.stderr
            assert "RUNNING" in shown.stdout
            assert server.stop() == 0
        assert PASSWORD not in topic_text(kafka, f"mm2-configs.{b}.internal")
