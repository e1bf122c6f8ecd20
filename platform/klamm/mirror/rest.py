"""REST of dedicated mode: the flows' connectors below `/flows/A->B/`, and the status of all.

The supervisor listens, with the same listeners, TLS, logins and roles as a worker. It passes a request for a flow
on to the flow's process, which serves a worker's own handlers on a socket that only this user reaches. The file
decides which connectors there are: requests that would make, change or delete one have no path here.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import aiohttp
from aiohttp import hdrs, web
from aiohttp.typedefs import Middleware
from yarl import URL

from klamm.connect.config import WorkerConfig
from klamm.connect.errors import NotFound
from klamm.connect.rest import shapes
from klamm.connect.rest.access import REALM
from klamm.connect.rest.app import ENDPOINTS_OF_WORKERS, TITLE, make_app
from klamm.connect.rest.server import RestServer
from klamm.connect.service.connectors import ConnectService
from klamm.mirror.metrics import FlowsMetrics
from klamm.mirror.shapes import FlowState, FlowStatus, MirrorStatus
from klamm.mirror.status import status_of
from klamm.mirror.watched import Watched
from klamm.web import callers, openapi
from klamm.web.endpoint import Access, Endpoint, Handler
from klamm.web.http import errors, json_response, negotiation
from klamm.web.openapi import get_openapi
from klamm.web.request_counts import RequestCounts
from klamm.web.routes import routed
from klamm_base.errors import KlammError
from klamm_base.metrics_text import CONTENT_TYPE
from klamm_base.properties import Properties
from klamm_base.version import __version__
from klamm_mirror.settings.mm2_config import Flow

log = logging.getLogger(__name__)

FLOW: Final = "/flows/{flow}"
CONNECT_S: Final = 3.0
_NOT_HERE: Final = frozenset({"POST /connectors", "DELETE /connectors/{connector}"})
_WORKERS_ONLY: Final = ("/config", "/dry-run", "/fence")
_SENT: Final = (hdrs.CONTENT_TYPE, hdrs.ACCEPT)
_RETURNED: Final = frozenset({"content-type", "allow"})
_NEEDED: Final = (
    "bootstrap.servers", "group.id", "config.storage.topic", "offset.storage.topic", "status.storage.topic",
    "key.converter", "value.converter",
)  # fmt: skip
"""The settings without which a worker's configuration is none. REST uses none of them."""


class MirrorInfo(shapes.Server):
    """GET /."""

    flows: list[str]


def of_a_flow(endpoint: Endpoint) -> bool:
    """Returns whether a flow serves a worker's endpoint: those of connectors, except what the file decides."""
    changes_config = endpoint.path.endswith(_WORKERS_ONLY) and endpoint.method != "GET"
    return (
        endpoint.path.startswith("/connectors")
        and endpoint.access is not Access.WORKER
        and f"{endpoint.method} {endpoint.path}" not in _NOT_HERE
        and not changes_config
    )


FLOW_ENDPOINTS: Final = tuple(endpoint for endpoint in ENDPOINTS_OF_WORKERS if of_a_flow(endpoint))


async def serve_flow(service: ConnectService, socket: Path) -> web.AppRunner:
    """Serves a flow's connectors on a socket; it asks for no credentials, as its folder does not let others in."""
    runner = web.AppRunner(
        make_app(service, "", endpoints=FLOW_ENDPOINTS), access_log=None, handle_signals=False
    )
    await runner.setup()
    try:
        await web.UnixSite(runner, socket).start()
    except OSError as e:
        raise KlammError(f"cannot listen on {socket}: {e.strerror or e}") from e
    return runner


class MirrorRest:
    """The REST server of a mirror, in the process that watches over its flows. Raises ConfigError and KlammError."""

    name = "rest"

    def __init__(self, watched: Watched, settings: Properties, metrics: FlowsMetrics) -> None:
        self._watched = watched
        self._metrics = metrics
        some = next(iter(watched.flows.values()))
        self._config = WorkerConfig.from_properties(_worker(some, settings))
        self._server = RestServer(self._config)
        self._sessions: dict[str, aiohttp.ClientSession] = {}

    async def start(self) -> str:
        """Listens and serves; returns the address."""
        self._server.bind()
        if (address := self._server.open_address) is not None:
            log.warning(
                "REST listens on %s, which others on the network may reach, and asks nobody for credentials: whoever "
                "reaches it may stop the mirror and change its offsets. Set rest.auth.file, or listeners to an "
                "address of loopback",
                address,
            )
        await self._server.start_with(self._app, self._endpoints())
        return str(self._server.printed)

    async def stop(self) -> None:
        """Accepts no new requests."""
        await self._server.stop()
        for session in self._sessions.values():
            await session.close()

    def _app(self, endpoints: tuple[Endpoint, ...], checks: Sequence[Middleware]) -> web.Application:
        by_handler = {endpoint.handler: endpoint for endpoint in endpoints}
        first = errors(by_handler, self._config.secrets.redact, RequestCounts())
        app = routed(endpoints, [first, *checks, negotiation(by_handler)])
        app[callers.REALM], app[openapi.TITLE] = REALM, TITLE
        return app

    def _endpoints(self) -> tuple[Endpoint, ...]:
        view = Access.VIEW

        def row(path: str, handler: Handler, answer: Any, access: Access = view, **more: Any) -> Endpoint:
            answers = {200: answer}
            return Endpoint(method="GET", path=path, handler=handler, access=access, answers=answers, **more)

        return (
            row("/", self.get_root, MirrorInfo, Access.ANY),
            row("/health", self.get_health, shapes.Health, Access.OPEN),
            row("/openapi.json", get_openapi, dict[str, Any], Access.ANY),
            row("/metrics", self.get_metrics, str, produces="text/plain"),
            row("/status", self.get_status, MirrorStatus),
            row("/flows", self.list_flows, list[str]),
            row(FLOW, self.get_flow, FlowStatus),
            *(self._passed_on(endpoint) for endpoint in FLOW_ENDPOINTS),
        )

    # ---- the mirror

    async def get_root(self, _request: web.Request) -> web.Response:
        """Show the version and the flows."""
        return json_response(
            {
                "version": __version__,
                "commit": "unknown",
                "kafka_cluster_id": None,
                "flows": list(self._watched.flows),
            }
        )

    async def get_health(self, _request: web.Request) -> web.Response:
        """Say whether all flows answer: 200 healthy, 503 starting, 500 unhealthy."""
        flows = (await self._status())["flows"]
        for states, code, word in (
            (
                (FlowState.NOT_RUNNING, FlowState.SILENT, FlowState.RESTARTING, FlowState.FAILED),
                500,
                "unhealthy",
            ),
            ((FlowState.STARTING,), 503, "starting"),
        ):
            for flow in flows:
                if flow["state"] in states:
                    said = f"{flow['flow']}: {flow['state']}"
                    return json_response({"status": word, "message": said}, code)
        return json_response({"status": "healthy", "message": "All flows answer."})

    async def get_metrics(self, _request: web.Request) -> web.Response:
        """Show the metrics of all flows as Prometheus' text."""
        text = "".join(await self._metrics.text())
        return web.Response(body=text.encode(), headers={hdrs.CONTENT_TYPE: CONTENT_TYPE})

    async def get_status(self, _request: web.Request) -> web.Response:
        """Show the status of all flows, as `klamm mirror status` does."""
        return json_response(await self._status())

    async def list_flows(self, _request: web.Request) -> web.Response:
        """List the flows."""
        return json_response(list(self._watched.flows))

    async def get_flow(self, request: web.Request) -> web.Response:
        """Show the status of a flow."""
        name = self._named(request)
        found = await status_of(self._watched.path, [self._watched.flows[name]])
        return json_response(found["flows"][0])

    async def _status(self) -> MirrorStatus:
        return await status_of(self._watched.path, list(self._watched.flows.values()))

    # ---- the connectors of a flow

    def _named(self, request: web.Request) -> str:
        name = request.match_info["flow"]
        if name not in (flows := self._watched.flows):
            raise NotFound(f"Flow {name} not found; there are: {', '.join(flows)}")
        return name

    def _passed_on(self, endpoint: Endpoint) -> Endpoint:
        """Returns the endpoint of a flow's connectors that is served by its process."""

        async def handler(request: web.Request) -> web.StreamResponse:
            return await self._pass_on(request, self._named(request))

        handler.__name__ = f"flow_{endpoint.handler.__name__}"
        handler.__doc__ = endpoint.handler.__doc__
        # A list is not filtered by roles here: it takes one that holds for all connectors.
        access = Access.VIEW if endpoint.access is Access.ANY else endpoint.access
        return replace(endpoint, path=FLOW + endpoint.path, handler=handler, access=access)

    async def _pass_on(self, request: web.Request, flow: str) -> web.Response:
        _, _, rest = request.rel_url.raw_path.removeprefix("/flows/").partition("/")
        address = URL(f"http://flow/{rest}", encoded=True).with_query(request.query)
        headers = {name: request.headers[name] for name in _SENT if name in request.headers}
        try:
            async with self._session(flow).request(
                request.method, address, data=await request.read() or None, headers=headers,
                skip_auto_headers=(hdrs.CONTENT_TYPE, hdrs.ACCEPT_ENCODING),
            ) as answer:  # fmt: skip
                kept = {k: v for k, v in answer.headers.items() if k.lower() in _RETURNED}
                return web.Response(status=answer.status, body=await answer.read(), headers=kept)
        except (aiohttp.ClientError, TimeoutError) as e:
            log.debug("%s does not answer: %r", flow, e)
            said = f"The process of {flow} does not answer; GET /status says why"
            return json_response({"error_code": 503, "message": said}, 503)

    def _session(self, flow: str) -> aiohttp.ClientSession:
        if flow not in self._sessions:
            self._sessions[flow] = aiohttp.ClientSession(
                connector=aiohttp.UnixConnector(str(self._watched.place(flow).rest)),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S),
            )
        return self._sessions[flow]


def _worker(flow: Flow, settings: Properties) -> Properties:
    """Returns the settings of REST as a worker's, for the worker's REST server."""
    needed = {k: v for k, v in flow.worker.items() if k in _NEEDED or k.startswith("config.providers")}
    places = {key: place for key in settings if (place := settings.source(key)) is not None}
    return Properties(needed | dict(settings), places)
