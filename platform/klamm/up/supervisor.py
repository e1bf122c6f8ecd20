"""Starts the broker, then the worker; restarts what dies; stops them in the opposite order.

One asyncio loop, processes only: nothing of a broker or a worker runs here. Children have a session of their own, so
that Ctrl-C reaches this process alone, which then stops worker and broker in order. A child that dies before it was
ready ends everything; one that dies later is started again after a pause that doubles up to 30 s.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final

from klamm.up.forked import ForkedChild
from klamm_base.backoff import Backoff
from klamm_base.errors import KlammError
from klamm_base.service_manager import service_manager

log = logging.getLogger(__name__)

PATIENCE_S: Final = 30.0
"""After this long without a ready line we log that we wait. A broker that recovers a large log may take minutes; killed, it
would begin again."""
STOP_S: Final = 20.0
COMMAND: Final = (sys.executable, "-m", "klamm.up.child")
BLOCK_BYTES: Final = 1 << 16
STEADY_S: Final = 60.0
"""A child that ran so long starts again after the shortest pause."""


def restarts() -> Backoff:
    """Returns the pauses before a child is started again."""
    return Backoff(first_s=0.5, longest_s=30.0)


class NotReadyError(KlammError):
    """A child ended, with this exit code, before it served."""

    def __init__(self, name: str, code: int) -> None:
        super().__init__(f"the {name} ended ({_how(code)}) before it was ready")
        self.code = code


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """A child by name and its `klamm` command line. `once_ready` is awaited before the next child starts."""

    name: str
    args: tuple[str, ...]
    once_ready: Callable[[], Awaitable[None]] | None = None


class Child:
    """One process that is kept running. `first`: it, if it runs already, forked from this one."""

    def __init__(self, spec: ChildSpec, parent_pipe: int, first: ForkedChild | None = None) -> None:
        self.spec = spec
        self._pipe = parent_pipe
        self._process: asyncio.subprocess.Process | ForkedChild | None = first
        self._forked = first
        self._keeper: asyncio.Task[None] | None = None
        self._printing: asyncio.Task[None] | None = None
        self._stopping = False

    async def start(self) -> str:
        """Start and wait for the ready line. Raises NotReadyError when the process ends without one."""
        line = await self._spawn()
        self._keeper = asyncio.create_task(self._keep(), name=f"keep {self.spec.name}")
        if self.spec.once_ready is not None:
            await self.spec.once_ready()
        return line

    async def stop(self) -> None:
        """Send SIGTERM, then SIGKILL after STOP_S."""
        self._stopping = True
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                await asyncio.wait_for(self._process.wait(), STOP_S)
            except TimeoutError:
                log.warning("%s did not stop within %g s: killed", self.spec.name, STOP_S)
                self.kill()
                await self._process.wait()
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)

    def kill(self) -> None:
        """Kill the process now; it is not started again."""
        self._stopping = True
        if self._keeper is not None:
            self._keeper.cancel()
        if self._process is not None and self._process.returncode is None:
            self._process.kill()

    async def _spawn(self) -> str:
        process = self._process = await self._begin()
        assert process.stdout is not None
        said = asyncio.create_task(self._say_that_we_wait())
        try:
            async for raw in process.stdout:
                word, _, rest = raw.decode(errors="replace").strip().partition(" ")
                if word == "ready":
                    self._printing = asyncio.create_task(_pass_on(process.stdout))
                    return rest
            code = await process.wait()
        finally:
            said.cancel()
        raise NotReadyError(self.spec.name, code)

    async def _begin(self) -> asyncio.subprocess.Process | ForkedChild:
        if self._forked is not None:
            process, self._forked = self._forked, None
            return process
        return await asyncio.create_subprocess_exec(
            *COMMAND, str(self._pipe), *self.spec.args,
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
            pass_fds=(self._pipe,), start_new_session=True,
        )  # fmt: skip

    async def _say_that_we_wait(self) -> None:
        began = time.monotonic()
        while True:
            await asyncio.sleep(PATIENCE_S)
            log.warning(
                "the %s is not ready after %.0f s; still waiting", self.spec.name, time.monotonic() - began
            )

    async def _keep(self) -> None:
        backoff = restarts()
        while True:
            assert self._process is not None
            began = time.monotonic()
            code = await self._process.wait()
            if self._stopping:
                return
            if time.monotonic() - began > STEADY_S:
                backoff.succeeded()
            wait_s = backoff.failed(time.monotonic(), _how(code))
            log.error("the %s ended (%s); starting it again in %g s", self.spec.name, backoff.why, wait_s)
            await asyncio.sleep(wait_s)
            try:
                await self._spawn()
                log.info("the %s serves again", self.spec.name)
            except KlammError as e:
                log.error("%s", e)  # noqa: TRY400 - the sentence says it all; the loop tries again
            except OSError as e:  # the system has no process or memory left, which may pass
                log.error("the %s cannot be started: %s", self.spec.name, e)  # noqa: TRY400


async def _pass_on(printed: asyncio.StreamReader) -> None:
    """Write what a child prints behind its ready line to our standard error: a full pipe would hold the child up for ever."""
    while block := await printed.read(BLOCK_BYTES):
        sys.stderr.write(block.decode(errors="replace"))
        sys.stderr.flush()


def _how(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


async def run(specs: list[ChildSpec], ready: Callable[[], None]) -> None:
    """Run the children in order until SIGTERM or SIGINT. Raises KlammError when a second signal killed them,
    NotReadyError when one ended before it served.
    """
    loop = asyncio.get_running_loop()
    killed = False
    read_end, write_end = os.pipe()  # the write end stays here only: its end of file is our death
    children = [Child(spec, read_end) for spec in specs]
    stop = asyncio.Event()

    def on_signal() -> None:
        nonlocal killed
        if stop.is_set():
            killed = True
            for child in children:
                child.kill()
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    started: list[Child] = []
    try:
        for child in children:
            started.append(child)
            if await _first(child.start(), stop):
                return
        ready()
        await stop.wait()
        log.info("stopping")
        service_manager().stopping()
    finally:
        for child in reversed(started):
            await child.stop()
        os.close(read_end)
        os.close(write_end)
    if killed:
        raise KlammError("killed by a second signal: the next start recovers what was not closed")


async def _first(start: Coroutine[Any, Any, str], stop: asyncio.Event) -> bool:
    """Wait for a start or for the stop; True when the stop came first."""
    starting, stopping = asyncio.ensure_future(start), asyncio.ensure_future(stop.wait())
    done, _ = await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if starting in done:
        starting.result()
        return False
    starting.cancel()
    await asyncio.gather(starting, return_exceptions=True)
    return True
