"""Keys of the connection to the server: address, user, TLS."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from klamm_base.configdef import ConfigDef, Importance, Password, Type, between, non_empty
from klamm_connectors.mysql.keys.words import one_word_of, word

_HIGH, _MEDIUM, _LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW
_MARIADB_MODES: Final = {
    "disable": "disabled",
    "trust": "required",
    "verify-ca": "verify_ca",
    "verify-full": "verify_identity",
}
"""The words of Debezium's connector for MariaDB, each with that of its connector for MySQL."""
SSL_MODES: Final = ("disabled", "preferred", "required", "verify_ca", "verify_identity")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """Encryption of the connections, and the stores of certificates."""

    mode: str = "preferred"
    authority: str | None = None
    keystore: str | None = None
    keystore_password: Password | None = field(default=None, repr=False)
    truststore: str | None = None
    truststore_password: Password | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """Address and user of the server, and how to speak to it."""

    host: str
    port: int
    user: str
    password: Password | None = field(repr=False)
    server_id: int
    """The number under which the task reads the binlog."""
    timeout_s: int
    tls: Tls


def define(d: ConfigDef) -> ConfigDef:
    """Adds the keys."""
    return (
        d.define("database.hostname", Type.STRING, validator=non_empty, importance=_HIGH, documentation="Address of the MySQL or MariaDB server.")
        .define("database.port", Type.INT, 3306, validator=between(1, 65535), importance=_HIGH, documentation="Its port.")
        .define("database.user", Type.STRING, validator=non_empty, importance=_HIGH, documentation="User with SELECT, REPLICATION SLAVE and REPLICATION CLIENT (MariaDB: also BINLOG MONITOR; MySQL: also RELOAD for the snapshot's lock).")
        .define("database.password", Type.PASSWORD, None, importance=_HIGH, documentation="The user's password.")
        .define("database.server.id", Type.LONG, 0, validator=between(0, 4294967295), importance=_MEDIUM, documentation="The number under which the connector reads the binlog: it must differ from that of the server and of every replica. 0 makes one from the connector's name.")
        .define("database.ssl.mode", Type.STRING, "preferred", validator=one_word_of(*SSL_MODES, *_MARIADB_MODES), importance=_LOW, documentation="disabled: never encrypted. preferred: encrypted if the server can. required: encrypted or not at all. verify_ca: also checks who signed the server's certificate. verify_identity: also that it names the host. The words of Debezium's connector for MariaDB mean the same: disable, trust, verify-ca, verify-full.")
        .define("database.ssl.ca", Type.STRING, None, importance=_LOW, documentation="File with the authority's certificate (PEM), for verify_ca and verify_identity. Without it and without a trust store, the system's authorities count.")
        .define("database.ssl.keystore", Type.STRING, None, importance=_LOW, documentation="File with the client's key and certificate, for a server that asks for one: PKCS12, JKS or PEM.")
        .define("database.ssl.keystore.password", Type.PASSWORD, None, importance=_LOW, documentation="The key store's password.")
        .define("database.ssl.truststore", Type.STRING, None, importance=_LOW, documentation="File with the authorities' certificates, for verify_ca and verify_identity: PKCS12, JKS or PEM.")
        .define("database.ssl.truststore.password", Type.PASSWORD, None, importance=_LOW, documentation="The trust store's password.")
        .define("connect.timeout.ms", Type.INT, 30000, validator=between(1), importance=_LOW, documentation="Timeout of one attempt to connect.")
    )  # fmt: skip


def read(values: Mapping[str, Any], connector: str) -> Connection:
    """Returns the settings of the connector with this name."""
    mode = word(values["database.ssl.mode"])
    return Connection(
        host=values["database.hostname"],
        port=values["database.port"],
        user=values["database.user"],
        password=values["database.password"],
        server_id=values["database.server.id"] or _server_id(connector, values["topic.prefix"]),
        timeout_s=max(1, values["connect.timeout.ms"] // 1000),
        tls=Tls(
            mode=_MARIADB_MODES.get(mode, mode),
            authority=values["database.ssl.ca"] or None,
            keystore=values["database.ssl.keystore"] or None,
            keystore_password=values["database.ssl.keystore.password"],
            truststore=values["database.ssl.truststore"] or None,
            truststore_password=values["database.ssl.truststore.password"],
        ),
    )


def _server_id(connector: str, prefix: str) -> int:
    """Makes a stable id from names, so that a restarted task takes over the connection of its killed predecessor."""
    return 100_000_000 + zlib.crc32(f"{connector}/{prefix}".encode()) % 1_900_000_000
