"""Parsing at the edge, filters, masks and dead letters in a running agent."""

from __future__ import annotations

import json

import pytest
from agent.harness import AgentProcess
from confluent_kafka import Consumer, TopicPartition
from support.broker import new_name, new_topic, wait_until

from klamm.testing import EmbeddedBroker

_PARSE = """
format = "json"
dead_letter_topic = "{topic}-dead"
close_rotated = "500ms"
exclude_lines = ["healthz"]
[[inputs.mask]]
preset = "email"
[[inputs.parse]]
type = "json"
on_error = "dead_letter"
"""


def values(bootstrap: str, topic: str, count: int) -> list[dict]:
    """Returns the first `count` documents of a topic of one partition."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "x", "enable.auto.commit": False})
    found: list[dict] = []
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])

        def enough() -> bool:
            found.extend(json.loads(m.value()) for m in consumer.consume(100, 0.2) if not m.error())
            return len(found) >= count

        wait_until(enough, f"{count} records in {topic}: {found}")
    finally:
        consumer.close()
    return found


@pytest.fixture
def agent(broker, tmp_path):
    topic = new_topic(broker)
    new_topic(broker, name=f"{topic}-dead")
    process = AgentProcess(tmp_path, broker.bootstrap, topic, more=_PARSE.format(topic=topic))
    process.topic = topic
    (tmp_path / "logs").mkdir()
    yield process
    process.close()


def registry(agent: AgentProcess) -> dict:
    return json.loads((agent.state / "registry.json").read_text())


def test_documents_dead_letters_and_counted_drops(broker, agent):
    log = agent.folder / "logs" / "a.log"
    lines = [
        '{"time":"2026-01-02T10:11:12.123Z","level":"warn","msg":"from me@example.org","n":1}',
        '{"msg":"GET /healthz"}',
        "no json",
        '{"msg":"GET /healthz"}',
        '{"log.level":"info","message":"last"}',
    ]
    log.write_text("\n".join(lines) + "\n")
    agent.start()
    first, last = values(broker.bootstrap, agent.topic, 2)
    assert first == {
        "@timestamp": "2026-01-02T10:11:12.123Z",
        "message": "from ***",
        "n": 1,
        "log": {"level": "warn", "file": {"path": str(log)}, "offset": 0},
        "host": first["host"],
        "agent": first["agent"],
    }
    assert (last["message"], last["log"]["level"], last["log"]["offset"]) == (
        "last",
        "info",
        len("\n".join(lines[:4])) + 1,
    )
    (dead,) = values(broker.bootstrap, f"{agent.topic}-dead", 1)
    assert dead["message"] == "no json"
    assert dead["tags"] == ["_jsonparsefailure"]
    assert dead["error"]["type"] == "json"
    agent.caught_up()
    (entry,) = registry(agent)["policy"]
    assert entry["reason"] == "exclude_lines"
    assert entry["lines"] == 2
    start = len(lines[0]) + 1
    assert (entry["from"], entry["to"]) == (start, len("\n".join(lines[:4])) + 1)


def test_counts_of_dropped_lines_are_exact_after_kills(broker, agent):
    log = agent.folder / "logs" / "a.log"
    # A file that was closed is remembered for ten minutes when it is removed
    agent.config.write_text(agent.config.read_text().replace('"1500ms"', '"10m"'))
    dropped = 0
    for round_ in range(2):
        with log.open("a") as file:
            for i in range(500):
                healthy = i % 5 == 0
                dropped += healthy
                file.write(json.dumps({"msg": "healthz" if healthy else f"{round_}-{i}"}) + "\n")
        agent.start()
        if round_ == 0:
            wait_until(lambda: agent.status().get("lines", 0) > 0, "lines to be read")
            agent.kill()
    agent.caught_up()
    (entry,) = registry(agent)["policy"]
    assert (entry["lines"], entry["from"]) == (dropped, 0)
    log.unlink()

    def final() -> bool:
        ledger = agent.state / "gaps.jsonl"
        return ledger.exists() and "exclude_lines" in ledger.read_text()

    wait_until(final, f"the final count: {registry(agent)}", timeout_s=60)
    (gap,) = [json.loads(line) for line in (agent.state / "gaps.jsonl").read_text().splitlines()]
    assert gap["policy"] is True
    assert gap["lines"] == dropped
    assert agent.stop() == 0
    assert "policy" not in registry(agent)


@pytest.mark.usefixtures("processes")
def test_nothing_is_acknowledged_before_its_dead_letter_is(tmp_path):
    """The dead letter topic is not there at first: the position stays before what could not be sent to it."""
    with EmbeddedBroker(tmp_path / "b" / "data", config={"auto.create.topics.enable": "false"}) as broker:
        topic, dead = new_topic(broker), new_name()
        more = f'format = "json"\ndead_letter_topic = "{dead}"\n[[inputs.parse]]\ntype = "json"\non_error = "dead_letter"\n'
        agent = AgentProcess(tmp_path, broker.bootstrap, topic, more=more)
        log = tmp_path / "logs" / "a.log"
        log.parent.mkdir()
        log.write_text('{"message":"first"}\nno json\n')
        try:
            agent.start()
            assert values(broker.bootstrap, topic, 1)[0]["message"] == "first"
            wait_until(lambda: dead in agent.status().get("waiting_for", ""), "the missing topic to be said")
            agent.kill()
            assert [f["offset"] for f in registry(agent)["files"]] == [0]
            new_topic(broker, name=dead)
            agent.start()
            assert values(broker.bootstrap, dead, 1)[0]["message"] == "no json"
            agent.caught_up()
            assert agent.stop() == 0
            assert [f["offset"] for f in registry(agent)["files"]] == [log.stat().st_size]
        finally:
            agent.close()
