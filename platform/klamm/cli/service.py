"""`klamm service`: servers as services of systemd, and upgrades with a way back."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from klamm.cli.common import EXIT_FAILED, fail, reported
from klamm.cli.context import Commands
from klamm.cli.output import Format, FormatOption, print_rows

if TYPE_CHECKING:
    from klamm.service.install import Wanted
    from klamm.service.systemd import Installed, Systemd
    from klamm.service.versions import Steps, Versions

app = Commands(help="Run servers as services of systemd.", no_args_is_help=True)

SYSTEM_PREFIX: Final = Path("/opt/klamm")

UserOption = Annotated[
    bool | None,
    typer.Option(
        "--user/--system",
        help="Services of this user, or of the system. Default: the system's for root, else the user's.",
        show_default=False,
    ),
]
PrefixOption = Annotated[
    Path | None,
    typer.Option(
        "--prefix",
        callback=lambda path: path and path.absolute(),
        help="The folder of versions; default /opt/klamm, for a user ~/.local/share/klamm.",
        show_default=False,
    ),
]
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The service, such as klamm-broker.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of a service, and the files that it may touch."""

    run_as: Annotated[
        str | None,
        typer.Option(
            "--run-as", metavar="USER", help="The system user that runs it; klamm, made if it is missing."
        ),
    ] = None
    folder: Annotated[
        Path | None,
        typer.Option("--directory", help="Where it starts: /var/lib/klamm, for a user ~/.local/share/klamm."),
    ] = None
    read_write: Annotated[
        list[Path] | None,
        typer.Option(
            "--read-write", metavar="PATH", help="A further folder that it may write, such as a file sink's."
        ),
    ] = None
    memory_max: Annotated[
        str | None, typer.Option("--memory-max", help="The most memory, such as 4G (MemoryMax).")
    ] = None
    cpu_quota: Annotated[
        str | None, typer.Option("--cpu-quota", help="The most CPU, such as 150% (CPUQuota).")
    ] = None


@app.command()
def install(
    context: typer.Context,
    kind: Annotated[
        str,
        typer.Argument(
            metavar="KIND", help="up, broker, connect, mirror, agent, console, registry, lag or rest."
        ),
    ],
    limits: Limits,
    config: Annotated[
        Path | None, typer.Argument(metavar="[CONFIG]", help="The server's configuration.")
    ] = None,
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[-- OPTION…]", help="Further options of the server.", show_default=False),
    ] = None,
    of_user: UserOption = None,
    name: Annotated[
        str | None, typer.Option("--name", help="The service's name; klamm-KIND if it is not given.")
    ] = None,
    start: Annotated[
        bool, typer.Option("--start/--no-start", help="Start it now and wait until it is ready.")
    ] = True,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the unit; change nothing.")] = False,
    prefix: PrefixOption = None,
) -> None:
    """Install a server as a service.

    Writes a unit with limits, a watchdog and walls around it, checks it by systemd-analyze, enables and starts it. The server's
    configuration is read first, as the server would read it. Where this klamm lies under PREFIX, the service follows its upgrades.
    """
    from klamm.service import install as installing
    from klamm.service.kinds import kind_of
    from klamm.service.systemd import verify

    further = list(words or ())
    if config is not None and str(config).startswith("-"):  # there was no file before the --
        config, further = None, [str(config), *further]
    with reported():
        manager = _manager(of_user)
        wanted = installing.Wanted(
            kind=kind_of(kind),
            name=(name or f"klamm-{kind}").removesuffix(".service"),
            of_user=manager.of_user,
            config=config,
            words=tuple(further),
            user=limits.run_as,
            folder=limits.folder,
            program=_versions(manager, prefix).running(),
            writable=tuple(p.absolute() for p in limits.read_write or ()),
            memory_max=limits.memory_max,
            cpu_quota=limits.cpu_quota,
        )
        unit = installing.plan(wanted)
        _check_words(context.find_root(), wanted)
        said = (
            [unit.text(), *verify(unit.text(), unit.file_name, of_user=manager.of_user)]
            if dry_run
            else installing.install(unit, manager, start=start)
        )
        for line in said:
            typer.echo(line)


def _check_words(root: Any, wanted: Wanted) -> None:
    """Raises ConfigError for options that the server's own command would refuse: it would end at each start."""
    from typer.exceptions import TyperException

    from klamm_base.errors import ConfigError

    command = root.command
    for word in wanted.kind.command:
        command = command.get_command(root, word)
    given = [*([str(wanted.config)] if wanted.config else []), *wanted.words]
    called = f"klamm {' '.join(wanted.kind.command)}"
    for word in ("--help", "--version"):
        if word in wanted.words:
            raise ConfigError(f"{called} {word} serves nothing")
    try:
        command.make_context(called, given, parent=root)
    except TyperException as e:
        raise ConfigError(f"{called}: {e.format_message()}") from None


@app.command()
def status(of_user: UserOption = None, output: FormatOption = Format.TABLE) -> None:
    """Show the services that klamm installed. Exit code 1 when one does not run."""
    with reported():
        found = _manager(of_user).installed()
        print_rows([_row(each) for each in found], _COLUMNS, output, wide=_WIDE)
        if any(each.state and each.state.get("ActiveState") != "active" for each in found):
            raise typer.Exit(EXIT_FAILED)


_COLUMNS = ["service", "state", "status", "since", "restarts"]
_WIDE = ["kind", "pid", "memory_bytes", "boot", "result", "config", "unit"]


def _row(each: Installed) -> dict[str, Any]:
    state = each.state
    memory = state.get("MemoryCurrent", "")
    return {
        "service": each.name,
        "state": f"{state['ActiveState']} ({state.get('SubState', '')})" if state else "systemd does not run",
        "status": state.get("StatusText") or None,
        "since": state.get("ActiveEnterTimestamp") or None,
        "restarts": int(state.get("NRestarts") or 0),
        "kind": each.facts["kind"],
        "pid": int(state.get("MainPID") or 0) or None,
        "memory_bytes": int(memory) if memory.isdecimal() else None,
        "boot": state.get("UnitFileState") or None,
        "result": state.get("Result") or None,
        "config": each.facts.get("config"),
        "unit": str(each.path),
    }


@app.command()
def uninstall(name: NameArgument, of_user: UserOption = None) -> None:
    """Stop a service and remove its unit.

    Its data and configuration stay.
    """
    from klamm.service.install import uninstall as remove

    with reported():
        for said in remove(name, _manager(of_user)):
            typer.echo(said)


@app.command()
def check(
    name: NameArgument,
    of_user: UserOption = None,
    whole: Annotated[
        bool, typer.Option("--whole", help="Read all data, not only the newest segments.")
    ] = False,
) -> None:
    """Check that this version can use a service.

    Reads its configuration as the server does, and the data of a broker. Changes nothing.
    """
    with reported():
        typer.echo(_checked(_manager(of_user).find(name), whole=whole))


def _checked(each: Installed, *, whole: bool) -> str:
    """Returns what was read of a service. Raises KlammError."""
    from klamm.logdump.check import check as check_data
    from klamm.service.kinds import kind_of
    from klamm.service.needs import written_by
    from klamm_base.errors import KlammError

    facts, kind = each.facts, kind_of(each.facts["kind"])
    folder = Path(facts["folder"])
    written = written_by(kind, Path(facts["config"]) if "config" in facts else None, folder)
    if kind.name == "up":
        written = [path / "broker" for path in written]
    elif kind.name != "broker":
        return f"{each.name}: its configuration can be used"
    written = [path for path in written if path.exists()]  # none: it has never run
    done = check_data(written, whole=whole)
    if done.problems:
        raise KlammError(f"{each.name}: " + "; ".join(done.problems))
    return f"{each.name}: {done.partitions} partitions, {done.batches} batches in {done.segments} segments can be read"


@app.command()
def upgrade(
    requirements: Annotated[
        list[str],
        typer.Argument(metavar="REQUIREMENT…", help="What pip installs: klamm==2.1, a wheel, a folder."),
    ],
    of_user: UserOption = None,
    prefix: PrefixOption = None,
) -> None:
    """Install another version and move the services to it.

    Makes an environment beside the one in use. Then stops the services that run from PREFIX, lets the new version read their
    configuration and data, and starts them with it. Where any of this fails, they run again with the version before.
    """  # fmt: skip
    import datetime as dt

    with reported():
        manager = _manager(of_user)
        versions = _versions(manager, prefix)
        made = versions.make(requirements, dt.datetime.now(dt.UTC))
        typer.echo(f"made {made.path} with klamm {made.version}")
        _change(manager, versions, made.path)


@app.command()
def rollback(of_user: UserOption = None, prefix: PrefixOption = None) -> None:
    """Return the services to the version before the last upgrade."""
    from klamm.service.versions import PREVIOUS

    with reported():
        manager = _manager(of_user)
        versions = _versions(manager, prefix)
        before = versions.link(PREVIOUS)
        if before is None or not before.exists():
            fail(f"{versions.prefix} has no version before the one in use")
        else:
            _change(manager, versions, before)


@app.command(name="versions")
def versions_(
    of_user: UserOption = None, prefix: PrefixOption = None, output: FormatOption = Format.TABLE
) -> None:
    """List the versions that were installed by upgrades."""
    with reported():
        rows = [
            {"version": v.version, "role": v.role or None, "name": v.name, "path": str(v.path)}
            for v in _versions(_manager(of_user), prefix).all()
        ]
        print_rows(rows, ["version", "role", "name"], output, wide=["path"])


def _change(manager: Systemd, versions: Versions, to: Path) -> None:
    from klamm.service.versions import change

    for said in change(versions, to, _steps(manager, versions)):
        typer.echo(said)


def _steps(manager: Systemd, versions: Versions) -> Steps:
    """Returns what a change of versions does to the services that run from PREFIX; those that did not run stay so."""
    from klamm.service.systemd import START_S
    from klamm.service.versions import Steps, run

    ours = [each for each in manager.installed() if each.facts["program"] == str(versions.program)]
    running = [
        each.path.name
        for each in ours
        if each.state.get("ActiveState") in ("active", "activating", "reloading")
    ]

    def stop() -> None:
        if running:
            manager.call("stop", *reversed(running), timeout_s=START_S)

    def check_with(version: Path) -> None:
        side = "--user" if manager.of_user else "--system"
        for each in ours:
            typer.echo(run([str(version / "bin" / "klamm"), "service", "check", side, each.name]).strip())

    def start() -> None:
        for name in running:
            manager.call("start", name, timeout_s=START_S)

    return Steps(stop=stop, check=check_with, start=start)


def _of_user(asked: bool | None) -> bool:
    import os

    return os.geteuid() != 0 if asked is None else asked


def _manager(asked: bool | None) -> Systemd:
    from klamm.service.systemd import Systemd

    return Systemd(_of_user(asked))


def _versions(manager: Systemd, prefix: Path | None) -> Versions:
    from klamm.service.install import home_folder
    from klamm.service.versions import Versions

    return Versions(prefix or (home_folder() if manager.of_user else SYSTEM_PREFIX))
