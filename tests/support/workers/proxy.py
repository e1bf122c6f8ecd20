"""The network between one worker and the broker: a relay that can be cut, or fall silent.

It stands behind a listener of the broker that is advertised with the relay's port, so that all connections of a worker
and of its tasks go through it, also those to the group's coordinator.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

CHUNK = 1 << 16


class Relay:
    """Forwards connections on `port` (loopback) to `target`. Runs in a thread of its own until `close`.

    `cut()`: every connection is closed, new ones are closed at once. `freeze()`: nothing is forwarded in either
    direction, connections stay open. `heal()`: new connections work again; those that were frozen are closed, as
    by a router that has lost its table.
    """

    def __init__(self, port: int, target: int) -> None:
        self.port, self._target = port, target
        self._open = True
        self._flows: set[asyncio.Task[None]] = set()
        self._running = asyncio.Event()
        self._running.set()
        self._started = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._main, name=f"relay {port}", daemon=True)
        self._thread.start()
        assert self._started.wait(60), "the relay does not start"

    def cut(self) -> None:
        self._do(self._cut)

    def freeze(self) -> None:
        self._do(self._running.clear)

    def heal(self) -> None:
        def heal() -> None:
            if not self._running.is_set():
                self._cut()
            self._open = True
            self._running.set()

        self._do(heal)

    def close(self) -> None:
        self._do(self._cut)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _do(self, what: Callable[[], None]) -> None:
        done = threading.Event()

        def run() -> None:
            what()
            done.set()

        self._loop.call_soon_threadsafe(run)
        assert done.wait(60), "the relay does not answer"

    def _cut(self) -> None:
        self._open = False
        for flow in self._flows:
            flow.cancel()

    def _main(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", self.port))
        self._started.set()
        self._loop.run_forever()
        server.close()
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._flows.add(task)
        try:
            await self._forward(reader, writer)
        except (OSError, asyncio.CancelledError):
            pass  # either end is gone, or the connection was cut: both ends are closed below
        finally:
            self._flows.discard(task)
            writer.transport.abort()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self._open:
            return
        there, to = await asyncio.open_connection("127.0.0.1", self._target)
        ways = [asyncio.create_task(self._pump(reader, to)), asyncio.create_task(self._pump(there, writer))]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            to.transport.abort()  # first: a second cancellation would end the wait
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            data = await reader.read(CHUNK)
            await self._running.wait()
            if not data:
                return
            writer.write(data)
            await writer.drain()
