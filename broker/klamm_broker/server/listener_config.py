"""The listeners of a configuration: names, addresses, security protocols, and properties of one listener alone. Pure.

`listener.name.<name>.<property>` overrides a property for the listener of that name (written in lower case there).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from klamm_base.addresses import EVERY_HOST
from klamm_base.configdef import invalid, with_prefix
from klamm_broker.server import single_node
from klamm_broker.server.listener_text import parse_listener

LISTENER_PREFIX: Final = "listener.name."


class SecurityProtocol(StrEnum):
    """The kinds of connections that a listener takes: with TLS or without, with a login or without."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def tls(self) -> bool:
        return self in {SecurityProtocol.SSL, SecurityProtocol.SASL_SSL}

    @property
    def sasl(self) -> bool:
        return self in {SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL}


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """One address of `listeners` or `advertised.listeners`."""

    name: str
    host: str
    port: int
    protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


def read(values: Mapping[str, Any]) -> tuple[tuple[Listener, ...], tuple[Listener, ...]]:
    """Returns `listeners` and `advertised.listeners`, which go together. Raises ConfigError."""
    listeners = _listeners("listeners", values)
    explicit = values["advertised.listeners"] is not None
    advertised = _listeners("advertised.listeners", values) if explicit else listeners
    _check_advertised(listeners, advertised, explicit=explicit)
    _check_inter_broker(values, advertised)
    return listeners, advertised


def properties_of(name: str, texts: Mapping[str, str]) -> dict[str, str]:
    """Returns the properties as the listener `name` sees them: its own override the general ones."""
    general = {key: text for key, text in texts.items() if not key.startswith(LISTENER_PREFIX)}
    return general | with_prefix(texts, f"{LISTENER_PREFIX}{name.lower()}.")


def general_key(name: str) -> str:
    """Returns the property that `listener.name.<name>.<property>` overrides; another name as it is."""
    return name.split(".", 3)[3] if name.startswith(LISTENER_PREFIX) and name.count(".") > 2 else name


def _protocols(values: Mapping[str, Any]) -> dict[str, SecurityProtocol]:
    key = "listener.security.protocol.map"
    result: dict[str, SecurityProtocol] = {}
    for item in values[key]:
        name, colon, protocol = (part.strip().upper() for part in item.partition(":"))
        if not colon:
            raise invalid(key, item, "must look like NAME:PLAINTEXT")
        if protocol not in SecurityProtocol.__members__:
            raise invalid(key, item, f"the security protocol must be one of {', '.join(SecurityProtocol)}")
        if name in result:
            raise invalid(key, ",".join(values[key]), f"listener name {name} has two entries")
        result[name] = SecurityProtocol(protocol)
    return result


def _listeners(key: str, values: Mapping[str, Any]) -> tuple[Listener, ...]:
    protocols = _protocols(values)
    result = []
    for text in single_node.without_controllers(key, values[key], values["controller.listener.names"]):
        name, host, port = parse_listener(key, text)
        protocol = protocols.get(name)
        if protocol is None:
            raise invalid(key, text, f"listener name {name} has no entry in listener.security.protocol.map")
        result.append(Listener(name=name, host=host, port=port, protocol=protocol))
    return tuple(result)


def _check_advertised(
    listeners: tuple[Listener, ...], advertised: tuple[Listener, ...], *, explicit: bool
) -> None:
    """Raises ConfigError unless every advertised address belongs to a listener and is one that clients can connect to."""
    names = {listener.name for listener in listeners}
    for item in advertised:
        if item.name not in names:
            why = f"no listener of that name in listeners ({', '.join(names)})"
            raise invalid("advertised.listeners", str(item), why)
        if item.host and item.host in EVERY_HOST:
            why = "cannot be told to clients; set advertised.listeners to a host name or address of this machine"
            raise invalid("advertised.listeners" if explicit else "listeners", str(item), why)


def _check_inter_broker(values: Mapping[str, Any], advertised: tuple[Listener, ...]) -> None:
    """Raises ConfigError unless the listener for other brokers is one of ours. No other broker will come; Kafka checks it too."""
    key = "inter.broker.listener.name"
    name = values[key]
    if name is None:
        return
    if values["security.inter.broker.protocol"] is not None:
        raise invalid(key, name, "set only one of it and security.inter.broker.protocol")
    names = [item.name for item in advertised]
    if name.upper() not in names:
        raise invalid(key, name, f"must be a listener of advertised.listeners: {', '.join(names)}")
