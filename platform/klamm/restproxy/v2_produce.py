"""v2: produce. The first line of each docstring is its summary in OpenAPI."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from aiohttp import web

from klamm.restproxy import formats, requests
from klamm.restproxy.context import PROXY, answer
from klamm.restproxy.errors import partition_not_found, schema_missing, unprocessable
from klamm.restproxy.formats import Codec, Format
from klamm.restproxy.producing import Delivered, Record
from klamm.restproxy.schemas import Schemas, encoded

TYPES = (*formats.OF_RECORDS, *formats.OF_ANSWERS)
_FIELDS = ("records", "key_schema", "key_schema_id", "value_schema", "value_schema_id")


async def produce(request: web.Request) -> web.Response:
    """Send records to a topic. Each is answered with its partition and offset, or an error."""
    return await _produced(request, None)


async def produce_to_partition(request: web.Request) -> web.Response:
    """Send records to a partition of a topic. Each is answered with its offset, or an error."""
    return await _produced(request, requests.partition_of(request))


class Codecs(NamedTuple):
    """The way of keys or values to bytes: `codec` is for formats with a schema, whose `number` is the id."""

    form: Format
    number: int | None = None
    codec: Codec | None = None

    def encode(self, value: Any, where: str) -> bytes | None:
        if not self.form.has_schema:
            return formats.encode(self.form, value, where)
        return encoded(self.codec, value) if self.codec is not None and value is not None else None


class Target(NamedTuple):
    """The partitions of a topic, and the one in the path, if there is one."""

    partitions: int
    partition: int | None


async def _produced(request: web.Request, partition: int | None) -> web.Response:
    topic, form = request.match_info["topic"], formats.of_content(request.content_type)
    body = requests.known(await requests.read_object(request, TYPES), _FIELDS)
    given = requests.listed(body, "records")
    proxy = request.app[PROXY]
    wanted = [each.get("partition") for each in given] if partition is None else [partition]
    above = max(
        (each for each in wanted if isinstance(each, int)), default=-1
    )  # perhaps of a topic that has grown
    target = Target(await proxy.producing.partitions(topic, above=above), partition)
    if partition is not None and partition >= target.partitions:
        raise partition_not_found()
    keys = values = Codecs(form)
    if form.has_schema:
        keys = await _codecs(proxy.schemas, f"{topic}-key", form, body)
        values = await _codecs(proxy.schemas, f"{topic}-value", form, body)
    records = [_record(f"records[{i}]", each, target, keys, values) for i, each in enumerate(given)]
    delivered = await proxy.producing.send(topic, records)
    offsets = [_offset(each) for each in delivered]
    return answer({"key_schema_id": keys.number, "value_schema_id": values.number, "offsets": offsets})


def _offset(delivered: Delivered) -> dict[str, Any]:
    error = delivered.error
    if error is not None:
        return {"partition": None, "offset": None, "error_code": error.code, "error": str(error)}
    return {"partition": delivered.partition, "offset": delivered.offset, "error_code": None, "error": None}


def _record(where: str, given: Mapping[str, Any], target: Target, keys: Codecs, values: Codecs) -> Record:
    requests.known(given, ("key", "value", "partition"), where)
    own = requests.whole(given, "partition", where=f"{where}.")
    if own is not None and target.partition is not None:
        raise unprocessable(f"{where}.partition: the partition is in the path already")
    if own is not None and own >= target.partitions:
        raise unprocessable(f"{where}.partition: the topic has the partitions 0 to {target.partitions - 1}")
    return Record(
        _encoded(keys, given, "key", where),
        _encoded(values, given, "value", where),
        own if target.partition is None else target.partition,
    )


def _encoded(codecs: Codecs, given: Mapping[str, Any], what: str, where: str) -> bytes | None:
    value = given.get(what)
    if value is not None and codecs.form.has_schema and codecs.codec is None:
        raise schema_missing(what)
    return codecs.encode(value, f"{where}.{what}")


async def _codecs(schemas: Schemas, subject: str, form: Format, body: Mapping[str, Any]) -> Codecs:
    """Returns the codec of keys or values by the schema that the body gives, if it gives one. Raises ProxyError."""
    what = subject.rpartition("-")[2]
    number, text = requests.whole(body, f"{what}_schema_id", low=1), requests.text(body, f"{what}_schema")
    if number is None and text is None:
        return Codecs(form)
    if number is None and text is not None:
        number = schemas.known_id(subject, form, text)
        if number is None:
            number = await schemas.asked(schemas.register, subject, form, text)
    assert number is not None
    codec = schemas.known_codec(form, number) or await schemas.asked(schemas.codec, form, number)
    return Codecs(form, number, codec)
