"""The keys of quotas and users, and their settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from klamm_base.configdef import ConfigDef, Importance, Type, between, one_of
from klamm_mirror.clients import ClientSettings
from klamm_mirror.settings import filters
from klamm_mirror.settings.common_config import Side

QUOTAS: Final = "sync.client.quotas"
USERS: Final = "check.users"
DELETIONS: Final = f"{QUOTAS}.deletions"
OFF, DELETE = "off", "delete"


@dataclass(frozen=True, slots=True, kw_only=True)
class PrincipalSettings:
    """The settings of a flow. `clients` are the ways to the source and to the target; an interval of None: never."""

    clients: tuple[ClientSettings, ClientSettings]
    quotas: filters.NameFilter
    quotas_s: float | None = None
    deletes: bool = False
    users_s: float | None = None


def principals_config() -> ConfigDef:
    """Returns the keys."""
    keys = ConfigDef()
    define = keys.define
    for what, text in (
        (
            QUOTAS,
            "give users, client ids and addresses at the target the quotas that they have at the source",
        ),
        (USERS, "look for users with SCRAM credentials at the source whom the target does not know"),
    ):
        define(
            f"{what}.enabled", Type.BOOLEAN, False, importance=Importance.LOW, documentation=f"Whether to {text}.",
        )  # fmt: skip
        define(
            f"{what}.interval.seconds", Type.LONG, 600, validator=between(1), importance=Importance.LOW,
            documentation=f"How often to {text}, seconds.",
        )  # fmt: skip
    define(
        "client.quotas", Type.LIST, [".*"], validator=filters.check_patterns, importance=Importance.LOW,
        documentation="Quotas to copy, by whom they are for: names and regular expressions for texts such as user=ann, "
        "user=<default>, client-id=app, user=ann/client-id=app, ip=10.0.0.1.",
    )  # fmt: skip
    define(
        "client.quotas.exclude", Type.LIST, [], validator=filters.check_patterns, importance=Importance.LOW,
        documentation="Quotas to leave out; wins over client.quotas.",
    )  # fmt: skip
    define(
        DELETIONS, Type.STRING, OFF, validator=one_of(OFF, DELETE), importance=Importance.LOW,
        documentation="delete: quotas that the source does not have are removed at the target, whoever set them.",
    )  # fmt: skip
    return keys


def principal_settings(props: Mapping[str, str], parsed: Mapping[str, Any]) -> PrincipalSettings | None:
    """Returns the settings; None where nothing is enabled. Reads key stores. Raises ConfigError."""
    if not any(parsed[f"{what}.enabled"] for what in (QUOTAS, USERS)):
        return None
    sides: tuple[Side, Side] = ("source", "target")
    source, target = (ClientSettings.of(props, side, "admin") for side in sides)

    def interval(what: str) -> float | None:
        return float(parsed[f"{what}.interval.seconds"]) if parsed[f"{what}.enabled"] else None

    return PrincipalSettings(
        clients=(source, target),
        quotas=filters.NameFilter.of(parsed, "client.quotas", "client.quotas.exclude"),
        quotas_s=interval(QUOTAS),
        deletes=parsed[DELETIONS] == DELETE,
        users_s=interval(USERS),
    )
