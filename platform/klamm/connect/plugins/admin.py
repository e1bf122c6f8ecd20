"""The plugins of a worker: installed, listed, removed, chosen for a connector; the same packages on the
whole group.

The plugins are those beside the worker (a child lists them) and those of installed packages, which were
inspected when their environment was built. No change needs a restart, because every request looks at the
plugin directory again. Packages that are installed through a worker are locked, written to the config
topic, and built by every worker of the group. Lives in the event loop; a thread, which starts processes,
installs packages.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from klamm.connect.errors import BadRequest, Conflict, NotFound
from klamm.connect.model import PluginInfo
from klamm.connect.plugins.beside import List, PluginsBeside
from klamm.connect.plugins.catalog import PluginRegistry, PluginVersionNotFound
from klamm.connect.plugins.group import GroupPackages
from klamm.connect.plugins.records import LogRecord, decoded_wheel
from klamm.connect.plugins.requirements import ChildEnvironment, Requirements, requirements_of
from klamm.connect.plugins.waiting import WaitingConnectors
from klamm.connect.settings.connector_keys import CONNECTOR_CLASS
from klamm.environments.errors import BadRequirement, EnvironmentFailure, NotInstalled, ToolFailure
from klamm.environments.names import wheel_name
from klamm.environments.shown import InstalledPlugin, same_versions
from klamm.environments.store import Environment, Record, Stamp, Store
from klamm.environments.users import NamedPackages
from klamm_base.errors import ConfigError, KlammError

log = logging.getLogger(__name__)

_FIELDS: Final = ("package", "file", "wheel")
NOTE_S: Final = 0.1  # many changes at once are written once
LOOK_S: Final = (
    1.0  # while a connector waits for a plugin, which may be installed or mended on this machine by hand
)
BESIDE_S: Final = 30.0  # a busy machine may take its time to import what changed

Publish = Callable[[Sequence[LogRecord]], Awaitable[None]]
"""Writes records to the config topic, in order, and reads them back."""


class PluginAdmin:
    """See the module. `list_beside` asks a child for plugins beside the worker (the call `list_plugins`);
    `group` is the worker group for which packages are installed; None: for this machine alone (a standalone
    worker). `configs` are the configurations of all connectors. `on_built` is called when there may be
    new plugins, `on_found` with connectors that started without a plugin which is there now. While `misses` a connector's
    class, the plugins are looked at all the time.
    """

    def __init__(
        self,
        store: Store,
        *,
        group: str | None,
        list_beside: List,
        configs: Callable[[], Iterable[tuple[str, Mapping[str, str]]]],
        worker: Mapping[str, str],
        publish: Publish,
        on_built: Callable[[], None] = lambda: None,
        on_found: Callable[[Sequence[str]], None] = lambda names: None,
        misses: Callable[[str], bool] = lambda connector_class: False,
    ) -> None:
        self.registry = PluginRegistry()
        self._store = store
        self._beside = PluginsBeside(list_beside)
        self._configs = configs
        self._worker = worker
        self._publish = publish
        self._on_built = on_built
        self._on_found = on_found
        self._misses = misses
        self._waiting = WaitingConnectors()
        self._installed: dict[str, tuple[Record, Environment | None]] = {}
        self._stamp: Stamp | None = None
        self._named = NamedPackages(store.directory)
        self._noting: asyncio.TimerHandle | None = None
        self._noted: dict[str, tuple[PluginRegistry, Mapping[str, str], tuple[str, ...]]] = {}
        self._group = GroupPackages(store, group)
        self._changing = asyncio.Lock()
        self._joining = asyncio.Lock()
        self._following: asyncio.Task[None] | None = None

    # Installed plugins

    async def refresh(self, timeout_s: float = 30) -> None:
        """Lists the plugins beside the worker and the installed ones, each only after a change. Raises KlammError when
        no child could answer.
        """
        if await self._beside.refresh(timeout_s):
            self._stamp = None
        await self.look()

    async def look(self) -> None:
        """Takes in plugins that were installed, removed, broken or mended meanwhile; fast when there are none."""
        try:
            if self._beside.listed and await self._beside.refresh(BESIDE_S):
                self._stamp = None
        except KlammError as e:
            log.warning("the plugins beside the worker stay as they were listed last: %s", e)
        await self._take_in()
        if self._waiting and (found := self._waiting.found(self.registry, [c for c, _ in self._configs()])):
            self._on_found(found)

    async def _take_in(self) -> None:
        stamp = self._store.stamp()
        if stamp == self._stamp:
            return
        self._installed = await asyncio.to_thread(self._read_store)
        self._stamp = stamp
        self._group.check(self._installed)
        rows, broken = list(self._beside.plugins), list(self._beside.broken)
        for record, environment in self._installed.values():
            if environment is not None:
                rows += _infos(record, environment)
                broken += [each._replace(name=record.root) for each in environment.contents.broken]
        learned = self.registry
        self.registry = PluginRegistry(rows, broken)
        self.registry.inherit(learned)
        self.note_users_soon()

    def _read_store(self) -> dict[str, tuple[Record, Environment | None]]:
        return {r.root: (r, self._store.environment(r.lock)) for r in self._store.records()}

    async def installed(self) -> list[InstalledPlugin]:
        """Returns installed packages by name and version, then the broken packages beside the worker."""
        await self.look()
        shown = [self._shown(record, environment) for record, environment in self._installed.values()]
        known = {f"{p.name}=={p.version}" for p in shown}
        of_group = self._group.records.packages.values()
        shown += [self._shown(package, None) for package in of_group if package.root not in known]
        shown.sort(key=lambda p: (p.name, p.version))
        beside = [
            InstalledPlugin(name=b.name, version="", request="", state="broken", broken=(b,))
            for b in self._beside.broken
        ]
        return shown + beside

    def _shown(self, record: Record, environment: Environment | None) -> InstalledPlugin:
        error = self._group.errors.get(record.root)
        return InstalledPlugin.of(record, environment, platform=self._store.platform, error=error)

    # The environment of a connector

    async def environment_of(
        self, config: Mapping[str, str], worker: Mapping[str, str], *, strict: bool = True
    ) -> ChildEnvironment:
        """Returns the environment of a connector's processes, and builds it if necessary; `strict` as in
        `requirements_of`.

        Raises ConfigError for a version that is not installed, or packages that cannot be combined; KlammError
        when the environment cannot be built here.
        """
        wanted = await self._note_missing(config, worker or self._worker, strict=strict)
        if not wanted.packages:
            return ChildEnvironment(entry_points=wanted.entry_points)
        environment = None
        if len(wanted.packages) == 1:
            environment = self._installed[wanted.packages[0]][1]
        if environment is None or not environment.site.is_dir():
            async with self._joining:  # others wait here, and not in threads that everybody needs
                environment = await asyncio.to_thread(self._joint, wanted.packages)
        return ChildEnvironment(site=str(environment.site), entry_points=wanted.entry_points)

    async def _note_missing(
        self, config: Mapping[str, str], worker: Mapping[str, str], *, strict: bool
    ) -> Requirements:
        """Returns what `_requirements` does; notes plugins that a start misses, to wait for them afterwards."""
        try:
            wanted = await self._requirements(config, worker, strict=strict)
        except PluginVersionNotFound:
            self._waiting.missing(self.registry, config, worker)
            raise
        if strict and wanted.unknown:
            self._waiting.missing(self.registry, config, worker)
        elif strict:
            self._waiting.satisfied(config)
        return wanted

    async def _requirements(
        self, config: Mapping[str, str], worker: Mapping[str, str], *, strict: bool
    ) -> Requirements:
        """Returns the requirements. An unknown plugin may be in a package of the group that is being built here,
        so a start waits for that.
        """
        await self.look()
        if strict and not self._group.caught_up.is_set():
            with contextlib.suppress(ConfigError):
                if not requirements_of(self.registry, config, worker).unknown:
                    return requirements_of(self.registry, config, worker)
            await self._group.caught_up.wait()
            await self.look()
        return requirements_of(self.registry, config, worker, strict=strict)

    def _joint(self, packages: Sequence[str]) -> Environment:
        try:
            lock = self._store.lock_of(packages)
        except EnvironmentFailure as e:
            raise ConfigError(
                f"The packages {', '.join(packages)}, whose plugins the configuration names, cannot be used together: {e}"
            ) from e
        return self._store.ensure(lock)

    # Changes

    async def install(self, spec: Mapping[str, Any] | str) -> InstalledPlugin:
        """Installs a package for the whole group: `{"package": requirement or path}`, or `{"file", "wheel"}` with a
        wheel in base64. Raises BadRequest for a package that cannot be installed.
        """
        request, wheel = _read_spec(spec)
        async with self._changing:
            try:
                record, environment = await asyncio.to_thread(self._install, request, wheel)
            except KlammError as e:
                raise BadRequest(f"{request}: {e}") from e
            if record.group is not None:
                try:
                    await self._publish(await asyncio.to_thread(self._group.installation, record))
                except BaseException:
                    # Remove the package here when the group's topic does not have it. If the topic has it after all, it comes
                    # back.
                    await asyncio.to_thread(self._group.take_back, record)
                    self._group.changed.set()
                    raise
            await self.look()
        log.info("plugin package %s is installed in the environment %s", record.root, environment.id)
        warnings = same_versions(record, environment, self._installed.values())
        for warning in warnings:
            log.warning("%s", warning)
        return replace(self._shown(record, environment), warnings=warnings)

    def _install(self, request: str, wheel: bytes | None) -> tuple[Record, Environment]:
        path = None
        if wheel is not None:
            try:
                path = self._store.wheels.directory / self._store.wheels.keep(request, wheel) / request
            except OSError as e:
                raise ToolFailure(f"it cannot be kept in {self._store.directory}: {e}") from e
        return self._store.install(request, path=path, group=self._group.owner)

    async def remove(self, name: str, version: str | None = None, *, force: bool = False) -> InstalledPlugin:
        """Removes a package from the whole group. Raises NotFound, and Conflict while a connector uses it, unless
        `force`.
        """
        async with self._changing:
            await self.look()
            try:
                record = await asyncio.to_thread(self._store.record, name, version)
            except NotInstalled as e:
                raise NotFound(str(e)) from None
            except EnvironmentFailure as e:
                raise BadRequest(str(e)) from None
            users = await self._users(record)
            if users and not force:
                raise Conflict(f"Plugin package {record.root} is used by {', '.join(users)}")
            shown = self._shown(*self._installed.get(record.root, (record, None)))
            of_group = record.root in {p.root for p in self._group.records.packages.values()}
            mine = record.group in {None, self._group.owner}
            if not of_group and not mine:
                raise Conflict(f"Plugin package {record.root} was installed for the group {record.group}")
            if of_group or (record.group is not None and self._group.id is not None):
                await self._publish(self._group.removal(record))
            if mine:
                await asyncio.to_thread(self._group.take_back, record)
            await self.look()
        log.info("plugin package %s is removed", record.root)
        return shown

    async def _users(self, record: Record) -> list[str]:
        """Returns the connectors that name a package, or run with it still: a newer version counts with their next start."""
        configs = dict(self._configs())
        found = {c for c, config in configs.items() if record.root in self._packages_of(config)}
        running = await asyncio.to_thread(self._store.running, record)
        # A task is called as its connector with a number behind. What is being deleted counts no more.
        found |= {c for c in configs if any(c in {name, name.rpartition("-")[0]} for name in running)}
        return sorted(found)

    def _packages_of(self, config: Mapping[str, str]) -> tuple[str, ...]:
        try:
            return requirements_of(self.registry, config, self._worker).packages
        except ConfigError:
            return ()

    def note_users_soon(self) -> None:
        """Tells commands on this machine which packages the connectors name now; called when either changes."""
        if self._noting is None:
            self._noting = asyncio.get_running_loop().call_later(NOTE_S, self._note_users)

    def _note_users(self) -> None:
        self._noting = None
        users: dict[str, list[str]] = {}
        noted, self._noted = self._noted, {}
        if self._installed:
            for connector, config in self._configs():
                known = noted.get(connector)
                if known is None or known[0] is not self.registry or known[1] is not config:
                    known = self.registry, config, self._packages_of(config)
                self._noted[connector] = known
                for package in known[2]:
                    users.setdefault(package, []).append(connector)
        try:
            self._named.write(users)
        except OSError as e:
            log.debug("commands cannot be told which packages the connectors name: %s", e)

    # The group

    def apply(self, key: str, value: bytes | None) -> None:
        """Take in a record of the config topic under `plugins.records.PLUGINS`."""
        self._group.apply(key, value)

    def belongs_to(self, cluster_id: str, config_topic: str) -> None:
        """Name the group's cluster and config topic, before the group installs or removes anything: other groups
        may have its name.
        """
        if self._group.id is not None:
            self._group.owner = f"{self._group.id} of {cluster_id}/{config_topic}"

    async def start(self) -> None:
        """Starts to keep this machine's packages as the group has them; the config topic must have been read."""
        self.note_users_soon()
        self._following = asyncio.create_task(self._follow(), name="plugin packages")

    async def stop(self) -> None:
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)
        if self._noting is not None:
            self._noting.cancel()
        self._named.close()

    async def _follow(self) -> None:
        group = self._group
        while True:
            group.changed.clear()
            async with self._changing:
                try:
                    await self.look()
                    built = await group.catch_up(dict(self._installed))
                    await self.look()
                except Exception:
                    log.exception("cannot update the plugin packages of the group")
                    built = False
            if built:
                self._on_built()
            if not group.changed.is_set():
                group.caught_up.set()
            await self._pause(group.wait_s)

    async def _pause(self, seconds: float) -> None:
        """Waits for `seconds`, or until the group has changed; meanwhile looks for the plugins that connectors wait
        for.
        """
        end = time.monotonic() + seconds
        changed = self._group.changed
        while not changed.is_set() and (left := end - time.monotonic()) > 0:
            # Not wait_for: before Python 3.12 that swallows a cancellation which comes with the change.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(left, LOOK_S)):
                    await changed.wait()
            try:
                if self._waiting or self._misses_any():
                    before = self.registry
                    await self.look()
                    if self.registry is not before:
                        self._on_built()
            except Exception:
                log.exception("cannot look for the plugins that connectors wait for")

    def _misses_any(self) -> bool:
        return any(self._misses(config.get(CONNECTOR_CLASS, "")) for _, config in self._configs())


def _infos(record: Record, environment: Environment) -> list[PluginInfo]:
    return [PluginInfo(*row, package=record.root) for row in environment.contents.plugins]


def _read_spec(spec: Mapping[str, Any] | str) -> tuple[str, bytes | None]:
    """Returns the requirement to install, or the name and bytes of a wheel. Raises BadRequest that names the
    field.
    """
    if isinstance(spec, str):
        spec = {"package": spec}
    unknown = [f for f in spec if f not in _FIELDS]
    if unknown:
        raise BadRequest(f"Unknown field {unknown[0]}; there are package, or file and wheel")
    for name, value in spec.items():
        if not isinstance(value, str) or not value.strip():
            raise BadRequest(f"{name} must be a text that is not empty, not {value!r}")
    if "package" in spec:
        if len(spec) > 1:
            raise BadRequest("Give either package, or file and wheel")
        return spec["package"].strip(), None
    if set(spec) != {"file", "wheel"}:
        raise BadRequest("Give package (a requirement, a wheel or a folder), or file and wheel (in base64)")
    file = spec["file"]
    if Path(file).name != file or not file.endswith(".whl"):
        raise BadRequest(
            f"file must be a wheel's name, such as acme_klamm-1.0-py3-none-any.whl, not {file!r}"
        )
    try:
        wheel_name(Path(file))
    except BadRequirement as e:
        raise BadRequest(f"file: {e}") from None
    try:
        return file, decoded_wheel(spec["wheel"])
    except ValueError as e:
        raise BadRequest(f"wheel: {e}") from None
