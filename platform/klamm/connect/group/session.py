"""A member's session: heartbeats, and the clock that says when to consider it over. One event loop.

The clock starts when a heartbeat that is answered later was *sent*. The coordinator's clock cannot have
started earlier, so the session ends here first. It also ends a little early, because stopping takes a moment.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final, Protocol

from klamm.connect.group.requests import Forgotten, JoinAgain, Seat
from klamm_kafka.client import ClientError
from klamm_kafka.wire.errors import ErrorCode

log = logging.getLogger(__name__)

RETRY_S: Final = 0.5
# The session counts as over this part of its timeout early (1 s at most).
MARGIN: Final = 0.1
MARGIN_MAX_S: Final = 1.0


class Pulse(Protocol):
    """Sends a member's heartbeats."""

    async def heartbeat(self, seat: Seat) -> ErrorCode: ...

    def forget_coordinator(self) -> None: ...


class Session:
    """A session. `seat()` returns the place to keep, `on_heard(code)` gets each answer for it."""

    def __init__(
        self,
        pulse: Pulse,
        *,
        session_ms: int,
        interval_ms: int,
        seat: Callable[[], Seat],
        on_heard: Callable[[ErrorCode], None],
    ) -> None:
        self._pulse = pulse
        self._limit_s = session_ms / 1000 - min(MARGIN * session_ms / 1000, MARGIN_MAX_S)
        self._interval_s = interval_ms / 1000
        self._seat = seat
        self._on_heard = on_heard
        self._open = False
        self._alive_at = 0.0
        self._over = asyncio.Event()
        self.forgotten = False
        """True if it ended because the group does not know the member."""
        self.why_over = ""
        self.heartbeats = 0
        self._missed = 0

    @property
    def open(self) -> bool:
        """True from `begin` to the end. Its clock may have run out without anybody noticing yet: see `alive`."""
        return self._open

    @property
    def alive(self) -> bool:
        """True while the session is certainly not over: false at once after the process slept too long."""
        return self._open and self._left_s() > 0

    def begin(self, sent: float) -> None:
        """Restarts the clock at `sent`, the time of an answered request (`time.monotonic`: a loop's own time
        may be that of its last turn).
        """
        self._open, self._alive_at = True, max(self._alive_at, sent)

    def end(self) -> None:
        """Ends the session, since the member gives its place up."""
        self._open = False

    def fall(self, why: str, *, forgotten: bool = False) -> None:
        """Declares the session over: others may run the member's work."""
        self._open = False
        self.forgotten |= forgotten
        self.why_over = why
        self._over.set()

    @property
    def over(self) -> bool:
        """True from `fall` to `reset`."""
        return self._over.is_set()

    async def until_over(self) -> None:
        await self._over.wait()

    def reset(self) -> None:
        """Allows a new session to begin."""
        self._open = self.forgotten = False
        self._over.clear()

    async def run(self) -> None:
        """Keeps every session alive. Raises MembershipLost, ClientError."""
        watch = asyncio.create_task(self._watch(), name="group-session")
        try:
            await self._beat()
        finally:
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)

    def _left_s(self) -> float:
        return self._alive_at + self._limit_s - time.monotonic()

    async def _watch(self) -> None:
        """Ends the session when no answer comes in time, which nobody else notices."""
        while True:
            left_s = self._left_s() if self._open else self._limit_s
            if left_s > 0:
                await asyncio.sleep(left_s)
            else:
                self.fall(f"no heartbeat was answered for {self._limit_s:g} s (session.timeout.ms)")

    async def _beat(self) -> None:
        wait_s = self._interval_s
        while True:
            await asyncio.sleep(wait_s)
            wait_s = self._interval_s
            if self._open and not await self._heartbeat():
                wait_s = min(self._interval_s, RETRY_S)

    async def _heartbeat(self) -> bool:
        """Sends one heartbeat; returns False without an answer. The answer shows that the member is known, or
        a rebalance.
        """
        seat, sent = self._seat(), time.monotonic()
        try:
            async with asyncio.timeout(max(self._interval_s, RETRY_S)):
                code = await self._pulse.heartbeat(seat)
        except Forgotten:
            if seat.member_id == self._seat().member_id:
                self.fall("the group does not know this worker any more", forgotten=True)
            return True
        except (ClientError, JoinAgain, TimeoutError) as e:
            if isinstance(e, ClientError) and not e.retriable:
                raise
            level = logging.DEBUG if self._missed else logging.WARNING
            log.log(level, "a heartbeat was not answered (%s); trying again", str(e) or "in time")
            self._missed += 1
            self._pulse.forget_coordinator()
            return False
        if self._missed:
            log.info("heartbeats are answered again, after %d that were not", self._missed)
        self._missed = 0
        self.heartbeats += 1
        if self._open and seat.member_id == self._seat().member_id:
            self._alive_at = max(self._alive_at, sent)
        if seat == self._seat():
            self._on_heard(code)
        return True
