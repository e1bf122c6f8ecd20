"""Rate limits: the buckets, pure, and a proxy that refuses; and a broker that is slow."""

from __future__ import annotations

import http.client
import json
import re
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from hypothesis import given
from hypothesis import strategies as st
from support.broker import new_name, wait_until
from support.klamm import klamm
from support.rest_proxy_process import RestProxyProcess

from klamm.restproxy.config import definition
from klamm.restproxy.costs import NAMES
from klamm.restproxy.endpoints import V2_ENDPOINTS, V3_ENDPOINTS
from klamm.restproxy.errors import ProxyError
from klamm.restproxy.rate_limits import Bucket, RateLimits
from klamm.testing import EmbeddedBroker
from klamm_base.errors import ConfigError
from klamm_base.properties import Properties, parse

JSON = "application/json"


@given(st.lists(st.tuples(st.floats(0, 2), st.integers(1, 30)), max_size=60))
def test_a_bucket_never_gives_more_than_its_rate_and_a_second_of_savings(
    steps: list[tuple[float, int]],
) -> None:
    """A request may overdraw by what it costs itself; the next ones wait for that."""
    bucket, now, taken = Bucket(10), 0.0, 0
    for pause, cost in steps:
        now += pause
        if bucket.wait_s(now) == 0:
            assert taken <= 10 + 10 * now + 1e-6
            bucket.take(cost, now)
            taken += cost


def limits(**more: object) -> RateLimits:
    props = {"bootstrap.servers": "x:1", **{k: str(v) for k, v in more.items()}}
    return RateLimits(parse(definition(), Properties(props)))


def code(ask: Callable[[], object]) -> int:
    """Returns the code of a refusal; 0 without one."""
    try:
        ask()
    except ProxyError as e:
        return (
            e.code
            if (e.status, str(e), e.headers is None) == (429, "Request rate limit exceeded", False)
            else -1
        )
    return 0


def test_without_enabling_nothing_is_limited() -> None:
    held = limits()
    assert {code(lambda: held.produce(10**9, 0.0)) for _ in range(100)} == {0}
    assert {held.request(0.0, of_cluster=True) for _ in range(1000)} == {0.0}


@pytest.mark.parametrize(
    ("name", "size", "told"),
    [
        ("max.requests.per.sec", 1, 429002),
        ("max.requests.global.per.sec", 1, 429001),
        ("max.bytes.per.sec", 1, 429004),
        ("max.bytes.global.per.sec", 1, 429003),
    ],
)
def test_each_limit_of_produce_has_its_code(name: str, size: int, told: int) -> None:
    prefix = "api.v3.produce.rate.limit."
    held = limits(**{f"{prefix}enabled": "true", f"{prefix}{name}": 5})
    assert [code(lambda: held.produce(size, 0.0)) for _ in range(8)] == [0] * 6 + [told] * 2
    assert code(lambda: held.produce(size, 0.3)) == 0
    assert held.refused == 2


def test_a_request_waits_for_its_permits_as_long_as_it_may() -> None:
    held = limits(
        **{"rate.limit.enable": "true", "rate.limit.permits.per.sec": 10, "rate.limit.timeout.ms": 250}
    )
    waits = [held.request(0.0, of_cluster=False) for _ in range(13)]
    assert waits[:11] == [0.0] * 11
    assert waits[11:] == pytest.approx([0.1, 0.2])
    assert code(lambda: held.request(0.0, of_cluster=False)) == 429005
    held = limits(**{"rate.limit.enable": "true", "rate.limit.per.cluster.permits.per.sec": 2})
    assert [code(lambda: held.request(0.0, of_cluster=True)) for _ in range(4)] == [0, 0, 0, 429006]
    assert code(lambda: held.request(0.0, of_cluster=False)) == 0


@pytest.mark.parametrize(
    ("costs", "handler", "headers", "told"),
    [
        ("", "list_brokers", {}, 3),
        ("api.v3.brokers.*=2, api.v3.brokers.list=5", "list_brokers", {}, 5),
        ("api.v3.brokers.*=2, api.v3.brokers.list=5", "get_broker", {}, 2),
        ("api.v3.brokers.list=0", "list_brokers", {}, 0),
        ("api.v2.produce-to-topic.json-schema=7", "produce", {"Content-Type": "application/vnd.kafka.jsonschema.v2+json"}, 7),
        ("api.v2.consumers.consume-avro=7", "read_records", {"Accept": "application/vnd.kafka.json.v2+json"}, 3),
        ("api.v2.consumers.*=4", "read_records", {}, 4),
        ("api.v3.partitions.list.offsets=6", "get_partition_offsets", {}, 6),
        ("api.v3.brokers.list=9", "get_root", {}, 3),
    ],
)  # fmt: skip
def test_each_endpoint_costs_what_confluents_name_of_it_says(
    costs: str, handler: str, headers: dict[str, str], told: int
) -> None:
    held = limits(**{"rate.limit.costs": costs, "rate.limit.default.cost": 3})
    assert held.cost(handler, headers) == told


def test_every_endpoint_has_a_name_for_its_cost() -> None:
    handlers = {each.handler.__name__ for each in (*V2_ENDPOINTS, *V3_ENDPOINTS)}
    assert handlers == set(NAMES)
    assert len(handlers) == len(V2_ENDPOINTS) + len(V3_ENDPOINTS)


@pytest.mark.parametrize(
    ("costs", "why"), [("api.v3.brokers.list", "must be NAME=COST"), ("api.v3.brokers.lists=1", "no endpoint"), ("api.v3.brokers.list=-1", "NAME=COST")]
)  # fmt: skip
def test_a_wrong_cost_is_told(costs: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        limits(**{"rate.limit.costs": costs})


def test_a_request_without_cost_never_waits() -> None:
    held = limits(**{"rate.limit.enable": "true", "rate.limit.permits.per.sec": 1})
    assert {code(lambda: held.request(0.0, of_cluster=False, cost=0)) for _ in range(9)} == {0}
    assert [code(lambda: held.request(0.0, of_cluster=False, cost=3)) for _ in range(2)] == [0, 429005]


def test_a_proxy_refuses_what_is_too_much_and_goes_on(broker: EmbeddedBroker, tmp_path: Path) -> None:
    prefix = "api.v3.produce.rate.limit."
    more = {f"{prefix}enabled": "true", f"{prefix}max.requests.per.sec": "20", "rate.limit.enable": "true",
            "rate.limit.permits.per.sec": "20"}  # fmt: skip
    with RestProxyProcess(broker.bootstrap, tmp_path, **more) as proxy:
        cluster = proxy.ask("GET", "/v3/clusters")[1]["data"][0]["metadata"]["self"]
        topic = new_name("t")
        assert proxy.ask("POST", f"{cluster}/topics", {"topic_name": topic}, kind=JSON)[0] == 201
        body = b'{"value":{"type":"JSON","data":1}}\n' * 60
        request = urllib.request.Request(f"{cluster}/topics/{topic}/records", body, {"Content-Type": JSON})
        with urllib.request.urlopen(request, timeout=30) as answer:
            codes = [json.loads(line)["error_code"] for line in answer.read().splitlines()]
        assert len(codes) == 60
        assert set(codes) == {200, 429002}
        assert 20 <= codes.count(200) < 40
        found = [proxy.ask("GET", "/topics") for _ in range(60)]
        refused = [body for status, body in found if status == 429]
        assert refused
        assert refused[0] == {"error_code": 429005, "message": "Request rate limit exceeded"}
        assert all(proxy.ask("GET", "/health")[0] == 200 for _ in range(60))
        wait_until(lambda: proxy.ask("GET", "/topics")[0] == 200, "permits come again")


def test_a_slow_broker_slows_the_client_and_fills_no_memory(broker: EmbeddedBroker, tmp_path: Path) -> None:
    """The body of a stream is not read on while records wait; once the broker is fast again, all of them arrive."""
    topic, at = new_name("t"), ("-b", broker.bootstrap)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, 1)])[topic].result(30)
    more = {"producer.buffer.memory": str(1 << 20), "client.id": "slow-proxy", "producer.linger.ms": "0"}
    assert (
        klamm("quota", "set", "--client-id", "slow-proxy", "producer_byte_rate=100000", *at).returncode == 0
    )
    with RestProxyProcess(broker.bootstrap, tmp_path, **more) as proxy:
        cluster = proxy.ask("GET", "/v3/clusters")[1]["data"][0]["metadata"]["self"]
        host, path = cluster.removeprefix("http://").split("/", 1)
        connection = http.client.HTTPConnection(host, timeout=90)
        connection.putrequest("POST", f"/{path}/topics/{topic}/records")
        connection.putheader("Content-Type", JSON)
        connection.putheader("Transfer-Encoding", "chunked")
        connection.endheaders()
        record = b'{"value":{"type":"STRING","data":"%s"}}\n' % (b"x" * 2000)
        count, sent = 20_000, [0]

        def send() -> None:
            for _ in range(count // 10):
                connection.send(b"%x\r\n%s\r\n" % (len(record) * 10, record * 10))
                sent[0] += 10
            connection.send(b"0\r\n\r\n")

        thread = threading.Thread(target=send)
        thread.start()
        answer = connection.getresponse()
        codes = [json.loads(answer.readline())["error_code"]]
        last = -1
        while sent[0] != last:  # until the client stands still
            last = sent[0]
            time.sleep(1)
        assert last < count * 0.8, "the client was never slowed"
        with urllib.request.urlopen(f"{proxy.url}/metrics") as metrics:
            waiting = re.search(
                r"^klamm_rest_proxy_waiting_bytes (\d+)", metrics.read().decode(), re.MULTILINE
            )
        assert waiting is not None
        assert 0 < int(waiting[1]) <= 1 << 20
        assert klamm("quota", "unset", "--client-id", "slow-proxy", "producer_byte_rate", *at).returncode == 0
        codes += [json.loads(line)["error_code"] for line in answer]
        thread.join(60)
        connection.close()
        assert (len(codes), set(codes)) == (count, {200})
