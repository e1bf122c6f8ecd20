"""The client's frames: pieces of any size make the same frames."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm_kafka.client import Connection, RequestTimedOut
from klamm_kafka.client.frames import SCRATCH_BYTES, FrameProtocol
from klamm_kafka.wire.api_keys import ApiKey
from klamm_kafka.wire.headers import frame_response
from klamm_kafka.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from klamm_kafka.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData


class Owner:
    def __init__(self) -> None:
        self.frames: list[bytes | bytearray] = []
        self.errors: list[Exception | None] = []

    def check_size(self, size: int) -> None:
        if size > 1_000_000:
            raise ValueError(f"size {size}")

    def deliver(self, frame: bytes | bytearray) -> None:
        self.frames.append(frame)

    def failed(self, error: Exception | None) -> None:
        self.errors.append(error)


async def received(stream: bytes, pieces: list[int]) -> Owner:
    protocol, owner = FrameProtocol(), Owner()
    protocol.owner = owner
    pos, turn = 0, 0
    while pos < len(stream) and not owner.errors:
        buffer = protocol.get_buffer(-1)
        size = min(len(buffer), pieces[turn % len(pieces)], len(stream) - pos)
        assert size > 0
        buffer[:size] = stream[pos : pos + size]
        protocol.buffer_updated(size)
        pos, turn = pos + size, turn + 1
    return owner


edges = [4, 5, 100, SCRATCH_BYTES - 5, SCRATCH_BYTES - 4, SCRATCH_BYTES - 3, SCRATCH_BYTES, 3 * SCRATCH_BYTES]


@given(
    sizes=st.lists(st.sampled_from(edges), max_size=8),
    pieces=st.lists(
        st.sampled_from([1, 2, 3, 7, 1000, SCRATCH_BYTES, 1 << 20]), min_size=1, max_size=4
    ).filter(lambda found: max(found) > 500),
)
def test_pieces_of_any_size_make_the_same_frames(sizes, pieces):
    frames = [bytes([n % 256]) * size for n, size in enumerate(sizes)]
    stream = b"".join(len(frame).to_bytes(4) + frame for frame in frames)
    owner = asyncio.run(received(stream, pieces))
    assert owner.frames == frames
    assert not owner.errors
    large = [frame for frame in owner.frames if len(frame) > SCRATCH_BYTES]
    assert all(isinstance(frame, bytearray) for frame in large), "received into, and not copied"


def test_a_size_that_no_frame_has_ends_it():
    owner = asyncio.run(received(b"\0\0\0\4abcd" + (2_000_000).to_bytes(4) + b"x", [1]))
    assert owner.frames == [b"abcd"]
    assert [str(e) for e in owner.errors] == ["size 2000000"]


async def test_a_broker_that_takes_nothing_more_does_not_hold_up_the_end_of_its_connection():
    key = ApiVersion(api_key=ApiKey.PRODUCE, min_version=3, max_version=11)
    stalled = asyncio.Event()

    async def answer_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        size = int.from_bytes(await reader.readexactly(4))
        correlation_id = int.from_bytes((await reader.readexactly(size))[4:8])
        body = ApiVersionsResponse(api_keys=[key])
        writer.write(frame_response(correlation_id, ApiKey.API_VERSIONS, 3, body))
        writer.transport.pause_reading()
        await stalled.wait()
        writer.close()

    server = await asyncio.start_server(answer_once, "127.0.0.1", 0)
    async with server:
        connection = await Connection.open("127.0.0.1", server.sockets[0].getsockname()[1])
        data = PartitionProduceData(index=0, records=bytes(32 << 20))
        request = ProduceRequest(topic_data=[TopicProduceData(name="t", partition_data=[data])])
        with pytest.raises(RequestTimedOut):
            await connection.request(request, 9, timeout_s=0.2)
        async with asyncio.timeout(30):
            await connection.close()
        stalled.set()
