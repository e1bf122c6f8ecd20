"""Passes writes on to the registry that leads. The answer is that one's; logins and roles are checked there as well."""

from __future__ import annotations

import asyncio
import logging
import ssl
from typing import Final

import aiohttp
from aiohttp import hdrs, web
from aiohttp.typedefs import Middleware
from yarl import URL

from klamm.registry.config import READ_TIMEOUT_MS
from klamm.registry.errors import RegistryError, no_leader
from klamm.registry.node import ELECTION_S, NotLeading
from klamm.web.endpoint import Handler

log = logging.getLogger(__name__)

FORWARDED: Final = "X-Forward"
"""Confluent's header of requests that a registry has forwarded: nobody forwards them again."""
_SENT: Final = (hdrs.CONTENT_TYPE, hdrs.ACCEPT, hdrs.AUTHORIZATION)
CONNECT_S: Final = 3.0
AGAIN_S: Final = 0.3
_NOT_REACHED: Final = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)


def _failed(url: str, why: str) -> RegistryError:
    return RegistryError(50003, f"Error while forwarding the request to the leader {url}: {why}")


class Forwarding:
    """Makes the middleware; `close` ends its connections. `tls` is for a leader that speaks HTTPS, which has `timeout_s` to answer."""

    def __init__(self, tls: ssl.SSLContext | None, timeout_s: float) -> None:
        self._tls = tls
        self._timeout_s = timeout_s
        self._session: aiohttp.ClientSession | None = None

    def middleware(self) -> Middleware:
        @web.middleware
        async def forward(request: web.Request, handler: Handler) -> web.StreamResponse:
            loop = asyncio.get_running_loop()
            end = loop.time() + ELECTION_S
            while True:
                try:
                    return await handler(request)
                except NotLeading as e:
                    if e.url is None or FORWARDED in request.headers:
                        raise no_leader() from None
                    url = e.url
                try:
                    return await self._pass_on(request, url)
                except _NOT_REACHED as e:  # it is gone, and the group does not know that yet
                    if loop.time() > end:
                        log.warning("%s leads, and cannot be reached: %r", url, e)
                        raise _failed(url, "it cannot be reached") from None
                await asyncio.sleep(AGAIN_S)

        return forward

    async def _pass_on(self, request: web.Request, url: str) -> web.Response:
        """Returns the leader's answer. Raises one of _NOT_REACHED if it got nothing of the request, and RegistryError 50003."""
        if self._session is None:
            timeout = aiohttp.ClientTimeout(total=self._timeout_s, sock_connect=CONNECT_S)
            self._session = aiohttp.ClientSession(timeout=timeout)
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
            if isinstance(e, _NOT_REACHED) and not isinstance(e, aiohttp.ClientSSLError):
                raise
            log.warning("%s leads, and does not answer: %r", url, e)
            why = str(e) or type(e).__name__
            if isinstance(e, TimeoutError):
                why = f"it did not answer within {self._timeout_s * 1000:g} ms ({READ_TIMEOUT_MS}), and may do the write all the same"
            raise _failed(url, why) from None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
