"""One connection to one broker: requests out, answers in the order of the requests.

Knows which versions the broker speaks (ApiVersions is asked when it opens). Several requests may be under way at a
time. Cancelling a request leaves the connection usable: its answer is dropped when it comes. Plain TCP; does not
reconnect (`Cluster` does).
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections import deque
from typing import Any, Final, Self

from klamm_base.version import __version__
from klamm_broker.client.errors import ClientError, ConnectionLost, RequestTimedOut, UnsupportedApi
from klamm_broker.wire.api_keys import ApiKey, message_types
from klamm_broker.wire.errors import ErrorCode, ProtocolError
from klamm_broker.wire.headers import RequestHeader, decode_response_header, frame_request
from klamm_broker.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from klamm_broker.wire.struct import Message

RESPONSE_BYTES_MAX: Final = 256 * 1024 * 1024
"""A larger size field is not an answer of a broker but of something else that listens there."""
API_VERSIONS_VERSION: Final = 3  # brokers that do not have it answer in version 0, which says so

_SIZE: Final = struct.Struct(">i")
_REFUSED_VERSION: Final = struct.pack(">h", ErrorCode.UNSUPPORTED_VERSION)
_Pending = tuple[
    int, type[Message], int, "asyncio.Future[Any]"
]  # correlation id, answer's type, version, waiter


class Connection:
    """Made with `open`. `api_versions` maps an API key to the broker's lowest and highest version."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, client_id: str, timeout_s: float
    ) -> None:
        self.api_versions: dict[int, tuple[int, int]] = {}
        self._reader = reader
        self._writer = writer
        self._client_id = client_id
        self._timeout_s = timeout_s
        self._correlation_id = 0
        self._pending: deque[_Pending] = deque()
        self._lost: ClientError | None = None
        self._receiver = asyncio.create_task(self._receive())

    @classmethod
    async def open(cls, host: str, port: int, *, client_id: str = "klamm", timeout_s: float = 10) -> Self:
        """Connect and ask what the broker speaks. Raises ConnectionLost, RequestTimedOut."""
        try:
            async with asyncio.timeout(timeout_s):
                reader, writer = await asyncio.open_connection(host, port)
        except TimeoutError:
            raise RequestTimedOut(f"{host}:{port}: no connection within {timeout_s} s") from None
        except OSError as e:
            raise ConnectionLost(f"{host}:{port}: {e.strerror or e}") from e
        connection = cls(reader, writer, client_id=client_id, timeout_s=timeout_s)
        try:
            await connection._negotiate()
        except BaseException:
            await connection.close()
            raise
        return connection

    @property
    def closed(self) -> bool:
        return self._lost is not None

    def version_for(self, request: type[Message]) -> int:
        """The highest version of a request that both sides speak. Raises UnsupportedApi."""
        name = ApiKey(request.API_KEY).name
        served = self.api_versions.get(request.API_KEY)
        if served is None:
            raise UnsupportedApi(f"the broker does not serve {name}")
        low, high = max(served[0], request.MIN_VERSION), min(served[1], request.MAX_VERSION)
        if low > high:
            ours = f"{request.MIN_VERSION} to {request.MAX_VERSION}"
            raise UnsupportedApi(f"the broker serves {name} {served[0]} to {served[1]}, we speak {ours}")
        return high

    async def request(
        self, message: Message, version: int | None = None, *, timeout_s: float | None = None
    ) -> Any:
        """Send a request and return its answer, decoded. `version=None` takes `version_for`.

        Raises ConnectionLost, RequestTimedOut, UnsupportedApi, ProtocolError (a value that cannot be sent).
        """
        if version is None:
            version = self.version_for(type(message))
        waiter = self._send(message, version)
        limit = self._timeout_s if timeout_s is None else timeout_s
        try:
            async with asyncio.timeout(limit):
                return await waiter
        except TimeoutError:
            error = RequestTimedOut(f"{ApiKey(message.API_KEY).name}: no answer within {limit} s")
            self._fail(error)
            raise error from None

    async def send_only(self, message: Message, version: int | None = None) -> None:
        """Send a request that gets no answer (Produce with acks=0)."""
        if version is None:
            version = self.version_for(type(message))
        self._write(message, version)
        await self._writer.drain()

    async def close(self) -> None:
        self._fail(ConnectionLost("the connection was closed here"))
        self._receiver.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._receiver
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # ---- inside

    async def _negotiate(self) -> None:
        name = ApiVersionsRequest(client_software_name="klamm", client_software_version=__version__)
        answer: ApiVersionsResponse = await self.request(name, API_VERSIONS_VERSION)
        if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
            answer = await self.request(ApiVersionsRequest(), 0)
        if answer.error_code:
            raise UnsupportedApi(f"API_VERSIONS: {ErrorCode(answer.error_code).name}")
        self.api_versions = {k.api_key: (k.min_version, k.max_version) for k in answer.api_keys}

    def _send(self, message: Message, version: int) -> asyncio.Future[Any]:
        answer_type = message_types(message.API_KEY)[1]
        correlation_id = self._write(message, version)
        waiter = asyncio.get_running_loop().create_future()
        self._pending.append((correlation_id, answer_type, version, waiter))
        return waiter

    def _write(self, message: Message, version: int) -> int:
        if self._lost is not None:
            raise ConnectionLost(str(self._lost))
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        header = RequestHeader(message.API_KEY, version, self._correlation_id, self._client_id)
        self._writer.write(frame_request(header, message))
        return self._correlation_id

    async def _receive(self) -> None:
        error: ClientError
        try:
            while True:
                (size,) = _SIZE.unpack(await self._reader.readexactly(4))
                if not 4 <= size <= RESPONSE_BYTES_MAX:
                    raise ConnectionLost(f"the peer is no broker: an answer of {size} bytes")
                self._deliver(await self._reader.readexactly(size))
        except (asyncio.IncompleteReadError, OSError) as e:
            error = ConnectionLost(f"the broker closed the connection ({e})")
        except ProtocolError as e:
            error = ConnectionLost(f"an answer that cannot be read: {e}")
        except ClientError as e:
            error = e
        self._fail(error)

    def _deliver(self, data: bytes) -> None:
        if not self._pending:
            raise ConnectionLost("an answer that nobody asked for")
        correlation_id, answer_type, version, waiter = self._pending[0]
        got, pos = decode_response_header(data, answer_type.API_KEY, version)
        if got != correlation_id:
            raise ConnectionLost(f"answer to request {got} where {correlation_id} was next")
        if not waiter.done():  # otherwise the caller was cancelled
            if answer_type is ApiVersionsResponse and data[pos : pos + 2] == _REFUSED_VERSION:
                version = 0
            waiter.set_result(answer_type.decode(data, version, pos)[0])
        self._pending.popleft()

    def _fail(self, error: ClientError) -> None:
        if self._lost is None:
            self._lost = error
            self._writer.close()
        while self._pending:
            waiter = self._pending.popleft()[3]
            if not waiter.done():
                waiter.set_exception(self._lost)
