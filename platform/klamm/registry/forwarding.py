"""Passes writes on to the registry that leads. The answer is that one's; logins and roles are checked there as well."""

from __future__ import annotations

import logging
import ssl
from typing import Final

import aiohttp
from aiohttp import hdrs, web
from aiohttp.typedefs import Middleware
from yarl import URL

from klamm.registry.errors import RegistryError, no_leader
from klamm.registry.node import NotLeading
from klamm.web.endpoint import Handler

log = logging.getLogger(__name__)

FORWARDED: Final = "X-Forward"
"""Confluent's header of requests that a registry has forwarded: nobody forwards them again."""
_SENT: Final = (hdrs.CONTENT_TYPE, hdrs.ACCEPT, hdrs.AUTHORIZATION)
TIMEOUT: Final = aiohttp.ClientTimeout(total=60, sock_connect=3)


class Forwarding:
    """Makes the middleware; `close` ends its connections. `tls` is for a leader that speaks HTTPS."""

    def __init__(self, tls: ssl.SSLContext | None) -> None:
        self._tls = tls
        self._session: aiohttp.ClientSession | None = None

    def middleware(self) -> Middleware:
        @web.middleware
        async def forward(request: web.Request, handler: Handler) -> web.StreamResponse:
            try:
                return await handler(request)
            except NotLeading as e:
                if e.url is None or FORWARDED in request.headers:
                    raise no_leader() from None
                return await self._pass_on(request, e.url)

        return forward

    async def _pass_on(self, request: web.Request, url: str) -> web.Response:
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=TIMEOUT)
        headers = {str(name): request.headers[name] for name in _SENT if name in request.headers}
        headers[FORWARDED] = "true"
        address = URL(url + request.rel_url.raw_path, encoded=True).with_query(request.query)
        try:
            async with self._session.request(
                request.method, address, data=await request.read(), headers=headers,
                ssl=self._tls if self._tls is not None else True,
            ) as answer:  # fmt: skip
                kind: dict[str, str] = {
                    str(hdrs.CONTENT_TYPE): answer.headers.get(hdrs.CONTENT_TYPE, "application/json")
                }
                return web.Response(status=answer.status, body=await answer.read(), headers=kind)
        except (aiohttp.ClientError, TimeoutError) as e:
            log.warning("%s leads, and does not answer: %r", url, e)
            raise RegistryError(50003, f"Error while forwarding the request to the leader {url}") from None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
