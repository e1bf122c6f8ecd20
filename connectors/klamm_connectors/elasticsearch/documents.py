"""Records as actions of a bulk request: the lines to send, and the id that orders them. No I/O.

orjson writes values of JsonConverter and structs in one call. Text and bytes that hold a JSON object are
passed on unchanged and unchecked: the server refuses single documents that are not JSON. Dates and times
become ISO 8601, decimals become numbers with all their digits, bytes become base64.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from types import NoneType
from typing import Any, Final

import orjson

from klamm_connectors.elasticsearch.config import Settings
from klamm_plugins import logical
from klamm_plugins.batch import SinkBatch
from klamm_plugins.errors import DataError
from klamm_plugins.records import Headers, SinkRecord
from klamm_plugins.schema import Schema, Struct, Type

Convert = Callable[[Any], Any]

UPDATE: Final = b',"retry_on_conflict":5}}\n{"doc":%b,"doc_as_upsert":true}\n'
"""The end of an action of write.method=UPSERT, and its document."""

_TEXTS: Final[frozenset[type]] = frozenset({str, bytes, NoneType})
_LINE_FEED: Final[Any] = orjson.Fragment(b"\n")  # no text of orjson has one: it can part texts
_OPTIONS: Final = orjson.OPT_UTC_Z
ID_MAX: Final = 512  # bytes, the server's own limit: beyond it a whole request is refused
_CONVERTS: Final = 1000  # schemas that are remembered; more are of records that each bring their own
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NO_TIMESTAMP: Final = (
    "a data stream needs a timestamp: the record has none, and data.stream.timestamp.field none either"
)


@dataclass(frozen=True, slots=True)
class Action:
    """The target of a topic's records, the beginning of their action lines, and whether ids come from offsets."""

    index: str
    head: str
    ignores_key: bool


class DocumentBuilder:
    """Turns a record into lines and an id; into None when there is nothing to do for the record."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._actions: dict[str, Action] = {}
        self._converts: dict[Schema, Convert | None] = {}
        self.operation = "create" if settings.to_streams else "update" if settings.upsert else "index"
        self._as_it_is = self.operation == "index"

    def action(self, topic: str) -> Action:
        """Returns what the actions for a topic's records share. Raises ConfigError for a topic without a target."""
        found = self._actions.get(topic)
        if found is None:
            index = self._settings.target(topic)
            head = f'{{"{self.operation}":{{"_index":{orjson.dumps(index).decode()}'
            found = self._actions[topic] = Action(index, head, self._settings.ignores_key(topic))
        return found

    def build(self, record: SinkRecord) -> tuple[bytes, str | None] | None:
        """Returns the record's lines and id. Raises DataError for a record that cannot be a document, ConfigError for
        a topic without a target.
        """
        target = self.action(record.topic)
        head = target.head
        if record.value is None:
            return self._tombstone(record, target)
        source = self._source(record)
        if self._settings.generated_ids:
            return f"{head}}}}}\n".encode() + source + b"\n", None
        if target.ignores_key:
            # The original topic: a transform may give records of two topics the same topic. A topic's name needs no
            # escaping: Kafka allows only characters that JSON allows, too.
            topic, partition = record.original_topic_partition
            action = f'{head},"_id":"{topic}+{partition}+{record.original_kafka_offset}"'
            id_ = None
        else:
            id_ = _id_of(record)
            action = f'{head},"_id":{orjson.dumps(id_).decode()}'
            if self.operation == "index":
                action += (
                    f',"version":{self._version(record.offset, record.headers)},"version_type":"external"'
                )
        if self.operation == "update":
            return action.encode() + UPDATE % source, id_
        return f"{action}}}}}\n".encode() + source + b"\n", id_

    def sources(self, batch: SinkBatch) -> Sequence[bytes | None] | None:
        """Returns the documents of a batch, None for a null; None where one cannot be written, or not on one line."""
        schema, values = batch.value_schema, batch.values
        try:
            if set(map(type, values)) <= _TEXTS:
                texts = [value.encode() if value.__class__ is str else value for value in values]
                if self._as_it_is:
                    return texts
                values = [None if text is None else _parsed(text) for text in texts]
                if self.operation == "update":
                    return texts if _are_objects(values) else None
            elif schema is not None:
                values = [None if value is None else self._converted(schema, value) for value in values]
            if not _are_objects(values):
                return None
            if self._settings.to_streams:
                stamp, rows = self._with_timestamp, zip(values, batch.timestamps, strict=True)
                values = [None if value is None else stamp(value, at) for value, at in rows]
            return _dumps_all(values)
        except (DataError, UnicodeEncodeError):
            return None

    def versions(self, batch: SinkBatch) -> Sequence[int] | None:
        """Returns the external versions of a batch; None where a header has none."""
        if not self._settings.version_header:
            return batch.offsets
        if batch.headers is None:
            return None
        try:
            return [self._version(*each) for each in zip(batch.offsets, batch.headers, strict=True)]
        except DataError:
            return None

    def _tombstone(self, record: SinkRecord, target: Action) -> tuple[bytes, str | None] | None:
        match self._settings.null_values:
            case "FAIL":
                raise DataError(
                    "the value is null and behavior.on.null.values is FAIL: set it to IGNORE, or to DELETE to delete "
                    "the key's document"
                )
            case "IGNORE":
                return None
        if target.ignores_key or record.key is None:
            return None  # no document has an id that names it
        id_ = _id_of(record)
        action = (
            f'{{"delete":{{"_index":{orjson.dumps(target.index).decode()},"_id":{orjson.dumps(id_).decode()}'
        )
        if not self._settings.upsert:  # updates count versions of their own
            action += f',"version":{self._version(record.offset, record.headers)},"version_type":"external"'
        return f"{action}}}}}\n".encode(), id_

    def _version(self, offset: int, headers: Headers) -> int:
        name = self._settings.version_header
        if not name:
            return offset
        header = headers.last(name)
        if header is None:
            raise DataError(f"the header {name}, which external.version.header names, is missing")
        try:
            exact = isinstance(header.value, (int, str, bytes)) and not isinstance(header.value, bool)
            version = int(header.value) if exact else -1
        except (TypeError, ValueError):
            version = -1
        if not 0 <= version < 1 << 63:
            raise DataError(
                f"the header {name} must be a whole number that is a version, not {header.value!r}"
            )
        return version

    def _source(self, record: SinkRecord) -> bytes:
        value = record.value
        kind = type(value)
        if kind is str or kind is bytes:
            source = _json_object(value.encode() if kind is str else value)
            if self._as_it_is:
                return source
            value = _parsed(source)
            if self.operation == "update" and type(value) is dict:
                return source  # one object and nothing after it, which would be part of the update
        elif record.value_schema is not None:
            value = self._converted(record.value_schema, value)
        if type(value) is not dict:
            raise DataError(f"a document must be a JSON object, not {_kind(value)}")
        if self._settings.to_streams:
            value = self._with_timestamp(value, record.timestamp)
        return _dumps(value)

    def _converted(self, schema: Schema, value: Any) -> Any:
        if schema not in self._converts:
            if len(self._converts) >= _CONVERTS:
                self._converts.clear()
            self._converts[schema] = _compile(schema, self._settings.compact_maps)
        convert = self._converts[schema]
        return value if convert is None else convert(value)

    def _with_timestamp(self, value: dict[str, Any], timestamp: int | None) -> dict[str, Any]:
        for name in self._settings.timestamp_fields:
            if value.get(name) is not None:
                return {**value, "@timestamp": value[name]}
        if value.get("@timestamp") is not None:
            return value
        if timestamp is None:
            raise DataError(_NO_TIMESTAMP)
        return {"@timestamp": _EPOCH + timedelta(milliseconds=timestamp), **value}


def _are_objects(values: Iterable[Any]) -> bool:
    return set(map(type, values)) <= {dict, NoneType}


def _id_of(record: SinkRecord) -> str:
    key = record.key
    if isinstance(key, str):
        id_ = key
    elif isinstance(key, int) and not isinstance(key, bool):
        id_ = str(key)
    elif key is None:
        raise DataError("the key is the document's id and is null: set key.ignore, or give the records keys")
    else:
        raise DataError(f"the key is the document's id and must be text or a whole number, not {_kind(key)}")
    try:
        size = len(id_.encode())
    except UnicodeEncodeError as e:
        raise DataError(f"the key is the document's id and must be Unicode text: {e}") from e
    if not 0 < size <= ID_MAX:
        raise DataError(f"the key is the document's id and must have 1 to {ID_MAX} bytes, not {size}")
    return id_


def _json_object(data: bytes) -> bytes:
    """Returns text that holds a JSON object, on one line."""
    if data[:1] != b"{" and data.lstrip()[:1] != b"{":
        raise DataError("a document must be a JSON object, and this is other text: use the JsonConverter")
    if b"\n" in data or b"\r" in data:
        _parsed(data)  # then they are outside of strings, and numbers keep all their digits
        return data.replace(b"\n", b" ").replace(b"\r", b" ")
    return data


def _parsed(data: bytes) -> Any:
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as e:
        raise DataError(f"the value is not JSON: {e}") from e


def _dumps(value: Any) -> bytes:
    try:
        data = orjson.dumps(value, default=_plain, option=_OPTIONS)
    except TypeError as e:  # orjson.JSONEncodeError is one
        raise DataError(f"the value cannot be written as JSON: {e.__cause__ or e}") from e
    if b"null" in data:
        _check_finite(value)  # orjson writes null for NaN
    return data


def _dumps_all(values: Sequence[Any]) -> Sequence[bytes | None]:
    """Writes many documents, None for a null. One call for all costs a part of as many calls."""
    documents = [value for value in values if value is not None]
    if not documents:
        return values
    apart = [_LINE_FEED] * (2 * len(documents) - 1)
    apart[::2] = documents
    written = _dumps(apart)[1:-1].split(b",\n,")
    if len(written) == len(values):
        return written
    made = iter(written)
    return [None if value is None else next(made) for value in values]


def _check_finite(value: Any) -> None:
    if isinstance(value, float):
        _finite(value)
    elif isinstance(value, dict):
        for inner in value.values():
            _check_finite(inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            _check_finite(inner)


def _plain(value: Any) -> Any:
    """Converts a value of a type that orjson does not know."""
    if isinstance(value, Decimal):
        if not value.is_finite():
            raise DataError(f"{value} is no JSON number")
        return orjson.Fragment(str(value))
    if isinstance(value, (bytes, bytearray, memoryview)):
        return base64.b64encode(value).decode()
    if isinstance(value, Struct):
        return value.to_dict()
    raise DataError(f"{_kind(value)} cannot be part of a document")


def _kind(value: Any) -> str:
    return "null" if value is None else type(value).__name__


def _compile(schema: Schema, compact_maps: bool) -> Convert | None:
    """Returns a function from a value of `schema` to a value for `_dumps`; None when `_dumps` takes the value as
    it is.
    """
    if logical.is_logical(schema):
        return None
    match schema.type:
        case Type.STRUCT:
            return _struct(schema, compact_maps)
        case Type.ARRAY:
            assert schema.value_schema is not None
            inner = _compile(schema.value_schema, compact_maps)
            return (
                None
                if inner is None
                else lambda items: items and [v if v is None else inner(v) for v in items]
            )
        case Type.MAP:
            return _map(schema, compact_maps)
        case Type.FLOAT32 | Type.FLOAT64:
            return _finite
        case _:
            return None


def _struct(schema: Schema, compact_maps: bool) -> Convert:
    names = [f.name for f in schema.fields]
    special = [
        (f.name, f.schema.default, _compile(f.schema, compact_maps))
        for f in schema.fields
        if f.schema.default is not None or _compile(f.schema, compact_maps) is not None
    ]

    def convert(struct: Struct) -> dict[str, Any]:
        found = dict(zip(names, struct.values, strict=True))
        for name, default, inner in special:
            value = found[name]
            if value is None:
                value = default
            found[name] = value if value is None or inner is None else inner(value)
        return found

    return convert


def _map(schema: Schema, compact_maps: bool) -> Convert | None:
    assert schema.key_schema is not None
    assert schema.value_schema is not None
    compiled = _compile(schema.value_schema, compact_maps)
    if compact_maps and schema.key_schema.type is Type.STRING:
        if compiled is None:
            return None
        return lambda pairs: pairs and {k: v if v is None else compiled(v) for k, v in pairs.items()}

    def inner(value: Any) -> Any:
        return value if value is None or compiled is None else compiled(value)

    return lambda pairs: [{"key": k, "value": inner(v)} for k, v in pairs.items()]


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise DataError(f"{value} is no JSON number")
    return value
