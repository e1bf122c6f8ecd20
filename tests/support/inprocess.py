"""A broker in the test's own process and event loop: for tests that look inside, or put something in its place."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from klamm_broker.coordinator.model import FetchResult
from klamm_broker.server.broker import Broker
from klamm_broker.server.config import BrokerConfig
from klamm_broker.server.listener import Server
from klamm_kafka.client import Connection
from klamm_kafka.wire.batch import Record, encode_batch
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)

PRODUCE_VERSION = 9


@asynccontextmanager
async def serving(*log_dirs: Path, **properties: str) -> AsyncIterator[Server]:
    """Yields a broker on these directories; properties with `_` for `.`."""
    props = {
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.dirs": ",".join(str(path) for path in log_dirs),
        "offsets.topic.num.partitions": "1",
        "group.initial.rebalance.delay.ms": "0",
        **{name.replace("_", "."): value for name, value in properties.items()},
    }
    loop = asyncio.get_running_loop()
    broker = Broker(BrokerConfig.load(props), loop)
    server = Server(broker, loop)
    broker.listeners = {listener.name: listener for listener in server.bind()}
    try:
        broker.open()
    except BaseException:
        server.close_listeners()
        raise
    server.serve()
    try:
        yield server
    finally:
        server.quiesce()
        broker.groups.drain()
        broker.waiting.finish_all()
        await server.drain(1)
        server.close_listeners()
        await broker.close()


def refuse_offset_fetch(server: Server, error: ErrorCode, times: int) -> list[tuple[str, bool]]:
    """Makes the coordinator refuse the next `times` questions for committed offsets. Returns who asked: groups, and whether for stable ones."""
    coordinator = server.broker.groups.coordinator
    answer = coordinator.fetch
    asked: list[tuple[str, bool]] = []

    def fetch(group: str, *, require_stable: bool = False, **more: Any) -> FetchResult:
        asked.append((group, require_stable))
        if len(asked) <= times:
            return FetchResult(error=error)
        return answer(group, require_stable=require_stable, **more)

    coordinator.fetch = fetch  # type: ignore[method-assign]
    return asked


async def connect(server: Server) -> Connection:
    """Connects patiently: a disk that is busy with other tests stalls the loop that both ends share."""
    return await Connection.open("127.0.0.1", server.broker.listeners["PLAINTEXT"].port, timeout_s=60)


async def produce(
    connection: Connection,
    topic: str,
    *values: bytes,
    partition: int = 0,
    acks: int = -1,
    timestamp: int | None = None,
) -> PartitionProduceResponse:
    """Sends one request with one batch; returns what became of it."""
    stamp = Broker.now_ms() if timestamp is None else timestamp
    batch = encode_batch([Record(timestamp=stamp, value=value) for value in values])
    data = PartitionProduceData(index=partition, records=batch)
    request = ProduceRequest(
        acks=acks, timeout_ms=10_000, topic_data=[TopicProduceData(name=topic, partition_data=[data])]
    )
    answer = await connection.request(request, PRODUCE_VERSION)
    return answer.responses[0].partition_responses[0]
