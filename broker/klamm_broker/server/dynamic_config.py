"""The properties of a broker that can be changed at run time, and the checks of such a change. Pure.

They are those of Kafka's dynamic configurations that are properties here (`config_keys.BROKER_CONFIG`). A value for
this broker overrides one for all brokers (the resource with the empty name), and that overrides `server.properties`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from klamm_base.configdef import ConfigDef, ConfigKey, Importance, Type, parse_key
from klamm_base.errors import ConfigError
from klamm_base.properties import suggestion
from klamm_broker.log.topic_config import SERVER_DEFAULTS
from klamm_broker.server import quota_keys
from klamm_broker.server.config_keys import BROKER_CONFIG, NOT_IMPLEMENTED
from klamm_broker.server.config_refused import ConfigRefused
from klamm_broker.server.listener_config import LISTENER_PREFIX, general_key
from klamm_kafka.wire.errors import ErrorCode

MIN_ISR: Final = "min.insync.replicas"
DYNAMIC: Final = frozenset(SERVER_DEFAULTS.values()) | {
    "log.cleaner.backoff.ms",
    "log.cleaner.dedupe.buffer.size",
    "log.cleaner.io.buffer.load.factor",
    "log.cleaner.io.buffer.size",
    "log.cleaner.io.max.bytes.per.second",
    "log.cleaner.threads",
    "group.consumer.assignment.interval.ms",
    "group.share.assignment.interval.ms",
    "group.streams.assignment.interval.ms",
    "listener.security.protocol.map",
    "listeners",
    "max.connection.creation.rate",
    "max.connections",
    "max.connections.per.ip",
    "max.connections.per.ip.overrides",
    "producer.id.expiration.ms",
    "sasl.enabled.mechanisms",
    "sasl.kerberos.principal.to.local.rules",
    "sasl.kerberos.service.name",
}
"""Properties whose change takes effect at once."""
PER_LISTENER: Final = frozenset(name for name in BROKER_CONFIG.names if name.startswith("ssl."))
"""Properties that can be changed for one listener of one broker, with `listener.name.<name>.` before them, as in Kafka."""
_OF_LISTENERS: Final = (
    quota_keys.PER_LISTENER
    | {"sasl.enabled.mechanisms", "sasl.kerberos.principal.to.local.rules"}
    | {name for name in BROKER_CONFIG.names if name.endswith(".sasl.jaas.config")}
)
"""Properties of logins and limits of connections that can be changed in the same way, and for the broker as a whole."""

_INT, _LONG, _TEXT, _LIST, _DOUBLE, _SHORT = (
    Type.INT,
    Type.LONG,
    Type.STRING,
    Type.LIST,
    Type.DOUBLE,
    Type.SHORT,
)
_NO_EFFECT: Final[Mapping[str, Type]] = {
    "background.threads": _INT,
    "group.coordinator.cached.buffer.max.bytes": _INT,
    "metric.reporters": _LIST,
    "num.io.threads": _INT,
    "num.network.threads": _INT,
    "num.replica.fetchers": _INT,
    "principal.builder.class": Type.CLASS,
    "sasl.kerberos.kinit.cmd": _TEXT,
    "sasl.kerberos.min.time.before.relogin": _LONG,
    "sasl.kerberos.ticket.renew.jitter": _DOUBLE,
    "sasl.kerberos.ticket.renew.window.factor": _DOUBLE,
    "sasl.login.refresh.buffer.seconds": _SHORT,
    "sasl.login.refresh.min.period.seconds": _SHORT,
    "sasl.login.refresh.window.factor": _DOUBLE,
    "sasl.login.refresh.window.jitter": _DOUBLE,
    "sasl.mechanism.inter.broker.protocol": _TEXT,
}
WITHOUT_EFFECT: Final = ConfigDef(
    [
        ConfigKey(
            name=name, type=kind, default=None, importance=Importance.LOW,
            documentation="Kept and told for Kafka's tools; it has no effect here.",
        )
        for name, kind in _NO_EFFECT.items()
        if name not in BROKER_CONFIG
    ]
)  # fmt: skip
"""Kafka's other properties that tools set on a running broker: they are stored, told, and warned about as in
`server.properties`. Secrets and TLS are not among them: a key that nobody uses should not pretend to work.
"""
_PER_BROKER: Final = frozenset({"listeners", "listener.security.protocol.map", "principal.builder.class"})


def check(configs: Mapping[str, str], *, per_broker: bool) -> None:
    """Raises ConfigRefused unless these may be a broker's dynamic configurations."""
    bare = [name for name in configs if name in PER_LISTENER]
    if bare:
        why = "These security configs can be dynamically updated only per-listener using the listener prefix"
        raise ConfigRefused(ErrorCode.INVALID_REQUEST, f"{why}: [{', '.join(sorted(bare))}]")
    of_listeners = [name for name in configs if is_of_listener(name)]
    changeable = [name for name in configs if name in DYNAMIC or name in WITHOUT_EFFECT] + of_listeners
    fixed = [name for name in configs if name not in changeable and _is_known(name)]
    local = [name for name in configs if name in _PER_BROKER or name.startswith("sasl.")]
    local += of_listeners
    if local and not per_broker and set(fixed) <= set(local):
        why = "Cannot update these configs at default cluster level, broker id must be specified"
        raise ConfigRefused(ErrorCode.INVALID_REQUEST, f"{why}: [{', '.join(sorted(local))}]")
    if fixed:
        why = f"Cannot update these configs dynamically: [{', '.join(sorted(fixed))}]"
        raise ConfigRefused(ErrorCode.INVALID_REQUEST, why)
    for name in configs:
        if name not in changeable:
            hint = suggestion(name, BROKER_CONFIG.names)
            raise ConfigRefused(ErrorCode.INVALID_REQUEST, f"Unknown config name: {name}{hint}")
    try:
        for name in configs:
            parse_key(key_of(name), configs)
    except ConfigError as e:
        raise ConfigRefused(ErrorCode.INVALID_REQUEST, str(e)) from None


def is_of_listener(name: str) -> bool:
    """Decides whether this is a changeable property of one listener."""
    return name.startswith(LISTENER_PREFIX) and general_key(name) in PER_LISTENER | _OF_LISTENERS


def key_of(name: str) -> ConfigKey:
    """Returns the definition of a property that can be changed, or of one listener's."""
    general = general_key(name)
    known = BROKER_CONFIG if general in BROKER_CONFIG else WITHOUT_EFFECT
    return known[name] if general == name else replace(known[general], name=name, default=None)


def check_min_isr(before: Mapping[str, str], after: Mapping[str, str], *, per_broker: bool) -> None:
    """Raises ConfigRefused where a change breaks a rule of eligible leader replicas.

    With them, `min.insync.replicas` is set for the whole cluster only, and cannot be removed.
    """
    if before.get(MIN_ISR) == after.get(MIN_ISR):
        return
    if per_broker:
        why = f"Broker-level {MIN_ISR} cannot be altered while ELR is enabled."
        raise ConfigRefused(ErrorCode.INVALID_CONFIG, why)
    if MIN_ISR not in after:
        why = f"Cluster-level {MIN_ISR} cannot be removed while ELR is enabled."
        raise ConfigRefused(ErrorCode.INVALID_CONFIG, why)


def _is_known(name: str) -> bool:
    return name in BROKER_CONFIG or name.startswith(NOT_IMPLEMENTED)
