"""A backup goes on when a partition's leader changes: a new one may seem to have less for a moment."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing
from types import SimpleNamespace

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from support.backups import backup, write
from support.kafka_broker import KafkaBroker
from support.kafka_cluster import SecondNode

from klamm.admin.client import Admin
from klamm.backup import reading
from klamm.backup.create import Wanted, create
from klamm.backup.errors import BackupError
from klamm.backup.folder import BackupFolder
from klamm.backup.selection import Selection
from klamm.backup.store import open_store
from klamm_kafka.client import Cluster, RequestTimedOut
from klamm_kafka.wire.batch import Record, encode_batch
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.fetch import FetchRequest, PartitionData

RECORDS = [bytes(encode_batch([Record(0, 1, b"k", b"v")] * 5, base_offset=at)) for at in (0, 5)]


class Leader:
    """A leader of a log of ten records that tells fewer of them at first. It stands for the client, too."""

    give_up_s = 60.0

    def __init__(self, lacks: int, *, out_of_range: bool = False) -> None:
        self._lacks = lacks
        self._out_of_range = out_of_range
        self.forgotten = 0

    async def ask_leader(self, _topic, _partition, request, _version):
        if not isinstance(request, FetchRequest):
            told = SimpleNamespace(error_code=0, offset=0)
            return SimpleNamespace(topics=[SimpleNamespace(partitions=[told])])
        at = request.topics[0].partitions[0].fetch_offset
        if at >= 5 and self._lacks:
            self._lacks -= 1
            code = ErrorCode.OFFSET_OUT_OF_RANGE if self._out_of_range else 0
            data = PartitionData(error_code=code, high_watermark=5, last_stable_offset=5, records=b"")
        else:
            data = PartitionData(high_watermark=10, last_stable_offset=10, records=RECORDS[at // 5])
        return SimpleNamespace(responses=[SimpleNamespace(partitions=[data])])

    def forget(self) -> None:
        self.forgotten += 1


def read_all(leader: Leader) -> int:
    """Return how many records a reader gets."""

    async def run() -> int:
        reader = reading.PartitionReader(leader, "t", 0, position=0, end=10)  # type: ignore[arg-type]
        async with aclosing(reader.read()) as answers:
            return sum([found.records async for found in answers])

    return asyncio.run(run())


@pytest.mark.parametrize("out_of_range", [False, True])
def test_a_leader_that_lacks_something_for_a_moment_is_asked_again(monkeypatch, out_of_range):
    monkeypatch.setattr(reading, "CUT_PAUSE_S", 0)
    leader = Leader(3, out_of_range=out_of_range)
    assert read_all(leader) == 10
    assert leader.forgotten == 3, "another broker may be the leader"


@pytest.mark.parametrize(
    ("out_of_range", "said"),
    [(False, "t-0 ends at offset 5, and had 10 before: it was cut"), (True, "t-0 ends before offset 5: it was cut or made anew meanwhile")],
)  # fmt: skip
def test_a_log_that_was_cut_is_told(monkeypatch, out_of_range, said):
    monkeypatch.setattr(reading, "CUT_PAUSE_S", 0)
    monkeypatch.setattr(reading, "CUT_S", 0.01)
    with pytest.raises(BackupError, match=said):
        read_all(Leader(10**9, out_of_range=out_of_range))


class Silent(Leader):
    """A leader that answers nothing."""

    give_up_s = 0.3

    async def ask_leader(self, _topic, _partition, _request, _version):
        await asyncio.sleep(0.1)
        raise RequestTimedOut("FETCH: no answer within 0.1 s")


def test_a_leader_that_hangs_is_given_up():
    began = time.monotonic()
    with pytest.raises(BackupError, match="t-0 cannot be read: FETCH: no answer"):
        read_all(Silent(0))
    assert time.monotonic() - began < 10
    assert reading.Source(Cluster("127.0.0.1:1", timeout_s=5), {}).give_up_s == 10


class Killer:
    """A progress that kills a broker when the first records have come."""

    def __init__(self, broker: SecondNode) -> None:
        self._broker = broker

    def begin(self, what: str, total: int) -> None:
        self.total = total

    def advance(self, offsets: int, _size: int) -> None:
        assert offsets < self.total
        self._broker.kill()

    def say(self, text: str) -> None:
        pytest.fail(text)


def test_a_leader_is_killed_while_a_backup_runs(tmp_path, apache_kafka, processes):
    """Two brokers of Apache Kafka: the other one takes over, and the backup has all records."""
    (tmp_path / "one").mkdir()
    with (
        KafkaBroker(tmp_path / "one", {"broker.session.timeout.ms": "3000"}) as first,
        SecondNode(first, tmp_path / "two") as second,
    ):
        client = AdminClient({"bootstrap.servers": first.address})
        client.create_topics([NewTopic("t", 2, replication_factor=2)])["t"].result(60)
        write(first.address, "t", 0, 160_000, 2, acks="all")
        folder = BackupFolder.make(open_store(str(tmp_path / "b")), None)

        async def run() -> int:
            async with Admin(first.address) as admin, Cluster(first.address) as cluster:
                wanted = Wanted(selection=Selection(include=["t"]))
                return (await create(admin, cluster, folder, wanted, Killer(second))).header.records

        assert asyncio.run(run()) == 160_000
        assert second.process is not None
        assert second.process.poll() is not None
        assert "good: 1 backup" in backup("verify", tmp_path / "b")
