"""A session's clock: it ends here before it can end at the coordinator."""

from __future__ import annotations

import asyncio
import functools
import selectors
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from klamm.connect.group.requests import Forgotten, JoinAgain, MembershipLost, Seat
from klamm.connect.group.session import Session
from klamm_kafka.client import ConnectionLost
from klamm_kafka.wire.errors import ErrorCode

SESSION_MS = 500
INTERVAL_MS = 50


class _AtOnce(selectors.DefaultSelector):
    """Nobody waits: the time that a loop would sleep has passed. A machine that stands still ends no session so."""

    passed_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.passed_s += timeout or 0.0
        return super().select(0)


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self.clock = _AtOnce()
        super().__init__(self.clock)

    def time(self) -> float:
        return self.clock.passed_s


def at_once(test: Callable[[Coordinator], Coroutine[Any, Any, None]]) -> Callable[[Coordinator], None]:
    @functools.wraps(test)
    def run(coordinator: Coordinator) -> None:
        with asyncio.Runner(loop_factory=_Loop) as runner:
            runner.run(test(coordinator))

    return run


@pytest.fixture(autouse=True)
def _same_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """The session asks `time`, and waits by the loop."""
    monkeypatch.setattr("klamm.connect.group.session.time", SimpleNamespace(monotonic=now))


class Coordinator:
    """Answers heartbeats as told, and has a clock of its own."""

    def __init__(self) -> None:
        self.takes_s = 0.0
        self.answer: ErrorCode | Exception = ErrorCode.NONE
        self.heard_at = 0.0
        self.silent = False
        self.forgot = 0

    async def heartbeat(self, seat: Seat) -> ErrorCode:
        assert seat.member_id == "me"
        if self.silent:
            await asyncio.Event().wait()
        self.heard_at = now()
        await asyncio.sleep(self.takes_s)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def forget_coordinator(self) -> None:
        self.forgot += 1


def now() -> float:
    return asyncio.get_running_loop().time()


@pytest.fixture
def coordinator() -> Coordinator:
    return Coordinator()


@asynccontextmanager
async def session(
    coordinator: Coordinator, on_heard: Callable[[ErrorCode], None] = lambda _code: None
) -> AsyncIterator[Session]:
    kept = Session(
        coordinator,
        session_ms=SESSION_MS,
        interval_ms=INTERVAL_MS,
        seat=lambda: Seat(member_id="me", generation=1),
        on_heard=on_heard,
    )
    kept.begin(now())
    keeper = asyncio.create_task(kept.run())
    try:
        yield kept
    finally:
        keeper.cancel()
        await asyncio.gather(keeper, return_exceptions=True)


@at_once
async def test_group_session_lasts_while_heartbeats_are_answered(coordinator: Coordinator) -> None:
    coordinator.takes_s = 0.1
    async with session(coordinator) as kept:
        await asyncio.sleep(1.2)
        assert kept.alive
        assert not kept.over
        assert kept.heartbeats > 1


@at_once
async def test_group_session_ends_before_the_coordinators(coordinator: Coordinator) -> None:
    async with session(coordinator) as kept:
        await asyncio.sleep(0.2)
        coordinator.silent = True
        heard_at = coordinator.heard_at
        async with asyncio.timeout(60):
            await kept.until_over()
        assert now() - heard_at < SESSION_MS / 1000
        assert not kept.alive
        assert not kept.forgotten
        assert "0.45 s (session.timeout.ms)" in kept.why_over


@at_once
async def test_group_session_survives_a_short_silence(coordinator: Coordinator) -> None:
    async with session(coordinator) as kept:
        coordinator.answer = ConnectionLost("cut")
        await asyncio.sleep(0.25)
        assert coordinator.forgot > 1, "the coordinator may be elsewhere by now"
        coordinator.answer = JoinAgain("it moves", wait=True)
        await asyncio.sleep(0.1)
        coordinator.answer = ErrorCode.NONE
        await asyncio.sleep(0.4)
        assert kept.alive


@at_once
async def test_group_session_is_over_when_the_group_forgets(coordinator: Coordinator) -> None:
    async with session(coordinator) as kept:
        coordinator.answer = Forgotten()
        async with asyncio.timeout(60):
            await kept.until_over()
        assert kept.forgotten
        kept.reset()
        assert not kept.over
        assert not kept.forgotten
        kept.begin(now())
        assert kept.alive


@at_once
async def test_group_session_tells_of_rebalances(coordinator: Coordinator) -> None:
    heard: list[ErrorCode] = []
    async with session(coordinator, heard.append) as kept:
        await asyncio.sleep(0.12)
        coordinator.answer = ErrorCode.REBALANCE_IN_PROGRESS
        await asyncio.sleep(0.7)
        assert kept.alive, "who is told so is known"
        assert {*heard} == {ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS}


@at_once
async def test_group_session_without_one_nothing_is_sent(coordinator: Coordinator) -> None:
    async with session(coordinator) as kept:
        kept.end()
        assert not kept.alive
        before = kept.heartbeats
        await asyncio.sleep(0.6)
        assert (kept.heartbeats, kept.over) == (before, False)


@at_once
async def test_group_session_passes_on_what_is_final(coordinator: Coordinator) -> None:
    coordinator.answer = MembershipLost("fenced")
    kept = Session(
        coordinator,
        session_ms=SESSION_MS,
        interval_ms=INTERVAL_MS,
        seat=lambda: Seat(member_id="me"),
        on_heard=lambda _code: None,
    )
    kept.begin(now())
    with pytest.raises(MembershipLost, match="fenced"):
        await asyncio.wait_for(kept.run(), 60)
