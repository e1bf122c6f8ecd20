"""The proxy before two clusters, our broker and Apache Kafka: ACLs, schemas in v3, batches, rebalances, TLS and SASL."""

from __future__ import annotations

import base64
import datetime as dt
import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient, NewTopic
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from support.broker import new_name, wait_until
from support.registry_process import RegistryProcess
from support.rest_proxy_process import RestProxyProcess
from support.secure_broker import SecureBroker
from support.secure_kafka import SecureKafka, jaas, property_, trust

from klamm.restproxy import v3_shapes as shapes
from klamm.security.authority import make_authority, make_server
from klamm.testing import EmbeddedBroker
from klamm.web.passwords import hash_password

JSON = "application/json"
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "super.users": "User:ANONYMOUS;User:ann",
}
AVRO = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]})
SCHEMA = json.dumps({"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]})
PROTO = 'syntax = "proto3"; message Order { int64 id = 1; }'


@pytest.fixture(
    scope="module", params=["klamm", pytest.param("kafka", marks=pytest.mark.needs("apache_kafka"))]
)
def running(
    request: pytest.FixtureRequest, processes: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Any]:
    """A broker with an authorizer; Apache's has listeners with TLS and SASL, too."""
    work = tmp_path_factory.mktemp(request.param)
    if request.param == "kafka":
        with SecureKafka(work, AUTHORIZER) as kafka:
            yield kafka
    else:
        with EmbeddedBroker(work, config=AUTHORIZER) as ours:
            yield ours


def bootstrap_of(running: Any) -> str:
    return str(running.address if isinstance(running, SecureKafka) else running.bootstrap)


@pytest.fixture(scope="module")
def registry(running: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RegistryProcess]:
    with RegistryProcess(bootstrap_of(running), tmp_path_factory.mktemp("registry")) as started:
        yield started


@pytest.fixture(scope="module")
def proxy(
    running: Any, registry: RegistryProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RestProxyProcess]:
    work = tmp_path_factory.mktemp("proxy")
    with RestProxyProcess(bootstrap_of(running), work, schema__registry__url=registry.url) as started:
        yield started


@pytest.fixture
def cluster(proxy: RestProxyProcess) -> str:
    return str(proxy.ask("GET", "/v3/clusters")[1]["data"][0]["metadata"]["self"])


def new_topic(running: Any, partitions: int = 1) -> str:
    name = new_name("rest")
    admin = AdminClient({"bootstrap.servers": bootstrap_of(running)})
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(30)
    return name


def values(running: Any, topic: str, count: int) -> list[bytes]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_of(running),
            "group.id": new_name("g"),
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([topic])
    found: list[bytes] = []
    for _ in range(60):
        found += [m.value() for m in consumer.consume(count, 0.5) if m.error() is None]
        if len(found) >= count:
            break
    consumer.close()
    return found


def test_acls(proxy: RestProxyProcess, cluster: str) -> None:
    """One, several, a list of some, and their end; a batch with a mistake makes none."""
    topic = new_name("acl")
    first = {"resource_type": "TOPIC", "resource_name": topic, "pattern_type": "LITERAL", "principal": "User:bob", "host": "*",
             "operation": "READ", "permission": "ALLOW"}  # fmt: skip
    others = [{**first, "operation": word} for word in ("WRITE", "DESCRIBE")]
    assert proxy.ask("POST", f"{cluster}/acls", first, kind=JSON)[0] == 201
    status, told = proxy.ask(
        "POST",
        f"{cluster}/acls:batch",
        {"data": [{**first, "operation": "ALTER"}, {**first, "host": ""}]},
        kind=JSON,
    )
    assert (status, told["message"]) == (422, "host is needed")
    assert proxy.ask("POST", f"{cluster}/acls:batch", {"data": others}, kind=JSON) == (201, None)
    status, listed = proxy.ask("GET", f"{cluster}/acls?resource_type=topic&resource_name={topic}")
    assert (status, {a["operation"] for a in listed["data"]}) == (200, {"READ", "WRITE", "DESCRIBE"})
    acl = next(a for a in listed["data"] if a["operation"] == "READ")
    assert {k: acl[k] for k in first} == first
    assert acl["kind"] == "KafkaAcl"
    assert len(proxy.ask("GET", acl["metadata"]["self"])[1]["data"]) == 1
    assert proxy.ask("DELETE", f"{cluster}/acls")[0] == 400
    assert proxy.ask("GET", f"{cluster}/acls?operation=NONE")[1]["error_code"] == 40002
    status, gone = proxy.ask(
        "DELETE", f"{cluster}/acls?resource_type=TOPIC&resource_name={topic}&operation=WRITE"
    )
    assert [a["operation"] for a in gone["data"]] == ["WRITE"]
    status, gone = proxy.ask("DELETE", f"{cluster}/acls?resource_name={topic}&resource_type=TOPIC")
    assert {a["operation"] for a in gone["data"]} == {"READ", "DESCRIBE"}


def test_schemas_in_v3(
    running: Any, proxy: RestProxyProcess, registry: RegistryProcess, cluster: str
) -> None:
    """By text, id, version and newest version; Confluent's deserializers read what came of it."""
    with SchemaRegistryClient({"url": registry.url}) as client:
        schemas_in_v3(running, proxy, client, cluster)


def schemas_in_v3(running: Any, proxy: RestProxyProcess, client: SchemaRegistryClient, cluster: str) -> None:

    def send(topic: str, **value: Any) -> tuple[int, Any]:
        return proxy.ask("POST", f"{cluster}/topics/{topic}/records", {"value": value}, kind=JSON)

    topic = new_topic(running)
    status, first = send(topic, type="AVRO", schema=AVRO, data={"id": 1})
    assert (status, first["error_code"], first["value"]["type"], first["value"]["subject"]) == (
        200,
        200,
        "AVRO",
        f"{topic}-value",
    )
    number = first["value"]["schema_id"]
    assert send(topic, schema_id=number, data={"id": 2})[1]["error_code"] == 200
    assert (
        send(topic, subject=f"{topic}-value", schema_version=1, data={"id": 3})[1]["value"]["schema_version"]
        == 1
    )
    assert send(topic, type="AVRO", data={"id": 4})[1]["value"]["schema_id"] == number
    wrong = send(topic, schema_id=number, data={"id": "x"})[1]
    assert wrong["error_code"] == 42203
    assert send(topic, type="JSONSCHEMA", schema_id=number, data={"id": 2})[1]["error_code"] == 42205
    read = AvroDeserializer(client)
    where = SerializationContext(topic, MessageField.VALUE)
    assert [read(v, where) for v in values(running, topic, 4)] == [{"id": n} for n in (1, 2, 3, 4)]

    topic = new_topic(running)
    assert send(topic, type="JSONSCHEMA", schema=SCHEMA, data={"id": 5})[1]["error_code"] == 200
    assert send(topic, type="JSONSCHEMA", data={})[1]["error_code"] == 42203
    [value] = values(running, topic, 1)
    assert JSONDeserializer(SCHEMA, schema_registry_client=client)(
        value, SerializationContext(topic, MessageField.VALUE)
    ) == {"id": 5}

    topic = new_topic(running)
    assert send(topic, type="PROTOBUF", schema=PROTO, data={"id": "6"})[1]["error_code"] == 200
    [value] = values(running, topic, 1)
    assert (value[:1], value[5:]) == (b"\0", b"\0\x08\x06")
    consumer = proxy.consumer(new_name("g"), "protobuf")
    proxy.ask("POST", f"{consumer}/subscription", {"topics": [topic]})
    assert [r["value"] for r in proxy.read(consumer, "protobuf", 1)] == [{"id": "6"}]
    proxy.ask("DELETE", consumer)


def test_a_batch_tells_of_each_entry(running: Any, proxy: RestProxyProcess, cluster: str) -> None:
    topic = new_topic(running, 2)
    here = f"{cluster}/topics/{topic}/records:batch"

    def entry(name: Any, data: Any, form: str = "JSON", **more: Any) -> dict[str, Any]:
        return {"id": name, "value": {"type": form, "data": data}, **more}

    entries = [
        entry(
            "a",
            {"n": 1},
            partition_id=1,
            timestamp="2026-01-01T00:00:00Z",
            headers=[{"name": "h", "value": "aGk="}],
        ),
        entry("b", 7, "STRING"),
        entry("c", "text", "STRING", partition_id=9),
        entry("d", "again", "STRING", partition_id=1),
    ]
    status, told = proxy.ask("POST", here, {"entries": entries}, kind=JSON)
    assert status == 207
    assert [(e["id"], e["partition_id"], e["offset"], e["topic_name"]) for e in told["successes"]] == [
        ("a", 1, 0, topic),
        ("d", 1, 1, topic),
    ]
    assert told["successes"][0]["timestamp"] == "2026-01-01T00:00:00.000Z"
    assert [(e["id"], e["error_code"]) for e in told["failures"]] == [("b", 422), ("c", 40402)]
    assert values(running, topic, 2) == [b'{"n":1}', b"again"]
    for wrong, why in (
        ([], "Empty batch."),
        ([entry("a", 1), entry("a", 2)], "not distinct"),
        ([entry(str(n), n) for n in range(11)], "Too many entries"),
        ([entry(5, 1)], "not a valid string"),
    ):
        status, told = proxy.ask("POST", here, {"entries": wrong}, kind=JSON)
        assert (status, told["error_code"], why in told["message"]) == (422, 42208, True), told
    assert proxy.ask(
        "POST",
        f"{cluster}/topics/{new_name('none')}-x/records:batch",
        {"entries": [entry("a", 1)]},
        kind=JSON,
    )[0] in {207, 404}


def test_two_instances_share_a_topic_and_one_takes_over(running: Any, proxy: RestProxyProcess) -> None:
    """Each partition belongs to one of them; nothing is read twice where offsets are committed, and what the first leaves goes to the other."""
    topic, group = new_topic(running, 4), new_name("g")
    first, second = (proxy.consumer(group, "json", name=name) for name in ("one", "two"))
    accept = "application/vnd.kafka.json.v2+json"

    def poll(consumer: str) -> list[int]:
        status, found = proxy.ask("GET", f"{consumer}/records?timeout=200", accept=accept)
        assert status == 200, found
        return [r["value"] for r in found]

    def held(consumer: str) -> set[int]:
        return {p["partition"] for p in proxy.ask("GET", f"{consumer}/assignments")[1]["partitions"]}

    def until(due: Any) -> None:
        for _ in range(100):
            assert poll(first) + poll(second) == []
            if due():
                return
        raise AssertionError(f"{held(first)}, {held(second)}")

    proxy.ask("POST", f"{first}/subscription", {"topics": [topic]})
    until(lambda: held(first) == {0, 1, 2, 3})
    proxy.ask("POST", f"{second}/subscription", {"topics": [topic]})
    until(lambda: len(held(first)) == len(held(second)) == 2)
    assert held(first) | held(second) == {0, 1, 2, 3}
    proxy.produce(topic, "json", [{"value": i, "partition": i % 4} for i in range(40)])
    seen: dict[str, list[int]] = {first: [], second: []}
    for _ in range(50):
        for consumer in seen:
            seen[consumer] += poll(consumer)
        if sum(map(len, seen.values())) == 40:
            break
    assert sorted(seen[first] + seen[second]) == list(range(40))
    assert {i % 4 for i in seen[first]} == held(first)
    assert proxy.ask("DELETE", first) == (204, None)
    proxy.produce(topic, "json", [{"value": i, "partition": i % 4} for i in range(40, 80)])
    assert sorted(r["value"] for r in proxy.read(second, "json", 40)) == list(range(40, 80))
    assert held(second) == {0, 1, 2, 3}
    proxy.ask("DELETE", second)


def test_settings_of_all_brokers_and_of_several_topics(
    running: Any, proxy: RestProxyProcess, cluster: str
) -> None:
    """Apache Kafka's brokers learn of a change after the controller's answer."""
    name, all_brokers = "log.cleaner.threads", f"{cluster}/broker-configs"

    def of_all() -> list[Any]:
        return [each for each in proxy.ask("GET", all_brokers)[1]["data"] if each["name"] == name]

    assert of_all() == []
    assert proxy.ask("PUT", f"{all_brokers}/{name}", {"value": "2"}, kind=JSON) == (204, None)
    [held] = wait_until(of_all, "the broker knows the setting")
    assert (held["kind"], held["config_type"], held["name"], held["value"], held["source"]) == (
        "KafkaClusterConfig", "BROKER", name, "2", "DYNAMIC_DEFAULT_BROKER_CONFIG",
    )  # fmt: skip
    assert proxy.ask("GET", held["metadata"]["self"])[1] == held
    of_brokers = proxy.ask("GET", f"{cluster}/brokers/-/configs")[1]["data"]
    assert {(each["kind"], each["value"]) for each in of_brokers if each["name"] == name} == {
        ("KafkaBrokerConfig", "2")
    }
    wrong = {"data": [{"name": name, "value": "x"}], "validate_only": True}
    assert proxy.ask("POST", f"{all_brokers}:alter", wrong, kind=JSON)[0] == 400
    checked = {"data": [{"name": name, "value": "1"}], "validate_only": True}
    assert proxy.ask("POST", f"{all_brokers}:alter", checked, kind=JSON) == (204, None)
    assert proxy.ask("GET", f"{all_brokers}/{name}")[1]["value"] == "2"
    assert proxy.ask("DELETE", f"{all_brokers}/{name}") == (204, None)
    wait_until(lambda: proxy.ask("GET", f"{all_brokers}/{name}")[0] == 404, "the broker has forgotten it")

    one, two, none = new_topic(running), new_topic(running), new_name("none")
    change = [{"name": "retention.ms", "value": "1000"}]
    bad = [{"name": "retention.ms", "value": "never"}]
    asked = {"data": [{"topic_name": one, "configs": change}, {"topic_name": two, "configs": bad}, {"topic_name": none, "configs": change}]}  # fmt: skip
    status, told = proxy.ask("POST", f"{cluster}/topics/-/configs:alter", asked, kind=JSON)
    assert status == 207
    assert [(each["topic_name"], each["error_code"]) for each in told["failures"]] == [
        (two, 40002),
        (none, 40403),
    ]

    def retained() -> dict[str, str]:
        listed = proxy.ask("GET", f"{cluster}/topics/-/configs")[1]["data"]
        return {each["topic_name"]: each["value"] for each in listed if each["name"] == "retention.ms"}

    wait_until(lambda: retained().get(one) == "1000", "the broker knows the topic's setting")
    assert retained()[two] != "1000"
    assert (
        proxy.ask("POST", f"{cluster}/topics/-/configs:alter", {"data": asked["data"][:1] * 2}, kind=JSON)[0]
        == 422
    )


def test_offsets_replicas_and_reassignments(running: Any, proxy: RestProxyProcess, cluster: str) -> None:
    topic = new_topic(running, 2)
    proxy.produce(topic, "json", [{"value": 1, "partition": 1}, {"value": 2, "partition": 1}])
    here = f"{cluster}/topics/{topic}/partitions"
    shown = proxy.ask("GET", f"{here}/1/offset")[1]
    assert (shown["kind"], shown["earliest_offset"], shown["latest_offset"]) == ("KafkaPartition", 0, 2)
    assert "earliest_offset" not in proxy.ask("GET", f"{here}/1/offset?offset_type=latest")[1]
    assert proxy.ask("GET", f"{here}/1/offset?offset_type=newest")[0] == 400
    assert proxy.ask("GET", f"{here}/2/offset")[0] == 404
    broker = proxy.ask("GET", f"{cluster}/brokers")[1]["data"][0]
    replicas = proxy.ask("GET", broker["partition_replicas"]["related"])[1]["data"]
    assert {each["partition_id"] for each in replicas if each["topic_name"] == topic} == {0, 1}
    for related in (proxy.ask("GET", cluster)[1], proxy.ask("GET", f"{cluster}/topics/{topic}")[1]):
        status, moving = proxy.ask("GET", related["partition_reassignments"]["related"])
        assert (status, moving["kind"], moving["data"]) == (200, "KafkaReassignmentList", [])
    assert proxy.ask("GET", f"{here}/0/reassignment")[0] == 404
    group = new_name("g")
    consumer = proxy.consumer(group, "json")
    proxy.ask("POST", f"{consumer}/subscription", {"topics": [topic]})
    proxy.read(consumer, "json", 2)
    [member] = proxy.ask("GET", f"{cluster}/consumer-groups/{group}/consumers")[1]["data"]
    assigned = proxy.ask("GET", member["assignments"]["related"])[1]["data"]
    assert [proxy.ask("GET", each["metadata"]["self"])[1] for each in assigned] == assigned
    assert len(assigned) == 2
    assert proxy.ask("GET", assigned[0]["metadata"]["self"] + "9")[0] == 404
    proxy.ask("DELETE", consumer)


def test_a_reassignment_tells_what_is_added_and_removed() -> None:
    shown = shapes.reassignment(shapes.Links("http://x", "c"), "t", 3, [2], [1])
    assert shown["metadata"]["self"] == "http://x/v3/clusters/c/topics/t/partitions/3/reassignment"
    assert (shown["adding_replicas"], shown["removing_replicas"]) == ([2], [1])
    assert shown["replicas"]["related"].endswith("/topics/t/partitions/3/replicas")


@pytest.fixture
def behind(running: Any, tmp_path: Path) -> Iterator[dict[str, str]]:
    """Client settings of a listener with SASL_SSL, at Apache's broker and at ours."""
    if isinstance(running, SecureKafka):
        yield running.connection("SASL_SSL")
        return
    with SecureBroker(tmp_path / "secured") as ours:
        ours.add_user()
        login = {"sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": jaas("SCRAM-SHA-512")}
        yield {
            "bootstrap.servers": f"localhost:{ours.tls_port}", "security.protocol": "SASL_SSL", **trust(), **login,
        }  # fmt: skip


def test_tls_and_logins_before_and_behind_the_proxy(behind: dict[str, str], tmp_path: Path) -> None:
    """HTTPS with a users file in front; SASL_SSL with SCRAM behind, for producer, consumers and admin alike."""
    now = dt.datetime.now(dt.UTC)
    authority = make_authority("us", now)
    made = make_server(authority, ["127.0.0.1"], now)
    (tmp_path / "server.pem").write_bytes(made.key + made.certificate)
    (tmp_path / "users.toml").write_text(
        f'[users.ann]\npassword = "{hash_password("secret")}"\nrole = "admin"\n'
    )
    more = {
        "listeners.https.ssl.keystore.location": str(tmp_path / "server.pem"),
        "rest.auth.file": str(tmp_path / "users.toml"),
    }
    address = behind.pop("bootstrap.servers")
    more |= {f"client.{key}": property_(value) for key, value in behind.items()}
    proxy = RestProxyProcess(address, tmp_path / "proxy", **more)
    proxy.over_tls()
    context = ssl.create_default_context(cadata=authority.certificate.decode())
    login = base64.b64encode(b"ann:secret").decode()

    def ask(
        method: str, path: str, body: Any = None, *, kind: str = JSON, accept: str = "*/*", user: str = login
    ) -> tuple[int, Any]:
        headers = {
            "Content-Type": kind,
            "Accept": accept,
            **({"Authorization": f"Basic {user}"} if user else {}),
        }
        data = None if body is None else json.dumps(body).encode()
        url = path if path.startswith("http") else proxy.url + path
        try:
            with urllib.request.urlopen(
                urllib.request.Request(url, data, headers, method=method), timeout=60, context=context
            ) as answer:
                text = answer.read()
                return answer.status, json.loads(text) if text else None
        except urllib.error.HTTPError as e:
            with e:
                return e.code, json.loads(e.read())

    v2 = "application/vnd.kafka.json.v2+json"
    with proxy:
        assert ask("GET", "/topics", user="")[0] == 401
        assert ask("GET", "/topics", user=base64.b64encode(b"ann:no").decode())[0] == 401
        here = ask("GET", "/v3/clusters")[1]["data"][0]["metadata"]["self"]
        assert here.startswith("https://")
        topic = new_name("tls")
        assert (
            ask(
                "POST",
                f"{here}/topics",
                {"topic_name": topic, "partitions_count": 1, "replication_factor": 1},
            )[0]
            == 201
        )
        sent = ask("POST", f"/topics/{topic}", {"records": [{"value": 1}]}, kind=v2)
        assert sent[1]["offsets"][0]["error_code"] is None
        assert (
            ask("POST", f"{here}/topics/{topic}/records", {"value": {"type": "JSON", "data": 2}})[1][
                "error_code"
            ]
            == 200
        )
        consumer = ask("POST", f"/consumers/{new_name('g')}", {"format": "json", "auto.offset.reset": "earliest"},
                       kind="application/vnd.kafka.v2+json")[1]["base_uri"]  # fmt: skip
        assert (
            ask(
                "POST", f"{consumer}/subscription", {"topics": [topic]}, kind="application/vnd.kafka.v2+json"
            )[0]
            == 204
        )
        found: list[int] = []
        for _ in range(40):
            found += [r["value"] for r in ask("GET", f"{consumer}/records?timeout=1000", accept=v2)[1]]
            if len(found) == 2:
                break
        assert found == [1, 2]
        assert ask("DELETE", f"{here}/topics/{topic}")[0] == 204
    assert "secret" not in proxy.log.read_text()
