"""The plugin directory of a machine: installed packages, their locked environments, and the wheels they came from.

    installed/NAME-VERSION.json   what was asked for, and its lock: a package is installed when this file is there
    sets/ID.json                  locks of several packages together, where a resolver had to find them
    environments/ID/              an environment, built whole and never changed: site/, lock.json, contents.json, in-use
    wheels/SHA256/FILE.whl        wheels that no index has (from files and folders)
    workers/N.json                the connectors of a running worker by the packages that they name (`users`)
    lock                          held by whoever changes something

Invariant: an environment's folder has its final name only when it is complete. Commands and workers may use one
directory at the same time. An environment that a process uses (`overlay`) is removed later, by `collect`. Blocks; for a
thread.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from klamm.environments import inspection, runtime
from klamm.environments.errors import BadRequirement, EnvironmentFailure, NoPlugins, NotInstalled, ToolFailure
from klamm.environments.files import discard, discard_unused, write_json
from klamm.environments.inspection import Contents
from klamm.environments.lock import Lock, merged
from klamm.environments.names import canonical
from klamm.environments.overlay import IN_USE
from klamm.environments.resolving import Resolver
from klamm.environments.tools import Sources, Tool, find_tool, redacted
from klamm.environments.users import connectors_in, connectors_naming
from klamm.environments.versions import sort_key
from klamm.environments.wheelhouse import WheelHouse
from klamm_base.files import make_private_folder
from klamm_base.version import __version__

log = logging.getLogger(__name__)

Stamp = frozenset[tuple[str, int, int]]
"""Name, inode and time of change (ns) of each installed package's file, which is never changed but replaced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One installed package: `request` is the text that was asked for, `lock` its result. `group` is the
    worker group that it was installed for, None when it was installed on this machine only.
    """

    name: str
    version: str
    request: str
    lock: Lock
    installed_ms: int
    group: str | None = None

    @property
    def root(self) -> str:
        return f"{self.name}=={self.version}"

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "version": self.version,
            "request": self.request,
            "installed_ms": self.installed_ms,
            "group": self.group,
            "lock": self.lock.to_json(),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Reads a record. Raises BadRequirement, ValueError, KeyError, TypeError for anything else."""
        found = cls(
            name=str(data["name"]),
            version=str(data["version"]),
            request=str(data["request"]),
            lock=Lock.from_json(data["lock"]),
            installed_ms=int(data["installed_ms"]),
            group=data.get("group"),
        )
        if found.root not in {p.pin for p in found.lock.packages}:
            raise BadRequirement(f"the lock of {found.root} does not contain this package")
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """A built environment: `site` is the folder that is laid over the worker's packages."""

    id: str
    lock: Lock
    site: Path
    contents: Contents


class Store:
    """See the module."""

    def __init__(self, directory: Path, *, sources: Sources | None = None, tool: Tool | None = None) -> None:
        self.directory = directory.absolute()
        self._sources = sources or Sources()
        self._tool = tool
        self.platform = runtime.platform_tag()
        self.wheels = WheelHouse(self.directory / "wheels")
        self._loaded: dict[str, Environment] = {}

    @property
    def _resolver(self) -> Resolver:
        if self._tool is None:
            self._tool = find_tool()
        return Resolver(self.wheels, self._tool)

    # What is there

    def stamp(self) -> Stamp:
        """Returns a value that changes whenever a package is installed or removed. Cheap."""
        try:
            with os.scandir(self.directory / "installed") as entries:
                found = [(e.name, e.stat()) for e in entries if e.name.endswith(".json")]
        except FileNotFoundError:  # nothing was installed yet, or something was removed at this moment
            return frozenset()
        return frozenset((name, at.st_ino, at.st_mtime_ns) for name, at in found)

    def records(self) -> list[Record]:
        """Returns the installed packages by name, the newest version last."""
        found = []
        for path in (self.directory / "installed").glob("*.json"):
            try:
                found.append(Record.from_json(json.loads(path.read_text(encoding="utf-8"))))
            except FileNotFoundError:
                continue  # removed a moment ago
            except (BadRequirement, ValueError, KeyError, TypeError) as e:
                log.error("%s cannot be read (%s); remove it and install the package again", path, e)  # noqa: TRY400
        return sorted(found, key=lambda r: (r.name, sort_key(r.version)))

    def record(self, name: str, version: str | None = None) -> Record:
        """Returns an installed package. Raises NotInstalled; without a version only one may be installed."""
        found = [r for r in self.records() if r.name == canonical(name)]
        fitting = [r for r in found if version is None or r.version == version]
        if not fitting:
            there = ", ".join(r.version for r in found)
            what = f"version {version} of the plugin package {name}" if found else f"plugin package {name}"
            raise NotInstalled(f"There is no {what} here" + (f"; there is {there}" if found else ""))
        if len(fitting) > 1:
            versions = ", ".join(r.version for r in fitting)
            raise EnvironmentFailure(f"There are several versions of {name}: {versions}; say which one")
        return fitting[0]

    def environment(self, lock: Lock) -> Environment | None:
        """Returns the environment of a lock if it is built here."""
        number = lock.id(self.platform)
        known = self._loaded.get(number)
        folder = self.directory / "environments" / number
        if known is not None and known.site.is_dir():
            return known
        site = folder / "site"
        try:
            contents = _contents_in(folder)
        except FileNotFoundError:
            return None
        if contents is None:
            contents = inspection.inspect(site)
            try:
                _write_contents(folder, contents)
            except OSError as e:  # somebody else's directory: it is looked at again by the next process
                log.warning("the contents of environment %s cannot be saved: %s", folder, e)
        found = Environment(id=number, lock=lock, site=site, contents=contents)
        self._loaded[number] = found
        return found

    # Changes

    def install(
        self,
        request: str,
        sources: Sources | None = None,
        *,
        path: Path | None = None,
        group: str | None = None,
    ) -> tuple[Record, Environment]:
        """Install a package by requirement, wheel or folder; replaces the package of the same version.

        `path` is the wheel when `request` is no more than its name. Raises EnvironmentFailure, and then nothing
        has changed.
        """
        sources = sources or self._sources
        with self._changing(), self._work() as work:
            name, lock = self._resolver.resolve_request(request if path is None else str(path), sources, work)
            environment = self._build(lock, sources, work)
            if not environment.contents.entry_points:
                self._forget(environment)
                raise NoPlugins(
                    f"{lock.key} has no plugins: none of its packages has an entry point in the group klamm"
                )
            root = next(p for p in lock.packages if p.name == name)
            record = Record(
                name=name,
                version=root.version,
                request=redacted(request),
                lock=lock,
                installed_ms=time.time_ns() // 1_000_000,
                group=group,
            )
            self._note(record)
        return record, environment

    def adopt(self, record: Record, sources: Sources | None = None) -> Environment:
        """Install a package that another worker has locked. The wheels that no index has must be there (`wheels`)."""
        with self._changing(), self._work() as work:
            environment = self._build(record.lock, sources or self._sources, work)
            self._note(record)
        return environment

    def ensure(self, lock: Lock, sources: Sources | None = None) -> Environment:
        """Returns the environment of a lock, and builds it when it is missing."""
        known = self.environment(lock)
        if known is not None:
            return known
        with self._changing(), self._work() as work:
            return self._build(lock, sources or self._sources, work)

    def lock_of(self, roots: Iterable[str], sources: Sources | None = None) -> Lock:
        """Returns one lock for several installed packages together. Raises Unresolvable when they do not go
        together.
        """
        wanted = set(roots)
        records = [r for r in self.records() if r.root in wanted]
        missing = wanted - {r.root for r in records}
        if missing:
            raise NotInstalled(f"There is no plugin package {', '.join(sorted(missing))} here")
        locks = [r.lock for r in records]
        union = merged(locks)
        if union is not None:
            return union
        path = self.directory / "sets" / f"{_digest([lock.to_json() for lock in locks])}.json"
        with contextlib.suppress(FileNotFoundError):
            return Lock.from_json(json.loads(path.read_text(encoding="utf-8")))
        with self._changing(), self._work() as work:
            lock = self._resolver.resolve_together(locks, sources or self._sources, work)
            write_json(path, lock.to_json())
        return lock

    def users(self, record: Record) -> list[str]:
        """Return the connectors of this machine that run with a package just now, or that a running worker has and that
        name it.
        """
        return sorted({*connectors_naming(self.directory, record.root), *self.running(record)})

    def running(self, record: Record) -> set[str]:
        """Return the connectors with processes on this machine in environments that have a package."""
        found: set[str] = set()
        for folder in _folders(self.directory / "environments"):
            lock = _lock_in(folder)
            if lock is not None and record.root in lock.roots:
                found |= set(connectors_in(folder))
        return found

    def remove(self, name: str, version: str | None = None) -> Record:
        """Remove an installed package. Raises NotInstalled. Its environment goes when no process uses it."""
        with self._changing():
            record = self.record(name, version)
            self._record_path(record).unlink()
            self._collect()
        return record

    def collect(self, keep: Set[str] = frozenset()) -> None:
        """Remove environments that no installed package needs and no process uses, and old wheels that nobody
        needs, except those with a sha256 in `keep`.
        """
        if (self.directory / "environments").is_dir():
            with self._changing():
                self._collect(keep)

    # How

    def _build(self, lock: Lock, sources: Sources, work: Path) -> Environment:
        known = self.environment(lock)
        if known is not None:
            return known
        missing = self.wheels.missing(lock)
        if missing:
            names = ", ".join(f"{p.file} (sha256 {p.hashes[0]})" for p in missing)
            raise ToolFailure(f"These wheels are neither in a package index nor on this machine: {names}")
        number = lock.id(self.platform)
        folder = work / number
        (folder / "site").mkdir(parents=True)
        self._resolver.tool.install(
            lock.requirements(self.wheels.directory), folder / "site", sources, work=work
        )
        write_json(folder / "lock.json", lock.to_json())
        (folder / IN_USE).touch()
        final = self.directory / "environments" / number
        final.parent.mkdir(parents=True, exist_ok=True)
        # Only contents.json makes it complete: it is inspected where it will be used.
        discard(final, work)
        folder.rename(final)
        contents = inspection.inspect(final / "site")
        _write_contents(final, contents)
        environment = Environment(id=number, lock=lock, site=final / "site", contents=contents)
        self._loaded[number] = environment
        return environment

    def _note(self, record: Record) -> None:
        write_json(self._record_path(record), record.to_json())

    def _record_path(self, record: Record) -> Path:
        return self.directory / "installed" / f"{record.name}-{record.version}.json"

    def _forget(self, environment: Environment) -> None:
        self._loaded.pop(environment.id, None)
        discard_unused(environment.site.parent, self._work_folder)

    def _collect(self, keep: Set[str] = frozenset()) -> None:
        shutil.rmtree(self._work_folder, ignore_errors=True)  # of somebody who was killed: we hold the lock
        locks = [r.lock for r in self.records()]
        installed = {root for lock in locks for root in lock.roots}
        wanted = {lock.id(self.platform) for lock in locks}
        kept = {h for lock in locks for p in lock.packages for h in p.hashes} | keep
        for folder in _folders(self.directory / "environments"):
            lock = _lock_in(folder)
            joint = lock is not None and len(lock.roots) > 1 and set(lock.roots) <= installed
            if folder.name in wanted or joint or not discard_unused(folder, self._work_folder):
                kept |= {h for p in (lock.packages if lock else ()) for h in p.hashes}
                continue
            self._loaded.pop(folder.name, None)
        self.wheels.collect(kept)

    @property
    def _work_folder(self) -> Path:
        return self.directory / "work"

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        """Make one change at a time, among all processes. Turns errors of the file system into ToolFailure."""
        try:
            make_private_folder(self.directory)
            with (self.directory / "lock").open("a") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                yield
        except OSError as e:
            raise ToolFailure(f"The plugin directory {self.directory} cannot be changed: {e}") from e

    @contextlib.contextmanager
    def _work(self) -> Iterator[Path]:
        """Gives a folder for temporary files, on the same file system."""
        shutil.rmtree(self._work_folder, ignore_errors=True)  # of somebody who was killed: we hold the lock
        self._work_folder.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self._work_folder) as path:
            yield Path(path)


def _folders(parent: Path) -> list[Path]:
    return [p for p in parent.iterdir() if p.is_dir()] if parent.is_dir() else []


def _lock_in(folder: Path) -> Lock | None:
    try:
        return Lock.from_json(json.loads((folder / "lock.json").read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError):
        return None


def _contents_in(folder: Path) -> Contents | None:
    """Returns the contents that were found in an environment; None when it must be inspected again. Raises
    FileNotFoundError.
    """
    try:
        data = json.loads((folder / "contents.json").read_text(encoding="utf-8"))
        # Another Klamm may understand other plugins.
        return Contents.from_json(data) if data["klamm"] == __version__ else None
    except (ValueError, KeyError, TypeError) as e:
        log.warning("%s/contents.json cannot be read: %s", folder, e)
        return None


def _write_contents(folder: Path, contents: Contents) -> None:
    write_json(folder / "contents.json", contents.to_json() | {"klamm": __version__})


def _digest(data: Any) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:16]
