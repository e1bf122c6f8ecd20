"""The part of a server that only TLS listeners need: settings that are renewed, and the queue of handshakes.

The server imports this module, and OpenSSL with it, only when one of its listeners needs it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from klamm_broker.server.tls_connection import Handshakes, TlsConnection
from klamm_broker.server.tls_contexts import LOOK_S, TlsContexts

if TYPE_CHECKING:
    import socket

    from klamm_broker.server.connection import Dispatch, Owner


class TlsAcceptor:
    """Makes the connections of TLS listeners."""

    def __init__(self, server: Owner) -> None:
        self._server = server
        self.contexts = TlsContexts()
        self._handshakes = Handshakes(server.loop, server.metrics)
        self._watcher: asyncio.TimerHandle = server.loop.call_later(LOOK_S, self._watch)

    def connection(
        self, sock: socket.socket, peer: tuple[str, int], listener: str, dispatch: Dispatch
    ) -> TlsConnection:
        """Returns a connection whose handshake is still to come."""
        setup, handshakes = self.contexts[listener], self._handshakes
        return TlsConnection(self._server, sock, peer, listener, dispatch, setup=setup, handshakes=handshakes)

    def _watch(self) -> None:
        self.contexts.look(self._server.loop)
        self._watcher = self._server.loop.call_later(LOOK_S, self._watch)

    def stop(self) -> None:
        self._watcher.cancel()
