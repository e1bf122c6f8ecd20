"""`klamm config`: settings of topics, brokers, groups and client metrics; quotas and credentials of users and clients."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from klamm.cli.cluster import AdminCluster
from klamm.cli.common import reported
from klamm.cli.context import Commands
from klamm.cli.output import Format, FormatOption, print_rows
from klamm_base.errors import KlammError

if TYPE_CHECKING:
    from klamm.admin.client import Admin

app = Commands(help="Show and alter settings of topics, brokers …", no_args_is_help=True)

_KINDS = ("topics", "brokers", "broker-loggers", "groups", "client-metrics", "users", "clients", "ips")
EntityType = Annotated[
    list[str],
    typer.Option("--entity-type", help=f"{', '.join(_KINDS)}; users and clients may stand together."),
]
EntityName = Annotated[
    list[str] | None,
    typer.Option(
        "--entity-name", help="Its name (a broker's id); one for each --entity-type. '': the default."
    ),
]
EntityDefault = Annotated[
    bool,
    typer.Option(
        "--entity-default", help="The defaults of all brokers, users, clients or ips that are not named."
    ),
]


def _entity(types: Sequence[str], names: Sequence[str] | None, *, default: bool) -> list[str]:
    """Return the entities' names, "" for a default. Raises BadParameter for a combination that makes no sense."""
    for kind in types:
        if kind not in _KINDS:
            raise typer.BadParameter(
                f"{kind!r} is not one of {', '.join(_KINDS)}", param_hint="--entity-type"
            )
    if len(types) > 1 and sorted(types) != ["clients", "users"]:
        raise typer.BadParameter("only users and clients may stand together", param_hint="--entity-type")
    given = list(names or [])
    if default:
        given += [""] * (len(types) - len(given))
    if len(given) > len(types):
        raise typer.BadParameter("more names than --entity-type options", param_hint="--entity-name")
    if "" in given and types[0] not in {"brokers", "users", "clients", "ips"}:
        raise typer.BadParameter(f"{types[0]} have no defaults of their own", param_hint="--entity-default")
    if types[0] in {"brokers", "broker-loggers"}:
        for name in given:
            if name and not re.fullmatch(r"[0-9]+", name):
                raise typer.BadParameter(f"{name!r} is no broker id", param_hint="--entity-name")
    return given


@app.command()
def describe(
    cluster: AdminCluster,
    entity_type: EntityType,
    entity_name: EntityName = None,
    entity_default: EntityDefault = False,
    everything: Annotated[
        bool, typer.Option("--all", help="All settings, also those from files and defaults.")
    ] = False,
    output: FormatOption = Format.TABLE,
) -> None:
    """Print settings that differ from the defaults, or --all.

    Without --entity-name it prints those of every entity of that type.
    """
    names = _entity(entity_type, entity_name, default=entity_default)
    if entity_type[0] == "broker-loggers" and not names:
        raise typer.BadParameter("name the broker that has the loggers", param_hint="--entity-name")
    with reported():
        from klamm.admin.config_entities import RESOURCES

        if entity_type[0] in RESOURCES:
            rows = cluster.ask(
                lambda a: _settings(a, entity_type[0], names, everything=everything),
            )
            columns = ["entity_type", "entity_name", "name", "value", "source"]
            print_rows(rows, columns, output, wide=["read_only", "sensitive", "synonyms"])
        else:
            rows = cluster.ask(lambda a: _quotas(a, entity_type, names))
            print_rows(rows, ["user", "client_id", "ip", "name", "value"], output)


async def _settings(
    admin: Admin, kind: str, names: Sequence[str], *, everything: bool
) -> list[dict[str, Any]]:
    from klamm.admin.config_entities import RESOURCES, exists, names_of
    from klamm.admin.configs import describe_config

    for name in names:
        if name and not await exists(admin, kind, name):
            raise KlammError(f"no {kind.removesuffix('s')} {name!r}")
    rows = []
    for name in names or await names_of(admin, kind):
        own = RESOURCES[kind].own_source(name)
        entries = await describe_config(admin, RESOURCES[kind].resource, name)
        rows += [
            {
                "entity_type": kind,
                "entity_name": name or "(default)",
                "name": e.name,
                "value": e.value,
                "source": e.source,
                "read_only": e.read_only,
                "sensitive": e.sensitive,
                "synonyms": [f"{s.source}:{s.name}={s.value}" for s in e.synonyms],
            }
            for e in sorted(entries, key=lambda e: e.name)
            if everything or own is None or e.source == own
        ]
    return rows


async def _quotas(admin: Admin, types: Sequence[str], names: Sequence[str]) -> list[dict[str, Any]]:
    from klamm.admin.config_entities import quota_entity
    from klamm.admin.quotas import describe_credentials, describe_quotas

    rows: list[dict[str, Any]] = []
    for quotas in await describe_quotas(admin, quota_entity(types, names)):
        given = {k.replace("-", "_"): "(default)" if n is None else n for k, n in quotas.entity}
        rows += [
            {**dict.fromkeys(("user", "client_id", "ip")), **given, "name": k, "value": v}
            for k, v in quotas.values.items()
        ]
    if types == ["users"] and "" not in names:
        rows += [
            {"user": found.user, "client_id": None, "ip": None, "name": m, "value": f"iterations={n}"}
            for found in await describe_credentials(admin, names)
            for m, n in found.iterations.items()
        ]
    return rows


@app.command()
def alter(
    cluster: AdminCluster,
    entity_type: EntityType,
    entity_name: EntityName = None,
    entity_default: EntityDefault = False,
    add_config: Annotated[
        list[str] | None,
        typer.Option("--add-config", metavar="K=V,...", help="Set; values with commas in brackets: k=[a,b]."),
    ] = None,
    add_config_file: Annotated[
        Path | None, typer.Option("--add-config-file", help="Set what this .properties file has.")
    ] = None,
    delete_config: Annotated[
        list[str] | None, typer.Option("--delete-config", metavar="K,...", help="Go back to the default.")
    ] = None,
) -> None:
    """Set and delete settings, quotas or SCRAM credentials."""
    names = _entity(entity_type, entity_name, default=entity_default)
    if len(names) < len(entity_type):
        raise typer.BadParameter(
            "name each --entity-type, or give --entity-default", param_hint="--entity-name"
        )
    if not (add_config or add_config_file or delete_config):
        raise typer.BadParameter("give --add-config, --add-config-file or --delete-config")
    with reported():
        from klamm.admin.config_entities import (
            Change,
            ConfigError,
            apply_change,
            parse_added,
            read_properties,
        )
        from klamm.admin.missing import not_set

        put: dict[str, str] = read_properties(str(add_config_file)) if add_config_file else {}
        try:
            for text in add_config or ():
                put |= parse_added(text)
        except ConfigError as e:
            raise typer.BadParameter(str(e), param_hint="--add-config") from None
        delete = [k.strip() for text in delete_config or () for k in text.split(",")]
        change = Change(put=put, delete=delete)

        async def act(admin: Admin) -> list[str]:
            absent = await not_set(admin, entity_type[0], names[0], delete)
            await apply_change(admin, entity_type, names, change)
            return absent

        absent = cluster.ask(act)
        shown = ", ".join(
            f"{t} {n}" if n else f"the default of {t}" for t, n in zip(entity_type, names, strict=True)
        )
        for key in absent:
            typer.echo(f"klamm: {key} was not set for {shown}", err=True)
        typer.echo(f"altered {shown}")
