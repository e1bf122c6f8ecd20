"""The agent stays with its cluster: a broker of another one at the same address gets nothing."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from agent.harness import AgentProcess, arrived
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from support.broker import new_topic, wait_until
from support.connect_worker import free_port

from klamm.testing import EmbeddedBroker

pytestmark = pytest.mark.usefixtures("processes")

TOPIC = "lines"


def lines(path: Path, first: int, count: int) -> set[str]:
    path.parent.mkdir(parents=True, exist_ok=True)
    ids = [f"x-{i:06d}" for i in range(first, first + count)]
    with path.open("a") as file:
        file.writelines(f"{one} {'y' * 60}\n" for one in ids)
    return set(ids)


class Address:
    """One port, at which brokers of different clusters take turns. Each keeps its data."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port, self.broker = folder, free_port(), None

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def owner(self, name: str | None) -> None:
        """Kills the broker there, and starts that of another cluster (None: nobody)."""
        if self.broker is not None:
            self.broker.kill()
            self.broker = None
        if name is not None:
            self.broker = EmbeddedBroker(self.folder / name, port=self.port).start()

    @property
    def cluster_id(self) -> str:
        return AdminClient({"bootstrap.servers": self.bootstrap}).list_topics(timeout=20).cluster_id

    def make_topic(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        next(iter(admin.create_topics([NewTopic(TOPIC, 1)]).values())).result(20)

    def topics(self) -> set[str]:
        return set(AdminClient({"bootstrap.servers": self.bootstrap}).list_topics(timeout=20).topics)


@pytest.fixture
def address(tmp_path):
    found = Address(tmp_path / "brokers")
    yield found
    found.owner(None)


@pytest.fixture
def agent(tmp_path):
    agents = []

    def make(bootstrap, topic=TOPIC, **options):
        agents.append(AgentProcess(tmp_path / f"agent{len(agents)}", bootstrap, topic, **options))
        return agents[-1]

    yield make
    for each in agents:
        each.close()


@pytest.mark.parametrize("killed", [False, True], ids=["running", "killed"])
@pytest.mark.parametrize("spool", ["", "[spool]\n"], ids=["files", "spool"])
def test_another_cluster_at_the_address_gets_nothing(agent, address, killed, spool):
    address.owner("ours")
    ours = address.cluster_id
    a = agent(address.bootstrap, more=spool)
    path = a.folder / "logs/x.log"
    a.start()
    expected = lines(path, 0, 500)
    a.caught_up()
    assert a.status()["cluster_id"] == ours

    address.owner(None)
    expected |= lines(path, 500, 500)
    if killed:
        a.kill()
    address.owner("theirs")
    theirs = address.cluster_id
    if killed:
        a.start()
    expected |= lines(path, 1000, 500)
    which = f"{address.bootstrap}: its broker is of cluster {theirs}, not of {ours}"
    said = f"cluster {ours}: no broker can be reached ({which})"
    wait_until(lambda: a.status().get("waiting_for") == said, f"{a.status()} to say {said}")
    assert TOPIC not in address.topics()
    assert f'set cluster_id = "{theirs}" in agent.toml' in a.log

    address.owner("ours")
    a.caught_up()
    wait_until(lambda: not a.status()["spool_records"], "the spool to be delivered")
    assert a.stop() == 0
    assert arrived(address.bootstrap, TOPIC) == Counter(expected)
    assert a.status()["unproved"] == 0


def test_the_named_cluster_takes_its_place(agent, address):
    """Lines on their way to the cluster before are sent to the new one, although other producers have the same id there."""
    address.owner("ours")
    address.make_topic()
    a = agent(address.bootstrap)
    path = a.folder / "logs/x.log"
    a.start()
    expected = lines(path, 0, 500)
    a.caught_up()
    before = arrived(address.bootstrap, TOPIC)
    address.broker.freeze()
    expected |= lines(path, 500, 500)
    wait_until(lambda: a.status()["lag_bytes"] and a.status()["queued_bytes"], "lines on their way")
    a.kill()

    address.owner("theirs")
    theirs = address.cluster_id
    address.make_topic()
    # Ids of producers begin anew in each cluster: these have the agent's, and further sequence numbers
    for _ in range(4):
        other = Producer({"bootstrap.servers": address.bootstrap, "enable.idempotence": True, "linger.ms": 0})
        for i in range(1500):
            other.produce(TOPIC, f"other-{i} ")
        assert other.flush(30) == 0
    a.start()
    wait_until(lambda: "cluster " in a.status().get("waiting_for", ""), "the agent to wait")
    a.kill()
    a.config.write_text(f'cluster_id = "{theirs}"\n{a.config.read_text()}')
    a.start()
    a.caught_up()
    assert a.stop() == 0
    found = {line: n for line, n in arrived(address.bootstrap, TOPIC).items() if line.startswith("x-")}
    assert expected - found.keys() - before.keys() == set()
    assert a.status()["cluster_id"] == theirs
    assert a.status()["unproved"] > 0, "the cluster before may have them"
    assert json.loads((a.state / "cluster.json").read_text())["cluster_id"] == theirs


def test_other_bootstrap_servers_name_another_cluster(agent, broker, tmp_path):
    topic = new_topic(broker)
    with EmbeddedBroker(tmp_path / "first") as first:
        a = agent(first.bootstrap, topic)
        lines(a.folder / "logs/x.log", 0, 10)
        a.start()
        a.caught_up()
        a.stop()
    a.config.write_text(a.config.read_text().replace(first.bootstrap, broker.bootstrap))
    expected = lines(a.folder / "logs/x.log", 10, 10)
    a.start()
    a.caught_up()
    assert a.stop() == 0
    assert arrived(broker.bootstrap, topic) == Counter(expected)


def test_any_cluster_will_do_when_the_settings_say_so(agent, address):
    address.owner("ours")
    a = agent(address.bootstrap, top='cluster_id = "any"')
    a.start()
    lines(a.folder / "logs/x.log", 0, 10)
    a.caught_up()
    address.owner("theirs")
    expected = lines(a.folder / "logs/x.log", 10, 10)
    a.caught_up()
    assert a.stop() == 0
    assert arrived(address.bootstrap, TOPIC) == Counter(expected)


def test_a_named_cluster_is_the_only_one_from_the_start(agent, broker):
    topic = new_topic(broker)
    a = agent(broker.bootstrap, topic, top='cluster_id = "not-there"')
    lines(a.folder / "logs/x.log", 0, 10)
    a.start()
    wait_until(
        lambda: a.status().get("waiting_for", "").startswith("cluster not-there: "), "the agent to wait"
    )
    assert not arrived(broker.bootstrap, topic)
    assert not (a.state / "cluster.json").exists()
    a.kill()


def test_a_damaged_note_of_the_cluster_is_said(agent, broker):
    a = agent(broker.bootstrap)
    a.state.mkdir()
    (a.state / "cluster.json").write_text("{")
    a.start(wait=False)
    assert a.process.wait(30) == 1
    assert f"{a.state / 'cluster.json'} is damaged" in a.log
