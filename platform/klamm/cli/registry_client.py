"""A schema registry as commands address it: `--registry`, `--registry-user`, or the context's."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any

import typer

from klamm.cli.rest_client import Login, RestError, Worker
from klamm_base.errors import ConfigError

RegistryOption = Annotated[
    str | None,
    typer.Option("--registry", envvar="KLAMM_REGISTRY_URL", help="Address of a schema registry."),
]
RegistryUserOption = Annotated[
    str | None,
    typer.Option("--registry-user", metavar="NAME:PASSWORD", envvar="KLAMM_REGISTRY_USER", help="Its login."),
]
OptionalRest = Annotated[
    str | None, typer.Option("--url", envvar="KLAMM_REST_URL", help="Address of a Connect worker's REST.")
]


class _Server(Worker):
    """A schema registry's REST API."""

    __slots__ = ()
    WHAT = "schema registry"


@dataclass(frozen=True, slots=True, kw_only=True)
class Registry:
    """A schema registry that a command may need."""

    registry: RegistryOption = None
    registry_user: RegistryUserOption = field(default=None, repr=False)

    def api(self) -> Rest:
        """Return the registry's REST API. Raises ConfigError where no address is given."""
        if self.registry is None:
            raise ConfigError(
                "which schema registry? give --registry http://HOST:PORT, or a context that has one"
            )
        return Rest(_Server(url=self.registry, user=self.registry_user))


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionalWorker(Login):
    """A Connect worker that a command may need."""

    url: OptionalRest = None

    def api(self) -> Rest:
        """Return the worker's REST API. Raises ConfigError where no address is given."""
        if self.url is None:
            raise ConfigError("which Connect worker? give --url http://HOST:PORT, or a context that has one")
        return Rest(self.at(self.url))


@dataclass(frozen=True, slots=True)
class Rest:
    """A REST API of which 404 says that a thing is not there."""

    server: Worker

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """Return the decoded answer, None for 404. Raises KlammError."""
        try:
            return self.server.call(method, path, body)
        except RestError as e:
            if e.status == 404:
                return None
            raise
