"""Which properties of a broker can be changed while it runs, and the checks of such a change. Pure.

They are Kafka's dynamic configurations, of those that are properties here (`config_keys.BROKER_CONFIG`). What is
stored for all brokers (the resource with the empty name) or for this one lies over `server.properties`; the one for
this broker decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from klamm_base.configdef import parse_key
from klamm_base.errors import ConfigError
from klamm_base.properties import suggestion
from klamm_broker.log.topic_config import SERVER_DEFAULTS
from klamm_broker.server.config_keys import BROKER_CONFIG, NOT_IMPLEMENTED
from klamm_broker.server.config_refused import ConfigRefused
from klamm_broker.wire.errors import ErrorCode

MIN_ISR: Final = "min.insync.replicas"
DYNAMIC: Final = frozenset(SERVER_DEFAULTS.values()) | {
    "log.cleaner.backoff.ms",
    "log.cleaner.dedupe.buffer.size",
    "log.cleaner.io.buffer.load.factor",
    "log.cleaner.io.buffer.size",
    "log.cleaner.io.max.bytes.per.second",
    "log.cleaner.threads",
    "max.connections",
    "max.connections.per.ip",
    "producer.id.expiration.ms",
}
"""Changed at once. Kafka's others (listeners, TLS, threads) are read at start only, or mean nothing here."""
_PER_BROKER: Final = frozenset({"listeners", "listener.security.protocol.map"})


def check(configs: Mapping[str, str], *, per_broker: bool) -> None:
    """Whether these may be a broker's dynamic configurations. Raises ConfigRefused."""
    fixed = [name for name in configs if name not in DYNAMIC and _is_known(name)]
    if fixed:
        at_default_level = not per_broker and _PER_BROKER.issuperset(fixed)
        why = (
            "Cannot update these configs at default cluster level, broker id must be specified"
            if at_default_level
            else "Cannot update these configs dynamically"
        )
        raise ConfigRefused(ErrorCode.INVALID_REQUEST, f"{why}: [{', '.join(sorted(fixed))}]")
    for name in configs:
        if name not in BROKER_CONFIG:
            hint = suggestion(name, BROKER_CONFIG.names)
            raise ConfigRefused(ErrorCode.INVALID_REQUEST, f"Unknown config name: {name}{hint}")
    try:
        for name in configs:
            parse_key(BROKER_CONFIG[name], configs)
    except ConfigError as e:
        raise ConfigRefused(ErrorCode.INVALID_REQUEST, str(e)) from None


def check_min_isr(before: Mapping[str, str], after: Mapping[str, str], *, per_broker: bool) -> None:
    """With eligible leader replicas `min.insync.replicas` is the whole cluster's, and always said."""
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
