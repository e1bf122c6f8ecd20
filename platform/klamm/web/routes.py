"""The routes of an application, made of its table of endpoints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Middleware

from klamm.web.endpoint import Endpoint, Handler
from klamm.web.http import MAX_BODY_BYTES

ENDPOINTS: Final = web.AppKey("endpoints", tuple[Endpoint, ...])
"""The application's key for the endpoints that it serves."""


def routed(
    endpoints: tuple[Endpoint, ...],
    middlewares: Sequence[Middleware],
    *,
    body_bytes_max: int = MAX_BODY_BYTES,
) -> web.Application:
    """Makes an application of endpoints, whatever they serve. A larger body is answered 413."""
    app = web.Application(middlewares=middlewares, client_max_size=body_bytes_max)
    app[ENDPOINTS] = endpoints
    by_path: dict[str, list[Endpoint]] = {}
    for endpoint in endpoints:
        by_path.setdefault(endpoint.path, []).append(endpoint)
    for path, found in by_path.items():
        # JAX-RS, and so Kafka, takes every path with and without a slash at its end.
        for spelling in {path, path.rstrip("/") + "/"}:
            _add(app.router.add_resource(spelling), found)
    return app


def _add(resource: web.Resource, endpoints: Sequence[Endpoint]) -> None:
    for endpoint in endpoints:
        resource.add_route(endpoint.method, endpoint.handler)
        if endpoint.method == "GET":
            resource.add_route("HEAD", endpoint.handler)
    methods = [endpoint.method for endpoint in endpoints]
    resource.add_route("OPTIONS", _options([*methods, "OPTIONS"]))


def _options(methods: list[str]) -> Handler:
    allowed = (["HEAD"] if "GET" in methods else []) + methods

    async def options(_request: web.Request) -> web.StreamResponse:
        return web.Response(text=", ".join(allowed), headers={"Allow": ",".join(allowed)})

    return options
