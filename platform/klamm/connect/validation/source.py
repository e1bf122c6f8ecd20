"""Checks that span several keys of a source connector's config: exactly once (KIP-618), topic creation
(KIP-158). Pure.

The words are Kafka's. Rules for topics are checked here, too; Kafka finds their errors only when the
tasks start.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from klamm.connect.validation import topic_creation
from klamm_base.configdef import ConfigDef, ConfigValue, invalid

SUPPORT: Final = "exactly.once.support"
BOUNDARY: Final = "transaction.boundary"
_NOT_ENABLED: Final = "This worker does not have exactly-once source support enabled."
_SAYS_NOTHING: Final = (
    "The connector does not implement the API required for preflight validation of exactly-once source support. Please "
    "consult the documentation for the connector to determine whether it supports exactly-once semantics, and then "
    'consider reconfiguring the connector to use the value "requested" for this property (which will disable this '
    "preflight check and allow the connector to be created)."
)
_NOT_SUPPORTED: Final = (
    "The connector does not support exactly-once semantics with the provided configuration."
)
_NO_BOUNDARIES: Final = (
    "The connector does not support connector-defined transaction boundaries with the given configuration. Please "
    "reconfigure it to use a different transaction boundary definition."
)


def check_exactly_once(
    values: Mapping[str, ConfigValue], says: Mapping[str, Any], worker: Mapping[str, str]
) -> None:
    """Adds errors. `says` is the connector's answer: `support` and `boundaries`, or `error` when asking it failed."""
    support, boundary = values[SUPPORT], values[BOUNDARY]
    if not support.errors and str(support.value).lower() == "required":
        if worker.get("exactly.once.source.support", "disabled") != "enabled":
            support.errors.append(_NOT_ENABLED)
        if "error" in says:
            support.errors.append(says["error"])
        elif says.get("support") is not True:
            support.errors.append(_SAYS_NOTHING if says.get("support") is None else _NOT_SUPPORTED)
    if not boundary.errors and str(boundary.value).lower() == "connector":
        if "error" in says:
            boundary.errors.append(says["error"])
        elif not says.get("boundaries"):
            boundary.errors.append(_NO_BOUNDARIES)


def topic_rules(config: Mapping[str, str]) -> tuple[ConfigDef, list[ConfigValue]]:
    """Returns the keys of a config's topic creation groups, and their validated values."""
    keys = topic_creation.group_keys(config)
    return keys, keys.validate(config)


def unique_groups(name: str, value: Any) -> None:
    """Checks that the names of topic creation groups are unique, as Kafka does. Raises ConfigError."""
    if value and len(set(value)) < len(value):
        raise invalid(name, value, "Duplicate alias provided.")


def one_of_any_case(*allowed: str) -> Any:
    """Returns a validator that ignores case (Kafka: CaseInsensitiveValidString)."""

    def check(name: str, value: Any) -> None:
        if value is None or value.lower() not in allowed:
            why = f"String must be one of (case insensitive): {', '.join(each.upper() for each in allowed)}"
            raise invalid(name, value, why)

    return check
