"""Turns a request into a lock: resolves requirements, wheels and folders over the worker's runtime.

Keeps wheels from files (`wheelhouse`), so that a lock can be built again. Blocks: it runs the
installer.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from klamm.environments import runtime
from klamm.environments.errors import BadRequirement, ToolFailure, Unresolvable
from klamm.environments.lock import Lock, LockedPackage, make_lock, roots_of
from klamm.environments.names import requirement, wheel_name
from klamm.environments.tools import Resolved, Sources, Tool, redacted
from klamm.environments.wheelhouse import WheelHouse


class Resolver:
    """See the module. `work` is a folder for temporary files."""

    def __init__(self, wheels: WheelHouse, tool: Tool) -> None:
        self.tool = tool
        self._wheels = wheels

    def resolve_request(self, request: str, sources: Sources, work: Path) -> tuple[str, Lock]:
        """Returns the package's name, and its lock. Raises EnvironmentFailure."""
        name, wanted = self._root(request, sources, work)
        return name, self._resolve([name], [wanted], sources, work)

    def _root(self, request: str, sources: Sources, work: Path) -> tuple[str, str]:
        """Returns the name and requirement of a request; builds a folder, keeps a wheel."""
        path = Path(os.path.expanduser(request))  # noqa: PTH111 - Path's raises RuntimeError for a user that is not there
        if not _is_path(request):
            need = requirement(request)
            if need.url is not None:
                raise BadRequirement(
                    f"{need.name} @ {redacted(need.url)}: get the wheel and install the file"
                )
            return need.name, request
        if path.is_dir():
            wheel = self.tool.build_wheel(path.absolute(), work / "built", sources)
        elif path.suffix == ".whl" and path.is_file():
            wheel = path
        else:
            raise ToolFailure(f"{request} is neither a folder with a Python project nor a wheel (.whl)")
        name = wheel_name(wheel).name
        kept = self._wheels.directory / self._wheels.take(wheel) / wheel.name
        return name, f"{name} @ {kept.as_uri()}"

    def _resolve(
        self, roots: Sequence[str], requirements: Sequence[str], sources: Sources, work: Path
    ) -> Lock:
        here = runtime.current()
        stubs = work / "runtime"
        here.write_stubs(stubs)
        seen = Sources(
            index_url=sources.index_url,
            find_links=(*sources.find_links, str(stubs)),
            offline=sources.offline,
        )
        try:
            found = self.tool.resolve(requirements, seen, constraints=here.exact(), work=work)
        except Unresolvable:
            found = self.tool.resolve(requirements, seen, constraints=here.allowed(), work=work)
        return make_lock(roots, [self._locked(r) for r in found if not here.provides(r.version)])

    def resolve_together(self, locks: Sequence[Lock], sources: Sources, work: Path) -> Lock:
        """Returns a resolver's lock for packages whose own locks differ, made of versions that are locked already
        if possible.
        """
        wanted = roots_of(locks)
        packages = {p.pin: p for lock in locks for p in lock.packages}
        names = [root.partition("==")[0] for root in wanted]
        requirements = [self._requirement(packages[root]) for root in wanted]
        links = {str(self._wheels.path(p).parent) for p in packages.values() if p.file is not None}
        seen = Sources(
            index_url=sources.index_url,
            find_links=(*sources.find_links, *sorted(links)),
            offline=sources.offline,
        )
        return self._resolve(names, requirements, seen, work)

    def _requirement(self, package: LockedPackage) -> str:
        if package.file is None:
            return package.pin
        return f"{package.name} @ {self._wheels.path(package).as_uri()}"

    def _locked(self, found: Resolved) -> LockedPackage:
        if found.path is None:
            return LockedPackage(name=found.name, version=found.version, hashes=found.hashes)
        digest = self._wheels.take(found.path)
        return LockedPackage(name=found.name, version=found.version, hashes=(digest,), file=found.path.name)


def _is_path(request: str) -> bool:
    """Returns whether a request is a wheel or folder. `name @ address` is a requirement, whatever the address
    is.
    """
    before = request.partition("@")[0]
    path = request.startswith((".", "/", "~")) or os.sep in before
    return path or (request == before and request.endswith(".whl"))
