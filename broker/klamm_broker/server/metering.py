"""Accounts of requests: their cost is measured while they are handled, and settled with their answers (KIP-13, KIP-124, KIP-219, KIP-599).

A `Charge` exists only while any user or client has a quota. The answer goes out at once and tells the delay; then the
broker reads nothing more from the connection until the delay is over. A fetch of one who is over the quota is answered
without records. Event loop's thread only.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from klamm_kafka.wire.api_keys import ApiKey
from klamm_kafka.wire.headers import decode_request_header, response_header_version

if TYPE_CHECKING:
    import asyncio

    from klamm_broker.quota.meters import Quota
    from klamm_broker.security.principal import KafkaPrincipal
    from klamm_broker.server.outgoing import Piece, Reply, Send
    from klamm_broker.server.state import BrokerState

_EXEMPT: Final = frozenset({ApiKey.WRITE_TXN_MARKERS})
"""Requests of other brokers in Kafka: their time is nobody's."""
_I32: Final = struct.Struct(">i")


_C = TypeVar("_C", bound="Measured")


class Measured(Protocol):
    """The members of a connection that accounts use."""

    broker: BrokerState
    loop: asyncio.AbstractEventLoop
    principal: KafkaPrincipal
    charge: Charge | None
    send: Send

    def throttle(self, delay_ms: int, quota: Quota, /) -> None: ...


def handle(
    dispatch: Callable[[_C, memoryview, int, int], Reply | None],
    conn: _C,
    view: memoryview,
    pos: int,
    end: int,
) -> Reply | None:
    """Dispatch a request on its client's account. Raises what `dispatch` raises, and ProtocolError."""
    header, body = decode_request_header(view, pos, end)
    charge = Charge(conn, header.api_key, header.api_version, header.client_id, end - body)
    conn.charge = charge
    try:
        reply = dispatch(conn, view, pos, end)
        if reply is not None:
            return charge.settle(reply)
        if not charge.parked:  # a Produce that wants no answer
            charge.settle(())
        return None
    finally:
        charge.pause()
        conn.charge = None


class Charge:
    """The account of one request. `parked`: its answer comes later."""

    __slots__ = (
        "_began", "_client_id", "_conn", "_key", "_mutation", "_running", "_settled", "_size", "_spent_s", "_user", "_version",
        "parked",
    )  # fmt: skip

    def __init__(self, conn: Measured, key: int, version: int, client_id: str | None, size: int) -> None:
        self._conn = conn
        self._key = key
        self._version = version
        self._user = conn.principal.name
        self._client_id = client_id or ""
        self._size = size
        self._spent_s = 0.0
        self._began = perf_counter()
        self._running = True
        self._settled = self.parked = False
        self._mutation: tuple[int, int] | None = None  # a delay, and when it was told
        if conn.broker.quotas.request:
            time_sends(conn, self._user, self._client_id)

    def park(self) -> Charge:
        """Note that the answer comes later."""
        self.parked = True
        return self

    def pause(self) -> None:
        """Stop the watch: the request waits, or is done."""
        if self._running:
            self._spent_s += perf_counter() - self._began
            self._running = False

    def go_on(self) -> None:
        """Start the watch again."""
        if not self._running:
            self._began = perf_counter()
            self._running = True

    # ---- while it is handled

    def fetch_bytes_max(self) -> int | None:
        """Returns how much one fetch should have at most, so that its client gets its quota evenly; None for any."""
        most = self._conn.broker.quotas.fetch.most_at_once(self._user, self._client_id, self._now_ms())
        return None if most is None else int(min(most, 1 << 62))

    def fetched(self, size: int) -> int:
        """Settle a fetch whose answer has this size. Returns the delay; if there is one, the answer must be empty."""
        quotas, now_ms = self._conn.broker.quotas, self._now_ms()
        fetch_ms = quotas.fetch.draw_in_turn(self._user, self._client_id, size, now_ms, asker=id(self._conn))
        throttle_ms = self._end(fetch_ms, quotas.fetch, now_ms)
        if throttle_ms and not fetch_ms:
            quotas.fetch.note(self._user, self._client_id, -size, now_ms)
        return throttle_ms

    def correct(self, size: int) -> None:
        """Charge for so many bytes more than `fetched` was told; for fewer if it is negative."""
        self._conn.broker.quotas.fetch.note(self._user, self._client_id, size, self._now_ms())

    def mutate(self, partitions: int, *, strict: bool) -> bool:
        """Charge the creation or deletion of partitions. Returns False if it must not be done.

        A Metadata that creates topics is not held up: at Kafka's broker the controller is asked for them apart from it.
        """
        mutation, now_ms = self._conn.broker.quotas.mutation, self._now_ms()
        given, throttle_ms = mutation.draw(self._user, self._client_id, partitions, now_ms, strict=strict)
        if throttle_ms and self._key != ApiKey.METADATA:
            self._mutation = throttle_ms, now_ms
        return given

    # ---- when it is answered

    def settle(self, reply: Reply) -> Reply:
        """Charge for an answer and hold up the connection. Returns the answer, which tells the delay."""
        if self._settled:
            return reply
        quotas, now_ms = self._conn.broker.quotas, self._now_ms()
        produce_ms = 0
        if self._key == ApiKey.PRODUCE:
            produce = quotas.produce
            _, produce_ms = produce.draw(self._user, self._client_id, self._size, now_ms, strict=False)
        throttle_ms = self._end(produce_ms, quotas.produce, now_ms, exempt=not reply)
        return _with_throttle_time(reply, self._key, self._version, throttle_ms) if throttle_ms else reply

    def settle_message(self, message: Any) -> None:
        """Charge for an answer that is not framed yet, and hold up the connection."""
        if self._settled:
            return
        now_ms, mutation_ms = self._now_ms(), 0
        if self._mutation is not None:
            told_ms, at_ms = self._mutation
            mutation_ms = max(0, told_ms - (now_ms - at_ms))
        exempt = self._key in _EXEMPT
        throttle_ms = self._end(mutation_ms, self._conn.broker.quotas.mutation, now_ms, exempt=exempt)
        if throttle_ms and hasattr(message, "throttle_time_ms"):
            message.throttle_time_ms = throttle_ms

    def _end(self, own_ms: int, own: Quota, now_ms: int, *, exempt: bool = False) -> int:
        """Charge for the time. Holds the connection up and returns for how long: the longer of both delays."""
        self._settled = True
        request, time_ms = self._conn.broker.quotas.request, 0
        if request and not exempt:
            spent_s = self._spent_s + (perf_counter() - self._began if self._running else 0)
            time_ms = request.record(self._user, self._client_id, spent_s * 100, now_ms)
        throttle_ms, quota = (own_ms, own) if own_ms > time_ms else (time_ms, request)
        if throttle_ms:
            quota.throttled(self._user, self._client_id, throttle_ms, now_ms)
            self._conn.throttle(throttle_ms, quota)
        return throttle_ms

    def _now_ms(self) -> int:
        return int(self._conn.loop.time() * 1000)


class TimedSend:
    """Sends as a connection does, on the account of those whose request came last.

    It does not know its connection, which so goes with its buffers as soon as it is closed, and not when garbage is collected.
    """

    __slots__ = ("_broker", "_loop", "_send", "client_id", "user")

    def __init__(self, conn: Measured, send: Send) -> None:
        self._broker, self._loop = conn.broker, conn.loop
        self._send = send
        self.user = self.client_id = ""

    def __call__(self, sock: Any, pieces: Sequence[Piece]) -> list[Piece]:
        began = perf_counter()
        try:
            return self._send(sock, pieces)
        finally:
            spent_s, now_ms = perf_counter() - began, int(self._loop.time() * 1000)
            self._broker.quotas.request.note(self.user, self.client_id, spent_s * 100, now_ms)


def time_sends(conn: Measured, user: str, client_id: str) -> None:
    """Charge the time of a connection's answers to these."""
    send = conn.send
    if not isinstance(send, TimedSend):
        send = conn.send = TimedSend(conn, send)
    send.user, send.client_id = user, client_id


def _with_throttle_time(reply: Reply, key: int, version: int, throttle_ms: int) -> Reply:
    """Returns a framed answer with another throttle time: the last field of Produce, the first of all others."""
    if not reply:
        return reply
    frame, told = bytes(reply[0]), _I32.pack(throttle_ms)  # type: ignore[arg-type]  # its first piece is never a file range
    tags = response_header_version(key, version)  # bytes of tags, in the header and at the end
    if key == ApiKey.PRODUCE:
        return (frame[: len(frame) - 4 - tags] + told + frame[len(frame) - tags :],)
    return [frame[: 8 + tags] + told + frame[12 + tags :], *reply[1:]]
