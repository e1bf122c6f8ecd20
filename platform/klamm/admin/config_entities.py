"""The entities that have settings, as Kafka's `kafka-configs` names them, and changes of these settings.

Topics, brokers, their loggers, groups and client metrics have settings; users, clients and addresses have quotas, and
users SCRAM credentials, set and deleted like settings.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from klamm.admin.client import Admin
from klamm.admin.configs import Resource, alter_config, describe_config, list_resources
from klamm.admin.groups import list_groups
from klamm.admin.quotas import (
    MECHANISMS,
    SCRAM_ITERATIONS,
    alter_credentials,
    alter_quotas,
    describe_quotas,
)
from klamm.admin.topics import list_topics
from klamm_base.errors import KlammError


class ConfigError(KlammError):
    """A change, or the name of an entity, that cannot be meant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of entity with settings, and the source of the entity's own settings."""

    resource: Resource
    source: str | None

    def own_source(self, name: str) -> str | None:
        """Return the source of settings that were made for this entity itself; None where all settings are its own."""
        if self.resource is Resource.BROKER and not name:
            return "DYNAMIC_DEFAULT_BROKER_CONFIG"
        return self.source


RESOURCES: Final = {
    "topics": Kind(resource=Resource.TOPIC, source="DYNAMIC_TOPIC_CONFIG"),
    "brokers": Kind(resource=Resource.BROKER, source="DYNAMIC_BROKER_CONFIG"),
    "broker-loggers": Kind(resource=Resource.BROKER_LOGGER, source=None),
    "client-metrics": Kind(resource=Resource.CLIENT_METRICS, source="DYNAMIC_CLIENT_METRICS_CONFIG"),
    "groups": Kind(resource=Resource.GROUP, source="DYNAMIC_GROUP_CONFIG"),
}
QUOTA_KINDS: Final = {"users": "user", "clients": "client-id", "ips": "ip"}
QUOTAS: Final = frozenset(
    {"producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate"}
)
IP_QUOTAS: Final = frozenset({"connection_creation_rate"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Settings to set and to delete."""

    put: Mapping[str, str]
    delete: Sequence[str] = ()


_OUTSIDE_BRACKETS: Final = r"(?=[^\]]*(?:\[|$))"
_KEY: Final = re.compile(r"[$a-zA-Z0-9._-]*")


def parse_added(text: str) -> dict[str, str]:
    """Parse `k1=v1,k2=[v1,v2]`: commas inside brackets belong to the value. Raises ConfigError."""
    pairs = [
        re.split(r"\s*=\s*" + _OUTSIDE_BRACKETS, word) for word in re.split("," + _OUTSIDE_BRACKETS, text)
    ]
    if any(len(pair) != 2 for pair in pairs):
        raise ConfigError(
            'requirement failed: Invalid entity config: all configs to be added must be in the format "key=val" or '
            ' "key=[val1,val2]" to group values which contain commas.'
        )
    return checked({k.strip(): v.replace("[", "").replace("]", "").strip() for k, v in pairs})


def read_properties(path: str) -> dict[str, str]:
    """Return settings from a file. Raises ConfigError."""
    from klamm_base.properties import load_properties

    return checked(dict(load_properties(Path(path))))


def checked(put: dict[str, str]) -> dict[str, str]:
    for key in put:
        if not _KEY.fullmatch(key):
            raise ConfigError(f"Invalid character found for config key: {key}")
    return put


# ---- which entities there are


async def names_of(admin: Admin, kind: str) -> list[str]:
    """Return all entities of a kind with settings; "" stands for the brokers' defaults, at the end."""
    match RESOURCES[kind].resource:
        case Resource.TOPIC:
            return [t.name for t in await list_topics(admin)]
        case Resource.BROKER | Resource.BROKER_LOGGER:
            return [*map(str, await admin.brokers()), ""]
        case Resource.CLIENT_METRICS:
            return await list_resources(admin, Resource.CLIENT_METRICS) or []
        case Resource.GROUP:
            groups = {g.group for g in await list_groups(admin, consumers_only=False)}
            return sorted(groups | set(await list_resources(admin, Resource.GROUP) or ()))


async def exists(admin: Admin, kind: str, name: str) -> bool:
    """Return whether the entity exists. A group does where the broker cannot say which groups have settings."""
    if kind == "groups" and await list_resources(admin, Resource.GROUP) is None:
        return True
    return name in await names_of(admin, kind)


# ---- changing


async def apply_change(admin: Admin, types: Sequence[str], names: Sequence[str], change: Change) -> None:
    """Set and delete. Raises ConfigError for what makes no sense, AdminError for what the cluster refuses."""
    kind, name = types[0], names[0]
    if kind in RESOURCES:
        if kind == "broker-loggers":
            await _check_loggers(admin, name, change)
        await alter_config(admin, RESOURCES[kind].resource, name, put=change.put, delete=change.delete)
    elif kind == "ips":
        unknown = [k for k in (*change.put, *change.delete) if k not in IP_QUOTAS]
        if unknown:
            raise ConfigError(
                "Only connection quota configs can be added for 'ips' using --bootstrap-server. Unexpected config"
                f" names: {','.join(unknown)}"
            )
        await _change_quotas(admin, types, names, change)
    else:
        await _change_user(admin, types, names, change)


async def _check_loggers(admin: Admin, broker: str, change: Change) -> None:
    known = {e.name for e in await describe_config(admin, Resource.BROKER_LOGGER, broker)}
    invalid = [k for k in (*change.delete, *change.put) if k not in known]
    if invalid:
        raise ConfigError(f"Invalid broker logger(s): {','.join(invalid)}")


async def _change_user(admin: Admin, types: Sequence[str], names: Sequence[str], change: Change) -> None:
    scram = {k: v for k, v in change.put.items() if k in MECHANISMS}
    scram_gone = [k for k in change.delete if k in MECHANISMS]
    unknown = [k for k in change.put if k not in QUOTAS and k not in MECHANISMS]
    unknown_gone = [k for k in change.delete if k not in QUOTAS and k not in MECHANISMS]
    quotas = len(scram) + len(unknown) < len(change.put) or any(k in QUOTAS for k in change.delete)
    if types[0] == "clients" or len(types) == 2:
        _refuse("Only quota configs can be added for 'clients'", [*unknown, *scram])
        _refuse("Only quota configs can be deleted for 'clients'", [*unknown_gone, *scram_gone])
    else:
        _refuse("Only quota and SCRAM credential configs can be added for 'users'", unknown)
        _refuse("Only quota and SCRAM credential configs can be deleted for 'users'", unknown_gone)
        if (scram or scram_gone) and not all(names):
            raise ConfigError(
                "The use of --entity-default or --user-defaults is not allowed with User SCRAM Credentials using"
                " --bootstrap-server."
            )
        if (scram or scram_gone) and quotas:
            raise ConfigError(
                "Cannot alter both quota and SCRAM credential configs simultaneously for 'users' using"
                " --bootstrap-server."
            )
    if quotas:
        await _change_quotas(admin, types, names, change)
    else:
        put = {m: parse_credential(m, text) for m, text in scram.items()}
        await alter_credentials(admin, names[0], put=put, delete=scram_gone)


def _refuse(what: str, names: Sequence[str]) -> None:
    if names:
        raise ConfigError(f"{what} using --bootstrap-server. Unexpected config names: {', '.join(names)}")


def parse_credential(mechanism: str, text: str) -> tuple[int, str]:
    """Parse `iterations=8192,password=secret`; the iterations are optional.

    Raises ConfigError, which never holds the password.
    """
    found = re.fullmatch(r"(?:iterations=(-?[0-9]*),)?password=(.*)", text)
    if found is None:
        raise ConfigError(
            f"Invalid credential property {mechanism}: must look like iterations=8192,password=SECRET"
        )
    iterations = int(found[1]) if found[1] and found[1] != "-1" else SCRAM_ITERATIONS
    if iterations < SCRAM_ITERATIONS:
        raise ConfigError(
            f"Iterations {iterations} is less than the minimum {SCRAM_ITERATIONS} required for {mechanism}"
        )
    return iterations, found[2]


def quota_entity(types: Sequence[str], names: Sequence[str]) -> dict[str, str | None]:
    """Return the protocol's kinds with names: None where no name is given, "" for the default. Raises ConfigError."""
    if len(names) > len(types):
        raise ConfigError("More entity names specified than entity types")
    padded = [*names, *([None] * (len(types) - len(names)))]
    return {QUOTA_KINDS[t]: n for t, n in zip(types, padded, strict=True)}


async def _change_quotas(admin: Admin, types: Sequence[str], names: Sequence[str], change: Change) -> None:
    kinds = quota_entity(types, names)
    old = await describe_quotas(admin, kinds)
    known = set(old[0].values) if old else set()
    invalid = [k for k in change.delete if k not in known]
    if invalid:
        raise ConfigError(f"Invalid config(s): {','.join(invalid)}")
    put = {}
    for key, text in change.put.items():
        try:
            put[key] = float(text)
        except ValueError:
            raise ConfigError(f"Cannot parse quota configuration value for {key}: {text}") from None
    await alter_quotas(admin, tuple((k, n or None) for k, n in kinds.items()), put=put, delete=change.delete)
