"""`klamm plugins`: plugin packages, each set in a locked environment of its own.

Without --url the commands change the plugin directory of this machine, which its workers watch. With --url a worker
installs for its whole group.
"""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from klamm.cli.common import reported
from klamm.cli.context import Commands
from klamm.cli.output import Format, FormatOption, print_rows
from klamm.cli.rest_client import Login, RestError, Worker
from klamm_base.errors import ConfigError, KlammError

if TYPE_CHECKING:
    from klamm.environments.store import Store
    from klamm.environments.tools import Sources

app = Commands(help="Install, list, lock and remove plugins.", no_args_is_help=True)

_COLUMNS: Final = ["name", "version", "state", "plugins"]
_INSTALL_S: Final = 1000.0  # a large package over a slow line
_FORCES: Final = " (--force removes it all the same)"
_WIDE: Final = ["request", "packages", "environment"]

DirectoryOption = Annotated[
    Path | None,
    typer.Option(
        "--directory",
        "-d",
        help="The plugin directory; the worker's plugins.directory. Default: KLAMM_PLUGINS_DIRECTORY, else klamm/plugins in "
        "~/.local/share.",
    ),
]
UrlOption = Annotated[
    str | None, typer.Option("--url", help="A Connect worker; it is then done on all workers of its group.")
]
IndexOption = Annotated[
    str | None,
    typer.Option("--index-url", help="The package index. Default: the one that uv or pip is set up with."),
]
LinksOption = Annotated[
    list[str] | None, typer.Option("--find-links", help="A folder or page with packages, beside the index.")
]
OfflineOption = Annotated[
    bool, typer.Option("--offline", help="Ask no index: packages come from --find-links alone.")
]
VersionOption = Annotated[
    str | None, typer.Option("--version", help="Which version, when there are several.")
]
Name = Annotated[str, typer.Argument(metavar="NAME", help="The package's name.")]


@app.command()
def install(
    login: Login,
    package: Annotated[
        str | None,
        typer.Argument(
            metavar="[PACKAGE]", help="A requirement (acme-klamm==1.2), a wheel, or a project folder."
        ),
    ] = None,
    lock: Annotated[
        Path | None,
        typer.Option("--lock", help="Install what `klamm plugins lock` wrote, instead of a package."),
    ] = None,
    directory: DirectoryOption = None,
    index_url: IndexOption = None,
    find_links: LinksOption = None,
    offline: OfflineOption = False,
    url: UrlOption = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Install a plugin package, usable at once.

    With --url it is installed on all workers of the group. Exit code 1 when one of its plugins is broken, or a worker
    has not got it within a minute.
    """
    with reported():
        if (package is None) == (lock is None):
            raise ConfigError("give a PACKAGE or --lock FILE")
        if url is not None:
            if package is None or index_url or find_links or offline or directory:
                raise ConfigError(
                    "with --url give a PACKAGE alone: the worker has its own index and directory"
                )
            found = [_ask(login.at(url), "POST", "/connector-plugins", _spec(package))]
        else:
            sources = _sources(index_url, find_links, offline=offline)
            found = _install_here(_store(directory), package, lock, sources)
        _show(found, output)
    for row in found:
        _tell_broken(row)
    lacking = [_tell_workers(row) for row in found]
    if any(lacking) or any(row["state"] != "ready" for row in found):
        raise typer.Exit(1)


@app.command("list")
def list_packages(
    login: Login,
    directory: DirectoryOption = None,
    url: UrlOption = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """List the installed packages with their plugins.

    JSON has tracebacks of what is broken.
    """
    with reported():
        if url is not None:
            rows = _ask(login.at(url), "GET", "/connector-plugins/packages", None)
        else:
            rows = _rows(_store(directory))
        _show(rows, output)


@app.command()
def remove(
    login: Login,
    name: Name,
    version: VersionOption = None,
    directory: DirectoryOption = None,
    url: UrlOption = None,
    force: Annotated[bool, typer.Option("--force", help="Remove it although connectors use it.")] = False,
) -> None:
    """Remove a package that no connector uses.

    With --force the tasks that run with it go on until they are restarted. Its environment goes when no process uses
    it any more.
    """
    with reported():
        if url is not None:
            pin = _remove_there(login.at(url), name, version, force=force)
        else:
            store = _store(directory)
            record = store.record(name, version)
            if not force and (users := store.users(record)):
                raise KlammError(f"Plugin package {record.root} is used by {', '.join(users)}{_FORCES}")
            pin = store.remove(record.name, record.version).root
        print(f"removed {pin}")


def _remove_there(worker: Worker, name: str, version: str | None, *, force: bool) -> str:
    from urllib.parse import quote, urlencode

    query = urlencode(({"version": version} if version else {}) | ({"force": "true"} if force else {}))
    try:
        gone = _ask(worker, "DELETE", f"/connector-plugins/{quote(name, safe='')}?{query}", None)
    except RestError as e:
        raise KlammError(f"{e}{_FORCES if e.status == 409 and 'is used by' in str(e) else ''}") from None
    return f"{gone['name']}=={gone['version']}"


@app.command()
def lock(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="These packages only; default: all.")
    ] = None,
    wheels: Annotated[
        Path | None, typer.Option("--wheels", help="A folder that gets the wheels which no index has.")
    ] = None,
    directory: DirectoryOption = None,
) -> None:
    """Print what is installed, with the hash of every file.

    `install --lock` takes this on another machine.
    """
    with reported():
        store = _store(directory)
        records = store.records()
        if names:
            records = [store.record(*_name_and_version(name)) for name in names]
        if wheels is not None:
            wheels.mkdir(parents=True, exist_ok=True)
        for record in records:
            for package in record.lock.packages if wheels is not None else ():
                if package.file is not None and wheels is not None:
                    data = store.wheels.path(package).read_bytes()
                    (wheels / package.file).write_bytes(data)
        print(json.dumps({"packages": [r.to_json() | {"group": None} for r in records]}, indent=2))


def _install_here(
    store: Store, package: str | None, lock: Path | None, sources: Sources
) -> list[dict[str, Any]]:
    from klamm.environments.shown import InstalledPlugin, same_versions

    if lock is None:
        assert package is not None, "one of both"
        done = [store.install(package, sources)]
    else:
        done = []
        folders = [lock.parent, *(Path(each) for each in sources.find_links)]
        for record in _read_lock(lock):
            store.wheels.find(record.lock, folders)
            done.append((record, store.adopt(record, sources)))
    there = [(r, store.environment(r.lock)) for r in store.records()]
    return [
        InstalledPlugin.of(*each, platform=store.platform).to_json()
        | {"warnings": list(same_versions(*each, there))}
        for each in done
    ]


def _read_lock(path: Path) -> list[Any]:
    from klamm.environments.errors import BadRequirement
    from klamm.environments.store import Record

    try:
        return [Record.from_json(each) for each in json.loads(path.read_text(encoding="utf-8"))["packages"]]
    except OSError as e:
        raise ConfigError(f"{path}: {e.strerror}") from None
    except (BadRequirement, ValueError, KeyError, TypeError) as e:
        raise ConfigError(f"{path} is not what `klamm plugins lock` writes: {e}") from None


def _rows(store: Store) -> list[dict[str, Any]]:
    from klamm.environments.shown import InstalledPlugin

    return [
        InstalledPlugin.of(r, store.environment(r.lock), platform=store.platform).to_json()
        for r in store.records()
    ]


def _spec(package: str) -> dict[str, str]:
    """Return the body of a request to install. A wheel or project folder of this machine goes along."""
    from klamm.environments.tools import Sources, find_tool

    path = Path(package).expanduser()
    if path.is_dir():
        import tempfile

        with tempfile.TemporaryDirectory() as into:
            return _wheel(find_tool().build_wheel(path.absolute(), Path(into), Sources()))
    return _wheel(path) if path.suffix == ".whl" and path.is_file() else {"package": package}


def _wheel(path: Path) -> dict[str, str]:
    return {"file": path.name, "wheel": base64.b64encode(path.read_bytes()).decode()}


def _ask(worker: Worker, method: str, path: str, body: Any) -> Any:
    return worker.call(method, path, body, timeout_s=_INSTALL_S)


def _store(directory: Path | None) -> Store:
    from klamm.connect.settings.plugins import default_directory
    from klamm.environments.store import Store

    return Store(directory or default_directory())


def _sources(index_url: str | None, find_links: list[str] | None, *, offline: bool) -> Sources:
    from klamm.environments.tools import Sources

    return Sources(index_url=index_url, find_links=tuple(find_links or ()), offline=offline)


def _name_and_version(text: str) -> tuple[str, str | None]:
    name, _, version = text.partition("==")
    return name, version or None


def _show(rows: list[dict[str, Any]], output: Format) -> None:
    if output in {Format.TABLE, Format.WIDE, Format.CSV}:
        rows = [row | {"plugins": [p["class"].rpartition(".")[2] for p in row["plugins"]]} for row in rows]
    print_rows(rows, _COLUMNS, output, wide=_WIDE)


def _tell_workers(row: dict[str, Any]) -> bool:
    """Say what is to be known of a package beside its row; whether a worker of the group has not got it."""
    for warning in row.get("warnings", ()):
        sys.stderr.write(f"klamm: warning: {warning}\n")
    others = [each for each in row.get("workers", ()) if each["state"] not in {"ready", row["state"]}]
    for each in others:
        why = f": {each['error']}" if each["error"] else ""
        sys.stderr.write(
            f"klamm: {row['name']} {row['version']} on the worker {each['worker']}: {each['state']}{why}\n"
        )
    return any(each["state"] != "unknown" for each in others)


def _tell_broken(row: dict[str, Any]) -> None:
    for each in row["broken"]:
        sys.stderr.write(f"{each['trace'].rstrip()}\n")
        sys.stderr.write(
            f"klamm: {row['name']} {row['version']}: {each['name']} is broken: {each['error']}\n"
        )
