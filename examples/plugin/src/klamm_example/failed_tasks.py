"""An extension of a worker's REST API: `GET /example/failed`, and a header on every answer.

The operator installs the package beside the worker and sets `rest.extension.classes=klamm_example.failed_tasks.FailedTasks`.
Both of its parts are small, because they run in the worker's event loop.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from aiohttp import web

from klamm_base.errors import ConfigError
from klamm_example.release import release
from klamm_plugins.rest_extension import RestContext, RestExtension

HEADER = "example.header"


class FailedTasks(RestExtension):
    """Says in one answer which connectors have failed tasks: what an alert wants to know."""

    alias = "FailedTasks"

    @classmethod
    def version(cls) -> str:
        return release()

    def configure(self, props: Mapping[str, str]) -> None:
        self._header = props.get(HEADER, "X-Example")
        if not self._header.replace("-", "").isalnum():
            raise ConfigError(f"{HEADER}={self._header}: not the name of a header", key=HEADER)

    def register(self, context: RestContext) -> None:
        self._cluster = context.cluster
        app = web.Application()
        app.router.add_get("/failed", self._failed)
        context.add_app("example", app, access="view")
        context.add_middleware(self._mark)

    async def _failed(self, _request: web.Request) -> web.Response:
        found = {}
        for name in self._cluster.connectors():
            status = await self._cluster.status(name)
            failed = [task["id"] for task in status["tasks"] if task["state"] == "FAILED"]
            if failed:
                found[name] = failed
        return web.json_response(found)

    async def _mark(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        answer = await handler(request)
        answer.headers[self._header] = "klamm-example"
        return answer
