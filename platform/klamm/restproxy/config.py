"""The properties of the REST proxy: Confluent's names and defaults where they have the key. No I/O but of key stores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from klamm.restproxy import rate_limits
from klamm.web.roles import Realm
from klamm.web.settings import Web, web_config
from klamm_base.addresses import parse_addresses
from klamm_base.clientconfig import Kind, translate, warn_once
from klamm_base.configdef import ConfigDef, Importance, Type, between, invalid
from klamm_base.properties import Properties, is_from_environment, parse
from klamm_base.security import ClientSecurity
from klamm_plugins.converters.registry import URL, client_config

PORT: Final = 8082
REALM: Final = Realm(title="REST proxy", server="REST proxy", thing="topic")
BATCH_MAX: Final = "api.v3.produce.batch.maximum.entries"
_SERVERS: Final = "bootstrap.servers"
_KINDS: Final[tuple[Kind, ...]] = ("producer", "consumer", "admin")
_REGISTRY: Final = "schema.registry."
_QUIET: Final = {"log_level": 2, "enable.metrics.push": False}
_DEFAULTS: Final[Mapping[str, Mapping[str, str]]] = {
    # Java's: answered once all in-sync replicas have it, in the order of the requests.
    "producer": {"acks": "all", "enable.idempotence": "true"},
    # A consumer instance reads ahead, however many there are.
    "consumer": {"queued.max.messages.kbytes": "8192"},
    "admin": {},
}


def definition() -> ConfigDef:
    """Returns the definitions of all properties but those of Kafka's clients."""
    d = web_config(PORT)
    d.define(
        _SERVERS,
        Type.LIST,
        importance=Importance.HIGH,
        documentation="HOST:PORT of one or more brokers, separated by commas. Settings of clients (security.protocol, sasl.*) stand "
        "beside it or behind client., those of one kind behind producer., consumer. and admin.",
    )
    _define_limits(d)
    rate_limits.define(d)
    d.define(
        "host.name",
        Type.STRING,
        None,
        importance=Importance.MEDIUM,
        documentation="The host in links and base_uri. Not set: the Host of the request.",
    )
    d.define(
        "id",
        Type.STRING,
        "",
        importance=Importance.LOW,
        documentation="The name of this proxy in the ids of consumer instances.",
    )
    for key in client_config(
        ConfigDef()
    ):  # its names begin with what the key is about, here with schema.registry.
        if key.name == URL:
            d.define(
                URL,
                Type.LIST,
                [],
                importance=Importance.HIGH,
                documentation="Addresses of the schema registry for Avro, JSON Schema and Protobuf, tried in turn; without one these "
                "formats are refused.",
            )
        else:
            d.add(key)
    return d


def _define_limits(d: ConfigDef) -> None:
    """Defines what bounds consumers, the producer and requests."""
    d.define(
        "consumer.instance.timeout.ms",
        Type.INT,
        300_000,
        validator=between(1),
        importance=Importance.LOW,
        documentation="A consumer instance without a request goes after this time.",
    )
    d.define(
        "consumer.request.timeout.ms",
        Type.INT,
        1000,
        validator=between(0),
        importance=Importance.MEDIUM,
        documentation="The longest time that a request for records waits, unless it or its instance says another.",
    )
    d.define(
        "consumer.request.max.bytes",
        Type.LONG,
        64 << 20,
        validator=between(1),
        importance=Importance.MEDIUM,
        documentation="The most bytes of keys and values in an answer.",
    )
    d.define(
        "consumer.threads",
        Type.INT,
        50,
        validator=between(1),
        importance=Importance.MEDIUM,
        documentation="The most consumer requests that are carried out at a time; others wait.",
    )
    d.define(
        "consumer.instances.max",
        Type.INT,
        1000,
        validator=between(1),
        importance=Importance.MEDIUM,
        documentation="The most consumer instances at a time; another one is answered 429.",
    )
    d.define(
        "producer.buffer.memory",
        Type.LONG,
        32 << 20,
        validator=between(1 << 20),
        importance=Importance.HIGH,
        documentation="The most bytes of records that wait for the brokers; with more, requests are answered 429.",
    )
    d.define(
        BATCH_MAX,
        Type.INT,
        10,
        validator=between(1, 10_000),
        importance=Importance.LOW,
        documentation="The most entries of a records:batch request.",
    )
    d.define(
        "request.max.bytes",
        Type.INT,
        16 << 20,
        validator=between(1024, 1 << 30),
        importance=Importance.MEDIUM,
        documentation="The largest body of a request, and the largest record of a stream; a larger one is answered 413.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyConfig:
    """The settings of a proxy. `producer` and `consumer` are librdkafka's."""

    values: Mapping[str, Any]
    web: Web
    bootstrap: str
    producer: Mapping[str, Any] = field(repr=False)
    consumer: Mapping[str, Any] = field(repr=False)
    security: ClientSecurity

    @classmethod
    def from_properties(cls, props: Properties) -> ProxyConfig:
        """Reads and checks properties. Raises ConfigError naming the key and its place."""
        defined = definition()
        values = parse(defined, props)
        servers = [each.rpartition("://")[2] for each in values[_SERVERS]]
        if not servers:
            raise invalid(_SERVERS, "", "at least one HOST:PORT is needed")
        clients = {kind: _client_properties(props, defined, kind) for kind in _KINDS}
        bootstrap = ",".join(servers)
        parse_addresses(bootstrap)
        made = {}
        for kind in ("producer", "consumer"):
            own = {**_DEFAULTS[kind], **clients[kind], _SERVERS: bootstrap}
            translated = translate(own, kind, lenient=True)
            warn_once(
                ((key, why) for key, why in translated.ignored if not _is_for_others(props, key)),
                prefix=f"{kind}: ",
            )
            made[kind] = {**translated.config, **_QUIET}
        return cls(
            values=values,
            web=Web.of(values, props, REALM),
            bootstrap=bootstrap,
            producer=made["producer"],
            consumer=made["consumer"],
            security=ClientSecurity.from_properties(clients["admin"]),
        )


def _is_for_others(props: Properties, key: str) -> bool:
    """Tells whether a setting without effect may be meant for another client, or for another process."""
    return key not in props or is_from_environment(props.source(key))


def _client_properties(props: Properties, defined: ConfigDef, kind: str) -> dict[str, str]:
    """Returns the settings of a client: those beside the proxy's, behind client. and behind its kind, the last ones count most."""
    prefixes = ("client.", *(f"{each}." for each in _KINDS))
    own = {"client.id": props.get("client.id", "rest-proxy")}
    for key, value in props.items():
        if key in defined or key == "client.id" or key.startswith((_REGISTRY, "listeners.", *prefixes)):
            continue
        if not (key.startswith("ssl.") and any(each.startswith("client.ssl.") for each in props)):
            own[key] = value  # with client.ssl.*, those without are the listeners', as Confluent has it
    for prefix in ("client.", f"{kind}."):
        own.update(
            (key.removeprefix(prefix), value)
            for key, value in props.items()
            if key.startswith(prefix) and key not in defined and key != "client.id"
        )
    return own
