"""A proxy between a client and a broker that can be cut: silently, as a network that drops, or with a reset."""

from __future__ import annotations

import asyncio
from typing import Self

from klamm_kafka.client import Address, Cluster, Connection


class CuttingProxy:
    """Relays connections to whatever broker the client wanted. Use as `async with CuttingProxy(bootstrap) as proxy`."""

    def __init__(self, bootstrap: str) -> None:
        host, _, port = bootstrap.rpartition(":")
        self._target = host, int(port)
        self._passes = asyncio.Event()
        self._passes.set()
        self._server: asyncio.Server | None = None
        self._relays: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        self.reset()
        await asyncio.gather(*self._relays, return_exceptions=True)

    @property
    def address(self) -> Address:
        assert self._server is not None
        return Address("127.0.0.1", self._server.sockets[0].getsockname()[1])

    @property
    def connections(self) -> int:
        """The number of connections that are open."""
        return len(self._relays)

    def drop(self) -> None:
        """Lets nothing through from now on, and tells nobody."""
        self._passes.clear()

    def restore(self) -> None:
        """Lets through what was held back."""
        self._passes.set()

    def reset(self) -> None:
        """Close all connections; new ones are relayed."""
        for relay in self._relays:
            relay.cancel()

    def cluster(self, client_id: str) -> Cluster:
        """Returns a client that reaches every broker through the proxy."""
        return _Through(self, client_id)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._relays.add(task)
        try:
            far_reader, far_writer = await asyncio.open_connection(*self._target)
            try:
                async with asyncio.TaskGroup() as both:
                    both.create_task(self._relay(reader, far_writer))
                    both.create_task(self._relay(far_reader, writer))
            finally:
                far_writer.close()
        except* (OSError, EOFError):
            pass  # one side is gone: so is the other
        except* asyncio.CancelledError:
            pass
        finally:
            writer.close()
            self._relays.discard(task)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            await self._passes.wait()
            writer.write(data)
            await writer.drain()
        raise EOFError


class _Through(Cluster):
    def __init__(self, proxy: CuttingProxy, client_id: str) -> None:
        super().__init__(str(proxy.address), client_id=client_id)
        self._proxy = proxy

    async def _connect(self, _address: Address) -> Connection:
        return await super()._connect(self._proxy.address)
