"""Rotated files that are packed: what was read is not read again, what was not read is, from where reading had ended."""

from __future__ import annotations

import gzip
import os
import zlib

import pytest
from agent.test_agent_tracker import LIMITS, World
from hypothesis import given, settings
from hypothesis import strategies as st

from klamm_agent.files.archives import BROKEN_AFTER_S
from klamm_agent.files.gzip import Candidate, GzipReader, Inspection
from klamm_agent.files.tracked import TAIL, Print
from klamm_agent.files.tracker import Tracker


@pytest.fixture
def world(tmp_path):
    world = World(tmp_path)
    yield world
    world.files.close_all()


def settled(world: World) -> list[bytes]:
    """Returns what was delivered, once archives had the time to be looked at."""
    for _ in range(4):
        world.wait(LIMITS.close_rotated + 1)
        world.ack(len(world.flying))
    return world.delivered


def numbers(lines: list[bytes]) -> list[int]:
    return [int(line[:6]) for line in lines]


class TestKnownContent:
    def test_what_was_read_before_it_was_packed_is_not_read_again(self, world):
        world.append("a", 50)
        world.rename("a", True)
        world.look()
        world.ack(99)
        world.pack(0, "")
        assert numbers(settled(world)) == list(range(1, 51))
        assert world.tracker.gaps == []
        (archive,) = world.tracker
        assert archive.archive is not None
        assert (archive.acked, archive.position, archive.lag) == (archive.archive.total,) * 2 + (0,)

    def test_what_was_packed_while_nobody_looked_goes_on_where_reading_ended(self, world):
        world.append("a", 50)
        world.look()
        world.ack(99)
        world.save()
        world.append("a", 30)
        world.rename("a", True)
        world.pack(0, "")
        world.kill()
        assert numbers(settled(world)) == list(range(1, 81))
        assert world.tracker.gaps == []

    def test_also_when_the_file_was_read_in_part_and_its_rest_is_in_another_generation(self, world):
        world.append("a", 2000)
        world.tracker.observe(world.scanner.scan(), world.now, world.now)
        world.files.open_new(world.now)
        for file in world.files.changed(world.now):  # one block of many
            world.flying.append((file, world.files.read(file, world.now)))
        world.ack(1)
        world.save()
        world.rename("a", True)
        world.pack(0, "")
        world.kill()
        assert numbers(settled(world)) == list(range(1, 2001))

    def test_an_archive_beside_its_original_waits(self, world):
        world.append("a", 50)
        world.rename("a", True)
        world.look()
        world.pack(0, "keep")
        assert numbers(settled(world)) == list(range(1, 51))
        next(world.folder.glob("a.log.*[0-9]")).unlink()
        assert numbers(settled(world)) == list(range(1, 51))

    def test_it_is_known_again_after_a_kill_and_under_another_name(self, world):
        world.append("a", 50)
        world.rename("a", True)
        world.pack(0, "")
        assert numbers(settled(world)) == list(range(1, 51))
        world.save()
        world.kill()
        (path,) = world.folder.glob("*.gz")
        path.rename(path.with_name("a.log.9.gz"))
        os.utime(world.folder / "a.log.9.gz")
        assert numbers(settled(world)) == list(range(1, 51))

    def test_the_packed_copy_of_a_file_that_was_truncated_brings_what_was_not_read(self, world):
        world.append("a", 60)
        world.look()
        world.ack(99)
        world.append("a", 10)  # nobody looks before the truncation
        world.copytruncate("a")
        world.append("a", 5)
        (copy,) = world.folder.glob("*.copy")
        packed = world.folder / "a.log.1.gz"
        packed.write_bytes(gzip.compress(copy.read_bytes()))
        found = settled(world)
        assert sorted(numbers(found)) == [*range(1, 71), *range(72, 77)]  # 71 is the name of the copy

    def test_what_was_left_out_at_the_first_start_stays_so_after_a_kill(self, tmp_path):
        world = World(tmp_path)
        world.write(tmp_path / "x.log.gz", gzip.compress(b"000001 a\n" * 30))
        world.tracker = Tracker([type(LIMITS)(from_end=True)])
        world.tracker.observe(world.scanner.scan(), world.now, world.now)
        world.save()  # before the file was opened
        world.kill()
        assert settled(world) == []
        world.append("b", 1)
        assert len(settled(world)) == 1
        world.files.close_all()


class TestNewContent:
    def test_one_that_was_never_seen_is_read(self, world):
        world.append("a", 50)
        world.rename("a", True)
        world.pack(0, "")
        assert numbers(settled(world)) == list(range(1, 51))

    def test_the_same_beginning_is_not_the_same_content(self, world):
        for name in "ab":
            world.write(world.path(name), b"000000 the same first line\n" * 2)
            world.append(name, 20)
        world.look()
        world.ack(99)
        world.delete("a")
        world.rename("b", True)
        world.write(next(world.folder.glob("b.log.*")), b"000777 more\n")
        world.pack(0, "")
        world.kill()
        assert {*range(1, 41), 777} <= set(numbers(settled(world)))

    def test_members_behind_each_other_and_padding(self, world):
        data = gzip.compress(b"000001 a\n000002 ") + gzip.compress(b"b\n") + bytes(512) + gzip.compress(b"")
        world.write(world.folder / "x.log.gz", data)
        assert settled(world) == [b"000001 a", b"000002 b"]
        assert world.tracker.gaps == []

    def test_one_that_changes_is_read_anew(self, world):
        world.write(world.folder / "x.log.gz", gzip.compress(b"000001 a\n"))
        settled(world)
        (world.folder / "x.log.gz").write_bytes(gzip.compress(b"000002 b, longer\n"))
        world.touch(world.folder / "x.log.gz")
        assert settled(world) == [b"000001 a", b"000002 b, longer"]

    def test_text_in_place_of_an_archive(self, world):
        world.write(world.folder / "x.log.gz", gzip.compress(b"000001 a\n"))
        settled(world)
        (world.folder / "x.log.gz").write_bytes(b"000002 no archive\n")
        world.touch(world.folder / "x.log.gz")
        assert settled(world) == [b"000001 a", b"000002 no archive"]


class TestDamage:
    def test_one_without_its_end_waits_and_then_gives_what_is_there(self, world):
        data = gzip.compress(b"".join(b"%06d %s\n" % (i, os.urandom(20).hex().encode()) for i in range(500)))
        world.write(world.folder / "x.log.gz", data[: len(data) // 2])
        for _ in range(4):
            world.look()
        assert world.flying == []
        world.now += BROKEN_AFTER_S
        lines = settled(world)
        assert numbers(lines[:-1]) == list(range(len(lines) - 1))
        assert [g.reason for g in world.tracker.gaps] == ["the archive is incomplete"]

    def test_what_is_before_the_damage_is_delivered_and_the_damage_is_told(self, world):
        data = bytearray(gzip.compress(b"000001 a\n" * 10))
        data[-8] ^= 1  # its checksum
        world.write(world.folder / "x.log.gz", bytes(data))
        assert settled(world) == [b"000001 a"] * 10
        (gap,) = world.tracker.gaps
        assert gap.reason.startswith("the archive is damaged: ")

    def test_one_that_just_begins_is_waited_for(self, world):
        data = gzip.compress(b"000001 a\n")
        path = world.folder / "x.log.gz"
        world.write(path, data[:1])
        world.look()
        world.write(path, data[1:])
        assert settled(world) == [b"000001 a"]


def test_archives_there_at_the_first_run_are_left_out_from_the_end(tmp_path):
    world = World(tmp_path)
    world.write(tmp_path / "x.log.gz", gzip.compress(b"000001 a\n" * 30))
    world.tracker = Tracker([type(LIMITS)(from_end=True)])
    world.files = type(world.files)(world.tracker, world.unexpected, 4096)
    assert settled(world) == []
    assert [g.reason for g in world.tracker.gaps] == ["start_position"]
    world.files.close_all()


def from_bytes(data: bytes):
    return lambda count, offset: data[offset : offset + count]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.binary(max_size=3000), max_size=5),
    st.lists(st.tuples(st.integers(0, 20_000), st.integers(1, 5000)), max_size=8),
)
def test_an_archive_is_read_by_position_like_a_file(members, reads):
    content = b"".join(members)
    reader = GzipReader(from_bytes(b"".join(map(gzip.compress, members)) or gzip.compress(b"")))
    for start, count in reads:
        assert reader.pread(count, start) == content[start : start + count]


@settings(max_examples=60, deadline=None)
@given(st.binary(min_size=1, max_size=5000), st.integers(1, 700), st.data())
def test_an_inspection_finds_up_to_where_files_are_the_same(content, cut, data):
    offsets = data.draw(st.lists(st.integers(0, len(content)), max_size=4, unique=True))
    known = {(1, o): Candidate((1, o), o, Print.of(content[max(0, o - TAIL) : o])) for o in offsets}
    wrong = Candidate((2, 0), len(content), Print.of(b"something else"))
    packed = gzip.compress(content[:cut]) + gzip.compress(content[cut:])
    inspection = Inspection(from_bytes(packed), lambda _head: [*known.values(), wrong])
    while not inspection.step(100):
        pass
    assert inspection.total == len(content)
    assert inspection.problem == ""
    assert inspection.matches == {inode: c.offset for inode, c in known.items()}


@given(st.integers(1, 60))
def test_a_cut_archive_is_incomplete(cut):
    packed = gzip.compress(zlib.compress(bytes(range(256))))
    inspection = Inspection(from_bytes(packed[:-cut]), lambda _head: [])
    while not inspection.step(100):
        pass
    assert inspection.problem == "incomplete"
