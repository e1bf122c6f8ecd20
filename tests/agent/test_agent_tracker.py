"""Random lives of log files: every complete line that was there when the agent looked is delivered."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from klamm_agent.config.agent import Input
from klamm_agent.files.archives import COPY_WAIT_S
from klamm_agent.files.open_files import OpenFiles
from klamm_agent.files.scan import Scanner
from klamm_agent.files.tracked import HEAD, TAIL, Limits, Observed, Print, Tracked
from klamm_agent.files.tracker import Tracker
from klamm_agent.state.registry import checkpoint_of, entry_of

LIMITS = Limits(max_line=5000)
STEPS = st.one_of(
    st.tuples(st.just("append"), st.sampled_from("ab"), st.integers(1, 60)),
    st.tuples(st.just("begin_line"), st.sampled_from("ab")),
    st.tuples(st.just("rename"), st.sampled_from("ab"), st.booleans()),
    st.tuples(st.just("copytruncate"), st.sampled_from("ab")),
    st.tuples(st.just("delete"), st.sampled_from("ab")),
    st.tuples(st.just("pack"), st.integers(0, 5), st.sampled_from(["", "keep", "cut"])),
    st.tuples(st.just("recreate"), st.sampled_from("ab")),
    st.tuples(st.just("look")),
    st.tuples(st.just("look")),
    st.tuples(st.just("wait"), st.sampled_from([6.0, 70.0, 400.0])),
    st.tuples(st.just("ack"), st.integers(1, 4)),
    st.tuples(st.just("save")),
    st.tuples(st.just("kill")),
)


def in_pieces(line: bytes, read: set[bytes]) -> bool:
    """Returns whether `line` was read: whole, or as what was there of it when its file was quiet for long, and its rest."""
    return line in read or any(
        line[:cut] in read and in_pieces(line[cut:], read) for cut in range(1, len(line))
    )


def content(path: Path) -> bytes:
    data = path.read_bytes()
    return gzip.decompress(data) if path.suffix == ".gz" else data


class World:
    """A folder of logs (`*.log*` is followed), the agent's core over it, and what must have been delivered."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.now, self.counter, self.ticks, self.killed = 1000.0, 0, 0, False
        self.unfinished: dict[int, bytes] = {}  # by inode: the last line that has no end yet
        self.left: dict[
            Path, None
        ] = {}  # renamed to where no pattern looks, while the agent may have it open
        self.delivered: list[bytes] = []
        self.flying: list[tuple[Tracked, object]] = []
        self.saved: list = []
        self.boot()

    def boot(self) -> None:
        self.tracker = Tracker([LIMITS], self.saved, self.now)
        config = Input(paths=(str(self.folder / "*.log*"),), topic="t")
        self.scanner = Scanner((config,), self.unexpected)
        self.files = OpenFiles(self.tracker, self.unexpected, 4096, owner=self.scanner.owner)

    def unexpected(self, path: str, error: OSError) -> None:
        raise error

    def path(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def touch(self, path: Path) -> None:
        """Gives every change its own time, as if nothing happened twice in one tick of the file system's clock."""
        self.ticks += 1
        os.utime(path, ns=(0, 1_700_000_000_000_000_000 + self.ticks * 10_000_000))

    def write(self, path: Path, data: bytes) -> None:
        with path.open("ab") as file:
            file.write(data)
        self.touch(path)

    def line(self) -> bytes:
        self.counter += 1
        return b"%06d %s" % (self.counter, b"x" * (self.counter * 37 % 90))

    def append(self, name: str, count: int) -> None:
        path = self.path(name)
        self.write(path, b"".join(self.line() + b"\n" for _ in range(count)))

    def begin_line(self, name: str) -> None:
        self.write(self.path(name), self.line())

    def rename(self, name: str, within: bool) -> None:
        path = self.path(name)
        if path.exists():
            self.counter += 1
            target = self.folder / (f"{name}.log.{self.counter}" if within else f"{name}.{self.counter}.old")
            path.rename(target)
            if not within:
                self.left[target] = None

    def copytruncate(self, name: str) -> None:
        path = self.path(name)
        if path.exists():
            self.counter += 1
            shutil.copy(path, self.folder / f"{name}.{self.counter}.copy")
            os.truncate(path, 0)
            self.touch(path)

    def pack(self, which: int, how: str) -> None:
        """Packs as gzip does: the original goes when the archive is whole, which has its time. Or it stays (`keep`), or the agent
        looks while the archive is being written (`cut`).
        """
        rotated = sorted(p for p in self.folder.glob("?.log.*") if p.suffix != ".gz")
        if not rotated:
            return
        path = rotated[which % len(rotated)]
        there, packed = path.stat(), gzip.compress(path.read_bytes(), 1)
        target = path.with_name(path.name + ".gz")
        target.unlink(missing_ok=True)  # as gzip -f does
        if how == "cut":
            self.write(target, packed[: len(packed) // 2])
            self.look()
            self.look()
            self.write(target, packed[len(packed) // 2 :])
        else:
            target.write_bytes(packed)
        os.utime(target, ns=(there.st_atime_ns, there.st_mtime_ns))
        if how != "keep":
            path.unlink()

    def delete(self, name: str) -> None:
        self.path(name).unlink(missing_ok=True)

    def recreate(self, name: str) -> None:
        self.delete(name)
        self.append(name, 3)

    def look(self) -> None:
        self.tracker.observe(self.scanner.scan(), self.now, self.now)
        self.files.open_new(self.now)
        self.read_all()
        self.tracker.expire(self.now)
        read = set(self.delivered)
        for _file, block in self.flying:
            read.update(block.data.split(b"\n"))
        opened = {f.path for f in self.tracker if f.is_open}
        for path in self.folder.glob("*.log*"):
            if path.suffix == ".gz":
                continue  # the end of the test looks at them: they take more than one look
            missing = {line for line in path.read_bytes().split(b"\n")[:-1] if not in_pieces(line, read)}
            assert not missing, f"{path.name}: {sorted(missing)[:3]} were there and were not read"
            assert str(path) in opened or path.stat().st_size == 0 or self.closed(path)

    def closed(self, path: Path) -> bool:
        there = path.stat()
        file = self.tracker.get((there.st_dev, there.st_ino))
        return file is not None and file.position == there.st_size

    def read_all(self) -> None:
        for _ in range(1000):
            changed = self.files.changed(self.now)
            if not changed and not self.files.busy:
                return
            for file in changed:
                block = self.files.read(file, self.now)
                if block is not None:
                    self.flying.append((file, block))
        raise AssertionError("reading does not come to an end")

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.look()

    def rest(self, seconds: float) -> None:
        """Acknowledges all before a file may be closed and its inode used again."""
        self.look()
        self.ack(len(self.flying))
        self.wait(seconds)

    def ack(self, blocks: int) -> None:
        """Acknowledges the oldest blocks (those of one file are in order)."""
        done, self.flying = self.flying[:blocks], self.flying[blocks:]
        for file, block in done:
            self.delivered += [line for line in block.data.split(b"\n") if line]
            self.tracker.acknowledged(file, block.generation, block.end, block.tail)

    def save(self) -> None:
        entries = json.loads(json.dumps([entry_of(c) for c in self.tracker.checkpoints()]))
        self.saved = [checkpoint_of(e) for e in entries]

    def kill(self) -> None:
        self.killed = True
        self.files.close_all()
        self.flying.clear()
        self.boot()


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(STEPS, min_size=1, max_size=40))
def test_every_line_that_was_seen_is_delivered(steps):
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder))
        for name, *arguments in steps:
            getattr(world, name)(*arguments)
        world.look()
        world.wait(LIMITS.rotate_wait + 1)
        world.ack(len(world.flying))
        lines = [line for p in world.folder.glob("*.log*") for line in content(p).split(b"\n")[:-1]]
        for _ in range(4):  # archives wait until the file that they hold is closed
            world.wait(LIMITS.close_rotated + 1)
            world.ack(len(world.flying))
        delivered = set(world.delivered)
        assert all(in_pieces(line, delivered) for line in lines)
        if not world.killed and not any(s[0] in {"begin_line", "wait"} for s in steps):
            assert len(set(world.delivered)) == len(world.delivered), "lines came twice"
        world.files.close_all()


ORDERLY = st.one_of(
    st.tuples(st.just("append"), st.sampled_from("ab"), st.integers(1, 60)),
    st.tuples(st.just("rename"), st.sampled_from("ab"), st.just(True)),
    st.tuples(st.just("pack"), st.integers(0, 5), st.sampled_from(["", "keep", "cut"])),
    st.tuples(st.just("look")),
    st.tuples(st.just("rest"), st.sampled_from([70.0, 400.0])),
    st.tuples(st.just("ack"), st.integers(1, 4)),
)


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(ORDERLY, min_size=1, max_size=30), st.booleans())
def test_renaming_and_packing_deliver_every_line_once(steps, restart):
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder))
        for name, *arguments in steps:
            getattr(world, name)(*arguments)
        if restart:  # all is acknowledged and saved, as at an orderly end
            world.ack(len(world.flying))
            world.save()
            world.kill()
        for _ in range(5):
            world.wait(LIMITS.close_rotated + 1)
            world.ack(len(world.flying))
        assert len(set(world.delivered)) == len(world.delivered), "lines came twice"
        lines = {line for p in world.folder.glob("*.log*") for line in content(p).split(b"\n")[:-1]}
        assert lines <= set(world.delivered)
        assert world.tracker.gaps == []
        world.files.close_all()


class TestRotation:
    def world(self, tmp_path: Path) -> World:
        return World(tmp_path)

    def test_a_file_renamed_out_of_the_pattern_is_read_to_its_end(self, tmp_path):
        world = self.world(tmp_path)
        world.append("a", 10)
        world.look()
        world.path("a").rename(tmp_path / "gone.old")
        world.write(tmp_path / "gone.old", b"late line\nlast without end")
        world.append("a", 2)
        world.look()
        world.ack(99)
        assert b"late line" in world.delivered
        assert b"last without end" not in world.delivered
        world.wait(LIMITS.rotate_wait + 1)
        world.ack(99)
        assert b"last without end" in world.delivered
        world.wait(LIMITS.close_rotated + 1)
        assert sum(f.is_open for f in world.tracker) == 1

    def test_a_deleted_open_file_is_read_to_its_end_and_its_entry_goes(self, tmp_path):
        world = self.world(tmp_path)
        world.append("a", 10)
        world.look()
        with world.path("a").open("ab") as writer:
            world.path("a").unlink()
            writer.write(b"after removal\n")
        world.look()
        world.ack(99)
        assert b"after removal" in world.delivered
        world.wait(LIMITS.close_rotated + 1)
        world.wait(1)
        assert not list(world.tracker)
        assert world.tracker.checkpoints() == []

    def test_truncated_and_grown_beyond_the_old_position(self, tmp_path):
        world = self.world(tmp_path)
        world.append("a", 3)
        world.look()
        world.copytruncate("a")
        world.append("a", 50)
        world.look()
        world.ack(99)
        assert len(world.delivered) == len(set(world.delivered)) == 53

    def test_content_that_was_read_before_its_truncation_is_no_gap(self, tmp_path):
        world = self.world(tmp_path)
        world.append("a", 5)
        world.look()
        world.copytruncate("a")
        world.append("a", 50)  # longer than before: only the bytes tell
        world.look()
        world.ack(99)
        assert len(set(world.delivered)) == 55
        assert world.tracker.gaps == []

    @pytest.mark.parametrize("killed", [False, True])
    def test_lines_lost_by_a_truncation_are_counted(self, tmp_path, killed):
        world = self.world(tmp_path)
        world.append("a", 3)
        world.look()
        there = world.path("a").stat()
        file = world.tracker.get((there.st_dev, there.st_ino))
        read = file.position
        world.append("a", 5)
        grown = world.path("a").stat()
        # The agent learns of the growth but is held up before it can read
        world.tracker.looked(file, grown.st_size, grown.st_mtime, 1, world.now)
        world.copytruncate("a")
        world.look()
        world.ack(99)
        assert world.tracker.gaps == [], "a copy may bring them"
        if killed:
            world.save()
            world.kill()
        world.wait(COPY_WAIT_S)
        if killed:
            world.wait(COPY_WAIT_S)
        assert [(g.start, g.end, g.reason) for g in world.tracker.gaps] == [
            (read, grown.st_size, "truncated")
        ]

    def test_acknowledgements_of_the_content_before_a_truncation_say_nothing_about_the_new(self, tmp_path):
        world = self.world(tmp_path)
        world.append("a", 30)
        world.look()
        world.copytruncate("a")
        world.append("a", 50)
        world.look()
        world.ack(1)
        assert [c.offset for c in world.tracker.checkpoints() if c.inode[0] >= 0] == [0]
        world.ack(9)
        assert [c.offset for c in world.tracker.checkpoints() if c.inode[0] >= 0] == [
            world.path("a").stat().st_size
        ]

    def test_hard_links_are_one_file(self, tmp_path):
        world = self.world(tmp_path)
        world.append("a", 4)
        world.path("b").hardlink_to(world.path("a"))
        world.look()
        world.ack(9)
        assert len(world.delivered) == 4

    def test_an_inode_used_again_is_another_file(self, tmp_path):
        tracker = Tracker([LIMITS])
        observed = Observed(path="/x.log", inode=(1, 7), size=20, modified=1.0, source=0)
        tracker.observe([observed], 0.0, 0.0)
        (file,) = tracker.to_open()
        tracker.opened(file, b"first line\nsecond 1\n", b"", 0.0)
        block = tracker.feed(file, b"first line\nsecond 1\n", 100)
        tracker.acknowledged(file, block.generation, block.end, block.tail)
        again = Tracker([LIMITS], tracker.checkpoints())
        again.observe([Observed(path="/x.log", inode=(1, 7), size=30, modified=2.0, source=0)], 0.0, 0.0)
        (file,) = again.to_open()
        start, count = again.tail_range(file)
        other = b"other file altogether, 30 b..\n"
        again.opened(file, other, other[start : start + count], 0.0)
        assert file.position == 0
        assert again.feed(file, other, 100).data == other


def test_files_that_cannot_be_opened_take_no_room_from_others(tmp_path):
    troubles: list[str] = []
    tracker = Tracker([LIMITS])
    opener = OpenFiles(tracker, lambda path, _: troubles.append(path), 4096, most=2)
    (tmp_path / "loop").symlink_to(tmp_path / "loop")  # ELOOP, also for root
    (tmp_path / "good").write_bytes(b"line\n")
    there = (tmp_path / "good").stat()
    bad = [
        Observed(path=str(tmp_path / "loop"), inode=(1, i), size=5, modified=1.0, source=0) for i in (1, 2, 3)
    ]
    good = Observed(
        path=str(tmp_path / "good"),
        inode=(there.st_dev, there.st_ino),
        size=5,
        modified=there.st_mtime,
        source=0,
    )
    tracker.observe([*bad, good], 0.0, 0.0)
    opener.open_new(0.0)
    assert len(troubles) == 3
    assert [f.path for f in tracker if f.is_open] == [good.path]
    opener.close_all()


@pytest.mark.parametrize(("other", "position"), [(False, 20), (True, 0)])
def test_a_device_with_another_number_since_the_machine_was_started(other, position):
    content = b"first line\nsecond 1\n"
    tracker = Tracker([LIMITS])
    tracker.observe([Observed(path="/x.log", inode=(1, 7), size=20, modified=1.0, source=0)], 0.0, 0.0)
    (file,) = tracker.to_open()
    tracker.opened(file, content, b"", 0.0)
    block = tracker.feed(file, content, 100)
    tracker.acknowledged(file, block.generation, block.end, block.tail)
    again = Tracker([LIMITS], tracker.checkpoints())
    again.observe([Observed(path="/x.log", inode=(2, 7), size=20, modified=1.0, source=0)], 0.0, 0.0)
    (file,) = again.to_open()
    start, count = again.tail_range(file)
    found = content[::-1] if other else content
    again.opened(file, found, found[start : start + count], 0.0)
    assert file.position == position
    assert [f.inode for f in again if f.seen] == [(2, 7)]


class TestPolicies:
    def scan(self, tracker: Tracker, **what) -> list[Tracked]:
        tracker.observe([Observed(path="/x", inode=(1, 1), source=0, **what)], 0.0, 1000.0)
        return tracker.to_open()

    def test_start_at_the_end_skips_what_is_there_first_and_says_so(self):
        tracker = Tracker([Limits(from_end=True)])
        (file,) = self.scan(tracker, size=500, modified=1.0)
        assert file.position == 500
        assert [(g.start, g.end, g.reason) for g in tracker.gaps] == [(0, 500, "start_position")]
        later = Observed(path="/y", inode=(1, 2), size=9, modified=2.0, source=0)
        tracker.observe([later], 1.0, 1000.0)
        assert [f.position for f in tracker.to_open()] == [0]

    def test_older_files_are_left_until_they_change(self):
        tracker = Tracker([Limits(ignore_older=100.0)])
        assert self.scan(tracker, size=500, modified=1.0) == []
        assert self.scan(tracker, size=500, modified=1.0) == []
        assert [g.reason for g in tracker.gaps] == ["ignore_older"]
        assert len(self.scan(tracker, size=501, modified=999.0)) == 1

    def test_a_line_longer_than_allowed_is_given_out_in_pieces(self):
        tracker = Tracker([Limits(max_line=100)])
        (file,) = self.scan(tracker, size=250, modified=1.0)
        tracker.opened(file, b"", b"", 0.0)
        data = "ä".encode() * 125
        pieces = []
        while block := tracker.feed(file, data[max(0, file.position - len(file.tail)) :], 10_000, final=True):
            pieces.append(block.data)
        assert b"".join(pieces) == data
        assert [len(p) for p in pieces] == [100, 100, 50]
        assert tracker.cuts == 2
        assert all(p.decode() for p in pieces)

    def test_a_long_line_is_whole_also_at_the_end_of_a_quiet_file(self):
        tracker = Tracker([Limits(max_line=5000)])
        line = b"x" * 3000 + b"\n"
        (file,) = self.scan(tracker, size=len(line), modified=1.0)
        tracker.opened(file, line, b"", 0.0)
        _, count = tracker.range(file, 1000)
        assert tracker.feed(file, line[:count], count, final=True) is None
        _, count = tracker.range(file, 1000)
        assert tracker.feed(file, line[:count], count, final=True).data == line

    def test_what_is_in_flight_of_a_file_that_is_forgotten_says_nothing_of_the_next_with_its_inode(self):
        tracker = Tracker([Limits()])
        (file,) = self.scan(tracker, size=5, modified=1.0)
        tracker.opened(file, b"old1\n", b"", 0.0)
        block = tracker.feed(file, b"old1\n", 100)
        tracker.feed(file, b"", 100)  # truncated
        tracker.looked(file, 0, 2.0, 0, 0.0)
        tracker.closed(file, 0.0)
        tracker.expire(0.0)
        (file,) = self.scan(tracker, size=9, modified=3.0)
        tracker.acknowledged(file, block.generation, block.end, block.tail)
        assert file.acked == 0

    def test_the_fingerprint_grows_with_the_file(self):
        tracker = Tracker([Limits()])
        (file,) = self.scan(tracker, size=5, modified=1.0)
        tracker.opened(file, b"abcd\n", b"", 0.0)
        content = b"abcd\n"
        for n in range(300):
            assert tracker.feed(file, content[max(0, file.position - TAIL) :], 10_000)
            content += b"line %d\n" % n
        tracker.feed(file, content[max(0, file.position - TAIL) :], 10_000)
        assert file.head_print == Print.of(content[:HEAD])
        assert file.tail == content[-TAIL:]

    def test_expected_lines_are_only_forgotten_with_a_gap(self):
        tracker = Tracker([Limits()])
        self.scan(tracker, size=500, modified=1.0)
        tracker.observe([], 1.0, 1000.0)
        tracker.expire(10_000.0)
        assert [(g.start, g.end, g.reason) for g in tracker.gaps] == [(0, 500, "gone")]
        with contextlib.suppress(StopIteration):
            assert next(iter(tracker)) is None


@pytest.mark.parametrize("read", [0, 50])
def test_a_file_that_gets_the_inode_of_another_inputs_file_belongs_to_its_own_input(read):
    """Its lines would go to the topic of the file that was removed."""
    tracker = Tracker([Limits(topic="a"), Limits(topic="b")], None, 0.0)

    def seen(path: str, source: int, size: int, modified: float) -> Observed:
        return Observed(path=path, inode=(1, 7), size=size, modified=modified, source=source)

    tracker.observe([seen("/a.log", 0, 50, 1.0)], 1.0, 1.0)
    (file,) = tracker
    if read:
        tracker.opened(file, b"a" * 49 + b"\n", b"", 1.0)
        block = tracker.feed(file, b"a" * 49 + b"\n", 100)
        assert block is not None
        tracker.acknowledged(file, block.generation, block.end, block.tail)
        tracker.closed(file, 2.0)
    tracker.observe([seen("/b.log", 1, 80, 3.0)], 3.0, 3.0)
    head = b"b" * 79 + b"\n"
    start, count = tracker.tail_range(file)
    tracker.met(file, head, head[start : start + count])
    tracker.opened(file, head, b"", 3.0)
    assert (file.source, file.position) == (1, 0)


def test_a_renamed_file_stays_with_the_input_that_began_it():
    tracker = Tracker([Limits(topic="a"), Limits(topic="b")], None, 0.0)
    head = b"a" * 49 + b"\n"
    there = Observed(path="/a.log", inode=(1, 7), size=50, modified=1.0, source=0)
    tracker.observe([there], 1.0, 1.0)
    (file,) = tracker
    tracker.opened(file, head, b"", 1.0)
    assert tracker.feed(file, head, 100) is not None
    tracker.observe([replace(there, path="/b.log", source=1)], 2.0, 2.0)
    assert file.source == 0
