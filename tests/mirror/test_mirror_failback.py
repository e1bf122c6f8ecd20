"""`klamm mirror failback`: a lost cluster is back, and the applications return to it."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from support.broker import new_name, wait_until
from support.circles import end, topic_at
from support.klamm import Server, klamm
from support.mirror import produce, read_all, read_as, status
from support.moves import IDENTITY, Mover

from klamm.mirror import flow_hold, orders
from klamm.mirror.places import place_of
from klamm.testing import EmbeddedBroker

pytestmark = pytest.mark.usefixtures("processes")


def values(tag: str, count: int) -> list[str]:
    return [f"{tag}{i}" for i in range(count)]


@pytest.fixture
def source(processes, tmp_path) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(tmp_path / "lost") as running:
        yield running


class World:
    """A was lost with 20 records that were not copied, applications went to B, and A is back."""

    def __init__(self, folder, source: EmbeddedBroker, target, settings: dict[str, str]) -> None:
        self.a, self.b, self.group = source.bootstrap, target.bootstrap, new_name("group")
        self.topic = topic_at({"A": self.a, "B": self.b})
        clusters = {new_name("a"): self.a, new_name("b"): self.b}
        self.mover = Mover(folder, clusters, self.topic, self.group, **settings)
        back = {f"{self.mover.back}.enabled": "true"}
        self.mover.path.write_text(
            self.mover.path.read_text() + "".join(f"{k}={v}\n" for k, v in back.items())
        )
        identity = IDENTITY.items() <= settings.items()
        self.remote = self.topic if identity else f"{self.mover.aliases[0]}.{self.topic}"
        produce(self.a, self.topic, values("a", 500))
        self.seen = read_as(self.a, self.group, self.topic, lambda v: len(v) >= 500)
        with Server("mirror", "start", str(self.mover.path)):
            checkpoints = f"{self.mover.aliases[0]}.checkpoints.internal"
            wait_until(lambda: end(self.b, checkpoints) >= 1, "the group's checkpoint")
            wait_until(self.all_copied, "all is copied")
        produce(self.a, self.topic, values("late", 20))
        source.kill()
        self.mover.run("failover")
        produce(self.b, self.topic, values("b", 100))
        # Under the default policy, a group reads both names; here the records of B alone are new
        self.seen += read_as(self.b, self.group, self.topic, lambda v: len(v) >= 100)
        source.start()

    def all_copied(self) -> bool:
        return all(row["lag"] == 0 for row in self.mover.run_offsets())

    def failback(self, *args: str, code: int = 0):
        return self.mover.run("failback", "--quiet", "0.5", *args, flow=self.mover.back, code=code)


def test_what_only_the_lost_cluster_has_is_copied(tmp_path, source, target):
    world = World(tmp_path, source, target, IDENTITY)
    with Server("mirror", "start", str(world.mover.path)):
        assert status(world.mover.path)[world.mover.there]["state"] == "STOPPED"
        wait_until(lambda: end(world.a, world.topic) == 620, "B's records at A")
        assert "did not copy all that" in world.mover.run("cutover", flow=world.mover.back, code=1)
        dry = world.failback("--dry-run", "--show", "2")
        [tail] = dry["steps"]["diverged"]["diverged"]
        assert (tail["start"], tail["records"], tail["lost"]) == (500, 20, 0)
        assert [row["value"] for row in tail["shown"]] == ["late0", "late1"]
        assert dry["steps"]["diverged"]["own"][0]["records"] == 100
        assert "20 records" in world.failback(code=1)
        shown = klamm(
            "mirror", "failback", str(world.mover.path), world.mover.back, "--dry-run", "--quiet", "0.2"
        )
        assert "20 records only" in shown.stdout
        world.mover.killed_at(
            "settle", "failback", "--quiet", "0.5", "--diverged", "copy", flow=world.mover.back
        )
        # The group reads what came late, at B, before it goes back; then the move is given again
        world.mover.killed_at(
            "quiet", "failback", "--quiet", "0.5", "--diverged", "copy", flow=world.mover.back
        )
        world.seen += read_as(world.b, world.group, world.topic, lambda v: len(v) >= 20)
        world.mover.killed_at(
            "groups", "failback", "--quiet", "0.5", "--diverged", "copy", flow=world.mover.back
        )
        found = world.failback("--diverged", "copy")
        assert found["steps"]["settle"]["found"]["records"] == 20
        assert found["steps"]["tell"]["found"]["bootstrap"] == world.a
        produce(world.a, world.topic, values("again", 10))
        world.seen += read_as(world.a, world.group, world.topic, lambda v: len(v) >= 10)
        everything = [*values("a", 500), *values("b", 100), *values("late", 20), *values("again", 10)]
        assert world.seen == everything
        for servers in (world.a, world.b):
            wait_until(lambda servers=servers: end(servers, world.topic) == 630, "the same records at both")
            assert sorted(read_all(servers, world.topic, lambda v: len(v) >= 630)) == sorted(everything)


def test_what_only_the_lost_cluster_has_is_exported(tmp_path, source, target):
    world = World(tmp_path, source, target, IDENTITY)
    file = tmp_path / "late.jsonl"
    with Server("mirror", "start", str(world.mover.path)):
        wait_until(lambda: end(world.a, world.topic) == 620, "B's records at A")
        world.failback("--diverged", "export", code=2)
        writer = Producer({"bootstrap.servers": world.a, "transactional.id": new_name("open")})
        writer.init_transactions()
        writer.begin_transaction()
        writer.produce(world.topic, b"aborted")
        writer.flush()
        assert "has open transactions" in world.failback("--timeout", "1", code=4)
        writer.abort_transaction()
        args = ("--quiet", "0.5", "--diverged", "export", "--export", str(file))
        for step in ("diverged", "settle", "verify"):
            world.mover.killed_at(step, "failback", *args, flow=world.mover.back)
        assert "is not undone" in world.failback("--undo", code=1)
        assert "export is decided" in world.failback("--diverged", "copy", code=1)
        found = world.failback("--diverged", "export", "--export", str(file))
        assert found["phase"] == "done"
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        assert [base64.b64decode(row["value"]).decode() for row in rows] == values("late", 20)
        produce(world.a, world.topic, values("again", 10))
        world.seen += read_as(world.a, world.group, world.topic, lambda v: len(v) >= 10)
        assert world.seen == [*values("a", 500), *values("b", 100), *values("again", 10)]
        wait_until(lambda: end(world.b, world.topic) == 610, "new records of A at B, without those")
        assert world.failback()["id"] == found["id"]
        assert "is not held" in world.failback("--restart", code=1)
        world.mover.run("cutover", "--quiet", "0.5")
        # Somebody stops the flow, and the failover before has no part in it
        asyncio.run(orders.give(place_of(world.mover.path, world.mover.there).orders, flow_hold.HOLD, None))
        assert "resume its connectors" in world.mover.run("cutover", "--restart", code=1)


def test_names_of_the_default_policy(tmp_path, source, target):
    world = World(tmp_path, source, target, {})
    with Server("mirror", "start", str(world.mover.path)):
        mirrored = f"{world.mover.aliases[1]}.{world.topic}"
        wait_until(lambda: end(world.a, mirrored) == 100, "B's records at A")
        found = world.failback("--diverged", "copy")
        assert found["steps"]["verify"]["found"]["records"] == 100
        names = found["steps"]["tell"]["found"]["topics"]
        assert {"topic": world.topic, "target_topic": mirrored} in names
        assert end(world.b, world.remote) == 520
