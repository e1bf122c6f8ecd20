"""GET /events and GET /metrics: the events of the worker group, and the figures of this worker."""

from __future__ import annotations

import asyncio
from fnmatch import fnmatchcase
from itertools import islice
from typing import Any, Final

import orjson
from aiohttp import web

from klamm.connect.errors import BadRequest
from klamm.connect.events import KINDS, Event, Listener
from klamm.connect.rest.keys import SERVICE
from klamm.connect.rest.metrics import families
from klamm.web.callers import may_view, still_known
from klamm_base.metrics_text import CONTENT_TYPE, lines

KEEP_ALIVE_S: Final = 15.0
"""The stream sends a comment after this time without an event: proxies close silent connections, and the
comment reveals a dead peer.
"""
WRITE_S: Final = 30.0
"""A client that reads nothing for this time is disconnected, so that another can have its place."""
LISTENERS_MAX: Final = 100
_LINES_A_SLICE: Final = 250
_COMMENT: Final = b":\n\n"


async def get_events(request: web.Request) -> web.StreamResponse:
    """Stream the events of the worker group, as server-sent events, until the client goes away.

    Each event has an id; a client that comes back with it in `Last-Event-ID` (browsers do) gets what it
    missed. Events of connectors that the caller may not see are left out.
    """
    bus = request.app[SERVICE].events
    if bus.listeners >= LISTENERS_MAX:
        raise web.HTTPServiceUnavailable
    after = _last_id(request)
    kinds = set(request.query.getall("kind", []))
    if unknown := kinds - KINDS.keys():
        raise BadRequest(f"kind={min(unknown)} is no kind of event; there are: {', '.join(KINDS)}")
    connectors = request.query.getall("connector", [])
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"})
    listener = bus.listen(after)
    try:
        await response.prepare(request)
        if request.method == "HEAD":
            return response
        await _write(request, response, _COMMENT)
        while True:
            event = await _next(listener)
            if not await still_known(request):
                return response
            if event is None:
                await _write(request, response, _COMMENT)
            elif _wanted(request, event, kinds, connectors):
                await _write(request, response, _frame(event, _visible(request, event)))
    except (ConnectionResetError, StopAsyncIteration):
        return response
    finally:
        listener.close()


async def _next(listener: Listener) -> Event | None:
    """Returns the next event, or None after a while without one. Raises StopAsyncIteration at the end."""
    try:
        async with asyncio.timeout(KEEP_ALIVE_S):
            return await anext(listener)
    except TimeoutError:
        return None


async def _write(request: web.Request, response: web.StreamResponse, data: bytes) -> None:
    """Writes to the client. Raises ConnectionResetError if it has gone, or has not read for long."""
    try:
        async with asyncio.timeout(WRITE_S):
            await response.write(data)
    except TimeoutError:
        if request.transport is not None:
            request.transport.abort()
        raise ConnectionResetError("the client does not read") from None


def _last_id(request: web.Request) -> int | None:
    text = request.headers.get("Last-Event-ID", request.query.get("after"))
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise BadRequest(f"The id of the last event must be a number, not {text!r}")
    return int(text)


def _wanted(request: web.Request, event: Event, kinds: set[str], connectors: list[str]) -> bool:
    if kinds and event.kind not in kinds:
        return False
    name = event.data.get("connector")
    if name is None:
        return not connectors or event.kind == "missed"
    chosen = not connectors or any(fnmatchcase(name, pattern) for pattern in connectors)
    return chosen and may_view(request, name)


def _visible(request: web.Request, event: Event) -> dict[str, Any]:
    """Returns the event's data, with only those connectors and tasks (`name-0`) in its lists that the caller
    may see.
    """
    data = dict(event.data)
    if isinstance(data.get("connectors"), list):
        data["connectors"] = [name for name in data["connectors"] if may_view(request, name)]
    if isinstance(data.get("tasks"), list):
        data["tasks"] = [task for task in data["tasks"] if may_view(request, task.rpartition("-")[0])]
    return data


def _frame(event: Event, data: dict[str, Any]) -> bytes:
    text = orjson.dumps({"at_ms": event.at_ms, **data})
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (event.id, event.kind.encode(), text)


async def get_metrics(request: web.Request) -> web.StreamResponse:
    """Show the worker's figures in Prometheus' text format."""
    response = web.StreamResponse(headers={"Content-Type": CONTENT_TYPE})
    await response.prepare(request)
    if request.method == "HEAD":
        return response  # anything written after it would be read as the next answer
    text = lines(families(request.app[SERVICE]))
    while part := "".join(islice(text, _LINES_A_SLICE)):
        await response.write(part.encode())
        await asyncio.sleep(0)  # lets other requests run during a long answer
    return response
