"""A crash after every single append of a transaction's life: whatever was in the logs then must be what goes on.

The data directory is copied after each append, which is what `kill -9` leaves at that moment, and a broker is started on
each copy. There, no epoch goes back, what was decided is completed, and a transaction is seen in all its partitions and
offsets or in none; as it was answered, if it was.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.inprocess import connect, serving
from support.txn_client import GROUP, NAME, OFFSET, QUICK, TOPIC, Client, Known, transaction

from klamm_broker.coordinator.effects import Now
from klamm_broker.coordinator.producer_ids import GAP
from klamm_broker.log.partition_log import PartitionLog
from klamm_broker.server.broker import Broker
from klamm_kafka.client import Connection
from klamm_kafka.wire.batch import iter_headers
from klamm_kafka.wire.errors import ErrorCode as E
from klamm_kafka.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from klamm_kafka.wire.messages.init_producer_id import InitProducerIdRequest


@dataclass
class CrashPoint:
    directory: Path
    what: str
    newest: tuple[int, int]
    written: set[int]
    committed: bool | None


async def commit(_: Broker, connection: Connection, known: Known, version: int) -> None:
    await (await transaction(connection, known, version)).end(committed=True)


async def abort(_: Broker, connection: Connection, known: Known, version: int) -> None:
    await (await transaction(connection, known, version)).end(committed=False)


async def fence(_: Broker, connection: Connection, known: Known, version: int) -> None:
    await transaction(connection, known, version)
    await Client(connection, known, version).init()
    known.committed = False


async def time_out(broker: Broker, connection: Connection, known: Known, version: int) -> None:
    client = await transaction(connection, known, version)
    shell = broker.transactions
    now = shell.now()
    shell.run(shell.coordinator.tick(Now(now.mono_ms + 61_000, now.wall_ms + 61_000)))
    await client.init()
    known.committed = False


def committed_offsets(log: PartitionLog) -> list[int]:
    """Returns the offsets of batches that a reader of committed records keeps."""
    end = log.last_stable_offset
    aborted = log.aborted_transactions(log.log_start_offset, end)
    found, offset = [], log.log_start_offset
    while (piece := log.read(offset, 1 << 20, up_to=end)) is not None:
        data = os.pread(piece.fd, piece.size, piece.position)
        for _, header in iter_headers(data):
            offset = header.last_offset + 1
            dropped = any(
                t.producer_id == header.producer_id and t.first_offset <= header.base_offset <= t.last_offset
                for t in aborted
            )
            if not header.is_control and not dropped:
                found.append(header.base_offset)
    return found


def crash_after_each_append(
    monkeypatch: pytest.MonkeyPatch, data: Path, copies: Path, known: Known
) -> list[CrashPoint]:
    points: list[CrashPoint] = []
    append = PartitionLog.append

    def noted(log: PartitionLog, *args: Any, **kwargs: Any) -> Any:
        info = append(log, *args, **kwargs)
        directory = copies / str(len(points))
        # other threads may be about to rename theirs
        shutil.copytree(data, directory, ignore=shutil.ignore_patterns("*.tmp"))
        what = f"append {len(points)}, to {log.name}"
        points.append(CrashPoint(directory, what, known.newest, set(known.written), known.committed))
        return info

    monkeypatch.setattr(PartitionLog, "append", noted)
    return points


async def settled(broker: Broker) -> None:
    """Waits until both coordinators have loaded, and nothing that was decided is left to do."""
    coordinator = broker.transactions.coordinator
    async with asyncio.timeout(60):
        while broker.groups.coordinator.is_loading(0) or coordinator.unavailable(NAME):
            await asyncio.sleep(0.005)
        while (found := coordinator.transactions.get(NAME)) is not None and found.pending is not None:
            await asyncio.sleep(0.02)


async def check(point: CrashPoint, version: int) -> None:
    async with (
        serving(point.directory, transaction_state_log_num_partitions="1") as server,
        await connect(server) as connection,
    ):
        broker, what = server.broker, point.what
        await settled(broker)
        found = broker.transactions.coordinator.transactions.get(NAME)
        if point.newest >= (0, 0):
            assert found is not None, what
            recorded = found.recorded
            assert (recorded.producer_id, recorded.epoch) >= point.newest, what
            assert recorded.state.title in ("Empty", "Ongoing", "CompleteCommit", "CompleteAbort"), what
            if point.committed is not None:
                assert recorded.state.title != "Ongoing", what
        client = Client(connection, Known(newest=point.newest), version)
        await client.init()
        logs = [p.log for p in broker.topics.by_name[TOPIC].partitions]
        for log in logs:
            assert log.last_stable_offset == log.high_watermark, f"{what}: {log.name} has an open transaction"
            assert log.log_end_offset >= (log.partition in point.written), what
        group = broker.groups.coordinator.groups.get(GROUP)
        offsets = [] if group is None else [o.offset for o in group.offsets.values()]
        seen = [bool(committed_offsets(log)) for log in logs] + [offsets == [OFFSET]]
        assert len(set(seen)) == 1, f"{what}: seen in a part {seen}"
        assert point.committed in (None, seen[0]), f"{what}: answered {point.committed}, seen {seen[0]}"


@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize("life", [commit, abort, fence, time_out])
async def test_a_crash_after_each_append(tmp_path, monkeypatch, life, version):
    known = Known()
    data, copies = tmp_path / "data", tmp_path / "copies"
    copies.mkdir()
    async with serving(data, **QUICK) as server, await connect(server) as connection:
        server.broker.topic_changes.create_topic(TOPIC, partitions=2)
        server.broker.groups.ensure_topic()
        server.broker.transactions.ensure_topic()
        with monkeypatch.context() as patch:
            points = crash_after_each_append(patch, data, copies, known)
            await life(server.broker, connection, known, version)
    assert len(points) >= 10
    points[-1].committed = known.committed  # after the last append, all is answered
    points[-1].newest = known.newest
    for point in points:
        await check(point, version)


async def test_no_producer_id_is_given_twice_when_its_file_is_lost(tmp_path):
    """A directory that was restored without it, or that Kafka wrote: transactional ids may hold what no log shows."""
    known = Known()
    async with serving(tmp_path / "data", **QUICK) as server, await connect(server) as connection:
        client = Client(connection, known, 2)
        await client.init()
        taken = client.producer_id
    (tmp_path / "data" / "producer-id-block").unlink()
    async with serving(tmp_path / "data", **QUICK) as server:
        transactions = server.broker.transactions
        assert transactions.new_producer_id().error is E.COORDINATOR_LOAD_IN_PROGRESS, "not known yet"
        await settled(server.broker)
        async with asyncio.timeout(60):
            while (given := transactions.new_producer_id()).error is E.COORDINATOR_LOAD_IN_PROGRESS:
                await asyncio.sleep(0.005)
        assert given.producer_id == taken + GAP
        async with await connect(server) as connection:
            again = Client(connection, known, 2)
            await again.init()
        assert again.producer_id == taken


async def test_ids_in_a_partition_that_cannot_be_opened_are_unavailable(tmp_path):
    """Not unknown, which clients give up at, and not new."""
    data = tmp_path / "data"
    async with serving(data, **QUICK) as server, await connect(server) as connection:
        await Client(connection, Known(), 2).init()
    segment = data / "__transaction_state-0" / f"{0:020}.log"
    segment.unlink()
    segment.mkdir()
    async with serving(data, **QUICK) as server, await connect(server) as connection:
        assert server.broker.topics.by_name["__transaction_state"].partitions[0].log.offline
        await asyncio.sleep(0.05)  # time to load what cannot be loaded
        request = InitProducerIdRequest(transactional_id=NAME, transaction_timeout_ms=1000)
        answer = await connection.request(request, 5)
        assert answer.error_code == E.COORDINATOR_LOAD_IN_PROGRESS
        assert server.broker.transactions.new_producer_id().error is E.NONE, "others go on"
        asked = DescribeProducersRequest(
            topics=[TopicRequest(name="__transaction_state", partition_indexes=[0])]
        )
        (topic,) = (await connection.request(asked, 0)).topics
        assert topic.partitions[0].error_code == E.KAFKA_STORAGE_ERROR, "not: no producers"


async def test_a_defect_at_a_marker_does_not_leave_its_transaction_undecided(tmp_path, monkeypatch, caplog):
    async with serving(tmp_path / "data", **QUICK) as server, await connect(server) as connection:
        broker = server.broker
        broker.topic_changes.create_topic(TOPIC, partitions=2)
        client = await transaction(connection, Known(), 2)
        append, failures = broker.append, [RuntimeError("a defect")]

        def failing(partition: Any, *args: Any, **kwargs: Any) -> Any:
            if partition.topic.name == TOPIC and failures:
                raise failures.pop()
            return append(partition, *args, **kwargs)

        monkeypatch.setattr(broker, "append", failing)
        await client.end(committed=True)
        await settled(broker)
        assert not failures
        assert broker.transactions.coordinator.transactions[NAME].recorded.state.title == "CompleteCommit"
        assert all(committed_offsets(p.log) == [0] for p in broker.topics.by_name[TOPIC].partitions)
    assert "a transaction marker could not be written" in caplog.text
