"""Agents that start after a kill while brokers of their cluster hang: on a real Apache Kafka of two nodes."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest
from agent.harness import AgentProcess, arrived
from agent.test_agent_once import once, write
from confluent_kafka.admin import AdminClient, NewTopic
from support.broker import new_name, wait_until
from support.kafka_broker import KafkaBroker
from support.kafka_cluster import SecondNode

from klamm_kafka.client.partitioner import partition_of

pytestmark = pytest.mark.usefixtures("apache_kafka")
PARTITIONS = 4
AT_ONCE_S = 9.0
"""A start of the process on a busy machine takes seconds. A question to a leader takes 10 s before it fails."""
SOON_S = 9.0
"""An agent whose brokers do not answer waits for 15 s before it ends."""


@pytest.fixture
def cluster(tmp_path):
    """Node 1, which is the controller, too, and node 2."""
    (tmp_path / "1").mkdir()
    with KafkaBroker(tmp_path / "1") as first, SecondNode(first, tmp_path / "2") as second:
        yield first, second
        for pid in (first.pid, second.process.pid):
            os.kill(pid, signal.SIGCONT)


def make_topic(bootstrap: str, replicas: list[list[int]]) -> str:
    """Returns a new topic whose partitions have these replicas, the leader first."""
    topic = new_name()
    admin = AdminClient({"bootstrap.servers": bootstrap})
    asked = NewTopic(topic, len(replicas), replica_assignment=replicas)
    admin.create_topics([asked])[topic].result(60)
    return topic


def names_of(agent: AgentProcess, partition: int, count: int = 2) -> list[str]:
    """Returns names of files whose path leads to a partition."""
    paths = ((f"f{i}", agent.folder / f"logs/f{i}.log") for i in range(1000))
    return [name for name, path in paths if partition_of(os.fsencode(path), PARTITIONS) == partition][:count]


def killed_with_lines_under_way(agent: AgentProcess, second: SecondNode, names: list[str]) -> set[str]:
    """Kills the agent while node 2 hangs and owes it answers; returns the lines of all files."""
    lines = set().union(*(write(agent.folder / f"logs/{name}.log", name, 500) for name in names))
    agent.start()
    agent.caught_up()
    os.kill(second.process.pid, signal.SIGSTOP)
    before = agent.status()["acked"]
    for i in range(500, 3500, 100):
        for name in names:
            lines |= write(agent.folder / f"logs/{name}.log", name, 100, i)
        time.sleep(0.05)  # so that they go in many batches, to all partitions
    wait_until(lambda: agent.status()["acked"] > before, "those that node 1 takes")
    assert agent.status()["queued_bytes"] > 0
    agent.kill()
    return lines


def acknowledged(agent: AgentProcess, lines: int) -> None:
    """Waits until a started agent has so many acknowledgements."""
    wait_until(
        lambda: agent.status().get("pid") == agent.process.pid and agent.status()["acked"] >= lines,
        f"{lines} lines: {agent.log[-500:]}",
    )


def all_sent(agent: AgentProcess) -> None:
    """Waits until nothing is under way, what came out of the log included."""
    agent.begun()
    agent.caught_up()
    wait_until(lambda: not agent.status()["queued_bytes"], f"the rest: {agent.log[-500:]}")
    assert agent.status()["unanswered"] == 0


@pytest.mark.parametrize("order", ["the hanging one last", "the hanging one first"])
def test_a_leader_that_hangs_holds_its_partitions_only(agent, cluster, order):
    first, second = cluster
    topic = make_topic(first.address, [[1], [2], [1], [2]])
    addresses = [first.address, second.address]
    a = agent(",".join(addresses if order.endswith("last") else reversed(addresses)), topic)
    expected = killed_with_lines_under_way(a, second, ["a"])
    expected |= write(a.folder / "logs/b.log", "b", 1000)
    began = time.monotonic()
    a.start()
    acknowledged(a, 1000)
    assert time.monotonic() - began < AT_ONCE_S
    wait_until(lambda: a.status()["unanswered"], "the figure")
    assert a.status()["unanswered"] == 2
    assert a.status()["waiting_for"] == f"partition {topic}-1: its leader does not say which lines it has"
    wait_until(lambda: "of partitions 1, 3: these lines wait" in a.log, "the line in the log")
    expected |= write(a.folder / "logs/b.log", "b", 1000, 1000)
    acknowledged(a, 2000)
    os.kill(second.process.pid, signal.SIGCONT)
    all_sent(a)
    assert a.stop() == 0
    once(arrived(first.address, topic), expected)
    assert a.status()["unproved"] == 0


def test_only_files_whose_key_leads_to_the_hanging_leader_wait(agent, cluster):
    first, second = cluster
    topic = make_topic(first.address, [[1], [2], [1], [2]])
    a = agent(first.address, topic, more='key = "path"')
    (here,), (there, also_there) = names_of(a, 0, 1), names_of(a, 1)
    expected = killed_with_lines_under_way(a, second, [here, there])
    expected |= write(a.folder / f"logs/{here}.log", here, 1000, 10_000)
    began = time.monotonic()
    a.start()
    acknowledged(a, 1000)
    assert time.monotonic() - began < AT_ONCE_S
    acked, read = a.status()["acked"], a.status()["lines"]
    for name in (there, also_there, here):
        expected |= write(a.folder / f"logs/{name}.log", name, 10, 20_000)
    acknowledged(a, acked + 10)
    assert a.status()["lines"] == read + 10, "the others are not read"
    os.kill(second.process.pid, signal.SIGCONT)
    all_sent(a)
    assert a.stop() == 0
    once(arrived(first.address, topic), expected)
    assert a.status()["unproved"] == 0


def test_a_stop_beside_a_hanging_leader_is_soon_and_the_registry_says_what_is_acknowledged(agent, cluster):
    first, second = cluster
    topic = make_topic(first.address, [[1], [2], [1], [2]])
    a = agent(first.address, topic, more='key = "path"')
    (here,), (there,) = names_of(a, 0, 1), names_of(a, 1, 1)
    path = a.folder / f"logs/{there}.log"
    expected = killed_with_lines_under_way(a, second, [here, there])
    place = place_of(a, path)
    assert place < path.stat().st_size
    a.start()
    wait_until(lambda: a.status()["unanswered"], "the figure")
    expected |= write(a.folder / f"logs/{here}.log", here, 1000, 10_000)
    a.has_acknowledged(a.folder / f"logs/{here}.log")
    assert place_of(a, path) == place, "without the write-ahead log, its lines would be read again"
    expected |= write(path, there, 10, 20_000)
    wait_until(lambda: a.status()["open_files"] == 2, "both to be open")
    path.unlink()  # nobody can read it after the stop
    began = time.monotonic()
    assert a.stop() == 1
    assert time.monotonic() - began < SOON_S
    a.start()
    os.kill(second.process.pid, signal.SIGCONT)
    all_sent(a)
    assert a.stop() == 0
    once(arrived(first.address, topic), expected)
    assert a.status()["unproved"] == 0


def place_of(agent: AgentProcess, path: Path) -> int:
    """Returns how far a file is acknowledged, as the registry has it."""
    files = json.loads((agent.state / "registry.json").read_text())["files"]
    (place,) = (f["offset"] for f in files if f["path"] == str(path))
    return place


def test_a_partition_goes_on_with_its_new_leader(agent, cluster):
    """Node 2 hangs for so long that Kafka gives its partitions to node 1."""
    first, second = cluster
    topic = make_topic(first.address, [[1, 2], [2, 1]])
    a = agent(first.address, topic)
    expected = killed_with_lines_under_way(a, second, ["a"])
    a.start()
    all_sent(a)
    assert a.stop() == 0
    once(arrived(first.address, topic), expected)
    assert a.status()["unproved"] == 0
