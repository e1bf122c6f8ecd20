"""v3: ACLs. The first line of each docstring is its summary in OpenAPI."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Final, TypeVar

from aiohttp import web

from klamm.admin.acls import create_acls, delete_acls, describe_acls
from klamm.restproxy import requests
from klamm.restproxy import v3_shapes as shapes
from klamm.restproxy.errors import ProxyError, unprocessable
from klamm.restproxy.v3 import JSON, asking, links_of
from klamm.web.http import empty, json_response
from klamm_broker.security.acl import Acl, AclFilter
from klamm_kafka.wire.acls import AclOperation, AclPermissionType, PatternType, ResourceType

FIELDS: Final = (
    "resource_type", "resource_name", "pattern_type", "principal", "host", "operation", "permission",
)  # fmt: skip
E = TypeVar("E", bound=IntEnum)


def _word(given: Mapping[str, str | None], name: str, kind: type[E], default: E) -> E:
    text = given.get(name)
    if text is None:
        return default
    try:
        found = kind[text.upper()]
    except KeyError:
        raise ProxyError(
            40002, f"{name} must be one of {', '.join(kind.__members__)}, not {text!r:.40}"
        ) from None
    return found


def _filter(given: Mapping[str, str | None]) -> AclFilter:
    return AclFilter(
        resource_type=_word(given, "resource_type", ResourceType, ResourceType.ANY),
        resource_name=given.get("resource_name"),
        pattern_type=_word(given, "pattern_type", PatternType, PatternType.ANY),
        principal=given.get("principal"),
        host=given.get("host"),
        operation=_word(given, "operation", AclOperation, AclOperation.ANY),
        permission=_word(given, "permission", AclPermissionType, AclPermissionType.ANY),
    )


def _query(request: web.Request) -> dict[str, str | None]:
    return {name: request.query.get(name) or None for name in FIELDS}


async def list_acls(request: web.Request) -> web.Response:
    """List the ACLs that the parameters select."""
    wanted = _filter(_query(request))
    async with asking(request) as (admin, links):
        found = await describe_acls(admin, wanted)
    shown = (shapes.acl(links, each) for each in found)
    return json_response(links.listed("KafkaAcl", shown, "acls"))


def acl_of(body: Mapping[str, object]) -> Acl:
    """Returns the ACL that an object describes, which needs every field. Raises ProxyError."""
    requests.known(body, FIELDS, "an ACL")
    given = {name: requests.text(body, name) for name in FIELDS}
    if missing := next((name for name, value in given.items() if not value), None):
        raise unprocessable(f"{missing} is needed")
    wanted = _filter(given)
    return Acl(
        resource_type=wanted.resource_type,
        resource_name=given["resource_name"] or "",
        pattern_type=wanted.pattern_type,
        principal=given["principal"] or "",
        host=given["host"] or "",
        operation=wanted.operation,
        permission=wanted.permission,
    )


async def create_acl(request: web.Request) -> web.Response:
    """Create an ACL."""
    links = links_of(request)
    made = acl_of(await requests.read_object(request, JSON))
    async with asking(request) as (admin, _):
        await create_acls(admin, [made])
    response = empty(201)
    response.headers["Location"] = shapes.acl(links, made)["metadata"]["self"]
    return response


async def delete_acls_v3(request: web.Request) -> web.Response:
    """Delete the ACLs that the parameters select; at least one parameter is needed."""
    given = _query(request)
    if not any(given.values()):
        raise ProxyError(40002, f"At least one parameter is needed: {', '.join(FIELDS)}")
    async with asking(request) as (admin, links):
        found = await delete_acls(admin, [_filter(given)])
    return json_response({"data": [shapes.acl(links, each) for each in found]})
