"""One connection to one broker: requests out, answers in the order of the requests.

When it opens, it sets up TLS and SASL and learns the broker's versions (ApiVersions). Several requests may be under way
at a time. Cancelling a request leaves the connection usable: its answer is dropped when it comes. If the broker limits
the session, the connection authenticates again before its end, and requests wait meanwhile. It does not reconnect
(`Cluster` does).
"""

from __future__ import annotations

import asyncio
import os
import ssl
import struct
from collections import deque
from typing import TYPE_CHECKING, Any, Final, Self

from klamm_base.version import __version__
from klamm_kafka.client.errors import ClientError, ConnectionLost, RequestTimedOut, UnsupportedApi
from klamm_kafka.client.frames import FrameProtocol
from klamm_kafka.wire.api_keys import ApiKey, message_types
from klamm_kafka.wire.errors import ErrorCode, ProtocolError
from klamm_kafka.wire.headers import RequestHeader, decode_response_header, frame_request
from klamm_kafka.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from klamm_kafka.wire.struct import Message

if TYPE_CHECKING:
    from klamm_kafka.client.secure import Secure

RESPONSE_BYTES_MAX: Final = 256 * 1024 * 1024
"""A larger size field does not come from a broker: something else listens there."""
API_VERSIONS_VERSION: Final = 3  # brokers without it answer UNSUPPORTED_VERSION in version 0

TLS_SHUTDOWN_S: Final = 1.0
CLOSE_S: Final = 1.0
"""The time that a broker has to take what is still to be sent when a connection is closed."""
"""The time to wait for the broker's end of a TLS connection: nothing is under way any more by then."""
SESSION_USE: Final = 0.85
"""The share of a session after which we authenticate again; Kafka's clients do so after 85 to 95 percent."""

_REFUSED_VERSION: Final = struct.pack(">h", ErrorCode.UNSUPPORTED_VERSION)
_TLS_ALERT: Final = 0x1503  # the beginning of a TLS alert
_Pending = tuple[
    int, type[Message], int, "asyncio.Future[Any]"
]  # correlation id, answer's type, version, waiter


class Connection:
    """One connection, made with `open`. `api_versions` maps an API key to the broker's lowest and highest version."""

    def __init__(
        self,
        frames: FrameProtocol,
        *,
        client_id: str,
        timeout_s: float,
        secure: Secure | None = None,
        where: str = "",
    ) -> None:
        self.api_versions: dict[int, tuple[int, int]] = {}
        self.round_trip_s = 0.0
        """The time of the answer about the versions: nothing is quicker to answer."""
        self.features: dict[str, int] = {}
        """The features that the broker supports, with their highest levels (KIP-584)."""
        assert frames.transport is not None, "connected"
        self._transport = frames.transport
        self._closed = frames.closed
        self._client_id = client_id
        self._timeout_s = timeout_s
        self._correlation_id = 0
        self._pending: deque[_Pending] = deque()
        self._due_since = 0.0  # of the loop's clock: since then the next answer is due
        self._served = False
        self._lost: ClientError | None = None
        self._secure = secure
        self._where = where
        self._authenticate_at: float | None = None  # of the loop's clock
        self._authenticating = asyncio.Lock()
        frames.owner = self

    @classmethod
    async def open(
        cls,
        host: str,
        port: int,
        *,
        client_id: str = "klamm",
        timeout_s: float = 10,
        secure: Secure | None = None,
    ) -> Self:
        """Connect, ask for the broker's versions, and authenticate.

        Raises ConnectionLost, RequestTimedOut, AuthenticationFailed.
        """
        where = f"{host}:{port}"
        tls: dict[str, Any] = {} if secure is None else secure.tls_arguments(host)
        if tls:
            tls["ssl_shutdown_timeout"] = TLS_SHUTDOWN_S
        try:
            async with asyncio.timeout(timeout_s):
                loop = asyncio.get_running_loop()
                _, frames = await loop.create_connection(FrameProtocol, host, port, **tls)
        except TimeoutError:
            raise RequestTimedOut(f"{where}: no connection within {timeout_s} s") from None
        except ssl.SSLError as e:
            raise _tls_failure(e, where) from e
        except OSError as e:
            tls_hint = " during the TLS handshake; look at security.protocol" if tls else ""
            # asyncio's own text names the address once more
            said = os.strerror(e.errno) if e.errno is not None and e.errno > 0 else e.strerror or str(e)
            raise ConnectionLost(f"{where}: {said or 'the connection ended'}{tls_hint}") from e
        connection = cls(frames, client_id=client_id, timeout_s=timeout_s, secure=secure, where=where)
        try:
            await connection._negotiate()
            await connection._authenticate()
        except BaseException:
            await connection.close()
            raise
        return connection

    @property
    def closed(self) -> bool:
        return self._lost is not None

    @property
    def silent_s(self) -> float:
        """The seconds for which an answer is due and none has come."""
        return asyncio.get_running_loop().time() - self._due_since if self._pending else 0.0

    def version_for(self, request: type[Message]) -> int:
        """Returns the highest version of a request that both sides speak. Raises UnsupportedApi."""
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
        await self._keep_session()
        return await self._ask(message, version, timeout_s)

    async def _ask(self, message: Message, version: int, timeout_s: float | None = None) -> Any:
        waiter = self._send(message, version)
        limit = self._timeout_s if timeout_s is None else timeout_s
        try:
            async with asyncio.timeout(limit):
                return await waiter
        except TimeoutError:
            error = RequestTimedOut(f"{ApiKey(message.API_KEY).name}: no answer within {limit} s")
            self._fail(error)
            raise error from None

    async def close(self) -> None:
        """Closes the connection, and drops what the broker has not taken within a second."""
        self._fail(ConnectionLost("the connection was closed here"))
        try:
            async with asyncio.timeout(CLOSE_S):
                await asyncio.shield(self._closed)
        except TimeoutError:
            self._transport.abort()
            await asyncio.shield(self._closed)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # ---- inside

    async def _negotiate(self) -> None:
        name = ApiVersionsRequest(client_software_name="klamm", client_software_version=__version__)
        loop = asyncio.get_running_loop()
        asked_at = loop.time()
        answer: ApiVersionsResponse = await self._ask(name, API_VERSIONS_VERSION)
        self.round_trip_s = loop.time() - asked_at
        if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
            answer = await self._ask(ApiVersionsRequest(), 0)
        if answer.error_code:
            raise UnsupportedApi(f"API_VERSIONS: {ErrorCode(answer.error_code).name}")
        self.api_versions = {k.api_key: (k.min_version, k.max_version) for k in answer.api_keys}
        self.features = {f.name: f.max_version for f in answer.supported_features}

    async def _keep_session(self) -> None:
        """Authenticate again if it is time; other requests wait meanwhile (KIP-368)."""
        if self._authenticate_at is None:
            return
        async with self._authenticating:
            if asyncio.get_running_loop().time() >= self._authenticate_at:
                try:
                    await self._authenticate()
                except ClientError as e:
                    self._fail(e)
                    raise

    async def _authenticate(self) -> None:
        sasl = self._secure.authenticator if self._secure is not None else None
        if sasl is None:
            return
        session_ms = await sasl.run(self._ask_newest, self._where)
        loop = asyncio.get_running_loop()
        self._authenticate_at = loop.time() + session_ms / 1000 * SESSION_USE if session_ms > 0 else None

    async def _ask_newest(self, message: Message) -> Any:
        return await self._ask(message, self.version_for(type(message)))

    def _send(self, message: Message, version: int) -> asyncio.Future[Any]:
        answer_type = message_types(message.API_KEY)[1]
        correlation_id = self._write(message, version)
        loop = asyncio.get_running_loop()
        waiter = loop.create_future()
        if not self._pending:
            self._due_since = loop.time()
        self._pending.append((correlation_id, answer_type, version, waiter))
        return waiter

    def _write(self, message: Message, version: int) -> int:
        if self._lost is not None:
            raise ConnectionLost(str(self._lost))
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        header = RequestHeader(message.API_KEY, version, self._correlation_id, self._client_id)
        self._transport.write(frame_request(header, message))
        return self._correlation_id

    # ---- what the frames' protocol calls

    def check_size(self, size: int) -> None:
        if size >> 16 == _TLS_ALERT:
            raise ConnectionLost("the other side speaks TLS: security.protocol must be SSL or SASL_SSL")
        if not 4 <= size <= RESPONSE_BYTES_MAX:
            raise ConnectionLost(f"the peer is no broker: an answer of {size} bytes")

    def deliver(self, frame: bytes | bytearray) -> None:
        if not self._pending:
            raise ConnectionLost("an answer that nobody asked for")
        correlation_id, answer_type, version, waiter = self._pending[0]
        got, pos = decode_response_header(frame, answer_type.API_KEY, version)
        if got != correlation_id:
            raise ConnectionLost(f"answer to request {got} where {correlation_id} was next")
        if not waiter.done():  # otherwise the caller was cancelled
            if answer_type is ApiVersionsResponse and frame[pos : pos + 2] == _REFUSED_VERSION:
                version = 0
            waiter.set_result(answer_type.decode(frame, version, pos)[0])
        self._pending.popleft()
        if self._pending:
            self._due_since = asyncio.get_running_loop().time()
        self._served = answer_type is not ApiVersionsResponse

    def failed(self, error: Exception | None) -> None:
        if isinstance(error, ClientError):
            self._fail(error)
        elif isinstance(error, ssl.SSLError):
            # With TLS 1.3 a client learns only now that its certificate was refused.
            self._fail(_tls_failure(error, self._where))
        elif error is None or isinstance(error, OSError):
            said = "" if error is None else f" ({error})"
            self._fail(ConnectionLost(f"the broker closed the connection{said}{self._why_closed}"))
        else:
            said = str(error) if isinstance(error, ProtocolError) else repr(error)
            self._fail(ConnectionLost(f"an answer that cannot be read: {said}"))

    # ---- inside

    @property
    def _why_closed(self) -> str:
        """A hint at a setting that a broker may miss: it just closes, after the handshake of TLS 1.3 or instead of an answer."""
        secure = self._secure
        if self._served:
            return ""
        if secure is not None and secure.lacks_certificate and not self.api_versions:
            return "; does it want a certificate (ssl.keystore.location)?"
        if secure is None or secure.authenticator is None or not self.api_versions:
            return "; does it want TLS or a login (security.protocol)?"
        return ""

    def _fail(self, error: ClientError) -> None:
        if self._lost is None:
            self._lost = error
            self._transport.close()
        while self._pending:
            waiter = self._pending.popleft()[3]
            if not waiter.done():
                waiter.set_exception(self._lost)


def _tls_failure(error: ssl.SSLError, where: str) -> ClientError:
    from klamm_kafka.client.secure import tls_failure

    return tls_failure(error, where)
