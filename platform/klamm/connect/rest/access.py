"""The check before every handler: who sends the request, and may they do this (`endpoint.access`)?"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, Final

from aiohttp import hdrs, web
from aiohttp.typedefs import Middleware

from klamm.connect.config import WorkerConfig
from klamm.connect.errors import Forbidden
from klamm.connect.rest.authentication import Authenticator, UsersFile
from klamm.connect.rest.callers import CALLER, STILL, demand
from klamm.connect.rest.endpoint import Access, Endpoint, Handler
from klamm.connect.rest.http import error_response
from klamm.connect.rest.jaas_login import jaas_file, login_of
from klamm.connect.rest.keys import SERVICE
from klamm.connect.settings.answer_headers import Cors
from klamm.connect.settings.rest import is_basic_auth
from klamm_base.errors import ConfigError

DENIED: Final = "User cannot access the resource."  # Kafka's words
UNSIGNED: Final = (
    "This worker's group uses an older protocol, in which workers do not sign their requests; with rest.auth.file these "
    "are refused until every worker has connect.protocol=sessioned"
)
FOREIGN: Final = "The request comes from a page of another site; access.control.allow.origin lists the sites that may send requests"
_READS: Final = frozenset({hdrs.METH_GET, hdrs.METH_HEAD, hdrs.METH_OPTIONS})
_CHALLENGE: Final = 'Basic realm="Kafka Connect", charset="UTF-8"'


def authenticator(config: WorkerConfig) -> Authenticator | None:
    """Returns the configured check of credentials; None: requests need no credentials. Raises ConfigError."""
    path, kafkas = config["rest.auth.file"], has_basic_auth(config)
    if path and kafkas:
        raise ConfigError(
            "rest.auth.file and BasicAuthSecurityRestExtension in rest.extension.classes are both set; "
            "set only one of them",
            key="rest.auth.file",
        )
    if path:
        return UsersFile(Path(path))
    if kafkas:
        return login_of(jaas_file(config["rest.auth.jaas.file"]))
    return None


def has_basic_auth(config: WorkerConfig) -> bool:
    """Tells whether Kafka's extension for basic auth is configured."""
    return any(is_basic_auth(name) for name in config["rest.extension.classes"])


def access_check(
    asks: Authenticator,
    endpoints: Iterable[Endpoint],
    *,
    open_too: bool,
    others: Callable[[web.Request], Access | None] = lambda _request: None,
) -> Middleware:
    """Makes the middleware that checks access.

    `others` returns the access of a path that is no endpoint (None: the path does not exist). With
    `open_too`, endpoints for everybody need credentials as well, as with Kafka's extension. Paths that do not
    exist pass, and so does OPTIONS, which a browser sends without credentials before its request.
    """
    by_handler: dict[Any, Endpoint] = {endpoint.handler: endpoint for endpoint in endpoints}

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        endpoint = by_handler.get(request.match_info.handler)
        access = endpoint.access if endpoint is not None else _unless_options(request, others)
        if access is None:
            return await handler(request)
        if access is Access.WORKER:
            if not open_too and not _signed(request):
                return error_response(403, UNSIGNED)
            return await handler(request)
        if access is Access.OPEN and not open_too:
            return await handler(request)
        ask = partial(asks.authenticate, request.headers.get(hdrs.AUTHORIZATION))
        caller = await ask()
        if caller is None:
            return error_response(401, DENIED, {str(hdrs.WWW_AUTHENTICATE): _CHALLENGE})
        request[CALLER], request[STILL] = caller, ask
        try:
            if access in {Access.VIEW, Access.OPERATE, Access.ADMINISTER}:
                demand(request, access, request.match_info.get("connector"))
        except Forbidden as e:
            return error_response(e.status, str(e))
        return await handler(request)

    return check


def _unless_options(request: web.Request, others: Callable[[web.Request], Access | None]) -> Access | None:
    return None if request.method == hdrs.METH_OPTIONS else others(request)


def _signed(request: web.Request) -> bool:
    """Tells whether workers sign their requests. In a group of an older protocol they do not, so anybody's
    requests would pass.
    """
    return request.app[SERVICE].runtime.cluster.demands_signatures


def foreign_pages(cors: Cors | None) -> Middleware:
    """Makes the middleware that refuses requests of another site's page, unless CORS allows that site.

    A worker that asks for no credentials trusts everybody who reaches it, and any page in a browser reaches
    loopback. The browser asks first before it sends JSON (a preflight), but sends requests without a body,
    such as a restart, at once.
    """

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        foreign = request.headers.get("Sec-Fetch-Site", "").lower() == "cross-site"
        if foreign and request.method not in _READS:
            origin = request.headers.get(hdrs.ORIGIN, "")
            if cors is None or not cors.allows(origin):
                return error_response(403, FOREIGN)
        return await handler(request)

    return check
