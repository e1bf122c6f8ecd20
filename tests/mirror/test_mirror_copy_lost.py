"""A copy that is deleted at the target: its partition stops, and no other flow takes it for a topic that a user made."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from support.broker import new_name
from support.circles import Circle, topic_at, write
from support.gaps import decide, delete, gaps, make
from support.mirroring import Running, produce, props, read, rows
from support.mirroring_once import Mirror, numbered, read_committed, wait_for

from klamm.testing import EmbeddedBroker
from klamm_mirror.gaps.entries import State
from klamm_mirror.stops import Action, Kind

OFTEN = {"refresh__topics__interval__seconds": "1"}


@pytest.fixture(scope="module")
def clusters(processes, tmp_path_factory) -> Iterator[Mapping[str, str]]:
    work = tmp_path_factory.mktemp("clusters")
    with EmbeddedBroker(work / "a") as a, EmbeddedBroker(work / "b") as b:
        yield {"A": a.bootstrap, "B": b.bootstrap}


@pytest.fixture
def copied(clusters) -> Iterator[tuple[str, list, Running]]:
    """A topic whose 100 records are at B, and the mirror that runs."""
    a, b = clusters["A"], clusters["B"]
    topic, old = make(a, new_name()), rows(100)
    produce(a, topic, old)
    mirror = Running(props(a, b, topics=topic, **OFTEN)).start()
    try:
        mirror.until(lambda: mirror.records == 100, "copied")
        yield topic, old, mirror
    finally:
        mirror.stop()


def stopped(mirror: Running, topic: str) -> dict:
    mirror.until(lambda: mirror.details().get("stopped"), "stopped")
    stop: dict = mirror.details()["stopped"][f"{topic}-0"]
    return stop


def test_a_deleted_copy_stops_its_partition_and_is_made_anew_on_demand(clusters, copied):
    topic, old, mirror = copied
    delete(clusters["B"], f"A.{topic}")
    stop = stopped(mirror, topic)
    assert (stop["kind"], stop["from"], stop["to"]) == ("copy-lost", 0, 100)
    assert "klamm mirror offsets reset" in stop["why"]
    assert mirror.details()["partitions"][f"{topic}-0"]["lag"] is None, "offsets say nothing any more"
    more = rows(5, "more")
    produce(clusters["A"], topic, more)
    mirror.until(lambda: gaps(clusters["B"], topic), "an entry in the ledger")
    [gap] = gaps(clusters["B"], topic)
    assert (gap.kind, gap.state, gap.records) == (Kind.COPY_LOST, State.OPEN, 100)
    assert read(clusters["B"], f"A.{topic}", None) == [], "nothing is written behind the hole"
    [done] = decide(clusters["B"], topic, Action.APPEND)
    assert (done.state, done.left_out) == (State.RESOLVED, 0), "all of it was copied again"
    assert read(clusters["B"], f"A.{topic}", 105) == old + more
    mirror.until(lambda: "stopped" not in mirror.details(), "it goes on")


def test_a_copy_that_was_deleted_while_the_mirror_was_down_is_noticed_until_the_offsets_are_reset(
    clusters, copied
):
    topic, old, mirror = copied
    mirror.stop()
    assert mirror.commits
    delete(clusters["B"], f"A.{topic}")
    config = props(clusters["A"], clusters["B"], topics=topic, **OFTEN)
    with Running(config) as empty:
        pass  # its connector makes the copy anew
    del empty
    again = Running(config).start(mirror.commits)
    try:
        assert stopped(again, topic)["kind"] == "copy-lost"
    finally:
        again.stop()
    fresh = Running(config).start()
    try:
        assert read(clusters["B"], f"A.{topic}", 100)[:100] == old
        fresh.until(lambda: gaps(clusters["B"], topic)[0].state is State.RESOLVED, "the gap is closed")
        assert "stopped" not in fresh.details()
    finally:
        fresh.stop()


def test_a_copy_that_was_deleted_under_identity_harms_nothing_at_its_source(clusters):
    topic = topic_at(clusters)
    ours = write(clusters["A"], topic, "a", 100)
    with Circle(clusters, ["AB", "BA"], topic, mirror__topic__recreated="truncate-target", **OFTEN) as circle:
        circle.settle()
        theirs = write(clusters["B"], topic, "b", 30)
        circle.settle()
        delete(clusters["B"], topic)
        there = circle.running["AB"]
        back = circle.running["BA"]
        assert stopped(there, topic)["kind"] == "copy-lost"
        back.until(lambda: gaps(clusters["A"], topic, "mm2-gaps.B.internal"), "the way back knows")
        back.until(lambda: "stopped" not in back.details(), "and goes on by itself")
        [gap] = gaps(clusters["A"], topic, "mm2-gaps.B.internal")
        assert (gap.kind, gap.action, gap.records) == (Kind.RECREATED, Action.APPEND, 0)
        assert circle.values("A") == ours + theirs
        more = write(clusters["B"], topic, "c", 10)
        decide(clusters["B"], topic, Action.APPEND)
        back.until(lambda: len(circle.values("A")) == 140, "what was written at B since")
        assert circle.values("A") == ours + theirs + more
        there.until(lambda: len(circle.values("B")) == 110, "the copy is there again")


def test_a_copy_that_held_nothing_of_its_source_goes_on_by_itself(clusters):
    topic = topic_at(clusters)
    ours = write(clusters["A"], topic, "a", 50)
    with Circle(clusters, ["AB", "BA"], topic) as circle:
        circle.settle()
        there, back = circle.running["AB"], circle.running["BA"]
        back.until(lambda: any("copy_id" in at for c in back.commits for _, at in c), "the copy's id")
        delete(clusters["A"], topic)
        make(clusters["A"], topic)
        assert stopped(there, topic)["kind"] == "recreated"
        back.until(lambda: gaps(clusters["A"], topic, "mm2-gaps.B.internal"), "the other copy")
        back.until(lambda: "stopped" not in back.details(), "and goes on by itself")
        theirs = write(clusters["B"], topic, "b", 10)
        back.until(lambda: len(circle.values("A")) == 10, "B's own records")
        assert circle.values("A") == theirs
        [gap] = gaps(clusters["A"], topic, "mm2-gaps.B.internal")
        assert (gap.kind, gap.state, gap.action, gap.records) == (
            Kind.COPY_LOST, State.RECORDED, Action.SKIP, 0,
        )  # fmt: skip
        assert gap.why.startswith("nothing is missing")
        assert stopped(there, topic)["kind"] == "recreated"
        assert circle.values("B") == ours + theirs


def test_truncate_target_leaves_records_of_others_alone(clusters):
    topic = topic_at(clusters)
    ours = write(clusters["A"], topic, "a", 20)
    with Circle(clusters, ["AB", "BA"], topic, **OFTEN) as circle:
        circle.settle()
        theirs = write(clusters["B"], topic, "b", 30)
        circle.settle()
        circle.running["AB"].stop()
        delete(clusters["B"], topic)
        make(clusters["B"], topic)
        back = circle.running["BA"]
        assert stopped(back, topic)["kind"] == "recreated"
        back.until(lambda: gaps(clusters["A"], topic, "mm2-gaps.B.internal"), "an entry in the ledger")
        [gap] = decide(clusters["A"], topic, Action.TRUNCATE_TARGET, ledger="mm2-gaps.B.internal")
        assert gap.state is State.OPEN
        assert "not written at the source, from offset 0 on: give --append or --new-topic. " in gap.why
        assert circle.values("A") == ours + theirs
        [gap] = decide(clusters["A"], topic, Action.APPEND, ledger="mm2-gaps.B.internal")
        assert (gap.state, gap.action) == (State.RESOLVED, Action.APPEND)
        assert "not possible" not in gap.why, "it is no reason any more"


class Forgetful:
    """A target that loses what it has acknowledged: it starts with an earlier directory of a partition's log."""

    def __init__(self, path: Path) -> None:
        self.broker = EmbeddedBroker(path / "b").start()
        self._path, self._saved = path / "b", path / "saved"

    def remember(self) -> None:
        shutil.copytree(self._log(), self._saved)

    def forget(self) -> None:
        self.broker.kill()
        log = self._log()
        shutil.rmtree(log)
        shutil.copytree(self._saved, log)
        self.broker.start()

    def _log(self) -> Path:
        return next(p for p in self._path.rglob("A.*-0") if p.is_dir())


@pytest.fixture
def forgetful(processes, tmp_path) -> Iterator[Forgetful]:
    found = Forgetful(tmp_path)
    yield found
    found.broker.stop()


def test_a_copy_that_lost_its_end_while_the_mirror_was_down_is_noticed_before_anything_is_sent(
    clusters, forgetful
):
    a, b = clusters["A"], forgetful.broker.bootstrap
    topic = make(a, new_name())
    mirror = Running(props(a, b, topics=topic)).start()
    try:
        produce(a, topic, rows(100))
        mirror.until(lambda: mirror.records == 100, "copied")
        forgetful.remember()
        produce(a, topic, rows(100))
        mirror.until(lambda: mirror.records == 200, "copied")
    finally:
        mirror.stop()
    forgetful.forget()
    produce(a, topic, rows(100))
    mirror = Running(props(a, b, topics=topic)).start(mirror.commits)
    try:
        stop = stopped(mirror, topic)
        assert (stop["kind"], stop["to"]) == ("copy-lost", 200)
        assert "ends at offset 100, though it had acknowledged all before 200" in stop["why"]
        assert len(read(b, f"A.{topic}", None)) == 100, "nothing is written behind the hole"
    finally:
        mirror.stop()


def test_a_copy_that_lost_its_end_is_noticed_where_the_mirror_writes_exactly_once(
    clusters, forgetful, tmp_path
):
    a, b = clusters["A"], forgetful.broker.bootstrap
    topic = make(a, new_name())
    mirror = Mirror(a, b, topic, tmp_path)
    try:
        produce(a, topic, numbered(0, 100))
        mirror.wait_for_records(100)
        forgetful.remember()
        produce(a, topic, numbered(100, 100))
        mirror.wait_for_records(200)
        forgetful.forget()
        produce(a, topic, numbered(200, 100))
        wait_for(lambda: mirror.details().get("stopped"), mirror.trace, 90)
        assert mirror.details()["stopped"][f"{topic}-0"]["kind"] == "copy-lost"
        assert len(read_committed(b, f"A.{topic}")) == 100, "nothing is written behind the hole"
    finally:
        mirror.worker.end()
