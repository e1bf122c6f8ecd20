"""Klamm's worker and Apache's take turns on the same topics: each goes on where the other stopped."""

from __future__ import annotations

import http.client
import json
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support import kafka_oracle
from support.connect_worker import (
    STRING,
    WorkerProcess,
    feed,
    free_port,
    lines_out,
    wait_for,
    worker_properties,
)
from support.kafka_oracle import KafkaOracle

CONNECT = "org.apache.kafka.connect.cli.ConnectDistributed"


@contextmanager
def apache_worker(
    oracle: KafkaOracle, properties: dict[str, str], directory: Path, log4j: Path
) -> Iterator[int]:
    """Yields the REST port of Apache's worker on the same properties."""
    port = free_port()
    more = {"listeners": f"http://127.0.0.1:{port}", "plugin.path": str(oracle.home / "plugins")}
    path = directory / "apache.properties"
    path.write_text("".join(f"{k}={v}\n" for k, v in {**properties, **more}.items()))
    log = directory / "apache.log"
    with log.open("wb") as out:
        command = oracle.command(CONNECT, str(path), heap="-Xmx256M", log4j=log4j)
        process = subprocess.Popen(command, stdout=out, stderr=out)
    try:
        wait_for(lambda: ask(port, "GET", "/health")[0] == 200, log.read_text, timeout_s=60)
        yield port
    finally:
        process.terminate()
        process.wait(60)


def ask(port: int, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        data = None if body is None else json.dumps(body)
        connection.request(method, path, body=data, headers={"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read()
        return answer.status, json.loads(text) if text else None
    except (OSError, ValueError):  # not up yet, or Jetty's HTML before Connect serves
        return 0, None
    finally:
        connection.close()


def all_running(port: int, *names: str) -> bool:
    """Returns whether just these connectors are there, and all run."""
    status, expanded = ask(port, "GET", "/connectors?expand=status")
    if status != 200 or {*expanded} != {*names} or not all("status" in c for c in expanded.values()):
        return False
    return all(
        c["status"]["connector"]["state"] == "RUNNING"
        and [t["state"] for t in c["status"]["tasks"]] == ["RUNNING"]
        for c in expanded.values()
    )


@pytest.mark.usefixtures("apache_kafka")
def test_rest_workers_of_both_kinds_take_turns(bootstrap: str, tmp_path: Path) -> None:
    oracle = kafka_oracle.require()
    if not (oracle.home / "plugins").is_dir():
        pytest.skip(
            f"{oracle.home}/plugins with the file connectors is missing: tests/peers/fetch_kafka.sh fetches it"
        )
    name = f"swap{uuid.uuid4().hex[:8]}"
    properties = worker_properties(bootstrap, name)
    log4j = kafka_oracle.write_log4j(tmp_path)
    source = {"connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector", "topic": name}
    source |= {"file": str(tmp_path / "in.txt"), "value.converter": STRING, "key.converter": STRING}
    sink = source | {"connector.class": source["connector.class"].replace("Source", "Sink")}
    sink = {k: v for k, v in sink.items() if k != "topic"} | {
        "topics": name,
        "file": str(tmp_path / "out.txt"),
    }

    feed(tmp_path, 0, 50)
    ours = WorkerProcess(properties, tmp_path).wait_ready()
    try:
        assert ours.request("POST", "/connectors", {"name": f"{name}-a", "config": source}).status == 201
        assert ours.request("POST", "/connectors", {"name": f"{name}-b", "config": sink}).status == 201
        wait_for(lambda: len(lines_out(tmp_path)) == 50, lambda: ours.log)
    finally:
        assert ours.stop() == 0, ours.log

    with apache_worker(oracle, properties, tmp_path, log4j) as port:
        wait_for(
            lambda: all_running(port, f"{name}-a", f"{name}-b"),
            lambda: ask(port, "GET", "/connectors?expand=status"),
        )
        feed(tmp_path, 50, 50)
        wait_for(lambda: len(lines_out(tmp_path)) == 100, lambda: lines_out(tmp_path)[-3:], 60)
        assert ask(port, "PUT", f"/connectors/{name}-b/pause")[0] == 202

        def offset() -> Any:
            return ask(port, "GET", f"/connectors/{name}-a/offsets")[1]["offsets"]

        size = (tmp_path / "in.txt").stat().st_size
        wait_for(lambda: [o["offset"]["position"] for o in offset()] == [size], offset, 60)

    feed(tmp_path, 100, 50)
    ours = WorkerProcess(properties, tmp_path).wait_ready()
    try:
        ours.wait_state(f"{name}-a", "RUNNING", "RUNNING")
        ours.wait_state(f"{name}-b", "PAUSED", "PAUSED")
        assert ours.request("PUT", f"/connectors/{name}-b/resume").status == 202
        wait_for(lambda: len(lines_out(tmp_path)) == 150, lambda: ours.log)
        assert lines_out(tmp_path) == [f"line {i}" for i in range(150)]
    finally:
        assert ours.stop() == 0, ours.log
