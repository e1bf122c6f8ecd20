"""REST extensions that the operator installed beside the worker: found, configured, registered, closed.

They add applications below their own prefixes, and middlewares (klamm_plugins/rest_extension.py is their
contract). Kafka's extension for basic auth is not loaded as a class; `access` does its work.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from aiohttp import web
from aiohttp.typedefs import Middleware

from klamm.connect.config import WorkerConfig
from klamm.connect.errors import NotFound
from klamm.connect.service.connectors import ConnectService
from klamm.connect.settings.rest import is_basic_auth
from klamm.web.endpoint import Access, Endpoint, Handler
from klamm_base.errors import ConfigError
from klamm_plugins.operator_discovery import find_class
from klamm_plugins.rest_extension import RestAccess, RestExtension, RestMiddleware

log = logging.getLogger(__name__)

KEY: Final = "rest.extension.classes"


class Extensions:
    """The extensions of one worker. Call `register` before the applications are made. Raises ConfigError."""

    def __init__(self, config: WorkerConfig) -> None:
        self._all = [_make(name, config) for name in config[KEY] if not is_basic_auth(name)]
        self._apps: dict[str, tuple[web.Application, Access]] = {}
        self._middlewares: list[Middleware] = []

    def register(self, service: ConnectService, url: str, endpoints: tuple[Endpoint, ...]) -> None:
        """Lets each extension add its paths and middlewares. Raises ConfigError."""
        taken = {endpoint.path.strip("/").partition("/")[0] for endpoint in endpoints}
        context = _Context(_State(service, url), taken, self._apps, self._middlewares)
        for extension in self._all:
            name = _name(extension)
            try:
                extension.register(context)
            except Exception as e:
                raise ConfigError(f"{KEY}: {name} cannot be registered: {e}", key=KEY) from e
            log.info("REST extension %s, version %s", name, extension.version())

    def middlewares(self, endpoints: tuple[Endpoint, ...]) -> list[Middleware]:
        """Returns the extensions' middlewares, which do not see requests that workers sign for each other."""
        internal = {endpoint.handler for endpoint in endpoints if endpoint.access is Access.WORKER}
        return [_outside(each, internal) for each in self._middlewares]

    def mount(self, app: web.Application) -> None:
        """Adds the extensions' applications."""
        for prefix, (mounted, _) in self._apps.items():
            app.add_subapp(f"/{prefix}/", mounted)

    def access_of(self, request: web.Request) -> Access | None:
        """Returns who may use the path of a request; None if it belongs to no extension."""
        found = self._apps.get(request.path.strip("/").partition("/")[0])
        return found[1] if found else None

    async def close(self) -> None:
        for extension in self._all:
            try:
                await extension.close()
            except Exception:
                log.exception("REST extension %s could not be closed", _name(extension))


class _Context:
    """The context that an extension registers with."""

    def __init__(
        self,
        cluster: _State,
        taken: set[str],
        apps: dict[str, tuple[web.Application, Access]],
        middlewares: list[Middleware],
    ) -> None:
        self.cluster = cluster
        self._taken, self._apps, self._middlewares = taken, apps, middlewares

    def add_app(self, prefix: str, app: web.Application, *, access: RestAccess = "any") -> None:
        name = prefix.strip("/")
        if not name or "/" in name or "{" in name:
            raise ValueError(f"{prefix!r} is no prefix: one word, such as 'acme', is needed")
        if name in self._taken or name in self._apps:
            raise ValueError(f"the prefix {name} is taken")
        self._apps[name] = (app, Access(access))

    def add_middleware(self, middleware: RestMiddleware) -> None:
        self._middlewares.append(middleware)


class _State:
    """The state of the worker that an extension may read."""

    def __init__(self, service: ConnectService, url: str) -> None:
        self._service = service
        self.url = url

    @property
    def cluster_id(self) -> str | None:
        return self._service.cluster_id

    @property
    def ready(self) -> bool:
        return self._service.ready

    def connectors(self) -> list[str]:
        return list(self._service.connectors())

    async def config(self, connector: str) -> dict[str, str]:
        return await self._service.redaction.hide(self._of(connector))

    async def status(self, connector: str) -> dict[str, Any]:
        self._of(connector)
        return await self._service.status(connector)

    def _of(self, connector: str) -> Mapping[str, str]:
        try:
            return self._service.config(connector)
        except NotFound as e:
            raise KeyError(str(e)) from None


def _make(name: str, config: WorkerConfig) -> RestExtension:
    # This looks for an abstract base, which mypy's type[T] excludes.
    base: type[RestExtension] = RestExtension  # type: ignore[type-abstract]
    try:
        cls = find_class(name, base, "register_rest_extensions", (), "REST extensions")
    except ConfigError as e:
        raise ConfigError(f"{KEY}: {e}; Java's cannot run here", key=KEY) from None
    except Exception as e:
        raise ConfigError(f"{KEY}: {name} cannot be imported: {type(e).__name__}: {e}", key=KEY) from e
    try:
        extension = cls()
        extension.configure(config.raw)
    except ConfigError as e:
        raise ConfigError(f"{name}: {e}", key=e.key or KEY) from None
    except Exception as e:
        raise ConfigError(f"{KEY}: {name} cannot be made: {type(e).__name__}: {e}", key=KEY) from e
    return extension


def _name(extension: RestExtension) -> str:
    return f"{type(extension).__module__}.{type(extension).__qualname__}"


def _outside(middleware: Middleware, internal: set[Handler]) -> Middleware:
    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.match_info.handler in internal:
            return await handler(request)
        return await middleware(request, handler)

    return check
