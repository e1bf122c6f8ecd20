"""`klamm user`: the users who log in by SCRAM (KIP-554)."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from klamm.cli.cluster import AdminCluster
from klamm.cli.common import reported
from klamm.cli.context import Commands
from klamm.cli.output import Format, FormatOption, print_rows
from klamm_base.errors import ConfigError, KlammError

if TYPE_CHECKING:
    from klamm.admin.quotas import Credential

app = Commands(help="Add, list and remove users with passwords.", no_args_is_help=True)

MECHANISM: Final = "SCRAM-SHA-512"
User = Annotated[str, typer.Argument(metavar="USER", help="The user's name.")]
Mechanism = Annotated[
    str, typer.Option("--mechanism", help="SCRAM-SHA-512 or SCRAM-SHA-256; the broker must have it enabled.")
]
Iterations = Annotated[int, typer.Option("--iterations", min=4096, max=16384, help="Of the password's hash.")]
PasswordFile = Annotated[
    Path | None,
    typer.Option(
        "--password-file", help="A file whose first line is the password. Without it, the command asks."
    ),
]


@app.command()
def add(
    cluster: AdminCluster,
    user: User,
    mechanism: Mechanism = MECHANISM,
    iterations: Iterations = 4096,
    password_file: PasswordFile = None,
) -> None:
    """Add a user. The password is read from a file, asked for, or read from standard input where that is no terminal."""
    with reported():
        _check(mechanism)
        if any(mechanism in found.iterations for found in _known(cluster, user)):
            raise KlammError(f"user {user!r} is there already; `klamm user passwd` changes the password")
        _put(cluster, user, mechanism, iterations, password_file)
        typer.echo(f"added {user} ({mechanism}); give permissions by `klamm acl add`")


@app.command()
def passwd(
    cluster: AdminCluster,
    user: User,
    mechanism: Mechanism = MECHANISM,
    iterations: Iterations = 4096,
    password_file: PasswordFile = None,
) -> None:
    """Change a user's password. Connections that have logged in stay."""
    with reported():
        _check(mechanism)
        if not any(mechanism in found.iterations for found in _known(cluster, user)):
            raise KlammError(f"no user {user!r} with {mechanism}; `klamm user add` makes one")
        _put(cluster, user, mechanism, iterations, password_file)
        typer.echo(f"changed the password of {user} ({mechanism})")


@app.command("list")
def list_users(cluster: AdminCluster, output: FormatOption = Format.TABLE) -> None:
    """List users, their mechanisms and iterations."""
    with reported():
        from klamm.admin.quotas import describe_credentials

        rows = [
            {"user": found.user, "mechanism": mechanism, "iterations": iterations}
            for found in cluster.ask(lambda admin: describe_credentials(admin, []))
            for mechanism, iterations in sorted(found.iterations.items())
        ]
        print_rows(rows, ["user", "mechanism", "iterations"], output)


@app.command()
def remove(
    cluster: AdminCluster,
    user: User,
    mechanism: Annotated[
        str | None, typer.Option("--mechanism", help="Only the credentials of this mechanism.")
    ] = None,
) -> None:
    """Remove a user's credentials. The user's ACLs and quotas stay."""
    with reported():
        from klamm.admin.quotas import alter_credentials

        if mechanism is not None:
            _check(mechanism)
        there = [m for found in _known(cluster, user) for m in found.iterations if mechanism in {None, m}]
        if not there:
            raise KlammError(f"no user {user!r}" + (f" with {mechanism}" if mechanism else ""))
        cluster.ask(lambda admin: alter_credentials(admin, user, put={}, delete=there))
        typer.echo(f"removed {user} ({', '.join(there)})")


def _check(mechanism: str) -> None:
    from klamm.admin.quotas import MECHANISMS

    if mechanism not in MECHANISMS:
        raise ConfigError(f"--mechanism {mechanism}: use one of {', '.join(MECHANISMS)}")


def _known(cluster: AdminCluster, user: str) -> list[Credential]:
    """Returns the user's credentials; none where there is no such user. Raises AdminError."""
    from klamm.admin.quotas import describe_credentials
    from klamm_kafka.wire.errors import ErrorCode

    found = cluster.ask(lambda admin: describe_credentials(admin, [user]))
    for each in found:
        if each.error is not None and each.error.code != ErrorCode.RESOURCE_NOT_FOUND:
            raise each.error
    return [each for each in found if each.error is None]


def _put(
    cluster: AdminCluster, user: str, mechanism: str, iterations: int, password_file: Path | None
) -> None:
    from klamm.admin.quotas import alter_credentials

    password = _password(password_file)
    put = {mechanism: (iterations, password)}
    cluster.ask(lambda admin: alter_credentials(admin, user, put=put, delete=[]))


def _password(file: Path | None) -> str:
    if file is not None:
        try:
            given = file.read_text(encoding="utf-8").partition("\n")[0]
        except OSError as e:
            raise ConfigError(f"--password-file {file}: {e.strerror or e}") from None
        except UnicodeDecodeError:
            raise ConfigError(f"--password-file {file}: is not UTF-8") from None
    elif sys.stdin.isatty():
        given = str(typer.prompt("Password", hide_input=True, confirmation_prompt=True))
    else:
        given = sys.stdin.readline().rstrip("\n")
    if not given:
        raise ConfigError("the password is empty")
    return given
