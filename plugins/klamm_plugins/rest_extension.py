"""Extensions of a worker's REST API: more paths, and middlewares that see every request.

They run in the worker itself, so only what is installed beside it can be one, and what it does wrong is the worker's
trouble: keep it small, and never block the event loop. A worker names them in `rest.extension.classes`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

if TYPE_CHECKING:
    from aiohttp import web  # the worker has it; plugins that are no extensions do without

RestAccess = Literal["open", "any", "view", "operate", "administer"]
"""Who may use an extension's paths where the worker asks who calls (`rest.auth.file`): everybody; whoever has a role; whoever may
see, operate or administer all connectors.
"""


class RestMiddleware(Protocol):
    """Sees a request before its handler: answers itself, or answers what `await handler(request)` gives."""

    def __call__(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> Awaitable[web.StreamResponse]: ...


class ClusterState(Protocol):
    """What an extension can know of the worker and its group. Changes are made by the REST API itself."""

    @property
    def url(self) -> str:
        """Where this worker's REST API is, as others reach it."""
        ...

    @property
    def cluster_id(self) -> str | None:
        """The id of the Kafka cluster; None until the broker has answered."""
        ...

    @property
    def ready(self) -> bool:
        """Whether the worker has read its topics. Until then nothing is known of connectors."""
        ...

    def connectors(self) -> list[str]:
        """The names of the group's connectors."""
        ...

    async def config(self, connector: str) -> dict[str, str]:
        """Its configuration, passwords hidden. KeyError when there is no such connector."""
        ...

    async def status(self, connector: str) -> dict[str, Any]:
        """What GET /connectors/NAME/status answers. KeyError when there is no such connector."""
        ...


class RestContext(Protocol):
    """Given to `register`."""

    @property
    def cluster(self) -> ClusterState: ...

    def add_app(self, prefix: str, app: web.Application, *, access: RestAccess = "any") -> None:
        """Serve an aiohttp application below `/prefix`. ValueError for a prefix that is taken."""
        ...

    def add_middleware(self, middleware: RestMiddleware) -> None:
        """Let it see every request, after the worker's own access check and before everything else, except those that
        workers sign for each other. Errors are answered as Kafka's are: raise aiohttp's, or answer yourself.
        """
        ...


class RestExtension(ABC):
    """Life: constructor (no arguments), `configure`, `register`, `close`. All in the worker's event loop."""

    kafka_name: ClassVar[str | None] = None
    """The Java class name that `rest.extension.classes` may have for it."""

    @classmethod
    def version(cls) -> str:
        """Shown in the worker's log."""
        return "undefined"

    def configure(self, props: Mapping[str, str]) -> None:
        """The worker's properties as given. Raise ConfigError for what cannot be used: the worker then does not start."""
        return

    @abstractmethod
    def register(self, context: RestContext) -> None:
        """Add applications and middlewares. Called once, before the first request."""

    async def close(self) -> None:
        """The worker stops. An exception is logged."""
        return
