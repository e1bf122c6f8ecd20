"""The client's frames: pieces of any size make the same frames."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from klamm_kafka.client.frames import SCRATCH_BYTES, FrameProtocol


class Owner:
    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.errors: list[Exception | None] = []

    def check_size(self, size: int) -> None:
        if size > 1_000_000:
            raise ValueError(f"size {size}")

    def deliver(self, frame: bytes) -> None:
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


def test_a_size_that_no_frame_has_ends_it():
    owner = asyncio.run(received(b"\0\0\0\4abcd" + (2_000_000).to_bytes(4) + b"x", [1]))
    assert owner.frames == [b"abcd"]
    assert [str(e) for e in owner.errors] == ["size 2000000"]
