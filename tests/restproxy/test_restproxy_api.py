"""A REST proxy in a process: consumer instances, v3, streams, logins, limits, kill -9."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.broker import new_name, wait_until
from support.rest_proxy_process import RestProxyProcess

from klamm.testing import EmbeddedBroker
from klamm.web.passwords import hash_password

JSON = "application/json"


@pytest.fixture(scope="module")
def proxy(broker: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestProxyProcess]:
    with RestProxyProcess(broker.bootstrap, tmp_path_factory.mktemp("proxy")) as running:
        yield running


@pytest.fixture
def cluster(proxy: RestProxyProcess) -> str:
    """The address of the cluster in v3."""
    return str(proxy.ask("GET", "/v3/clusters")[1]["data"][0]["metadata"]["self"])


@pytest.fixture
def topic(proxy: RestProxyProcess, cluster: str) -> str:
    name = new_name("t")
    status, made = proxy.ask(
        "POST", f"{cluster}/topics", {"topic_name": name, "partitions_count": 1}, kind=JSON
    )
    assert status == 201, made
    return name


def test_a_consumer_instance_from_its_beginning_to_its_end(proxy: RestProxyProcess, topic: str) -> None:
    group = new_name("g")
    proxy.produce(topic, "json", [{"value": i} for i in range(10)])
    consumer = proxy.consumer(group, "json", name="c1")
    assert proxy.ask("POST", f"/consumers/{group}", {"name": "c1"})[1]["error_code"] == 40902
    assert proxy.ask("POST", f"{consumer}/subscription", {"topics": [topic]}) == (204, None)
    assert proxy.ask("GET", f"{consumer}/subscription") == (200, {"topics": [topic]})
    mixed = {"partitions": [{"topic": topic, "partition": 0}]}
    assert proxy.ask("POST", f"{consumer}/assignments", mixed)[1]["error_code"] == 40903
    status, answer = proxy.ask("GET", f"{consumer}/records", accept="application/vnd.kafka.avro.v2+json")
    assert (status, answer["error_code"]) == (406, 40601)
    assert [r["value"] for r in proxy.read(consumer, "json", 10)] == list(range(10))
    assert proxy.ask("GET", f"{consumer}/assignments") == (200, mixed)
    commit = {"offsets": [{"topic": topic, "partition": 0, "offset": 3}]}
    assert proxy.ask("POST", f"{consumer}/offsets", commit)[0] == 200
    committed = {"offsets": [{"topic": topic, "partition": 0, "offset": 4, "metadata": ""}]}
    assert proxy.ask("GET", f"{consumer}/offsets", mixed) == (200, committed)
    assert proxy.ask("POST", f"{consumer}/offsets")[1] == [{"topic": topic, "partition": 0, "offset": 10}]
    assert proxy.ask("POST", f"{consumer}/positions", commit) == (204, None)
    assert [r["value"] for r in proxy.read(consumer, "json", 7)] == list(range(3, 10))
    assert proxy.ask("POST", f"{consumer}/positions/beginning", mixed) == (204, None)
    status, few = proxy.ask(
        "GET", f"{consumer}/records?timeout=5000&max_bytes=2", accept="application/vnd.kafka.json.v2+json"
    )
    assert [r["value"] for r in few] == [0, 1]
    assert [r["value"] for r in proxy.read(consumer, "json", 8)] == list(range(2, 10))
    assert proxy.ask("POST", f"{consumer}/positions/end", mixed) == (204, None)
    proxy.produce(topic, "json", [{"value": "new"}])
    assert [r["value"] for r in proxy.read(consumer, "json", 1)] == ["new"]
    assert proxy.ask("DELETE", f"{consumer}/subscription") == (204, None)
    assert proxy.ask("POST", f"{consumer}/assignments", mixed) == (204, None)
    assert proxy.ask("DELETE", consumer) == (204, None)
    assert proxy.ask("GET", f"{consumer}/records")[1]["error_code"] == 40403


def test_only_what_was_answered_is_committed(proxy: RestProxyProcess, topic: str) -> None:
    group = new_name("g")
    proxy.produce(topic, "json", [{"value": i} for i in range(5)])
    first = proxy.consumer(group, "json")
    proxy.ask("POST", f"{first}/subscription", {"topics": [topic]})
    found: list[Any] = []
    while not found:
        found = proxy.ask(
            "GET", f"{first}/records?timeout=2000&max_bytes=2", accept="application/vnd.kafka.json.v2+json"
        )[1]
    assert [r["value"] for r in found] == [0, 1]
    assert proxy.ask("DELETE", first) == (204, None)
    second = proxy.consumer(group, "json")
    proxy.ask("POST", f"{second}/subscription", {"topics": [topic]})
    assert [r["value"] for r in proxy.read(second, "json", 3)] == [2, 3, 4]
    proxy.ask("DELETE", second)


def test_idle_instances_go_and_their_number_is_limited(broker: EmbeddedBroker, tmp_path: Path) -> None:
    limits = {"consumer__instance__timeout__ms": "1500", "consumer__instances__max": "1"}
    with RestProxyProcess(broker.bootstrap, tmp_path, **limits) as proxy:
        consumer = proxy.consumer(new_name("g"), "binary")
        assert proxy.ask("POST", f"/consumers/{new_name('g')}", {})[0] == 429
        for _ in range(4):
            time.sleep(0.5)
            assert proxy.ask("GET", f"{consumer}/subscription")[0] == 200
        wait_until(
            lambda: proxy.ask("POST", f"/consumers/{new_name('g')}", {})[0] == 200,
            "the idle instance is gone",
        )
        assert proxy.ask("GET", f"{consumer}/subscription")[1]["error_code"] == 40403


def test_v3_topics_and_settings(proxy: RestProxyProcess, cluster: str) -> None:
    name = new_name("t")
    wanted = {
        "topic_name": name,
        "partitions_count": 2,
        "configs": [{"name": "retention.ms", "value": "5000"}],
    }
    status, made = proxy.ask("POST", f"{cluster}/topics", wanted, kind=JSON)
    assert (status, made["kind"], made["partitions_count"], made["replication_factor"]) == (
        201,
        "KafkaTopic",
        2,
        1,
    )
    here = made["metadata"]["self"]
    assert here == f"{cluster}/topics/{name}"
    assert proxy.ask("GET", here) == (200, made)
    assert proxy.ask("POST", f"{cluster}/topics", wanted, kind=JSON)[1]["error_code"] == 40002
    status, shown = proxy.ask("GET", f"{here}/configs/retention.ms")
    assert (shown["value"], shown["is_default"], shown["source"]) == ("5000", False, "DYNAMIC_TOPIC_CONFIG")
    changes = {
        "data": [
            {"name": "retention.ms", "operation": "DELETE"},
            {"name": "cleanup.policy", "value": "compact"},
        ]
    }
    assert proxy.ask("POST", f"{here}/configs:alter", changes, kind=JSON) == (204, None)
    values = {c["name"]: c["value"] for c in proxy.ask("GET", f"{here}/configs")[1]["data"]}
    assert (values["retention.ms"], values["cleanup.policy"]) == ("604800000", "compact")
    assert proxy.ask("PUT", f"{here}/configs/retention.ms", {"value": "7000"}, kind=JSON) == (204, None)
    assert (
        proxy.ask("PUT", f"{here}/configs/retention.ms", {"value": "x"}, kind=JSON)[1]["error_code"] == 40002
    )
    assert proxy.ask("PATCH", here, {"partitions_count": 3}, kind=JSON)[1]["partitions_count"] == 3
    partitions = proxy.ask("GET", made["partitions"]["related"])[1]["data"]
    assert [p["partition_id"] for p in partitions] == [0, 1, 2]
    [replica] = proxy.ask("GET", partitions[1]["replicas"]["related"])[1]["data"]
    assert (replica["is_leader"], replica["is_in_sync"]) == (True, True)
    assert proxy.ask("GET", replica["metadata"]["self"]) == (200, replica)
    broker = proxy.ask("GET", replica["broker"]["related"])[1]
    assert broker["kind"] == "KafkaBroker"
    assert any(c["name"] == "log.dirs" for c in proxy.ask("GET", broker["configs"]["related"])[1]["data"])
    assert proxy.ask("DELETE", here) == (204, None)
    assert proxy.ask("GET", here)[1]["error_code"] == 40403
    assert proxy.ask("GET", "/v3/clusters/other/topics")[0] == 404


def test_v3_groups_and_lags(proxy: RestProxyProcess, cluster: str, topic: str) -> None:
    group = new_name("g")
    proxy.produce(topic, "json", [{"value": i} for i in range(5)])
    consumer = proxy.consumer(group, "json")
    proxy.ask("POST", f"{consumer}/subscription", {"topics": [topic]})
    proxy.read(consumer, "json", 5)
    proxy.ask("POST", f"{consumer}/offsets", {"offsets": [{"topic": topic, "partition": 0, "offset": 1}]})
    here = f"{cluster}/consumer-groups/{group}"
    shown = proxy.ask("GET", here)[1]
    assert (shown["state"], shown["is_simple"]) == ("STABLE", False)
    [member] = proxy.ask("GET", shown["consumers"]["related"])[1]["data"]
    [assigned] = proxy.ask("GET", member["assignments"]["related"])[1]["data"]
    assert (assigned["topic_name"], assigned["partition_id"]) == (topic, 0)
    [lag] = proxy.ask("GET", f"{here}/lags")[1]["data"]
    assert (lag["current_offset"], lag["log_end_offset"], lag["lag"], lag["consumer_id"]) == (
        2,
        5,
        3,
        member["consumer_id"],
    )
    summary = proxy.ask("GET", shown["lag_summary"]["related"])[1]
    assert (summary["total_lag"], summary["max_lag_topic_name"]) == (3, topic)
    assert group in {
        g["consumer_group_id"] for g in proxy.ask("GET", f"{cluster}/consumer-groups")[1]["data"]
    }
    assert proxy.ask("GET", f"{cluster}/consumer-groups/{new_name('none')}")[0] == 404
    proxy.ask("DELETE", consumer)


def test_a_stream_is_answered_line_by_line_while_it_is_open(
    proxy: RestProxyProcess, cluster: str, topic: str
) -> None:
    host, path = cluster.removeprefix("http://").split("/", 1)
    connection = http.client.HTTPConnection(host, timeout=30)
    connection.putrequest("POST", f"/{path}/topics/{topic}/records")
    connection.putheader("Content-Type", JSON)
    connection.putheader("Transfer-Encoding", "chunked")
    connection.endheaders()

    def send(data: bytes) -> None:
        connection.send(b"%x\r\n%s\r\n" % (len(data), data))

    send(
        b'{"value":{"type":"JSON","data":0},"headers":[{"name":"h","value":"aGk="}],"timestamp":"2026-01-01T00:00:00Z"}'
    )
    answer = connection.getresponse()
    first = json.loads(answer.readline())
    assert (first["error_code"], first["offset"], first["timestamp"]) == (200, 0, "2026-01-01T00:00:00.000Z")
    for i in range(1, 4):
        send(b'{"value":{"type":"JSON","data":%d}}' % i)
        assert json.loads(answer.readline())["offset"] == i
    send(b'{"value":{"type":"NONE","data":1}}{"partition_id":0,"key":{"type":"BINARY","data":"aGk="}}')
    assert json.loads(answer.readline())["error_code"] == 422
    assert json.loads(answer.readline())["offset"] == 4
    connection.send(b"0\r\n\r\n")
    assert answer.read() == b""
    connection.close()


def test_without_room_a_request_is_refused_whole(broker: EmbeddedBroker, tmp_path: Path) -> None:
    more = {
        "producer__buffer__memory": str(1 << 20),
        "producer__linger__ms": "2000",
        "producer__batch__size": str(1 << 20),
    }
    with RestProxyProcess(broker.bootstrap, tmp_path, **more) as proxy:
        topic = new_name("t")
        proxy.produce(topic, "json", [{"value": 1}])
        big = {"records": [{"value": "x" * 900}] * 900}
        kind = "application/vnd.kafka.json.v2+json"
        found: list[int] = []
        threads = [
            threading.Thread(
                target=lambda: found.append(proxy.ask("POST", f"/topics/{topic}", big, kind=kind)[0])
            )
            for _ in range(4)
        ]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert set(found) == {200, 429}, found
        partitions = proxy.ask("GET", f"/topics/{topic}/partitions")[1]
        ends = [
            proxy.ask("GET", f"/topics/{topic}/partitions/{p['partition']}/offsets")[1]["end_offset"]
            for p in partitions
        ]
        assert sum(ends) == 1 + 900 * found.count(200)


def test_nothing_acknowledged_is_lost_by_kill_9(broker: EmbeddedBroker, tmp_path: Path) -> None:
    proxy = RestProxyProcess(broker.bootstrap, tmp_path).start()
    topic = new_name("t")
    proxy.produce(topic, "json", [{"value": "first"}])
    acknowledged: set[int] = set()
    begun = threading.Event()

    def produce() -> None:
        for start in range(0, 1_000_000, 10):
            try:
                answer = proxy.produce(topic, "json", [{"value": start + i} for i in range(10)])
            except (OSError, http.client.HTTPException):
                return
            acknowledged.update(start + i for i, o in enumerate(answer["offsets"]) if o["error_code"] is None)
            if len(acknowledged) > 200:
                begun.set()

    thread = threading.Thread(target=produce)
    thread.start()
    assert begun.wait(60)
    proxy.end(kill=True)
    thread.join(60)
    with proxy:
        consumer = proxy.consumer(new_name("g"), "json")
        proxy.ask("POST", f"{consumer}/subscription", {"topics": [topic]})
        found = {r["value"] for r in proxy.read(consumer, "json", len(acknowledged) + 1)}
        assert acknowledged <= found


def test_logins_and_roles(broker: EmbeddedBroker, tmp_path: Path) -> None:
    users = tmp_path / "users.toml"
    users.write_text(
        f'[users.ann]\npassword = "{hash_password("a")}"\nrole = "operator"\ntopics = ["own-*"]\ngroups = ["g"]\n'
        f'[users.bob]\npassword = "{hash_password("b")}"\nrole = "admin"\n'
    )
    ann, bob = "Basic YW5uOmE=", "Basic Ym9iOmI="
    with RestProxyProcess(broker.bootstrap, tmp_path / "p", rest__auth__file=str(users)) as proxy:
        own, other = f"own-{new_name('t')}", new_name("other")
        assert proxy.ask("GET", "/topics")[0] == 401
        assert proxy.ask("GET", "/health")[0] == 200
        cluster = proxy.ask("GET", "/v3/clusters", login=ann)[1]["data"][0]["metadata"]["self"]
        for name in (own, other):
            assert (
                proxy.ask("POST", f"{cluster}/topics", {"topic_name": name}, kind=JSON, login=ann)[0] == 403
            )
            assert (
                proxy.ask("POST", f"{cluster}/topics", {"topic_name": name}, kind=JSON, login=bob)[0] == 201
            )
        assert proxy.ask("GET", "/topics", login=ann)[1] == [own]
        records = {"records": [{"value": 1}]}
        kind = "application/vnd.kafka.json.v2+json"
        assert proxy.ask("POST", f"/topics/{own}", records, kind=kind, login=ann)[0] == 200
        assert proxy.ask("POST", f"/topics/{other}", records, kind=kind, login=ann)[0] == 403
        consumer = proxy.ask("POST", "/consumers/g", {"name": "c"}, login=ann)[1]["base_uri"]
        assert proxy.ask("POST", f"{consumer}/subscription", {"topics": [own, other]}, login=ann)[0] == 403
        assert proxy.ask("POST", f"{consumer}/subscription", {"topic_pattern": "own-.*"}, login=ann)[0] == 403
        assert proxy.ask("POST", f"{consumer}/subscription", {"topics": [own]}, login=ann)[0] == 204
        assert proxy.ask("GET", f"{consumer}/records", login=bob)[1]["error_code"] == 40403
        assert proxy.ask("POST", "/consumers/billing", {"name": "c"}, login=ann)[0] == 403
        for topic, status in ((own, 200), (other, 403)):
            offsets = {"offsets": [{"topic": topic, "partition": 0, "offset": 0}]}
            assert proxy.ask("POST", f"{consumer}/offsets", offsets, login=ann)[0] == status
            asked = {"partitions": [{"topic": topic, "partition": 0}]}
            assert proxy.ask("GET", f"{consumer}/offsets", asked, login=ann)[0] == status
        group = f"{cluster}/consumer-groups/g"
        for path in (f"lags/{own}/partitions/0", f"consumers/c/assignments/{own}/partitions/0"):
            assert (
                proxy.ask("GET", f"{group}/{path}", login=ann)[0] == 403
            )  # of a group, which is not one topic's
            assert proxy.ask("GET", f"{group}/{path}", login=bob)[0] in {200, 404}
        narrowed = users.read_text().replace("own-*", "none").replace('["g"]', '["g*"]')
        users.write_text(narrowed)
        wait_until(
            lambda: proxy.ask("GET", f"{consumer}/records?timeout=0", login=ann)[0] == 403,
            "the narrower grant holds",
        )
