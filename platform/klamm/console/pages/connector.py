"""A connector: states, progress, traces, restarts; its offsets; its events."""

from __future__ import annotations

import json
from typing import Any, Final

from aiohttp import web

from klamm.console.errors import ConsoleError, NotThere, Upstream
from klamm.console.form import hide, passwords
from klamm.console.pages.connectors import HTTP_NOT_FOUND
from klamm.console.view import in_path, pretty_json
from klamm.console.visit import Visit

KEYS_S: Final = 300.0
ACTIONS: Final = {
    "restart": ("POST", "/restart?includeTasks=true", "is restarted with all of its tasks"),
    "restart-failed": (
        "POST",
        "/restart?includeTasks=true&onlyFailed=true",
        ": what had failed is restarted",
    ),
    "pause": ("PUT", "/pause", "is paused"),
    "resume": ("PUT", "/resume", "goes on"),
    "stop": ("PUT", "/stop", "is stopped"),
}


async def _ask(visit: Visit, method: str, path: str, body: Any = None) -> Any:
    name = visit.part("connector")
    try:
        return await visit.cluster.needs("connect").ask(
            method, f"/connectors/{in_path(name)}{path}", body, caller=visit.login
        )
    except Upstream as e:
        if e.code == HTTP_NOT_FOUND and method == "GET" and path in ("", "/status"):
            raise NotThere(f"there is no connector {name}, or it has not been started yet") from None
        raise


async def _if_there(visit: Visit, path: str) -> Any:
    """Returns an answer that not every worker has; None without it."""
    try:
        return await _ask(visit, "GET", path)
    except Upstream as e:
        if e.code in (HTTP_NOT_FOUND, 403, 405):
            return None
        raise


async def status(visit: Visit) -> web.StreamResponse:
    """Shows a connector as it is now."""
    name = visit.part("connector")
    info = await _ask(visit, "GET", "")
    try:
        found = await _ask(visit, "GET", "/status")
    except NotThere:
        found = {
            "connector": {"state": "UNASSIGNED", "worker_id": ""},
            "tasks": [],
            "type": info.get("type", ""),
        }
    topics = await _if_there(visit, "/topics")
    progress = await _if_there(visit, "/progress")
    return visit.page(
        "connector.html",
        name=name,
        info=info,
        now=found,
        topics=sorted((topics or {}).get(name, {}).get("topics", [])),
        progress=progress,
        config=hide(info["config"], () if progress is not None else await _passwords(visit, info["config"])),
        failed=[t for t in [found["connector"], *found["tasks"]] if t["state"] == "FAILED"],
    )


async def _passwords(visit: Visit, config: dict[str, str]) -> set[str]:
    """Returns the keys of passwords, as a worker that is not ours tells them: it shows their values."""
    plugin = config.get("connector.class", "")
    connect = visit.cluster.needs("connect")
    try:
        definitions = await visit.cluster.kept(
            f"keys of {plugin}",
            lambda: connect.ask("GET", f"/connector-plugins/{in_path(plugin)}/config", caller=visit.login),
            login=visit.login,
            for_s=KEYS_S,
        )
    except Upstream:  # not every worker tells them; names that say so are hidden anyway
        return set()
    return passwords(definitions)


async def act(visit: Visit) -> web.StreamResponse:
    """Restarts, pauses, resumes or stops a connector, or restarts a task."""
    name, what = visit.part("connector"), visit.field("what")
    if what == "restart-task":
        task = visit.whole_number("task", most=10**9)
        await _ask(visit, "POST", f"/tasks/{task}/restart")
        said = f"Task {task} of {name} is restarted."
    elif what in ACTIONS:
        method, path, words = ACTIONS[what]
        await _ask(visit, method, path)
        said = f"{name}{'' if words.startswith(':') else ' '}{words}."
    else:
        raise ConsoleError(f"what: {what!r} is not one of {', '.join(ACTIONS)}, restart-task")
    visit.cluster.forget()
    visit.audit(
        "connector",
        connector=name,
        what=what,
        **({"task": visit.field("task")} if what == "restart-task" else {}),
    )
    return visit.go(f"/c/{visit.cluster_name}/connectors/{in_path(name)}", said)


async def delete(visit: Visit) -> web.StreamResponse:
    """Deletes a connector whose name was typed."""
    name = visit.part("connector")
    if visit.field("confirm") != name:
        raise ConsoleError(f"confirm: type {name} to say that you mean it")
    await _ask(visit, "DELETE", "")
    visit.cluster.forget()
    visit.audit("connector deleted", connector=name)
    return visit.go(f"/c/{visit.cluster_name}/connectors", f"Connector {name} was deleted.")


async def offsets(visit: Visit) -> web.StreamResponse:
    """Shows a connector's offsets."""
    return await _offsets_page(visit, None, None)


async def _offsets_page(visit: Visit, wrong: str | None, text: str | None) -> web.StreamResponse:
    name = visit.part("connector")
    found = await _ask(visit, "GET", "/offsets")
    state = (await _ask(visit, "GET", "/status"))["connector"]["state"]
    rows = found.get("offsets", [])
    return visit.page(
        "connector_offsets.html", status=400 if wrong else 200, name=name, rows=rows, state=state, wrong=wrong,
        text=text or pretty_json({"offsets": rows}), compact=lambda v: json.dumps(v, ensure_ascii=False),
    )  # fmt: skip


async def change_offsets(visit: Visit) -> web.StreamResponse:
    """Sets or resets the offsets of a stopped connector."""
    name, text = visit.part("connector"), visit.form.get("offsets", "")
    try:
        if visit.field("what") == "reset":
            answer = await _ask(visit, "DELETE", "/offsets")
        else:
            try:
                body = json.loads(text)
            except ValueError as e:
                raise ConsoleError(f"offsets: that is not JSON: {e}") from None
            answer = await _ask(visit, "PATCH", "/offsets", body)
    except ConsoleError as e:
        return await _offsets_page(visit, str(e), text)
    visit.audit("connector offsets changed", connector=name, what=visit.field("what") or "alter")
    said = (answer or {}).get("message", "The offsets were changed.")
    return visit.go(f"/c/{visit.cluster_name}/connectors/{in_path(name)}/offsets", said)


async def history(visit: Visit) -> web.StreamResponse:
    """Shows a connector's events that the worker remembers."""
    name = visit.part("connector")
    try:
        events = await visit.cluster.needs("connect").events(
            f"/events?after=0&connector={in_path(name)}", caller=visit.login
        )
    except Upstream as e:
        if e.code != HTTP_NOT_FOUND:
            raise
        events = None
    return visit.page("connector_history.html", name=name, events=None if events is None else events[::-1])
