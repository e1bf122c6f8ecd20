"""Consumer instances before a broker: subscriptions that change, rebalances, clients that go and a proxy that stops while they wait."""

from __future__ import annotations

import http.client
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.broker import new_name, new_topic, wait_until
from support.rest_proxy_process import RestProxyProcess

from klamm.testing import EmbeddedBroker

ACCEPT = "application/vnd.kafka.json.v2+json"


@pytest.fixture(scope="module")
def proxy(
    broker: EmbeddedBroker, processes: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RestProxyProcess]:
    with RestProxyProcess(broker.bootstrap, tmp_path_factory.mktemp("proxy")) as started:
        yield started


def values(proxy: RestProxyProcess, consumer: str, query: str = "timeout=500") -> list[Any]:
    status, answer = proxy.ask("GET", f"{consumer}/records?{query}", accept=ACCEPT)
    assert status == 200, answer
    return [each["value"] for each in answer]


def partitions(proxy: RestProxyProcess, consumer: str) -> list[int]:
    return [each["partition"] for each in proxy.ask("GET", f"{consumer}/assignments")[1]["partitions"]]


def subscribed(proxy: RestProxyProcess, *topics: str, group: str = "", **more: str) -> str:
    consumer = proxy.consumer(group or new_name("g"), "json", **more)
    assert proxy.ask("POST", f"{consumer}/subscription", {"topics": topics}) == (204, None)
    return consumer


def shared(proxy: RestProxyProcess, one: str, two: str, query: str) -> Callable[[], bool]:
    """Returns a function that reads with both instances, and tells whether each has a partition."""

    def is_shared() -> bool:
        values(proxy, one, query)
        values(proxy, two, query)
        return len(partitions(proxy, one)) == len(partitions(proxy, two)) == 1

    return is_shared


def test_a_pattern_selects_whole_names(proxy: RestProxyProcess, broker: EmbeddedBroker) -> None:
    name = new_name("p")
    for each in (name, f"{name}2", f"x{name}", f"{name}-77"):
        proxy.produce(new_topic(broker, name=each), "json", [{"value": each}])
    for pattern, wanted in ((rf"none|{name}", {name}), (rf"{name}(?:2|-\d+)", {f"{name}2", f"{name}-77"})):
        consumer = proxy.consumer(new_name("g"), "json")
        body = {"topic_pattern": pattern}
        assert proxy.ask("POST", f"{consumer}/subscription", body) == (204, None)
        found: list[Any] = []
        wait_until(lambda: found.extend(values(proxy, consumer)) or set(found) >= wanted, pattern)
        assert set(found + values(proxy, consumer, "timeout=1500")) == wanted
        assert proxy.ask("DELETE", consumer) == (204, None)
    consumer = proxy.consumer(new_name("g"), "json")
    assert proxy.ask("POST", f"{consumer}/subscription", {"topic_pattern": "("})[0] == 422


def test_who_unsubscribes_leaves_its_partitions_to_others(
    proxy: RestProxyProcess, broker: EmbeddedBroker
) -> None:
    topic, group = new_topic(broker, partitions=2), new_name("g")
    one, two = subscribed(proxy, topic, group=group), subscribed(proxy, topic, group=group)
    wait_until(shared(proxy, one, two, "timeout=200"), "both read", timeout_s=30)
    assert proxy.ask("DELETE", f"{one}/subscription") == (204, None)
    assert partitions(proxy, one) == []
    wait_until(
        lambda: values(proxy, two) or len(partitions(proxy, two)) == 2, "the other reads both", timeout_s=15
    )


def test_a_change_of_what_is_read_is_one_at_once(proxy: RestProxyProcess, broker: EmbeddedBroker) -> None:
    """Records of the earlier topic that wait in the proxy are no answer any more, and their commit is not."""
    first, second = new_topic(broker), new_topic(broker)
    proxy.produce(first, "json", [{"value": n} for n in range(50)])
    proxy.produce(second, "json", [{"value": "second"}])
    consumer = subscribed(proxy, first)
    wait_until(lambda: values(proxy, consumer, "timeout=500&max_bytes=1") == [0], "the first record")
    assert proxy.ask("POST", f"{consumer}/subscription", {"topics": [second]}) == (204, None)
    found: list[Any] = []
    wait_until(lambda: found.extend(values(proxy, consumer)) or found, "the other topic")
    assert found == ["second"]
    assert proxy.ask("POST", f"{consumer}/subscription", {"topics": [first]}) == (204, None)
    wait_until(lambda: found.extend(values(proxy, consumer)) or len(found) > 49, "the first topic goes on")
    assert found[1:] == list(range(1, 50))


def test_partitions_by_hand_go_on_and_end(proxy: RestProxyProcess, broker: EmbeddedBroker) -> None:
    topic = new_topic(broker, partitions=2)
    proxy.produce(topic, "json", [{"value": n, "partition": 0} for n in range(5)])
    consumer = proxy.consumer(new_name("g"), "json", **{"auto.commit.enable": "false"})

    def assign(*numbers: int) -> None:
        body = {"partitions": [{"topic": topic, "partition": each} for each in numbers]}
        assert proxy.ask("POST", f"{consumer}/assignments", body) == (204, None)

    assign(0)
    wait_until(lambda: values(proxy, consumer, "timeout=500&max_bytes=2") == [0, 1], "two records")
    assign(0, 1)
    proxy.produce(topic, "json", [{"value": "other", "partition": 1}])
    found: list[Any] = []
    wait_until(lambda: found.extend(values(proxy, consumer)) or len(found) >= 4, "both partitions")
    assert [each for each in found if each != "other"] == [2, 3, 4]
    assert proxy.ask("DELETE", f"{consumer}/subscription") == (204, None)
    assert partitions(proxy, consumer) == []


def test_a_client_that_takes_few_records_holds_no_rebalance_up(
    proxy: RestProxyProcess, broker: EmbeddedBroker
) -> None:
    topic, group = new_topic(broker, partitions=2), new_name("g")
    proxy.produce(topic, "json", [{"value": n, "partition": n % 2} for n in range(1600)])
    one = subscribed(proxy, topic, group=group)
    wait_until(lambda: values(proxy, one, "timeout=500&max_bytes=1"), "a record")
    two = subscribed(proxy, topic, group=group)
    wait_until(shared(proxy, one, two, "timeout=100&max_bytes=1"), "both read", timeout_s=30)


def test_who_only_asks_for_the_head_takes_no_records(proxy: RestProxyProcess, broker: EmbeddedBroker) -> None:
    topic = new_topic(broker)
    proxy.produce(topic, "json", [{"value": 1}])
    consumer = subscribed(proxy, topic)
    with closing(http.client.HTTPConnection(proxy.url.removeprefix("http://"), timeout=30)) as connection:
        for _ in range(3):
            path = f"{consumer.removeprefix(proxy.url)}/records?timeout=1000"
            connection.request("HEAD", path, headers={"Accept": ACCEPT})
            assert connection.getresponse().read() == b""
    wait_until(lambda: values(proxy, consumer) == [1], "the record")


def waiting(consumer: str, timeout_ms: int) -> socket.socket:
    """Returns a connection on which a request for records waits."""
    host, path = consumer.removeprefix("http://").split("/", 1)
    name, port = host.split(":")
    connection = socket.create_connection((name, int(port)), 30)
    head = f"GET /{path}/records?timeout={timeout_ms} HTTP/1.1\r\nHost: {host}\r\nAccept: {ACCEPT}\r\n\r\n"
    connection.sendall(head.encode())
    return connection


@pytest.mark.parametrize("timeout_ms", [60_000, 10**17])
def test_an_instance_is_free_when_its_client_has_gone(
    proxy: RestProxyProcess, broker: EmbeddedBroker, timeout_ms: int
) -> None:
    consumer = subscribed(proxy, new_topic(broker))
    connection = waiting(consumer, timeout_ms)
    time.sleep(0.5)
    connection.close()
    began = time.monotonic()
    assert proxy.ask("GET", f"{consumer}/assignments")[0] == 200
    assert time.monotonic() - began < 10


@pytest.mark.usefixtures("processes")
def test_a_proxy_stops_although_clients_wait(broker: EmbeddedBroker, tmp_path: Path) -> None:
    """Each of them is answered, with no records."""
    with RestProxyProcess(broker.bootstrap, tmp_path) as proxy:
        consumers = [subscribed(proxy, new_topic(broker)) for _ in range(3)]
        found: list[Any] = []
        threads = [
            threading.Thread(target=lambda each=each: found.append(values(proxy, each, "timeout=50000")))
            for each in consumers
        ]
        for each in threads:
            each.start()
        time.sleep(1)
        began = time.monotonic()
        assert proxy.end() == 0
        assert time.monotonic() - began < 10
        for each in threads:
            each.join(30)
        assert found == [[], [], []]


@pytest.mark.usefixtures("processes")
def test_a_proxy_stops_although_no_broker_answers(tmp_path: Path) -> None:
    """librdkafka waits 45 s for a coordinator to which a consumer could commit."""
    with EmbeddedBroker(tmp_path / "data") as broker, RestProxyProcess(broker.bootstrap, tmp_path) as proxy:
        topic = new_topic(broker)
        proxy.produce(topic, "json", [{"value": 1}])
        consumer = subscribed(proxy, topic)
        wait_until(lambda: values(proxy, consumer) == [1], "the record")
        broker.stop()
        assert values(proxy, consumer, "timeout=1000") == []  # the record is to be committed, and cannot be
        began = time.monotonic()
        assert proxy.end() == 0
        assert time.monotonic() - began < 25
        assert "1 consumers have not left their groups" in proxy.log.read_text()
