"""Control messages between worker, fork server and children: one JSON object per line on a socketpair.

Three shapes: a request `{"id", "method", "params"}`, its answer `{"id", "result"}` or `{"id", "error"}`, and
a notice `{"event", ...}`. Both ends number their own requests. `Decoder` and `encode` are pure;
`AsyncChannel` is the worker's end, `BlockingChannel` the child's (any thread may send, one receives).
Records never pass here. A message that cannot be read ends the channel: the peer is not trusted.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable
from typing import Any, Final

import orjson

Message = dict[str, Any]

# The largest answers are the offsets of a connector with very many source partitions.
MESSAGE_BYTES_MAX: Final = 64 << 20
_RECEIVE_BYTES: Final = 64 << 10


class ChannelError(Exception):
    """The peer is gone, or sent something that is no message."""


def encode(message: Message) -> bytes:
    """Returns a message as a line; JSON escapes every newline inside."""
    return orjson.dumps(message, option=orjson.OPT_APPEND_NEWLINE | orjson.OPT_NON_STR_KEYS)


class Decoder:
    """Turns bytes into whole messages."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: bytes) -> list[Message]:
        """Returns the messages that `data` completes. Raises ChannelError for anything that is no JSON object."""
        self._rest += data
        end = self._rest.rfind(b"\n") + 1
        if not end:
            if len(self._rest) > MESSAGE_BYTES_MAX:
                raise ChannelError(f"A control message is larger than {MESSAGE_BYTES_MAX} bytes")
            return []
        lines = bytes(self._rest[: end - 1]).split(b"\n")
        del self._rest[:end]
        return [_decode(line) for line in lines]


def _decode(line: bytes) -> Message:
    try:
        message = orjson.loads(line)
    except orjson.JSONDecodeError as e:
        raise ChannelError(f"A control message is no JSON: {line[:100]!r}") from e
    if not isinstance(message, dict):
        raise ChannelError(f"A control message is no JSON object: {line[:100]!r}")
    return message


class AsyncChannel(asyncio.Protocol):
    """The worker's end. `on_message` gets each message, `on_close` is called once, with the reason if bad."""

    def __init__(
        self, on_message: Callable[[Message], None], on_close: Callable[[Exception | None], None]
    ) -> None:
        self._on_message = on_message
        self._on_close = on_close
        self._decoder = Decoder()
        self._transport: asyncio.Transport | None = None
        self._reason: Exception | None = None

    @classmethod
    async def open(
        cls,
        sock: socket.socket,
        on_message: Callable[[Message], None],
        on_close: Callable[[Exception | None], None],
    ) -> AsyncChannel:
        """Take over `sock`, one end of a socketpair."""
        sock.setblocking(False)
        loop = asyncio.get_running_loop()
        _, channel = await loop.create_unix_connection(lambda: cls(on_message, on_close), sock=sock)
        return channel

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        try:
            for message in self._decoder.feed(data):
                self._on_message(message)
        except (ChannelError, KeyError, TypeError, ValueError) as e:
            # The worker is not at fault and must not be harmed: it cuts this child off.
            self._reason = e
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._on_close(self._reason or exc)

    def send(self, message: Message) -> None:
        """Queue a message. A message for a peer that is gone is dropped, and `on_close` reports the peer's end."""
        if self._transport is not None:
            self._transport.write(encode(message))

    def close(self) -> None:
        """Close the connection now and drop what is still queued, because a hung peer must not keep it open."""
        if self._transport is not None:
            self._transport.abort()


class BlockingChannel:
    """The child's end. `receive` is for one thread, `send` for any."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(True)
        self._sock = sock
        self._decoder = Decoder()
        self._lock = threading.Lock()

    def fileno(self) -> int:
        return self._sock.fileno()

    def send(self, message: Message) -> None:
        """Send a message. Raises OSError when the worker is gone."""
        data = encode(message)
        with self._lock:
            self._sock.sendall(data)

    def receive(self) -> list[Message] | None:
        """Wait for bytes; returns the messages that they complete (maybe none), None at the end of the channel."""
        data = self._sock.recv(_RECEIVE_BYTES)
        return self._decoder.feed(data) if data else None

    def shut_down(self) -> None:
        """End the channel; a `receive` that waits returns None."""
        with contextlib.suppress(OSError):  # the worker has ended it
            self._sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._sock.close()
