"""A sink's offsets while the coordinator of its group moves: the worker asks again, and goes on."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from support.broker import new_topic
from support.connect_worker import worker_properties
from support.inprocess import refuse_offset_fetch, serving

from klamm.connect.config import WorkerConfig
from klamm.connect.errors import RequestError
from klamm.connect.service.offsets import ConnectorOffsets
from klamm_kafka.wire.errors import ErrorCode


def offsets_of(bootstrap: str) -> ConnectorOffsets:
    runtime: Any = SimpleNamespace(
        config=WorkerConfig.from_properties(worker_properties(bootstrap, "g")),
        configs=SimpleNamespace(config=lambda _: {}),
    )
    return ConnectorOffsets(runtime)


def commit(bootstrap: str, group: str) -> str:
    """Commits offset 5 of partition 1 of a new topic, and returns the topic."""
    topic = new_topic(SimpleNamespace(bootstrap=bootstrap), 2)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    try:
        consumer.commit(offsets=[TopicPartition(topic, 1, 5)], asynchronous=False)
    finally:
        consumer.close()
    return topic


@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize(
    "error",
    [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS],
)
async def test_a_sinks_offsets_are_asked_for_again_while_the_coordinator_moves(
    tmp_path: Path, error: ErrorCode
) -> None:
    async with serving(tmp_path) as server:
        bootstrap = f"127.0.0.1:{server.broker.listeners['PLAINTEXT'].port}"
        topic = await asyncio.to_thread(commit, bootstrap, "connect-s")
        asked = refuse_offset_fetch(server, error, times=2)
        found = await offsets_of(bootstrap)._sink_offsets("s")
        assert found == [({"kafka_partition": 1, "kafka_topic": topic}, {"kafka_offset": 5})]
        assert asked == [("connect-s", False)] * 3
        assert await offsets_of(bootstrap)._sink_offsets("nobody") == []


async def test_what_the_coordinator_refuses_for_good_is_said(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        bootstrap = f"127.0.0.1:{server.broker.listeners['PLAINTEXT'].port}"
        refuse_offset_fetch(server, ErrorCode.GROUP_AUTHORIZATION_FAILED, times=99)
        with pytest.raises(
            RequestError, match=r"cannot read the offsets of group 'connect-s': .*GROUP_AUTHORIZATION_FAILED"
        ):
            await offsets_of(bootstrap)._sink_offsets("s")


@pytest.mark.usefixtures("processes")
async def test_a_reset_forgets_single_offsets_and_leaves_the_others_where_they_are(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        bootstrap = f"127.0.0.1:{server.broker.listeners['PLAINTEXT'].port}"
        topic = await asyncio.to_thread(commit, bootstrap, "connect-s")
        offsets = offsets_of(bootstrap)
        await offsets._alter_sink("s", [(topic, 0, 3)])
        assert await shown(offsets) == {(topic, 0): 3, (topic, 1): 5}
        await offsets._alter_sink("s", [(topic, 1, None), ("gone", 0, None)])
        assert await shown(offsets) == {(topic, 0): 3}
        await offsets._alter_sink("s", [(topic, 0, None), (topic, 1, 7)])
        assert await shown(offsets) == {(topic, 1): 7}
        await offsets._delete_group("s")
        assert await shown(offsets) == {}
        await offsets._delete_group("s")  # that it is gone is what was wanted
        await offsets._alter_sink("s", [(topic, 0, None)])


async def shown(offsets: ConnectorOffsets) -> dict[tuple[str, int], int]:
    found = await offsets._sink_offsets("s")
    return {(p["kafka_topic"], p["kafka_partition"]): o["kafka_offset"] for p, o in found if p and o}
