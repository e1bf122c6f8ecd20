"""The worker properties of its REST server: Kafka's, with its defaults, and a few of Klamm's own
(`rest.auth.*`). No I/O.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any, Final

from klamm.web.listeners import parse_listeners, tls_properties
from klamm.web.settings import define_browsers
from klamm_base.configdef import ConfigDef, Importance, Type, between, invalid, one_of
from klamm_base.tls import TlsSettings

DEFAULT_LISTENER: Final = "http://127.0.0.1:8083"
BASIC_AUTH_EXTENSION: Final = (
    "org.apache.kafka.connect.rest.basic.auth.extension.BasicAuthSecurityRestExtension"
)


def _listeners(name: str, value: Any) -> None:
    if not parse_listeners(name, value):
        raise invalid(name, value, "at least one listener is needed, such as http://127.0.0.1:8083")


def _admin_listeners(name: str, value: Any) -> None:
    parse_listeners(name, value)


def rest_config() -> ConfigDef:
    """Returns the definitions of the REST server's properties."""
    d = ConfigDef()
    _where(d)
    _advertised(d)
    define_browsers(d)
    _callers(d)
    _metrics(d)
    return d


def _where(d: ConfigDef) -> None:
    d.define(
        "listeners",
        Type.LIST,
        [DEFAULT_LISTENER],
        validator=_listeners,
        importance=Importance.LOW,
        documentation="The addresses of the REST API: http://HOST:PORT or https://HOST:PORT, separated by commas. "
        "The default is loopback, because without rest.auth.file the API asks nobody for credentials. Port 0 picks a "
        "free port. HTTPS needs the ssl.* properties, or all of them as listeners.https.ssl.*.",
    )
    d.define(
        "admin.listeners",
        Type.LIST,
        None,
        validator=_admin_listeners,
        importance=Importance.LOW,
        documentation="The addresses of /admin, in the form of listeners. Not set: those of listeners. Empty: none. Its HTTPS "
        "uses admin.listeners.https.ssl.*.",
    )


def _advertised(d: ConfigDef) -> None:
    d.define(
        "rest.advertised.host.name",
        Type.STRING,
        None,
        importance=Importance.LOW,
        documentation="The host under which other workers reach this worker. Statuses and Location headers name it.",
    )
    d.define(
        "rest.advertised.port",
        Type.INT,
        None,
        importance=Importance.LOW,
        documentation="The port under which other workers reach this worker.",
    )
    d.define(
        "rest.advertised.listener",
        Type.STRING,
        None,
        validator=lambda name, value: None if value is None else one_of("http", "https")(name, value.lower()),
        importance=Importance.LOW,
        documentation="The listener (http or https) under which other workers reach this worker. Not set: http, if there is one.",
    )


def _callers(d: ConfigDef) -> None:
    d.define(
        "rest.auth.file",
        Type.STRING,
        None,
        importance=Importance.MEDIUM,
        documentation="A TOML file of users, tokens and their roles. With it, every request but /health needs "
        "credentials. The worker reads the file again when it changes.",
    )
    d.define(
        "rest.extension.classes",
        Type.LIST,
        [],
        importance=Importance.LOW,
        documentation="Extensions of the REST API: Python classes of packages that are installed beside the worker, and Kafka's "
        f"{BASIC_AUTH_EXTENSION}: passwords from the file that the login module KafkaConnect of the JAAS file names.",
    )
    d.define(
        "rest.auth.jaas.file",
        Type.STRING,
        None,
        importance=Importance.LOW,
        documentation="The JAAS file of that extension. Not set: -Djava.security.auth.login.config in KAFKA_OPTS.",
    )
    d.define(
        "rest.hide.secrets",
        Type.BOOLEAN,
        True,
        importance=Importance.LOW,
        documentation="Show passwords in configurations as [hidden]. A client that sends [hidden] back leaves them "
        "unchanged. false: show them, as Kafka does.",
    )


def _metrics(d: ConfigDef) -> None:
    d.define(
        "klamm.metrics.port",
        Type.INT,
        -1,
        validator=between(-1, 65_535),
        importance=Importance.LOW,
        documentation="A port for GET /metrics alone, without a password, as the broker has one. -1: none, 0: any.",
    )
    d.define(
        "klamm.metrics.host",
        Type.STRING,
        "localhost",
        importance=Importance.LOW,
        documentation="The address of that port.",
    )


def is_basic_auth(extension: str) -> bool:
    """Returns whether this item of `rest.extension.classes` is Kafka's extension for basic auth."""
    return extension.rpartition(".")[2] == BASIC_AUTH_EXTENSION.rpartition(".")[2]


def client_context(config: Mapping[str, Any], raw: Mapping[str, str]) -> ssl.SSLContext | None:
    """Returns the TLS context for requests to other workers, with the listeners' own key stores, as in Kafka; None where
    all listeners speak HTTP.
    """
    listeners = parse_listeners("listeners", config["listeners"])
    if not any(each.scheme == "https" for each in listeners):
        return None
    return TlsSettings.from_properties(tls_properties(raw)).client_context()
