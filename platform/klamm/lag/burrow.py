"""Burrow's HTTP API v3, and beside it the course of groups and the metrics. Handlers read what the monitor knows.

Every answer has `error`, `message` and `request`, as Burrow's have; so do errors.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Mapping
from typing import Any, Final

from aiohttp import web

from klamm.lag.metrics import families
from klamm.lag.model import GroupStatus, Status, not_found
from klamm.lag.monitor import Monitor
from klamm.lag.sending import place_of, program_of
from klamm.lag.state import ClusterState
from klamm.lag.watch import now_ms
from klamm.web.application import metrics_response
from klamm.web.endpoint import Access, Endpoint, Query
from klamm.web.errors import BadRequest, NotFound
from klamm.web.http import Failed, json_response, read_json
from klamm.web.openapi import get_openapi
from klamm.web.request_counts import RequestCounts
from klamm_base.logs import LEVELS

MONITOR: Final = web.AppKey("monitor", Monitor)
COUNTS: Final = web.AppKey("counts", RequestCounts)
ROWS: Final = 1000
ROWS_MAX: Final = 100_000
_MODULE: Final = "default"
"""The name of the only module of a kind that Burrow may have several of."""


def burrows_form(request: web.Request, failed: Failed) -> web.Response:
    """Writes an error as Burrow does."""
    return _answer(request, failed.message, failed.status, error=True)


def _answer(
    request: web.Request, message: str, code: int = 200, *, error: bool = False, **more: Any
) -> web.Response:
    body = {"error": error, "message": message, **more}
    return json_response(body | {"request": {"url": request.path, "host": socket.gethostname()}}, code)


def _state(request: web.Request, what: str = "cluster not found") -> ClusterState:
    found = request.app[MONITOR].states.get(request.match_info["cluster"])
    if found is None:
        raise NotFound(what)
    return found


# ---- clusters and topics


async def get_clusters(request: web.Request) -> web.StreamResponse:
    """List the clusters."""
    return _answer(request, "cluster list returned", clusters=list(request.app[MONITOR].states))


async def get_cluster(request: web.Request) -> web.StreamResponse:
    """Show how a cluster is watched."""
    watch = request.app[MONITOR].watches.get(request.match_info["cluster"])
    if watch is None:
        raise NotFound("cluster module not found")
    settings = watch.settings
    module = {
        "class-name": "kafka",
        "servers": settings.bootstrap.split(","),
        "topic-refresh": settings.topic_refresh_s,
        "offset-refresh": settings.offset_refresh_s,
        "client-profile": {
            "name": "",
            "client-id": "klamm-lag",
            "kafka-version": "",
            "tls": None,
            "sasl": None,
        },
    }
    return _answer(request, "cluster module detail returned", module=module)


async def get_topics(request: web.Request) -> web.StreamResponse:
    """List the topics of a cluster."""
    _state(request)
    watch = request.app[MONITOR].watches[request.match_info["cluster"]]
    return _answer(request, "topic list returned", topics=await watch.topics())


async def get_topic(request: web.Request) -> web.StreamResponse:
    """Show the ends of a topic's partitions."""
    _state(request, "cluster or topic not found")
    watch = request.app[MONITOR].watches[request.match_info["cluster"]]
    offsets = await watch.topic_ends(request.match_info["topic"])
    if offsets is None:
        raise NotFound("cluster or topic not found")
    return _answer(request, "topic offsets returned", offsets=offsets)


async def get_readers(request: web.Request) -> web.StreamResponse:
    """List the groups that read a topic."""
    readers = _state(request).readers(request.match_info["topic"])
    return _answer(request, "consumers of topic returned", consumers=readers)


# ---- groups


async def get_groups(request: web.Request) -> web.StreamResponse:
    """List the groups of a cluster."""
    return _answer(request, "consumer list returned", consumers=_state(request).groups())


async def get_group(request: web.Request) -> web.StreamResponse:
    """Show the windows of a group."""
    state = _state(request, "cluster or consumer not found")
    group = request.match_info["consumer"]
    status = state.status(group, now_ms())
    if status is None:
        raise NotFound("cluster or consumer not found")
    topics: dict[str, list[dict[str, Any]]] = {}
    intervals = request.app[MONITOR].settings.judging.intervals
    for p in status.partitions:
        commits: list[Any] = [c.shown() for c in state.window(group, p.partition)]
        empty = (
            [None] * (intervals - len(commits)) if commits else []
        )  # Burrow's ring has holes at its beginning
        shown = {
            "offsets": empty + commits,
            "owner": p.owner.host,
            "client_id": p.owner.client_id,
            "current-lag": p.lag,
        }
        topics.setdefault(p.partition.topic, []).append(shown)
    return _answer(request, "consumer detail returned", topics=topics)


async def get_status(request: web.Request) -> web.StreamResponse:
    """Show a group's status, with the partitions that are not OK."""
    return _status(request, every=False)


async def get_lag(request: web.Request) -> web.StreamResponse:
    """Show a group's status, with all its partitions."""
    return _status(request, every=True)


def _status(request: web.Request, *, every: bool) -> web.Response:
    cluster, group = request.match_info["cluster"], request.match_info["consumer"]
    status: GroupStatus = request.app[MONITOR].status(cluster, group) or not_found(cluster, group)
    code = 404 if status.status is Status.NOTFOUND else 200
    return _answer(request, "consumer status returned", code, status=status.shown(every=every))


async def delete_group(request: web.Request) -> web.StreamResponse:
    """Forget a group, or its part that reads a topic. Changes nothing at the cluster: the next commit brings it back."""
    state = _state(request)
    state.forget(request.match_info["consumer"], topic=request.match_info.get("topic"))
    return _answer(request, "consumer group removed")


async def get_course(request: web.Request) -> web.StreamResponse:
    """Show how a group, or every group of a cluster, was over time."""
    state = _state(request)
    since, limit = (
        _number(request.query, *each) for each in (("since", 0, 1 << 62), ("limit", ROWS, ROWS_MAX))
    )
    history = request.app[MONITOR].history
    rows = history.course(state.name, request.match_info.get("consumer"), since, limit)
    return _answer(request, "history returned", history=rows)


def _number(query: Mapping[str, str], name: str, default: int, highest: int) -> int:
    text = query.get(name, str(default))
    if not text.isascii() or not text.isdigit() or int(text) > highest:
        raise BadRequest(f"{name}={text}: give a number from 0 to {highest}")
    return int(text)


# ---- configuration and health


async def get_config(request: web.Request) -> web.StreamResponse:
    """Show the kinds of settings."""
    nothing: dict[str, Any] = {}
    return _answer(
        request, "main config returned", general=nothing, logging={"level": _level()}, zookeeper=nothing, httpserver=nothing
    )  # fmt: skip


async def get_config_list(request: web.Request) -> web.StreamResponse:
    """List the modules of a kind."""
    kind = request.match_info["kind"]
    return _answer(request, "module list returned", coordinator=kind, modules=list(_modules(request, kind)))


async def get_config_module(request: web.Request) -> web.StreamResponse:
    """Show the settings of a module. Secrets are hidden."""
    kind, name = request.match_info["kind"], request.match_info["name"]
    if kind == "cluster" and name in request.app[MONITOR].watches:
        request.match_info["cluster"] = name
        return await get_cluster(request)
    modules = _modules(request, kind)
    if name not in modules:
        raise NotFound(f"{kind} module not found")
    return _answer(request, f"{kind} module detail returned", module=modules[name])


def _modules(request: web.Request, kind: str) -> dict[str, Any]:
    settings = request.app[MONITOR].settings
    judging = settings.judging
    match kind:
        case "storage":
            return {
                _MODULE: {
                    "class-name": "inmemory",
                    "intervals": judging.intervals,
                    "min-distance": judging.distance_ms // 1000,
                    "expire-group": judging.expire_ms // 1000,
                }
            }
        case "evaluator":
            shown = {
                "minimum-complete": judging.minimum_complete,
                "allowed-lag": judging.allowed_lag,
                "minimum-stop": judging.patience_ms / 1000,
            }
            return {_MODULE: {"class-name": "caching", **shown}}
        case "cluster":
            return {c.name: {"class-name": "kafka"} for c in settings.clusters}
        case "consumer":
            return {
                c.name: {"class-name": "kafka", "cluster": c.name, "servers": c.bootstrap.split(",")}
                for c in settings.clusters
            }
        case "notifier":
            return {n.rules.name: {k: _shown(k, v) for k, v in n.values.items()} for n in settings.notifiers}
        case _:
            raise NotFound("invalid request type")


def _shown(key: str, value: Any) -> Any:
    """Returns a notifier's setting without secrets."""
    if key.startswith("url-"):
        return place_of(value) if value else ""
    if key.startswith("command-"):
        return program_of(value or "")
    return value if isinstance(value, int | float | list) else str(value or "")


async def get_admin(_request: web.Request) -> web.StreamResponse:
    """Tell that the server lives."""
    return web.Response(text="GOOD")


async def get_ready(request: web.Request) -> web.StreamResponse:
    """Tell whether all that was there at the start is read."""
    ready = all(watch.looked for watch in request.app[MONITOR].watches.values())
    return web.Response(text="READY" if ready else "STARTING", status=200 if ready else 503)


async def get_level(request: web.Request) -> web.StreamResponse:
    """Show the level of the log."""
    return _answer(request, "log level returned", level=_level())


async def set_level(request: web.Request) -> web.StreamResponse:
    """Set the level of the log."""
    body = await read_json(request)
    wanted = str(body.get("level", "") if isinstance(body, dict) else "").upper()
    level = {"TRACE": "DEBUG", "WARN": "WARNING", "FATAL": "ERROR"}.get(wanted, wanted)
    if level not in LEVELS:
        raise NotFound("unknown log level")
    logging.getLogger("klamm").setLevel(level)
    return _answer(request, "set log level")


def _level() -> str:
    return logging.getLevelName(logging.getLogger("klamm").getEffectiveLevel()).lower()


async def get_metrics(request: web.Request) -> web.StreamResponse:
    """Return the metrics of lag for Prometheus."""
    monitor, counts = request.app[MONITOR], request.app[COUNTS]

    def every() -> Any:
        yield from families(monitor)
        yield from counts.families("klamm_lag_http")

    return metrics_response(every())


Shape = dict[str, Any]
_GROUP: Final = "/v3/kafka/{cluster}/consumer/{consumer}"
_COURSE: Final = (
    Query(name="since", about="Only what came at this time or later, ms since the epoch."),
    Query(name="limit", about=f"The most rows, the last ones; {ROWS} without it."),
)


def _get(path: str, handler: Any, **more: Any) -> Endpoint:
    access, shape = more.pop("access", Access.VIEW), more.pop("shape", Shape)
    return Endpoint(method="GET", path=path, handler=handler, access=access, answers={200: shape}, **more)


ENDPOINTS: Final = (
    _get("/v3/kafka", get_clusters, access=Access.ANY),
    _get("/v3/kafka/{cluster}", get_cluster, errors=(404,)),
    _get("/v3/kafka/{cluster}/topic", get_topics, errors=(404,)),
    _get("/v3/kafka/{cluster}/topic/{topic}", get_topic, errors=(404,)),
    _get("/v3/kafka/{cluster}/topic/{topic}/consumers", get_readers, errors=(404,)),
    _get("/v3/kafka/{cluster}/consumer", get_groups, errors=(404,)),
    _get(_GROUP, get_group, errors=(404,)),
    _get(f"{_GROUP}/status", get_status, errors=(404,)),
    _get(f"{_GROUP}/lag", get_lag, errors=(404,)),
    _get(f"{_GROUP}/history", get_course, errors=(400, 404), query=_COURSE),
    _get("/v3/kafka/{cluster}/history", get_course, errors=(400, 404), query=_COURSE),
    Endpoint(
        method="DELETE", path=_GROUP, handler=delete_group, access=Access.OPERATE, answers={200: Shape}, errors=(404,)
    ),
    Endpoint(
        method="DELETE", path=f"{_GROUP}/topic/{{topic}}", handler=delete_group, access=Access.OPERATE,
        answers={200: Shape}, errors=(404,),
    ),
    _get("/v3/config", get_config),
    _get("/v3/config/{kind}", get_config_list, errors=(404,)),
    _get("/v3/config/{kind}/{name}", get_config_module, errors=(404,)),
    _get("/v3/admin/loglevel", get_level),
    Endpoint(
        method="POST", path="/v3/admin/loglevel", handler=set_level, access=Access.ADMINISTER, answers={200: Shape},
        errors=(400, 404), body=Shape,
    ),
    _get("/burrow/admin", get_admin, access=Access.OPEN, shape=str, produces="text/plain"),
    _get("/burrow/admin/ready", get_ready, access=Access.OPEN, shape=str, errors=(503,), produces="text/plain"),
    _get("/metrics", get_metrics, shape=str, produces="text/plain"),
    _get("/openapi.json", get_openapi, access=Access.ANY),
)  # fmt: skip
