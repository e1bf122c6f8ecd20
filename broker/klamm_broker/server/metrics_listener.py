"""The port of `GET /metrics`: plain HTTP, or HTTPS with the certificate of one of the broker's listeners.

Loaded only by a broker that serves metrics; OpenSSL only with HTTPS.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from klamm_base.configdef import invalid
from klamm_base.metrics_server import MetricsServer, url_of

if TYPE_CHECKING:
    import ssl

    from klamm_base.metrics_text import Family
    from klamm_broker.server.config import BrokerConfig
    from klamm_broker.server.tls_contexts import TlsContexts

LISTENER: Final = "klamm.metrics.listener.name"
TOKENS: Final = "klamm.metrics.tokens.sha256"


async def bind(
    families: Callable[[], Iterator[Family]], config: BrokerConfig, contexts: TlsContexts | None
) -> tuple[MetricsServer, str]:
    """Takes the port. Returns the server, which does not answer yet, and its address. Raises KlammError."""
    name = config[LISTENER]
    tls = _context(name, config, contexts) if name else None
    server = MetricsServer(families, tls=tls, tokens=config[TOKENS])
    host = config["klamm.metrics.host"]
    port = await server.bind(host, config["klamm.metrics.port"])
    return server, url_of(host, port, "https" if tls else "http")


def _context(name: str, config: BrokerConfig, contexts: TlsContexts | None) -> ssl.SSLContext:
    """Returns a context like the listener's. Each handshake takes the listener's newest certificate."""
    from klamm_broker.server.tls_contexts import make, tls_properties

    listener = next((item for item in config.listeners if item.name == name), None)
    if listener is None or not listener.protocol.tls or contexts is None:
        names = ", ".join(item.name for item in config.listeners if item.protocol.tls)
        raise invalid(LISTENER, name, f"must be a listener with TLS ({names or 'there is none'})")
    context = make(name, tls_properties(config, listener)).context

    def take_newest(connection: ssl.SSLObject, _host: str | None, _context: ssl.SSLContext) -> None:
        if name in contexts:  # the listener may have been removed since
            connection.context = contexts[name].context

    context.sni_callback = take_newest  # called for clients without SNI, too
    return context
