"""The list of connectors; plugin classes and packages."""

from __future__ import annotations

import asyncio
import base64
from collections import Counter
from typing import Any, Final

from aiohttp import web

from klamm.console.cluster import Cluster
from klamm.console.errors import ConsoleError, Upstream
from klamm.console.view import in_path
from klamm.console.visit import Visit
from klamm.web.endpoint import Access

PAGE: Final = 50
STATES_S: Final = 3.0
AT_A_TIME: Final = 16
HTTP_NOT_FOUND: Final = 404


async def list_page(visit: Visit) -> web.StreamResponse:
    """Shows connectors: searched, by state, a page of them with states and tasks."""
    cluster = visit.cluster
    connect = cluster.needs("connect")
    login = visit.login
    names: list[str] = sorted(
        await cluster.kept("connectors", lambda: connect.ask("GET", "/connectors", caller=login), login=login)
    )
    age_s = cluster.age_s("connectors", login)
    names = [n for n in names if visit.may(Access.VIEW, n)]
    text, state = visit.asked("q").lower(), visit.asked("state")
    rows = [n for n in names if text in n.lower()]
    states: dict[str, Any] = {}
    if state:
        states = await _all_states(cluster, login)
        age_s = max(age_s or 0, cluster.age_s("states", login) or 0)
        rows = [n for n in rows if n in states and state in _worst(states[n])]
    pages = max(1, -(-len(rows) // PAGE))
    asked = visit.asked("page", "1")
    page = min(max(1, int(asked) if asked.isdecimal() else 1), pages)
    shown = rows[(page - 1) * PAGE : page * PAGE]
    if not states:
        states = await _states(cluster, shown, login)
    return visit.page(
        "connectors.html",
        age_s=age_s,
        may_make=visit.may_with_some(Access.ADMINISTER),
        rows=[_row(n, states.get(n)) for n in shown],
        matches=len(rows),
        total=len(names),
        page=page,
        pages=pages,
        state=state,
        states=("RUNNING", "FAILED", "PAUSED", "STOPPED", "UNASSIGNED", "RESTARTING"),
    )


async def _all_states(cluster: Cluster, login: str | None) -> dict[str, Any]:
    connect = cluster.needs("connect")
    answer = await cluster.kept(
        "states",
        lambda: connect.ask("GET", "/connectors?expand=status", caller=login),
        login=login,
        for_s=STATES_S,
    )
    return {name: found.get("status") for name, found in answer.items() if found.get("status")}


async def _states(cluster: Cluster, names: list[str], login: str | None) -> dict[str, Any]:
    """Returns the statuses of a few connectors, several asked for at a time."""
    connect, room = cluster.needs("connect"), asyncio.Semaphore(AT_A_TIME)

    async def one(name: str) -> Any:
        async with room:
            try:
                return await connect.ask("GET", f"/connectors/{in_path(name)}/status", caller=login)
            except Upstream:  # deleted meanwhile, or not started yet
                return None

    found = await asyncio.gather(*(one(name) for name in names))
    return {name: status for name, status in zip(names, found, strict=True) if status is not None}


def _worst(status: dict[str, Any]) -> set[str]:
    return {status["connector"]["state"], *(t["state"] for t in status["tasks"])}


def _row(name: str, status: dict[str, Any] | None) -> dict[str, Any]:
    if status is None:
        return {"name": name, "state": None, "tasks": {}, "type": "", "worker": ""}
    return {
        "name": name,
        "state": status["connector"]["state"],
        "tasks": dict(Counter(t["state"] for t in status["tasks"])),
        "type": status.get("type", ""),
        "worker": status["connector"].get("worker_id", ""),
    }


async def plugins(visit: Visit) -> web.StreamResponse:
    """Shows plugin classes of all kinds, and packages where the worker has them."""
    connect, login = visit.cluster.needs("connect"), visit.login
    classes = await connect.ask("GET", "/connector-plugins?connectorsOnly=false", caller=login)
    packages, why = None, None
    try:
        packages = await connect.ask("GET", "/connector-plugins/packages", caller=login)
    except Upstream as e:
        why = None if e.code == HTTP_NOT_FOUND else str(e)
    text = visit.asked("q").lower()
    rows = [c for c in classes if text in c["class"].lower() or text in c["type"].lower()]
    return visit.page("plugins.html", rows=rows, total=len(classes), packages=packages, why=why)


async def install(visit: Visit) -> web.StreamResponse:
    """Installs a plugin package: a requirement as for pip, or an uploaded wheel."""
    package = visit.field("package")
    body: dict[str, Any] = {"package": package}
    name, content = visit.request.get("file:wheel", ("", b""))
    if content:
        body = {"file": name, "wheel": base64.b64encode(content).decode()}
    elif not package:
        raise ConsoleError("package: write a requirement such as klamm-example==1.2, or choose a wheel")
    connect = visit.cluster.needs("connect")
    made = await connect.ask("POST", "/connector-plugins", body, caller=visit.login, timeout_s=INSTALL_S)
    visit.cluster.forget()
    visit.audit("plugin package installed", package=package or name)
    return visit.go(f"/c/{visit.cluster_name}/plugins", f"{made['name']} {made['version']} was installed.")


INSTALL_S: Final = 15 * 60.0


async def remove(visit: Visit) -> web.StreamResponse:
    """Removes a plugin package that no connector uses."""
    name, version = visit.field("name"), visit.field("version")
    connect = visit.cluster.needs("connect")
    await connect.ask(
        "DELETE", f"/connector-plugins/{in_path(name)}?version={in_path(version)}", caller=visit.login
    )
    visit.cluster.forget()
    visit.audit("plugin package removed", package=name, version=version)
    return visit.go(f"/c/{visit.cluster_name}/plugins", f"{name} {version} was removed.")
