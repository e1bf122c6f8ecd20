"""The application: the handler, access and answer of each path. Reading `ENDPOINTS` is reading the API."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from aiohttp import web
from aiohttp.typedefs import Middleware

from klamm.connect.errors import Starting
from klamm.connect.rest import (
    connectors,
    dry_run,
    internal,
    loggers,
    plugins,
    progress,
    root,
    shapes,
    watching,
)
from klamm.connect.rest.access import REALM
from klamm.connect.rest.forwarding import forwarding
from klamm.connect.rest.keys import ADVERTISED, SERVICE
from klamm.connect.service.connectors import ConnectService
from klamm.web import callers, openapi
from klamm.web.endpoint import BOOLEAN, NUMBER, Access, Endpoint, Handler, Query
from klamm.web.http import errors, negotiation
from klamm.web.routes import routed

CONNECTOR: Final = "/connectors/{connector}"
TASK: Final = CONNECTOR + "/tasks/{task:" + NUMBER + "}"
PLUGIN: Final = "/connector-plugins/{plugin}"
LOGGER: Final = "/admin/loggers/{logger}"

EXPAND: Final = Query(
    name="expand", about="Answer an object by name with these parts.", values=("info", "status"), many=True
)
CONNECTORS_ONLY: Final = Query(
    name="connectorsOnly", about="false: also converters and all other kinds.", values=BOOLEAN
)
INCLUDE_TASKS: Final = Query(name="includeTasks", about="Restart the tasks, too.", values=BOOLEAN)
ONLY_FAILED: Final = Query(name="onlyFailed", about="Restart only what has failed.", values=BOOLEAN)
SCOPE: Final = Query(name="scope", about="cluster: on every worker.", values=("worker", "cluster"))
FORWARD: Final = Query(name="forward", about="Set by workers on requests that they forward.", values=BOOLEAN)
KIND: Final = Query(name="kind", about="Only events of these kinds.", many=True)
ONLY_OF: Final = Query(name="connector", about="Only events of connectors that match (orders-*).", many=True)
AFTER: Final = Query(name="after", about="Begin after the event with this id, like the header Last-Event-ID.")
FORCE: Final = Query(name="force", about="Remove it although connectors use it.", values=BOOLEAN)
TITLE: Final = openapi.Title(
    title="Klamm Connect",
    about="Kafka Connect's REST API as Klamm's workers serve it. Every answer from 400 on is an Error. Roles are asked "
    "for where `rest.auth.file` or a REST extension is set.",
    needs={
        Access.NAMED: "admin of the connector that the body names",
        Access.WORKER: "another worker's signature",
    },
    parameters={
        "connector": ("The connector's name.", {"type": "string", "minLength": 1}),
        "task": ("The task's number, from 0.", {"type": "integer", "minimum": 0}),
        "plugin": ("A plugin's class, or its short name.", {"type": "string", "minLength": 1}),
        "flow": ("A mirror's flow, such as A->B.", {"type": "string", "minLength": 1}),
        "logger": ("A logger's name, or root.", {"type": "string", "minLength": 1}),
    },
    error=shapes.Error,
)
INSTALL_S: Final = 15 * 60.0
VERSION: Final = Query(name="version", about="The version, if several are installed (KIP-891).")


def _row(
    method: str,
    path: str,
    handler: Handler,
    access: Access,
    answers: dict[int, Any],
    *errors: int,
    **more: Any,
) -> Endpoint:
    return Endpoint(
        method=method, path=path, handler=handler, access=access, answers=answers, errors=errors, **more
    )


VIEW, OPERATE, ADMINISTER, ANY, NAMED, OPEN, WORKER = (
    Access.VIEW, Access.OPERATE, Access.ADMINISTER, Access.ANY, Access.NAMED, Access.OPEN, Access.WORKER,
)  # fmt: skip

ENDPOINTS_OF_WORKERS: Final[tuple[Endpoint, ...]] = (
    _row("GET", "/", root.get_root, ANY, {200: shapes.Server}, early=True),
    _row("GET", "/health", root.get_health, OPEN, {200: shapes.Health, 500: shapes.Health, 503: shapes.Health}, early=True),
    _row("GET", "/openapi.json", openapi.get_openapi, ANY, {200: dict[str, Any]}, early=True),
    _row("GET", "/metrics", watching.get_metrics, VIEW, {200: str}, produces="text/plain", early=True),
    _row(
        "GET", "/events", watching.get_events, ANY, {200: str}, 400,
        query=(KIND, ONLY_OF, AFTER), produces="text/event-stream", timeout_s=0,
    ),
    _row(
        "GET", "/connectors", connectors.list_connectors, ANY,
        {200: list[str] | dict[str, shapes.Expanded]}, query=(EXPAND,),
    ),
    _row(
        "POST", "/connectors", connectors.create_connector, NAMED, {201: shapes.ConnectorInfo}, 409,
        body=shapes.CreateConnector, query=(FORWARD,),
    ),
    _row("GET", CONNECTOR, connectors.get_connector, VIEW, {200: shapes.ConnectorInfo}),
    _row("DELETE", CONNECTOR, connectors.delete_connector, ADMINISTER, {204: None}, 409, query=(FORWARD,)),
    _row("GET", CONNECTOR + "/config", connectors.get_config, VIEW, {200: shapes.Config}),
    _row(
        "PUT", CONNECTOR + "/config", connectors.put_config, ADMINISTER,
        {200: shapes.ConnectorInfo, 201: shapes.ConnectorInfo}, 409, body=shapes.ConfigGiven, query=(FORWARD,),
    ),
    _row(
        "PATCH", CONNECTOR + "/config", connectors.patch_config, ADMINISTER, {200: shapes.ConnectorInfo}, 409,
        body=shapes.ConfigGiven, query=(FORWARD,),
    ),
    _row("GET", CONNECTOR + "/status", connectors.get_status, VIEW, {200: shapes.ConnectorStatus}),
    _row(
        "POST", CONNECTOR + "/dry-run", dry_run.dry_run, OPERATE, {200: shapes.DryRunAnswer}, body=shapes.DryRun
    ),
    _row("GET", CONNECTOR + "/progress", progress.get_progress, VIEW, {200: shapes.ConnectorProgress}),
    _row("GET", CONNECTOR + "/tasks", connectors.get_tasks, VIEW, {200: list[shapes.TaskInfo]}),
    _row("POST", CONNECTOR + "/tasks", internal.put_tasks, WORKER, {200: None}, 400, 403, 409, query=(FORWARD,)),
    _row("PUT", CONNECTOR + "/fence", internal.fence, WORKER, {200: None}, 400, 403, 409, query=(FORWARD,)),
    _row("GET", "/internal/plugins", internal.plugins, WORKER, {200: dict[str, Any]}, 400, 403),
    _row("GET", "/internal/tasks", internal.tasks, WORKER, {200: dict[str, Any]}, 400, 403),
    _row("GET", TASK + "/status", connectors.get_task_status, VIEW, {200: shapes.TaskState}),
    _row("POST", TASK + "/restart", connectors.restart_task, OPERATE, {204: None}, 409, query=(FORWARD,)),
    _row(
        "POST", TASK + "/signals", connectors.signal_task, OPERATE, {202: None}, 400, 409, body=shapes.Signal,
        query=(FORWARD,),
    ),
    _row(
        "POST", CONNECTOR + "/restart", connectors.restart_connector, OPERATE,
        {202: shapes.ConnectorStatus, 204: None}, 409, query=(INCLUDE_TASKS, ONLY_FAILED, FORWARD),
    ),
    _row("PUT", CONNECTOR + "/pause", connectors.pause, OPERATE, {202: None}),
    _row("PUT", CONNECTOR + "/resume", connectors.resume, OPERATE, {202: None}),
    _row("PUT", CONNECTOR + "/stop", connectors.stop, OPERATE, {204: None}, 409, query=(FORWARD,)),
    _row("GET", CONNECTOR + "/topics", connectors.get_topics, VIEW, {200: dict[str, shapes.Topics]}, 403),
    _row("PUT", CONNECTOR + "/topics/reset", connectors.reset_topics, OPERATE, {202: None}, 403),
    _row("GET", CONNECTOR + "/offsets", connectors.get_offsets, VIEW, {200: shapes.Offsets}),
    _row(
        "PATCH", CONNECTOR + "/offsets", connectors.alter_offsets, OPERATE, {200: shapes.Message}, 409,
        body=shapes.Offsets, query=(FORWARD,),
    ),
    _row(
        "DELETE", CONNECTOR + "/offsets", connectors.reset_offsets, OPERATE, {200: shapes.Message}, 400, 409,
        query=(FORWARD,),
    ),
    _row("GET", "/connector-plugins/packages", plugins.list_packages, ANY, {200: list[shapes.PluginPackage]}),
    _row(
        "POST", "/connector-plugins", plugins.install_package, ADMINISTER, {201: shapes.NewPluginPackage}, 409,
        body=shapes.InstallPlugin, query=(FORWARD,), timeout_s=INSTALL_S,
    ),
    _row(
        "DELETE", PLUGIN, plugins.remove_package, ADMINISTER, {200: shapes.PluginPackage}, 409,
        query=(VERSION, FORCE, FORWARD),
    ),
    _row(
        "GET", "/connector-plugins", plugins.list_plugins, ANY, {200: list[shapes.ListedPlugin]},
        query=(CONNECTORS_ONLY,),
    ),
    _row("GET", PLUGIN + "/config", plugins.plugin_config, ANY, {200: list[shapes.ConfigKeyInfo]}, query=(VERSION,)),
    _row(
        "PUT", PLUGIN + "/config/validate", plugins.validate, NAMED, {200: shapes.ConfigInfos},
        body=shapes.ConfigGiven,
    ),
    _row(
        "GET", "/admin/loggers", loggers.list_loggers, VIEW, {200: dict[str, shapes.LoggerLevel]}, admin=True, early=True
    ),
    _row("GET", LOGGER, loggers.get_logger, VIEW, {200: shapes.LoggerLevel}, admin=True, early=True),
    _row(
        "PUT", LOGGER, loggers.put_logger, ADMINISTER, {200: list[str], 204: None},
        body=shapes.SetLevel, query=(SCOPE,), admin=True,
        early=True,
    ),
)  # fmt: skip


def make_app(
    service: ConnectService,
    advertised: str,
    *,
    endpoints: Iterable[Endpoint] = ENDPOINTS_OF_WORKERS,
    checks: Sequence[Middleware] = (),
    inner: Sequence[Middleware] = (),
) -> web.Application:
    """Makes the API of one worker. `advertised` is its own URL.

    `checks` may refuse a request before anything else looks at it; `inner` are middlewares of handled
    requests.
    """
    endpoints = tuple(endpoints)
    by_handler = {endpoint.handler: endpoint for endpoint in endpoints}
    middlewares = [
        errors(by_handler, service.runtime.config.secrets.redact, service.requests),
        *checks,
        negotiation(by_handler),
        readiness(by_handler),
        *inner,
        forwarding,
    ]
    app = routed(endpoints, middlewares)
    app[SERVICE] = service
    app[callers.REALM] = REALM
    app[openapi.TITLE] = TITLE
    app[ADVERTISED] = advertised
    app[loggers.LAST_MODIFIED] = {}
    # With admin.listeners, the application that serves these endpoints is made last, and its `last_modified`
    # times count.
    service.runtime.on_logger_level = lambda told: loggers.obey(app, told)
    return app


def readiness(endpoints: Mapping[Any, Endpoint]) -> Middleware:
    """Makes the middleware that answers 503 until the worker has read its topics, except for `early` endpoints."""

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        if not request.app[SERVICE].ready:
            endpoint = endpoints.get(request.match_info.handler)
            if endpoint is None or not endpoint.early:
                raise Starting("Worker is still starting up.")
        return await handler(request)

    return check
