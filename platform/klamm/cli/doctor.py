"""`klamm doctor`: what is wrong with this machine, these settings and these servers?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from klamm.cli.chosen_context import NO_ADDRESS
from klamm.cli.cluster import AdminCluster
from klamm.cli.common import EXIT_FAILED, counted, reported
from klamm.cli.output import Format, FormatOption, print_rows
from klamm.cli.rest_client import DEFAULT_REST, RestError, Worker
from klamm_base.errors import KlammError

if TYPE_CHECKING:
    from klamm.doctor.archive import Archive
    from klamm.doctor.finding import Finding
    from klamm.doctor.settings import Configured


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """Configuration files that are looked at."""

    broker: Annotated[list[Path] | None, typer.Option("--broker", help="A server.properties.")] = None
    connect: Annotated[list[Path] | None, typer.Option("--connect", help="A worker.properties.")] = None
    mirror: Annotated[list[Path] | None, typer.Option("--mirror", help="An mm2.properties.")] = None
    agent: Annotated[list[Path] | None, typer.Option("--agent", help="An agent.toml.")] = None
    registry: Annotated[list[Path] | None, typer.Option("--registry", help="A registry.properties.")] = None
    console: Annotated[list[Path] | None, typer.Option("--console", help="A console.properties.")] = None
    lag: Annotated[list[Path] | None, typer.Option("--lag", help="A lag.properties.")] = None
    rest: Annotated[list[Path] | None, typer.Option("--rest", help="A REST proxy's properties.")] = None

    def all(self) -> list[Configured]:
        """Returns the files that were named, else those of installed services and of `klamm up` in this folder."""
        from klamm.doctor.settings import Configured
        from klamm.service.systemd import Systemd
        from klamm.up.extras import EXTRAS

        named = [
            Configured(each.name, path) for each in fields(self) for path in getattr(self, each.name) or ()
        ]
        if named:
            return named
        services = [each for of_user in (False, True) for each in Systemd(of_user).installed()]
        found = [
            Configured(s.facts["kind"], Path(s.facts["config"])) for s in services if "config" in s.facts
        ]
        up = {"broker": "broker", "connect": "connect", **{each.name: each.command[0] for each in EXTRAS}}
        here = [Configured(kind, Path(f"klamm-data/{name}.properties")) for name, kind in up.items()]
        return found + [each for each in here if each.path.is_file()]


def doctor(
    context: typer.Context,
    cluster: AdminCluster,
    worker: Worker,
    files: Files,
    data_dir: Annotated[
        list[Path] | None,
        typer.Option("--data-dir", help="A folder of data; also those that the files name."),
    ] = None,
    offline: Annotated[bool, typer.Option("--offline", help="Ask no server.")] = False,
    archive: Annotated[
        Path | None,
        typer.Option(
            "--archive", help="Write a .tar.gz for a support ticket, without secrets.", show_default=False
        ),
    ] = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Look for what is wrong.

    Looks at versions, disk, descriptors, clock, ports, permissions, certificates, settings that fight each other, and at the broker
    and the Connect worker (without --url at the listener that its file names, else at the default address, where none need be).
    Without files it takes those of installed services and of `klamm up` here. Exit code 1 when anything failed.
    """
    from klamm.doctor.archive import Archive
    from klamm.doctor.finding import State

    with reported():
        configured = files.all()
        guessed = False
        if _is_open(context, worker):
            listener = _listener_of_worker(configured)
            worker, guessed = (worker, True) if listener is None else (worker.at(listener), False)
        kept = Archive(configured, _secrets(worker))
        findings = [
            *_machine(configured, data_dir or []),
            *([] if offline else _servers(cluster, worker, kept, guessed=guessed)),
        ]
        rows = [{**asdict(each), "state": each.state.value} for each in findings]
        print_rows(rows, ["state", "check", "said", "advice"], output)
        if archive is not None:
            kept.add_usual(findings)
            _add_services(kept)
            kept.write(archive)
            typer.echo(f"wrote {archive}", err=True)
        bad = sum(each.state is State.FAILED for each in findings)
        if bad:
            typer.echo(f"klamm: {counted(bad, 'check')} failed", err=True)
            raise typer.Exit(EXIT_FAILED)


def _is_open(context: typer.Context, worker: Worker) -> bool:
    """Returns whether neither an option, nor the environment, nor a context names the worker's address."""
    source = context.get_parameter_source("url")
    return source is not None and source.name == "DEFAULT" and worker.url == DEFAULT_REST


def _listener_of_worker(configured: list[Configured]) -> str | None:
    """Returns the first listener that a worker's file names."""
    from klamm.web.listeners import Listener
    from klamm_base.addresses import EVERY_HOST

    for each in configured:
        if each.kind == "connect" and (listeners := _listeners_of(each)):
            scheme, host, number = listeners[0]
            return str(Listener(scheme.lower(), "127.0.0.1" if host in EVERY_HOST else host, number))
    return None


def _secrets(worker: Worker) -> list[str]:
    password = (worker.user or "").partition(":")[2]
    return [each for each in (worker.token, password) if each]


def _machine(configured: list[Configured], data_dirs: list[Path]) -> Iterator[Finding]:
    """Yields what can be said without asking a server."""
    from klamm.doctor import host, peers, settings

    yield from host.versions()
    yield host.descriptors()
    folders = dict.fromkeys([*data_dirs, *(path for each in configured for path in _data_of(each))])
    newest = [
        max(found, key=lambda p: p.stat().st_mtime) for f in folders if (found := list(f.glob("*/*.log")))
    ]
    yield from host.clock(newest)
    for folder in folders:
        yield from host.disk(folder)
    for each in configured:
        yield from settings.look(each)
        for _, address, number in _listeners_of(each):
            yield peers.port(address, number, ours=True)
        yield from peers.certificates(_certificates_of(each))


def _data_of(each: Configured) -> list[Path]:
    from klamm.service.kinds import kind_of
    from klamm.service.needs import written_by

    try:
        return written_by(kind_of(each.kind), each.path.absolute(), each.path.absolute().parent)
    except KlammError:
        return []  # `look` says what is wrong with the file


def _listeners_of(each: Configured) -> list[tuple[str, str, int]]:
    """Returns name, host and port of each listener with a fixed port."""
    from klamm.doctor.settings import raw_settings

    if each.kind in ("agent", "mirror"):
        return []
    found = []
    for listener in raw_settings(each).get("listeners", "").split(","):
        name, _, address = listener.strip().partition("://")
        host, colon, number = address.rpartition(":")
        if colon and number.isdecimal() and number != "0":
            found.append((name, host.strip("[]"), int(number)))
    return found


def _certificates_of(each: Configured) -> list[Path]:
    from klamm.doctor.settings import raw_settings

    named = [
        v for k, v in raw_settings(each).items() if k.endswith(("keystore.location", "truststore.location"))
    ]
    return [Path(v) for v in dict.fromkeys(named) if v.endswith((".pem", ".crt"))]


def _servers(cluster: AdminCluster, worker: Worker, kept: Archive, *, guessed: bool) -> Iterator[Finding]:
    """Yields what servers answer, and keeps it for the archive. Nobody need answer at a `guessed` address of the worker."""
    from klamm.doctor.finding import unknown
    from klamm.doctor.peers import cluster_report, described, reached

    is_there = False

    def ask_cluster() -> str:
        report: dict[str, Any] = cluster.ask(cluster_report)
        kept.add_json("cluster.json", report)
        return described(report)

    def ask_worker() -> str:
        nonlocal is_there
        try:
            root = worker.call("GET", "/", timeout_s=10)
        except RestError as e:
            is_there = e.status in (401, 403)
            raise
        is_there = True
        states: dict[str, Any] = worker.call("GET", "/connectors?expand=status", timeout_s=30)
        kept.add_json("connect.json", {"worker": root, "connectors": states})
        bad = [name for name, each in states.items() if _has_failed(each["status"])]
        if bad:
            raise KlammError(f"{worker.url}: connectors that failed: {', '.join(bad[:5])}")
        return f"a Connect worker ({root.get('version')}) with {counted(len(states), 'connector')}"

    yield reached("broker", f"--bootstrap-server {cluster.bootstrap}", ask_cluster)
    if worker.url != NO_ADDRESS:
        found = reached("connect", f"--url {worker.url}", ask_worker)
        if guessed and not is_there:
            found = unknown("connect", found.said, "if there is a worker, give --url")
        yield found


def _has_failed(status: dict[str, Any]) -> bool:
    return "FAILED" in (status["connector"]["state"], *(task["state"] for task in status["tasks"]))


def _add_services(kept: Archive) -> None:
    from klamm.doctor.settings import Configured, secrets_of
    from klamm.doctor.units import secrets_in
    from klamm.service.systemd import Systemd

    for of_user in (False, True):
        for each in Systemd(of_user).installed():
            text = each.path.read_text(encoding="utf-8", errors="replace")
            kept.hide(secrets_in(text))
            if "config" in each.facts:  # its log may tell of a file that was not named here
                kept.hide(secrets_of(Configured(each.facts["kind"], Path(each.facts["config"]))))
            kept.add(f"units/{each.path.name}", text)
            kept.add_journal(each.path.name, of_user=of_user)
