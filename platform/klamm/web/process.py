"""The life of a server's process: start, a ready line, SIGTERM or SIGINT, an orderly stop.

`main` is all that a command of a server needs: it returns the exit code.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Protocol

from klamm.web.reload import Reloadable, reload
from klamm_base.errors import ConfigError, KlammError
from klamm_base.hangup import Terminal
from klamm_base.service_manager import service_manager

log = logging.getLogger(__name__)


class Process(Protocol):
    """A server: `start` returns when it serves, `wait` when it cannot go on (it raises why), `stop` drains."""

    async def start(self) -> None: ...

    async def wait(self) -> None: ...

    async def stop(self) -> None: ...


async def serve(
    process: Process, ready: Callable[[], None], reloadable: Mapping[str, Reloadable] | None = None
) -> None:
    """Starts a process, calls `ready`, which prints its line by `say_ready`, and runs it until SIGTERM or SIGINT. Raises what made
    it stop by itself. With `reloadable`, SIGHUP reads that again, once the process is ready.
    """
    loop = asyncio.get_running_loop()
    asked = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, asked.set)
    terminal = Terminal()

    def hang_up(files: Mapping[str, Reloadable]) -> None:
        if terminal.gone:
            asked.set()
        else:
            reload(files, service_manager())

    async def live() -> None:
        await process.start()
        if reloadable is not None:
            loop.add_signal_handler(signal.SIGHUP, hang_up, reloadable)
        ready()
        await process.wait()

    living = asyncio.create_task(live())
    stopping = asyncio.create_task(asked.wait())
    try:
        await asyncio.wait({living, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if living.done():
            living.result()
    finally:
        service_manager().stopping()
        stopping.cancel()
        living.cancel()
        with contextlib.suppress(
            asyncio.CancelledError, Exception
        ):  # its error was raised above, if it had one
            await living
        await process.stop()


def main(running: Coroutine[Any, Any, None]) -> int:
    """Runs a server to its end; returns 0 after a drain, 1 when it could not start or go on, 2 for an unusable
    configuration.
    """
    try:
        asyncio.run(running)
    except KlammError as e:
        log.error("%s", e)  # noqa: TRY400 - a sentence for the operator
        return 2 if isinstance(e, ConfigError) else 1
    return 0
