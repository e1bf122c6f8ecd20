"""The settings of a console: a properties file, the environment and overrides. No I/O.

    listeners=http://127.0.0.1:8080
    cluster.local.bootstrap.servers=127.0.0.1:9092
    cluster.local.connect.url=http://127.0.0.1:8083

One cluster needs no name: its keys may stand alone (`bootstrap.servers`), and it is called `local`. Else the name is a part of its keys. What is no key of the console in `cluster.NAME.` belongs to the Kafka client
(`cluster.NAME.security.protocol`, `sasl.*`, `ssl.*`).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from klamm.web.listeners import Listener, parse_listeners, tls_properties
from klamm_base.addresses import parse_addresses
from klamm_base.configdef import ConfigDef, Importance, Password, Type, between, invalid, non_empty
from klamm_base.errors import ConfigError
from klamm_base.properties import Properties, is_from_environment, parse, suggestion

DEFAULT_LISTENER: Final = "http://127.0.0.1:8080"
log = logging.getLogger(__name__)

PREFIX: Final = "cluster."
ALONE: Final = "local"
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_CLIENTS: Final = ("security.", "sasl.", "ssl.", "client.id", "socket.", "request.timeout.ms")


def _listeners(name: str, value: Any) -> None:
    if not parse_listeners(name, value):
        raise invalid(name, value, f"at least one listener is needed, such as {DEFAULT_LISTENER}")


def _url(name: str, value: Any) -> None:
    for each in value if isinstance(value, list) else [value] if value else []:
        if not re.fullmatch(r"https?://[^/@\s]+(/\S*)?", each):
            raise invalid(
                name,
                each,
                "write http://HOST:PORT or https://HOST:PORT; user and password are keys of their own",
            )


def _addresses(name: str, value: Any) -> None:
    try:
        parse_addresses(",".join(value or []))
    except ConfigError as e:
        raise invalid(name, ",".join(value or []), str(e).rpartition(": ")[2]) from None


def console_config() -> ConfigDef:
    """Returns the definitions of the console's own keys."""
    d = ConfigDef()
    d.define(
        "listeners",
        Type.LIST,
        [DEFAULT_LISTENER],
        validator=_listeners,
        importance=Importance.HIGH,
        documentation="The addresses of the console: http://HOST:PORT or https://HOST:PORT, separated by commas. HTTPS "
        "needs the ssl.* properties. Addresses that others reach need rest.auth.file.",
    )
    d.define(
        "rest.auth.file",
        Type.STRING,
        None,
        importance=Importance.HIGH,
        documentation="The users and their roles: a file in the form of a worker's rest.auth.file. Not set: the console asks "
        "nobody for a login, and listens on loopback only.",
    )
    d.define(
        "console.read.only",
        Type.BOOLEAN,
        default=False,
        importance=Importance.HIGH,
        documentation="Whether the console refuses everything that changes something, whoever asks.",
    )
    d.define(
        "console.session.minutes",
        Type.INT,
        60,
        validator=between(1, 60 * 24 * 30),
        importance=Importance.LOW,
        documentation="A login ends after so many minutes without a request. Pages that renew themselves send some.",
    )
    d.define(
        "console.session.max.minutes",
        Type.INT,
        720,
        validator=between(1, 60 * 24 * 30),
        importance=Importance.LOW,
        documentation="A login ends so many minutes after it began, whatever happens.",
    )
    d.define(
        "console.login.failures.max",
        Type.INT,
        10,
        validator=between(0, 10_000),
        importance=Importance.LOW,
        documentation="Wrong passwords of an address (of IPv6: a /64) in ten minutes; then its logins are refused unseen until the "
        "first of them is ten minutes old. 0: as many as it likes, such as where all logins come through a proxy that bounds them.",
    )
    d.define(
        "console.searches.max",
        Type.INT,
        8,
        validator=between(1, 100),
        importance=Importance.LOW,
        documentation="Searches and live tails at a time, of everybody. Each has a consumer and a thread.",
    )
    return d


def cluster_config() -> ConfigDef:
    """Returns the definitions of a cluster's keys, without their prefix."""
    d = ConfigDef()
    d.define(
        "bootstrap.servers",
        Type.LIST,
        validator=_addresses,
        importance=Importance.HIGH,
        documentation="Brokers of the cluster: HOST:PORT, separated by commas.",
    )
    for what, title in (
        ("connect", "a Connect worker's REST"),
        ("registry", "the schema registry"),
        ("mirror", "the REST of `klamm mirror start`, whose flows are shown"),
        ("lag", "`klamm lag start` (or Burrow), whose judgement stands beside the lag of groups"),
    ):
        d.define(f"{what}.url", Type.STRING, None, validator=_url, documentation=f"The address of {title}.")
        d.define(f"{what}.user", Type.STRING, None, validator=non_empty, documentation=f"A user for {title}.")
        d.define(f"{what}.password", Type.PASSWORD, None, documentation="The user's password.")
        d.define(f"{what}.token", Type.PASSWORD, None, documentation="A bearer token, instead of a user.")
        d.define(
            f"{what}.cacert",
            Type.STRING,
            None,
            documentation="Certificates (PEM) to believe for https; the system's without it.",
        )
    d.define(
        "connect.login",
        Type.BOOLEAN,
        default=False,
        documentation="Whether requests to Connect, the registry, the mirror and the lag server carry the login of whoever uses the console, so that the worker's "
        "own roles count. For workers whose rest.auth.file has the same users.",
    )
    d.define(
        "lag.cluster",
        Type.STRING,
        None,
        validator=non_empty,
        documentation="The name of this cluster at the lag server, where it is another than here.",
    )
    d.define(
        "metrics.urls",
        Type.LIST,
        [],
        validator=_url,
        documentation="Metrics pages of agents and Spark jobs, as Prometheus reads them, separated by commas.",
    )
    return d


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """An HTTP service of a cluster, and the credentials for it."""

    url: str
    user: str | None = None
    password: Password | None = None
    token: Password | None = None
    cacert: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings:
    """A cluster: `client` are the Kafka client's properties in Java's names."""

    name: str
    bootstrap: str
    client: Mapping[str, str] = field(default_factory=dict, repr=False)
    connect: Endpoint | None = None
    registry: Endpoint | None = None
    mirror: Endpoint | None = None
    lag: Endpoint | None = None
    lag_cluster: str = ""
    pass_login: bool = False
    metrics: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleSettings:
    """A console's settings. `tls` are the `ssl.*` properties of its listeners."""

    listeners: tuple[Listener, ...]
    auth_file: str | None
    read_only: bool
    session_minutes: int
    session_max_minutes: int
    login_failures_max: int
    searches_max: int
    clusters: Mapping[str, ClusterSettings]
    tls: Mapping[str, str] = field(default_factory=dict, repr=False)


def read_settings(props: Properties) -> ConsoleSettings:
    """Returns the settings. Raises ConfigError that names the key, and what would be right."""
    own = parse(console_config(), props)
    names = list(dict.fromkeys(_name_of(key) for key in props if key.startswith(PREFIX)))
    clusters = {name: _cluster(name, f"{PREFIX}{name}.", _below(props, f"{PREFIX}{name}.")) for name in names}
    alone = {key: props[key] for key in props if key in cluster_config() or key.startswith(_CLIENTS)}
    if "bootstrap.servers" in alone or not clusters:
        if ALONE in clusters:
            raise ConfigError(
                f"bootstrap.servers and {PREFIX}{ALONE}.bootstrap.servers are both set, and both mean the cluster {ALONE}",
                key="bootstrap.servers",
            )
        clusters = {ALONE: _cluster(ALONE, "", {"bootstrap.servers": "127.0.0.1:9092", **alone}), **clusters}
    _warn_of_unknown(props)
    return ConsoleSettings(
        listeners=tuple(parse_listeners("listeners", own["listeners"])),
        auth_file=own["rest.auth.file"],
        read_only=own["console.read.only"],
        session_minutes=own["console.session.minutes"],
        session_max_minutes=own["console.session.max.minutes"],
        login_failures_max=own["console.login.failures.max"],
        searches_max=own["console.searches.max"],
        clusters=clusters,
        tls=tls_properties(props),
    )


def _below(props: Properties, prefix: str) -> dict[str, str]:
    return {key.removeprefix(prefix): props[key] for key in props if key.startswith(prefix)}


def _warn_of_unknown(props: Properties) -> None:
    known = (*_CLIENTS, PREFIX, "listeners.https.ssl.")
    for key in props:
        if key in console_config() or key in cluster_config() or key.startswith(known):
            continue
        if not is_from_environment(props.source(key)):
            names = [*console_config().names, *cluster_config().names]
            log.warning("%s is no setting of the console%s", key, suggestion(key, names))


def _name_of(key: str) -> str:
    name, dot, rest = key.removeprefix(PREFIX).partition(".")
    if not dot or not rest or not _NAME.fullmatch(name):
        raise ConfigError(
            f"{key} is no setting of a cluster; write cluster.NAME.bootstrap.servers, with letters, digits, _ and - in the name",
            key=key,
        )
    return name


def _cluster(name: str, prefix: str, given: Mapping[str, str]) -> ClusterSettings:
    definition = cluster_config()
    client: dict[str, str] = {}
    for key in given.keys() - set(definition.names):
        if not key.startswith(_CLIENTS):
            hint = suggestion(key, definition.names)
            raise ConfigError(f"{prefix}{key} is no setting of a cluster{hint}", key=prefix + key)
        client[key] = given[key]
    try:
        values = parse(definition, {key: given[key] for key in given if key in definition})
    except ConfigError as e:
        raise ConfigError(f"cluster {name}: {e}", key=f"{prefix}{e.key}") from None
    return ClusterSettings(
        name=name,
        bootstrap=",".join(values["bootstrap.servers"]),
        client=client,
        connect=_endpoint("connect", values),
        registry=_endpoint("registry", values),
        mirror=_endpoint("mirror", values),
        lag=_endpoint("lag", values),
        lag_cluster=values["lag.cluster"] or name,
        pass_login=values["connect.login"],
        metrics=tuple(values["metrics.urls"]),
    )


def _endpoint(what: str, values: Mapping[str, Any]) -> Endpoint | None:
    url = values[f"{what}.url"]
    if not url:
        return None
    return Endpoint(
        url=url.rstrip("/"),
        user=values[f"{what}.user"],
        password=values[f"{what}.password"],
        token=values[f"{what}.token"],
        cacert=values[f"{what}.cacert"],
    )
