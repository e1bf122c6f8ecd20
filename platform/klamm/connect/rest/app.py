"""The application: which path goes to which handler. Reading `ROUTES` is reading the API."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from aiohttp import web

from klamm.connect.rest import connectors, loggers, root
from klamm.connect.rest.http import MAX_BODY_BYTES, errors, negotiation, readiness
from klamm.connect.rest.keys import ADVERTISED, SERVICE
from klamm.connect.service import ConnectService

Endpoint = Callable[[web.Request], Awaitable[web.StreamResponse]]

CONNECTOR: Final = "/connectors/{connector}"
TASK: Final = CONNECTOR + r"/tasks/{task:\d+}"
PLUGIN: Final = "/connector-plugins/{plugin}"

ROUTES: Final[dict[str, dict[str, Endpoint]]] = {
    "/": {"GET": root.get_root},
    "/health": {"GET": root.get_health},
    "/connectors": {"GET": connectors.list_connectors, "POST": connectors.create_connector},
    CONNECTOR: {"GET": connectors.get_connector, "DELETE": connectors.delete_connector},
    CONNECTOR + "/config": {
        "GET": connectors.get_config,
        "PUT": connectors.put_config,
        "PATCH": connectors.patch_config,
    },
    CONNECTOR + "/status": {"GET": connectors.get_status},
    CONNECTOR + "/tasks": {"GET": connectors.get_tasks, "POST": connectors.internal},
    CONNECTOR + "/fence": {"PUT": connectors.internal},
    TASK + "/status": {"GET": connectors.get_task_status},
    TASK + "/restart": {"POST": connectors.restart_task},
    CONNECTOR + "/restart": {"POST": connectors.restart_connector},
    CONNECTOR + "/pause": {"PUT": connectors.pause},
    CONNECTOR + "/resume": {"PUT": connectors.resume},
    CONNECTOR + "/stop": {"PUT": connectors.stop},
    CONNECTOR + "/topics": {"GET": connectors.get_topics},
    CONNECTOR + "/topics/reset": {"PUT": connectors.reset_topics},
    CONNECTOR + "/offsets": {
        "GET": connectors.get_offsets,
        "PATCH": connectors.alter_offsets,
        "DELETE": connectors.reset_offsets,
    },
    "/connector-plugins": {"GET": root.list_plugins},
    PLUGIN + "/config": {"GET": root.plugin_config},
    PLUGIN + "/config/validate": {"PUT": root.validate},
    "/admin/loggers": {"GET": loggers.list_loggers},
    "/admin/loggers/{logger}": {"GET": loggers.get_logger, "PUT": loggers.put_logger},
}


def make_app(service: ConnectService, advertised: str) -> web.Application:
    """The API of one worker. `advertised` is its own URL."""
    app = web.Application(middlewares=[errors, negotiation, readiness], client_max_size=MAX_BODY_BYTES)
    app[SERVICE] = service
    app[ADVERTISED] = advertised
    app[loggers.LAST_MODIFIED] = {}
    for path, methods in ROUTES.items():
        # JAX-RS, and so Kafka, takes every path with and without a slash at its end.
        for spelling in {path, path.rstrip("/") + "/"}:
            resource = app.router.add_resource(spelling)
            for method, handler in methods.items():
                resource.add_route(method, handler)
            if "GET" in methods:
                resource.add_route("HEAD", methods["GET"])
            resource.add_route("OPTIONS", _options([*methods, "OPTIONS"]))
    return app


def _options(methods: list[str]) -> Endpoint:
    allowed = (["HEAD"] if "GET" in methods else []) + methods

    async def options(_request: web.Request) -> web.StreamResponse:
        return web.Response(text=", ".join(allowed), headers={"Allow": ",".join(allowed)})

    return options
