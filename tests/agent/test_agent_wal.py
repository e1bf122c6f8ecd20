"""The write-ahead log: whatever moment a kill comes at, it says again what was written before, and no more."""

from __future__ import annotations

import errno
import itertools
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klamm_agent.delivery.wal import log as wal_log
from klamm_agent.delivery.wal.entries import (
    LIFE,
    Kind,
    Note,
    Sent,
    cluster_of,
    decode_notes,
    encode,
    encode_notes,
    follows,
    read_segment,
)
from klamm_agent.delivery.wal.log import WalError, WriteAheadLog
from klamm_kafka.client.outbox import SEQUENCES

SEGMENT = 256 * 1024


# ---- entries


@given(
    st.lists(st.tuples(st.sampled_from(list(Kind)), st.binary(max_size=200)), max_size=8),
    st.data(),
)
def test_a_segment_is_read_up_to_the_first_byte_that_is_wrong(entries, data):
    written = [encode(LIFE + i, kind, {"n": i}, (body,)) for i, (kind, body) in enumerate(entries)]
    whole = b"".join(written)
    ends = list(itertools.accumulate(map(len, written)))
    at = data.draw(st.integers(0, len(whole)))
    how = data.draw(st.sampled_from(["cut", "changed", "older entries behind"]))
    if how == "cut":
        torn = whole[:at]
    elif how == "changed" and at < len(whole):
        torn = whole[:at] + bytes([whole[at] ^ 0x40]) + whole[at + 1 :]
    else:
        cut = max((end for end in [0, *ends] if end <= at), default=0)
        torn = whole[:cut] + b"".join(encode(i, Kind.STATE, {"old": i}) for i in range(3))
        at = cut
    found = list(read_segment(torn, LIFE - 1 if entries else -1))
    kept = sum(end <= at for end in ends)
    expected = [(LIFE + i, kind, {"n": i}, body) for i, (kind, body) in enumerate(entries[:kept])]
    if entries:
        assert [(e.number, e.kind, e.about, e.body) for e in found] == expected
    assert [torn[e.at : e.end] for e in found] == [e.body for e in found]


@given(st.lists(st.tuples(st.integers(1, 1 << 50), st.integers(0, 2), st.integers(0, SEQUENCES - 1))))
def test_notes_come_back(drawn):
    notes = [
        Note(n, Sent(7, 1 << 40, 3, sequence, "ours")) if kind == 0 else Note(n, None, kind == 1)
        for n, kind, sequence in drawn
    ]
    assert decode_notes(encode_notes(notes), "ours") == notes
    assert cluster_of(notes) == ("ours" if any(note.sent for note in notes) else "")


def test_numbers_go_on_in_a_life_and_begin_anew_in_the_next():
    assert follows(-1, 5)
    assert follows(5, 6)
    assert not follows(5, 7)
    assert not follows(5, 5)
    assert follows(5, LIFE)
    assert follows(LIFE + 9, 3 * LIFE)
    assert not follows(LIFE + 9, LIFE)
    assert not follows(LIFE + 9, 2 * LIFE + 1)


# ---- the log on disk


class Killed(Exception):
    pass


class Model:
    """The log as it should be, beside the log. `kill` leaves off in the middle of a write."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.wal = WriteAheadLog(folder, SEGMENT)
        self.wal.begin_anew("r0")
        self.files: dict[str, int | None] = {}
        self.batches: dict[int, tuple[bytes, Sent | None]] = {}
        self.registries = {"r0"}
        self.unsure: list[tuple[str, object]] = []
        self.number = 0

    def commit(self, sizes: list[int], file: int) -> None:
        rows, bodies = [], []
        for size in sizes:
            self.number += 1
            bodies.append(bytearray(self.number.to_bytes(4, "big") * (size // 4 + 1)))
            rows.append([self.number, "t", None, 1, len(bodies[-1]), [["/x", 1, 2, 0, 9, 1]]])
        about = {"batches": rows, "files": {f"1:{file}": {"offset": self.number}}}
        self.unsure = [("files", (f"1:{file}", {"offset": self.number}))]
        self.unsure += [("batch", (row[0], bytes(body))) for row, body in zip(rows, bodies, strict=True)]
        self.wal.commit(about, bodies)
        self._sure()

    def sent(self, pick: int) -> None:
        if not self.batches:
            return
        number = sorted(self.batches)[pick % len(self.batches)]
        sent = Sent(0, 99, 0, number)
        self.unsure = [("sent", (number, sent))]
        self.wal.sent([Note(number, sent)])
        self._sure()

    def acked(self, pick: int) -> None:
        if not self.batches:
            return
        number = sorted(self.batches)[pick % len(self.batches)]
        self.wal.acknowledged(number)
        del self.batches[number]
        self.forgiven.add(number)

    forgiven: set[int]

    def change(self, file: int) -> None:
        self.unsure = [("files", (f"1:{file}", None))]
        self.wal.change({"files": {f"1:{file}": None}})
        self._sure()

    def announce(self, name: str) -> None:
        self.wal.change({"registry": name, "saved": "r0", "counted": []})

    def _sure(self) -> None:
        for kind, (key, value) in self.unsure:
            if kind == "files":
                self.files[key] = value
            elif kind == "batch":
                self.batches[key] = (value, None)
            elif key in self.batches:
                self.batches[key] = (self.batches[key][0], value)
        self.unsure = []

    def check(self, book) -> None:
        found = {n: (bytes(self.wal.read(b)), b.sent) for n, b in book.live.items() if n not in self.forgiven}
        may = dict(self.files), dict(self.batches)
        if (book.files, found) != may:
            self._sure()  # the last entry was whole when the kill came
        assert book.files == self.files
        assert found == self.batches
        assert "r0" in book.registries
        assert sum(book.pins.values()) == len(book.live)
        self.unsure = []

    def restart(self) -> None:
        for segment in self.wal._segments + self.wal._spare:  # a kill writes nothing more
            wal_log.os.close(segment.fd)
        self.wal = WriteAheadLog(self.folder, SEGMENT)
        self.check(self.wal.book)
        # what was acknowledged, and not noted before the kill, is acknowledged again
        for number in self.forgiven & self.wal.book.live.keys():
            self.wal.acknowledged(number)


OPS = st.one_of(
    st.tuples(st.just("commit"), st.lists(st.integers(1, 60_000), min_size=1, max_size=4), st.integers(1, 3)),
    st.tuples(st.just("sent"), st.integers(0, 9)),
    st.tuples(st.just("acked"), st.integers(0, 9)),
    st.tuples(st.just("acked"), st.integers(0, 9)),
    st.tuples(st.just("change"), st.integers(1, 3)),
    st.tuples(st.just("announce"), st.sampled_from(["r1", "r2"])),
    st.tuples(st.just("restart")),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(OPS, st.none() | st.integers(0, 70_000)), max_size=60))
def test_after_a_kill_in_the_middle_of_any_write_the_log_says_what_was_written(ops):
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        model = Model(Path(folder) / "wal")
        model.forgiven = set()
        left: list[int | None] = [None]
        write = wal_log._Segment.write

        def torn(segment, data):
            if left[0] is None or left[0] >= len(data):
                left[0] = None if left[0] is None else left[0] - len(data)
                return write(segment, data)
            wal_log.os.pwrite(segment.fd, data[: left[0]], segment.end)
            raise Killed

        patch.setattr(wal_log._Segment, "write", torn)
        for (what, *arguments), kill in ops:
            left[0] = kill
            try:
                getattr(model, what)(*arguments)
            except Killed:
                left[0] = None
                model.restart()
            left[0] = None
        model.restart()
        model.wal.close()


def test_the_ring_stays_small_and_a_batch_that_nobody_takes_does_not_hold_it(tmp_path):
    wal = WriteAheadLog(tmp_path / "wal", SEGMENT)
    wal.begin_anew(None)
    for number in range(1, 400):
        row = [number, "stuck" if number == 5 else "t", None, 1, 5_000, []]
        wal.commit({"batches": [row], "files": {"1:1": {"offset": number}}}, [bytearray(5_000)])
        wal.sent([Note(number, Sent(0, 1, 0, number, "ours"))])
        if number != 5:
            wal.acknowledged(number)
    assert sum(path.stat().st_size for path in (tmp_path / "wal").iterdir()) <= 3 * SEGMENT
    wal.close()
    again = WriteAheadLog(tmp_path / "wal", SEGMENT)
    assert list(again.book.live) == [5]
    assert again.book.live[5].sent == Sent(0, 1, 0, 5, "ours")
    assert again.book.files == {"1:1": {"offset": 399}}
    again.close()


def test_many_batches_that_nobody_takes_hold_their_own_segments_only(tmp_path):
    """A partition's leader hangs, with more batches than may move on; all others go on for hours."""
    wal = WriteAheadLog(tmp_path / "wal", SEGMENT)
    wal.begin_anew(None)
    stuck = {*range(1, 8), *range(100, 105), 700}
    for number in range(1, 1000):
        row = [number, "stuck" if number in stuck else "t", None, 1, 20_000, []]
        wal.commit({"batches": [row]}, [bytearray([number % 251]) * 20_000])
        if number not in stuck:
            wal.acknowledged(number)
    assert sum(path.stat().st_size for path in (tmp_path / "wal").iterdir()) <= 5 * SEGMENT
    wal.close()
    again = WriteAheadLog(tmp_path / "wal", SEGMENT)
    assert again.book.live.keys() == stuck
    assert all(again.read(one) == bytearray([n % 251]) * 20_000 for n, one in again.book.live.items())
    again.close()


def test_a_log_that_lost_a_segment_with_batches_does_not_count(tmp_path):
    wal = WriteAheadLog(tmp_path / "wal", SEGMENT)
    wal.begin_anew("r0")
    for number in range(1, 40):
        wal.commit({"batches": [[number, "t", None, 1, 20_000, []]]}, [bytearray(20_000)])
    (tmp_path / "wal" / f"{wal._segments[1].name}.log").write_bytes(bytes(SEGMENT))
    wal.close()
    again = WriteAheadLog(tmp_path / "wal", SEGMENT)
    assert (again.book.registries, again.book.next) == ([], 40)
    again.close()


def test_a_full_disk_holds_only_what_needs_a_new_segment(tmp_path, monkeypatch):
    wal = WriteAheadLog(tmp_path / "wal", SEGMENT)
    wal.begin_anew(None)

    def commit(number, size=60_000):
        wal.commit({"batches": [[number, "t", None, 1, size, []]]}, [bytearray(size)])

    for number in range(1, 6):
        commit(number)  # the second segment is there now

    def full(fd, start, size):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(wal_log.os, "posix_fallocate", full)
    number = 6
    while wal._segments[-1].room - 1000 > 60_000 + 64 * 1024:
        commit(number)
        number += 1
    with pytest.raises(WalError, match="No space left"):
        commit(number)
    for acked in range(1, number):
        wal.acknowledged(acked)
    for later in range(number, number + 50):  # in the segments that are there
        commit(later)
        wal.acknowledged(later)
    wal.close()
    assert not WriteAheadLog(tmp_path / "wal", SEGMENT).book.live


def test_on_a_full_disk_acknowledgements_make_room_for_themselves(tmp_path, monkeypatch):
    """Very many small batches: the notes on them fill what was reserved in the last segment."""
    wal = WriteAheadLog(tmp_path / "wal", SEGMENT)
    wal.begin_anew(None)
    numbers = itertools.count(1)

    def commit() -> int:
        number = next(numbers)
        wal.commit({"batches": [[number, "t", None, 1, 300, []]]}, [bytearray(300)])
        return number

    def full(fd, start, size):
        raise OSError(errno.ENOSPC, "No space left on device")

    while len(wal._segments) < 2:
        commit()
    monkeypatch.setattr(wal_log.os, "posix_fallocate", full)
    while wal._segments[-1].room - 1000 > 64 * 1024:
        last = commit()
    with pytest.raises(WalError, match="No space left"):
        [commit() for _ in range(10)]
    for number in range(1, last + 1):
        wal.sent([Note(number, Sent(0, 1, 0, number))])
    for number in wal.book.live:
        wal.acknowledged(number)
    wal.flush()
    commit()
    live = set(wal.book.live)
    assert len(live) == 1
    wal.close()
    assert WriteAheadLog(tmp_path / "wal", SEGMENT).book.live.keys() == live


def test_what_becomes_of_a_batch_that_only_the_spool_knows_outlives_a_second_kill(tmp_path):
    wal = WriteAheadLog(tmp_path / "wal", SEGMENT)
    wal.begin_anew(None)
    wal.commit({"batches": [[1, "t", None, 1, 9, []], [2, "t", None, 1, 9, []]]}, [bytearray(9)] * 2)
    wal = WriteAheadLog(tmp_path / "wal", SEGMENT)  # killed: the spool had both, the log did not know it
    wal.spool_has({1, 2})
    assert not wal.book.live
    wal.sent([Note(1, Sent(0, 1, 0, 0)), Note(2, Sent(0, 1, 0, 1))])
    wal.acknowledged(1)
    wal.flush()
    wal = WriteAheadLog(tmp_path / "wal", SEGMENT)  # killed again, before the spool's position was saved
    wal.spool_has({1, 2})
    assert wal.book.spooled == {1: None, 2: Sent(0, 1, 0, 1)}
