"""Files that are replaced whole, and folders for their owner alone."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import tempfile
import threading
from pathlib import Path

import pytest
from support.private import umask

from klamm_base import files
from klamm_base.files import exposed, make_private_folder, sync_directory, write_all, write_atomically


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def open_umask():
    with umask(0):
        yield


def refuse_modes(monkeypatch, refusal):
    def refuse(fd, mode):
        raise OSError(refusal, os.strerror(refusal))

    monkeypatch.setattr(os, "fchmod", refuse)


@pytest.fixture
def synced(monkeypatch):
    """Returns whether a file (False) or a folder (True) was forced to the disk, in order."""
    seen, real = [], os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (seen.append(stat.S_ISDIR(os.fstat(fd).st_mode)), real(fd)))
    return seen


@pytest.mark.parametrize("shared", [False, True])
def test_a_file_is_made_and_replaced_and_nothing_is_left_beside(tmp_path, shared):
    path = tmp_path / "f"
    for content in (b"old and long", b"new", b""):
        write_atomically(path, content, shared=shared)
        assert path.read_bytes() == content
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(("sync", "expected"), [(True, [False, True]), (False, [])])
def test_sync_forces_the_content_and_then_the_name(tmp_path, synced, sync, expected):
    write_atomically(tmp_path / "f", b"x", sync=sync)
    assert synced == expected
    sync_directory(tmp_path)
    assert synced == [*expected, True]


@pytest.mark.parametrize("given", [{}, {"mode": 0o644}, {"mode": 0o600}])
def test_the_mode_holds_whatever_the_umask(tmp_path, open_umask, given):
    write_atomically(tmp_path / "f", b"x", **given)
    assert mode(tmp_path / "f") == given.get("mode", 0o600)


@pytest.mark.parametrize("given", [0o600, 0o644])
def test_the_mode_holds_with_a_narrow_umask_and_over_what_a_kill_left(tmp_path, given):
    (tmp_path / "f.tmp").touch()
    (tmp_path / "f.tmp").chmod(0o666)
    with umask(0o077):
        write_atomically(tmp_path / "f", b"x", mode=given)
        write_atomically(tmp_path / "g", b"x", mode=given)
    assert [mode(tmp_path / "f"), mode(tmp_path / "g")] == [given, given]


def test_a_file_keeps_its_mode_where_that_is_asked(tmp_path):
    write_atomically(tmp_path / "f", b"x", keep_mode=True)
    assert mode(tmp_path / "f") == 0o600
    (tmp_path / "f").chmod(0o664)
    write_atomically(tmp_path / "f", b"y", keep_mode=True)
    assert (mode(tmp_path / "f"), (tmp_path / "f").read_bytes()) == (0o664, b"y")


@pytest.mark.parametrize("refusal", [errno.EPERM, errno.EACCES, errno.ENOTSUP])
def test_a_file_system_without_modes_takes_files(tmp_path, monkeypatch, refusal):
    refuse_modes(monkeypatch, refusal)
    write_atomically(tmp_path / "f", b"x")
    assert (tmp_path / "f").read_bytes() == b"x"


def test_another_failure_to_set_a_mode_is_raised(tmp_path, monkeypatch):
    refuse_modes(monkeypatch, errno.EIO)
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        write_atomically(tmp_path / "f", b"x")
    assert list(tmp_path.iterdir()) == []


def test_a_link_in_the_place_of_the_temporary_file_is_not_followed(tmp_path):
    (tmp_path / "other").write_bytes(b"theirs")
    (tmp_path / "f.tmp").symlink_to(tmp_path / "other")
    write_atomically(tmp_path / "f", b"x")
    assert (tmp_path / "other").read_bytes() == b"theirs"
    assert (tmp_path / "f").read_bytes() == b"x"
    assert not (tmp_path / "f").is_symlink()


def test_a_replaced_file_takes_the_new_mode(tmp_path):
    (tmp_path / "f").write_text("of everybody")
    (tmp_path / "f").chmod(0o644)
    write_atomically(tmp_path / "f", b"mine")
    assert mode(tmp_path / "f") == 0o600


@pytest.mark.parametrize("failing", ["write", "fsync"])
@pytest.mark.parametrize("shared", [False, True])
def test_a_failure_leaves_the_old_content_and_no_temporary_file(tmp_path, monkeypatch, failing, shared):
    path = tmp_path / "f"
    path.write_bytes(b"old")

    def full(*_args):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, failing, full)
        with pytest.raises(OSError, match="No space"):
            write_atomically(path, b"new", shared=shared)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_cannot_take_the_name_is_removed(tmp_path):
    (tmp_path / "f").mkdir()
    with pytest.raises(IsADirectoryError):
        write_atomically(tmp_path / "f", b"x")
    assert [p.name for p in tmp_path.iterdir()] == ["f"]


def test_what_a_kill_left_beside_the_file_is_in_nobodys_way(tmp_path):
    (tmp_path / "f.tmp").write_text("half of what was to be written, and longer")
    write_atomically(tmp_path / "f", b"whole")
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("f", b"whole")]


def test_a_file_of_somebody_else_in_the_place_of_the_temporary_file_is_neither_used_nor_in_the_way(
    tmp_path, monkeypatch
):
    """In a folder with the sticky bit, as /tmp, only its owner can remove it."""
    left = tmp_path / "f.tmp"
    left.write_bytes(b"theirs")
    left.chmod(0o666)
    real = Path.unlink

    def refuse(path, *args, **given):
        if path == left:
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), str(path))
        real(path, *args, **given)

    monkeypatch.setattr(Path, "unlink", refuse)
    write_atomically(tmp_path / "f", b"mine")
    assert ((tmp_path / "f").read_bytes(), mode(tmp_path / "f")) == (b"mine", 0o600)
    assert (left.read_bytes(), mode(left)) == (b"theirs", 0o666)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["f", "f.tmp"]


def test_a_folder_in_the_place_of_the_temporary_file_is_not_in_the_way(tmp_path):
    (tmp_path / "f.tmp").mkdir()
    write_atomically(tmp_path / "f", b"x")
    assert (tmp_path / "f").read_bytes() == b"x"


def test_an_open_file_that_a_kill_left_is_not_written(tmp_path):
    with (tmp_path / "f.tmp").open("wb+") as left:
        write_atomically(tmp_path / "f", b"x")
        assert left.read() == b""


def test_writers_at_the_same_time_leave_the_content_of_one(tmp_path):
    path, contents = tmp_path / "f", [bytes([n]) * 100_000 for n in range(4)]

    def write(content):
        for _ in range(20):
            write_atomically(path, content, sync=False, shared=True)

    threads = [threading.Thread(target=write, args=(content,)) for content in contents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert path.read_bytes() in contents
    assert list(tmp_path.iterdir()) == [path]


def test_all_is_written_by_a_disk_that_takes_a_part_at_a_time(tmp_path, monkeypatch):
    real = os.write
    monkeypatch.setattr(files.os, "write", lambda fd, data: real(fd, data[:3]))
    fd = os.open(tmp_path / "f", os.O_WRONLY | os.O_CREAT)
    write_all(fd, bytearray(b"0123456789"))
    os.close(fd)
    assert (tmp_path / "f").read_bytes() == b"0123456789"


def test_a_folder_that_is_made_is_private_and_one_that_was_there_keeps_its_mode(tmp_path, open_umask):
    make_private_folder(tmp_path / "parent/ours")
    assert mode(tmp_path / "parent/ours") == 0o700
    (tmp_path / "theirs").mkdir(mode=0o755)
    make_private_folder(tmp_path / "theirs")
    assert mode(tmp_path / "theirs") == 0o755


def test_a_file_in_the_place_of_the_folder_is_an_error(tmp_path):
    (tmp_path / "f").touch()
    with pytest.raises(FileExistsError):
        make_private_folder(tmp_path / "f")


@pytest.fixture
def shared():
    """Yields a folder that every user reaches, as pytest's own is not."""
    folder = Path(tempfile.mkdtemp(prefix="klamm exposed ", dir="/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def test_data_that_every_user_can_read_is_told_with_the_command(shared):
    data, file = shared / "data", shared / "offsets"
    data.mkdir(mode=0o755)
    data.chmod(0o755)
    file.touch()
    file.chmod(0o644)
    said = f"every user of this machine can read {data}; to keep it private: chmod 700 '{data}'"
    assert exposed(data) == said
    assert (
        exposed(file, mode="600")
        == f"every user of this machine can read {file}; to keep it private: chmod 600 '{file}'"
    )
    assert (mode(data), mode(file)) == (0o755, 0o644), "nobody changed a mode"
    data.chmod(0o750)
    file.chmod(0o640)
    assert (exposed(data), exposed(file), exposed(shared / "missing")) == (None, None, None)


def test_data_below_a_private_folder_is_not_told(shared):
    data = shared / "data"
    data.mkdir()
    data.chmod(0o755)
    shared.chmod(0o700)
    assert exposed(data) is None
