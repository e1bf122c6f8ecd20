"""The runbook, command by command: applications in Python and Java move, lose their cluster, and return. Nothing is lost or comes twice."""

from __future__ import annotations

import re
import shlex
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient
from support import kafka_oracle
from support.broker import new_topic, wait_until
from support.circles import end
from support.kafka_broker import KafkaBroker
from support.kafka_tools import KafkaTools
from support.klamm import KLAMM, Server, klamm
from support.mirror import committed, mirror_file, produce, read_as, status

from klamm.testing import EmbeddedBroker

pytestmark = pytest.mark.usefixtures("apache_kafka")

RUNBOOK = Path(__file__).parents[2] / "docs" / "runbook.md"
ORDERS, PAYMENTS = "orders", "payments"
BILLING, AUDIT = "billing", "audit"


def commands(chapter: str) -> list[list[str]]:
    """The commands of a chapter of the runbook, as words."""
    text = RUNBOOK.read_text().split(f"\n## {chapter}\n")[1].split("\n## ")[0]
    return [shlex.split(line)[1:] for line in re.findall(r"^    (klamm mirror .*)$", text, re.MULTILINE)]


class Cluster:
    """A cluster of ours or Apache's, that may be killed and started again."""

    def __init__(self, kind: str, folder: Path, stack: ExitStack) -> None:
        folder.mkdir()
        self.broker: Any = KafkaBroker(folder) if kind == "apache" else EmbeddedBroker(folder / "data")
        stack.enter_context(self.broker)
        self.bootstrap: str = self.broker.address if kind == "apache" else self.broker.bootstrap


class World:
    """Two clusters, the mirror's file, and applications: orders and billing in Python, payments and audit in Java."""

    def __init__(self, folder: Path, kinds: str, tools: KafkaTools, stack: ExitStack) -> None:
        self.folder, self.tools = folder, tools
        first, second = kinds.split("-")
        self.a, self.b = (
            Cluster(kind, folder / alias, stack) for kind, alias in ((first, "a"), (second, "b"))
        )
        self.written: dict[str, list[str]] = {ORDERS: [], PAYMENTS: []}
        self.read: dict[str, list[str]] = {BILLING: [], AUDIT: []}
        for topic in (ORDERS, PAYMENTS):
            new_topic(self.a, name=topic)
        settings = {
            "A->B.enabled": "true", "B->A.enabled": "true", "topics": f"{ORDERS},{PAYMENTS}",
            "replication.policy.class": "IdentityReplicationPolicy",
        }  # fmt: skip
        clusters = {"A": self.a.bootstrap, "B": self.b.bootstrap}
        self.file = mirror_file(folder / "mm2.properties", clusters, settings)

    def command(self, words: list[str], *more: str) -> str:
        """Runs a command of the runbook where the file is."""
        done = klamm(*words, *more, cwd=self.folder, timeout_s=300)
        assert done.returncode == 0, f"{words}: exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr

    # ---- applications

    def write(self, cluster: Cluster, tag: str, count: int, *topics: str) -> None:
        for topic in topics or (ORDERS, PAYMENTS):
            values = [f"{topic}-{tag}-{i}" for i in range(count)]
            if topic == ORDERS:
                produce(cluster.bootstrap, topic, values)
            else:
                flags = ("--bootstrap-server", cluster.bootstrap, "--topic", topic)
                self.tools.run("kafka-console-producer", *flags, stdin="\n".join(values) + "\n").ok()
            self.written[topic] += values

    def read_some(self, cluster: Cluster, count: int) -> None:
        """Reads so many records with each group, and stops."""
        self.read[BILLING] += read_as(cluster.bootstrap, BILLING, ORDERS, lambda v: len(v) >= count)
        self._read_java(cluster, count)

    def _read_java(self, cluster: Cluster, count: int) -> None:
        flags = ["--bootstrap-server", cluster.bootstrap, "--topic", PAYMENTS, "--group", AUDIT]
        flags += ["--from-beginning", "--max-messages", str(count), "--timeout-ms", "60000"]
        self.read[AUDIT] += self.tools.run("kafka-console-consumer", *flags, timeout_s=120).lines

    def read_rest(self, cluster: Cluster) -> None:
        """Reads with each group what is there, and stops."""
        left = len(self.written[ORDERS]) - len(self.read[BILLING])
        self.read[BILLING] += read_as(cluster.bootstrap, BILLING, ORDERS, lambda v: len(v) >= left)
        self._read_java(cluster, len(self.written[PAYMENTS]) - len(self.read[AUDIT]))

    def exact(self) -> None:
        """Asserts that each group has read each record once."""
        for topic, group in ((ORDERS, BILLING), (PAYMENTS, AUDIT)):
            got, wanted = Counter(self.read[group]), Counter(self.written[topic])
            assert not wanted - got, f"{group} lost {list((wanted - got).elements())[:5]}"
            assert not got - wanted, f"{group} read twice {list((got - wanted).elements())[:5]}"

    def wait_even(self) -> None:
        """Waits until both clusters have all records, and B knows the groups' offsets."""

        def even() -> bool:
            places = [(c.bootstrap, t) for c in (self.a, self.b) for t in self.written]
            return all(end(servers, topic) == len(self.written[topic]) for servers, topic in places)

        wait_until(even, "both have everything", timeout_s=120)


class Member:
    """A member of billing at a cluster, which reads in a thread until it is stopped."""

    def __init__(self, world: World, cluster: Cluster) -> None:
        self._consumer = Consumer(
            {"bootstrap.servers": cluster.bootstrap, "group.id": BILLING, "enable.auto.commit": False,
             "auto.offset.reset": "earliest"}
        )  # fmt: skip
        self._stop = threading.Event()
        self._seen = world.read[BILLING]
        self._consumer.subscribe([ORDERS])
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            message = self._consumer.poll(0.1)
            if message is not None and message.error() is None:
                self._seen.append((message.value() or b"").decode())
                self._consumer.commit(message, asynchronous=False)
        self._consumer.close()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(60)


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaTools]:
    found = KafkaTools(kafka_oracle.require(), tmp_path_factory.mktemp("tools"))
    yield found
    found.close()


@pytest.mark.parametrize("kinds", ["klamm-apache", "apache-klamm"])
def test_applications_move_lose_their_cluster_and_return(tmp_path, tools, kinds):
    with ExitStack() as stack:
        world = World(tmp_path, kinds, tools, stack)
        world.write(world.a, "first", 200)
        world.read_some(world.a, 120)
        mirror = stack.enter_context(Server("mirror", "start", str(world.file), timeout_s=150))
        wait_until(lambda: end(world.b.bootstrap, ORDERS) == 200, "a copy")
        admin = AdminClient({"bootstrap.servers": world.b.bootstrap})
        wait_until(lambda: "A.heartbeats" in admin.list_topics(timeout=30).topics, "the heartbeats' copy")
        _planned_moves(world)
        _lose(world)
        _return(world)
        world.exact()
        assert mirror.process.poll() is None


def _planned_moves(world: World) -> None:
    for words in commands("A planned move"):
        said = world.command(words)
    assert f"start at B, {world.b.bootstrap}" in said
    world.write(world.b, "moved", 50)
    world.read_rest(world.b)
    world.exact()
    world.command(["mirror", "cutover", "mm2.properties", "B->A"])
    world.write(world.a, "back", 50)
    world.read_rest(world.a)
    world.exact()


def _lose(world: World) -> None:
    world.wait_even()
    for topic, group in ((ORDERS, BILLING), (PAYMENTS, AUDIT)):
        count = len(world.written[topic])
        wait_until(_at(world.b, group, topic, count), f"{group}'s offset at B")
    world.command(["mirror", "pause", "mm2.properties", "A->B", ORDERS])
    wait_until(lambda: _copied_topics(world) == {PAYMENTS}, "orders is paused")
    world.write(world.a, "late", 20, ORDERS)
    world.a.broker.kill()
    world.command(["mirror", "resume", "mm2.properties", "A->B", ORDERS])
    for words in commands("The cluster is lost"):
        said = world.command(words)
    assert f"start at B, {world.b.bootstrap}" in said
    world.write(world.b, "lost", 30)
    late = [v for v in world.written[ORDERS] if "late" in v]
    world.written[ORDERS] = [v for v in world.written[ORDERS] if v not in late]
    world.read_rest(world.b)
    world.exact()
    world.written[ORDERS] += late


def _copied_topics(world: World) -> set[str]:
    partitions = status(world.file)["A->B"]["partitions"]
    return {p["topic"] for p in partitions} & set(world.written)


def _at(cluster: Cluster, group: str, topic: str, offset: int) -> Callable[[], bool]:
    return lambda: committed(cluster.bootstrap, group, topic) == offset


def _return(world: World) -> None:
    world.a.broker.start()
    wait_until(
        lambda: end(world.a.bootstrap, PAYMENTS) == len(world.written[PAYMENTS]),
        "B's records at A",
        timeout_s=120,
    )
    dry, back = [words for words in commands("Back to the cluster") if "failback" in words]
    assert "orders-late-4" in world.command(dry)
    member = Member(world, world.b)
    try:
        command = [str(KLAMM), *back]
        with subprocess.Popen(command, cwd=world.folder, stdout=subprocess.PIPE, text=True) as moving:
            wait_until(
                lambda: len(world.read[BILLING]) == len(world.written[ORDERS]), "the late records at B"
            )
            member.stop()
            said, _ = moving.communicate(timeout=300)
            assert moving.returncode == 0
    finally:
        member.stop()
    assert f"start at A, {world.a.bootstrap}" in said
    world.write(world.a, "again", 10)
    world.read_rest(world.a)
    world.wait_even()
