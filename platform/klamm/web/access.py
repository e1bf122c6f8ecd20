"""The check before every handler: who sends the request, and may they do this (`endpoint.access`)?"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

from aiohttp import hdrs, web
from aiohttp.typedefs import Middleware

from klamm.web.answer_headers import Cors
from klamm.web.authentication import Authenticator
from klamm.web.callers import CALLER, STILL, demand
from klamm.web.endpoint import Access, Endpoint, Handler
from klamm.web.errors import Forbidden, Unauthorized
from klamm.web.roles import Realm

DENIED: Final = "User cannot access the resource."  # Kafka's words
FOREIGN: Final = "The request comes from a page of another site; access.control.allow.origin lists the sites that may send requests"
_READS: Final = frozenset({hdrs.METH_GET, hdrs.METH_HEAD, hdrs.METH_OPTIONS})


class Stranger(Unauthorized):
    """Nobody knows the caller; a browser may ask its user."""

    def __init__(self, realm: Realm) -> None:
        super().__init__(DENIED)
        self.headers = {str(hdrs.WWW_AUTHENTICATE): f'Basic realm="{realm.title}", charset="UTF-8"'}


def access_check(
    asks: Authenticator,
    endpoints: Iterable[Endpoint],
    realm: Realm,
    *,
    open_too: bool = False,
    refuse_peer: Callable[[web.Request], str | None] = lambda _request: None,
    others: Callable[[web.Request], Access | None] = lambda _request: None,
) -> Middleware:
    """Makes the middleware that checks access.

    `others` returns the access of a path that is no endpoint (None: the path does not exist). `refuse_peer` says why an
    endpoint for other servers is not open to them. With `open_too`, it always is, and endpoints for everybody need
    credentials as well, as with Kafka's extension. Paths that do not
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
            if not open_too and (why := refuse_peer(request)) is not None:
                raise Forbidden(why)
            return await handler(request)
        if access is Access.OPEN and not open_too:
            return await handler(request)
        ask = partial(asks.authenticate, request.headers.get(hdrs.AUTHORIZATION))
        caller = await ask()
        if caller is None:
            raise Stranger(realm)
        request[CALLER], request[STILL] = caller, ask
        if access in {Access.VIEW, Access.OPERATE, Access.ADMINISTER}:
            demand(request, access, request.match_info.get(realm.thing))
        return await handler(request)

    return check


def _unless_options(request: web.Request, others: Callable[[web.Request], Access | None]) -> Access | None:
    return None if request.method == hdrs.METH_OPTIONS else others(request)


def foreign_pages(cors: Cors | None) -> Middleware:
    """Makes the middleware that refuses requests of another site's page, unless CORS allows that site.

    A server that asks for no credentials trusts everybody who reaches it, and any page in a browser reaches
    loopback. The browser asks first before it sends JSON (a preflight), but sends requests without a body,
    such as a restart, at once.
    """

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        foreign = request.headers.get("Sec-Fetch-Site", "").lower() == "cross-site"
        if foreign and request.method not in _READS:
            origin = request.headers.get(hdrs.ORIGIN, "")
            if cors is None or not cors.allows(origin):
                raise Forbidden(FOREIGN)
        return await handler(request)

    return check
