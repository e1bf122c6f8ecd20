"""`klamm up`: everything on this machine with one command."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from klamm.cli.common import EXIT_USAGE, reported
from klamm.cli.context import utf8_path

if TYPE_CHECKING:
    from klamm.security.folder import SecurityFolder

BROKER_PORT: Final = 9092
REST_PORT: Final = 8083
METRICS_PORT: Final = 9404


def up(
    data_dir: Annotated[
        Path, typer.Option("--data-dir", callback=utf8_path, help="Where topics and settings are kept.")
    ] = Path("klamm-data"),
    broker_port: Annotated[
        int | None,
        typer.Option("--broker-port", min=0, max=65535, help=f"Broker; default {BROKER_PORT}, 0: any free."),
    ] = None,
    rest_port: Annotated[
        int | None,
        typer.Option(
            "--rest-port", min=0, max=65535, help=f"Connect's REST; default {REST_PORT}, 0: any free."
        ),
    ] = None,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            "--metrics-port",
            min=0,
            max=65535,
            help=f"The broker's /metrics; default {METRICS_PORT}, 0: any free.",
        ),
    ] = None,
    secure: Annotated[
        bool | None,
        typer.Option(
            "--secure/--no-secure",
            help="TLS and logins for broker, REST and metrics. The first start makes an authority, certificates, and the "
            "users admin and app, in DATA_DIR/security. Default: as DATA_DIR was served before.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Run a broker and a Connect worker on loopback.

    Ctrl-C stops both cleanly. Prints `ready broker=… rest=… metrics=… data-dir=…` once both serve. A default port
    that is taken is replaced by a free one, and said; a port that was asked for must be free.

    With --secure, three lines more say what a client needs: addresses, the files of the users, and the authority.
    """
    import asyncio

    from klamm.up import embedded, ports, supervisor
    from klamm_base.files import exposed

    # The lock first: a directory that is in use ends the command, which then needs no ports
    with reported(server=True), embedded.locked(data_dir):
        if (said := exposed(data_dir)) is not None:
            typer.echo(said, err=True)
        broker, said_broker = ports.choose(broker_port, BROKER_PORT, "--broker-port")
        rest, said_rest = ports.choose(rest_port, REST_PORT, "--rest-port", frozenset({broker}))
        taken = frozenset({broker, rest})
        metrics, said_metrics = ports.choose(metrics_port, METRICS_PORT, "--metrics-port", taken)
        for said in filter(None, (said_broker, said_rest, said_metrics)):
            typer.echo(said, err=True)
        folder = _secured(data_dir) if _wants_security(data_dir, secure) else None
        specs = embedded.children(data_dir, broker, rest, metrics, folder)
        scheme = "https" if folder is not None else "http"
        line = (
            f"ready broker=127.0.0.1:{broker} rest={scheme}://127.0.0.1:{rest} "
            f"metrics={scheme}://127.0.0.1:{metrics}/metrics data-dir={data_dir}"
        )
        if folder is not None:
            line += "\n" + _client_lines(folder, broker)
        try:
            asyncio.run(supervisor.run(specs, lambda: typer.echo(line)))
        except supervisor.NotReadyError as e:
            if e.code == EXIT_USAGE:  # the child has said what is wrong with its settings
                raise typer.Exit(EXIT_USAGE) from None
            raise


def _wants_security(data_dir: Path, asked: bool | None) -> bool:
    """Tells whether to serve with TLS and logins. What was served so is not served openly by a forgotten option."""
    had = (data_dir / "security").is_dir()
    if had and asked is False:
        typer.echo(f"{data_dir} was made with --secure: everybody on this machine can read it now", err=True)
    return had if asked is None else asked


def _secured(data_dir: Path) -> SecurityFolder:
    """Returns the folder of a safe system, made where it is not. The broker, which does not run yet, knows its users then."""
    import datetime as dt

    from klamm.security.folder import LOCAL_HOSTS, SecurityFolder

    folder = SecurityFolder.open(data_dir / "security", LOCAL_HOSTS, dt.datetime.now(dt.UTC))
    folder.store_users(data_dir / "broker")
    return folder


def _client_lines(folder: SecurityFolder, port: int) -> str:
    from klamm.security.folder import ADMIN, APP

    return "\n".join(
        [
            f"client bootstrap.servers=127.0.0.1:{port}",
            f"client login={folder.client_file(APP)} (administrator: {folder.client_file(ADMIN)})",
            f"client authority={folder.authority}",
        ]
    )
