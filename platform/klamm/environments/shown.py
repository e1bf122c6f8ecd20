"""An installed plugin package as users see it, in REST answers and on the command line."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self

from klamm.environments.inspection import Broken, PluginRow
from klamm.environments.store import Environment, Record


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledPlugin:
    """A package. `state`: ready; broken (some of its plugins cannot be used, as `broken` says); building;
    failed (this machine could not build it, as `error` says). Without `environment` it is beside the
    worker. `lock` is the same on all platforms; `warnings` are shown at its installation.
    """

    name: str
    version: str
    request: str
    state: str
    plugins: tuple[PluginRow, ...] = ()
    broken: tuple[Broken, ...] = ()
    packages: tuple[str, ...] = ()
    environment: str = ""
    error: str | None = None
    lock: str = ""
    warnings: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, record: Record, environment: Environment | None, *, platform: str, error: str | None = None
    ) -> Self:
        """Makes the view of a package; `error` is the reason why it has no environment here."""
        contents = None if environment is None else environment.contents
        state = "building"
        if contents is not None:
            state, error = "broken" if contents.broken else "ready", None
        elif error or record.group is None:
            state, error = "failed", error or "it was built for another Python; install it again"
        return cls(
            name=record.name,
            version=record.version,
            request=record.request,
            state=state,
            plugins=() if contents is None else contents.plugins,
            broken=() if contents is None else contents.broken,
            packages=tuple(p.pin for p in record.lock.packages),
            environment=record.lock.id(platform),
            error=error,
            lock=record.lock.id(""),
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "version": self.version,
            "request": self.request,
            "state": self.state,
            "error": self.error,
            "plugins": [
                {"class": p.plugin_class, "type": p.type, "version": p.version} for p in self.plugins
            ],
            "broken": [{"name": b.name, "error": b.error, "trace": b.trace} for b in self.broken],
            "packages": list(self.packages),
            "environment": self.environment,
        }


def same_versions(
    record: Record, environment: Environment, others: Iterable[tuple[Record, Environment | None]]
) -> tuple[str, ...]:
    """Returns sentences about classes with the same `version()` in other packages: a requested version picks
    none of them.
    """
    mine = {(p.plugin_class, p.type, p.version) for p in environment.contents.plugins}
    found = []
    for other, built in others:
        if other.root == record.root or built is None:
            continue
        same = mine & {(p.plugin_class, p.type, p.version) for p in built.contents.plugins}
        if same:
            classes = ", ".join(sorted({f"{name} {version}" for name, _, version in same}))
            found.append(
                f"{record.root} and {other.root} have plugins of the same class and version: {classes}. Their plugin.version "
                "cannot tell them apart, and the newest package is used; let version() return the package's version"
            )
    return tuple(found)
