"""A crash at every step of a cleaning: the next start has every last value, and nothing above the clean point is lost.

The steps are taken from the plan that the broker carries out, so a new one is tried as well.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from support.cleaning import Cleaning, batches, put_in_place, records
from support.power import SyncedDisk

from klamm_base import files as base_files
from klamm_broker.log import files, swap
from klamm_broker.log.cleaner.job import Cleaned, Failed, job_line, read_report
from klamm_broker.log.config import LogConfig
from klamm_broker.log.errors import StorageError
from klamm_broker.log.files import OpenFile
from klamm_broker.log.partition_log import PartitionLog
from klamm_kafka.wire.batch import Record, encode_batch, encode_end_txn_marker

NOW = 1_800_000_000_000
CONFIG = LogConfig(
    cleanup_policy=("compact",), segment_bytes=2000, index_interval_bytes=100, retention_ms=-1,
    min_cleanable_dirty_ratio=0.0,
)  # fmt: skip


class Stop(Exception):
    pass


def open_log(directory: Path, config: LogConfig = CONFIG, *, clean: bool = True) -> PartitionLog:
    return PartitionLog.open(directory, "t", 0, config, clean=clean, now_ms=NOW)


def fill(log: PartitionLog) -> None:
    """Writes seven segments; keys that come again, tombstones, an aborted and a committed transaction."""
    for i in range(40):
        rows = [
            Record(timestamp=NOW + i, key=b"k%d" % ((i + n) % 9), value=b"v%d-%d" % (i, n)) for n in range(3)
        ]
        if i % 11 == 10:
            rows.append(Record(timestamp=NOW + i, key=b"k%d" % (i % 9), value=None))
        log.append(encode_batch(rows), now_ms=NOW)
        if i in (5, 20):
            txn = [Record(timestamp=NOW, key=b"t%d" % i, value=b"x")]
            data = encode_batch(
                txn, producer_id=7, producer_epoch=0, base_sequence=0 if i == 5 else 1, is_transactional=True
            )
            log.append(data, now_ms=NOW, transaction_version=1)
            marker = encode_end_txn_marker(
                committed=i == 20, producer_id=7, producer_epoch=0, coordinator_epoch=0, timestamp=NOW
            )
            log.append(marker, now_ms=NOW, origin="coordinator")


def last_values(log: PartitionLog) -> dict[bytes | None, Record]:
    stable = log.last_stable_offset
    aborted = log.aborted_transactions(0, stable)
    found = {}
    for header, rows in batches(log):
        gone = header.is_control or (
            header.is_transactional
            and any(t.first_offset <= header.base_offset <= t.last_offset for t in aborted)
        )
        found |= {} if gone else {r.key: r for r in rows}
    return found


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("filled") / "t-0"
    log = open_log(directory, replace(CONFIG, segment_bytes=600))
    fill(log)
    log.close()
    return directory


def interrupted(filled: Path, target: Path, group: int) -> tuple[Path, Cleaned, swap.SwapPlan]:
    """Returns a copy of the log whose cleaning stands before putting its n-th segment in place."""
    shutil.copytree(filled, target)
    log = open_log(target)
    seen: list[Cleaned] = []

    def in_place(cleaned: Cleaned) -> None:
        if len(seen) == group:
            seen.append(cleaned)
            raise Stop
        seen.append(cleaned)
        put_in_place(log, cleaned, NOW)

    found = Cleaning(log).round(NOW, in_place)
    assert found is not None
    with pytest.raises(Stop):
        found[1].run()
    log.release()
    names = [path.name for path in target.iterdir()]
    return target, seen[-1], swap.plan(seen[-1].base_offset, seen[-1].replaces, names)


def do(steps: list[swap.Step], directory: Path) -> None:
    file = OpenFile(directory, os.O_RDONLY)
    for step in steps:
        step.do(file.fd)


@pytest.mark.parametrize("group", [0, 1])
@pytest.mark.parametrize("snapshots", [True, False])
def test_a_crash_after_every_step_of_the_swap(
    filled: Path, tmp_path: Path, group: int, snapshots: bool
) -> None:
    original = open_log(filled)
    values, end = last_values(original), original.log_end_offset
    _, cleaned, steps = interrupted(filled, tmp_path / "count", group)
    count = len(steps.begin) + len(steps.replace) + len(steps.finish)
    assert len(cleaned.replaces) > 1
    assert count > 12
    sizes = []
    for done in range(count + 1):
        directory, _, steps = interrupted(filled, tmp_path / f"{done}", group)
        do([*steps.begin, *steps.replace, *steps.finish][:done], directory)
        if not snapshots:
            for path in directory.glob("*.snapshot"):
                path.unlink()
        log = open_log(directory, clean=False)
        assert last_values(log) == values, f"after {done} of {count} steps"
        assert log.log_end_offset == end
        assert not [
            p.name for p in directory.iterdir() if p.suffix in (files.CLEANED, files.SWAP, files.DELETED)
        ]
        sizes.append(log.size)
        Cleaning(log).clean(NOW)
        assert last_values(log) == values
        assert len(records(log)) < 40
        log.release()
    assert sizes[0] > sizes[-1], "the last step leaves the cleaned segment"
    assert sorted(sizes, reverse=True) == sizes, "a swap is undone up to a step, and completed from there on"


@pytest.mark.parametrize("suffix", files.SEGMENT_SUFFIXES[:3])
def test_a_crash_while_the_segment_is_written(filled: Path, tmp_path: Path, suffix: str) -> None:
    original = open_log(filled)
    values, size = last_values(original), original.size
    for cut in (0, 1, 61, 10_000):
        directory, cleaned, _ = interrupted(filled, tmp_path / f"{cut}", 0)
        path = directory / (files.offset_name(cleaned.base_offset, suffix) + files.CLEANED)
        path.write_bytes(path.read_bytes()[:cut])
        log = open_log(directory, clean=False)
        assert last_values(log) == values
        assert log.size == size
        log.release()


def test_the_process_is_killed_at_every_step_of_its_own(
    filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process changes no file of the log: the broker or the next start removes what it leaves."""
    shutil.copytree(filled, tmp_path / "t-0")
    log = open_log(tmp_path / "t-0")
    values, before = last_values(log), {p.name: p.read_bytes() for p in log.directory.iterdir()}
    steps = 0
    finished = False
    while not finished:
        found = Cleaning(log).round(NOW, lambda _: None)
        assert found is not None
        with monkeypatch.context() as patched:
            counted = 0

            def call(real: Callable[..., object], *args: object, **named: object) -> object:
                nonlocal counted
                counted += 1
                if counted > steps:
                    raise Stop
                return real(*args, **named)

            for name in ("open", "pwrite", "ftruncate", "utime", "fsync"):
                patched.setattr(os, name, partial(call, getattr(os, name)))
            try:
                found[1].run()
                finished = True
            except Stop:
                steps += 1
        left = {p.name: p.read_bytes() for p in log.directory.iterdir()}
        assert {n: content for n, content in left.items() if not n.endswith(files.CLEANED)} == before
        if steps % 5 == 0:
            shutil.copytree(log.directory, tmp_path / f"{steps}" / "t-0", dirs_exist_ok=True)
            again = open_log(tmp_path / f"{steps}" / "t-0", clean=False)
            assert last_values(again) == values
            assert not list(again.directory.glob("*" + files.CLEANED))
            again.release()
        swap.discard(log.directory)
    assert steps > 20
    Cleaning(log).clean(NOW)
    assert last_values(log) == values


@pytest.mark.usefixtures("processes")
def test_a_disk_that_takes_no_more_is_told_of(filled: Path, tmp_path: Path) -> None:
    """By the process, which is there for the next job."""
    shutil.copytree(filled, tmp_path / "t-0")
    log = open_log(tmp_path / "t-0")
    found = Cleaning(log).round(NOW)
    assert found is not None
    inputs = job_line(found[1].job)
    result = subprocess.run(
        [sys.executable, "-m", "klamm_broker.log.cleaner"],
        input=inputs + inputs, capture_output=True, check=True,
        preexec_fn=partial(resource.setrlimit, resource.RLIMIT_FSIZE, (50, 50)),
    )  # fmt: skip
    reports = [read_report(line) for line in result.stdout.splitlines()]
    assert [report.kind for report in reports if isinstance(report, Failed)] == ["io", "io"]
    assert not result.stderr


def test_what_an_earlier_attempt_left_does_not_undo_a_swap_that_is_under_way(
    filled: Path, tmp_path: Path
) -> None:
    original = open_log(filled)
    values = last_values(original)
    directory, cleaned, _ = interrupted(filled, tmp_path / "t-0", 1)
    (directory / "00000000000000000000.log.cleaned").write_bytes(b"of a process that was killed")
    names = [path.name for path in directory.iterdir()]
    steps = swap.plan(cleaned.base_offset, cleaned.replaces, names)
    do([*steps.begin, *steps.replace], directory)
    log = open_log(directory, clean=False)
    assert last_values(log) == values
    assert log.segment_base_offsets[1] == cleaned.base_offset


def test_a_result_is_thrown_away_when_its_file_or_its_segments_are_others(
    filled: Path, tmp_path: Path
) -> None:
    directory, cleaned, _ = interrupted(filled, tmp_path / "t-0", 0)
    log = open_log(tmp_path / "v-0")
    with pytest.raises(StorageError, match="not there any more"):
        put_in_place(log, cleaned, NOW)
    shutil.rmtree(tmp_path / "v-0")
    shutil.copytree(filled, tmp_path / "v-0")
    log = open_log(tmp_path / "v-0")
    before = log.size
    for path in directory.glob("*.cleaned"):  # the same bytes in another file
        shutil.copy(path, tmp_path / "v-0")
    with pytest.raises(StorageError, match="inode"):
        put_in_place(log, cleaned, NOW)
    assert log.size == before


def test_whoever_reads_a_replaced_segment_reads_on(filled: Path, tmp_path: Path) -> None:
    shutil.copytree(filled, tmp_path / "t-0")
    log = open_log(tmp_path / "t-0")
    piece = log.read(0, 1 << 20, up_to=log.log_end_offset)
    assert piece is not None
    before = os.pread(piece.fd, piece.size, piece.position)
    Cleaning(log).clean(NOW)
    assert log.remove_deleted(NOW + CONFIG.file_delete_delay_ms - 1) == 0
    assert log.remove_deleted(NOW + CONFIG.file_delete_delay_ms) > 0
    assert os.pread(piece.fd, piece.size, piece.position) == before
    for offset in range(log.log_end_offset):  # an offset that is gone gives the next batch
        found = log.read(offset, 1 << 20, up_to=log.log_end_offset)
        assert found is not None
    assert {r.key for r in records(log)} == {r.key for r in last_values(log).values()}


class Failing:
    """`os.rename` and `os.unlink` of a swap; the call after `good` ones fails."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, good: int) -> None:
        self.left = good
        for name in ("rename", "unlink"):
            monkeypatch.setattr(os, name, partial(self._call, getattr(os, name)))

    def _call(self, real: Callable[..., None], *args: object, **directory: int) -> None:
        if directory and self.left == 0:
            self.left -= 1
            raise OSError(5, "Input/output error")
        self.left -= bool(directory)
        real(*args, **directory)


def test_an_error_at_every_step_of_the_swap(
    filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Either nothing has happened, or the log stays readable and the next start completes it."""
    values = last_values(open_log(filled))
    seen = []
    while not seen or seen[-1] is not None:
        directory = tmp_path / f"{len(seen)}" / "t-0"
        shutil.copytree(filled, directory)
        log = open_log(directory)
        cleaned, before = again(log), log.size
        with monkeypatch.context() as patched:
            Failing(patched, len(seen))
            try:
                put_in_place(log, cleaned, NOW)
                seen.append(None)
            except (OSError, StorageError) as e:
                seen.append(log.failed if "Input/output error" in str(e) else None)
        assert last_values(log) == values, f"after {len(seen) - 1} steps"
        record = encode_batch([Record(key=b"k", value=b"v", timestamp=NOW)])
        if seen[-1]:
            with pytest.raises(StorageError):
                log.append(record, now_ms=NOW)
            assert log.size < before
        elif seen[-1] is False:
            assert log.size == before
            assert not [p for p in directory.iterdir() if p.suffix in (files.CLEANED, files.SWAP)]
            log.append(record, now_ms=NOW)
            Cleaning(log).clean(NOW)
        log.release()
        log = open_log(directory, clean=False)
        assert {k: v for k, v in last_values(log).items() if k != b"k"} == values
        assert not [p for p in directory.iterdir() if p.suffix in (files.SWAP, files.DELETED)]
        log.release()
    assert seen == sorted(seen, key=[False, True, None].index)
    assert seen.count(False) >= 3
    assert seen.count(True) > 12


def again(log: PartitionLog) -> Cleaned:
    """Returns the first segment of a cleaning, written and not put in place."""
    seen: list[Cleaned] = []

    def in_place(cleaned: Cleaned) -> None:
        seen.append(cleaned)
        raise Stop

    found = Cleaning(log).round(NOW, in_place)
    assert found is not None
    with pytest.raises(Stop):
        found[1].run()
    return seen[-1]


def test_a_log_is_used_in_the_middle_of_a_swap(filled: Path, tmp_path: Path) -> None:
    """Reads and lookups work while a thread retires the old files."""
    shutil.copytree(filled, tmp_path / "t-0")
    log = open_log(tmp_path / "t-0")
    values = last_values(log)
    under_way = log.begin_swap(again(log))
    under_way.prepare()
    assert last_values(log) == values
    log.adopt(under_way)
    for then in (under_way.retire, lambda: None):
        for segment in log.segments:  # as when too many files are open, and too many indexes
            segment.release()
        assert last_values(log) == values
        assert log.offset_for_timestamp(NOW + 30) is not None
        log.append(encode_batch([Record(key=b"k0", value=b"new", timestamp=NOW + 100)]), now_ms=NOW)
        log.roll(NOW)
        log.flush(NOW)
        values = last_values(log)
        then()
    assert log.remove_deleted(NOW + 2 * CONFIG.file_delete_delay_ms) == 0, (
        "not before the new ones are on the disk"
    )
    log.finish_swap(under_way)
    under_way.sync()
    log.end_swap(under_way, NOW)
    assert log.remove_deleted(NOW + 2 * CONFIG.file_delete_delay_ms) > 0
    for segment in log.segments:
        segment.release()
    assert last_values(log) == values
    assert not [p for p in log.directory.iterdir() if p.suffix == files.SWAP]


def test_a_namesake_in_the_place_of_a_deleted_topic_is_not_touched(filled: Path, tmp_path: Path) -> None:
    shutil.copytree(filled, tmp_path / "t-0")
    log = open_log(tmp_path / "t-0")
    under_way = log.begin_swap(again(log))
    under_way.prepare()
    log.adopt(under_way)
    log.release()
    (tmp_path / "t-0").rename(tmp_path / "t-0.deleted")
    shutil.copytree(filled, tmp_path / "t-0")
    before = {p.name: p.stat().st_ino for p in (tmp_path / "t-0").iterdir()}
    under_way.retire()
    log.finish_swap(under_way)
    assert {p.name: p.stat().st_ino for p in (tmp_path / "t-0").iterdir()} == before


def test_a_power_cut_after_every_step_of_the_swap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what was forced to the disk is there afterwards."""
    disk = SyncedDisk(monkeypatch)
    (tmp_path / "data").mkdir()
    log = open_log(tmp_path / "data" / "t-0", replace(CONFIG, segment_bytes=600))
    fill(log)
    log.flush(NOW)
    log.config = CONFIG
    base_files.sync_directory(tmp_path / "data")
    values = last_values(log)
    images = 0

    def check() -> None:
        nonlocal images
        images += 1
        target = tmp_path / f"image{images}"
        disk.image(tmp_path / "data", target)
        after = open_log(target / "t-0", clean=False)
        assert last_values(after) == values
        after.release()

    check()
    real = swap.Step.do

    def do_and_check(step: swap.Step, directory: int) -> None:
        real(step, directory)
        check()

    monkeypatch.setattr(swap.Step, "do", do_and_check)
    Cleaning(log).clean(NOW)
    log.remove_deleted(NOW + 2 * CONFIG.file_delete_delay_ms)
    check()
    assert images > 20
