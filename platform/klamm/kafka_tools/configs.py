"""`kafka-configs`: settings of topics, brokers, groups and the like, quotas, SCRAM credentials."""

from __future__ import annotations

import math
import re
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from klamm.admin import configs as api
from klamm.admin.client import Admin
from klamm.admin.config_entities import (
    RESOURCES,
    Change,
    ConfigError,
    apply_change,
    exists,
    names_of,
    parse_added,
    quota_entity,
    read_properties,
)
from klamm.admin.errors import AdminError
from klamm.admin.quotas import Quotas, describe_credentials, describe_quotas
from klamm.kafka_tools.failures import reason, with_class
from klamm.kafka_tools.options import COMMAND_CONFIG, Option, Options, UsageError, say
from klamm.kafka_tools.run import connected
from klamm_base.errors import KlammError
from klamm_kafka.wire.errors import ErrorCode

SUMMARY = "describe and alter settings of a topic, client, user, broker, ip, client-metrics or group."
_TYPES: Final = "topics/clients/users/brokers/broker-loggers/ips/client-metrics/groups"
OPTIONS = (
    Option("bootstrap-server", "The brokers to connect to.", "HOST:PORT,..."),
    Option("bootstrap-controller", "Controllers to connect to: refused, ask a broker.", "HOST:PORT,..."),
    COMMAND_CONFIG,
    Option("alter", "Alter settings."),
    Option("describe", "List settings."),
    Option("all", "--describe: all settings, the static and default ones too."),
    Option("entity-type", f"Kind of thing ({_TYPES}).", "TYPE"),
    Option("entity-name", "Its name (topic, client id, user, broker id, ip, group).", "NAME"),
    Option("entity-default", "The default of clients, users, brokers or ips."),
    Option("add-config", "Settings to set; values with commas in brackets.", "k1=v1,k2=[v1,v2]"),
    Option("add-config-file", "A .properties file with settings to set.", "FILE"),
    Option("delete-config", "Settings to delete.", "k1,k2"),
    Option("topic", "The topic's name.", "NAME"),
    Option("client", "The client's id.", "ID"),
    Option("client-defaults", "The defaults of all clients."),
    Option("user", "The user's principal name.", "NAME"),
    Option("user-defaults", "The defaults of all users."),
    Option("broker", "The broker's id.", "ID"),
    Option("broker-defaults", "The defaults of all brokers."),
    Option("broker-logger", "The id of the broker whose loggers are meant.", "ID"),
    Option("ip", "The IP address.", "IP"),
    Option("ip-defaults", "The defaults of all addresses."),
    Option("client-metrics", "The name of a client metrics resource.", "NAME"),
    Option("group", "The group's id.", "ID"),
)
_ALLOWED: Final = (
    "topics",
    "clients",
    "users",
    "brokers",
    "ips",
    "client-metrics",
    "groups",
    "broker-loggers",
)
_FLAGS: Final = {
    "topic": "topics",
    "client": "clients",
    "user": "users",
    "broker": "brokers",
    "broker-logger": "broker-loggers",
    "ip": "ips",
    "client-metrics": "client-metrics",
    "group": "groups",
}
_DEFAULT_FLAGS: Final = {
    "client-defaults": "clients",
    "user-defaults": "users",
    "broker-defaults": "brokers",
    "ip-defaults": "ips",
}
_WITH_DEFAULT: Final = frozenset({"users", "clients", "brokers", "ips"})
_ENTITY_WORDS: Final = {"user": "user-principal", "client-id": "client-id", "ip": "ip"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entities:
    """Kinds and names as given; a name of "" is the default."""

    types: tuple[str, ...]
    names: tuple[str, ...]


def run(options: Options) -> int:
    """Check the command line as Kafka does, then act."""
    entities = _entities(options)
    _check(options, entities)
    if options.has("bootstrap-controller"):
        raise UsageError(
            "--bootstrap-controller: controllers are asked through a broker here, use --bootstrap-server"
        )
    try:
        change = _change(options) if options.has("alter") else None

        async def act(admin: Admin) -> None:
            if change is None:
                await _describe(admin, entities, everything=options.has("all"))
            else:
                await _alter(admin, entities, change)

        connected(options.text("bootstrap-server"), options.get("command-config"), act)
    except ConfigError as e:
        say(str(e))
        return 1
    except KlammError as e:
        words = " ".join(_hide(options))
        say(f"Error while executing config command with args '{words}'")
        say(with_class(e) if isinstance(e, AdminError) else str(e))
        return 1
    return 0


def _hide(options: Options) -> list[str]:
    """Return the command line for a message: Kafka repeats it whole, but added values may be passwords."""
    shown = []
    for option in OPTIONS:
        if options.has(option.name):
            values = [] if option.value is None else options.all(option.name)
            if option.name == "add-config":
                values = ["[hidden]"] * len(values)
            shown += [f"--{option.name}", *values]
    return shown


def _entities(options: Options) -> _Entities:
    words = [f for f in _FLAGS if options.has(f)]
    defaults = [f for f in _DEFAULT_FLAGS if options.has(f)]
    types = [*options.all("entity-type"), *(_FLAGS[f] for f in words), *(_DEFAULT_FLAGS[f] for f in defaults)]
    # Kafka's parser gives names and defaults in the order of the command line
    names = [*options.named_in_order("entity-name", "entity-default"), *(options.text(f) for f in words)]
    return _Entities(types=tuple(types), names=(*names, *("" for _ in defaults)))


def _check(options: Options, entities: _Entities) -> None:
    if sum(options.has(a) for a in ("alter", "describe")) != 1:
        raise UsageError("Command must include exactly one action: --describe, --alter")
    options.exclude("describe", ["alter", "add-config", "delete-config"])
    types = entities.types
    doubles = [t for i, t in enumerate(types) if t in types[:i]]
    if doubles:
        raise UsageError(f"Duplicate entity type(s) specified: {','.join(doubles)}")
    if not options.has("bootstrap-server") and not options.has("bootstrap-controller"):
        raise UsageError("Either --bootstrap-server or --bootstrap-controller must be specified.")
    for t in types:
        if t not in _ALLOWED:
            raise UsageError(
                f"Invalid entity type {t}, the entity type must be one of {', '.join(_ALLOWED)} with a"
                " --bootstrap-server or --bootstrap-controller argument"
            )
    if not types:
        raise UsageError("At least one entity type must be specified")
    if len(types) > 1 and set(types) != {"users", "clients"}:
        raise UsageError("Only 'users' and 'clients' entity types may be specified together")
    general = any(options.has(o) for o in ("entity-name", "entity-type", "entity-default"))
    if general and any(options.has(f) for f in (*_FLAGS, *_DEFAULT_FLAGS)):
        raise UsageError(
            "--entity-{type,name,default} should not be used in conjunction with specific entity flags"
        )
    if options.has("bootstrap-server") and options.has("bootstrap-controller"):
        raise UsageError("Only one of --bootstrap-server or --bootstrap-controller can be specified")
    _check_names(options, entities)
    if options.has("alter"):
        _check_alter(options, entities)


def _check_names(options: Options, entities: _Entities) -> None:
    first = entities.types[0]
    named = [n for n in entities.names if n]
    if first in ("brokers", "broker-loggers"):
        for name in named:
            if not re.fullmatch(r"[+-]?[0-9]+", name):
                raise UsageError(
                    f"The entity name for {first} must be a valid integer broker id, but it is: {name}"
                )
    if first == "ips":
        for name in named:
            try:
                socket.getaddrinfo(name, None)
            except OSError:
                raise UsageError(
                    f"The entity name for {first} must be a valid IP or resolvable host, but it is: {name}"
                ) from None
    if options.has("describe"):
        said = ",".join(entities.types)
        if options.has("entity-default") and not _WITH_DEFAULT & set(entities.types):
            raise UsageError(f"--entity-default must not be specified with --describe of {said}")
        if "broker-loggers" in entities.types and not named:
            raise UsageError(f"An entity name must be specified with --describe of {said}")


def _check_alter(options: Options, entities: _Entities) -> None:
    named = any(entities.names)
    if _WITH_DEFAULT & set(entities.types):
        if not entities.names:
            raise UsageError(
                "An entity-name or default entity must be specified with --alter of users, clients, brokers or ips"
            )
    elif not named:
        raise UsageError(f"An entity name must be specified with --alter of {','.join(entities.types)}")
    if options.has("add-config") and options.has("add-config-file"):
        raise UsageError("Only one of --add-config or --add-config-file must be specified")
    if not any(options.has(o) for o in ("add-config", "add-config-file", "delete-config")):
        raise UsageError(
            "At least one of --add-config, --add-config-file, or --delete-config must be specified with --alter"
        )
    if len(entities.types) != len(entities.names):
        raise UsageError("An entity name must be specified for every entity type")


def _change(options: Options) -> Change:
    path = options.get("add-config-file")
    put: Mapping[str, str] = read_properties(path) if path else {}
    if options.has("add-config"):
        put = {**put, **parse_added(options.text("add-config"))}
    delete = [k.strip() for text in options.all("delete-config") for k in text.split(",")]
    return Change(put=put, delete=delete)


# ---- alter


async def _alter(admin: Admin, entities: _Entities, change: Change) -> None:
    await apply_change(admin, entities.types, entities.names, change)
    kind, name = entities.types[0], entities.names[0]
    if name:
        sys.stdout.write(f"Completed updating config for {kind[:-1]} {name}.\n")
    else:
        sys.stdout.write(f"Completed updating default config for {kind} in the cluster.\n")


# ---- describe


async def _describe(admin: Admin, entities: _Entities, *, everything: bool) -> None:
    kind = entities.types[0]
    if kind in RESOURCES:
        await _describe_resources(admin, kind, entities.names[:1], everything=everything)
        return
    kinds = quota_entity(entities.types, entities.names)
    for quotas in await describe_quotas(admin, kinds):
        sys.stdout.write(_quota_line(quotas))
    if kind != "ips" and "clients" not in entities.types and "" not in entities.names:
        await _describe_scram(admin, entities.names)


async def _describe_resources(admin: Admin, kind: str, names: Sequence[str], *, everything: bool) -> None:
    for name in names:
        if not everything and not await exists(admin, kind, name):
            sys.stdout.write(f"The {kind[:-1]} '{name}' doesn't exist and doesn't have dynamic config.\n")
            return
    for name in names or await names_of(admin, kind):
        if name:
            which = "All" if everything else "Dynamic"
            sys.stdout.write(f"{which} configs for {kind[:-1]} {name} are:\n")
        else:
            sys.stdout.write(f"Default configs for {kind} in the cluster are:\n")
        own = RESOURCES[kind].own_source(name)
        entries = await api.describe_config(admin, RESOURCES[kind].resource, name)
        for entry in sorted(entries, key=lambda e: e.name):
            if everything or own is None or entry.source == own:
                sys.stdout.write(_entry_line(entry))


def _entry_line(entry: api.Entry) -> str:
    synonyms = ", ".join(f"{s.source}:{s.name}={_shown(s.value)}" for s in entry.synonyms)
    sensitive = str(entry.sensitive).lower()
    return f"  {entry.name}={_shown(entry.value)} sensitive={sensitive} synonyms={{{synonyms}}}\n"


def _shown(value: str | None) -> str:
    return "null" if value is None else value


def _quota_line(quotas: Quotas) -> str:
    given = dict(quotas.entity)
    parts = [
        f"the default {word}" if given[kind] is None else f"{word} '{given[kind]}'"
        for kind, word in _ENTITY_WORDS.items()
        if kind in given
    ]
    values = ", ".join(f"{k}={java_double(v)}" for k, v in quotas.values.items())
    return f"Quota configs for {', '.join(parts)} are {values}\n"


def java_double(value: float) -> str:
    """Return a number as Java prints a double: 1024.0, 1.2345678E7, 1.0E-4."""
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    digits = Decimal(repr(value)).normalize()
    mantissa = digits.scaleb(-digits.adjusted())
    return f"{mantissa:f}{'' if '.' in f'{mantissa:f}' else '.0'}E{digits.adjusted()}"


async def _describe_scram(admin: Admin, users: Sequence[str]) -> None:
    for found in await describe_credentials(admin, users):
        if found.error is None:
            text = ", ".join(f"{m}=iterations={n}" for m, n in found.iterations.items())
            sys.stdout.write(f"SCRAM credential configs for user-principal '{found.user}' are {text}\n")
        elif found.error.code != ErrorCode.RESOURCE_NOT_FOUND:
            name = with_class(found.error).partition(":")[0].rpartition(".")[2]
            sys.stdout.write(
                f"Error retrieving SCRAM credential configs for user-principal '{found.user}': {name}:"
                f" {reason(found.error)}\n"
            )
