"""Sources of positions: records of `__consumer_offsets`, a mirror's offsets, a Spark job's metrics, headers of batches."""

from __future__ import annotations

import asyncio
import json
import struct
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from klamm.admin.errors import AdminError
from klamm.admin.groups import GroupListing
from klamm.admin.model import TopicPartition
from klamm.lag.commits import CommitReader, Seen
from klamm.lag.fetching import time_at, whole
from klamm.lag.group_source import Known, kind_of
from klamm.lag.monitor import Monitor
from klamm.lag.settings import one_cluster, parse
from klamm.lag.spark_source import positions
from klamm.lag.state import ClusterState, Judging
from klamm.lag.topic_source import AWAY_MS, PASSING_MS, GroupReader, MirrorReader, TopicSource, group_holds
from klamm.lag.watch import ClusterWatch, now_ms
from klamm_base.errors import KlammError
from klamm_base.internal_topics import OFFSETS_TOPIC
from klamm_base.metrics_text import lines
from klamm_base.properties import layered
from klamm_base.security import ClientSecurity
from klamm_broker.coordinator.partitioning import partition_for
from klamm_kafka.wire.batch import Record, encode_batch, iter_headers, read_header
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.group_records import OffsetCommitKey, OffsetCommitValue
from klamm_spark.datasource.exactly_once import Marker
from klamm_spark.status import JobStatus, families

TP = TopicPartition("t", 3)


def commit(
    offset: int | None, at: int = 5000, version: int = 1, group: str = "g", metadata: str = ""
) -> Record:
    key = struct.pack(">h", 1) + OffsetCommitKey(group=group, topic="t", partition=3).encode(0)
    value = None
    if offset is not None:
        said = OffsetCommitValue(offset=offset, metadata=metadata, commit_timestamp=at)
        value = struct.pack(">h", version) + bytes(said.encode(version))
    return Record(key=bytes(key), value=value, timestamp=at)


def control(*, committed: bool) -> Record:
    return Record(key=struct.pack(">hh", 0, committed), value=b"\0" * 6)


@pytest.mark.parametrize("version", [0, 1, 3, 4])
def test_commits_are_read(version):
    reader = CommitReader(11)
    batch = encode_batch([commit(1), commit(7, version=version), commit(None)], base_offset=10)
    assert list(reader.read(bytes(batch))) == [Seen("g", TP, 7, 5000, 11), Seen("g", TP, None, 5000, 12)]
    assert (reader.position, reader.unfinished) == (13, 13)


def test_other_records_are_left_out_and_broken_ones_counted():
    group = Record(key=struct.pack(">h", 2) + b"\0\1g", value=b"\0\0")
    broken = Record(key=struct.pack(">h", 1) + b"\0", value=b"\0\1")
    reader = CommitReader(0)
    assert list(reader.read(bytes(encode_batch([group, broken, commit(5)])))) == [Seen("g", TP, 5, 5000, 2)]
    assert reader.unreadable == 1


@pytest.mark.parametrize("end", ["", "\0"], ids=["text", "librdkafka"])
def test_batch_numbers_of_exactly_once_outputs_of_spark_are_no_positions(end):
    marker = Marker(version=6, rows=10, size=100, writer="a-1", run="b-2").metadata() + end
    batch = encode_batch([commit(7, metadata=marker), commit(8, metadata='{"rows":10}')])
    ended, position = CommitReader(0).read(bytes(batch))
    assert ended.offset is None, "what an earlier version took for a position is forgotten"
    assert position.offset == 8


def test_commits_of_transactions_count_when_they_are_committed():
    reader, txn = CommitReader(0), {"producer_id": 9, "producer_epoch": 0, "is_transactional": True}
    first = encode_batch([commit(5)], base_offset=0, base_sequence=0, **txn)
    other = encode_batch([commit(6, group="h")], base_offset=1)
    assert [s.group for s in reader.read(bytes(first + other))] == ["h"]
    assert (reader.position, reader.unfinished) == (2, 0), "a restart needs the open transaction"
    end = encode_batch([control(committed=True)], base_offset=2, is_control=True, **txn)
    assert list(reader.read(bytes(end))) == [Seen("g", TP, 5, 5000, 2)]
    aborted = encode_batch([commit(8)], base_offset=3, base_sequence=1, **txn)
    end = encode_batch([control(committed=False)], base_offset=4, is_control=True, **txn)
    assert list(reader.read(bytes(aborted + end))) == []
    assert reader.unfinished == 5


def test_a_cut_batch_is_left_for_later():
    batches = bytes(encode_batch([commit(5)])), bytes(encode_batch([commit(6)], base_offset=1))
    assert bytes(whole(batches[0] + batches[1][:-1])) == batches[0]
    assert bytes(whole(batches[0][:30])) == b""


def test_offsets_of_a_mirror_are_positions_at_the_source():
    key = json.dumps(["MirrorSourceConnector", {"cluster": "A", "partition": 3, "topic": "t"}]).encode()
    rows = [
        Record(key=key, value=b'{"offset":41}', timestamp=7),
        Record(key=b'["file",{"filename":"x"}]', value=b'{"position":3}'),
        Record(key=key, value=None),
    ]
    found = list(MirrorReader("B", 0, lambda _: True).positions(memoryview(bytes(encode_batch(rows)))))
    assert [(p.cluster, p.group, p.kind, p.partition, p.offset, p.at_ms, p.order) for p in found] == [
        ("A", "A->B", "mirror", TP, 42, 7, 0), ("A", "A->B", "mirror", TP, None, -1, 2),
    ]  # fmt: skip


def test_offsets_of_a_mirror_count_once_their_transaction_is_committed():
    """With exactly once, an aborted transaction has copied nothing: its offsets are no positions."""
    key = json.dumps(["MirrorSourceConnector", {"cluster": "A", "partition": 3, "topic": "t"}]).encode()
    txn = {"producer_id": 9, "producer_epoch": 0, "is_transactional": True}
    reader = MirrorReader("B", 0, lambda _: True)

    def read(*rows: Record, at: int, **more: Any) -> list[tuple[int | None, int]]:
        batch = encode_batch(rows, base_offset=at, base_sequence=at, **txn, **more)
        return [(p.offset, p.order) for p in reader.positions(memoryview(bytes(batch)))]

    assert read(Record(key=key, value=b'{"offset":41}'), at=0) == []
    assert (reader.position, reader.unfinished) == (1, 0)
    assert read(control(committed=False), at=1, is_control=True) == []
    assert read(Record(key=key, value=b'{"offset":11}'), at=2) == []
    assert read(control(committed=True), at=3, is_control=True) == [(12, 3)]
    assert (reader.position, reader.unfinished) == (4, 4)


def test_a_topic_that_was_never_asked_for_is_not_read_to_its_end():
    source = TopicSource(None, OFFSETS_TOPIC, lambda at: GroupReader("c", at, lambda _: True), {})
    assert not source.caught_up


async def test_a_topic_that_may_not_be_read_is_said():
    async def metadata(_topics: list[str]) -> SimpleNamespace:
        refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return SimpleNamespace(
            topics=[SimpleNamespace(name=OFFSETS_TOPIC, error_code=refused, partitions=[])]
        )

    admin = SimpleNamespace(metadata=metadata)
    source = TopicSource(admin, OFFSETS_TOPIC, lambda at: GroupReader("c", at, lambda _: True), {})
    with pytest.raises(AdminError, match="cannot read __consumer_offsets"):
        await source.poll(0)


def test_a_spark_job_tells_its_positions():
    status = JobStatus("job")
    status.take(
        {
            "event": "progress", "query": "q", "batch": 1, "at": "1970-01-01T00:00:09.500Z", "rows": 1,
            "offsets": {"t": {"3": 42, "11": 5}},
        },
        1.0,
    )  # fmt: skip
    found = list(positions("".join(lines(families(status))), "c"))
    assert [(p.group, p.kind, p.partition, p.offset, p.at_ms) for p in found] == [
        ("spark-q", "spark", TP, 42, 9500), ("spark-q", "spark", TopicPartition("t", 11), 5, 9500),
    ]  # fmt: skip


def test_the_time_of_a_record_lies_between_those_of_its_batch():
    rows = [Record(timestamp=at, value=b"x") for at in (1000, 1500, 2000)]
    header = read_header(encode_batch(rows, base_offset=10))
    assert [time_at(header, n) for n in (3, 10, 11, 12)] == [1000, 1000, 1500, 2000]
    stamped = read_header(encode_batch(rows, base_offset=10, log_append_time=9000))
    assert time_at(stamped, 10) == 9000


@pytest.mark.parametrize(
    ("name", "protocol", "type_", "kind"),
    [
        ("g", "consumer", "Classic", "consumer"), ("connect-sink", "consumer", "Classic", "connect"), ("g", "", "", "consumer"),
        ("s", "share", "Share", "share"), ("s", "streams", "Streams", "streams"), ("connect-cluster", "connect", "Classic", None),
    ],
)  # fmt: skip
def test_kinds_of_groups(name, protocol, type_, kind):
    assert kind_of(GroupListing(group=name, protocol_type=protocol, state="Stable", type=type_)) == kind


def test_a_spark_sink_in_connect_is_told_by_its_worker():
    at = 'connector="lake",task="0",query="{}"'.format
    text = "".join(
        f'klamm_spark_position{{{at(query)},topic="t",partition="3"}} 42\nklamm_spark_last_progress_timestamp_seconds{{{at(query)}}} 9.5\n'
        for query in ("output", "second")
    )
    found = [(p.group, p.kind, p.partition, p.offset, p.at_ms) for p in positions(text, "c")]
    assert found == [("spark-lake", "spark", TP, 42, 9500), ("spark-lake-second", "spark", TP, 42, 9500)]


# ---- partitions that cannot be read, and logs that begin anew


class Cluster:
    """The partitions of `__consumer_offsets`: batches by partition, errors of Fetch and of ListOffsets, where they begin."""

    def __init__(self, *logs: bytes) -> None:
        self.logs = dict(enumerate(logs))
        self.errors: dict[int, int] = {}
        self.id = "first"
        self.begins = 0
        self.timeout_ms = 1000

    async def metadata(self, _topics: list[str] | None = None) -> SimpleNamespace:
        parts = [SimpleNamespace(partition_index=p) for p in self.logs]
        return SimpleNamespace(
            topics=[SimpleNamespace(name=OFFSETS_TOPIC, error_code=0, topic_id=self.id, partitions=parts)]
        )

    async def by_leader(self, partitions, _call, *, again):
        assert not again, "one partition holds the others up"
        return {
            tp: AdminError(self.errors[tp.partition], str(tp)) if tp.partition in self.errors else self.begins
            for tp in partitions
        }

    async def fetch(self, _admin, offsets, *, wait_ms, again):
        assert (wait_ms, again) == (0, False)
        answers = {}
        for tp, at in offsets.items():
            log = self.logs[tp.partition]
            end = max((h.next_offset for _, h in iter_headers(log)), default=self.begins)
            if tp.partition in self.errors:
                answers[tp] = AdminError(self.errors[tp.partition], str(tp))
            elif not self.begins <= at <= end:
                answers[tp] = AdminError(ErrorCode.OFFSET_OUT_OF_RANGE, str(tp))
            else:
                answers[tp] = SimpleNamespace(records=log, high_watermark=end)
        return answers

    def source(self, monkeypatch, begin=None, patience_ms=0) -> TopicSource:
        monkeypatch.setattr("klamm.lag.topic_source.fetch", self.fetch)
        reader = partial(GroupReader, "c", wanted=lambda _: True)
        holds = group_holds("c")
        return TopicSource(self, OFFSETS_TOPIC, reader, begin or {}, holds=holds, patience_ms=patience_ms)


def log(*offsets: int, base: int = 0, at: int = 5000, group: str = "g") -> bytes:
    return bytes(
        encode_batch([commit(o, at + n, group=group) for n, o in enumerate(offsets)], base_offset=base)
    )


PARTS = {partition_for(group, 2): group for group in ("g", "h", "i", "j")}
"""A group in each of two partitions."""


async def test_a_partition_that_cannot_be_read_blinds_for_no_other(monkeypatch):
    cluster = Cluster(log(1, 2, group=PARTS[0]), log(7, group=PARTS[1]))
    cluster.errors[0] = ErrorCode.LEADER_NOT_AVAILABLE
    source = cluster.source(monkeypatch)
    assert [p.offset for p in await source.poll(0)] == [7], "what is found is returned"
    assert source.caught_up
    assert source.trouble is None, "a new leader may come"
    assert source.blind("c", PARTS[0], "consumer")
    assert not source.blind("c", PARTS[1], "consumer")
    assert not source.blind("other", PARTS[0], "consumer")
    assert not source.blind("c", PARTS[0], "spark")

    cluster.logs[1] += log(8, base=1, group=PARTS[1])
    assert [p.offset for p in await source.poll(PASSING_MS)] == [8]
    assert "__consumer_offsets-0" in (source.trouble or "")
    del cluster.errors[0]
    assert [p.offset for p in await source.poll(PASSING_MS + 1)] == [1, 2]
    assert source.trouble is None
    assert not source.blind("c", PARTS[0], "consumer")


async def test_a_partition_that_fails_later_loses_nothing(monkeypatch):
    cluster = Cluster(log(1, group=PARTS[0]), log(7, group=PARTS[1]))
    source = cluster.source(monkeypatch)
    assert [p.offset for p in await source.poll(0)] == [1, 7]
    cluster.errors[1] = ErrorCode.UNKNOWN_SERVER_ERROR
    cluster.logs[0] += log(2, base=1, group=PARTS[0])
    cluster.logs[1] += log(8, base=1, group=PARTS[1])
    assert [p.offset for p in await source.poll(500)] == [2]
    assert source.trouble is not None
    del cluster.errors[1]
    assert [p.offset for p in await source.poll(1000)] == [8]
    assert not source.began_anew


@pytest.mark.parametrize("longer", [False, True])
async def test_a_topic_that_is_made_anew_is_read_from_its_beginning(monkeypatch, longer):
    cluster = Cluster(log(1, 2, 3))
    source = cluster.source(monkeypatch)
    await source.poll(0)
    cluster.logs[0], cluster.id = log(*([4] * 9 if longer else [4])), "second"
    found = [p for n in (1, 2) for p in await source.poll(n * 100_000)]
    assert {p.offset for p in found} == {4}
    assert found[0].order == 0
    assert source.began_anew


async def test_a_topic_that_is_unknown_for_a_moment_is_read_on(monkeypatch):
    cluster = Cluster(log(1, 2))
    source = cluster.source(monkeypatch)
    await source.poll(0)
    kept, cluster.logs = cluster.logs, {}
    assert await source.poll(100_000) == []
    cluster.logs = {0: kept[0] + log(3, base=2)}
    assert [p.offset for p in await source.poll(200_000)] == [3]
    assert not source.began_anew


async def test_places_of_a_log_that_was_cut_are_of_another_log(monkeypatch):
    cluster = Cluster(log(1))
    source = cluster.source(monkeypatch, {TopicPartition(OFFSETS_TOPIC, 0): 500})
    found = [p for n in (1, 2) for p in await source.poll(n)]
    assert ([p.offset for p in found], source.began_anew) == ([1], True)


async def test_a_log_whose_beginning_moved_on_keeps_its_orders(monkeypatch):
    cluster = Cluster(log(9, base=600))
    cluster.begins = 600
    source = cluster.source(monkeypatch, {TopicPartition(OFFSETS_TOPIC, 0): 500})
    found = [p for n in (1, 2) for p in await source.poll(n)]
    assert ([p.offset for p in found], source.began_anew) == ([9], False)


def test_a_window_takes_commits_of_a_log_that_began_anew():
    state = ClusterState("c", Judging(distance_ms=0))
    state.look(TP, 100, 0)
    for n in range(3):
        state.commit("g", TP, 10 + n, at_ms=1000 + n, order=70_000 + n, now_ms=2000)
    state.changed.clear()
    state.begin_anew()
    assert state.changed == {("g", TP)}, "kept for a restart"
    state.commit("g", TP, 12, at_ms=1002, order=0, now_ms=2000)  # read again
    state.commit("g", TP, 20, at_ms=3000, order=1, now_ms=3000)
    state.commit("g", TP, 21, at_ms=3001, order=2, now_ms=3000)
    assert [c.offset for c in state.window("g", TP)] == [10, 11, 12, 20, 21]


async def test_a_topic_is_forgotten_after_several_looks_only(monkeypatch):
    state = ClusterState("local", Judging())
    watch = ClusterWatch(one_cluster("127.0.0.1:9", ClientSecurity()), {"local": state}, {}, lambda _: True)
    gone, there, now = AdminError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "t-3"), TopicPartition("t", 2), 0
    answers: dict[TopicPartition, int | AdminError] = {TP: 9, there: 9}

    async def ends(*_args):
        return answers

    monkeypatch.setattr("klamm.lag.watch.list_offsets", ends)
    monkeypatch.setattr("klamm.lag.watch.now_ms", lambda: now)
    monkeypatch.setattr("klamm.lag.watch.headers", lambda *_: asyncio.sleep(0, {}))
    for tp in (TP, there):
        state.commit("g", tp, 5, at_ms=0, order=tp.partition, now_ms=0)
    known = []
    for step, answer in enumerate([9, gone, gone, 9, gone, gone, gone]):
        now, answers[TP] = step * 10_000, answer
        await watch.look()
        known.append(TP in state.partitions())
    assert known == [True] * 6 + [False]
    assert (state.counts, state.partitions()) == ({"t": 3}, {there}), "the other partition is there"
    await watch.close()


async def test_what_was_found_is_taken_before_the_rest_is_said(monkeypatch):
    cluster, state = Cluster(log(1), log(7)), ClusterState("c", Judging())
    state.look(TP, 100, 0)
    watch = ClusterWatch(
        one_cluster("127.0.0.1:9", ClientSecurity()), {"local": state, "c": state}, {}, lambda _: True
    )
    monkeypatch.setattr("klamm.lag.watch.now_ms", lambda: 9000)
    monkeypatch.setattr(watch, "look", lambda: asyncio.sleep(0))
    cluster.errors[0] = ErrorCode.UNKNOWN_SERVER_ERROR
    watch.sources = [cluster.source(monkeypatch)]
    with pytest.raises(KlammError, match="__consumer_offsets-0"):
        await watch._poll(watch.sources[0])
    assert [c.offset for c in state.window("g", TP)] == [7]
    assert watch.looked
    assert watch.blind("c", PARTS[0], "consumer")
    await watch.close()


async def test_groups_whose_commits_cannot_be_read_are_not_judged(monkeypatch, tmp_path):
    class_ = "notifier.n.class-name=command\nnotifier.n.command-open=true\n"
    file = tmp_path / "lag.properties"
    file.write_text(f"history.dir={tmp_path}/history\n{class_}")
    monitor = Monitor(parse(layered(file)))
    state, watch, now = monitor.states["local"], monitor.watches["local"], now_ms()
    state.look(TP, 100, now)
    for n, offset in enumerate((50, 40)):
        state.commit("g", TP, offset, at_ms=now + 2000 * n, order=n, now_ms=now)
    watch.looked = True
    monkeypatch.setattr(watch, "blind", lambda *_: True)
    await monitor.judge()
    assert not monitor.incidents.open
    monkeypatch.setattr(watch, "blind", lambda *_: False)
    await monitor.judge()
    assert list(monitor.incidents.open) == [("local", "g")]
    monkeypatch.setattr(watch, "blind", lambda *_: True)
    later = now + 3_600_000
    monkeypatch.setattr("klamm.lag.monitor.now_ms", lambda: later)
    assert state.status("g", later).partitions[-1].status.name == "STOP"
    assert monitor.status("local", "g").partitions[-1].status.name == "REWIND", "as it was seen last"
    state.forget("g")
    await monitor.judge()
    assert monitor.incidents.open, "it is not known that it is gone"
    await monitor.close()


async def test_a_cluster_that_is_away_blinds_for_all_its_groups(monkeypatch):
    cluster = Cluster(log(1, group=PARTS[0]), log(7, group=PARTS[1]))
    source = cluster.source(monkeypatch)
    await source.poll(0)
    assert not source.blind("c", PARTS[0], "consumer")

    async def away(*_args, **_more):
        raise KlammError("nobody answers")

    monkeypatch.setattr("klamm.lag.topic_source.fetch", away)
    with pytest.raises(KlammError):
        await source.poll(500)
    assert source.blind("c", PARTS[0], "consumer")
    monkeypatch.setattr("klamm.lag.topic_source.fetch", cluster.fetch)
    await source.poll(1000)
    assert not source.blind("c", PARTS[0], "consumer")

    async def silent(*_args, **_more):
        await asyncio.sleep(10)

    monkeypatch.setattr("klamm.lag.topic_source.LATE_S", 0.01)
    monkeypatch.setattr("klamm.lag.topic_source.fetch", silent)
    running = asyncio.create_task(source.poll(1500))
    await asyncio.sleep(0.05)
    assert source.blind("c", PARTS[0], "consumer"), "it takes long"
    running.cancel()


@pytest.mark.parametrize(("away_ms", "blind"), [(AWAY_MS, False), (AWAY_MS + 1, True)])
async def test_readers_may_commit_again_before_they_are_judged(monkeypatch, away_ms, blind):
    cluster = Cluster(log(1, group=PARTS[0]), log(7, group=PARTS[1]))
    source = cluster.source(monkeypatch, patience_ms=60_000)
    await source.poll(0)
    cluster.errors[0] = ErrorCode.LEADER_NOT_AVAILABLE
    await source.poll(1000)
    del cluster.errors[0]
    back_ms = 1000 + away_ms
    for now in (back_ms, back_ms + 59_999, back_ms + 60_000):
        await source.poll(now)
        assert source.blind("c", PARTS[0], "consumer") is (blind and now < back_ms + 60_000)
        assert not source.blind("c", PARTS[1], "consumer")
        assert not source.unread


async def test_a_share_group_that_was_deleted_is_forgotten(monkeypatch):
    state = ClusterState("local", Judging())
    watch = ClusterWatch(one_cluster("127.0.0.1:9", ClientSecurity()), {"local": state}, {}, lambda _: True)
    found = {"sharers": Known("share"), "g": Known("consumer")}
    monkeypatch.setattr("klamm.lag.watch.describe_all", lambda _: asyncio.sleep(0, found))
    state.look(TP, 9, 0)
    for group in found:
        state.commit(group, TP, 5, at_ms=0, order=0, now_ms=0)
    await watch.ask_groups()
    found = {"g": Known("consumer")}
    known = []
    for _ in range(3):
        await watch.ask_groups()
        known.append(state.groups())
    assert known == [["g", "sharers"], ["g", "sharers"], ["g"]]
    await watch.close()
