"""Kafka's properties of a cluster on a single node, which has no separate controller and one replica of everything.

A property that is accepted and cannot be fulfilled is warned about by name and value if the user has set it: Kafka's
own default of three replicas is nobody's wish.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

from klamm_base.configdef import Importance, Type, invalid, one_of
from klamm_broker.server.listener_text import parse_listener

log = logging.getLogger(__name__)

_ONE_REPLICA: Final = "one node holds one replica"
_REPLICAS: Final[Mapping[str, str]] = {
    "offsets.topic.replication.factor": f"{_ONE_REPLICA} of __consumer_offsets",
    "transaction.state.log.replication.factor": f"{_ONE_REPLICA} of __transaction_state",
    "transaction.state.log.min.isr": f"{_ONE_REPLICA} of __transaction_state, which is enough",
    "share.coordinator.state.topic.replication.factor": f"{_ONE_REPLICA} of __share_group_state",
    "share.coordinator.state.topic.min.isr": f"{_ONE_REPLICA} of __share_group_state, which is enough",
    "min.insync.replicas": f"{_ONE_REPLICA}, so that writes with acks=all are refused with NOT_ENOUGH_REPLICAS",
}
"""Keys whose values above 1 cannot be fulfilled, and what holds instead."""


def define(key: Any) -> None:
    """Define the properties with `key(name, type, default, validator, documentation)`."""
    key(
        "process.roles",
        Type.LIST,
        ["broker"],
        one_of("broker", "controller"),
        "Accepted; this process is a broker that needs no controller. `controller` alone is refused.",
        importance=Importance.HIGH,
    )
    key(
        "controller.listener.names",
        Type.LIST,
        [],
        None,
        "Names of `listeners` that belong to a controller: the broker does not open them and does not tell clients of them.",
        importance=Importance.HIGH,
    )


def check_roles(roles: Sequence[str]) -> None:
    """Raise ConfigError unless the roles include a broker."""
    if "broker" not in roles:
        why = "there is no separate controller here: use broker, or broker,controller"
        raise invalid("process.roles", ",".join(roles), why)


def without_controllers(key: str, texts: Sequence[str], controllers: Sequence[str]) -> list[str]:
    """Returns the addresses of `key` that clients may use. Raises ConfigError when there is none."""
    names = {name.upper() for name in controllers}
    kept = [text for text in texts if parse_listener(key, text)[0] not in names]
    if not kept:
        why = f"a listener for clients is needed, and controller.listener.names={','.join(controllers)} has them all"
        raise invalid(key, ",".join(texts), why)
    return kept


def warn(originals: Mapping[str, str], values: Mapping[str, Any]) -> None:
    """Warn about each property that was set and cannot be fulfilled."""
    left_out = set(values["listeners"]) - set(
        without_controllers("listeners", values["listeners"], values["controller.listener.names"])
    )
    if left_out:
        log.warning(
            "listeners: %s (controller.listener.names) is not opened: there is no separate controller here",
            ",".join(sorted(left_out)),
        )
    for name, instead in _REPLICAS.items():
        if name in originals and values[name] > 1:
            log.warning("%s=%s cannot be fulfilled: %s", name, values[name], instead)
