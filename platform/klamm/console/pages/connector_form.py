"""A form for connectors, made of what the worker's `validate` says of each setting, with JSON beside it.

Fields and JSON are two views of one configuration. Whoever changes one sends it here, and gets both back, checked.
"""

from __future__ import annotations

import json
from typing import Any

from aiohttp import web

from klamm.console.errors import ConsoleError, Refused, Upstream
from klamm.console.form import Field, as_fields, hide, passwords, read_config, sorted_groups, unhide
from klamm.console.services import Service
from klamm.console.view import in_path, pretty_json
from klamm.console.visit import Visit
from klamm.web.endpoint import Access


async def choose(visit: Visit) -> web.StreamResponse:
    """Shows the connector classes to choose from."""
    classes = await visit.cluster.needs("connect").ask("GET", "/connector-plugins", caller=visit.login)
    text = visit.asked("q").lower()
    rows = [c for c in classes if c["type"] in ("source", "sink") and text in c["class"].lower()]
    return visit.page("connector_choose.html", rows=rows)


def _demand_any(visit: Visit, name: str) -> None:
    """Raises Refused unless the user may make this connector; without a name yet, some connector."""
    if name or visit.caller is None or visit.console.settings.read_only:
        visit.demand(Access.ADMINISTER, name or None)
    elif not visit.may_with_some(Access.ADMINISTER):
        raise Refused(f"{visit.caller.name} may not make connectors")


async def new_form(visit: Visit) -> web.StreamResponse:
    """Shows the form of a new connector of a class."""
    plugin = visit.asked("plugin")
    if not plugin:
        raise ConsoleError("plugin: choose a connector class first")
    _demand_any(visit, visit.asked("name"))
    config = {"connector.class": plugin, "name": visit.asked("name"), "tasks.max": "1"}
    return await _form(visit, config, editing="", template="connector_form.html", touched=False)


async def edit_form(visit: Visit) -> web.StreamResponse:
    """Shows the form of a connector that there is."""
    name = visit.part("connector")
    stored = await _stored(visit, name)
    return await _form(visit, hide(stored), editing=name, template="connector_form.html", touched=True)


async def _stored(visit: Visit, name: str) -> dict[str, str]:
    found: dict[str, str] = await visit.cluster.needs("connect").ask(
        "GET", f"/connectors/{in_path(name)}/config", caller=visit.login
    )
    return found


async def check(visit: Visit) -> web.StreamResponse:
    """Checks what is in the form, and returns fields and JSON."""
    editing = visit.field("editing")
    config, wrong = _given(visit)
    _demand_any(visit, editing or config.get("name", ""))
    return await _form(
        visit, config, editing=editing, template="connector_fields.html", touched=True, wrong=wrong
    )


def _given(visit: Visit) -> tuple[dict[str, str], str | None]:
    """Returns the configuration of the form; what is wrong with its JSON."""
    if visit.field("source") == "json":
        try:
            return read_config(visit.form.get("json", "")), None
        except ConsoleError as e:
            return as_fields(visit.form), str(e)
    return as_fields(visit.form), None


async def _form(
    visit: Visit,
    config: dict[str, str],
    *,
    editing: str,
    template: str,
    touched: bool,
    wrong: str | None = None,
    status: int = 200,
) -> web.StreamResponse:
    connect = visit.cluster.needs("connect")
    answer: dict[str, Any] = {"configs": [], "error_count": 0}
    try:
        stored = await _stored(visit, editing) if editing else {}
        answer = await _validated(visit, connect, config, stored)
        secret = passwords([each["definition"] for each in answer["configs"] if each.get("definition")])
        kept = {k: v for k, v in stored.items() if k in secret and config.get(k) == v}
        config = config | hide(kept, secret)
    except ConsoleError as e:
        wrong = wrong or str(e)  # the fields stay, without what the worker knows of them
    groups: list[tuple[str, list[Field]]] = sorted_groups(answer, config)
    return visit.page(
        template,
        status=status,
        editing=editing,
        plugin=config.get("connector.class", ""),
        groups=groups,
        config=config,
        json_text=pretty_json(config),
        errors=answer["error_count"],
        warnings=answer.get("warnings", []),
        touched=touched,
        wrong=wrong,
        tried=None,
    )


async def _validated(
    visit: Visit, connect: Service, config: dict[str, str], stored: dict[str, str]
) -> dict[str, Any]:
    plugin = config.get("connector.class", "")
    if not plugin:
        raise ConsoleError("connector.class: it names the connector, and is missing")
    full = unhide(config, stored)
    found: dict[str, Any] = await connect.ask(
        "PUT", f"/connector-plugins/{in_path(plugin)}/config/validate", full, caller=visit.login
    )
    return found


async def _unhidden(visit: Visit, config: dict[str, str], editing: str) -> dict[str, str]:
    """Returns the configuration with the secrets that the form does not show. Raises ConsoleError."""
    return unhide(config, await _stored(visit, editing) if editing else {})


async def save(visit: Visit) -> web.StreamResponse:
    """Makes or changes the connector."""
    editing = visit.field("editing")
    config, wrong = _given(visit)
    name = editing or config.get("name", "").strip()
    _demand_any(visit, name)
    if not wrong and not name:
        wrong = "name: a connector needs a name"
    if wrong is None:
        connect = visit.cluster.needs("connect")
        try:
            full = await _unhidden(visit, config, editing)
            if editing:
                await connect.ask("PUT", f"/connectors/{in_path(name)}/config", full, caller=visit.login)
            else:
                await connect.ask("POST", "/connectors", {"name": name, "config": full}, caller=visit.login)
        except ConsoleError as e:
            wrong = str(e)
    if wrong is not None:
        return await _form(
            visit,
            config,
            editing=editing,
            template="connector_form.html",
            touched=True,
            wrong=wrong,
            status=400,
        )
    visit.cluster.forget()
    visit.audit("connector changed" if editing else "connector created", connector=name, keys=sorted(config))
    return visit.go(f"/c/{visit.cluster_name}/connectors/{in_path(name)}", f"Connector {name} was saved.")


async def dry_run(visit: Visit) -> web.StreamResponse:
    """Takes a sample record through converters and transforms, and shows each step."""
    editing = visit.field("editing")
    config, wrong = _given(visit)
    name = editing or config.get("name") or "draft"
    visit.demand(Access.ADMINISTER, name)
    tried, said = None, wrong
    if wrong is None:
        try:
            sample = json.loads(visit.form.get("sample", ""))
        except ValueError as e:
            said = f"sample: that is not JSON: {e}"
        else:
            records = sample if isinstance(sample, list) else [sample]
            try:
                body = {"records": records, "config": await _unhidden(visit, config, editing)}
                tried = await visit.cluster.needs("connect").ask(
                    "POST", f"/connectors/{in_path(name)}/dry-run", body, caller=visit.login
                )
            except ConsoleError as e:
                absent = isinstance(e, Upstream) and e.code in (404, 405)
                said = "This worker has no dry run." if absent else str(e)
    return visit.page("connector_tried.html", tried=tried, wrong=said, compact=pretty_json)
