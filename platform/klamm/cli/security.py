"""`klamm security`: an authority, certificates and first users for servers that strangers can reach."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from klamm.cli.common import reported
from klamm.cli.context import Commands, utf8_path

app = Commands(help="Make certificates and first users.", no_args_is_help=True)

Folder = Annotated[
    Path, typer.Argument(metavar="FOLDER", callback=utf8_path, help="The folder of keys and users.")
]
Hosts = Annotated[
    list[str] | None,
    typer.Option(
        "--host", help="A name or address by which clients reach the server; may be given several times."
    ),
]


@app.command()
def init(
    folder: Folder,
    host: Hosts = None,
    port: Annotated[int, typer.Option("--port", min=1, max=65535, help="The broker's port.")] = 9093,
    log_dir: Annotated[
        Path,
        typer.Option(
            "--log-dir", callback=utf8_path, help="The broker's data; its first users are put there."
        ),
    ] = Path("klamm-data/broker"),
) -> None:
    """Prepare a broker with TLS, logins and permissions.

    The broker must not run yet. Makes an authority, a certificate for the hosts (default: this machine), and the users admin, app and connect with
    random passwords. Writes their clients' files and the broker's server.properties. What is there already is kept.
    """
    import datetime as dt
    import socket

    from klamm.security.folder import ADMIN, LOCAL_HOSTS, SecurityFolder
    from klamm_base.properties import load_properties

    with reported():
        hosts = [*(host or [socket.getfqdn()]), *LOCAL_HOSTS]
        made = SecurityFolder.open(folder, list(dict.fromkeys(hosts)), dt.datetime.now(dt.UTC))
        made.store_users(log_dir)
        server = made.write_server(hosts[0], port, log_dir)
        address = load_properties(server)["advertised.listeners"].rpartition("/")[2]
        if address != f"{hosts[0]}:{port}":
            typer.echo(
                f"{server} was there and stays as it is: clients reach the broker at {address}", err=True
            )
        typer.echo(f"start the broker:  klamm broker start {server}")
        typer.echo(f"clients log in by: {made.client_file('app')} (administrator: {made.client_file(ADMIN)})")
        typer.echo(f"clients trust:     {made.authority}")
        typer.echo(
            f"app and connect have no rights yet: klamm acl add app … -b {address} --command-config {made.client_file(ADMIN)}"
        )


@app.command()
def renew(folder: Folder, host: Hosts = None) -> None:
    """Replace the servers' certificate, for the same hosts or others. A broker that runs takes it within seconds."""
    import datetime as dt

    from klamm.security.authority import hosts_of
    from klamm.security.folder import renew as renewed

    with reported():
        signed = renewed(folder, host or [], dt.datetime.now(dt.UTC))
        typer.echo(f"valid until {signed.ends():%Y-%m-%d} for {', '.join(hosts_of(signed.certificate))}")
