"""`klamm mirror cutover`: applications move while both clusters are there, and nothing is lost or comes twice."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer, Producer
from support.broker import new_name, new_topic, wait_until
from support.circles import end
from support.gaps import delete, make
from support.klamm import Server, klamm
from support.mirror import committed, produce, read_as
from support.moves import IDENTITY, Mover

from klamm_kafka.client import Cluster, ConnectionLost
from klamm_mirror.move.journal import Journal, Overtaken
from klamm_mirror.move.steps import PLANS, Kind, Move, Step, begun
from klamm_mirror.topics import internal_topics

pytestmark = pytest.mark.usefixtures("processes")


def values(first: int, count: int) -> list[str]:
    return [f"v{i}" for i in range(first, first + count)]


class World:
    """A topic at A with records, a group that has read some of them, and a running mirror."""

    def __init__(self, folder, source, target, **settings) -> None:
        self.a, self.b = source.bootstrap, target.bootstrap
        self.topic, self.group = new_topic(source), new_name("group")
        self.mover = Mover(
            folder, {new_name("a"): self.a, new_name("b"): self.b}, self.topic, self.group, **settings
        )
        produce(self.a, self.topic, values(0, 1000))
        self.read_before = read_as(self.a, self.group, self.topic, lambda v: len(v) >= 300)


@pytest.fixture
def world(tmp_path, source, target):
    return World(tmp_path, source, target, **IDENTITY)


def test_a_group_reads_each_record_once(world):
    with Server("mirror", "start", str(world.mover.path)):
        found = world.mover.run("cutover", "--quiet", "0.5")
    assert found["phase"] == "done"
    assert found["steps"]["verify"]["found"]["records"] == 1000
    [place] = found["steps"]["groups"]["found"]["places"]
    assert (place["offset"], place["target_offset"], place["exact"]) == (len(world.read_before),) * 2 + (
        True,
    )
    assert found["steps"]["tell"]["found"]["bootstrap"] == world.b
    produce(world.b, world.topic, values(1000, 100))
    rest = read_as(world.b, world.group, world.topic, lambda v: len(v) >= 1100 - len(world.read_before))
    assert [*world.read_before, *rest] == values(0, 1100)


def test_a_dry_run_changes_nothing(world):
    with Server("mirror", "start", str(world.mover.path)):
        found = world.mover.run("cutover", "--quiet", "0.5", "--dry-run")
        shown = klamm(
            "mirror", "cutover", str(world.mover.path), world.mover.there, "--quiet", "0.5", "--dry-run"
        )
    assert found["dry_run"]
    assert found["steps"]["quiet"] == {"topics_written_to": [], "groups_with_members": []}
    assert "an undo goes without --dry-run" in world.mover.run("cutover", "--undo", "--dry-run", code=2)
    assert "nothing is changed" in shown.stdout
    assert committed(world.b, world.group, world.topic) < 0


def test_members_and_writers_are_named_and_waited_for(world):
    member = Consumer({"bootstrap.servers": world.a, "group.id": world.group})
    with Server("mirror", "start", str(world.mover.path)):
        member.subscribe([world.topic])
        wait_until(lambda: member.poll(0.1) or member.assignment(), "membership")
        try:
            said = world.mover.run("cutover", "--quiet", "0.5", "--timeout", "1", code=4)
            assert f"groups have members: {world.group}" in said
        finally:
            member.close()
        assert world.mover.run("cutover", "--quiet", "0.5")["phase"] == "done"  # it goes on


def test_an_open_transaction_is_named_and_waited_for(world):
    writer = Producer({"bootstrap.servers": world.a, "transactional.id": new_name("open")})
    writer.init_transactions()
    writer.begin_transaction()
    writer.produce(world.topic, b"v1000")
    assert writer.flush(60) == 0
    with Server("mirror", "start", str(world.mover.path)):
        args = ("--quiet", "0.5", "--timeout", "10")
        said = world.mover.run("cutover", *args, code=4)
        assert f"has open transactions in {world.topic}-0, which must end first" in said
        writer.commit_transaction()
        assert world.mover.run("cutover", *args)["steps"]["verify"]["found"]["records"] == 1001


def test_a_killed_command_goes_on_at_every_step(world):
    moments = [(step, False) for step in PLANS[Kind.CUTOVER]] + [(Step.GROUPS, True)]
    with Server("mirror", "start", str(world.mover.path)):
        for step, after in moments:
            world.mover.killed_at(step, "cutover", "--quiet", "0.2", after=after)
            assert world.mover.run("cutover", "--quiet", "0.2")["phase"] == "done"
            assert committed(world.b, world.group, world.topic) == len(world.read_before)
            assert world.mover.run("cutover", "--undo")["phase"] == "undone"
            assert committed(world.b, world.group, world.topic) < 0


def test_records_that_came_after_all_are_copied_first(world):
    with Server("mirror", "start", str(world.mover.path)):
        world.mover.killed_at("groups", "cutover", "--quiet", "0.5")
        produce(world.a, world.topic, values(1000, 50))
        found = world.mover.run("cutover", "--quiet", "0.5")
    assert found["steps"]["verify"]["found"]["records"] == 1050


def test_undo_until_the_target_is_used(world):
    with Server("mirror", "start", str(world.mover.path)):
        world.mover.run("cutover", "--quiet", "0.5")
        world.mover.run("cutover", "--undo")
        assert "no cutover" in world.mover.run("cutover", "--undo", code=1)
        world.mover.run("cutover", "--quiet", "0.5")
        produce(world.b, world.topic, ["new"])
        assert "records of its own" in world.mover.run("cutover", "--undo", code=1)


def test_a_move_that_is_done_is_shown_and_an_undo_knows_what_was_there_before_the_first(world):
    with Server("mirror", "start", str(world.mover.path)):
        first = world.mover.run("cutover", "--quiet", "0.5")
        shown = world.mover.run("cutover", "--quiet", "0.5")
        assert (shown["phase"], shown["id"], shown["began"]) == ("done", first["id"], first["began"])
        world.mover.run("cutover", "--quiet", "0.5", "--restart")
        world.mover.run("cutover", "--undo")
    assert committed(world.b, world.group, world.topic) < 0


async def test_the_journal_takes_20000_offsets_and_a_kill_while_they_are_written(target, monkeypatch):
    offsets = {f"group-{g}": {f"orders-{p}": g * p for p in range(100)} for g in range(200)}
    first = Move(kind=Kind.CUTOVER, flow="A->B", identity="1", began_ms=1)
    move = begun(first, Step.GROUPS, {"before": offsets}, 2)
    written = internal_topics.produce
    left = 3

    async def killed(*args, **options) -> int:
        nonlocal left
        left -= 1
        if left < 0:
            raise ConnectionLost("killed")
        return await written(*args, **options)

    async with Cluster(target.bootstrap, client_id="test") as cluster:
        topic = new_name("moves")
        await Journal(cluster, topic, 1).write(first, None)
        monkeypatch.setattr(internal_topics, "produce", killed)
        with pytest.raises(ConnectionLost):
            await Journal(cluster, topic, 1).write(move, first)
        monkeypatch.undo()
        again = Journal(cluster, topic, 1)
        await again.catch_up()
        assert again.move(Kind.CUTOVER, "A->B") == first
        await again.write(move, first)
        other = Journal(cluster, topic, 1)
        await other.catch_up()
        assert other.move(Kind.CUTOVER, "A->B") == move
        with pytest.raises(Overtaken):
            await other.write(move, first)


async def test_of_two_commands_at_once_the_log_lets_one_go_on(target, monkeypatch):
    first = Move(kind=Kind.CUTOVER, flow="A->B", identity="1", began_ms=1)
    written, topic = internal_topics.produce, new_name("moves")
    async with Cluster(target.bootstrap, client_id="test") as cluster:
        await Journal(cluster, topic, 1).write(first, None)
        one, other = Journal(cluster, topic, 1), Journal(cluster, topic, 1)

        async def late(*args, **options) -> int:
            monkeypatch.setattr(internal_topics, "produce", written)
            await one.write(begun(first, Step.GROUPS, {"before": {"g": {}}}, 2), first)
            return await written(*args, **options)

        monkeypatch.setattr(internal_topics, "produce", late)
        with pytest.raises(Overtaken, match="at the same time"):
            await other.write(begun(first, Step.GROUPS, {"before": {}}, 3), first)


def test_names_of_the_default_policy(tmp_path, source, target):
    world = World(tmp_path, source, target)
    with Server("mirror", "start", str(world.mover.path)):
        found = world.mover.run("cutover", "--quiet", "0.5")
        remote = f"{world.mover.aliases[0]}.{world.topic}"
        assert found["steps"]["tell"]["found"]["topics"] == [{"topic": world.topic, "target_topic": remote}]
        shown = klamm("mirror", "cutover", str(world.mover.path), world.mover.there, "--quiet", "0.2")
    assert f"{world.topic}, {remote}" in shown.stdout
    assert committed(world.b, world.group, remote) == len(world.read_before)


def test_a_flow_that_does_not_run_is_waited_for(world):
    said = world.mover.run("cutover", "--quiet", "0.5", "--timeout", "1", code=1)
    assert "lacks" in said


@pytest.mark.parametrize("side", ["the source", "the copy"])
def test_another_topic_of_the_name_is_not_copied_yet(world, side):
    """Somebody deletes the topic, or its copy, while no mirror runs, and makes it anew."""
    with Server("mirror", "start", str(world.mover.path)):
        wait_until(lambda: [row["lag"] for row in world.mover.run_offsets()] == [0], "copied")
    where = world.a if side == "the source" else world.b
    delete(where, world.topic)
    make(where, world.topic)
    produce(world.a, world.topic, ["new"])
    count = "1" if side == "the source" else "1,001"
    dry = world.mover.run("cutover", "--dry-run", "--quiet", "0.2")
    assert dry["steps"]["drain"]["records_to_copy"] == int(count.replace(",", ""))
    said = world.mover.run("cutover", "--quiet", "0.5", "--timeout", "2", "--verify", "ends", code=4)
    assert f"{count} records to copy" in said


def test_copies_that_keep_offsets_are_promoted(tmp_path, source, target):
    world = World(tmp_path, source, target, **IDENTITY, **{"mirror.keep.offsets": "true"})
    with Server("mirror", "start", str(world.mover.path)):
        assert world.mover.run("cutover", "--dry-run", "--quiet", "0.2")["steps"]["promote"] == {
            "promoted": [world.topic]
        }
        world.mover.killed_at("promote", "cutover", "--quiet", "0.5")
        found = world.mover.run("cutover", "--quiet", "0.5")
        assert found["steps"]["promote"]["found"]["promoted"] == [world.topic]
        assert found["steps"]["tell"]["found"]["late"] == {}
        produce(world.a, world.topic, ["late"])
        args = ("--quiet", "0.5", "--timeout", "5", "--verify", "ends", "--restart")
        found = world.mover.run("cutover", *args)
        assert found["steps"]["promote"]["found"]["promoted"] == [world.topic]
        assert found["steps"]["tell"]["found"]["late"] == {world.topic: 1}
        assert "promoted" in world.mover.run("cutover", "--undo", code=1)
        produce(world.b, world.topic, values(1000, 100))
    rest = read_as(world.b, world.group, world.topic, lambda v: len(v) >= 1100 - len(world.read_before))
    assert [*world.read_before, *rest] == values(0, 1100)


def test_what_comes_back_from_the_source_is_a_record_of_the_targets_own(tmp_path, source, target):
    world = World(tmp_path, source, target, **IDENTITY)
    with world.mover.path.open("a") as file:
        file.write(f"{world.mover.back}.enabled=true\n")
    with Server("mirror", "start", str(world.mover.path)):
        world.mover.run("cutover", "--quiet", "0.5")
        produce(world.b, world.topic, values(1000, 100))
        wait_until(lambda: end(world.a, world.topic) == 1100, "B's records at A")
        wait_until(lambda: world.mover.run_offsets()[0]["lag"] == 0, "A's are read, and left out")
        assert "records of its own" in world.mover.run("cutover", "--undo", code=1)


def test_a_late_record_in_a_transaction_of_the_flow_is_not_the_targets_own(tmp_path, source, target):
    world = World(tmp_path, source, target, **IDENTITY)
    with world.mover.path.open("a") as file:
        file.write(f"{world.mover.aliases[1]}.exactly.once.source.support=enabled\n")
    with Server("mirror", "start", str(world.mover.path)):
        world.mover.run("cutover", "--quiet", "0.5")
        before = end(world.b, world.topic)
        produce(world.a, world.topic, ["late"])
        wait_until(lambda: end(world.b, world.topic) >= before + 2, "the record and its marker")
        wait_until(lambda: world.mover.run_offsets()[0]["lag"] == 0, "all is committed")
        assert world.mover.run("cutover", "--undo")["phase"] == "undone"
