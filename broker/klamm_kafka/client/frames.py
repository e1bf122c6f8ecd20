"""Receives frames, a size and so many bytes each, into buffers of their own: a stream reader costs ten times as much.

Small frames come together in one buffer. A large one has a buffer of its size.
"""

from __future__ import annotations

import asyncio
import struct
from typing import Final, Protocol, cast

SCRATCH_BYTES: Final = 64 << 10
_SIZE: Final = struct.Struct(">i")


class FrameOwner(Protocol):
    """The one for whom frames are received. Once it has closed the transport, what it is called for has no effect."""

    def check_size(self, size: int) -> None:
        """Raises an exception for a size that no frame has."""

    def deliver(self, frame: bytes | bytearray) -> None:
        """Takes a frame. Nothing else writes into it."""

    def failed(self, error: Exception | None) -> None:
        """Called when the connection is lost, or with what `check_size` and `deliver` raised. None: the peer ended it."""


class FrameProtocol(asyncio.BufferedProtocol):
    """The protocol of one connection. Set `owner` before the first bytes come."""

    def __init__(self) -> None:
        self.owner: FrameOwner | None = None
        self.transport: asyncio.Transport | None = None
        self.closed = asyncio.get_running_loop().create_future()
        """Done when the transport is closed."""
        self._scratch = bytearray(SCRATCH_BYTES)
        self._scratch_view = memoryview(self._scratch)
        self._end = 0
        """The number of bytes in `_scratch`."""
        self._frame: bytearray | None = None
        """The large frame that comes."""
        self._frame_end = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def get_buffer(self, _sizehint: int) -> memoryview:
        if self._frame is not None:
            return memoryview(self._frame)[self._frame_end :]
        return self._scratch_view[self._end :]

    def buffer_updated(self, nbytes: int) -> None:
        owner = self.owner
        assert owner is not None, "bytes before anybody waits for some"
        try:
            if self._frame is None:
                self._end += nbytes
                self._split(owner)
                return
            self._frame_end += nbytes
            if self._frame_end == len(self._frame):
                frame, self._frame = self._frame, None
                owner.deliver(frame)
        except Exception as e:
            owner.failed(e)

    def eof_received(self) -> None:
        """Lets the transport close."""

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.closed.done():
            self.closed.set_result(None)
        if self.owner is not None:
            self.owner.failed(exc)

    def _split(self, owner: FrameOwner) -> None:
        start, end, scratch = 0, self._end, self._scratch
        while end - start >= _SIZE.size:
            (size,) = _SIZE.unpack_from(scratch, start)
            owner.check_size(size)
            start += _SIZE.size
            if end - start < size:
                if size <= SCRATCH_BYTES - _SIZE.size:
                    start -= _SIZE.size
                else:
                    self._frame, self._frame_end = bytearray(size), end - start
                    self._frame[: end - start] = scratch[start:end]
                    start = end
                break
            owner.deliver(bytes(scratch[start : start + size]))
            start += size
        if start:
            scratch[: end - start] = scratch[start:end]
            self._end = end - start
