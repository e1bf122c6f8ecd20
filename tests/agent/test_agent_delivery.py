"""The agent as a process against a real broker: rotation under load, kills, a broker that goes away."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest
from agent.harness import AgentProcess, Writer, arrived
from support.broker import new_name, new_topic, wait_until

from klamm.testing import EmbeddedBroker


@pytest.fixture
def agent(tmp_path, broker):
    agents = []

    def make(topic, **options):
        agents.append(
            AgentProcess(
                tmp_path / f"agent{len(agents)}", options.pop("bootstrap", broker.bootstrap), topic, **options
            )
        )
        return agents[-1]

    yield make
    for each in agents:
        each.close()


def rss_kb(pid):
    with Path(f"/proc/{pid}/status").open() as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS"))


def test_rotation_under_load_and_kills_lose_nothing(agent, broker):
    topic = new_topic(broker, 2)
    a = agent(topic)
    a.start()
    renamed = Writer(a.folder / "logs/one/renamed.log", "r")
    truncated = Writer(
        a.folder / "logs/two/deep/truncated.log", "t", copytruncate=True, pause=a.has_acknowledged
    )
    renamed.start()
    truncated.start()
    wait_until(lambda: renamed.rotations >= 3 and truncated.rotations >= 1, "rotations")
    assert a.stop() == 0
    a.start()
    time.sleep(0.2)  # it is killed soon after its start
    a.kill()
    a.start()
    renamed.finish()
    truncated.finish()
    a.caught_up()
    assert a.stop() == 0
    found = arrived(broker.bootstrap, topic)
    expected = renamed.ids() | truncated.ids()
    assert expected - found.keys() == set()
    assert set(found) - expected == set()
    assert not (a.state / "gaps.jsonl").exists()


def test_without_kills_every_line_comes_once(agent, broker):
    topic = new_topic(broker)
    a = agent(topic)
    writer = Writer(a.folder / "logs/x.log", "w")
    a.start()
    writer.start()
    wait_until(lambda: writer.rotations >= 1, "rotations")
    assert a.stop() == 0
    a.start()
    wait_until(lambda: writer.rotations >= 3, "rotations")
    writer.finish()
    a.caught_up()
    assert a.stop() == 0
    found = arrived(broker.bootstrap, topic)
    assert found.keys() == writer.ids()
    assert set(found.values()) == {1}


def test_a_broker_that_is_killed_and_comes_back(agent, tmp_path):
    with EmbeddedBroker(tmp_path / "own" / "data") as broker:
        topic = new_topic(broker)
        a = agent(topic, bootstrap=broker.bootstrap)
        a.start()
        writer = Writer(a.folder / "logs/x.log", "w")
        writer.start()
        wait_until(lambda: a.status().get("acked", 0) > 100, "the first lines")
        broker.kill()
        wait_until(lambda: a.status()["waiting_for"] == "broker", "the agent to notice")
        broker.start()
        wait_until(lambda: writer.rotations >= 3, "rotations")
        writer.finish()
        a.caught_up()
        assert a.stop() == 0
        found = arrived(broker.bootstrap, topic)
        assert writer.ids() == found.keys()
        assert set(found.values()) == {1}, "the producer is idempotent: a broker's restart repeats nothing"


def test_memory_is_bounded_while_the_broker_is_away(agent, tmp_path):
    broker = EmbeddedBroker(tmp_path / "away" / "data").start()
    topic = new_topic(broker)
    a = agent(topic, bootstrap=broker.bootstrap, top="queue_bytes = 8_000_000")
    lines = 1_000_000
    broker.stop()
    (a.folder / "logs").mkdir()
    with (a.folder / "logs/big.log").open("w") as file:
        file.writelines(f"b-{i:08d} {'y' * 60}\n" for i in range(lines))
    try:
        a.start()
        wait_until(lambda: a.status().get("waiting_for") == "broker", "the agent to notice")
        time.sleep(1)  # the agent reads on, if it may
        before = a.status()
        assert before["lines"] < 100_000
        assert before["lag_bytes"] == (a.folder / "logs/big.log").stat().st_size
        assert rss_kb(a.process.pid) < 120_000
        broker.start()
        wait_until(lambda: a.status().get("acked") == lines, "all lines", timeout_s=200)
        assert rss_kb(a.process.pid) < 150_000
        assert a.stop() == 0
    finally:
        broker.stop()


def test_json_documents_and_their_offsets(agent, broker):
    topic = new_topic(broker)
    a = agent(
        topic,
        more='format = "json"\nencoding = "latin-1"\nkey = "path"\nfields = { service = { name = "shop" } }',
    )
    (a.folder / "logs").mkdir()
    path = a.folder / "logs/x.log"
    lines = [
        "plain",
        'with "quotes" \\ and \t tab',
        "J\u00fcrgen",
        "",
        "del \x7f here",
        'end\\n"',
        "windows\r",
    ]
    path.write_bytes("".join(f"{line}\n" for line in lines).encode("latin-1"))
    a.start()
    a.caught_up()
    assert a.stop() == 0
    from confluent_kafka import Consumer

    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    messages = []
    deadline = time.monotonic() + 60
    while len(messages) < len(lines) and time.monotonic() < deadline:
        messages += [m for m in consumer.consume(100, 0.2) if not m.error()]
    consumer.close()
    documents = [json.loads(m.value()) for m in messages]
    assert [d["message"] for d in documents] == [line.removesuffix("\r") for line in lines]
    content = path.read_bytes()
    for document, line in zip(documents, lines, strict=True):
        offset = document["log"]["offset"]
        assert content[offset:].startswith(line.encode("latin-1") + b"\n")
        assert document["log"]["file"]["path"] == str(path)
        assert document["service"] == {"name": "shop"}
        assert document["agent"]["type"] == "klamm"
    assert {m.key() for m in messages} == {str(path).encode()}


def test_a_topic_that_does_not_exist_is_said_and_waited_for(agent, tmp_path):
    with EmbeddedBroker(tmp_path / "b" / "data", config={"auto.create.topics.enable": "false"}) as broker:
        name = new_name()
        a = agent(name, bootstrap=broker.bootstrap)
        (a.folder / "logs").mkdir()
        (a.folder / "logs/x.log").write_text("".join(f"n-{i} x\n" for i in range(1000)))
        a.start()
        wait_until(lambda: name in a.status().get("waiting_for", ""), "the agent to notice", timeout_s=60)
        new_topic(broker, name=name)
        wait_until(lambda: a.status()["acked"] == 1000, "all lines", timeout_s=60)
        # At once, and again after a minute at the earliest
        assert 1 <= a.log.count(f"topic {name} takes no records") <= 3
        assert a.stop() == 0
        assert set(arrived(broker.bootstrap, name).values()) == {1}


def test_a_record_too_large_for_the_topic_is_in_the_ledger(agent, broker):
    topic = new_topic(broker, config={"max.message.bytes": "2000"})
    a = agent(topic, more='[producer]\n"compression.type" = "none"')
    (a.folder / "logs").mkdir()
    # The broker refuses them all as one batch; only the long one is too large by itself
    (a.folder / "logs/x.log").write_text("a-1 x\n" + "b-2 " + "y" * 5000 + "\nc-3 x\n")
    a.start()
    a.caught_up()
    assert a.status()["acked"] == 2
    assert a.stop() == 0
    assert arrived(broker.bootstrap, topic) == {"a-1": 1, "c-3": 1}
    (gap,) = map(json.loads, (a.state / "gaps.jsonl").read_text().splitlines())
    assert gap["reason"] == f"a record of 5004 bytes is too large for topic {topic}"
    assert gap["path"].endswith("x.log")
    assert "set batch.size in [producer]" in a.log


def test_one_agent_per_state_directory(agent, broker):
    a = agent(new_topic(broker))
    a.start()
    again = AgentProcess(a.folder, broker.bootstrap, "other")
    again.start(wait=False)
    assert again.process.wait(60) == 1
    again._ended()
    assert f"in use by another agent (pid {a.process.pid})" in a.log
    assert a.stop() == 0
    assert a.status()["state"] == "stopped"


def test_a_full_disk_under_the_state_does_not_stop_an_agent_that_ran_before(agent, broker):
    topic = new_topic(broker)
    a = agent(topic)
    (a.folder / "logs").mkdir()
    (a.folder / "logs/x.log").write_text("a-1 x\n")
    a.start()
    a.has_acknowledged(a.folder / "logs/x.log")
    assert a.stop() == 0
    a.start()
    a.begun()
    # A folder in the registry's place: as with a full disk, it cannot be written
    registry = a.state / "registry.json"
    registry.rename(a.state / "kept.json")
    registry.mkdir()
    (a.folder / "logs/x.log").write_text("a-1 x\na-2 x\n")
    wait_until(lambda: a.status().get("acked") == 1, "the line")
    wait_until(lambda: "registry.json cannot be written" in a.log, "the warning")
    registry.rmdir()
    a.has_acknowledged(a.folder / "logs/x.log")
    assert a.stop(signal.SIGINT) == 0
    assert arrived(broker.bootstrap, topic) == {"a-1": 1, "a-2": 1}


@pytest.mark.timeout(900)
def test_many_kills_of_agent_and_broker(agent, tmp_path):
    with EmbeddedBroker(tmp_path / "own" / "data") as broker:
        topic = new_topic(broker, 3)
        a = agent(topic, bootstrap=broker.bootstrap)
        a.start()
        writers = [Writer(a.folder / f"logs/{n}/app.log", n, rate=8000) for n in "pqr"]
        for writer in writers:
            writer.start()
        for i in range(25):
            time.sleep(0.1 + (i * 7 % 10) / 10)
            a.kill()
            if i % 5 == 2:
                broker.kill()
                broker.start()
            a.start()
        for writer in writers:
            writer.finish()
        a.caught_up(120)
        assert a.stop() == 0
        found = arrived(broker.bootstrap, topic)
        expected = set().union(*(w.ids() for w in writers))
        assert found.keys() == expected
        print(
            f"{len(expected)} lines, {found.total() - len(found)} repeated after 25 kills, rotations {[w.rotations for w in writers]}"
        )
        os.sync()
