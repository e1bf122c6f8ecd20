"""A broker in the test's own process and event loop: for tests that look inside, or put something in its place."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar
from unittest.mock import patch

import pytest

from klamm_broker.coordinator.model import FetchResult
from klamm_broker.server import slices
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

_T = TypeVar("_T")


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


async def answered_between_slices(
    slow: Coroutine[Any, Any, _T], quick: Callable[[], Awaitable[object]]
) -> _T:
    """Stops the work for `slow` at the end of its first slice until `quick` has its answer. Returns the answer to `slow`."""
    held: asyncio.Future[Callable[[], None]] = asyncio.get_running_loop().create_future()
    next_slice = slices.Lane.next

    def hold_the_first(lane: slices.Lane, work: Callable[[], None]) -> None:
        if held.done():
            next_slice(lane, work)
        else:
            held.set_result(lambda: next_slice(lane, work))

    with patch.object(slices.Lane, "next", hold_the_first):
        answer = asyncio.ensure_future(slow)
        await asyncio.wait({answer, held}, return_when=asyncio.FIRST_COMPLETED)
        assert held.done(), "the work is not divided into slices"
        await quick()
        held.result()()
        return await answer


def hold_in_thread(
    monkeypatch: pytest.MonkeyPatch, owner: object, name: str
) -> tuple[threading.Event, threading.Event]:
    """Lets calls of a function in other threads wait. Returns the event that one has begun, and the one that lets them go on."""
    begun, go_on = threading.Event(), threading.Event()
    real, here = getattr(owner, name), threading.get_ident()

    def held(*args: Any, **more: Any) -> Any:
        if threading.get_ident() != here:
            begun.set()
            assert go_on.wait(60)
        return real(*args, **more)

    monkeypatch.setattr(owner, name, held)
    return begun, go_on


async def in_time(event: threading.Event) -> None:
    """Waits for what a thread does, while the loop goes on."""
    async with asyncio.timeout(60):
        while not event.is_set():
            await asyncio.sleep(0.001)


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


@asynccontextmanager
async def connecting(server: Server) -> AsyncIterator[Callable[[], Awaitable[Connection]]]:
    """Yields a function that opens connections, which are closed at the end."""
    async with AsyncExitStack() as opened:

        async def open_one() -> Connection:
            connection = await connect(server)
            opened.push_async_callback(connection.close)
            return connection

        yield open_one


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
