"""`klamm up`: everything on this machine with one command."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from klamm.cli.common import EXIT_USAGE, reported
from klamm.cli.context import utf8_path
from klamm.up.extras import EXTRAS, Extra, options
from klamm_base.errors import ConfigError, KlammError

if TYPE_CHECKING:
    from klamm.security.folder import SecurityFolder
    from klamm.up.supervisor import ChildSpec

BROKER_PORT: Final = 9092
REST_PORT: Final = 8083
METRICS_PORT: Final = 9404


@options
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
            "users admin, app and connect, in DATA_DIR/security. Default: as DATA_DIR was served before.",
            show_default=False,
        ),
    ] = None,
    **chosen: Any,
) -> None:
    """Run the servers of one machine on loopback.

    They are a broker, a Connect worker and their companions. Ctrl-C stops all cleanly. Prints `ready broker=… rest=… metrics=… data-dir=…` once all serve. A default port
    that is taken is replaced by a free one, and said; a port that was asked for must be free. With --secure, three lines
    more say what a client needs: addresses, the files of the users, and the authority.
    """
    from klamm.up import embedded, ports
    from klamm_base.files import exposed

    # The lock first: a directory that is in use ends the command, which then needs no ports
    with reported(server=True), embedded.locked(data_dir):
        _tell(exposed(data_dir))
        broker, said_broker = ports.choose(broker_port, BROKER_PORT, "--broker-port")
        rest, said_rest = ports.choose(rest_port, REST_PORT, "--rest-port", frozenset({broker}))
        metrics, said_metrics = ports.choose(
            metrics_port, METRICS_PORT, "--metrics-port", frozenset({broker, rest})
        )
        companions = _companions(chosen, frozenset({broker, rest, metrics}))
        _tell(said_broker, said_rest, said_metrics)
        folder = _secured(data_dir) if _wants_security(data_dir, secure) else None
        scheme = "https" if folder is not None else "http"
        specs = embedded.children(data_dir, broker, rest, metrics, secure=folder, companions=companions)
        more = "".join(f" {extra.name}={scheme}://127.0.0.1:{port}" for extra, port in companions.items())
        line = (
            f"ready broker=127.0.0.1:{broker} rest={scheme}://127.0.0.1:{rest} "
            f"metrics={scheme}://127.0.0.1:{metrics}/metrics{more} data-dir={data_dir}"
            + (f"\n{_client_lines(folder, broker)}" if folder is not None else "")
        )
        _run(specs, line)


def _run(specs: list[ChildSpec], line: str) -> None:
    import asyncio

    from klamm.up import supervisor
    from klamm_base.service_manager import say_ready

    try:
        asyncio.run(supervisor.run(specs, lambda: say_ready(line)))
    except supervisor.NotReadyError as e:
        # A child that ends so has said what is wrong with its settings
        if e.code != EXIT_USAGE:
            raise
        raise typer.Exit(EXIT_USAGE) from None


def _tell(*sentences: str | None) -> None:
    for said in filter(None, sentences):
        typer.echo(said, err=True)


def _companions(chosen: Mapping[str, Any], taken: frozenset[int]) -> dict[Extra, int]:
    """Returns the further servers to start, with their ports. Says which are left out because they are not installed."""
    from klamm.up import ports

    found: dict[Extra, int] = {}
    for extra in EXTRAS:
        asked = chosen.get(extra.parameter)
        if not extra.wanted(chosen):
            if asked:  # 0 leaves the port open and fights nothing
                option = extra.switch[1]
                raise ConfigError(f"{option} and --{extra.name}-port {asked}: give one of them")
            continue
        if (missing := extra.missing()) is not None:
            if asked is not None:
                raise KlammError(f"--{extra.name}-port: {extra.what} is not installed: {missing}")
            typer.echo(f"{extra.what} is left out: {missing}", err=True)
            continue
        port, said = ports.choose(
            asked, extra.port, f"--{extra.name}-port", taken | frozenset(found.values())
        )
        _tell(said)
        found[extra] = port
    return found


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
