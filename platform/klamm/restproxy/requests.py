"""The bodies of requests, read and checked. Pure but for reading the body."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

from aiohttp import hdrs, web

from klamm.restproxy.errors import unprocessable
from klamm.web.http import json_kind, read_json

INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1


class Place(NamedTuple):
    """A partition, and where one is given an offset in it."""

    topic: str
    partition: int
    offset: int = -1
    metadata: str | None = None


async def read_object(request: web.Request, types: Collection[str]) -> Mapping[str, Any]:
    """Returns the body, which must be a JSON object. Raises ProxyError."""
    body = await read_json(request, types=types)
    if not isinstance(body, dict):
        raise unprocessable(f"The body must be a JSON object, not {json_kind(body)}")
    return body


async def read_optional(request: web.Request, types: Collection[str]) -> Mapping[str, Any]:
    """Returns the body; an empty object where there is none."""
    if not await request.read() and (
        hdrs.CONTENT_TYPE not in request.headers or request.content_type in types
    ):
        return {}
    return await read_object(request, types)


def known(body: Mapping[str, Any], fields: Collection[str], where: str = "The body") -> Mapping[str, Any]:
    """Returns an object that has these fields only. Raises ProxyError."""
    names = (
        fields if isinstance(fields, frozenset) else frozenset(fields)
    )  # records of a stream come with the former
    if not body.keys() <= names:
        raise unprocessable(f"Unrecognized field: {where} has no field {min(body.keys() - names)}")
    return body


def text(body: Mapping[str, Any], name: str) -> str | None:
    """Returns a field that is text; None where it is not there. Raises ProxyError, also for half a surrogate pair: C libraries die of it."""
    value = body.get(name)
    if value is None or (isinstance(value, str) and (value.isascii() or _is_whole(value))):
        return value
    if isinstance(value, str):
        raise unprocessable(f"{name} is not text: it has half a surrogate pair")
    raise unprocessable(f"{name} must be a string, not {json_kind(value)}")


def _is_whole(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def whole(
    body: Mapping[str, Any], name: str, *, low: int = 0, high: int = INT_MAX, where: str = ""
) -> int | None:
    """Returns a field that is an integer; None where it is not there. Raises ProxyError."""
    value = body.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise unprocessable(f"{where}{name} must be an integer from {low} to {high}, not {value!r:.40}")
    return value


def listed(body: Mapping[str, Any], name: str) -> Sequence[Mapping[str, Any]]:
    """Returns a field that is a list of objects. Raises ProxyError."""
    value = body.get(name)
    if not isinstance(value, list):
        raise unprocessable(f"{name} must be an array of objects, not {json_kind(value)}")
    for i, each in enumerate(value):
        if not isinstance(each, dict):
            raise unprocessable(f"{name}[{i}] must be an object, not {json_kind(each)}")
    return value


def places(body: Mapping[str, Any], name: str, *, offsets: bool) -> list[Place]:
    """Returns partitions, with offsets where they are asked for. Raises ProxyError."""
    found = []
    for i, each in enumerate(listed(body, name)):
        where = f"{name}[{i}]."
        topic, partition = text(each, "topic"), whole(each, "partition", where=where)
        offset = whole(each, "offset", high=LONG_MAX, where=where) if offsets else -1
        if not topic or partition is None or offset is None:
            raise unprocessable(f"{name}[{i}] needs topic, partition{' and offset' if offsets else ''}")
        found.append(Place(topic, partition, offset, text(each, "metadata")))
    return found


def partition_of(request: web.Request) -> int:
    """Returns the partition in the path, whose pattern allows digits only."""
    return int(request.match_info["partition"])
