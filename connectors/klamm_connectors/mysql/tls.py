"""TLS of the connections to the server, as PyMySQL's arguments. Reads the stores; errors show no secret."""

from __future__ import annotations

import ssl
from typing import Any

from klamm_base.configdef import Password
from klamm_base.keystores import Store, read_identity, read_trusted
from klamm_base.tls import TlsSettings
from klamm_connectors.mysql.keys.connection import Tls


def arguments(tls: Tls) -> dict[str, Any]:
    """Returns PyMySQL's arguments. Raises ConfigError naming the key of a store that cannot be used."""
    if tls.mode == "disabled":
        return {"ssl_disabled": True}
    if tls.mode == "preferred" and tls.keystore is None:
        return {}  # PyMySQL encrypts when the server can, and goes on in clear when it cannot
    return {"ssl": context(tls)}


def context(tls: Tls) -> ssl.SSLContext:
    """Returns the context of an encrypted connection."""
    verifies = tls.mode in {"verify_ca", "verify_identity"}
    settings = TlsSettings(
        trusted=_trusted(tls) if verifies else None,
        identity=_identity(tls),
        check_host=tls.mode == "verify_identity",
        verify=verifies,
    )
    return settings.client_context()


def _trusted(tls: Tls) -> str | None:
    if tls.truststore is not None:
        return read_trusted(_store("database.ssl.truststore", tls.truststore, tls.truststore_password))
    if tls.authority is not None:
        return read_trusted(_store("database.ssl.ca", tls.authority, None))
    return None


def _identity(tls: Tls) -> Any:
    if tls.keystore is None:
        return None
    store = _store("database.ssl.keystore", tls.keystore, tls.keystore_password)
    return read_identity(store, store.password)


def _store(name: str, path: str, password: Password | None) -> Store:
    return Store(name=name, path=path, password=password.value if password is not None else None)
