"""Schemas of a registry: subjects, versions, compatibility; new versions after a check."""

from __future__ import annotations

import json
from typing import Any, Final

from aiohttp import web

from klamm.console.errors import ConsoleError, Upstream
from klamm.console.view import in_path, pretty_json
from klamm.console.visit import Visit

PAGE: Final = 50
LEVELS: Final = (
    "BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE", "NONE",
)  # fmt: skip
KINDS: Final = ("AVRO", "JSON", "PROTOBUF")


async def _ask(visit: Visit, method: str, path: str, body: Any = None) -> Any:
    return await visit.cluster.needs("registry").ask(method, path, body, caller=visit.login)


async def list_page(visit: Visit) -> web.StreamResponse:
    """Shows subjects: searched, a page of them."""
    registry = visit.cluster.needs("registry")
    found: list[str] = sorted(
        await visit.cluster.kept(
            "subjects", lambda: registry.ask("GET", "/subjects", caller=visit.login), login=visit.login
        )
    )
    age_s = visit.cluster.age_s("subjects", visit.login)
    level = (await _ask(visit, "GET", "/config")).get("compatibilityLevel", "")
    text = visit.asked("q").lower()
    rows = [s for s in found if text in s.lower()]
    pages = max(1, -(-len(rows) // PAGE))
    asked = visit.asked("page", "1")
    page = min(max(1, int(asked) if asked.isdecimal() else 1), pages)
    return visit.page(
        "schemas.html", age_s=age_s, rows=rows[(page - 1) * PAGE : page * PAGE], matches=len(rows), total=len(found), page=page,
        pages=pages, level=level,
    )  # fmt: skip


async def subject(visit: Visit) -> web.StreamResponse:
    """Shows a subject's versions, one of them in full."""
    return await _page(visit)


async def _page(
    visit: Visit, wrong: str | None = None, good: str | None = None, text: str | None = None
) -> web.StreamResponse:
    name = visit.part("subject")
    path = f"/subjects/{in_path(name)}"
    versions: list[int] = []
    schema: dict[str, Any] = {}
    try:
        versions = await _ask(visit, "GET", f"{path}/versions")
        asked = visit.asked("version")
        chosen = int(asked) if asked.isdecimal() and int(asked) in versions else versions[-1]
        schema = await _ask(visit, "GET", f"{path}/versions/{chosen}")
        config: dict[str, str] = await _ask(visit, "GET", f"/config/{in_path(name)}?defaultToGlobal=true")
        schema["level"] = config.get("compatibilityLevel", "")
    except Upstream as e:
        if e.code != 404 or (wrong is None and not visit.asked("new")):
            raise
    return visit.page(
        "schema.html", status=400 if wrong else 200, name=name, versions=versions, schema=schema, levels=LEVELS,
        kinds=KINDS, shown=readable(schema), wrong=wrong, good=good, text=text if text is not None else readable(schema),
        kind=visit.field("kind") or schema.get("schemaType", "AVRO"),
        references=visit.form.get("references", "") if text is not None else _references(schema),
    )  # fmt: skip


def _references(schema: dict[str, Any]) -> str:
    return pretty_json(schema["references"]) if schema.get("references") else ""


def readable(schema: dict[str, Any]) -> str:
    """Returns a schema's text with line breaks, where it is JSON."""
    text = str(schema.get("schema", ""))
    if schema.get("schemaType", "AVRO") == "PROTOBUF":
        return text
    try:
        return pretty_json(json.loads(text))
    except ValueError:
        return text


def _body(visit: Visit) -> dict[str, Any]:
    text, kind = visit.form.get("schema", "").strip(), visit.field("kind") or "AVRO"
    if not text:
        raise ConsoleError("schema: it is empty")
    body: dict[str, Any] = {"schema": text} if kind == "AVRO" else {"schema": text, "schemaType": kind}
    if given := visit.form.get("references", "").strip():
        try:
            body["references"] = json.loads(given)
        except ValueError as e:
            raise ConsoleError(f"references: that is not JSON: {e}") from None
    return body


async def check(visit: Visit) -> web.StreamResponse:
    """Says whether a schema is compatible with the versions that there are."""
    name, text = visit.part("subject"), visit.form.get("schema", "")
    try:
        answer = await _ask(
            visit, "POST", f"/compatibility/subjects/{in_path(name)}/versions?verbose=true", _body(visit)
        )
    except ConsoleError as e:
        return await _page(visit, wrong=str(e), text=text)
    if answer.get("is_compatible"):
        return await _page(visit, good="The schema is compatible.", text=text)
    return await _page(visit, wrong="Not compatible: " + "; ".join(answer.get("messages", [])), text=text)


async def register(visit: Visit) -> web.StreamResponse:
    """Makes a schema a version of the subject."""
    name = visit.part("subject")
    try:
        answer = await _ask(visit, "POST", f"/subjects/{in_path(name)}/versions", _body(visit))
    except ConsoleError as e:
        return await _page(visit, wrong=str(e), text=visit.form.get("schema", ""))
    visit.cluster.forget()
    visit.audit("schema registered", subject=name, id=answer.get("id"))
    return visit.go(
        f"/c/{visit.cluster_name}/schemas/{in_path(name)}", f"The schema has the id {answer.get('id')}."
    )


async def set_level(visit: Visit) -> web.StreamResponse:
    """Sets the compatibility of a subject."""
    name, level = visit.part("subject"), visit.field("level")
    await _ask(visit, "PUT", f"/config/{in_path(name)}", {"compatibility": level})
    visit.audit("compatibility set", subject=name, level=level)
    return visit.go(f"/c/{visit.cluster_name}/schemas/{in_path(name)}", f"{name} is {level} now.")


async def delete(visit: Visit) -> web.StreamResponse:
    """Deletes a subject (softly: it can be registered again with its ids) whose name was typed."""
    name = visit.part("subject")
    if visit.field("confirm") != name:
        raise ConsoleError(f"confirm: type {name} to say that you mean it")
    await _ask(visit, "DELETE", f"/subjects/{in_path(name)}")
    visit.cluster.forget()
    visit.audit("subject deleted", subject=name)
    return visit.go(f"/c/{visit.cluster_name}/schemas", f"Subject {name} was deleted.")
