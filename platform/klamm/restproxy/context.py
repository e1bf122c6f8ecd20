"""The parts of handlers in common: the proxy itself, answers, and addresses in links."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import orjson
from aiohttp import web

from klamm.admin.client import Admin
from klamm.admin.errors import AdminError
from klamm.restproxy.config import ProxyConfig
from klamm.restproxy.errors import ProxyError, of_cluster
from klamm.restproxy.formats import V2
from klamm.restproxy.instances import Instances
from klamm.restproxy.producing import Producing
from klamm.restproxy.rate_limits import RateLimits
from klamm.restproxy.schemas import Schemas
from klamm_kafka.client import ClientError, UnsupportedApi

ADMIN_S: Final = 20.0


@dataclass(slots=True, kw_only=True)
class Proxy:
    """The parts of a running proxy."""

    config: ProxyConfig
    schemas: Schemas
    producing: Producing
    instances: Instances
    limits: RateLimits
    cluster_id: str = ""
    _addresses: dict[str, str] = field(default_factory=dict)

    @asynccontextmanager
    async def admin(self) -> AsyncIterator[Admin]:
        """Gives a client for one request; a refusal of the cluster becomes the answer."""
        try:
            async with Admin(
                self.config.bootstrap,
                timeout_s=ADMIN_S,
                client_id="rest-proxy",
                security=self.config.security,
            ) as client:
                yield client
        except AdminError as e:
            raise of_cluster(e) from None
        except UnsupportedApi as e:
            raise ProxyError(40002, str(e)) from None
        except ClientError as e:
            raise ProxyError(50302, str(e)) from None


PROXY: Final = web.AppKey("proxy", Proxy)


def answer(body: Any, status: int = 200, content_type: str = V2) -> web.Response:
    return web.Response(body=orjson.dumps(body), status=status, content_type=content_type)


def address(request: web.Request) -> str:
    """Returns the beginning of links, as the client reaches this proxy."""
    host = request.app[PROXY].config.values["host.name"]
    if host:
        port = request.url.port
        return f"{request.scheme}://{host}:{port}"
    return f"{request.scheme}://{request.host}"
