"""Clients that go away: what was read for them is read again, and nothing of theirs stays."""

from __future__ import annotations

import asyncio
import socket
import urllib.request
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.broker import new_name, wait_until
from support.rest_proxy_process import RestProxyProcess

from klamm.restproxy import v3_records
from klamm.testing import EmbeddedBroker


def values(answer: tuple[int, Any]) -> list[Any]:
    assert answer[0] == 200, answer
    return [each["value"] for each in answer[1]]


@pytest.mark.usefixtures("processes")
def test_records_of_a_client_that_went_are_the_next_answer(broker: EmbeddedBroker, tmp_path: Path) -> None:
    """A connection ends while its request waits for records: whoever asks next gets them, and they are committed only then."""
    topic, group, accept = new_name("t"), new_name("g"), "application/vnd.kafka.json.v2+json"
    more = {"consumer.instance.timeout.ms": "2500", "consumer.auto.commit.interval.ms": "100"}
    with RestProxyProcess(broker.bootstrap, tmp_path, **more) as proxy:
        proxy.produce(topic, "json", [{"value": "first", "partition": 0}])
        consumer = proxy.consumer(group, "json")
        proxy.ask("POST", f"{consumer}/subscription", {"topics": [topic]})
        assert [r["value"] for r in proxy.read(consumer, "json", 1)] == ["first"]
        host, path = consumer.removeprefix("http://").split("/", 1)
        name, port = host.split(":")
        with socket.create_connection((name, int(port)), 30) as connection:
            head = f"GET /{path}/records?timeout=30000 HTTP/1.1\r\nHost: {host}\r\nAccept: {accept}\r\n\r\n"
            connection.sendall(head.encode())
            assert not select_readable(connection, 0.5)
        proxy.produce(topic, "json", [{"value": "second", "partition": 0}])
        assert values(proxy.ask("GET", f"{consumer}/records?timeout=10000", accept=accept)) == ["second"]
        wait_until(lambda: committed(proxy, consumer, topic), "what the first answer held is committed")
        assert committed(proxy, consumer, topic) == [1]
        wait_until(lambda: no_instances(proxy), "the instance goes")
        again = proxy.consumer(group, "json")
        proxy.ask("POST", f"{again}/subscription", {"topics": [topic]})
        assert [r["value"] for r in proxy.read(again, "json", 1)] == ["second"]
        assert proxy.ask("DELETE", again) == (204, None)
        last = proxy.consumer(group, "json")
        proxy.ask("POST", f"{last}/subscription", {"topics": [topic]})
        proxy.produce(topic, "json", [{"value": "third", "partition": 0}])
        assert [r["value"] for r in proxy.read(last, "json", 1)] == ["third"]


def committed(proxy: RestProxyProcess, consumer: str, topic: str) -> list[int]:
    asked = {"partitions": [{"topic": topic, "partition": 0}]}
    return [each["offset"] for each in proxy.ask("GET", f"{consumer}/offsets", asked)[1]["offsets"]]


def no_instances(proxy: RestProxyProcess) -> bool:
    with urllib.request.urlopen(f"{proxy.url}/metrics", timeout=30) as answer:
        return b"klamm_rest_proxy_consumer_instances 0\n" in answer.read()


def select_readable(connection: socket.socket, timeout_s: float) -> bool:
    """Tells whether something arrives within this time."""
    connection.settimeout(timeout_s)
    try:
        return bool(connection.recv(1))
    except TimeoutError:
        return False


async def test_a_stream_whose_reader_has_gone_leaves_no_task() -> None:
    """Its queue of answers is full, and nobody takes from it."""

    async def chunks() -> Any:
        while True:
            yield b'{"none":1}\n'

    request: Any = SimpleNamespace(content=SimpleNamespace(iter_any=chunks))
    proxy: Any = SimpleNamespace(config=SimpleNamespace(values={"request.max.bytes": 1000}))
    answers: asyncio.Queue[Any] = asyncio.Queue(2)
    reading = asyncio.create_task(v3_records._read(request, proxy, "t", 1, answers))
    while not answers.full():
        await asyncio.sleep(0)
    reading.cancel()
    done, _ = await asyncio.wait({reading}, timeout=2)
    assert done == {reading}
    assert reading.cancelled()
