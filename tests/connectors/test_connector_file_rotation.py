"""The file source through rotation, truncation and restarts: nothing lost, no cut line, nothing left out in silence."""

import os

import pytest

from klamm_connectors.file.source import follow
from klamm_connectors.file.source import task as source_module
from klamm_connectors.file.source.task import FileStreamSourceTask
from klamm_plugins.testing import MemorySourceContext


@pytest.fixture
def path(tmp_path):
    return tmp_path / "in.txt"


@pytest.fixture
def source(path, caplog, monkeypatch):
    """Starts source tasks on the file, at a committed position, and stops them."""
    monkeypatch.setattr(source_module, "_WAIT_S", 0.001)
    caplog.set_level("INFO")
    tasks = []

    def start(position=None, **props):
        config = {"file": str(path), "topic": "lines", **props}
        task = FileStreamSourceTask()
        context = MemorySourceContext(config)
        if position is not None:
            context.offset = lambda _: {"position": position}
        task.initialize(context)
        task.start(config)
        tasks.append(task)
        return task

    yield start
    for task in tasks:
        task.stop()


def drain(task):
    """Returns (text, position) of all there is; done when three polls in a row bring nothing."""
    found, idle = [], 0
    while idle < 3:
        records = task.poll() or []
        idle = 0 if records else idle + 1
        found += [(r.value, r.source_offset["position"]) for r in records]
    return found


def texts(task):
    return [text for text, _ in drain(task)]


def append(path, data):
    with path.open("ab") as f:
        f.write(data)


def warnings(caplog):
    return [r.message for r in caplog.records if r.levelname == "WARNING"]


@pytest.mark.parametrize(
    ("content", "position", "expected"),
    [
        (b"one\ntwo\n", 4, ["two"]),
        (b"one\ntwo\n", 8, []),
        (b"one\r\ntwo\r\n", 5, ["two"]),
        (b"one\rtwo\rx", 4, ["two"]),
        (b"x" * 3000 + b"\ntwo\n", 3001, ["two"]),
    ],
)
def test_a_position_after_a_line_end_is_gone_on_from(source, path, caplog, content, position, expected):
    path.write_bytes(content)
    assert texts(source(position)) == expected
    assert not warnings(caplog)


@pytest.mark.parametrize(
    ("content", "position", "expected"),
    [
        (b"another file\nlonger\n", 4, ["another file", "longer"]),
        (b"abc\r\nlonger\r\n", 4, ["abc", "longer"]),  # between CR and LF
        (b"y" * 5000 + b"\n", 3001, ["y" * 5000]),
        (b"abcd", 4, []),  # a line that is not finished yet
    ],
)
def test_a_position_inside_a_line_means_another_file(source, path, caplog, content, position, expected):
    path.write_bytes(content)
    assert texts(source(position)) == expected
    (said,) = warnings(caplog)
    assert f"no line ends at byte {position}" in said
    assert "reading from its beginning" in said


def test_a_shorter_file_is_read_from_its_beginning_at_start(source, path, caplog):
    path.write_bytes(b"new\n")
    assert texts(source(2000)) == ["new"]
    assert "is shorter than the 2000 bytes" in warnings(caplog)[0]


def test_restart_after_a_rotation_to_a_longer_file(source, path, tmp_path, caplog):
    path.write_bytes(b"old 1\nold 2\n")
    task = source()
    position = drain(task)[-1][1]
    task.stop()
    path.rename(tmp_path / "in.txt.1")
    path.write_bytes(b"a new line that goes past the position\nnext\n")
    assert texts(source(position)) == ["a new line that goes past the position", "next"]
    assert len(warnings(caplog)) == 1


def test_a_committed_position_is_checked_when_the_file_appears(source, path):
    task = source(4)
    assert texts(task) == []
    path.write_bytes(b"longer line\n")
    assert texts(task) == ["longer line"]


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_rename_and_create(source, path, tmp_path, caplog, end):
    path.write_bytes(b"one" + end)
    task = source()
    assert texts(task) == ["one"]
    path.rename(tmp_path / "in.txt.1")
    append(tmp_path / "in.txt.1", b"late" + end)
    path.write_bytes(b"new" + end)
    assert drain(task) == [("late", 7 + 2 * len(end)), ("new", 3 + len(end))]
    assert task.lag() == 0
    append(path, b"more" + end)
    assert texts(task) == ["more"]
    assert not warnings(caplog)
    assert [r.levelname for r in caplog.records if "was replaced by another file" in r.message] == ["INFO"]


def test_the_old_file_is_followed_while_the_path_is_missing_or_empty(source, path, tmp_path):
    old = tmp_path / "in.txt.1"
    path.write_bytes(b"one\n")
    task = source()
    assert texts(task) == ["one"]
    path.rename(old)
    assert texts(task) == []
    append(old, b"two\n")
    assert texts(task) == ["two"]
    path.touch()  # the writer still has the old one open
    append(old, b"three\n")
    assert texts(task) == ["three"]
    append(path, b"four\n")
    assert texts(task) == ["four"]


def test_a_deleted_file_is_replaced_by_the_next(source, path):
    path.write_bytes(b"one\n")
    task = source()
    assert texts(task) == ["one"]
    path.unlink()
    assert texts(task) == []
    path.write_bytes(b"two\n")
    assert texts(task) == ["two"]


@pytest.mark.parametrize("last", [b"unfinished", b"unfinished\r"])
def test_the_last_line_of_the_old_file_needs_no_end(source, path, tmp_path, caplog, last):
    path.write_bytes(b"one\n" + last)
    task = source()
    assert texts(task) == ["one"]
    path.rename(tmp_path / "in.txt.1")
    assert texts(task) == []
    path.write_bytes(b"new\nmore\n")
    # A task that stops after the last line of the old file goes on with all of the new one.
    assert drain(task) == [("unfinished", 0), ("new", 4), ("more", 9)]
    assert not warnings(caplog)


def test_rotation_while_behind(source, path, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(follow, "_CHUNK", 64)
    old = [f"old {i}" for i in range(200)]
    path.write_text("\n".join(old))
    task = source(**{"batch.size": "3"})
    first = [r.value for r in task.poll()]
    path.rename(tmp_path / "in.txt.1")
    new = [f"new {i}" for i in range(100)]
    path.write_text("\n".join(new) + "\n")
    assert first + texts(task) == old + new
    assert not warnings(caplog)


def test_what_is_written_until_the_replacement_is_seen_comes_first(source, path, tmp_path, monkeypatch):
    """A line may come between the look at the old file and the look at the path."""
    path.write_bytes(b"one\n")
    task = source()
    assert texts(task) == ["one"]
    real = follow.FollowedFile._is_replaced
    rotations = []

    def rotate_meanwhile(self):
        if not rotations:
            rotations.append(1)
            append(path, b"last moment\n")
            path.rename(tmp_path / "in.txt.1")
            path.write_bytes(b"new\n")
        return real(self)

    monkeypatch.setattr(follow.FollowedFile, "_is_replaced", rotate_meanwhile)
    assert texts(task) == ["last moment", "new"]


def test_lines_that_come_to_the_old_file_too_late_are_warned_about(source, path, tmp_path, caplog):
    old = tmp_path / "in.txt.1"
    path.write_bytes(b"one\n")
    task = source()
    assert texts(task) == ["one"]
    path.rename(old)
    path.write_bytes(b"new\n")
    assert texts(task) == ["new"]
    append(old, b"too late\n")
    assert texts(task) == []
    append(old, b"and more\n")
    assert texts(task) == []
    (said,) = warnings(caplog)
    assert "got 9 bytes more after byte 4, which are not read" in said


def test_a_file_that_was_left_is_let_go(source, path, tmp_path, monkeypatch):
    monkeypatch.setattr(follow, "_WATCH_S", 0.0)
    path.write_bytes(b"one\n")
    task = source()
    assert texts(task) == ["one"]
    path.rename(tmp_path / "in.txt.1")
    path.write_bytes(b"new\n")
    closed = []
    real = os.close
    monkeypatch.setattr(os, "close", lambda fd: closed.append(fd) or real(fd))
    assert texts(task) == ["new"]
    assert len(closed) == 1


def test_files_between_two_looks_are_named(source, path, tmp_path, caplog):
    older = tmp_path / "in.txt.9"
    older.write_bytes(b"rotated long ago\n")
    path.write_bytes(b"one\n")
    os.utime(older, ns=(0, 1_000))
    os.utime(path, ns=(0, 2_000))
    (tmp_path / "unrelated").write_bytes(b"x\n")
    task = source()
    assert texts(task) == ["one"]
    path.rename(tmp_path / "in.txt.2")
    (tmp_path / "in.txt.1").write_bytes(b"never seen\n")
    path.write_bytes(b"three\n")
    assert texts(task) == ["three"]
    (said,) = warnings(caplog)
    assert said.endswith("files in between were not read: in.txt.1")


@pytest.mark.parametrize(
    "refill",
    [
        b"new 1\nnew 2 is longer\n",
        b"new line\r\nnew\r\n",
        b"new 1\nold 2\n" + b"x\n" * 2000,
        b"new 1\nnew 2\n",  # as long as what was read
    ],
)
def test_truncate_and_refill(source, path, caplog, refill):
    path.write_bytes(b"old 1\nold 2\n")
    task = source()
    assert texts(task) == ["old 1", "old 2"]
    inode = path.stat().st_ino
    path.write_bytes(refill)
    assert path.stat().st_ino == inode
    assert texts(task) == refill.decode().splitlines()
    (said,) = warnings(caplog)
    assert "truncated and filled again" in said


def test_truncate_and_refill_drops_the_half_line_of_before(source, path, caplog):
    path.write_bytes(b"old\nhalf")
    task = source()
    assert texts(task) == ["old"]
    path.write_bytes(b"new 1\nnew 2\nnew 3\n")
    assert texts(task) == ["new 1", "new 2", "new 3"]
    assert "an unfinished line of 4 bytes is gone" in warnings(caplog)[0]


def test_truncate_and_refill_after_a_restart(source, path, caplog):
    path.write_bytes(b"old 1\nold 2\n")
    task = source(12)
    assert texts(task) == []
    path.write_bytes(b"new 1\nnew 2\nnew 3\n")
    assert texts(task) == ["new 1", "new 2", "new 3"]
    assert len(warnings(caplog)) == 1


def test_growth_is_no_truncation(source, path, caplog):
    task = source()
    expected = []
    for i in range(40):
        append(path, f"{i} {'x' * (i * 20)}\r\n".encode())
        expected.append(f"{i} {'x' * (i * 20)}")
    assert texts(task) == expected
    append(path, b"par")
    assert texts(task) == []
    append(path, b"tial\n")
    assert texts(task) == ["partial"]
    assert not warnings(caplog)


def test_an_idle_look_costs_few_system_calls(source, path, monkeypatch):
    path.write_bytes(b"one\n")
    task = source()
    assert texts(task) == ["one"]
    calls = []
    for name in ("pread", "fstat", "stat", "open"):
        real = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *a, _n=name, _r=real, **k: calls.append(_n) or _r(*a, **k))
    task.context.stopping.set()
    assert task.poll() is None
    assert calls == ["pread", "stat"]
