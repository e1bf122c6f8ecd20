"""The limits of connections and the windows of quotas that a configuration has."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from typing import TYPE_CHECKING

from klamm_base.configdef import invalid
from klamm_base.errors import ConfigError
from klamm_broker.quota.connections import UNLIMITED, ConnectionLimits, ListenerLimits
from klamm_broker.quota.rate import Windows
from klamm_broker.server.quota_keys import OVERRIDES, RATE, read_overrides

if TYPE_CHECKING:
    from klamm_broker.server.config import BrokerConfig
    from klamm_broker.server.host_names import HostNames


def windows_of(config: BrokerConfig, prefix: str) -> Windows:
    """Returns the windows of client quotas (`quota`) or of controller mutations (`controller.quota`)."""
    return Windows(
        count=config[f"{prefix}.window.num"], length_ms=config[f"{prefix}.window.size.seconds"] * 1000
    )


def limited_hosts(config: BrokerConfig) -> Iterable[str]:
    """Returns the hosts that have limits of their own. Raises ConfigError."""
    return (host.strip("[]") for host in read_overrides(config[OVERRIDES]))


def limits_of(config: BrokerConfig, hosts: HostNames) -> ConnectionLimits:
    """Returns the limits of connections. Raises ConfigError."""
    names = [listener.name for listener in config.listeners]
    protected = (
        config["inter.broker.listener.name"] or config["security.inter.broker.protocol"] or "PLAINTEXT"
    )
    return ConnectionLimits(
        connections=config["max.connections"],
        per_second=config[RATE],
        per_ip=config["max.connections.per.ip"],
        per_ip_overrides={
            _address(host, hosts): most for host, most in read_overrides(config[OVERRIDES]).items()
        },
        listeners={name: _of_listener(config, name) for name in names},
        protected=protected.upper() if len(names) > 1 else None,
    )


def _of_listener(config: BrokerConfig, listener: str) -> ListenerLimits:
    def own(name: str) -> int:
        text = config.override(listener, name)
        if text is None:
            return UNLIMITED  # the broker's bounds all listeners together
        key = f"listener.name.{listener.lower()}.{name}"
        try:
            value = int(text)
        except ValueError:
            raise invalid(key, text, "must be a whole number") from None
        if value <= 0:
            raise invalid(key, text, "must be greater than 0")
        return value

    return ListenerLimits(connections=own("max.connections"), per_second=own(RATE))


def _address(host: str, hosts: HostNames) -> str:
    """Returns a host's address as sockets tell it."""
    host = host.strip("[]")
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        return hosts.addresses(host)[0][1]
    except OSError as e:
        raise ConfigError(
            f"{OVERRIDES}: host {host!r} cannot be resolved: {e.strerror or e}", key=OVERRIDES
        ) from None
