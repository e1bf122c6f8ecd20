"""TLS over a non-blocking socket: OpenSSL works on memory, and the socket is read and written in large pieces.

A record holds at most 16 KiB. Several records leave in one call and come in one call, which takes a quarter less CPU
than OpenSSL on the socket itself (decision 055). `TlsSocket` has the methods of a socket that a `Connection` uses; `send`
has the contract of `outgoing.send`. Bytes of segments are read in pieces; no answer is ever put together in memory.
"""

from __future__ import annotations

import socket
import ssl
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from time import perf_counter
from typing import Final

from klamm_broker.server import residency
from klamm_broker.server.outgoing import Cold, Piece, RestOfRange
from klamm_broker.server.residency import FileRange

RECORD_BYTES: Final = 16 * 1024
WINDOW_BYTES: Final = 8 * RECORD_BYTES
"""The bytes that are encrypted before they leave together. The best of 1, 4, 8 and 16 records."""
TURN_BYTES: Final = 1024 * 1024
"""The bytes that one connection may encrypt at a time, about a millisecond: others wait meanwhile."""
PIECE_BYTES: Final = RECORD_BYTES + 22
"""The arrived bytes that OpenSSL gets at a time, a full record of TLS 1.3: it goes through all that it has until one holds data."""
TURN_S: Final = 0.001
"""The time after which no further piece is decrypted before others had their turn."""
BARREN_BYTES: Final = 2 * RECORD_BYTES
"""The bytes that a peer may send without any data: a record that has not come whole, and a thousand changes of keys, which take
ten microseconds each."""
_ARRIVED: Final = memoryview(bytearray(256 * 1024))
_NONE: Final = memoryview(b"")
_READ: Final = memoryview(bytearray(WINDOW_BYTES))
"""Buffers that all connections share: nothing stays in them beyond a call. Event loop's thread only."""
NOTHING: Final[Piece] = b""
"""Stands for encrypted bytes that the socket has not taken."""


class TlsSocket:
    """One side of a TLS connection that we have accepted. After an error of OpenSSL only `flush` and `close` are useful.

    `more` is true while decrypted or arrived bytes may wait here, for which the socket will not become readable.
    """

    __slots__ = ("_barren", "_in", "_out", "_rest", "_unsent", "more", "raw", "tls")

    def __init__(self, raw: socket.socket, context: ssl.SSLContext) -> None:
        self.raw = raw
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._in, self._out, server_side=True)
        self._unsent: memoryview | None = None
        self._rest = _NONE
        self._barren = 0  # bytes that OpenSSL has got since it gave data
        self.more = False

    def fileno(self) -> int:
        return self.raw.fileno()

    def handshake(self) -> bool:
        """Go on with the handshake as far as what has come allows. Returns whether it is done.

        Raises OSError: ssl.SSLError with OpenSSL's reason, or ConnectionResetError if the peer has left.
        """
        done = False
        try:
            count = self.raw.recv_into(_ARRIVED[:PIECE_BYTES])
        except (BlockingIOError, InterruptedError):
            return False
        if count == 0:
            raise ConnectionResetError("the peer left in the handshake")
        self._in.write(_ARRIVED[:count])
        try:
            with suppress(ssl.SSLWantReadError):
                self.tls.do_handshake()
                done = True
        finally:
            with suppress(
                OSError
            ):  # an alert of a failed handshake; what a good one leaves goes with the first answer
                self.flush()
        self.more = done
        return done

    def recv_into(self, view: memoryview) -> int:
        """Decrypt into `view`. Returns the count, 0 at the end; raises BlockingIOError if nothing is there, or OSError.

        What has arrived goes to OpenSSL in pieces, and no further one after `TURN_S`: of small records a piece has hundreds.
        """
        late = perf_counter() + TURN_S
        if not self.more:
            count = self.raw.recv_into(_ARRIVED)
            if count:
                self._feed(_ARRIVED[:count])
            else:
                self._in.write_eof()
        elif self._rest and not self._in.pending:
            self._feed(self._rest)
        self.more = True
        total = 0
        while total < len(view):
            try:
                count = int(self.tls.read(len(view) - total, view[total:]))
            except ssl.SSLWantReadError:
                if self._barren > BARREN_BYTES:
                    raise ssl.SSLError(1, f"{self._barren} bytes of records without any data") from None
                if not self._rest:
                    self.more = False
                    break
                if perf_counter() >= late:
                    break
                self._feed(self._rest)
                continue
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):  # a frame that was cut is noticed by its size
                count = 0
            if not count:
                return total
            self._barren = 0
            total += count
            if not self._in.pending and not self._in.eof and not self.tls.pending():
                if not self._rest:
                    self.more = False  # as the next read would say, by an error that takes longer than a read
                    break
                if perf_counter() >= late:
                    break
                self._feed(self._rest)
        if not total:
            raise BlockingIOError
        return total

    def _feed(self, arrived: memoryview) -> None:
        """Hand a piece to OpenSSL and keep the rest, which is copied if it is in the shared buffer."""
        piece, rest = arrived[:PIECE_BYTES], arrived[PIECE_BYTES:]
        self._barren += self._in.write(piece)
        self._rest = memoryview(bytes(rest)) if rest and arrived.obj is _ARRIVED.obj else rest

    def flush(self) -> bool:
        """Send encrypted bytes. Returns whether the socket has taken all of them. Raises OSError."""
        unsent = self._unsent
        if unsent is None:
            if not self._out.pending:
                return True
            unsent = memoryview(self._out.read())
        while unsent:
            try:
                sent = self.raw.send(unsent)
            except (BlockingIOError, InterruptedError):
                self._unsent = unsent
                return False
            unsent = unsent[sent:]
        self._unsent = None
        return not self._out.pending or self.flush()

    def shutdown(self, how: int) -> None:
        """Say that nothing more will come, in TLS and below it. Raises OSError."""
        with suppress(ssl.SSLError):
            self.tls.unwrap()
        self.flush()
        self.raw.shutdown(how)

    def close(self) -> None:
        self.raw.close()

    def certificate(self) -> bytes | None:
        """Returns the peer's certificate in DER; None if it has shown none."""
        return self.tls.getpeercert(binary_form=True)


def send(sock: TlsSocket, pieces: Sequence[Piece]) -> list[Piece]:
    """Send until the socket is full, a range is cold, or others have waited enough; returns what is left.

    That is a `Cold` in the second case. Raises OSError when the connection is broken.
    """
    rest = deque(pieces)
    budget = TURN_BYTES
    while sock.flush():
        if not rest:
            return []
        if budget <= 0:
            return list(rest)
        try:
            budget -= _encrypt(sock.tls, rest)
        except BlockingIOError:
            sock.flush()
            return Cold(rest)
    return list(rest) or [NOTHING]


def _encrypt(tls: ssl.SSLObject, rest: deque[Piece]) -> int:
    """Encrypt a window from the front of `rest`, which keeps the others. Returns the count of bytes.

    Raises BlockingIOError if the first piece is a file range that is not in memory.
    """
    run: list[bytes | memoryview] = []  # small neighbours share a record
    held = 0
    while rest:
        piece = rest[0]
        if not isinstance(piece, (bytes, memoryview)):
            if run:
                break
            return _encrypt_range(tls, rest, piece)
        if held and held + len(piece) > RECORD_BYTES:
            break
        rest.popleft()
        if len(piece) > WINDOW_BYTES:
            view = memoryview(piece)
            rest.appendleft(view[WINDOW_BYTES:])
            piece = view[:WINDOW_BYTES]
        run.append(piece)
        held += len(piece)
    if held:
        tls.write(run[0] if len(run) == 1 else b"".join(run))
    return held


def _encrypt_range(tls: ssl.SSLObject, rest: deque[Piece], piece: FileRange) -> int:
    fd, position, size = piece.fd, piece.position, piece.size
    warm = max(0, piece.warm_until - position) if isinstance(piece, RestOfRange) else 0
    window = min(size, warm or size, WINDOW_BYTES)
    try:
        count = residency.read_into(fd, _READ[:window], position, wait=warm > 0)
    except BlockingIOError:
        rest[0] = RestOfRange(piece, position, size)
        raise
    if count == 0:
        raise OSError(f"the segment file ends {size} bytes before the answer that was begun")
    rest.popleft()
    if count < size:
        rest.appendleft(RestOfRange(piece, position + count, size - count))
    tls.write(_READ[:count])
    return count
