"""The configurations of a group (KIP-848, KIP-932), and of a client metrics subscription (KIP-714): keys and checks. Pure.

A group's numbers have the broker's properties (`group.consumer.…`, `group.share.…`, `group.streams.…`) as defaults and
bounds.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from klamm_base.configdef import ConfigDef, Importance, Type, between, invalid, one_of
from klamm_base.errors import ConfigError
from klamm_broker.server.config_refused import ConfigRefused
from klamm_kafka.wire.errors import ErrorCode

if TYPE_CHECKING:
    from klamm_broker.server.config import BrokerConfig

_BOUNDS: Final[Mapping[str, tuple[str, int, str | None, int, str | None, int]]] = {
    "consumer.session.timeout.ms": (
        "group.consumer.session.timeout.ms", 45_000, "group.consumer.min.session.timeout.ms", 45_000,
        "group.consumer.max.session.timeout.ms", 60_000,
    ),
    "consumer.heartbeat.interval.ms": (
        "group.consumer.heartbeat.interval.ms", 5_000, "group.consumer.min.heartbeat.interval.ms", 5_000,
        "group.consumer.max.heartbeat.interval.ms", 15_000,
    ),
    "consumer.assignment.interval.ms": (
        "group.consumer.assignment.interval.ms", 1_000, "group.consumer.min.assignment.interval.ms", 0,
        "group.consumer.max.assignment.interval.ms", 15_000,
    ),
    "streams.session.timeout.ms": (
        "group.streams.session.timeout.ms", 45_000, "group.streams.min.session.timeout.ms", 45_000,
        "group.streams.max.session.timeout.ms", 60_000,
    ),
    "streams.heartbeat.interval.ms": (
        "group.streams.heartbeat.interval.ms", 5_000, "group.streams.min.heartbeat.interval.ms", 5_000,
        "group.streams.max.heartbeat.interval.ms", 15_000,
    ),
    "streams.num.standby.replicas": (
        "group.streams.num.standby.replicas", 0, None, 0, "group.streams.max.standby.replicas", 2,
    ),
    "streams.initial.rebalance.delay.ms": ("group.streams.initial.rebalance.delay.ms", 3_000, None, 0, None, 0),
    "streams.assignment.interval.ms": (
        "group.streams.assignment.interval.ms", 1_000, "group.streams.min.assignment.interval.ms", 0,
        "group.streams.max.assignment.interval.ms", 15_000,
    ),
    **{
        f"share.{name}": (
            f"group.share.{name}", value, f"group.share.min.{name}", low, f"group.share.max.{name}", high,
        )
        for name, value, low, high in (
            ("session.timeout.ms", 45_000, 45_000, 60_000),
            ("heartbeat.interval.ms", 5_000, 5_000, 15_000),
            ("record.lock.duration.ms", 30_000, 15_000, 60_000),
            ("delivery.count.limit", 5, 2, 10),
            ("partition.max.record.locks", 2_000, 100, 4_000),
            ("assignment.interval.ms", 1_000, 0, 15_000),
        )
    },
}  # fmt: skip
"""For each key the broker's properties for its default, its lowest and its highest value (None: no bound), each with Kafka's default."""
_ABOUT: Final = {
    "consumer.session.timeout.ms": "How long a member may be silent before it is taken for failed, in milliseconds.",
    "consumer.heartbeat.interval.ms": "How often a member should send its heartbeat, in milliseconds.",
    "consumer.assignment.interval.ms": "The least time between two assignments of a group, in milliseconds.",
    "streams.session.timeout.ms": "How long a member may be silent before it is taken for failed, in milliseconds.",
    "streams.heartbeat.interval.ms": "How often a member should send its heartbeat, in milliseconds.",
    "streams.num.standby.replicas": "The number of standby tasks for each task with state.",
    "streams.initial.rebalance.delay.ms": (
        "The time that a new group waits for more members before its first assignment, in milliseconds."
    ),
    "streams.assignment.interval.ms": "The least time between two assignments of a group, in milliseconds.",
    "share.session.timeout.ms": "How long a member may be silent before it is taken for failed, in milliseconds.",
    "share.heartbeat.interval.ms": "How often a member should send its heartbeat, in milliseconds.",
    "share.assignment.interval.ms": "The least time between two assignments of a group, in milliseconds.",
    "share.record.lock.duration.ms": "How long a delivered record is locked for its reader, in milliseconds.",
    "share.delivery.count.limit": "How often a record is delivered before it is given up.",
    "share.partition.max.record.locks": "The most records in flight in a partition.",
}
_LEAST: Final = {
    "share.record.lock.duration.ms": 1_000,
    "share.delivery.count.limit": 2,
    "share.partition.max.record.locks": 100,
}
_PROTOCOLS: Final = ("consumer", "share", "streams")
GROUP_CONFIGS: Final = ConfigDef()
for _name, _bounds in _BOUNDS.items():
    GROUP_CONFIGS.define(
        _name,
        Type.INT,
        _bounds[1],
        validator=between(_LEAST.get(_name, 0 if _bounds[3] == 0 else 1)),
        importance=Importance.MEDIUM,
        documentation=_ABOUT[_name],
    )


_DURATION: Final = re.compile(
    r"P(?:(\d+)D)?(?:T(?=\d)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d{1,9})?)S)?)?", re.IGNORECASE
)
_BY_DURATION: Final = "by_duration:"


def offset_reset(name: str, value: str) -> int | None:
    """Returns the age in milliseconds that `by_duration:…` gives; None for `earliest` and `latest`. Raises ConfigError."""
    if value in ("earliest", "latest"):
        return None
    text = value.removeprefix(_BY_DURATION)
    found = _DURATION.fullmatch(text) if text != value else None
    if found is None or not any(found.groups()):
        raise invalid(name, value, "must be earliest, latest, or by_duration: and an ISO 8601 duration")
    days, hours, minutes, seconds = (float(part or 0) for part in found.groups())
    return int(((days * 24 + hours) * 60 + minutes) * 60_000 + seconds * 1_000)


def _check_offset_reset(name: str, value: Any) -> None:
    offset_reset(name, value)


GROUP_CONFIGS.define(
    "share.auto.offset.reset", Type.STRING, "latest", validator=_check_offset_reset, importance=Importance.MEDIUM,
    documentation="Where a share group begins to read a partition: `earliest`, `latest`, or `by_duration:` and an age.",
)  # fmt: skip
GROUP_CONFIGS.define(
    "share.isolation.level", Type.STRING, "read_uncommitted", validator=one_of("read_committed", "read_uncommitted"),
    importance=Importance.MEDIUM,
    documentation="Whether a share group reads records of open and aborted transactions.",
)  # fmt: skip
GROUP_CONFIGS.define(
    "share.renew.acknowledge.enable", Type.BOOLEAN, True, importance=Importance.MEDIUM,
    documentation="Lets members of a share group renew the locks of their records.",
)  # fmt: skip


def broker_synonym(name: str) -> str | None:
    """Returns the broker's property that is the default of a group's key; None when there is none."""
    bounds = _BOUNDS.get(name)
    return None if bounds is None else bounds[0]


def group_default(config: BrokerConfig, name: str) -> Any:
    """Returns the value for a group that does not set the key."""
    if name not in _BOUNDS:
        return GROUP_CONFIGS[name].default
    broker_key, fallback = _BOUNDS[name][:2]
    return int(config.values.get(broker_key, fallback))


def check_group(configs: Mapping[str, str], config: BrokerConfig) -> None:
    """Raises ConfigRefused unless these may be a group's configurations."""
    for name in configs:
        if name not in GROUP_CONFIGS:
            raise ConfigRefused(ErrorCode.INVALID_CONFIG, f"Unknown group config name: {name}")
    values = _parsed(GROUP_CONFIGS, configs)
    for name in configs:
        if name not in _BOUNDS:
            continue
        _, _, low_key, low, high_key, high = _BOUNDS[name]
        if low_key is not None and values[name] < config.values.get(low_key, low):
            raise ConfigRefused(
                ErrorCode.INVALID_CONFIG, f"{name} must be greater than or equal to {low_key}"
            )
        if high_key is not None and values[name] > config.values.get(high_key, high):
            raise ConfigRefused(ErrorCode.INVALID_CONFIG, f"{name} must be less than or equal to {high_key}")
    for protocol in _PROTOCOLS:
        keys = f"{protocol}.heartbeat.interval.ms", f"{protocol}.session.timeout.ms"
        heartbeat, session = (values[k] if k in configs else group_default(config, k) for k in keys)
        if heartbeat >= session:
            raise ConfigRefused(ErrorCode.INVALID_CONFIG, f"{keys[1]} must be greater than {keys[0]}")


METRICS_CONFIGS: Final = ConfigDef()
METRICS_CONFIGS.define(
    "interval.ms", Type.INT, 300_000, importance=Importance.MEDIUM,
    documentation="How often clients push their metrics, in milliseconds.",
)  # fmt: skip
METRICS_CONFIGS.define(
    "match", Type.LIST, [], importance=Importance.MEDIUM,
    documentation="Which clients are meant: `name=regular expression`, where all must match.",
)  # fmt: skip
METRICS_CONFIGS.define(
    "metrics", Type.LIST, [], importance=Importance.MEDIUM,
    documentation="Prefixes of the names of metrics; `*` is all of them.",
)  # fmt: skip
_MATCHABLE: Final = frozenset(
    {
        "client_instance_id", "client_id", "client_software_name", "client_software_version",
        "client_source_address", "client_source_port",
    }
)  # fmt: skip
_INTERVAL_MS: Final = (100, 3_600_000)


def check_client_metrics(configs: Mapping[str, str]) -> None:
    """Raises ConfigRefused unless these may be a client metrics subscription's configurations."""
    for name in configs:
        if name not in METRICS_CONFIGS:
            raise ConfigRefused(ErrorCode.INVALID_REQUEST, f"Unknown client metrics configuration: {name}")
    values = _parsed(METRICS_CONFIGS, configs)
    interval_ms = values["interval.ms"]
    if not _INTERVAL_MS[0] <= interval_ms <= _INTERVAL_MS[1]:
        why = (
            f"Invalid value {interval_ms} for interval.ms, interval must be between 100 and 3600000 (1 hour)"
        )
        raise ConfigRefused(ErrorCode.INVALID_REQUEST, why)
    for pattern in values["match"]:
        if not _is_pattern(pattern):
            raise ConfigRefused(ErrorCode.INVALID_CONFIG, f"Illegal client matching pattern: {pattern}")


def _is_pattern(text: str) -> bool:
    name, sign, expression = text.partition("=")
    if not sign or not expression or "=" in expression or name.strip() not in _MATCHABLE:
        return False
    try:
        re.compile(expression.strip())
    except re.error:
        return False
    return True


def _parsed(definition: ConfigDef, configs: Mapping[str, str]) -> dict[str, Any]:
    try:
        return definition.parse(configs)
    except ConfigError as e:
        raise ConfigRefused(ErrorCode.INVALID_CONFIG, str(e)) from None
