"""The properties of the registry: Confluent's names and defaults where they have the key. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from klamm.registry.compatibility import LEVELS
from klamm.web.roles import Realm
from klamm.web.settings import Web, web_config
from klamm_base.addresses import parse_addresses
from klamm_base.clientconfig import translate, warn_once
from klamm_base.configdef import ConfigDef, Importance, Type, between, invalid
from klamm_base.properties import Properties, is_from_environment, parse

PORT: Final = 8081
REALM: Final = Realm(title="Schema registry", server="registry", thing="subject")
STORE_PREFIX: Final = "kafkastore."
BODY_BYTES_MAX: Final = "size.limit.filter.max.request.body.size"
READ_TIMEOUT_MS: Final = "leader.read.timeout.ms"
_NOT_CLIENTS: Final = ("topic", "topic.replication.factor", "timeout.ms", "bootstrap.servers")
_SERVERS: Final = "bootstrap.servers"
_QUIET: Final = {"log_level": 2, "enable.metrics.push": False}


def definition() -> ConfigDef:
    """Returns the definitions of all properties but those of the Kafka client."""
    d = web_config(PORT)
    d.define(
        _SERVERS,
        Type.LIST,
        [],
        importance=Importance.HIGH,
        documentation="HOST:PORT of one or more brokers, separated by commas; kafkastore.bootstrap.servers is the same. Further settings "
        "of clients (security.protocol, sasl.*) stand beside it, or behind kafkastore.",
    )
    d.define(
        f"{STORE_PREFIX}{_SERVERS}",
        Type.LIST,
        [],
        importance=Importance.HIGH,
        documentation="Confluent's name of bootstrap.servers. SASL_SSL://HOST:PORT is taken, too.",
    )
    d.define(
        "kafkastore.topic",
        Type.STRING,
        "_schemas",
        importance=Importance.LOW,
        documentation="The compacted topic with one partition that holds all schemas. The first registry makes it.",
    )
    d.define(
        "kafkastore.topic.replication.factor",
        Type.SHORT,
        3,
        validator=between(1),
        importance=Importance.HIGH,
        documentation="The replicas of the topic when it is made; fewer where the cluster has fewer brokers.",
    )
    d.define(
        "kafkastore.timeout.ms",
        Type.INT,
        5000,
        validator=between(1),
        importance=Importance.MEDIUM,
        documentation="The longest time that a write waits without any getting into the topic; then it is answered 500 with error_code 50002.",
    )
    d.define(
        "schema.registry.group.id",
        Type.STRING,
        "schema-registry",
        importance=Importance.MEDIUM,
        documentation="The group in which registries choose the one that writes. All registries of a topic need the same.",
    )
    d.define(
        "leader.eligibility",
        Type.BOOLEAN,
        True,
        importance=Importance.MEDIUM,
        documentation="false: this registry never writes; it answers reads, and forwards writes.",
    )
    d.define(
        READ_TIMEOUT_MS,
        Type.INT,
        10_000,
        validator=between(1),
        importance=Importance.LOW,
        documentation="The longest time that a registry waits for the leader's answer to a write that it forwards; then it is answered 500 with "
        "error_code 50003.",
    )
    _define_rules(d)
    return d


def _define_rules(d: ConfigDef) -> None:
    """Defines what the API allows."""
    d.define(
        "schema.compatibility.level",
        Type.STRING,
        "backward",
        validator=_level,
        importance=Importance.HIGH,
        documentation="The compatibility level where none is set by /config.",
    )
    d.define(
        "mode.mutability",
        Type.BOOLEAN,
        True,
        importance=Importance.LOW,
        documentation="Whether modes can be changed by /mode.",
    )
    d.define(
        BODY_BYTES_MAX,
        Type.INT,
        1 << 20,
        validator=between(1024, 1 << 28),
        importance=Importance.MEDIUM,
        documentation="The most bytes of a request's body, and so of a schema; a larger one is answered 413. More than 1 MiB needs "
        "max.message.bytes of the topic, and message.max.bytes here.",
    )
    d.define(
        "host.name",
        Type.STRING,
        None,
        importance=Importance.HIGH,
        documentation="The host under which other registries reach this one. Not set: the listener's; the machine's name where that is 0.0.0.0 or [::].",
    )


def _level(name: str, value: Any) -> None:
    if str(value).upper() not in LEVELS:
        raise invalid(name, value, f"must be one of {', '.join(LEVELS).lower()}")


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryConfig:
    """The settings of a registry. `client` are librdkafka's."""

    values: Mapping[str, Any]
    web: Web
    client: Mapping[str, Any]
    tls: Mapping[str, str]

    @classmethod
    def from_properties(cls, props: Properties) -> RegistryConfig:
        """Reads and checks properties. Raises ConfigError naming the key and its place."""
        defined = definition()
        values = parse(defined, props)
        clients = _client_properties(props, defined)
        translated = translate(clients, "admin", lenient=True)
        warn_once(
            (key, why)
            for key, why in translated.ignored
            if not is_from_environment(props.source(key))  # that may be meant for another process
        )
        web = Web.of(values, props, REALM)
        return cls(values=values, web=web, client={**translated.config, **_QUIET}, tls=web.tls)


def _client_properties(props: Properties, defined: ConfigDef) -> dict[str, str]:
    """Returns the settings of the Kafka client. Raises ConfigError when no broker is given."""
    servers = props.get(f"{STORE_PREFIX}{_SERVERS}") or props.get(_SERVERS) or ""
    servers = ",".join(each.strip().rpartition("://")[2] for each in servers.split(",") if each.strip())
    if not servers:
        raise invalid(_SERVERS, servers, "at least one HOST:PORT is needed")
    parse_addresses(servers)
    plain = {
        k: v for k, v in props.items() if k not in defined and not k.startswith((STORE_PREFIX, "listeners."))
    }
    own = {
        k.removeprefix(STORE_PREFIX): v
        for k, v in props.items()
        if k.startswith(STORE_PREFIX) and k.removeprefix(STORE_PREFIX) not in _NOT_CLIENTS
    }
    if any(
        key.startswith("ssl.") for key in own
    ):  # then those without the prefix are the listeners', as Confluent has it
        plain = {k: v for k, v in plain.items() if not k.startswith("ssl.")}
    return {**plain, **own, _SERVERS: servers}
