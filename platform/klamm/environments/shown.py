"""An installed plugin package as users see it, in REST answers and on the command line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from klamm.environments.inspection import Broken, PluginRow
from klamm.environments.store import Environment, Record


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledPlugin:
    """A package. `state`: ready; broken (some of its plugins cannot be used: `broken` says why); building; failed (it
    could not be built on this machine: `error`). Without `environment` it is beside the worker.
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

    @classmethod
    def of(
        cls, record: Record, environment: Environment | None, *, platform: str, error: str | None = None
    ) -> Self:
        """What is to be said of a package; `error` is why it has no environment here."""
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
