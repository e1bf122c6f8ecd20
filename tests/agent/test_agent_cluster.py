"""The agent stays with its cluster: a broker of another one at the same address gets nothing."""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path

import pytest
from agent.harness import AgentProcess, arrived
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from support.broker import new_topic, wait_until
from support.connect_worker import free_port

from klamm.testing import EmbeddedBroker
from klamm_agent.config.agent import AgentConfig
from klamm_agent.state.home import Home
from klamm_agent.state.registry import StateDir
from klamm_kafka.client import AnotherCluster, OneCluster
from klamm_kafka.wire.messages.metadata import MetadataRequest, MetadataResponse
from klamm_kafka.wire.struct import Message

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


def others_produce(bootstrap: str, count: int, *, together: bool = False) -> None:
    """Several producers write. Ids of producers begin anew in each cluster: one of them has the agent's."""
    for _ in range(4):
        other = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 0})
        for i in range(count):
            other.produce(TOPIC, f"other-{i} ")
            assert together or other.flush(30) == 0
        assert other.flush(30) == 0


@pytest.fixture
def address(tmp_path):
    found = Address(tmp_path / "brokers")
    yield found
    found.owner(None)


@pytest.mark.parametrize("killed", [False, True], ids=["running", "killed"])
@pytest.mark.parametrize("spool", ["", "[spool]\n"], ids=["files", "spool"])
def test_another_cluster_at_the_address_gets_nothing(agent, address, killed, spool):
    address.owner("ours")
    ours = address.cluster_id
    a = agent(address.bootstrap, TOPIC, more=spool)
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
    a = agent(address.bootstrap, TOPIC)
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
    others_produce(address.bootstrap, 1500, together=True)
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


@pytest.fixture
def two(tmp_path):
    brokers = [EmbeddedBroker(tmp_path / name).start() for name in ("A", "B")]
    yield brokers
    for each in brokers:
        each.kill()


def to(a: AgentProcess, old: EmbeddedBroker, new: EmbeddedBroker) -> None:
    a.config.write_text(a.config.read_text().replace(old.bootstrap, new.bootstrap))
    a.start()


@pytest.mark.parametrize("checkpoint_ms", [200, 60_000])
def test_a_cluster_is_not_asked_about_what_went_to_another(agent, two, checkpoint_ms):
    """From A to B, killed there with lines in flight, and back to A, which has given the agent's id at B to a producer of its own."""
    first, second = two
    topic = new_topic(first)
    new_topic(second, name=topic)
    a = agent(first.bootstrap, topic)
    a.config.write_text(a.config.read_text().replace("_ms = 200", f"_ms = {checkpoint_ms}"))
    path = a.folder / "logs/x.log"
    a.start()
    expected = lines(path, 0, 500)
    a.caught_up()
    assert a.stop() == 0
    lines(path, 500, 10)
    to(a, first, second)
    a.caught_up()
    second.freeze()
    expected |= lines(path, 510, 100)
    wait_until(lambda: a.status()["queued_bytes"], "lines on their way")
    a.kill()
    to(a, second, first)
    a.caught_up()
    assert a.stop() == 0
    assert arrived(first.bootstrap, topic) == Counter(expected)
    assert a.status()["unproved"] == 100


@pytest.mark.parametrize("version", range(MetadataRequest.MIN_VERSION, MetadataRequest.MAX_VERSION + 1))
async def test_brokers_of_all_releases_are_asked(version):
    """Old ones do not name their cluster: they count as another, once it is known which is ours."""

    class Answers:
        async def request(self, message: Message) -> MetadataResponse:
            sent = message.encode(version)
            assert MetadataRequest.decode(sent, version)[0].topics == []
            return MetadataResponse(cluster_id="ours" if version >= 2 else None)

    learned = []
    one = OneCluster(learned=lambda: learned.append(1))
    await one.check(Answers(), "host:1")
    assert (one.found, len(learned)) == ("ours" if version >= 2 else None, 1)
    stays = OneCluster("ours")
    if version >= 2:
        await stays.check(Answers(), "host:1")
        with pytest.raises(AnotherCluster, match="host:1: its broker is of cluster ours, not of theirs"):
            await OneCluster("theirs").check(Answers(), "host:1")
    else:
        with pytest.raises(
            AnotherCluster, match="host:1: its broker does not say that it is of cluster ours"
        ):
            await stays.check(Answers(), "host:1")


def test_a_cluster_may_get_its_name_late():
    one = OneCluster()
    one.heard(MetadataResponse(cluster_id=None))
    assert one.cluster_id is None
    one.heard(MetadataResponse(cluster_id="ours"))
    one.heard(MetadataResponse(cluster_id="theirs"))
    assert one.cluster_id == "ours"


@pytest.mark.parametrize(
    ("servers", "stays"),
    [
        ("a:1", True),
        ("b:1, a:1 ", True),
        ("b:1", False),
        ("a:2", False),
    ],
)
def test_other_servers_are_those_without_one_of_before(tmp_path, servers, stays):
    state = StateDir(tmp_path)
    state.save_cluster("ours", "a:1,c:3")
    config = AgentConfig(bootstrap_servers=servers, state_dir=tmp_path, inputs=())
    assert Home(state, config, pytest.fail).one.cluster_id == ("ours" if stays else None)
    state.close()


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
    a = agent(address.bootstrap, TOPIC, top='cluster_id = "any"')
    a.start()
    lines(a.folder / "logs/x.log", 0, 10)
    a.caught_up()
    address.owner("theirs")
    expected = lines(a.folder / "logs/x.log", 10, 10)
    a.caught_up()
    assert a.stop() == 0
    assert arrived(address.bootstrap, TOPIC) == Counter(expected)


@pytest.mark.parametrize("before", [0, 3])
def test_any_cluster_numbers_its_own_producers(agent, address, before):
    """Lines are not taken for those of another producer, which has the agent's id and last sequence number there."""
    address.owner("ours")
    address.make_topic()
    a = agent(address.bootstrap, TOPIC, top='cluster_id = "any"')
    path = a.folder / "logs/x.log"
    lines(path, 0, 0)
    a.start()
    a.begun()
    wait_until(lambda: a.status()["cluster_id"] == address.cluster_id, "the agent to meet the cluster")
    time.sleep(0.5)  # it has a producer by then
    for i in range(before):
        lines(path, i, 1)
        a.caught_up()
    address.owner("theirs")
    address.make_topic()
    others_produce(address.bootstrap, before + 1)
    expected = lines(path, before, 1)
    a.caught_up()
    assert a.stop() == 0
    found = arrived(address.bootstrap, TOPIC)
    assert {line for line in found if line.startswith("x-")} == expected


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
    a = agent(broker.bootstrap, TOPIC)
    a.state.mkdir()
    (a.state / "cluster.json").write_text("{")
    a.start(wait=False)
    assert a.process.wait(30) == 1
    assert f"{a.state / 'cluster.json'} is damaged" in a.log
