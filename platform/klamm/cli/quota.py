"""`klamm quota`: how fast users, clients and addresses may be (KIP-546)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final

import typer

from klamm.cli.cluster import AdminCluster
from klamm.cli.common import reported
from klamm.cli.context import Commands
from klamm.cli.output import Format, FormatOption, print_rows
from klamm_base.errors import KlammError
from klamm_base.properties import suggestion

app = Commands(help="Show and set quotas of users and clients.", no_args_is_help=True)

KEYS: Final = ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate")
IP_KEYS: Final = ("connection_creation_rate",)
User = Annotated[str | None, typer.Option("--user", help="This user.")]
UserDefault = Annotated[bool, typer.Option("--user-default", help="Each user without a value of its own.")]
ClientId = Annotated[
    str | None, typer.Option("--client-id", help="This client id; with a user, of that user.")
]
ClientDefault = Annotated[
    bool, typer.Option("--client-default", help="Each client id without a value of its own.")
]
Ip = Annotated[str | None, typer.Option("--ip", help="This address or host.")]
IpDefault = Annotated[bool, typer.Option("--ip-default", help="Each address without a value of its own.")]
Entity = tuple[tuple[str, str | None], ...]


@app.command("list")
def list_quotas(
    cluster: AdminCluster,
    user: User = None,
    client_id: ClientId = None,
    ip: Ip = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """List quotas: all, or those of a user, client id, address."""
    with reported():
        from klamm.admin.quotas import all_quotas

        wanted = {kind: name for kind, name in (("user", user), ("client-id", client_id), ("ip", ip)) if name}
        rows: list[dict[str, Any]] = [
            {
                **dict.fromkeys(("user", "client_id", "ip")),
                **{k.replace("-", "_"): "(default)" if n is None else n for k, n in found.entity},
                "name": key,
                "value": _shown(value),
            }
            for found in cluster.ask(all_quotas)
            if wanted.items() <= dict(found.entity).items()
            for key, value in sorted(found.values.items())
        ]
        print_rows(rows, ["user", "client_id", "ip", "name", "value"], output)


@app.command("set")
def set_quotas(
    cluster: AdminCluster,
    values: Annotated[
        list[str], typer.Argument(metavar="KEY=VALUE...", help="For example producer_byte_rate=1000000.")
    ],
    user: User = None,
    user_default: UserDefault = False,
    client_id: ClientId = None,
    client_default: ClientDefault = False,
    ip: Ip = None,
    ip_default: IpDefault = False,
) -> None:
    """Set quotas of a user, a client id, both together, or an address. They hold from the next request on."""
    entity = _entity((user, user_default), (client_id, client_default), (ip, ip_default))
    put: dict[str, float] = {}
    for text in values:
        key, equals, value = text.partition("=")
        _check(entity, key)
        try:
            put[key] = float(value)
        except ValueError:
            why = f"{key} needs a number, as {key}=1000" + (f", not {value!r}" if equals else "")
            raise typer.BadParameter(why, param_hint="KEY=VALUE") from None
    with reported():
        from klamm.admin.quotas import alter_quotas

        cluster.ask(lambda admin: alter_quotas(admin, entity, put=put, delete=()))
        for key, number in put.items():
            typer.echo(f"{_words(entity)}: {key}={_shown(number)}")


@app.command()
def unset(
    cluster: AdminCluster,
    keys: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY...]", help="Without one: all that it has.")
    ] = None,
    user: User = None,
    user_default: UserDefault = False,
    client_id: ClientId = None,
    client_default: ClientDefault = False,
    ip: Ip = None,
    ip_default: IpDefault = False,
) -> None:
    """Remove quotas of a user, a client id, both together, or an address."""
    entity = _entity((user, user_default), (client_id, client_default), (ip, ip_default))
    for key in keys or ():
        _check(entity, key)
    with reported():
        from klamm.admin.quotas import all_quotas, alter_quotas

        found = cluster.ask(all_quotas)
        there = [key for each in found if set(each.entity) == set(entity) for key in sorted(each.values)]
        gone = [key for key in keys if key in there] if keys else there
        if not gone:
            raise KlammError(
                f"{_words(entity)} has no such quota" if keys else f"{_words(entity)} has no quotas"
            )
        cluster.ask(lambda admin: alter_quotas(admin, entity, put={}, delete=gone))
        typer.echo(f"{_words(entity)}: removed {', '.join(gone)}")


def _entity(*given: tuple[str | None, bool]) -> Entity:
    """Returns the entity of (name, whether the default) for user, client id and address. Raises BadParameter."""
    parts: list[tuple[str, str | None]] = []
    for kind, (name, default) in zip(("user", "client-id", "ip"), given, strict=True):
        if name and default:
            option = f"--{kind}"
            raise typer.BadParameter("give a name or the default, not both", param_hint=option)
        if name or default:
            parts.append((kind, name or None))
    kinds = {kind for kind, _ in parts}
    if not parts:
        raise typer.BadParameter("say whose quota: --user, --client-id or --ip, or a default of them")
    if "ip" in kinds and len(kinds) > 1:
        raise typer.BadParameter(
            "an address has quotas of its own, without user or client id", param_hint="--ip"
        )
    return tuple(parts)


def _check(entity: Entity, key: str) -> None:
    known: Sequence[str] = IP_KEYS if entity[0][0] == "ip" else KEYS
    if key not in known:
        hint = suggestion(key, known) or f": use one of {', '.join(known)}"
        raise typer.BadParameter(f"{key!r} is no quota of {entity[0][0]}s{hint}", param_hint="KEY")


def _shown(value: float) -> str:
    return f"{value:.0f}" if value.is_integer() else str(value)


def _words(entity: Entity) -> str:
    return ", ".join(f"{kind} {name}" if name is not None else f"any {kind}" for kind, name in entity)
