"""The check before every handler: who is it, and may they do this (`endpoint.access`)."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from aiohttp import hdrs, web
from aiohttp.typedefs import Middleware

from klamm.connect.config import WorkerConfig
from klamm.connect.errors import Forbidden
from klamm.connect.rest.authentication import Authenticator, UsersFile
from klamm.connect.rest.callers import CALLER, demand
from klamm.connect.rest.endpoint import Access, Endpoint, Handler
from klamm.connect.rest.http import error_response
from klamm.connect.rest.jaas_login import jaas_file, login_of
from klamm_base.errors import ConfigError

DENIED: Final = "User cannot access the resource."  # Kafka's words
_CHALLENGE: Final = 'Basic realm="Kafka Connect", charset="UTF-8"'


def authenticator(config: WorkerConfig) -> Authenticator | None:
    """Who is asked for credentials by what; None: nobody is. Raises ConfigError."""
    path, extensions = config["rest.auth.file"], config["rest.extension.classes"]
    if path and extensions:
        raise ConfigError(
            "rest.auth.file and rest.extension.classes are both set: one of them says who may come in",
            key="rest.auth.file",
        )
    if path:
        return UsersFile(Path(path))
    if extensions:
        return login_of(jaas_file(config["rest.auth.jaas.file"]))
    return None


def access_check(asks: Authenticator, endpoints: Iterable[Endpoint], *, open_too: bool) -> Middleware:
    """The middleware. With `open_too` endpoints for everybody need credentials as well, as with Kafka's extension.

    Paths that there are not, and OPTIONS (a browser sends it without credentials before its request), pass.
    """
    by_handler: dict[Any, Endpoint] = {endpoint.handler: endpoint for endpoint in endpoints}

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        endpoint = by_handler.get(request.match_info.handler)
        if endpoint is None or endpoint.access is Access.WORKER:
            return await handler(request)
        if endpoint.access is Access.OPEN and not open_too:
            return await handler(request)
        caller = await asks.authenticate(request.headers.get(hdrs.AUTHORIZATION))
        if caller is None:
            return error_response(401, DENIED, {str(hdrs.WWW_AUTHENTICATE): _CHALLENGE})
        request[CALLER] = caller
        try:
            if endpoint.access in {Access.VIEW, Access.OPERATE, Access.ADMINISTER}:
                demand(request, endpoint.access, request.match_info.get("connector"))
        except Forbidden as e:
            return error_response(e.status, str(e))
        return await handler(request)

    return check
