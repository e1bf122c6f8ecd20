"""Requests between workers, signed with the group's session key (KIP-507); nobody else gets an answer."""

from __future__ import annotations

from typing import Any

import orjson
from aiohttp import web

from klamm.connect.errors import BadRequest, NotFound
from klamm.connect.rest.foreign_code import refuse_unsigned
from klamm.connect.rest.keys import SERVICE
from klamm.connect.service.rollout import told
from klamm.web.http import empty, json_response


async def put_tasks(request: web.Request) -> web.Response:
    """POST /connectors/{connector}/tasks: the leader commits the task configs that a connector has made."""
    body = await _verified(request)
    runtime = request.app[SERVICE].runtime
    await runtime.cluster.require_leader()
    name = request.match_info["connector"]
    configs = _task_configs(body)
    if name not in runtime.configs:
        raise NotFound(f"Connector {name} not found")
    await runtime.config_writer.put_task_configs(name, configs)
    return empty(200)


async def fence(request: web.Request) -> web.Response:
    """PUT /connectors/{connector}/fence: the leader fences the producers of the connector's former tasks (KIP-618)."""
    await _verified(request)
    runtime = request.app[SERVICE].runtime
    await runtime.cluster.require_leader()
    await runtime.cluster.fence(request.match_info["connector"])
    return empty(200)


async def tasks(request: web.Request) -> web.Response:
    """GET /internal/tasks: the states of the connectors and tasks that run on this worker."""
    await _verified(request)
    runtime = request.app[SERVICE].runtime
    assigned = runtime.herder.assigned
    return json_response(
        {
            "tasks": {str(task): request.app[SERVICE].task_details(task) for task in assigned.tasks},
            "connectors": {name: request.app[SERVICE].details(name) for name in assigned.connectors},
        }
    )


async def plugins(request: web.Request) -> web.Response:
    """GET /internal/plugins: the plugin packages of this worker, and which of them are usable."""
    await _verified(request)
    runtime = request.app[SERVICE].runtime
    return json_response(told(await runtime.plugin_admin.installed()))


async def _verified(request: web.Request) -> bytes:
    """Returns the body of a request that another worker has sent. Raises a RequestError when a stranger may have."""
    refuse_unsigned(request)
    body = await request.read()
    await request.app[SERVICE].runtime.cluster.verify(request.headers, body)
    return body


def _task_configs(body: bytes) -> list[dict[str, str]]:
    try:
        configs: Any = orjson.loads(body)
    except orjson.JSONDecodeError as e:
        raise BadRequest(f"The body is not JSON: {e}") from None
    fits = isinstance(configs, list) and all(
        isinstance(each, dict) and all(isinstance(v, str) for v in each.values()) for each in configs
    )
    if not fits:
        raise BadRequest("The body must be an array of task configs: objects of strings")
    return list(configs)
