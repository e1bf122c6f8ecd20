"""Measures the REST proxy: records a second in batches, over v2 and as a stream of v3, and reading them back.

    python bench/restproxy/produce.py [--records 200000] [--batch 100] [--clients 4] [--size 100]

Starts a broker and a proxy of ours. The clients are raw sockets in one process of their own, so that they cost little; CPU seconds are the
proxy's alone.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

from klamm.testing import EmbeddedBroker
from klamm.testing.process import first_line
from klamm.web.process_metrics import usage


async def answered(reader: asyncio.StreamReader) -> bytes:
    """Reads an answer of HTTP and returns its body."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    status = int(head.split(None, 2)[1])
    length = int(head.lower().split("content-length:")[1].split("\r\n")[0])
    body = await reader.readexactly(length)
    assert status == 200, body
    return body


async def post(port: int, path: str, kind: str, body: bytes, count: int) -> None:
    """Sends the same request again and again over one connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    for _ in range(count):
        writer.write(head + body)
        answer = await answered(reader)
        assert b'"error_code":null' in answer
        assert answer.count(b'"error_code":null') == answer.count(b'"error_code"')
    writer.close()


async def stream(port: int, path: str, record: bytes, count: int) -> None:
    """Sends records in one chunked request, and reads the answers meanwhile."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(
        f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    )

    async def send() -> None:
        chunk = record * 100
        for _ in range(count // 100):
            writer.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
            await writer.drain()
        writer.write(b"0\r\n\r\n")

    sending = asyncio.create_task(send())
    seen, rest, mark = 0, b"", b'"error_code":200'
    while seen < count // 100 * 100:
        data = await reader.read(1 << 16)
        assert data
        seen += (rest + data).count(mark)
        rest = data[1 - len(mark) :]
    await sending
    writer.close()


def ask(url: str, body: Any = None, accept: str = "*/*") -> Any:
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/vnd.kafka.v2+json", "Accept": accept}
    with urllib.request.urlopen(urllib.request.Request(url, data, headers), timeout=60) as answer:
        text = answer.read()
    return json.loads(text) if text else None


def measured(what: str, pid: int, records: int, work: Any) -> None:
    """Prints records a second by the clock, and by the proxy's CPU."""
    before, began = usage(pid), time.monotonic()
    work()
    took, after = time.monotonic() - began, usage(pid)
    assert before is not None
    assert after is not None
    cpu = after[0] - before[0]
    print(
        f"{what:34} {records / took:10,.0f} records/s   {records / cpu:10,.0f} per CPU second   rss {after[1] >> 20} MB"
    )


def read_back(url: str, topic: str, count: int) -> None:
    consumer = ask(f"{url}/consumers/bench", {"format": "json", "auto.offset.reset": "earliest"})["base_uri"]
    ask(f"{consumer}/subscription", {"topics": [topic]})
    seen = 0
    while seen < count:
        address = f"{consumer}/records?timeout=3000&max_bytes=1000000"
        seen += len(ask(address, accept="application/vnd.kafka.json.v2+json"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("records", 200_000), ("batch", 100), ("clients", 4), ("size", 100)):
        parser.add_argument(f"--{name}", type=int, default=default)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, EmbeddedBroker(Path(folder) / "data") as broker:
        file = Path(folder) / "rest.properties"
        file.write_text(f"bootstrap.servers={broker.bootstrap}\nlisteners=http://127.0.0.1:0\n")
        command = [sys.executable, "-m", "klamm.cli.main", "rest", "start", str(file)]
        proxy = subprocess.Popen(command, stdout=subprocess.PIPE)
        try:
            line = first_line(proxy, 60)
            url = line.partition("=")[2]
            port = int(url.rpartition(":")[2])
            found = usage(proxy.pid)
            print(f"idle: rss {found[1] >> 20 if found else 0} MB")
            run(given, url, port, proxy.pid)
        finally:
            proxy.terminate()
            proxy.wait(30)


def run(given: argparse.Namespace, url: str, port: int, pid: int) -> None:
    value = {"id": 1, "text": "x" * given.size}
    calls = given.records // given.batch // given.clients
    total = calls * given.batch * given.clients

    async def all_of(*work: Any) -> None:
        await asyncio.gather(*work)

    json_body = json.dumps({"records": [{"key": "k", "value": value}] * given.batch}).encode()
    binary = json.dumps(
        {"records": [{"value": "eHh4eHh4eHh4eHh4" * (given.size // 12)}] * given.batch}
    ).encode()
    for form, body in (("json", json_body), ("binary", binary)):
        path, kind = f"/topics/bench-{form}", f"application/vnd.kafka.{form}.v2+json"
        asyncio.run(post(port, path, kind, body, 1))
        clients = [(port, path, kind, body, calls)] * given.clients
        measured(
            f"v2 {form}, batches of {given.batch}",
            pid,
            total,
            lambda clients=clients: asyncio.run(all_of(*(post(*each) for each in clients))),
        )
    cluster = ask(f"{url}/v3/clusters")["data"][0]["cluster_id"]
    record = json.dumps({"value": {"type": "JSON", "data": value}}).encode() + b"\n"
    path, each = f"/v3/clusters/{cluster}/topics/bench-json/records", given.records // given.clients // 4
    measured(
        "v3 streams",
        pid,
        each * given.clients,
        lambda: asyncio.run(all_of(*(stream(port, path, record, each) for _ in range(given.clients)))),
    )
    measured("v2 json, read back", pid, total, lambda: read_back(url, "bench-json", total))


if __name__ == "__main__":
    main()
