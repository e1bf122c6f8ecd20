"""The write-ahead log: whatever moment a kill comes at, it says again what was written before, and no more."""

from __future__ import annotations

import asyncio
import errno
import itertools
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klamm_agent.delivery.batches import Batch
from klamm_agent.delivery.encode import encode_batch
from klamm_agent.delivery.resuming import REMEMBERED_MS, Known, Resuming, judge
from klamm_agent.delivery.wal import log as wal_log
from klamm_agent.delivery.wal.entries import (
    LIFE,
    Kind,
    Note,
    Sent,
    decode_notes,
    encode,
    encode_notes,
    follows,
    read_segment,
)
from klamm_agent.delivery.wal.log import WalError, WriteAheadLog
from klamm_kafka.client.outbox import SEQUENCES
from klamm_kafka.wire.compression import Compression
from klamm_kafka.wire.messages.describe_producers import (
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)

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
        Note(n, Sent(7, 1 << 40, 3, sequence)) if kind == 0 else Note(n, None, kind == 1)
        for n, kind, sequence in drawn
    ]
    assert decode_notes(encode_notes(notes)) == notes


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
        wal.sent([Note(number, Sent(0, 1, 0, number))])
        if number != 5:
            wal.acknowledged(number)
    assert sum(path.stat().st_size for path in (tmp_path / "wal").iterdir()) <= 3 * SEGMENT
    wal.close()
    again = WriteAheadLog(tmp_path / "wal", SEGMENT)
    assert list(again.book.live) == [5]
    assert again.book.live[5].sent == Sent(0, 1, 0, 5)
    assert again.book.files == {"1:1": {"offset": 399}}
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


# ---- what brokers tell


def batch(number: int, sequence: int, count: int, *, at_ms: int = 0, producer: int = 7) -> Batch:
    data = encode_batch([(None, [b"x"] * count)], at_ms, Compression.NONE)
    found = Batch("t", data, count, [])
    found.number, found.sequence, found.noted = number, sequence, Sent(0, producer, 0, sequence)
    return found


class Leader:
    """A partition's leader as Kafka's: it checks sequence numbers against the last batches that it remembers."""

    def __init__(self) -> None:
        self.log: list[int] = []
        self.cached: list[tuple[int, int]] = []

    @property
    def last(self) -> int | Known:
        return self.cached[-1][1] if self.cached else Known.ABSENT

    def append(self, one: Batch) -> None:
        ends = one.sequence, one.last_sequence
        if ends in self.cached:
            return
        assert not self.cached or one.sequence == (self.cached[-1][1] + 1) % SEQUENCES, "out of order"
        self.log.append(one.number)
        self.cached = [*self.cached, ends][-5:]

    def restarted(self) -> None:
        """Forgets all but the last batch, as after a snapshot."""
        self.cached = self.cached[-1:]


@given(
    st.lists(st.integers(1, 50), min_size=1, max_size=12),
    st.data(),
    st.sampled_from([0, SEQUENCES - 60]),
    st.booleans(),
)
def test_batches_of_a_killed_agent_are_in_the_topic_once(counts, data, first, restarted):
    batches, sequence = [], first
    for number, count in enumerate(counts):
        batches.append(batch(number, sequence, count))
        sequence = (sequence + count) % SEQUENCES
    leader = Leader()
    arrived = data.draw(st.integers(0 if first == 0 else 1, len(batches)))
    for one in batches[:arrived]:
        leader.append(one)
    # At most five are sent before the first is acknowledged; the agent may have noted fewer acknowledgements than came
    noted = data.draw(st.integers(max(0, arrived - 5), min(arrived, len(batches) - 1)))
    went = data.draw(st.integers(max(noted + 1, arrived), max(noted + 1, min(len(batches), noted + 5))))
    unknown = batches[noted:went]
    if restarted:
        leader.restarted()
    told = leader.last
    verdict = judge(unknown, told, 0)
    for one in batches[arrived : data.draw(st.integers(arrived, went))]:
        leader.append(one)  # a request of the dead agent comes after the leader was asked
    assert not verdict.doubtful
    assert verdict.proved + verdict.again == unknown
    for one in verdict.again:
        leader.append(one)
    assert leader.log == list(range(went))


def test_leaders_are_asked_about_all_partitions_at_once():
    """A start with hundreds of partitions over a long line waits for one answer, and not for hundreds."""
    asked, all_asked = [], asyncio.Event()

    class Connection:
        async def request(self, request, *, timeout_s):
            asked.append(request)
            if len(asked) == 50:
                all_asked.set()
            await all_asked.wait()
            told = PartitionResponse(
                active_producers=[ProducerState(producer_id=7, producer_epoch=0, last_sequence=4)]
            )
            return DescribeProducersResponse(topics=[TopicResponse(partitions=[told])])

    class Cluster:
        async def leader(self, topic, partition):
            return Connection()

    resuming = Resuming(Cluster())
    batches = [batch(n, 0, 5) for n in range(51)]
    for partition, one in enumerate(batches):
        one.noted = one.noted._replace(partition=partition)
        resuming.add(one)

    async def ask():
        async with asyncio.timeout(10):
            return await resuming.ask("t", 50)

    verdicts = asyncio.run(ask())
    assert {p: (v.again, v.doubtful) for p, v in verdicts.items()} == {
        p: ([one], []) if p < 50 else ([], [one]) for p, one in enumerate(batches)
    }
    assert not resuming.by_topic


def test_a_producer_that_the_broker_forgot_leaves_doubt():
    some = [batch(1, 10, 5), batch(2, 15, 5)]
    assert judge(some, Known.ABSENT, 0).doubtful == some
    first = [batch(1, 0, 5), batch(2, 5, 5)]
    assert judge(first, Known.ABSENT, 0).again == first, "they never came"
    assert judge(first, Known.ABSENT, REMEMBERED_MS + 1).doubtful == first, "it may have been forgotten since"
    assert judge(some, Known.UNTOLD, 0).again == some, "the broker compares the numbers"


def test_batches_of_another_producer_are_in_doubt():
    some = [batch(1, 0, 5, producer=8), batch(2, 40, 5)]
    verdict = judge(some, 4, 0)
    assert (verdict.again, verdict.doubtful) == ([some[0]], [some[1]])


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
