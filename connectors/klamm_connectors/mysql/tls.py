"""TLS of the connections to the server, as PyMySQL's arguments. Reads the stores; errors show no secret."""

from __future__ import annotations

import ssl
from typing import Any

from klamm_base.configdef import Password
from klamm_base.errors import ConfigError
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


def errors(tls: Tls) -> dict[str, str]:
    """Returns an error for each file that cannot be read, by its key, also where the mode does not use it."""
    found: dict[str, str] = {}
    for name, path in (
        ("database.ssl.ca", tls.authority),
        ("database.ssl.truststore", tls.truststore),
        ("database.ssl.keystore", tls.keystore),
    ):
        if path is not None:
            try:
                _store(name, path, None).read()
            except ConfigError as e:
                found[name] = str(e)
    return found


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
