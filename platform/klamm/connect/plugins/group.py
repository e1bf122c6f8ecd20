"""The plugin packages of a worker group, and this worker's progress with them.

The config topic says what the group has (`plugins.records`). `catch_up` builds what is missing here and
removes what the group has removed. A package that cannot be built here keeps its reason in `errors`,
and the caller tries again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Mapping
from typing import Final

from klamm.connect.errors import BadRequest
from klamm.connect.plugins.records import (
    WHEEL_BYTES_MAX,
    LogRecord,
    PluginRecords,
    package_record,
    removal_record,
    wheel_records,
)
from klamm.environments.errors import NotInstalled
from klamm.environments.store import Environment, Record, Store
from klamm_base.errors import KlammError

log = logging.getLogger(__name__)

RETRY_S: Final = 30.0  # a package that could not be built here (an index that is away) is tried again
COLLECT_S: Final = 600.0  # environments that no process uses any more go so much later

Installed = Mapping[str, tuple[Record, Environment | None]]
"""By `name==version`: what is installed on this machine, and its environment if it is built."""


class GroupPackages:
    """See the module. `group` is None for a worker that is alone: it has nothing to follow."""

    def __init__(self, store: Store, group: str | None) -> None:
        self.id = group
        self.owner = group  # with the cluster once that is known: many groups are called connect-cluster
        self.records = PluginRecords()
        self.errors: dict[str, str] = {}  # by `name==version`
        self.changed = asyncio.Event()
        self.caught_up = asyncio.Event()  # all that can be built here is built
        self.caught_up.set()
        self._store = store
        self._began_ms = int(time.time() * 1000)

    @property
    def wait_s(self) -> float:
        """The time to wait for `changed` before the next `catch_up`."""
        return RETRY_S if self.errors else COLLECT_S

    def apply(self, key: str, value: bytes | None) -> None:
        """Take in a record of the config topic under `plugins.records.PLUGINS`."""
        wheel = self.records.apply(key, value)
        if wheel is not None:
            try:
                self._store.wheels.keep(wheel.file, wheel.data)
            except OSError as e:
                log.error("the wheel %s cannot be kept in %s: %s", wheel.file, self._store.directory, e)  # noqa: TRY400
        self.caught_up.clear()
        self.changed.set()

    def installation(self, record: Record) -> list[LogRecord]:
        """Returns the records that give a package to the group. Reads wheels. Raises BadRequest for a package that
        is too large.
        """
        found: list[LogRecord] = []
        for package in record.lock.packages:
            if package.file is None or package.hashes[0] in self.records.parts:
                continue
            data = self._store.wheels.path(package).read_bytes()
            if len(data) > WHEEL_BYTES_MAX:
                raise BadRequest(
                    f"The wheel {package.file} has {len(data)} bytes; up to {WHEEL_BYTES_MAX} can be given to the other "
                    "workers of the group: put it into a package index and install it from there"
                )
            found += wheel_records(package.file, data)
        # The wheel of a package that was built anew replaces the wheel before it.
        return [*found, package_record(record), *self.records.orphans(record, record)]

    def removal(self, record: Record) -> list[LogRecord]:
        """Returns the records that take a package from the group, with the wheels that only it needs."""
        return [removal_record(record), *self.records.orphans(record)]

    def take_back(self, record: Record) -> None:
        """Remove a package from this machine."""
        with contextlib.suppress(NotInstalled):
            self._store.remove(record.name, record.version)

    async def catch_up(self, installed: Installed) -> bool:
        """Build what the group has and this worker lacks, and remove what the group has removed; returns whether a
        package was built.
        """
        wanted = {p.root: p for p in self.records.packages.values()}
        self.errors = {root: e for root, e in self.errors.items() if root in wanted}
        built = False
        for root, package in wanted.items():
            here, environment = installed.get(root, (None, None))
            if here is None or here.lock != package.lock or environment is None:
                built |= await self._build(package)
            else:
                self.errors.pop(root, None)
        for root, (record, _) in installed.items():
            # A package that the records lack may be another cluster's, or its records may be on their way.
            mine = self.id is not None and record.group == self.owner
            if not mine or root in wanted or not self.records.removed(record, self._began_ms):
                continue
            await asyncio.to_thread(self.take_back, record)
            log.info("plugin package %s is removed, because the group no longer has it", root)
        try:
            await asyncio.to_thread(self._store.collect, set(self.records.parts))
        except KlammError as e:
            log.warning("unused environments and wheels could not be removed: %s", e)
        return built

    def check(self, installed: Installed) -> None:
        """Have `catch_up` look again when a package of the group was removed from this machine."""
        if any(p.root not in installed and p.root not in self.errors for p in self.records.packages.values()):
            self.changed.set()

    async def _build(self, package: Record) -> bool:
        try:
            await asyncio.to_thread(self._store.adopt, package)
        except (KlammError, OSError) as e:
            log.error("plugin package %s cannot be built here: %s", package.root, e)  # noqa: TRY400
            self.errors[package.root] = str(e)
            return False
        log.info("plugin package %s of the group is installed", package.root)
        self.errors.pop(package.root, None)
        return True
