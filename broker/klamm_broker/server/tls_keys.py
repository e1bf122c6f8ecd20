"""The broker's properties of TLS. `listener.name.<name>.` before a name sets it for one listener."""

from __future__ import annotations

from typing import Any, Final

from klamm_base.configdef import Importance, Type, between, one_of
from klamm_base.errors import ConfigError
from klamm_broker.security.principal_rules import KEY as RULES
from klamm_broker.security.principal_rules import PrincipalRules

ALLOW_DN_CHANGES: Final = "ssl.allow.dn.changes"
ALLOW_SAN_CHANGES: Final = "ssl.allow.san.changes"
STORES: Final = (
    ("ssl.keystore.type", Type.STRING, "JKS", "Accepted. The content of the file decides: JKS, PKCS12 or PEM."),
    ("ssl.keystore.location", Type.STRING, None, "File with the private key and its certificates."),
    ("ssl.keystore.password", Type.PASSWORD, None, "Password of the key store."),
    ("ssl.keystore.key", Type.PASSWORD, None, "The private key in PEM, instead of a file."),
    ("ssl.keystore.certificate.chain", Type.PASSWORD, None, "The certificates of `ssl.keystore.key` in PEM."),
    ("ssl.key.password", Type.PASSWORD, None, "Password of the private key, if it is encrypted."),
    ("ssl.truststore.type", Type.STRING, "JKS", "Accepted. The content of the file decides."),
    ("ssl.truststore.location", Type.STRING, None, "File with the authorities that may sign clients' certificates."),
    ("ssl.truststore.password", Type.PASSWORD, None, "Password of the trust store."),
    ("ssl.truststore.certificates", Type.PASSWORD, None, "The authorities in PEM, instead of a file."),
)  # fmt: skip
"""Keys, types, defaults and meanings of what says who we are and whom we trust."""


def define(key: Any) -> None:
    """Define the properties with `key(name, type, default, validator, documentation)`."""
    for name, kind, default, meaning in STORES:
        key(name, kind, default, None, meaning)
    key(
        "ssl.enabled.protocols",
        Type.LIST,
        ["TLSv1.2", "TLSv1.3"],
        one_of("TLSv1", "TLSv1.1", "TLSv1.2", "TLSv1.3"),
        "Versions of TLS: the lowest and the highest of these, and those between them.",
    )
    key(
        "ssl.cipher.suites",
        Type.LIST,
        [],
        None,
        "Cipher suites of TLS 1.2 by Java's or OpenSSL's names; empty: OpenSSL's choice. Those of TLS 1.3 are always on.",
        importance=Importance.LOW,
    )
    key(
        "ssl.client.auth",
        Type.STRING,
        "none",
        one_of("required", "requested", "none"),
        "Whether clients must show a certificate, may, or are not asked.",
    )
    for name, part in ((ALLOW_DN_CHANGES, "distinguished name"), (ALLOW_SAN_CHANGES, "alternative names")):
        key(
            name,
            Type.BOOLEAN,
            False,
            None,
            f"Whether a key store that is taken while the broker runs may have another certificate's {part} (KIP-978).",
            importance=Importance.LOW,
        )
    key(
        RULES,
        Type.STRING,
        "DEFAULT",
        _rules,
        "Rules that make a principal's name of a certificate's: `RULE:pattern/replacement/[LU]` or `DEFAULT`, comma separated.",
        importance=Importance.LOW,
    )
    key(
        "klamm.tls.handshake.timeout.ms",
        Type.INT,
        30_000,
        between(1),
        "The time that a client has for its TLS handshake, in milliseconds.",
        importance=Importance.LOW,
    )


def _rules(name: str, value: Any) -> None:
    if value is None:
        raise ConfigError(f"{name} must have a value", key=name)
    PrincipalRules(value)
