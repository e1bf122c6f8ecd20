"""Copies that patterns match, as copytruncate leaves them: lines come once, also those that nobody read before the truncation."""

from __future__ import annotations

import gzip
import os
import shutil
import tempfile
from pathlib import Path

import pytest
from agent.test_agent_tracker import LIMITS, World
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from klamm_agent.files.archives import COPY_WAIT_S
from klamm_agent.files.tracked import HEAD


class Copies(World):
    """A world in which copies are followed, too."""

    def copy(self, *, look: bool = False, slow: bool = False, late: bool = False) -> list[int]:
        """Copies and then truncates, as logrotate does; the agent may look between them. `slow`: and while it is copied. `late`:
        lines come between them, which the agent reads. Gives these.
        """
        path = self.path("a")
        if not path.exists() or path.stat().st_size == 0:
            return []
        self.counter += 1
        target = self.folder / f"a.log.{self.counter}"
        late = late and path.stat().st_size >= HEAD  # else the copy ends before the beginning that is known
        if late:
            self.look_around()  # else what is read next begins before the end of the copy: that comes twice
        content, lines = path.read_bytes(), []
        half = max(HEAD, len(content) // 2) if slow else len(content)
        for part in (content[:half], content[half:]):
            self.write(target, part)
            if look or slow:
                self.look_around()
            self.now += 1
        if late:
            before = self.counter
            self.append("a", 3)
            lines = list(range(before + 1, self.counter + 1))
            self.look_around()
        os.truncate(path, 0)
        self.touch(path)
        if late:  # a restart would not know the ends of older blocks
            self.look_around()
            self.ack(len(self.flying))
            self.look_around()
        return lines

    def look_around(self) -> None:
        """Looks as `look` does, without asking that all is read: a copy may have to wait."""
        self.tracker.observe(self.scanner.scan(), self.now, self.now)
        self.files.open_new(self.now)
        self.read_all()
        self.tracker.expire(self.now)

    def settle(self) -> list[int]:
        for _ in range(3):
            self.look_around()
            self.ack(len(self.flying))
            self.now += COPY_WAIT_S
        return [int(line[:6]) for line in self.delivered]


@pytest.fixture
def world(tmp_path):
    world = Copies(tmp_path)
    yield world
    world.files.close_all()


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 90)),
        st.tuples(
            st.just("copy"),
            st.sampled_from([(), ("look",), ("slow",), ("late",), ("look", "late"), ("slow", "late")]),
        ),
        st.tuples(st.just("look")),
        st.tuples(st.just("wait")),
        st.tuples(st.just("ack"), st.integers(1, 3)),
        st.tuples(st.just("restart")),
    ),
    max_size=25,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(STEPS)
def test_copytruncate_with_copies_that_are_followed_delivers_every_line_once(steps):
    with tempfile.TemporaryDirectory() as folder:
        world = Copies(Path(folder))
        lines = []
        for name, *arguments in steps:
            match name:
                case "append":
                    before = world.counter
                    world.append("a", arguments[0])
                    lines += range(before + 1, world.counter + 1)
                    # Who is looked at at least once between two truncations is known again
                    world.look_around()
                    before = world.counter
                    world.append("a", 5)  # unread at the truncation, if that comes next
                    lines += range(before + 1, world.counter + 1)
                case "copy":
                    lines += world.copy(**dict.fromkeys(arguments[0], True))
                case "look":
                    world.look_around()
                case "wait":  # without acknowledgements
                    world.look_around()
                    world.now += COPY_WAIT_S + 1
                    world.look_around()
                case "ack":
                    world.ack(arguments[0])
                case "restart":
                    world.look_around()
                    world.ack(len(world.flying))
                    world.save()
                    world.kill()
        found = world.settle()
        world.files.close_all()
        assert sorted(found) == lines
        assert world.tracker.gaps == []
        assert not world.tracker.archives._replaced, "only what is in flight"


def test_a_file_with_the_same_beginning_that_stays_is_read_after_a_while(world):
    world.append("a", 60)
    world.look_around()
    world.ack(9)
    shutil.copy(world.path("a"), world.path("b"))
    world.append("b", 3)
    world.look_around()
    assert world.flying == []
    assert len(world.settle()) == 60 + 60 + 3


def test_a_truncation_is_noticed_while_there_is_no_room(world):
    """Else the packed copy would be taken for that of a file that has grown since, and read from its beginning."""
    world.append("a", 60)
    world.look_around()
    world.append("a", 9)
    world.copy()
    world.append("a", 4)
    copied = world.folder / "a.log.70"
    packed = gzip.compress(copied.read_bytes())
    copied.unlink()
    world.write(copied.with_name("a.log.70.gz"), packed)
    for _ in range(4):
        for file in world.files.changed(world.now):
            if file.archive is None:
                world.files.verify(file)
        world.tracker.observe(world.scanner.scan(), world.now, world.now)
        world.files.open_new(world.now)
        world.tracker.expire(world.now)
        world.now += COPY_WAIT_S
    assert sorted(world.settle()) == [*range(1, 70), *range(71, 75)]
    assert world.tracker.gaps == []


@pytest.mark.parametrize("truncated", ["unread", "read"])
def test_a_copy_of_a_file_that_could_not_be_read_yet(world, truncated):
    """No broker answers: the file is open, and the copy appears before anything of it was read."""
    world.append("a", 60)

    def look():
        world.tracker.observe(world.scanner.scan(), world.now, world.now)
        world.files.open_new(world.now)

    look()
    shutil.copy(world.path("a"), world.folder / "a.log.1")
    world.touch(world.folder / "a.log.1")
    look()
    if truncated == "read":
        world.read_all()
        world.ack(9)
        assert len(world.delivered) == 60
    os.truncate(world.path("a"), 0)
    world.touch(world.path("a"))
    assert sorted(world.settle()) == list(range(1, 61))
    assert world.tracker.gaps == []


def test_generations_that_nobody_could_read_are_read_from_their_copies(world):
    """No broker answers for long."""
    for _ in range(3):
        world.append("a", 60)
        world.tracker.observe(world.scanner.scan(), world.now, world.now)
        world.files.open_new(world.now)
        for file in world.files.changed(world.now):
            world.files.verify(file)
        world.counter += 1
        copied = world.folder / f"a.log.{world.counter}"
        shutil.copy(world.path("a"), copied)
        world.touch(copied)
        world.tracker.observe(world.scanner.scan(), world.now, world.now)
        world.files.open_new(world.now)
        os.truncate(world.path("a"), 0)
        world.touch(world.path("a"))
    expected = [n for n in range(1, world.counter + 1) if n % 61]
    assert sorted(world.settle()) == expected
    world.settle()
    assert world.tracker.gaps == []


def test_a_copy_waits_while_nobody_looks_into_its_original(world):
    """A reader is held up: nobody notices the truncation."""
    world.append("a", 60)
    world.look_around()
    world.append("a", 9)
    world.copy()
    for _ in range(3):
        world.tracker.observe(world.scanner.scan(), world.now, world.now)
        world.files.open_new(world.now)
        world.files.changed(world.now)
        world.now += COPY_WAIT_S
    assert sorted(world.settle()) == list(range(1, 70))
    assert world.tracker.gaps == []


@pytest.mark.parametrize("grown", [0, 60])
def test_a_file_that_was_short_when_it_was_read_is_known_in_its_copy(world, grown):
    world.append("a", 3)
    world.look_around()
    world.append("a", grown)
    world.copy(look=False)
    world.append("a", 1)
    last = world.counter
    assert sorted(world.settle()) == [*range(1, 4 + grown), last]


def test_a_short_file_is_known_in_its_copy_although_it_was_closed_and_the_agent_killed(world):
    world.append("a", 3)
    world.look_around()
    world.ack(9)
    world.now += LIMITS.close_inactive + 1
    world.look_around()
    world.save()
    world.copy(look=False)
    world.kill()
    world.append("a", 1)
    assert sorted(world.settle()) == [1, 2, 3, 5]


@pytest.mark.parametrize("name", ["b.log", "a.lo.log"])
def test_a_short_beginning_under_another_name_is_no_copy(world, name):
    world.append("a", 3)
    world.look_around()
    world.write(world.folder / name, world.path("a").read_bytes())
    os.truncate(world.path("a"), 0)
    world.touch(world.path("a"))
    assert sorted(world.settle()) == [1, 1, 2, 2, 3, 3]


def test_another_short_beginning_under_the_name_of_a_copy_is_read_whole(world):
    world.append("a", 3)
    world.look_around()
    os.truncate(world.path("a"), 0)
    world.touch(world.path("a"))
    world.write(world.folder / "a.log.1", world.line() + b"\n")
    assert sorted(world.settle()) == [1, 2, 3, 4]


def test_a_short_file_that_stays_is_read_again_in_its_copy_after_a_while(world):
    world.append("a", 3)
    world.look_around()
    shutil.copy(world.path("a"), world.folder / "a.log.1")
    world.touch(world.folder / "a.log.1")
    assert sorted(world.settle()) == [1, 1, 2, 2, 3, 3]


def test_the_same_content_again_is_no_copy(world):
    for _ in range(2):  # written by a program that tells no time, and removed
        world.counter = 0
        world.append("a", 60)
        world.look_around()
        world.ack(9)
        world.delete("a")
        world.now += 1
    assert sorted(world.settle()) == sorted([*range(1, 61)] * 2)


def test_the_same_content_in_a_truncated_file_is_no_copy(world):
    world.append("a", 60)
    world.look_around()
    world.ack(9)
    os.truncate(world.path("a"), 0)
    world.touch(world.path("a"))
    world.look_around()
    world.now += LIMITS.close_inactive + 1
    world.look_around()  # closed
    world.counter = 0
    world.append("a", 70)
    assert sorted(world.settle()) == sorted([*range(1, 61), *range(1, 71)])


def test_a_copy_made_while_nobody_looked(world):
    world.append("a", 60)
    world.look_around()
    world.ack(9)
    world.save()
    world.append("a", 10)
    world.copy(look=False)
    world.append("a", 5)
    world.kill()
    assert sorted(world.settle()) == [*range(1, 71), *range(72, 77)]


@pytest.mark.parametrize("killed", [True, False])
def test_a_copy_gets_the_inode_of_a_file_that_was_removed(world, killed):
    """As logrotate's copytruncate with `rotate N` leaves it: the oldest goes, and the new copy may get its inode."""
    world.append("b", 60)
    world.append("a", 60)
    world.look_around()
    world.ack(9)
    world.save()
    world.now += LIMITS.close_inactive + 1
    world.look_around()  # closed: nobody holds the inode
    if killed:
        world.kill()
    data = world.path("a").read_bytes()
    world.path("b").write_bytes(data)  # other content under an inode that is known
    world.touch(world.path("b"))
    os.truncate(world.path("a"), 0)
    world.touch(world.path("a"))
    world.append("a", 5)
    assert sorted(world.settle()) == list(range(1, 126))
