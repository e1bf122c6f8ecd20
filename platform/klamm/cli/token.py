"""`klamm token`: delegation tokens (KIP-48), with which jobs log in without their user's password."""

from __future__ import annotations

import base64
import binascii
import sys
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from klamm.cli.cluster import AdminCluster
from klamm.cli.common import reported
from klamm.cli.context import Commands
from klamm.cli.output import Format, FormatOption, print_rows
from klamm_base.errors import ConfigError

if TYPE_CHECKING:
    from klamm.admin.tokens import Principal, Token

app = Commands(help="Make, renew, end and list delegation tokens.", no_args_is_help=True)

_COLUMNS: Final = ("id", "owner", "requester", "renewers", "issued", "expires", "max")
Lifetime = Annotated[
    int, typer.Option("--period-ms", min=-1, help="In ms from now; -1: what the broker's properties say.")
]


@app.command()
def create(
    cluster: AdminCluster,
    owner: Annotated[
        str | None, typer.Option("--owner", help="Another user than the one of --command-config: User:NAME.")
    ] = None,
    renewer: Annotated[
        list[str] | None, typer.Option("--renewer", help="Who else may renew it; may be given several times.")
    ] = None,
    max_lifetime_ms: Annotated[
        int, typer.Option("--max-lifetime-ms", min=-1, help="The longest life in ms; -1: the broker's.")
    ] = -1,
) -> None:
    """Make a token and print the settings of its login.

    A client with these two settings logs in by the token. What is printed has the token's password: send it to a file that only its user can read.
    """
    with reported():
        from klamm.admin.tokens import create_token

        whose = None if owner is None else _principal(owner)
        renewers = [_principal(word) for word in renewer or ()]
        token = cluster.ask(
            lambda a: create_token(a, owner=whose, renewers=renewers, max_lifetime_ms=max_lifetime_ms)
        )
        password = base64.b64encode(token.hmac).decode()
        typer.echo(f"sasl.mechanism={_mechanism(cluster)}")
        typer.echo(
            "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required "
            f'username="{token.id}" password="{password}" tokenauth="true";'
        )
        ends = _row(token)
        typer.echo(
            f"token {token.id} of {ends['owner']} expires {ends['expires']}; renewed, it lives until {ends['max']}",
            err=True,
        )


def _mechanism(cluster: AdminCluster) -> str:
    """Returns the mechanism for a token's logins: that of this command where it is SCRAM, since the broker has it enabled."""
    from klamm.admin.settings import client_settings

    sasl = client_settings(cluster.bootstrap, cluster.command_config).security.sasl
    return sasl.mechanism if sasl is not None and sasl.mechanism.startswith("SCRAM-") else "SCRAM-SHA-256"


@app.command("list")
def list_tokens(
    cluster: AdminCluster,
    owner: Annotated[
        list[str] | None,
        typer.Option("--owner", help="Only tokens of this user; may be given several times."),
    ] = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """List the tokens that the user may see.

    These are its own, those that it may renew, and those that it may describe. Passwords are not shown.
    """
    with reported():
        from klamm.admin.tokens import describe_tokens

        owners = [_principal(word) for word in owner or ()]
        tokens = cluster.ask(lambda a: describe_tokens(a, owners))
        print_rows([_row(token) for token in tokens], list(_COLUMNS), output)


@app.command()
def renew(cluster: AdminCluster, period_ms: Lifetime = -1) -> None:
    """Let a token live longer. Its password (HMAC, base64) is read from standard input or asked for."""
    with reported():
        from klamm.admin.tokens import renew_token

        hmac = _hmac()
        typer.echo(f"expires {_moment(cluster.ask(lambda a: renew_token(a, hmac, period_ms)))}")


@app.command()
def expire(
    cluster: AdminCluster,
    period_ms: Annotated[int, typer.Option("--period-ms", min=-1, help="In ms from now; -1: at once.")] = -1,
) -> None:
    """End a token. Its password (HMAC, base64) is read from standard input or asked for."""
    with reported():
        from klamm.admin.tokens import expire_token

        hmac = _hmac()
        typer.echo(f"expires {_moment(cluster.ask(lambda a: expire_token(a, hmac, period_ms)))}")


def _row(token: Token) -> dict[str, Any]:
    return {
        "id": token.id,
        "owner": ":".join(token.owner),
        "requester": ":".join(token.requester),
        "renewers": [":".join(renewer) for renewer in token.renewers],
        "issued": _moment(token.issued_ms),
        "expires": _moment(token.expires_ms),
        "max": _moment(token.max_ms),
    }


def _moment(moment_ms: int) -> str:
    import datetime as dt

    return dt.datetime.fromtimestamp(moment_ms / 1000, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _principal(word: str) -> Principal:
    kind, colon, name = word.partition(":")
    if not colon:
        kind, name = "User", kind
    if not (kind and name):
        raise ConfigError(f"{word!r} is no user: write User:NAME or NAME")
    return kind, name


def _hmac() -> bytes:
    given = str(typer.prompt("HMAC", hide_input=True)) if sys.stdin.isatty() else sys.stdin.readline().strip()
    try:
        found = base64.b64decode(given, validate=True)
    except binascii.Error:
        found = b""
    if not found:
        raise ConfigError("the HMAC is not base64; it is the password that `klamm token create` printed")
    return found
