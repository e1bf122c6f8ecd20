"""v2: consumer instances. The first line of each docstring is its summary in OpenAPI."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

import orjson
from aiohttp import hdrs, web

from klamm.restproxy import formats, requests
from klamm.restproxy.context import PROXY, address, answer
from klamm.restproxy.errors import (
    EXCLUSIVE,
    ProxyError,
    format_mismatch,
    illegal_state,
    invalid_consumer,
    kafka_error,
    unprocessable,
)
from klamm.restproxy.formats import OF_ANSWERS, Format
from klamm.restproxy.instance import Fetched
from klamm.restproxy.instances import Entry
from klamm.restproxy.requests import Place
from klamm.restproxy.schemas import Schemas
from klamm.web.callers import CALLER, demand, demand_group
from klamm.web.endpoint import Access
from klamm.web.http import accepts, empty
from klamm.web.roles import Caller

_SETTINGS: Final = (
    "name",
    "id",
    "format",
    "auto.offset.reset",
    "auto.commit.enable",
    "fetch.min.bytes",
    "consumer.request.timeout.ms",
)
_RESETS: Final = ("earliest", "latest", "none")


def _owner(request: web.Request) -> str | None:
    caller: Caller | None = request.get(CALLER)
    return None if caller is None else caller.name


def _entry(request: web.Request) -> Entry:
    path = request.match_info
    demand_group(request, path["group"])
    return request.app[PROXY].instances.find(path["group"], path["instance"], _owner(request))


def _demand_view(request: web.Request, topics: Iterable[str | None]) -> None:
    """Raises Forbidden unless the caller may read these topics; None stands for all, which a pattern may select."""
    for each in set(topics):
        demand(request, Access.VIEW, each)


async def create_consumer(request: web.Request) -> web.Response:
    """Make a consumer instance in a group. It goes when nobody asks for it for consumer.instance.timeout.ms."""
    demand_group(request, request.match_info["group"])
    body = requests.known(await requests.read_optional(request, OF_ANSWERS), _SETTINGS)
    form, own = _format(body), _own(body)
    values = request.app[PROXY].config.values
    group = request.match_info["group"]
    name = requests.text(body, "name") or requests.text(body, "id")
    if name is not None and ("/" in name or not name.isprintable()):
        raise invalid_consumer("a name has no slash, and no character that is not printable")
    timeout_ms = _number(body, "consumer.request.timeout.ms", values["consumer.request.timeout.ms"])
    entry = request.app[PROXY].instances.make(
        group,
        name,
        format=form,
        owner=_owner(request),
        own=own,
        timeout_ms=timeout_ms,
        bytes_min=max(1, _number(body, "fetch.min.bytes", 1, low=-1)),
    )
    base = f"{address(request)}/consumers/{quote(group, safe='')}/instances/{quote(entry.name, safe='')}"
    return answer({"instance_id": entry.name, "base_uri": base})


def _format(body: Mapping[str, Any]) -> Format:
    given = requests.text(body, "format") or Format.BINARY
    try:
        return Format(given.lower())
    except ValueError:
        raise invalid_consumer(f"Invalid format type {given}; there are {', '.join(Format)}") from None


def _own(body: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings of librdkafka that an instance has for itself."""
    own: dict[str, Any] = {}
    reset = requests.text(body, "auto.offset.reset")
    if reset is not None:
        if reset not in _RESETS:
            raise invalid_consumer(f"auto.offset.reset must be one of {', '.join(_RESETS)}, not {reset!r}")
        own["auto.offset.reset"] = "error" if reset == "none" else reset
    commit = body.get("auto.commit.enable")
    if commit is not None:
        if str(commit).lower() not in {"true", "false"}:
            raise invalid_consumer(f"auto.commit.enable must be true or false, not {commit!r}")
        own["enable.auto.commit"] = str(commit).lower() == "true"
    return own


def _number(body: Mapping[str, Any], name: str, default: int, *, low: int = 0) -> int:
    """Returns an integer, which clients also send as text. Raises ProxyError 42204."""
    value = body.get(name, default)
    if isinstance(value, str) and value.lstrip("-").isdecimal() and len(value) < 12:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= requests.INT_MAX:
        raise invalid_consumer(
            f"{name} must be an integer from {low} to {requests.INT_MAX}, not {value!r:.40}"
        )
    return value


async def delete_consumer(request: web.Request) -> web.Response:
    """Close a consumer instance."""
    await request.app[PROXY].instances.remove(_entry(request))
    return empty(204)


async def subscribe(request: web.Request) -> web.Response:
    """Subscribe an instance to topics, or to a pattern of topics."""
    entry = _entry(request)
    body = requests.known(await requests.read_object(request, OF_ANSWERS), ("topics", "topic_pattern"))
    topics, pattern = body.get("topics"), requests.text(body, "topic_pattern")
    if topics is not None and pattern is not None:
        raise illegal_state(EXCLUSIVE)
    if pattern is None and (
        not isinstance(topics, list) or not topics or not all(isinstance(t, str) and t for t in topics)
    ):
        raise unprocessable("topics must be an array of names, or topic_pattern a pattern of them")
    _demand_view(request, topics or [None])
    await request.app[PROXY].instances.call(entry, lambda i: i.subscribe(topics or (), pattern))
    return empty(204)


async def get_subscription(request: web.Request) -> web.Response:
    """Show the topics that an instance is subscribed to."""
    topics = await request.app[PROXY].instances.call(_entry(request), lambda i: i.topics())
    return answer({"topics": topics})


async def unsubscribe(request: web.Request) -> web.Response:
    """End the subscription or the assignment of an instance."""
    await request.app[PROXY].instances.call(_entry(request), lambda i: i.unsubscribe())
    return empty(204)


async def _places(request: web.Request, name: str, *, offsets: bool) -> list[Place]:
    body = requests.known(await requests.read_object(request, OF_ANSWERS), (name,))
    return requests.places(body, name, offsets=offsets)


async def assign(request: web.Request) -> web.Response:
    """Assign partitions to an instance by hand."""
    entry, places = _entry(request), await _places(request, "partitions", offsets=False)
    _demand_view(request, (each.topic for each in places))
    await request.app[PROXY].instances.call(entry, lambda i: i.assign(places))
    return empty(204)


async def get_assignments(request: web.Request) -> web.Response:
    """Show the partitions that an instance reads."""
    found = await request.app[PROXY].instances.call(_entry(request), lambda i: i.assignment())
    return answer({"partitions": [{"topic": p.topic, "partition": p.partition} for p in found]})


async def seek(request: web.Request) -> web.Response:
    """Go to offsets, which are read next."""
    entry, places = _entry(request), await _places(request, "offsets", offsets=True)
    await request.app[PROXY].instances.call(entry, lambda i: i.seek(places))
    return empty(204)


async def seek_to_beginning(request: web.Request) -> web.Response:
    """Go to the beginning of partitions."""
    return await _seek_to(request, end=False)


async def seek_to_end(request: web.Request) -> web.Response:
    """Go to the end of partitions."""
    return await _seek_to(request, end=True)


async def _seek_to(request: web.Request, *, end: bool) -> web.Response:
    entry, places = _entry(request), await _places(request, "partitions", offsets=False)
    await request.app[PROXY].instances.call(entry, lambda i: i.seek_to(places, end=end))
    return empty(204)


async def commit_offsets(request: web.Request) -> web.Response:
    """Commit records as read: these, or, without a body, all that the instance has answered. `offset` is the last record read."""
    entry = _entry(request)
    body = requests.known(await requests.read_optional(request, OF_ANSWERS), ("offsets",))
    places = requests.places(body, "offsets", offsets=True) if body else None
    _demand_view(request, (each.topic for each in places or ()))
    wait = request.query.get("async", "").lower() != "true"
    found = await request.app[PROXY].instances.call(entry, lambda i: i.commit(places, wait=wait))
    return answer([{"topic": p.topic, "partition": p.partition, "offset": p.offset} for p in found])


async def get_committed(request: web.Request) -> web.Response:
    """Show the committed offsets of partitions, which the body names, or of all that the instance reads."""
    entry = _entry(request)
    body = requests.known(await requests.read_optional(request, OF_ANSWERS), ("partitions",))
    given = requests.places(body, "partitions", offsets=False) if body else None
    _demand_view(request, (each.topic for each in given or ()))
    found = await request.app[PROXY].instances.call(
        entry, lambda i: i.committed(i.assignment() if given is None else given)
    )
    shown = [
        {"topic": p.topic, "partition": p.partition, "offset": p.offset, "metadata": p.metadata}
        for p in found
    ]
    return answer({"offsets": shown})


async def read_records(request: web.Request) -> web.Response:
    """Read records in the instance's format. `timeout` (ms) and `max_bytes` limit the answer."""
    entry = _entry(request)
    _demand_view(request, entry.instance.reads)
    proxy = request.app[PROXY]
    wanted = request.headers.get(hdrs.ACCEPT, "")
    if not any(accepts(wanted, each) for each in _types(entry.format)):
        raise format_mismatch()
    timeout_ms = _query(request, "timeout", entry.timeout_ms)
    bytes_max = min(
        _query(request, "max_bytes", requests.LONG_MAX) or requests.LONG_MAX,
        proxy.config.values["consumer.request.max.bytes"],
    )
    if request.method == hdrs.METH_HEAD:  # it would take records and show none
        return answer([], content_type=entry.format.media_type)
    decode = _decoder(entry.format, proxy.schemas)
    records = await proxy.instances.call(
        entry,
        lambda i: i.read(
            timeout_s=timeout_ms / 1000,
            bytes_max=bytes_max,
            bytes_min=entry.bytes_min,
            decode=decode,
            gone=lambda: request.transport is None or request.transport.is_closing(),
        ),
    )
    proxy.instances.records += len(records)
    return web.Response(body=b"[%s]" % b",".join(records), content_type=entry.format.media_type)


def _types(format: Format) -> Sequence[str]:
    return (format.media_type, *(OF_ANSWERS if format is Format.BINARY else ()))


def _query(request: web.Request, name: str, default: int) -> int:
    """Returns a number of the query; -1 means the default. Raises ProxyError 422."""
    text = request.query.get(name)
    if text is None or text == "-1":
        return default
    if not text.isdecimal() or len(text) > 18:
        raise unprocessable(f"{name} must be a number, not {text!r:.40}")
    return int(text)


def _decoder(format: Format, schemas: Schemas) -> Callable[[Fetched], bytes]:
    """Returns the function that makes a record's JSON. It raises ProxyError, whatever is wrong with the record."""

    def plain(data: bytes | None) -> Any:
        return formats.decode(format, data)

    def with_schema(data: bytes | None) -> Any:
        return schemas.decode(data)[0]

    part = with_schema if format.has_schema else plain

    def decode(fetched: Fetched) -> bytes:
        try:
            return orjson.dumps(
                {
                    "topic": fetched.topic,
                    "key": part(fetched.key),
                    "value": part(fetched.value),
                    "partition": fetched.partition,
                    "offset": fetched.offset,
                }
            )
        except ProxyError:
            raise
        except Exception as e:
            place = f"{fetched.topic}-{fetched.partition} at offset {fetched.offset}"
            raise kafka_error(f"Error deserializing key/value for partition {place}: {e}") from None

    return decode
