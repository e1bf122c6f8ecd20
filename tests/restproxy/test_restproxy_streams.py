"""Streams of records: mistakes in the middle, records that arrive in pieces, clients that go, and callers who lose their rights."""

from __future__ import annotations

import asyncio
import http.client
import json
import re
import socket
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.broker import new_topic, wait_until
from support.rest_proxy_process import RestProxyProcess

from klamm.restproxy import v3_records
from klamm.restproxy.errors import ProxyError
from klamm.restproxy.producing import OVERHEAD, Record
from klamm.testing import EmbeddedBroker
from klamm.web.passwords import token_digest

JSON = "application/json"
GOOD = b'{"value":{"type":"JSON","data":1}}\n'


@pytest.fixture(scope="module")
def proxy(
    broker: EmbeddedBroker, processes: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RestProxyProcess]:
    with RestProxyProcess(broker.bootstrap, tmp_path_factory.mktemp("proxy")) as started:
        yield started


def records_of(proxy: RestProxyProcess, topic: str, login: str = "") -> str:
    found = proxy.ask("GET", "/v3/clusters", login=login)[1]["data"][0]["metadata"]["self"]
    return f"{found}/topics/{topic}/records"


def codes(address: str, body: bytes) -> list[int]:
    asked = urllib.request.Request(address, body, {"Content-Type": JSON})
    with urllib.request.urlopen(asked, timeout=60) as answer:
        return [json.loads(line)["error_code"] for line in answer]


def metrics(proxy: RestProxyProcess) -> str:
    with urllib.request.urlopen(f"{proxy.url}/metrics", timeout=30) as answer:
        return str(answer.read().decode())


def test_half_a_surrogate_pair_is_the_mistake_of_its_record(
    proxy: RestProxyProcess, broker: EmbeddedBroker
) -> None:
    """As a header's name it ended the whole process, as a string the stream."""
    half = b'"\\ud800"'
    bad = (
        b'{"value":{"type":"STRING","data":%s}}\n' % half,
        b'{"value":{"type":"JSON","data":1},"headers":[{"name":%s,"value":"AA=="}]}\n' % half,
        b'{"value":{"type":"JSON","data":%s}}\n' % half,
        b'{"value":{"type":"AVRO","schema":%s,"data":1}}\n' % half,
        b"{%s:1}\n" % half,
    )
    body = b"".join(GOOD + each for each in bad) + GOOD
    found = codes(records_of(proxy, new_topic(broker)), body)
    assert found == [200, 422, 200, 422, 200, 422, 200, 422, 200, 422, 200]
    assert "klamm_rest_proxy_waiting_bytes 0\n" in metrics(proxy)


def test_partitions_that_a_topic_was_given_are_there_at_once(
    proxy: RestProxyProcess, broker: EmbeddedBroker
) -> None:
    topic = new_topic(broker)
    assert proxy.produce(topic, "json", [{"value": 1}])["offsets"][0]["partition"] == 0
    address = records_of(proxy, topic).removesuffix("/records")
    assert proxy.ask("PATCH", address, {"partitions_count": 4}, kind=JSON)[0] == 200
    assert codes(f"{address}/records", b'{"partition_id":1}{"partition_id":4}') == [200, 40402]
    sent = proxy.produce(topic, "json", [{"value": 1, "partition": 2}])
    assert sent["offsets"][0]["partition"] == 2
    assert proxy.ask("PATCH", address, {"partitions_count": 5}, kind=JSON)[0] == 200
    body, kind = {"records": [{"value": 1}]}, "application/vnd.kafka.json.v2+json"
    assert proxy.ask("POST", f"/topics/{topic}/partitions/4", body, kind=kind)[0] == 200
    assert proxy.ask("POST", f"/topics/{topic}/partitions/5", body, kind=kind)[1]["error_code"] == 40402


async def read_all(chunks: list[bytes]) -> list[Any]:
    """Returns what `_read` hands on for these chunks."""

    async def arriving() -> AsyncIterator[bytes]:
        for each in chunks:
            yield each

    request: Any = SimpleNamespace(content=SimpleNamespace(iter_any=arriving))
    proxy: Any = SimpleNamespace(config=SimpleNamespace(values={"request.max.bytes": 1 << 24}))
    answers: asyncio.Queue[Any] = asyncio.Queue()
    await v3_records._read(request, proxy, "t", 1, answers)
    return [answers.get_nowait() for _ in range(answers.qsize())]


async def test_any_failure_is_the_answer_of_its_record(monkeypatch: pytest.MonkeyPatch) -> None:
    async def sent(_proxy: Any, _topic: str, _count: int, given: Any) -> str:
        if given["value"] == 2:
            raise RuntimeError("not foreseen")
        return f"sent {given['value']}"

    monkeypatch.setattr(v3_records, "sent", sent)
    first, second, third, end = await read_all([b'{"value":1}{"value":2}', b'{"value":3}'])
    assert (first, third, end) == ("sent 1", "sent 3", None)
    assert isinstance(second, ProxyError)
    assert (second.status, str(second)) == (500, "RuntimeError (the server's log has the details)")


@pytest.mark.parametrize("gap", [b"", b"\n"], ids=["one line", "several lines"])
async def test_a_large_record_is_not_read_again_with_every_piece(
    monkeypatch: pytest.MonkeyPatch, gap: bytes
) -> None:
    looked = [0]
    complete = v3_records._complete

    def counted(decoder: Any, data: bytearray) -> Any:
        looked[0] += len(data)
        return complete(decoder, data)

    monkeypatch.setattr(v3_records, "_complete", counted)
    record = b'{"value":[' + b",".join([b'[1,"a"]' + gap] * 300_000) + b"]}"
    body = record + GOOD
    pieces = [body[at : at + 4000] for at in range(0, len(body), 4000)]

    async def arriving() -> AsyncIterator[bytes]:
        for each in pieces:
            yield each

    found = [each async for each in v3_records.objects(arriving(), 1 << 24)]
    assert found == [json.loads(record), json.loads(GOOD)]
    assert looked[0] < 12 * len(body)


def test_headers_count_as_bytes_that_wait() -> None:
    assert Record(b"k", b"v", headers=[("name", b"12345"), ("n", None)]).bytes == 3 * OVERHEAD + 2 + 9 + 1


@pytest.mark.parametrize("reset", [False, True], ids=["ended", "reset"])
@pytest.mark.parametrize("version", ["v2", "v3"])
def test_a_client_that_goes_is_no_error_of_the_proxy(
    proxy: RestProxyProcess, broker: EmbeddedBroker, version: str, reset: bool
) -> None:
    topic = new_topic(broker)
    host = proxy.url.removeprefix("http://")
    path = records_of(proxy, topic).removeprefix(proxy.url) if version == "v3" else f"/topics/{topic}"
    kind = JSON if version == "v3" else "application/vnd.kafka.json.v2+json"
    before = counted(proxy, path)
    name, port = host.split(":")
    with socket.create_connection((name, int(port)), 30) as connection:
        head = f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: {kind}\r\nTransfer-Encoding: chunked\r\n\r\n"
        connection.sendall(head.encode() + b"%x\r\n%s\r\n" % (len(GOOD), GOOD))
        if version == "v3":
            assert connection.recv(1000)
        if reset:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    wait_until(lambda: counted(proxy, path) != before, "the request is counted")
    assert counted(proxy, path)["499"] == before.get("499", 0) + 1
    assert "Traceback" not in proxy.log.read_text()


def counted(proxy: RestProxyProcess, path: str) -> dict[str, int]:
    """Returns the requests to produce by status."""
    template = (
        "/topics/{topic}" if path.startswith("/topics") else "/v3/clusters/{cluster}/topics/{topic}/records"
    )
    name = f'requests_total{{method="POST",path="{template}",status='
    found = re.findall(rf'{re.escape(name)}"(\d+)"}} (\d+)', metrics(proxy))
    return {status: int(count) for status, count in found}


@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize(
    ("change", "code"), [("", 401), ('role = "viewer"', 403)], ids=["removed", "demoted"]
)
def test_a_stream_ends_when_its_caller_may_not_write_any_more(
    broker: EmbeddedBroker, tmp_path: Path, change: str, code: int
) -> None:
    users, keep = (
        tmp_path / "users.toml",
        f'[tokens.other]\nsha256 = "{token_digest("other")}"\nrole = "admin"\n',
    )
    ann = f'[tokens.ann]\nsha256 = "{token_digest("ann")}"\n'
    users.write_text(f'{keep}{ann}role = "operator"\n')
    topic = new_topic(broker)
    with RestProxyProcess(broker.bootstrap, tmp_path, rest__auth__file=str(users)) as proxy:
        host, path = records_of(proxy, topic, "Bearer ann").removeprefix("http://").split("/", 1)
        with closing(http.client.HTTPConnection(host, timeout=30)) as connection:
            connection.putrequest("POST", f"/{path}")
            for name, value in {
                "Content-Type": JSON, "Transfer-Encoding": "chunked", "Authorization": "Bearer ann"
            }.items():  # fmt: skip
                connection.putheader(name, value)
            connection.endheaders()

            def send() -> None:
                connection.send(b"%x\r\n%s\r\n" % (len(GOOD), GOOD))

            send()
            answer = connection.getresponse()
            found = [json.loads(answer.readline())["error_code"]]
            users.write_text(f"{keep}{ann}{change}\n" if change else keep)

            def ended() -> bool:
                send()
                found.append(json.loads(answer.readline())["error_code"])
                return found[-1] != 200

            wait_until(ended, "the stream ends", timeout_s=15)
            assert (set(found[:-1]), found[-1]) == ({200}, code)
            assert answer.readline() == b""
