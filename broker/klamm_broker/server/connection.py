"""One client connection: a raw non-blocking socket, its receive buffer and its ordered answers.

Invariants: Answers leave in the order of their requests, also when a handler parks one. While the peer does not take
its answers, nothing is read (back pressure). At most `MAX_PARKED` requests of `MAX_PARKED_BYTES` together wait at a
time. Requests that arrived together are handled in slices, in the lane of all large work. A view of the receive buffer outlives the
call that made it only while its request holds the connection: nothing is read or moved then. A bad request closes this
connection with one log line and touches nothing else. Runs on the event loop's thread only.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections import deque
from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Final, Protocol

from klamm_broker.api.registry import REQUEST_MAX, Api, too_large
from klamm_broker.security.principal import ANONYMOUS, KafkaPrincipal
from klamm_broker.server import outgoing
from klamm_broker.server.delays import Delays
from klamm_broker.server.outgoing import Cold, Piece, Reply, Send, Transport
from klamm_broker.server.slices import LONG_SLICE_S, lane_of

if TYPE_CHECKING:
    from klamm_broker.quota.meters import Quota
    from klamm_broker.security.authorizer import Access
    from klamm_broker.server.audit import RefusedLogins
    from klamm_broker.server.few_lines import FewLines
    from klamm_broker.server.metering import Charge
    from klamm_broker.server.metrics import ApiMetrics, RequestMetrics
    from klamm_broker.server.sasl_config import LoginSettings
    from klamm_broker.server.state import BrokerState
    from klamm_broker.server.waiting import WaitingRoom

log = logging.getLogger(__name__)

IDLE_BUFFER_BYTES: Final = 16 * 1024
"""Receive buffer of a connection that sends little: there may be thousands of such connections."""
BUFFER_BYTES: Final = 256 * 1024
"""Receive buffer of a connection that has filled the small one: two of librdkafka's usual batches."""
GROWTH: Final = 4
"""A large frame gets a buffer of this many times the bytes that have arrived: a size field alone proves nothing."""
MAX_PARKED: Final = 256
"""Parked requests of one connection before reading stops. Clients usually pipeline five."""
MAX_PARKED_BYTES: Final = 1024 * 1024
"""Bytes of parked requests and of answers that wait for their turn. A parked fetch takes ten times its size in memory."""
CORK_PIECES: Final = 64
CORK_BYTES: Final = 64 * 1024
"""Answers to requests that arrived together leave together: this many, of at most this size."""

_BY_REQUEST, _BY_QUOTA, _BY_SLICE = 1, 2, 4  # by what a connection is held (bits)

_SIZE: Final = struct.Struct(">i")
_KEY: Final = struct.Struct(">h")
_PREFIX: Final = 6
"""Size field and api key: enough to refuse a large frame before reading it."""


class BadRequest(Exception):
    """A request that is malformed or not served: the connection closes."""


Dispatch = Callable[["Connection", memoryview, int, int], "Reply | None"]


class Owner(Protocol):
    """The server that accepts connections, with the members that they use.

    `dispatch` handles the request in `view[pos:end]`. It returns the answer, or None if there is none or the request is
    parked, and raises BadRequest.
    """

    broker: BrokerState
    loop: asyncio.AbstractEventLoop
    apis: dict[int, Api]
    metrics: RequestMetrics
    refusals: FewLines
    refused_logins: RefusedLogins
    faults: FewLines
    dispatch: Dispatch

    def forget(self, connection: Connection) -> None:
        """Take note that a connection has closed."""

    def login_settings(self, listener: str) -> LoginSettings:
        """Returns the logins of a listener as the configuration has them now."""


class Slot:
    """The place of one parked request in its connection's order. `abandoned` is called if the connection closes first."""

    __slots__ = ("_began", "_metrics", "abandoned", "charge", "connection", "reply", "size")

    def __init__(self, connection: Connection, size: int) -> None:
        self.connection = connection
        self.size = size
        self._metrics, self._began = connection.metrics, connection.began
        self.reply: Reply | None = None
        self.charge = None if connection.charge is None else connection.charge.park()
        self.abandoned: Callable[[], None] | None = None

    @property
    def waiting_room(self) -> WaitingRoom:
        return self.connection.broker.waiting

    @property
    def closed(self) -> bool:
        """True once the connection is gone: nobody waits for the answer."""
        return self.connection.closed

    def resolve(self, reply: Reply) -> None:
        """Hand in the answer, once. It leaves after the answers to all earlier requests."""
        self._metrics.latency.observe(perf_counter() - self._began)
        if self.charge is not None:
            reply = self.charge.settle(reply)
        self.connection.resolve(self, reply)

    def fail(self, why: str) -> None:
        """Close the connection, as there will be no answer."""
        self.connection.close(why)


class Connection:
    """Reads frames, dispatches them, writes answers.

    `dispatch` is the server's unless a login stands before it: whoever makes the connection must say which, for it reads
    from then on. A change holds from the next request on. `on_close` is called when the connection closes. `last_active` is
    when the last bytes came in, by `perf_counter`. `dispatch` sets `metrics`, those of the request that is being handled, and
    with quotas `charge`, its account; it `began` when its bytes came, or when the request before it was done.
    """

    __slots__ = (
        "_buf", "_delays", "_end", "_fd", "_held", "_need", "_out", "_parked", "_parked_bytes", "_peak", "_principal",
        "_processing", "_quiet", "_reading", "_start", "_view", "_writing", "access", "began", "broker", "charge", "closed", "dispatch", "host",
        "last_active", "listener", "loop", "max_frame", "metrics", "on_close", "port", "send", "server", "sock", "software",
    )  # fmt: skip
    _plain_send: Send = staticmethod(outgoing.send)

    def __init__(
        self, server: Owner, sock: Transport, peer: tuple[str, int], listener: str, dispatch: Dispatch
    ) -> None:
        self.server = server
        self.broker = server.broker
        self.loop = server.loop
        self.dispatch = dispatch
        self.sock = sock
        self._fd = sock.fileno()
        self.host, self.port = peer
        self.listener = listener
        self._principal: KafkaPrincipal = ANONYMOUS
        self.software = ("unknown", "unknown")
        self.access = self._rights()
        """The rights of the client; None where there is no authorizer."""
        self.on_close: Callable[[], None] | None = None
        self.max_frame: int = server.broker.config["socket.request.max.bytes"]
        self.last_active = self.began = perf_counter()
        self.metrics: ApiMetrics
        self._buf = bytearray(IDLE_BUFFER_BYTES)
        self._view = memoryview(self._buf)
        self._start = self._end = self._peak = 0
        self._need = 4  # bytes from `_start` that the next step needs: a size field or a whole frame
        self._parked: deque[Slot] = deque()
        self._parked_bytes = self._held = 0
        self._out: list[Piece] = []
        self.closed = self._writing = self._processing = self._quiet = False
        self._delays = Delays()
        self.charge: Charge | None = None
        self.send: Send = self._plain_send
        self._reading = True
        self.loop.add_reader(self._fd, self._on_readable)

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def principal(self) -> KafkaPrincipal:
        """The user that the connection acts for; another one has other rights."""
        return self._principal

    @principal.setter
    def principal(self, principal: KafkaPrincipal) -> None:
        self._principal = principal
        self.access = self._rights()

    def _rights(self) -> Access | None:
        authorizer = self.broker.authorizer
        return None if authorizer is None else authorizer.access(self._principal, self.host)

    # ---- in

    def _on_readable(self) -> None:
        try:
            n = self.sock.recv_into(self._view[self._end :])
        except (BlockingIOError, InterruptedError):
            return
        except OSError as e:
            self._read_failed(e)
            return
        if n == 0:
            self._on_eof()
            return
        self._end += n
        self.last_active = self.began = perf_counter()
        if self._end == len(self._buf) < BUFFER_BYTES:
            self._replace_buffer(BUFFER_BYTES)
        self._process()

    def _read_failed(self, error: OSError) -> None:
        self.close(f"read failed: {error.strerror or error}", level=logging.DEBUG)

    def _on_eof(self) -> None:
        if held := self._end - self._start:
            what = "a size field" if held < 4 else "a request"
            self.close(f"truncated request: the peer left after {held} of {self._need} bytes of {what}")
        else:
            self.close("closed by the peer", level=logging.DEBUG)

    def _process(self) -> None:
        """Handle the whole requests in the buffer, as long as the peer takes the answers and the slice lasts."""
        cork: list[Piece] = []  # answers that leave in one call
        end_of_slice = self.began + LONG_SLICE_S
        self._processing = True
        try:
            while (held := self._end - self._start) >= self._need and not self.closed and not self._blocked():
                start = self._start
                if self._need <= _PREFIX:
                    self._need = self._next_need(start, held)
                    if held < self._need:
                        break
                end = start + self._need
                reply = self.dispatch(self, self._view, start + 4, end)
                self._start = end
                self._need = 4
                now = perf_counter()
                if reply is not None:
                    self.metrics.latency.observe(now - self.began)
                    if end == self._end and not self._parked:
                        cork += reply
                        break
                    self._answer(reply, cork)
                self.began = now
                if now > end_of_slice and not self._held:
                    self._held = _BY_SLICE
                    lane_of(self.loop).next(partial(self.go_on, _BY_SLICE))
        except BadRequest as e:
            self._flush(cork)
            lines = self.server.refusals if getattr(self.dispatch, "is_login", False) else self.server.faults
            self.close(str(e), level=lines.level(self.loop))
            return
        except Exception as e:  # a defect of ours: the peer must not wait for an answer that will not come
            log.exception("a request of %s failed", self)
            self._flush(cork)
            self.close(f"failed here: {e!r}")
            return
        finally:
            self._processing = False
        if self.closed:
            return
        if self._parked:
            cork += self._ready()  # answers that one of these requests has resolved
        if cork:
            self._flush(cork)
        if not self.closed:
            if self._start == self._end:
                self._start = self._end = 0
            else:
                self._make_room()
            if not self._reading or self._blocked():
                self._update_reading()

    def _next_need(self, start: int, held: int) -> int:
        """Returns the bytes that the next step needs: the frame, whose size is in the buffer, or the start of a large one, to be checked."""
        (size,) = _SIZE.unpack_from(self._buf, start)
        if size <= 0:
            raise BadRequest(f"request size {size} is not positive")
        if size > self.max_frame:
            usual = self.max_frame == self.broker.config["socket.request.max.bytes"]
            limit = "socket.request.max.bytes" if usual else "sasl.server.max.receive.size"
            raise BadRequest(f"request size {size} exceeds {limit}={self.max_frame}")
        if size > REQUEST_MAX:
            if held < _PREFIX:
                return _PREFIX
            (key,) = _KEY.unpack_from(self._buf, start + 4)
            why = too_large(self.server.apis.get(key), key, size)
            if why is not None:
                raise BadRequest(why)
        return 4 + int(size)

    def _make_room(self) -> None:
        """Make room for the rest of the frame: move it to the front of the buffer, or take a larger buffer."""
        if self._held & _BY_REQUEST:
            return  # it still reads its bytes
        held = self._end - self._start
        need = self._need
        self._peak = max(self._peak, need)
        if self._start + need <= len(self._buf):
            return
        capacity = min(need, max(GROWTH * held, BUFFER_BYTES))
        if capacity > len(self._buf):
            self._replace_buffer(capacity + BUFFER_BYTES // 2)
        elif self._start:
            self._view[:held] = self._view[self._start : self._end]
            self._start, self._end = 0, held

    def _replace_buffer(self, capacity: int) -> None:
        buf = bytearray(capacity)
        view = memoryview(buf)
        held = self._end - self._start
        view[:held] = self._view[self._start : self._end]
        self._view.release()
        self._buf, self._view = buf, view
        self._start, self._end = 0, held

    def shrink(self) -> None:
        """Give back a large buffer that no recent frame needed. The server calls this periodically."""
        enough = IDLE_BUFFER_BYTES if self._peak <= IDLE_BUFFER_BYTES else BUFFER_BYTES
        if len(self._buf) > enough >= self._peak and self._end == self._start:
            self._start = self._end = 0
            self._replace_buffer(enough)
        self._peak = self._need

    # ---- out

    def park(self) -> Slot:
        """Keep the place of the current request; its answer comes through the slot."""
        return self._park(self._need)

    def _park(self, size: int) -> Slot:
        slot = Slot(self, size)
        self._parked.append(slot)
        self._parked_bytes += size
        return slot

    def hold(self) -> None:
        """Handle and read no further request before `go_on`: later requests must not overtake this one. Its bytes stay as they are."""
        self._held |= _BY_REQUEST

    def go_on(self, held_by: int = _BY_REQUEST) -> None:
        self._held &= ~held_by
        if not self.closed:
            self._resume()

    def throttle(self, delay_ms: int, quota: Quota) -> None:
        """Handle and read no further request for this time; answers still leave. `quota` counts who is held up."""
        self._held |= _BY_QUOTA
        self._delays.begin(self.loop, delay_ms, quota, partial(self.go_on, _BY_QUOTA))
        if not self._processing and not self.closed:
            self._update_reading()

    def resolve(self, slot: Slot, reply: Reply) -> None:
        if self.closed:
            return
        if self._parked and self._parked[0] is slot and not self._out and not self._processing:
            self._parked_bytes -= self._parked.popleft().size
            self._flush([*reply, *self._ready()])
        else:
            slot.reply = reply
            self._parked_bytes += (size := outgoing.bytes_in(reply))
            slot.size += size
            if not self._processing:
                self._flush(self._ready())
        if not self._processing and not self.closed:
            self._resume()

    def _answer(self, reply: Reply, cork: list[Piece]) -> None:
        if self._parked:
            self._park(outgoing.bytes_in(reply)).reply = reply
            return
        cork += reply
        large = len(reply) > 1 or (isinstance(reply[0], bytes) and len(reply[0]) > CORK_BYTES)
        if large or len(cork) >= CORK_PIECES:
            self._flush(cork)  # so that back pressure shows before the next request is handled
            cork.clear()

    def _ready(self) -> list[Piece]:
        """Take the finished answers at the head of the order."""
        pieces: list[Piece] = []
        while self._parked and self._parked[0].reply is not None:
            slot = self._parked.popleft()
            self._parked_bytes -= slot.size
            pieces += slot.reply or ()
        return pieces

    def _flush(self, pieces: list[Piece]) -> None:
        if not pieces:
            return
        if self._out:
            self._out += pieces
            return
        try:
            self._out = self.send(self.sock, pieces)
        except OSError as e:
            self.close(f"write failed: {e.strerror or e}", level=logging.DEBUG)
            return
        except Exception as e:  # a defect of ours: to send on now would send the middle of an answer
            log.exception("an answer to %s could not be sent", self)
            self.close(f"failed here: {e!r}")
            return
        if not self._out:
            return
        if isinstance(self._out, Cold):
            self._warm(self._out[0])
        elif not self._writing:
            self._writing = True
            self.loop.add_writer(self._fd, self._go_on)

    def _go_on(self) -> None:
        """Continue to send: the socket has room, or a cold range is in memory now."""
        pieces, self._out = self._out, []
        self.last_active = perf_counter()
        self._flush(pieces)
        if self.closed:
            return
        if self._writing and (not self._out or isinstance(self._out, Cold)):
            self._writing = False
            self.loop.remove_writer(self._fd)
        if not self._out:
            self._resume()

    def _warm(self, cold: Piece) -> None:
        """Have a thread read the next range from the disk, then continue to send."""

        def done(error: BaseException | None) -> None:
            if error is not None:
                self.close(f"reading a segment failed: {error}", level=logging.ERROR)
            elif not self.closed:
                self._go_on()

        outgoing.warm(self.loop, cold, done)

    def _blocked(self) -> bool:
        if self._out or self._quiet or self._held:
            return True
        if not self._parked:
            return False
        return self._parked_bytes >= MAX_PARKED_BYTES or len(self._parked) >= MAX_PARKED

    def _resume(self) -> None:
        """Handle requests that are already in the buffer, then read again."""
        if not self._blocked() and self._end - self._start >= self._need:
            self.began = perf_counter()
            self._process()
            return
        if self._start != self._end:
            self._make_room()
        self._update_reading()

    def _update_reading(self) -> None:
        want = not self._blocked()
        if want and not self._reading:
            self.loop.add_reader(self._fd, self._on_readable)
        elif self._reading and not want:
            self.loop.remove_reader(self._fd)
        self._reading = want

    # ---- end

    def quiesce(self) -> None:
        """Take no more requests, not even buffered ones; answers still leave."""
        self._quiet = True
        self._update_reading()

    @property
    def sending(self) -> bool:
        """True while an answer waits for the peer to take it."""
        return bool(self._out)

    @property
    def busy(self) -> bool:
        """True while a request waits for its answer, or an answer for the peer."""
        return bool(self._parked or self._out)

    def close(self, why: str, *, level: int | None = None) -> None:
        """Close, once, and log `why` with the peer's address: as a warning, of which only a few are told, unless `level` says more."""
        if self.closed:
            return
        self.closed = True
        level = self.server.faults.level(self.loop) if level is None else level
        log.log(level, "connection %s closed: %s", self, why)
        self.loop.remove_reader(self._fd)
        if self._writing:
            self.loop.remove_writer(self._fd)
        self._out = []
        self._delays.end()
        if self.on_close is not None:
            self.on_close()
        for slot in self._parked:
            if slot.reply is None and slot.abandoned is not None:
                slot.abandoned()
        self._parked.clear()
        self.sock.close()
        self.server.forget(self)
        self.loop.call_soon(self._let_go)  # a request may still read it

    def _let_go(self) -> None:
        self._buf, self._view = bytearray(), memoryview(b"")
