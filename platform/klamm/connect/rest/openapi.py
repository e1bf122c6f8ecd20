"""The OpenAPI document (3.1) of the REST API, made of the table of endpoints, their docstrings and their shapes."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any, Final

from aiohttp import web

from klamm.connect.rest import shapes
from klamm.connect.rest.endpoint import Access, Endpoint
from klamm.connect.rest.http import json_response
from klamm.connect.rest.json_schema import Schemas
from klamm.connect.rest.keys import ENDPOINTS
from klamm_base.version import __version__

_PARAMETERS: Final = {
    "connector": ("The connector's name.", {"type": "string", "minLength": 1}),
    "task": ("The task's number, from 0.", {"type": "integer", "minimum": 0}),
    "plugin": ("A plugin's class, or its short name.", {"type": "string", "minLength": 1}),
    "flow": ("A mirror's flow, such as A->B.", {"type": "string", "minLength": 1}),
    "logger": ("A logger's name, or root.", {"type": "string", "minLength": 1}),
}
_ABOUT: Final = (
    "Kafka Connect's REST API as Klamm's workers serve it. Every answer from 400 on is an Error. Roles are asked "
    "for where `rest.auth.file` or a REST extension is set."
)
_ACCESS: Final = {
    Access.VIEW: "viewer",
    Access.OPERATE: "operator",
    Access.ADMINISTER: "admin",
    Access.ANY: "any role",
    Access.NAMED: "admin of the connector that the body names",
    Access.WORKER: "another worker's signature",
}


async def get_openapi(request: web.Request) -> web.Response:
    """Describe this API as OpenAPI."""
    endpoints: tuple[Endpoint, ...] = request.app[ENDPOINTS]
    return json_response(document(endpoints))


def document(endpoints: Iterable[Endpoint]) -> dict[str, Any]:
    """Returns the document of these endpoints."""
    schemas = Schemas()
    schemas.of(shapes.Error)
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        paths.setdefault(endpoint.template, {})[endpoint.method.lower()] = _operation(endpoint, schemas)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Klamm Connect", "version": __version__, "description": _ABOUT},
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


def _operation(endpoint: Endpoint, schemas: Schemas) -> dict[str, Any]:
    summary, _, about = inspect.cleandoc(endpoint.handler.__doc__ or "").partition("\n\n")
    needs = f"Needs: {_ACCESS[endpoint.access]}." if endpoint.access in _ACCESS else ""
    found: dict[str, Any] = {
        "operationId": endpoint.handler.__name__,
        "summary": " ".join(summary.split()),
        "parameters": [*_path_parameters(endpoint), *(_query(q) for q in endpoint.query)],
        "responses": _responses(endpoint, schemas),
    }
    if text := "\n\n".join(part for part in (about, needs) if part):
        found["description"] = text
    if endpoint.access is Access.OPEN:
        found["security"] = []
    if endpoint.body is not None:
        content = {"application/json": {"schema": schemas.of(endpoint.body)}}
        found["requestBody"] = {"required": True, "content": content}
    return found


def _path_parameters(endpoint: Endpoint) -> Iterable[dict[str, Any]]:
    for name in re.findall(r"\{(\w+)\}", endpoint.template):
        about, schema = _PARAMETERS[name]
        yield {"name": name, "in": "path", "required": True, "description": about, "schema": schema}


def _query(query: Any) -> dict[str, Any]:
    one: dict[str, Any] = {"type": "string"}
    if query.values:
        one["examples"] = list(query.values)
    schema = {"type": "array", "items": one} if query.many else one
    return {"name": query.name, "in": "query", "description": query.about, "schema": schema}


def _responses(endpoint: Endpoint, schemas: Schemas) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for status, shape in endpoint.answers.items():
        answer: dict[str, Any] = {"description": HTTPStatus(status).phrase}
        if shape is not None:
            answer["content"] = {endpoint.produces: {"schema": schemas.of(shape)}}
        found[str(status)] = answer
    error = {"application/json": {"schema": schemas.of(shapes.Error)}}
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
