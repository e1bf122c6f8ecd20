"""MirrorSourceConnector when things die: brokers that stop, a worker that is killed; record by record."""

from __future__ import annotations

import signal
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.broker import new_topic
from support.connect_worker import WorkerProcess, wait_for, worker_properties
from support.mirroring import Row, Running, produce, props, read

from klamm.testing import EmbeddedBroker

KAFKA_NAME = "org.apache.kafka.connect.mirror.MirrorSourceConnector"


def without_repeats(got: list[Row]) -> list[Row]:
    """Rows in the order of their first arrival: at least once may repeat, but not reorder."""
    return list({repr(row): row for row in got}.values())


def numbered(count: int) -> list[Row]:
    return [(b"%d" % (i % 9), b"%d:" % i + b"y" * 200, [], 1_700_000_000_000 + i) for i in range(count)]


@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize("victim", ["source", "target"])
def test_a_broker_that_is_killed_is_waited_for(tmp_path, victim):
    sent = numbered(20_000)
    with (
        EmbeddedBroker(tmp_path / "a") as source,
        EmbeddedBroker(tmp_path / "b") as target,
    ):
        topic = new_topic(source)
        produce(source.bootstrap, topic, sent[:10_000])
        with Running(props(source.bootstrap, target.bootstrap, topics=topic)) as mirror:
            mirror.until(lambda: mirror.records > 100, "under way")
            broker = source if victim == "source" else target
            broker.kill()
            if victim == "target":  # it is missed only when there is something to write
                produce(source.bootstrap, topic, sent[10_000:])
            mirror.until(
                lambda: mirror.contexts[0].said[-1]["waiting_for"] == victim, "the status says what for"
            )
            assert mirror.details()["why"]
            broker.start()
            if victim == "source":
                produce(source.bootstrap, topic, sent[10_000:])
            mirror.until(lambda: mirror.records >= len(sent), "all is there")
        got = read(target.bootstrap, f"A.{topic}", len(sent))
        assert without_repeats(got) == sent


@pytest.mark.usefixtures("processes")
def test_a_killed_worker_loses_nothing_and_rest_shows_and_alters_offsets(tmp_path: Path):
    sent, name = numbered(60_000), f"m{uuid.uuid4().hex[:8]}"
    with EmbeddedBroker(tmp_path / "a") as source, EmbeddedBroker(tmp_path / "b") as target:
        topic = new_topic(source)
        properties = worker_properties(target.bootstrap, name)
        worker = WorkerProcess(properties, tmp_path).wait_ready()
        try:
            config = props(source.bootstrap, target.bootstrap, topics=topic)
            config |= {"connector.class": KAFKA_NAME, "name": name}
            assert worker.request("POST", "/connectors", {"name": name, "config": config}).status == 201
            with ThreadPoolExecutor(1) as pool:
                filling = pool.submit(produce, source.bootstrap, topic, sent)
                wait_for(lambda: progress(worker, name).get("records", 0) > 500, lambda: worker.log)
                worker.process.send_signal(signal.SIGKILL)
                worker.end()
                worker = WorkerProcess(properties, tmp_path).wait_ready()
                filling.result()
            key = {"cluster": "A", "topic": topic, "partition": 0}

            def last() -> int:
                found = worker.get(f"/connectors/{name}/offsets")["offsets"]
                assert [o["partition"] for o in found] in ([], [key])
                return found[0]["offset"].get("offset", -1) if found else -1

            wait_for(lambda: last() == len(sent) - 1, lambda: f"{progress(worker, name)}\n{worker.log}", 60)
            done = {"partition": key, "offset": {"offset": len(sent) - 1}}
            wait_for(lambda: progress(worker, name).get("lag") == 0, lambda: str(progress(worker, name)))
            got = read(target.bootstrap, f"A.{topic}", None)
            assert without_repeats(got) == sent
            check_offsets_by_rest(worker, name, done, target, topic, got)
        finally:
            worker.end()


def check_offsets_by_rest(worker, name, done, target, topic, got) -> None:
    assert worker.request("PUT", f"/connectors/{name}/stop").status == 204
    wait_for(lambda: worker.state(name) == ["STOPPED"], lambda: str(worker.state(name)))
    bad = {"partition": done["partition"], "offset": {"offset": -3}}
    answer = worker.request("PATCH", f"/connectors/{name}/offsets", {"offsets": [bad]})
    assert answer.status == 400, answer.body
    assert "must be a number from -1 on" in answer.json["message"]
    back = {"partition": done["partition"], "offset": {"offset": done["offset"]["offset"] - 100}}
    assert worker.request("PATCH", f"/connectors/{name}/offsets", {"offsets": [back]}).status == 200
    assert worker.request("PUT", f"/connectors/{name}/resume").status == 202
    again = read(target.bootstrap, f"A.{topic}", len(got) + 100)
    assert again[len(got) :] == got[-100:]


def progress(worker: WorkerProcess, name: str) -> dict:
    tasks = worker.get(f"/connectors/{name}/status").get("tasks") or [{}]
    return tasks[0].get("progress") or {}
