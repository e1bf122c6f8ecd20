"""Extensions of a worker's REST API: more paths, and middlewares that see every request.

Extensions run in the worker itself, so only classes that are installed beside it can be extensions, and their
faults are the worker's: keep them small, and never block the event loop. A worker names them in
`rest.extension.classes`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

if TYPE_CHECKING:
    from aiohttp import web  # the worker has it; plugins that are no extensions do without

RestAccess = Literal["open", "any", "view", "operate", "administer"]
"""The callers that may use an extension's paths, where the worker checks callers (`rest.auth.file`): everybody;
callers with any role; callers that may see, operate or administer all connectors.
"""


class RestMiddleware(Protocol):
    """A function that sees a request before its handler. It answers itself, or returns the answer of `await
    handler(request)`.
    """

    def __call__(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> Awaitable[web.StreamResponse]: ...


class ClusterState(Protocol):
    """An extension's view of the worker and its group. Changes go through the REST API itself."""

    @property
    def url(self) -> str:
        """The address of this worker's REST API, as others reach it."""
        ...

    @property
    def cluster_id(self) -> str | None:
        """The id of the Kafka cluster; None until the broker has answered."""
        ...

    @property
    def ready(self) -> bool:
        """True once the worker has read its topics. Until then it knows no connectors."""
        ...

    def connectors(self) -> list[str]:
        """Returns the names of the group's connectors."""
        ...

    async def config(self, connector: str) -> dict[str, str]:
        """Returns a connector's configuration, passwords hidden. Raises KeyError when there is no such connector."""
        ...

    async def status(self, connector: str) -> dict[str, Any]:
        """Returns the answer of GET /connectors/NAME/status. Raises KeyError when there is no such connector."""
        ...


class RestContext(Protocol):
    """The argument of `register`."""

    @property
    def cluster(self) -> ClusterState: ...

    def add_app(self, prefix: str, app: web.Application, *, access: RestAccess = "any") -> None:
        """Serves an aiohttp application below `/prefix`. Raises ValueError for a prefix that is taken."""
        ...

    def add_middleware(self, middleware: RestMiddleware) -> None:
        """Shows every request to the middleware, after the worker's own access check and before everything else, except
        requests that workers sign for each other. Errors are answered as Kafka's are: raise aiohttp's, or answer
        yourself.
        """
        ...


class RestExtension(ABC):
    """A REST extension. Life: constructor (no arguments), `configure`, `register`, `close`, all in the worker's event
    loop.
    """

    kafka_name: ClassVar[str | None] = None
    """The Java class name that may stand for it in `rest.extension.classes`."""

    @classmethod
    def version(cls) -> str:
        """Returns the version, which the worker logs."""
        return "undefined"

    def configure(self, props: Mapping[str, str]) -> None:
        """Takes the worker's properties as given. Raise ConfigError for settings that cannot be used: the worker then does
        not start.
        """
        return

    @abstractmethod
    def register(self, context: RestContext) -> None:
        """Adds applications and middlewares. Called once, before the first request."""

    async def close(self) -> None:
        """Releases what the extension holds, when the worker stops. An exception is logged."""
        return
