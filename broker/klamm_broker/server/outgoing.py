"""Pieces of an answer on their way to a socket: bytes, and ranges of segment files for sendfile.

`send` pushes as much as the socket takes and returns the rest. It does not wait for the disk either: at a range that is
not in memory it stops and says so. A held file range keeps its file open, so that retention can drop a segment while an
answer from it waits.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from klamm_broker.server import residency
from klamm_broker.server.residency import FileRange

READ_BYTES_MAX: Final = 16 * 1024
"""A file range up to this size is read and leaves with the bytes around it: two system calls, where sendfile takes four."""
RUN_BYTES: Final = 256 * 1024
"""Bytes that leave in one call. An answer of many small ranges is read as the peer takes it: a slow one must not have all of it in memory."""
_MSG_MORE: Final = getattr(socket, "MSG_MORE", 0)


class Transport(Protocol):
    """The socket of a connection, or TLS over it, with a socket's methods and errors. Non-blocking."""

    def fileno(self) -> int: ...
    def recv_into(self, view: memoryview, /) -> int: ...
    def shutdown(self, how: int, /) -> None: ...
    def close(self) -> None: ...


class RestOfRange:
    """The rest of a file range after a part of it was sent.

    Bytes up to `warm_until` were brought into memory for this answer. They are sent without asking again, so that a machine
    that is short of memory makes progress.
    """

    __slots__ = ("position", "size", "warm_until", "whole")

    def __init__(self, whole: FileRange, position: int, size: int) -> None:
        before = whole if isinstance(whole, RestOfRange) else None
        self.whole: FileRange = (
            before.whole if before else whole
        )  # never a chain: a slow peer makes thousands
        self.position = position
        self.size = size
        self.warm_until: int = before.warm_until if before else 0

    @property
    def fd(self) -> int:
        return self.whole.fd


Piece = bytes | memoryview | FileRange
Reply = Sequence[Piece]
"""A whole answer, size prefix included, in pieces that leave in order."""


Send = Callable[[Any, Sequence[Piece]], list[Piece]]
"""Sends pieces to a socket and returns those that are left."""


class Cold(list[Piece]):
    """The unsent pieces, when the first of them is a file range that is not in memory."""


def bytes_in(reply: Reply) -> int:
    """Returns how much memory an answer takes: its file ranges take none."""
    return sum(len(piece) for piece in reply if isinstance(piece, (bytes, memoryview)))


def send(sock: socket.socket, pieces: Sequence[Piece]) -> list[Piece]:
    """Send until the socket is full or a range is cold; returns what is left (a `Cold` in the second case).

    Raises OSError when the connection is broken.
    """
    if len(pieces) == 1 and type(pieces[0]) is bytes:
        left = _send_bytes(sock, pieces[0], more=False)
        return [] if left is None else [left]
    run: list[bytes | memoryview] = []  # neighbours leave in one call
    size = 0
    rest = deque(pieces)
    while rest:
        if size >= RUN_BYTES:
            left = _send_run(sock, run, more=True)
            if left is not None:
                return [left, *rest]
            run, size = [], 0
        piece = rest.popleft()
        if isinstance(piece, (bytes, memoryview)):
            run.append(piece)
            size += len(piece)
            continue
        if piece.size <= READ_BYTES_MAX and (data := residency.read_now(piece)) is not None:
            run.append(data)
            size += len(data)
            continue
        left = _send_run(sock, run, more=True)
        run, size = [], 0
        if left is not None:
            return [left, piece, *rest]
        stuck, cold = _send_file(sock, piece)
        if stuck is not None:
            return Cold([stuck, *rest]) if cold else [stuck, *rest]
    left = _send_run(sock, run, more=False)
    return [] if left is None else [left]


def warm(loop: asyncio.AbstractEventLoop, cold: Piece, then: Callable[[BaseException | None], None]) -> None:
    """Have a thread bring the beginning of a cold range into memory; then call `then`, with the error if there is one."""
    assert isinstance(cold, RestOfRange)

    def done(future: asyncio.Future[int]) -> None:
        error = future.exception()
        if error is None:
            cold.warm_until = cold.position + future.result()
        then(error)

    loop.run_in_executor(None, residency.bring_in, cold).add_done_callback(done)


def _send_run(sock: socket.socket, run: list[bytes | memoryview], *, more: bool) -> memoryview | None:
    if not run:
        return None
    return _send_bytes(sock, run[0] if len(run) == 1 else b"".join(run), more=more)


def _send_bytes(sock: socket.socket, data: bytes | memoryview, *, more: bool) -> memoryview | None:
    try:
        sent = sock.send(data, _MSG_MORE if more else 0)
    except (BlockingIOError, InterruptedError):
        sent = 0
    return None if sent == len(data) else memoryview(data)[sent:]


def _send_file(sock: socket.socket, piece: FileRange) -> tuple[RestOfRange | None, bool]:
    """Send a file range. Returns the unsent rest, and whether it is unsent because it is not in memory."""
    out, fd = sock.fileno(), piece.fd
    position, left = piece.position, piece.size
    warm_until = piece.warm_until if isinstance(piece, RestOfRange) else 0
    while left:
        window = min(left, residency.WINDOW_BYTES)
        if position >= warm_until and not residency.resident(fd, position, window):
            return RestOfRange(piece, position, left), True
        try:
            sent = os.sendfile(out, fd, position, window)
        except (BlockingIOError, InterruptedError):
            return RestOfRange(piece, position, left), False
        if sent == 0:
            raise OSError(f"the segment file ends {left} bytes before the answer that was begun")
        position += sent
        left -= sent
    return None, False
