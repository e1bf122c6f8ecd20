"""The OpenAPI document (3.1) of the REST API, made of the table of endpoints, their docstrings and their shapes."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final, TypedDict

from aiohttp import web

from klamm.web.endpoint import Access, Endpoint
from klamm.web.http import json_response
from klamm.web.json_schema import Schemas
from klamm.web.routes import ENDPOINTS
from klamm_base.version import __version__

_ACCESS: Final = {
    Access.VIEW: "viewer",
    Access.OPERATE: "operator",
    Access.ADMINISTER: "admin",
    Access.ANY: "any role",
}


class Error(TypedDict):
    """An error: what is wrong, and where."""

    error_code: int
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Title:
    """The document's head, words for its path parameters (text and schema), and what other kinds of access need."""

    title: str
    about: str
    parameters: Mapping[str, tuple[str, Mapping[str, Any]]]
    needs: Mapping[Access, str] = field(default_factory=dict)
    error: Any = Error


TITLE: Final = web.AppKey("title", Title)
"""The application's key for the document's head."""


async def get_openapi(request: web.Request) -> web.Response:
    """Describe this API as OpenAPI."""
    endpoints: tuple[Endpoint, ...] = request.app[ENDPOINTS]
    return json_response(document(endpoints, request.app[TITLE]))


def document(endpoints: Iterable[Endpoint], title: Title) -> dict[str, Any]:
    """Returns the document of these endpoints."""
    schemas = Schemas()
    schemas.of(title.error)
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        paths.setdefault(endpoint.template, {})[endpoint.method.lower()] = _operation(
            endpoint, schemas, title
        )
    return {
        "openapi": "3.1.0",
        "info": {"title": title.title, "version": __version__, "description": title.about},
        "paths": paths,
        "components": {
            "schemas": schemas.by_name,
            "securitySchemes": {
                "basic": {"type": "http", "scheme": "basic"},
                "bearer": {"type": "http", "scheme": "bearer"},
            },
        },
        "security": [{}, {"basic": []}, {"bearer": []}],
    }


def _operation(endpoint: Endpoint, schemas: Schemas, title: Title) -> dict[str, Any]:
    summary, _, about = inspect.cleandoc(endpoint.handler.__doc__ or "").partition("\n\n")
    needed = {**_ACCESS, **title.needs}.get(endpoint.access)
    needs = f"Needs: {needed}." if needed else ""
    found: dict[str, Any] = {
        "operationId": endpoint.handler.__name__,
        "summary": " ".join(summary.split()),
        "parameters": [*_path_parameters(endpoint, title), *(_query(q) for q in endpoint.query)],
        "responses": _responses(endpoint, schemas, title),
    }
    if text := "\n\n".join(part for part in (about, needs) if part):
        found["description"] = text
    if endpoint.access is Access.OPEN:
        found["security"] = []
    if endpoint.body is not None:
        schema = schemas.of(endpoint.body)
        content = {each: {"schema": schema} for each in endpoint.consumes}
        found["requestBody"] = {"required": True, "content": content}
    return found


def _path_parameters(endpoint: Endpoint, title: Title) -> Iterable[dict[str, Any]]:
    for name in re.findall(r"\{(\w+)\}", endpoint.template):
        about, schema = title.parameters[name]
        yield {"name": name, "in": "path", "required": True, "description": about, "schema": schema}


def _query(query: Any) -> dict[str, Any]:
    one: dict[str, Any] = {"type": "string"}
    if query.values:
        one["examples"] = list(query.values)
    schema = {"type": "array", "items": one} if query.many else one
    return {"name": query.name, "in": "query", "description": query.about, "schema": schema}


def _responses(endpoint: Endpoint, schemas: Schemas, title: Title) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for status, shape in endpoint.answers.items():
        answer: dict[str, Any] = {"description": HTTPStatus(status).phrase}
        if shape is not None:
            answer["content"] = {endpoint.produces: {"schema": schemas.of(shape)}}
        found[str(status)] = answer
    error = {"application/json": {"schema": schemas.of(title.error)}}
    for status in sorted({*endpoint.errors, *_usual(endpoint)} - endpoint.answers.keys()):
        found[str(status)] = {"description": HTTPStatus(status).phrase, "content": error}
    return found


def _usual(endpoint: Endpoint) -> set[int]:
    """Returns the errors that every endpoint of its kind may answer."""
    found = {406, 500, 503}
    if endpoint.access is not Access.OPEN:
        found |= {401, 403}
    if endpoint.body is not None:
        found |= {400, 413, 415}
    if "{" in endpoint.path:
        found.add(404)
    return found
