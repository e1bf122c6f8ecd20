"""`klamm mirror failover`: the source is lost, and applications go on at the target with what was copied."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.broker import new_name, new_topic, wait_until
from support.circles import end
from support.gaps import delete
from support.klamm import Server, klamm
from support.mirror import committed, produce, read_as, status
from support.moves import IDENTITY, Mover

from klamm.testing import EmbeddedBroker
from klamm_mirror.move.steps import Step

pytestmark = pytest.mark.usefixtures("processes")


def values(first: int, count: int) -> list[str]:
    return [f"v{i}" for i in range(first, first + count)]


class World:
    """A topic with 1000 records at A, a group that has read some of them, and its checkpoint at B."""

    def __init__(self, folder, source: EmbeddedBroker, target, **settings: str) -> None:
        self.source, self.target, self.a, self.b = source, target, source.bootstrap, target.bootstrap
        self.topic, self.group = new_topic(source), new_name("group")
        clusters = {new_name("a"): self.a, new_name("b"): self.b}
        self.mover = Mover(folder, clusters, self.topic, self.group, **settings)
        self.checkpoints = f"{self.mover.aliases[0]}.checkpoints.internal"
        produce(self.a, self.topic, values(0, 1000))
        self.read_before = read_as(self.a, self.group, self.topic, lambda v: len(v) >= 300)

    def copied(self) -> None:
        """Waits until B has the records, and the group's checkpoint, and the flow has committed."""

        def place() -> bool:
            [partition] = status(self.mover.path)[self.mover.there]["partitions"] or [{"lag": None}]
            return partition["lag"] == 0

        wait_until(place, "all is copied")
        wait_until(lambda: end(self.b, self.checkpoints) >= 1, "the group's checkpoint")
        wait_until(lambda: self.mover.run_offsets()[0]["lag"] == 0, "all is committed")

    def why(self) -> str:
        return status(self.mover.path)[self.mover.there]["why"] or ""


@pytest.fixture
def source(processes, tmp_path) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(tmp_path / "lost") as running:
        yield running


@pytest.fixture
def world(tmp_path, source, target) -> World:
    return World(tmp_path, source, target, **IDENTITY)


def test_a_group_goes_on_with_what_was_copied(world):
    with Server("mirror", "start", str(world.mover.path)):
        world.copied()
        assert "cutover" in world.mover.run("failover", code=1), "A answers"
        world.source.kill()
        dry = world.mover.run("failover", "--dry-run")
        assert committed(world.b, world.group, world.topic) < 0
        found = world.mover.run("failover")
        assert status(world.mover.path)[world.mover.there]["state"] == "STOPPED"
    [loss] = found["steps"]["loss"]["found"]["partitions"]
    assert (loss["copied"], loss["end"], loss["records"]) == (1000, 1000, 0)
    assert loss["seconds"] is not None
    assert dry["steps"]["loss"]["partitions"][0]["copied"] == 1000
    assert found["steps"]["tell"]["found"]["bootstrap"] == world.b
    produce(world.b, world.topic, values(1000, 100))
    rest = read_as(world.b, world.group, world.topic, lambda v: len(v) >= 1100 - len(world.read_before))
    assert [*world.read_before, *rest] == values(0, 1100)
    assert "have read on" in world.mover.run("failover", "--undo", code=1)


def test_what_nobody_knows_is_said(world):
    with Server("mirror", "start", str(world.mover.path)):
        world.copied()
    produce(world.a, world.topic, values(1000, 7))
    world.source.kill()
    shown = klamm("mirror", "failover", str(world.mover.path), world.mover.there, "--dry-run")
    assert "nothing is known of 1 partition" in shown.stdout
    assert "unknown" in shown.stdout
    [loss] = world.mover.run("failover")["steps"]["loss"]["found"]["partitions"]
    assert (loss["copied"], loss["records"], loss["seconds"]) == (1000, None, None)
    assert loss["newest_ms"] > 0


def test_a_copy_that_was_deleted_counts_as_not_copied(world):
    with Server("mirror", "start", str(world.mover.path)):
        world.copied()
    world.source.kill()
    delete(world.b, world.topic)
    new_topic(world.target, name=world.topic)
    [loss] = world.mover.run("failover", "--dry-run")["steps"]["loss"]["partitions"]
    assert (loss["copied"], loss["end"], loss["records"]) == (0, 1000, 1000)


def test_a_killed_command_goes_on_and_is_undone(world):
    """The flow is held while nothing runs it, and stays so when it starts."""
    with Server("mirror", "start", str(world.mover.path)):
        world.copied()
    world.source.kill()
    for step in (Step.CHECK, Step.HOLD, Step.GROUPS, Step.TELL):
        world.mover.killed_at(step, "failover")
        world.mover.run("failover")
        assert committed(world.b, world.group, world.topic) == len(world.read_before)
        if step is not Step.TELL:
            world.mover.run("failover", "--undo")
            assert committed(world.b, world.group, world.topic) < 0
    world.source.start()
    produce(world.a, world.topic, ["more"])
    with Server("mirror", "start", str(world.mover.path)):
        assert status(world.mover.path)[world.mover.there]["state"] == "STOPPED"
        wait_until(lambda: "holds it: klamm mirror failback" in world.why(), "the reason in the status")
        assert "is stopped: the failover of" in world.mover.run("cutover", code=1)
        assert world.mover.run_offsets()[0]["lag"] == 1
        world.mover.run("failover", "--undo")
        wait_until(lambda: world.mover.run_offsets()[0]["lag"] == 0, "the flow goes on")


def test_copies_that_keep_offsets_are_promoted(tmp_path, source, target):
    world = World(tmp_path, source, target, **IDENTITY, **{"mirror.keep.offsets": "true"})
    with Server("mirror", "start", str(world.mover.path)):
        wait_until(lambda: end(world.b, world.topic) == 1000, "all is copied")
        wait_until(lambda: end(world.b, world.checkpoints) >= 1, "the group's checkpoint")
        wait_until(world.mover.run_offsets, "a committed offset")
        world.source.kill()
        found = world.mover.run("failover")
        assert found["steps"]["loss"]["found"]["partitions"][0]["copied"] == 1000
        produce(world.b, world.topic, values(1000, 100))
    rest = read_as(world.b, world.group, world.topic, lambda v: len(v) >= 1100 - len(world.read_before))
    assert [*world.read_before, *rest] == values(0, 1100)


def test_a_command_that_is_given_again_looks_whether_the_source_is_back(world):
    with Server("mirror", "start", str(world.mover.path)):
        world.copied()
        world.source.kill()
        world.mover.killed_at(Step.HOLD, "failover")
        world.mover.killed_at(Step.GROUPS, "failover")
        world.source.start()
        assert "--undo ends this failover" in world.mover.run("failover", code=1)
        assert committed(world.b, world.group, world.topic) < 0
        world.mover.run("failover", "--undo")
        produce(world.a, world.topic, ["more"])
        wait_until(lambda: world.mover.run_offsets()[0]["lag"] == 0, "the flow goes on")


def test_a_move_that_is_done_is_shown_and_an_undo_knows_what_was_there_before_the_first(world):
    with Server("mirror", "start", str(world.mover.path)):
        world.copied()
    world.source.kill()
    first = world.mover.run("failover")
    shown = world.mover.run("failover")
    assert (shown["phase"], shown["id"], shown["began"]) == ("done", first["id"], first["began"])
    world.mover.run("failover", "--restart")
    world.mover.run("failover", "--undo")
    assert committed(world.b, world.group, world.topic) < 0
    world.mover.run("failover")
    produce(world.b, world.topic, ["new"])
    world.mover.run("failover", "--restart")
    assert "records of its own" in world.mover.run("failover", "--undo", code=1)
