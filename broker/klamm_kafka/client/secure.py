"""TLS and SASL of one cluster's connections: the shared context and authenticator."""

from __future__ import annotations

import ipaddress
import ssl
from typing import Any

from klamm_base.security import ClientSecurity
from klamm_base.tls import reason
from klamm_kafka.client.errors import AuthenticationFailed, ClientError, ConnectionLost
from klamm_kafka.client.sasl import Authenticator

_NO_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG")


class Secure:
    """The security of one `Cluster`. Raises ConfigError for certificates that OpenSSL refuses."""

    def __init__(self, security: ClientSecurity) -> None:
        self._context = security.tls.client_context() if security.tls is not None else None
        self.lacks_certificate = security.tls is not None and security.tls.identity is None
        self.authenticator = Authenticator(security.sasl) if security.sasl is not None else None

    def tls_arguments(self, host: str) -> dict[str, Any]:
        """Returns the arguments for `asyncio.open_connection`; none for plain TCP."""
        if self._context is None:
            return {}
        # OpenSSL compares an address with the certificate's addresses, and sends only names to the server.
        return {"ssl": self._context, "server_hostname": _bare(host)}


def _bare(host: str) -> str:
    try:
        return str(ipaddress.ip_address(host.strip("[]")))
    except ValueError:
        return host


def tls_failure(error: ssl.SSLError, where: str) -> ClientError:
    """Returns a failed handshake as a sentence: which side was not trusted, or that the other side speaks no TLS."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return AuthenticationFailed(
            f"{where}: the broker's certificate is not trusted ({reason(error)}); look at ssl.truststore.location "
            "and ssl.endpoint.identification.algorithm"
        )
    if error.reason in _NO_TLS:
        return ConnectionLost(
            f"{where}: the other side speaks no TLS; look at security.protocol ({reason(error)})"
        )
    if error.reason and "ALERT" in error.reason:
        return AuthenticationFailed(f"{where}: the broker refuses the TLS handshake ({reason(error)})")
    return ConnectionLost(f"{where}: the TLS handshake failed ({reason(error)})")
