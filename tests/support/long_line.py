"""A long line between a client and a broker of this machine: it holds everything for a while, and may break."""

from __future__ import annotations

import asyncio
import threading
from typing import Self


class LongLine:
    """Relays a port to another one, in a thread. `delay_s` is for one way. Use as `with LongLine(...) as line`."""

    def __init__(self, port: int, server_port: int, *, delay_s: float) -> None:
        self._port, self._server_port, self._delay_s = port, server_port, delay_s
        self._loop = asyncio.new_event_loop()
        self._writers: set[asyncio.StreamWriter] = set()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.connections = 0
        """The number of connections that were made."""

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(10)
        return self

    def __exit__(self, *exc: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self._port}"

    def cut(self) -> None:
        """Ends all connections with a reset; new ones are relayed."""
        self._loop.call_soon_threadsafe(self._cut)

    def _cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", self._port))
        self._ready.set()
        self._loop.run_forever()
        server.close()
        self._cut()
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self._loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._server_port)
        except OSError:
            writer.close()
            return
        self._writers |= {writer, far_writer}
        try:
            await asyncio.gather(self._relay(reader, far_writer), self._relay(far_reader, writer))
        except OSError:
            pass  # one side is gone: so is the other
        finally:
            for each in (writer, far_writer):
                self._writers.discard(each)
                each.close()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Passes on what comes, each piece after the delay, in order."""
        while data := await reader.read(1 << 18):
            self._loop.call_later(self._delay_s, writer.write, data)
        await asyncio.sleep(self._delay_s)
        writer.close()
