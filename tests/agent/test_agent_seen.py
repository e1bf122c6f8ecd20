"""Bytes that were seen: delivered, or in the ledger, whatever became of agent and files. And files that lost their name."""

from __future__ import annotations

import gzip
import json
import os
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from agent.harness import AgentProcess, arrived
from agent.test_agent_tracker import LIMITS, World
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.broker import new_topic, wait_until

from klamm_agent.files.archives import COPY_WAIT_S
from klamm_agent.files.tracked import EXPIRE_S, Checkpoint, Gap, Observed, Print
from klamm_agent.files.tracker import Tracker
from klamm_agent.report import report

NOBODY = "127.0.0.1:1"  # no broker is there


class Seen(World):
    """A world without room for what is read, until there is some."""

    def __init__(self, folder: Path) -> None:
        self.ledger: list[Gap] = []
        self.seen: set[tuple[bytes, int]] = set()
        self.saved_seen: set[tuple[bytes, int]] = set()
        super().__init__(folder)

    def glance(self) -> None:
        """Look at the files, read nothing."""
        self.tracker.observe(self.scanner.scan(), self.now, self.now)
        self.files.open_new(self.now)
        for _ in range(2):  # it looks ten times a second, and saves once
            for file in self.files.changed(self.now):
                self.files.verify(file)
        self.note()
        path = self.path("a")
        if path.exists():
            offset = 0
            for line in path.read_bytes().split(b"\n")[:-1]:
                self.seen.add((line, offset))
                offset += len(line) + 1

    def note(self) -> None:
        """Notes as the agent's loop does."""
        self.tracker.expire(self.now)
        self.ledger += self.tracker.gaps
        self.tracker.gaps = []

    def read_some(self) -> None:
        for file in self.files.changed(self.now)[:2]:
            if (block := self.files.read(file, self.now)) is not None:
                self.flying.append((file, block))

    def quiet(self) -> None:
        """Waits until all is delivered and files are closed."""
        self.glance()
        self.read_all()
        self.ack(len(self.flying))
        self.now += LIMITS.close_inactive + 1
        self.glance()

    def grow(self, count: int) -> None:
        self.append("a", count)
        self.glance()

    def away(self, what: str) -> None:
        """Kills the agent, which is not there when it happens."""
        self.save()
        self.kill()
        self.change(what)

    def change(self, what: str) -> None:
        getattr(self, what)()

    def remove(self) -> None:
        self.delete("a")

    def truncate(self) -> None:
        if self.path("a").exists():
            os.truncate(self.path("a"), 0)
            self.touch(self.path("a"))

    def rename_out(self) -> Path:
        self.counter += 1
        target = self.folder / f"a.{self.counter}.old"
        if self.path("a").exists():
            self.path("a").rename(target)
        return target

    def save(self) -> None:
        super().save()
        self.saved_seen = set(self.seen)

    def kill(self) -> None:
        super().kill()
        self.seen = set(self.saved_seen)

    def settle(self) -> set[bytes]:
        for _ in range(8):
            self.glance()
            self.read_all()
            self.ack(len(self.flying))
            self.note()
            self.now += COPY_WAIT_S + 1
        return set(self.delivered)

    def ranges(self) -> list[tuple[int, int, str]]:
        return [(g.start, g.end, g.reason) for g in self.ledger]


@pytest.fixture
def world(tmp_path):
    world = Seen(tmp_path)
    yield world
    world.files.close_all()


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("grow"), st.integers(1, 90)),
        st.tuples(st.just("append"), st.just("a"), st.integers(1, 90)),
        st.tuples(st.just("read_some")),
        st.tuples(st.just("ack"), st.integers(1, 3)),
        st.tuples(st.sampled_from(["save", "kill", "quiet", "glance"])),
        st.tuples(st.sampled_from(["away", "change"]), st.sampled_from(["truncate", "rename_out", "remove"])),
    ),
    min_size=3,
    max_size=20,
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(STEPS)
def test_what_was_seen_is_delivered_or_in_the_ledger(steps):
    with tempfile.TemporaryDirectory() as folder:
        world = Seen(Path(folder))
        for name, *arguments in steps:
            getattr(world, name)(*arguments)
        delivered = world.settle()
        world.files.close_all()
        missing = [(at, at + len(line)) for line, at in world.seen if line not in delivered]
        for at, _ in missing:  # as many ranges as generations that had a line there
            lines = sum(start <= at < end for start, end in missing)
            gaps = sum(g.start <= at < g.end for g in world.ledger)
            assert lines <= gaps, (at, world.ranges())
        if not any({"truncate", "remove"} & set(s) for s in steps):
            assert world.ranges() == []


@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize("how", ["delete", "truncate", "refilled", "partly"])
def test_what_a_killed_agent_had_seen(world, begun, how):
    world.append("a", 200)
    world.glance()
    if begun:
        world.read_some()
        world.ack(1)
    acked = max(f.acked for f in world.tracker)
    assert bool(acked) == begun
    size = world.path("a").stat().st_size
    world.save()
    world.kill()
    left = size
    if how == "delete":
        world.delete("a")
    elif how == "partly":
        left = acked + 2000
        os.truncate(world.path("a"), left)
    else:
        world.truncate()
        if how == "refilled":
            world.append("a", 300)
    delivered = world.settle()
    reason = "gone" if how == "delete" else "replaced" if how == "refilled" else "truncated"
    expected = left if how == "partly" else acked
    ((start, end, why),) = world.ranges()
    assert (end, why) == (size, reason)
    assert start <= expected
    assert expected - start < 200, "at the beginning of a line"
    if how == "refilled":
        assert len(delivered) >= 300
    world.now += EXPIRE_S
    world.settle()
    assert len(world.ledger) == 1, "once"


def test_what_was_never_read_for_want_of_room_and_is_replaced_is_told():
    tracker = Tracker([LIMITS], None, 0.0)
    tracker.observe([Observed(path="/a.log", inode=(1, 7), size=5000, modified=1.0, source=0)], 0.0, 0.0)
    (file,) = tracker
    tracker.opened(file, b"old" * 400, b"", 0.0)
    tracker.glimpsed(file, b"new\n")  # before its new size was looked at
    tracker.expire(COPY_WAIT_S + 1)
    assert [(g.start, g.end, g.reason) for g in tracker.gaps] == [(0, 5000, "truncated")]


def test_what_is_said_once_is_not_said_again_by_the_next_agent(world):
    world.append("a", 100)
    world.glance()
    world.save()
    world.kill()
    world.delete("a")
    world.settle()
    world.save()
    world.kill()
    world.settle()
    assert len(world.ledger) == 1


def test_blocks_in_flight_of_replaced_content_are_told_of_after_a_kill(world):
    world.append("a", 60)
    world.glance()
    world.read_all()
    size = world.path("a").stat().st_size
    world.truncate()
    world.glance()
    world.save()
    world.kill()
    world.settle()
    assert world.ranges() == [(0, size, "truncated")]


def test_an_archive_holds_what_a_killed_agent_had_only_seen(world):
    world.append("a", 100)
    world.glance()
    world.save()
    world.kill()
    packed = gzip.compress(world.path("a").read_bytes())
    world.delete("a")
    world.write(world.folder / "a.log.1.gz", packed)
    assert len(world.settle()) == len(world.delivered) == 100
    assert world.ledger == []


def test_an_archive_that_ends_before_what_was_seen(world):
    world.append("a", 100)
    world.quiet()
    known = world.path("a").stat().st_size
    packed = gzip.compress(world.path("a").read_bytes())
    world.append("a", 10)
    world.glance()
    size = world.path("a").stat().st_size
    world.save()
    world.kill()
    world.write(world.folder / "a.log.1.gz", packed)
    world.delete("a")
    world.settle()
    assert len(world.delivered) == 100
    assert world.ranges() == [(known, size, "gone")]


def test_a_copy_holds_what_a_killed_agent_had_only_seen(world):
    world.append("a", 100)
    world.glance()
    world.save()
    world.kill()
    world.write(world.folder / "a.log.1", world.path("a").read_bytes())
    world.truncate()
    world.append("a", 5)
    world.settle()
    assert len(world.delivered) == len(set(world.delivered)) == 105
    assert world.ledger == []


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("read", [False, True])
def test_a_closed_file_that_was_renamed_is_read_to_its_end(world, killed, read):
    world.append("a", 50)
    if read:
        world.quiet()
        assert not any(f.is_open for f in world.tracker)
    else:
        world.glance()
    if killed:
        world.save()
        world.kill()
    old = world.rename_out()
    world.write(old, b"after the renaming\n")
    world.append("a", 5)
    world.glance()
    world.read_all()
    world.write(old, b"and later\n")
    world.settle()
    assert len(world.delivered) == len(set(world.delivered)) == 57
    assert world.ledger == []
    assert {b"after the renaming", b"and later"} < set(world.delivered)


def test_folders_are_looked_through_once(world, monkeypatch):
    looks = []
    real = os.scandir
    monkeypatch.setattr("klamm_agent.files.strays.os.scandir", lambda path: looks.append(path) or real(path))
    world.append("a", 50)
    world.append("b", 50)
    world.quiet()
    world.delete("a")
    world.delete("b")
    before = len(looks)  # patterns are looked at by the same call
    scans = 0

    class Quiet:
        def scan(self):
            nonlocal scans
            scans += 1
            return iter(())

    world.scanner = Quiet()
    world.settle()
    assert scans > 1
    assert looks[before:] == [str(world.folder)], "one for both"
    assert world.ledger == [], "all of them was delivered"


@pytest.mark.parametrize("seen", [True, False])
def test_another_file_with_its_inode_is_not_taken_for_it(world, seen):
    """No pattern names the other file: nothing of it may be sent."""
    world.append("a", 50)
    world.quiet()
    if not seen:
        world.append("a", 20)
    with world.path("a").open("r+b") as file:  # what the inode holds now is another file
        file.write(b"secret: 123\n" * 50)
    world.rename_out()
    world.settle()
    assert len(world.delivered) == 50
    assert not [line for line in world.delivered if b"secret" in line]


def test_what_no_input_names_any_more_is_not_read(world):
    world.append("a", 50)
    world.glance()
    size = world.path("a").stat().st_size
    world.save()
    world.folder = world.folder / "elsewhere"  # the configuration was changed
    world.kill()
    world.settle()
    assert world.delivered == []
    assert world.ranges() == [(0, size, "no input names it any more")]


def test_a_file_system_that_is_not_there_may_come_back(tmp_path):
    """Its folder may be there: that of the file system below."""
    there = Checkpoint(
        path=str(tmp_path / "a.log"), inode=(1, 7), head=Print(), offset=0, tail=Print(), size=9
    )
    world = Seen(tmp_path)
    world.tracker = Tracker([LIMITS], [there], world.now)
    world.files._tracker = world.tracker
    world.glance()
    world.now += 2 * COPY_WAIT_S
    world.glance()
    assert world.ledger == []
    world.now += EXPIRE_S
    world.glance()
    assert world.ranges() == [(0, 9, "gone")]


def ranges(a: AgentProcess) -> dict[str, Counter[str]]:
    """Bytes in the ledger, by file and reason."""
    try:
        whole = (a.state / "gaps.jsonl").read_text().rpartition("\n")[0]  # the last one may be under way
    except FileNotFoundError:
        return {}
    found: dict[str, Counter[str]] = {}
    for gap in map(json.loads, whole.splitlines()):
        found.setdefault(Path(gap["path"]).name, Counter())[gap["reason"]] += gap["to"] - gap["from"]
    return found


@pytest.mark.parametrize(("how", "once"), [("kill", "true"), ("stop", "true"), ("kill", "false")])
def test_files_that_go_while_no_broker_answers(broker, tmp_path, how, once):
    """Lines that were read are in the write-ahead log, and come; the ledger has the rest."""
    topic = new_topic(broker)
    a = AgentProcess(tmp_path, NOBODY, topic, top="queue_bytes = 1_048_576")
    (a.folder / "logs").mkdir()
    a.config.write_text(a.config.read_text().replace("[agent]\n", f"[agent]\nexactly_once = {once}\n"))
    text = {n: "".join(f"{n}-{i:05d} {'x' * 80}\n" for i in range(15_000)) for n in "abc"}
    for name in "abc":
        (a.folder / f"logs/{name}.log").write_text(text[name])
    size = len(text["a"])
    try:
        a.start()
        wait_until(lambda: len(report(a.state)["tracked"]) == 3, "the registry to know the files")
        assert {f["lag_bytes"] for f in report(a.state)["tracked"]} == {size}
        (a.folder / "logs/b.log").write_text("z-0 new\n")
        wait_until(lambda: a.status().get("lag_bytes") == 2 * size + 8, "the lag to be that of what is there")
        if how == "kill":
            a.kill()
        else:
            assert a.stop() == 1
        (a.folder / "logs/a.log").unlink()
        found = report(a.state)
        lags = {Path(f["path"]).name: f["lag_bytes"] for f in found["tracked"] if f["size"] is None}
        assert lags["a.log"] == size, "shown as well"
        a.config.write_text(a.config.read_text().replace(NOBODY, broker.bootstrap))
        a.start()
        wait_until(lambda: len(ranges(a)) == 2, "the ledger to have what is lost", timeout_s=60)
        a.caught_up()
        assert a.stop() == 0
    finally:
        a.close()
    lost = {"a": ranges(a)["a.log"].pop("gone"), "b": ranges(a)["b.log"].pop("truncated")}
    came = {n: (size - lost[n]) // (size // 15_000) for n in "ab"}
    if once == "false":
        assert came == {"a": 0, "b": 0}
    else:
        assert sum(came.values()) > 1000, "what was read came all the same"
    found = arrived(broker.bootstrap, topic)
    assert found.keys() == {
        "z-0",
        *(f"c-{i:05d}" for i in range(15_000)),
        *(f"{n}-{i:05d}" for n in "ab" for i in range(came[n])),
    }
    assert set(found.values()) == {1}


def test_a_log_that_is_rotated_while_its_service_is_quiet(broker, tmp_path):
    topic = new_topic(broker)
    a = AgentProcess(tmp_path, broker.bootstrap, topic)
    (a.folder / "logs").mkdir()
    path = a.folder / "logs/x.log"
    a.config.write_text(a.config.read_text().replace('"1500ms"', '"200ms"'))
    try:
        a.start()
        with path.open("a") as service:
            service.write("a-1 x\n")
            service.flush()
            wait_until(lambda: a.status().get("acked") == 1, "the first line")
            wait_until(lambda: a.status()["open_files"] == 0, "the file to be closed")
            path.rename(path.with_name("x.log.1"))
            service.write("b-1 x\n")
            service.flush()
            path.write_text("c-1 x\n")
            wait_until(lambda: a.status()["acked"] == 3, "what came after the renaming")
            service.write("d-1 x\n")
        wait_until(lambda: a.status()["acked"] == 4, "what comes later")
        assert a.stop() == 0
    finally:
        a.close()
    assert arrived(broker.bootstrap, topic) == dict.fromkeys(("a-1", "b-1", "c-1", "d-1"), 1)
    assert not (a.state / "gaps.jsonl").exists()
