"""/connectors and everything below one connector."""

from __future__ import annotations

import uuid
from contextlib import suppress
from typing import Any, Final
from urllib.parse import quote

from aiohttp import hdrs, web

from klamm.connect.errors import BadRequest, NotFound
from klamm.connect.model import TaskId
from klamm.connect.rest.foreign_code import refuse_foreign_code
from klamm.connect.rest.forwarding import sent_by_kafkas_worker
from klamm.connect.rest.keys import ADVERTISED, SERVICE
from klamm.connect.service.redaction import unhide
from klamm.connect.topics.config_topic import TargetState
from klamm.connect.validation.connector import WARNINGS
from klamm.web.callers import demand, may_view
from klamm.web.endpoint import Access
from klamm.web.http import as_config, empty, json_kind, json_response, read_json

_CREATE_FIELDS: Final = ("name", "config", "initial_state")
# Kafka's names for the states that a new connector may have.
_INITIAL: Final = {
    "RUNNING": TargetState.STARTED,
    "PAUSED": TargetState.PAUSED,
    "STOPPED": TargetState.STOPPED,
}


def _name(request: web.Request) -> str:
    return request.match_info["connector"]


def _task(request: web.Request) -> TaskId:
    return TaskId(_name(request), int(request.match_info["task"]))


def _flag(request: web.Request, name: str) -> bool:
    """Reads a query flag as JAX-RS does: "true" in any case, anything else is false."""
    return request.query.get(name, "").lower() == "true"


async def _shown(request: web.Request, info: dict[str, Any]) -> dict[str, Any]:
    """Returns a connector's description with its passwords hidden, and with warnings for those who can read them."""
    unread = {WARNINGS} if sent_by_kafkas_worker(request) else set()
    shown = {key: value for key, value in info.items() if key not in unread}
    return {**shown, "config": await request.app[SERVICE].redaction.hide(info["config"])}


async def _created(request: web.Request, body: dict[str, Any]) -> web.Response:
    location = f"{request.app[ADVERTISED]}/connectors/{quote(body['name'], safe='/')}"
    return json_response(await _shown(request, body), 201, {hdrs.LOCATION: location})


async def list_connectors(request: web.Request) -> web.Response:
    """List connectors: their names, or with `expand` an object by name."""
    service = request.app[SERVICE]
    names = [name for name in service.connectors() if may_view(request, name)]
    expand = request.query.getall("expand", [])
    if not expand:
        return json_response(names)
    answer: dict[str, dict[str, Any]] = {}
    for name in names:
        answer[name] = {}
        with suppress(NotFound):  # deleted meanwhile; Kafka, too, answers for the others
            if "status" in expand:
                answer[name]["status"] = await service.status(name)
            if "info" in expand:
                answer[name]["info"] = await _shown(request, service.info(name))
    return json_response(answer)


async def create_connector(request: web.Request) -> web.Response:
    """Create a connector; 201 with its description."""
    body = await read_json(request, exact_numbers=True)
    if not isinstance(body, dict):
        raise BadRequest(
            f'The body must be an object such as {{"name": ..., "config": ...}}, not {json_kind(body)}'
        )
    unknown = [key for key in body if key not in _CREATE_FIELDS]
    if unknown:
        raise BadRequest(f"Unrecognized field {unknown[0]!r}; a connector has: {', '.join(_CREATE_FIELDS)}")
    if body.get("config") is None:
        raise BadRequest('Field "config" is missing; it holds the connector\'s configuration')
    name = body.get("name")
    if name is not None and not isinstance(name, str):
        raise BadRequest(f'Field "name" must be a string, not {json_kind(name)}')
    config = unhide(as_config(body["config"], 'Field "config"'), {})
    demand(request, Access.ADMINISTER, (name or config.get("name") or "").strip())
    await refuse_foreign_code(request, config)
    state = _initial_state(body.get("initial_state"))
    service = request.app[SERVICE]
    return await _created(request, await service.create((name or "").strip(), config, state))


def _initial_state(value: Any) -> TargetState | None:
    if value is None:
        return None
    state = _INITIAL.get(value.upper()) if isinstance(value, str) else None
    if state is None:
        raise BadRequest(f'Field "initial_state" must be one of {", ".join(_INITIAL)}, not {value!r}')
    return state


async def get_connector(request: web.Request) -> web.Response:
    """Show a connector: its config, its type, and which tasks it has."""
    return json_response(await _shown(request, request.app[SERVICE].info(_name(request))))


async def delete_connector(request: web.Request) -> web.Response:
    """Delete a connector; its offsets stay."""
    await request.app[SERVICE].delete(_name(request))
    return empty(204)


async def get_config(request: web.Request) -> web.Response:
    """Show a connector's configuration."""
    return json_response(
        await request.app[SERVICE].redaction.hide(request.app[SERVICE].config(_name(request)))
    )


async def put_config(request: web.Request) -> web.Response:
    """Set a connector's configuration; 201 when that creates it."""
    config = as_config(await read_json(request, exact_numbers=True), "The body")
    await refuse_foreign_code(request, config)
    created, info = await request.app[SERVICE].put_config(_name(request), config)
    return await _created(request, info) if created else json_response(await _shown(request, info))


async def patch_config(request: web.Request) -> web.Response:
    """Set some keys of a configuration, or remove them with null."""
    patch = as_config(await read_json(request, exact_numbers=True), "The body")
    await refuse_foreign_code(request, patch)
    service, name = request.app[SERVICE], _name(request)
    # What stands beside a key may give it another meaning.
    await refuse_foreign_code(request, {**service.config(name), **patch})
    return json_response(await _shown(request, await service.patch_config(name, patch)))


async def get_status(request: web.Request) -> web.Response:
    """Show the states of a connector and its tasks, and their progress."""
    return json_response(await request.app[SERVICE].status(_name(request)))


async def get_tasks(request: web.Request) -> web.Response:
    """List a connector's tasks with their configurations."""
    service, name = request.app[SERVICE], _name(request)
    tasks, config = service.tasks(name), service.config(name)
    # The connector's configuration goes along, because a task's need not name the plugin that knows which
    # keys are passwords.
    shown = [{**task, "config": await service.redaction.hide(task["config"], config)} for task in tasks]
    return json_response(shown)


async def get_task_status(request: web.Request) -> web.Response:
    """Show a task's state."""
    return json_response(await request.app[SERVICE].task_status(_task(request)))


async def restart_connector(request: web.Request) -> web.Response:
    """Restart a connector.

    204 for the connector alone; 202 with the states if the request asks for tasks or only for what failed.
    """
    include_tasks, only_failed = _flag(request, "includeTasks"), _flag(request, "onlyFailed")
    service = request.app[SERVICE]
    state = await service.restart(_name(request), include_tasks=include_tasks, only_failed=only_failed)
    return json_response(state, 202) if include_tasks or only_failed else empty(204)


async def restart_task(request: web.Request) -> web.Response:
    """Restart a task."""
    await request.app[SERVICE].restart_task(_task(request))
    return empty(204)


async def signal_task(request: web.Request) -> web.Response:
    """Hand a signal to a running task, for example a request to read tables again.

    What signals there are is the plugin's affair. A task that is paused takes it when it goes on.
    """
    body = await read_json(request)
    given = body if isinstance(body, dict) else {}
    kind, data, name = given.get("type"), given.get("data", {}), given.get("id", "")
    if not isinstance(kind, str) or not kind or not isinstance(data, dict) or not isinstance(name, str):
        raise BadRequest('The body must be {"type": "...", "data": {...}}, with an "id" of text if you like')
    signal = {"id": name or str(uuid.uuid4()), "type": kind, "data": data}
    await request.app[SERVICE].signal_task(_task(request), signal)
    return empty(202)


async def pause(request: web.Request) -> web.Response:
    """Pause a connector: its tasks stay and do nothing."""
    await request.app[SERVICE].set_target(_name(request), TargetState.PAUSED)
    return empty(202)


async def resume(request: web.Request) -> web.Response:
    """Let a paused or stopped connector run."""
    await request.app[SERVICE].set_target(_name(request), TargetState.STARTED)
    return empty(202)


async def stop(request: web.Request) -> web.Response:
    """Stop a connector: its tasks end, its configuration stays."""
    await request.app[SERVICE].set_target(_name(request), TargetState.STOPPED)
    return empty(204)


async def get_topics(request: web.Request) -> web.Response:
    """List the topics that a connector has used."""
    return json_response(request.app[SERVICE].topics(_name(request)))


async def reset_topics(request: web.Request) -> web.Response:
    """Forget the topics that a connector has used."""
    request.app[SERVICE].reset_topics(_name(request))
    return empty(202)


async def get_offsets(request: web.Request) -> web.Response:
    """Show a connector's offsets: by source partition, or those of a sink's group."""
    return json_response(await request.app[SERVICE].offsets.get(_name(request)))


async def alter_offsets(request: web.Request) -> web.Response:
    """Set offsets of a stopped connector."""
    body = await read_json(request)
    entries = body.get("offsets", []) if isinstance(body, dict) else None
    if entries is not None and not isinstance(entries, list):
        entries = None
    if entries is None:
        raise BadRequest('The body must be {"offsets": [{"partition": {...}, "offset": {...}}, ...]}')
    offsets = [_offset(i, entry) for i, entry in enumerate(entries)]
    return json_response({"message": await request.app[SERVICE].offsets.alter(_name(request), offsets)})


def _offset(index: int, entry: Any) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    where = f"offsets[{index}]"
    if not isinstance(entry, dict):
        raise BadRequest(f"{where} must be an object with partition and offset, not {json_kind(entry)}")
    unknown = [key for key in entry if key not in {"partition", "offset"}]
    if unknown:
        raise BadRequest(f"{where} has an unrecognized field {unknown[0]!r}; it takes partition and offset")
    for field in ("partition", "offset"):
        value = entry.get(field)
        if value is not None and not isinstance(value, dict):
            raise BadRequest(f"{where}.{field} must be an object or null, not {json_kind(value)}")
    return entry.get("partition"), entry.get("offset")


async def reset_offsets(request: web.Request) -> web.Response:
    """Reset all offsets of a stopped connector."""
    return json_response({"message": await request.app[SERVICE].offsets.reset(_name(request))})
