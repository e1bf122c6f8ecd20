"""v3: produce, one record or a stream of them over one connection.

The body is JSON objects one after another, each a record; each is answered by an object of its own, in their order, while the body
still arrives. A record that cannot be taken is answered with its error, and the stream goes on; what is no JSON ends it. Without room for
more records the body is not read on, so the client waits.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final, NamedTuple

import orjson
from aiohttp import web

from klamm.restproxy import formats, requests
from klamm.restproxy.context import PROXY, Proxy
from klamm.restproxy.errors import ProxyError, unprocessable
from klamm.restproxy.formats import Format
from klamm.restproxy.producing import Delivered, Record
from klamm.restproxy.schemas import encoded
from klamm.restproxy.v3 import JSON, links_of
from klamm.web.callers import demand, still_known
from klamm.web.endpoint import Access
from klamm.web.errors import Forbidden

log = logging.getLogger(__name__)

IN_FLIGHT_MAX: Final = 1000
"""Records of a stream that wait for their answers."""
ASK_AGAIN_S: Final = 1.0
"""A stream goes on for so long before its caller's rights are looked at again."""
SMALL: Final = 1 << 16
"""The bytes of an incomplete record that are read again with every chunk."""
_FIELDS: Final = frozenset({"partition_id", "headers", "key", "value", "timestamp", "original_size"})
_OF_SCHEMA: Final = frozenset({"schema", "schema_id", "schema_version", "subject"})
_OF_DATA: Final = frozenset({"type", "data", "subject_name_strategy"}) | _OF_SCHEMA
_TYPES: Final = {each.name: each for each in Format}
_STRATEGIES: Final = ("TOPIC_NAME", "RECORD_NAME", "TOPIC_RECORD_NAME")


class Part(NamedTuple):
    """A key or a value: its bytes, and what the answer tells of it."""

    data: bytes | None
    shown: dict[str, Any]


class Sent(NamedTuple):
    """A record that was handed over."""

    key: Part | None
    value: Part | None
    delivery: asyncio.Future[list[Delivered]]


async def produce_v3(request: web.Request) -> web.StreamResponse:
    """Send one record, or a stream of records: JSON objects one after another, each answered by an object."""
    links_of(request)
    if request.content_type not in JSON:
        raise web.HTTPUnsupportedMediaType
    proxy, topic = request.app[PROXY], request.match_info["topic"]
    count = await proxy.producing.partitions(topic)
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    response.enable_chunked_encoding()
    answers: asyncio.Queue[Sent | ProxyError | None] = asyncio.Queue(IN_FLIGHT_MAX)
    await response.prepare(request)
    reading = asyncio.create_task(_read(request, proxy, topic, count, answers))
    try:
        async for lines in _lines(proxy, topic, answers):
            await response.write(lines)
        await reading
        await response.write_eof()
    finally:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
    return response


async def _lines(
    proxy: Proxy, topic: str, answers: asyncio.Queue[Sent | ProxyError | None]
) -> AsyncIterator[bytes]:
    """Yields the answers as lines, those together that are there already."""
    while (sent := await answers.get()) is not None:
        lines = [_line(await answered(proxy, topic, sent))]
        while not answers.empty():
            following = answers.get_nowait()
            if following is None:
                yield b"".join(lines)
                return
            if isinstance(following, Sent):
                if not following.delivery.done():
                    yield b"".join(lines)
                    lines = []
                    await following.delivery
                lines.append(_line(_place(proxy, topic, following, following.delivery.result()[0])))
            else:
                lines.append(_line(_refusal(following)))
        yield b"".join(lines)


def _line(answer: dict[str, Any]) -> bytes:
    return orjson.dumps(answer) + b"\r\n"


async def _read(
    request: web.Request,
    proxy: Proxy,
    topic: str,
    count: int,
    answers: asyncio.Queue[Sent | ProxyError | None],
) -> None:
    """Hands records over as they arrive; ends the queue with None, unless nobody takes answers from it any more: then it is cancelled."""
    try:
        async for item in objects(_chunks(request, topic), proxy.config.values["request.max.bytes"]):
            if isinstance(item, ProxyError):
                await answers.put(item)
                break
            try:
                handed: Sent | ProxyError = await sent(proxy, topic, count, item)
            except ProxyError as e:
                handed = e
            except Exception as e:
                log.exception("a record for topic %s", topic)
                handed = ProxyError(500, f"{type(e).__name__} (the server's log has the details)")
            await answers.put(handed)
    except ProxyError as e:
        await answers.put(e)
    except web.RequestPayloadError as e:
        await answers.put(ProxyError(400, f"Bad Request: the body is not HTTP: {e}"))
    except Exception:
        await answers.put(None)
        raise
    await answers.put(None)


async def _chunks(request: web.Request, topic: str) -> AsyncIterator[bytes]:
    """Yields the body as it arrives, while its caller may write to the topic. Raises ProxyError."""
    asked_s = time.monotonic()
    async for chunk in request.content.iter_any():
        if time.monotonic() - asked_s > ASK_AGAIN_S:
            asked_s = time.monotonic()
            if not await still_known(request):
                raise ProxyError(401, "The caller has no access any more")
            try:
                demand(request, Access.OPERATE, topic)
            except Forbidden as e:
                raise ProxyError(403, str(e)) from None
        yield chunk


async def objects(chunks: AsyncIterator[bytes], size_max: int) -> AsyncIterator[Any]:
    """Yields the JSON values of a stream of bytes; a ProxyError, as the last one, for what is no JSON or too large.

    A large record that is not there yet is read again when its bytes have doubled, or a chunk may end it: not with every chunk.
    """
    decoder = json.JSONDecoder(parse_constant=_refuse)
    waiting = bytearray()
    incomplete = 0
    async for chunk in chunks:
        waiting += chunk
        values, waiting = _whole_lines(waiting)
        for each in values:
            yield each
        if values or len(waiting) < SMALL or len(waiting) >= 2 * incomplete or chunk.rstrip().endswith(b"}"):
            values, rest = _complete(decoder, waiting)
            for each in values:
                yield each
            if isinstance(rest, ProxyError):
                yield rest
                return
            waiting, incomplete = rest, len(rest)
        if len(waiting) > size_max:
            yield ProxyError(413, f"A record is larger than {size_max} bytes (request.max.bytes)")
            return
    values, rest = _complete(decoder, waiting)
    for each in values:
        yield each
    if isinstance(rest, ProxyError):
        yield rest
    elif rest.strip():
        yield ProxyError(
            400, f"Bad Request: the body ends within a record, or is no JSON: {bytes(rest[:40])!r}"
        )


def _whole_lines(data: bytearray) -> tuple[list[Any], bytearray]:
    """Returns the objects that are lines of their own, as clients write them: five times as fast. The rest begins with a line that is none."""
    found: list[Any] = []
    at = 0
    while (end := data.find(b"\n", at)) >= 0:
        line = data[at:end]
        try:
            value = orjson.loads(line)
        except orjson.JSONDecodeError:
            if line.strip():
                break
        else:
            if not isinstance(value, dict):
                break
            found.append(value)
        at = end + 1
    return found, data[at:] if at else data


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not a JSON number")


def _complete(decoder: json.JSONDecoder, data: bytearray) -> tuple[list[Any], bytearray | ProxyError]:
    """Returns the values that are complete, and what is left of the bytes."""
    end = len(data)
    if data and data[-1] & 0x80:  # a character may be cut off
        while end and data[end - 1] & 0xC0 == 0x80:
            end -= 1
        end = max(0, end - 1)
    try:
        text = data[:end].decode()
    except UnicodeDecodeError as e:
        return [], ProxyError(400, f"Bad Request: the body is not UTF-8: {e}")
    found: list[Any] = []
    at = 0
    while True:
        while at < len(text) and text[at] in " \t\r\n":
            at += 1
        if at >= len(text):
            break
        if text[at] != "{":
            return found, ProxyError(
                400, f"Bad Request: a record must be a JSON object, not {text[at : at + 20]!r}"
            )
        try:
            value, at = decoder.raw_decode(text, at)
        except json.JSONDecodeError as e:
            if _may_go_on(e, text):
                break
            return found, ProxyError(400, f"Bad Request: the body is not JSON: {e.msg}")
        except (ValueError, RecursionError) as e:
            return found, ProxyError(400, f"Bad Request: the body is not usable JSON: {e}")
        found.append(value)
    return found, bytearray(text[at:].encode()) + data[end:]


def _may_go_on(error: json.JSONDecodeError, text: str) -> bool:
    """Tells whether more bytes may mend it: it was met at the end, within a word, or in a text without its end."""
    left = text[error.pos :].strip()
    return (len(left) < 12 and not left.startswith(("}", "]", ":", ","))) or error.msg.startswith(
        "Unterminated string"
    )


async def sent(proxy: Proxy, topic: str, count: int, given: Mapping[str, Any]) -> Sent:
    """Hands a record over. Raises ProxyError."""
    requests.known(given, _FIELDS, "a record")
    partition = requests.whole(given, "partition_id")
    if partition is not None and partition >= count:
        count = await proxy.producing.partitions(topic, above=partition)  # it may have grown
    if partition is not None and partition >= count:
        raise ProxyError(40402, f"partition_id {partition}: the topic has {count} partitions")
    key = await _part(proxy, topic, given, "key") if given.get("key") is not None else None
    value = await _part(proxy, topic, given, "value") if given.get("value") is not None else None
    record = Record(
        key.data if key else None,
        value.data if value else None,
        partition,
        _timestamp(requests.text(given, "timestamp")),
        _headers(given),
    )
    size = record.bytes
    proxy.limits.produce(len(record.key or b"") + len(record.value or b""), time.monotonic())
    if not proxy.producing.room.fits(size):
        await proxy.producing.has_room(size)
    return Sent(key, value, proxy.producing.send_one(topic, record, size))


def _timestamp(given: str | None) -> int | None:
    if given is None:
        return None
    try:
        moment = datetime.fromisoformat(given)
    except ValueError:
        raise unprocessable(
            f"timestamp must be ISO 8601, such as 2026-01-31T12:00:00Z, not {given!r:.40}"
        ) from None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def _headers(given: Mapping[str, Any]) -> list[tuple[str, bytes | None]]:
    if given.get("headers") is None:
        return []
    found = []
    for i, each in enumerate(requests.listed(given, "headers")):
        name = requests.text(each, "name")
        if name is None:
            raise unprocessable(f"headers[{i}] needs a name")
        found.append((name, formats.encode(Format.BINARY, each.get("value"), f"headers[{i}].value")))
    return found


async def _part(proxy: Proxy, topic: str, given: Mapping[str, Any], what: str) -> Part:
    """Returns the key or the value of a record. Raises ProxyError."""
    body = given[what]
    if not isinstance(body, dict):
        raise unprocessable(f"{what} must be an object with type and data")
    requests.known(body, _OF_DATA, what)
    name, value = requests.text(body, "type"), body.get("data")
    if name == "STRING":
        if not isinstance(value, str | None):
            raise unprocessable(f"{what}.data must be a string")
        try:
            data = None if value is None else value.encode()
        except UnicodeEncodeError as e:
            raise unprocessable(f"{what}.data is not text: {e.reason}") from None
        return Part(data, {"type": name, "size": len(data or b"")})
    if name is not None and name not in _TYPES:
        raise unprocessable(f"{what}.type must be one of STRING, {', '.join(_TYPES)}, not {name!r:.40}")
    form = _TYPES[name] if name is not None else None
    if form is None and not (body.keys() & _OF_SCHEMA):
        raise unprocessable(f"{what}.type is needed")
    if form is None or form.has_schema:
        return await _with_schema(proxy, topic, body, form, what)
    data = formats.encode(form, value, f"{what}.data")
    return Part(data, {"type": name, "size": len(data or b"")})


async def _with_schema(
    proxy: Proxy, topic: str, body: Mapping[str, Any], form: Format | None, what: str
) -> Part:
    subject = requests.text(body, "subject") or f"{topic}-{what}"
    strategy = requests.text(body, "subject_name_strategy")
    if strategy not in {None, *_STRATEGIES} or (
        strategy not in {None, "TOPIC_NAME"} and "subject" not in body
    ):
        raise unprocessable(f"{what}.subject_name_strategy {strategy!r} needs {what}.subject")
    text, number = requests.text(body, "schema"), requests.whole(body, "schema_id", low=1)
    version = requests.whole(body, "schema_version", low=1)
    schemas = proxy.schemas
    if text is not None:
        if form is None:
            raise unprocessable(f"{what}.type is needed with a schema")
        number = schemas.known_id(subject, form, text)
        if number is None:
            number = await schemas.asked(schemas.register, subject, form, text)
    elif number is None:
        found = schemas.known_latest(subject, version)
        if found is None:
            found = await schemas.asked(schemas.latest, subject, version)
        number, version = found.id, found.version
    if form is None:
        form = await schemas.asked(schemas.format_of, number)
    codec = schemas.known_codec(form, number)
    if codec is None:
        codec = await schemas.asked(schemas.codec, form, number)
    value = body.get("data")
    data = None if value is None else encoded(codec, value)
    shown = {
        "type": form.name,
        "subject": subject,
        "schema_id": number,
        "schema_version": version,
        "size": len(data or b""),
    }
    return Part(data, shown)


async def answered(proxy: Proxy, topic: str, sent: Sent | ProxyError) -> dict[str, Any]:
    """Returns what a record is answered with, once it is there."""
    if isinstance(sent, ProxyError):
        return _refusal(sent)
    return _place(proxy, topic, sent, (await sent.delivery)[0])


def _refusal(error: ProxyError) -> dict[str, Any]:
    shown = str(error).encode(errors="replace").decode()  # it may quote half a surrogate pair
    return {"error_code": error.code, "message": shown}


@lru_cache(1000)
def _moment(timestamp_ms: int) -> str:
    """Returns a time as ISO 8601; records that come together often have the same."""
    when = datetime.fromtimestamp(max(0, timestamp_ms) / 1000, UTC)
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _place(proxy: Proxy, topic: str, sent: Sent, delivered: Delivered) -> dict[str, Any]:
    if delivered.error is not None:
        return _refusal(delivered.error)
    return {
        "error_code": 200,
        "cluster_id": proxy.cluster_id,
        "topic_name": topic,
        "partition_id": delivered.partition,
        "offset": delivered.offset,
        "timestamp": _moment(delivered.timestamp_ms),
        "key": sent.key.shown if sent.key else None,
        "value": sent.value.shown if sent.value else None,
    }
