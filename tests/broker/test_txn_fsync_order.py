"""With durability=fsync: what of a transaction's end is seen, and when. A power cut takes back what is not on the disk."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from support.inprocess import connect, serving
from support.txn_client import GROUP, NAME, QUICK, TOPIC, Client, Known, transaction

from klamm_broker.log.flush_job import FlushJob
from klamm_kafka.wire.errors import ErrorCode as E
from klamm_kafka.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)


class Gate:
    """Lets an fsync through when its file's path has one of `opened`; the others wait."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.opened: tuple[str, ...] = ("",)
        self._changed = threading.Condition()
        run = FlushJob.run

        def waiting(job: FlushJob) -> None:
            paths = [str(Path(f"/proc/self/fd/{file.fd}").readlink()) for file in job.files]
            with self._changed:
                self._changed.wait_for(
                    lambda: any(part in path for part in self.opened for path in paths), 60
                )
            run(job)

        monkeypatch.setattr(FlushJob, "run", waiting)

    def open(self, *parts: str) -> None:
        with self._changed:
            self.opened = parts
            self._changed.notify_all()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.005)


async def test_with_durability_fsync_each_step_is_on_the_disk_before_the_next_is_seen(tmp_path, monkeypatch):
    """Decision, answer; markers, what readers see of them, offsets; completion: in this order, each after its fsync."""
    gate = Gate(monkeypatch)
    async with (
        serving(tmp_path / "data", durability="fsync", **QUICK) as server,
        await connect(server) as connection,
    ):
        broker = server.broker
        broker.topic_changes.create_topic(TOPIC, partitions=2)
        client = await transaction(connection, Known(), 2)
        logs = [p.log for p in broker.topics.by_name[TOPIC].partitions]
        found = broker.transactions.coordinator.transactions[NAME]

        def seen() -> tuple[str, list[int], list[int], int]:
            offsets = len(broker.groups.coordinator.groups[GROUP].offsets)
            ends, stable = [log.log_end_offset for log in logs], [log.last_stable_offset for log in logs]
            return found.recorded.state.title, ends, stable, offsets

        gate.open()
        ending = asyncio.ensure_future(client.end(committed=True))
        await until(lambda: found.pending is not None)
        await asyncio.sleep(0.02)
        assert (ending.done(), seen()) == (False, ("Ongoing", [1, 1], [0, 0], 0)), (
            "no marker before the decision"
        )
        gate.open("__transaction_state")
        await ending
        await until(lambda: all(log.log_end_offset == 2 for log in logs))
        await asyncio.sleep(0.02)
        assert seen() == ("PrepareCommit", [2, 2], [0, 0], 0), (
            "not decided before the markers are on the disk"
        )
        gate.open(f"/{TOPIC}-", "__consumer_offsets")
        await until(lambda: found.pending is not None and all(log.last_stable_offset == 2 for log in logs))
        await until(lambda: bool(broker.groups.coordinator.groups[GROUP].offsets))
        assert seen() == ("PrepareCommit", [2, 2], [2, 2], 1)
        gate.open("")
        await until(lambda: seen()[0] == "CompleteCommit")


async def test_with_durability_fsync_a_marker_by_hand_is_seen_when_it_is_on_the_disk(tmp_path, monkeypatch):
    gate = Gate(monkeypatch)
    async with (
        serving(tmp_path / "data", durability="fsync", **QUICK) as server,
        await connect(server) as connection,
    ):
        server.broker.topic_changes.create_topic(TOPIC, partitions=1)
        client = Client(connection, Known(), 2)
        await client.init()
        await client.produce(0)
        (partition,) = server.broker.topics.by_name[TOPIC].partitions
        gate.open()
        marker = WritableTxnMarker(
            producer_id=client.producer_id, producer_epoch=client.epoch, transaction_result=False,
            topics=[WritableTxnMarkerTopic(name=TOPIC, partition_indexes=[0])], coordinator_epoch=9,
        )  # fmt: skip
        asked = asyncio.ensure_future(connection.request(WriteTxnMarkersRequest(markers=[marker]), 1))
        await until(lambda: partition.log.log_end_offset == 2)
        await asyncio.sleep(0.02)
        assert (asked.done(), partition.log.last_stable_offset) == (False, 0)
        gate.open("")
        assert (await asked).markers[0].topics[0].partitions[0].error_code == E.NONE
        assert partition.log.last_stable_offset == 2
