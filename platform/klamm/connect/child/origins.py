"""The origin of a record: what an error says about it, and what a dead letter keeps of it.

A sink's record is kept byte for byte as it was in its topic. A source's record was in no topic yet: key and
value are kept as the connector's converters write them. Where a converter fails (which may be the very
error), JSON for people to read is kept instead. Two headers say which (`__connect.errors.key.format`,
`….value.format`: `converter` or `json`).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from klamm.connect.child.dead_letters import KeptRecord, Raw, RawHeaders, raw_of
from klamm.connect.child.plugins import Converters
from klamm_plugins.records import SinkRecord, SourceRecord
from klamm_plugins.schema import Schema


class SinkOrigin:
    """The origin of a sink's records. The converters write the records that the task has made itself."""

    def __init__(self, converters: Converters) -> None:
        self._converters = converters

    def where(self, record: SinkRecord) -> str:
        return (
            f"topic {record.original_topic}, partition {record.original_kafka_partition}, "
            f"offset {record.original_kafka_offset}"
        )

    def raw(self, record: SinkRecord) -> Raw:
        message = record.message if isinstance(record, KeptRecord) else None
        return self._made(record) if message is None else raw_of(message)

    def _made(self, record: SinkRecord) -> Raw:
        topic, converters = record.original_topic, self._converters
        return Raw(
            topic,
            record.original_kafka_partition,
            record.original_kafka_offset,
            record.timestamp,
            converters.key.from_connect_data(topic, record.key_schema, record.key),
            converters.value.from_connect_data(topic, record.value_schema, record.value),
            [
                (h.name, converters.header.from_connect_header(topic, h.name, h.schema, h.value))
                for h in record.headers
            ],
        )


class SourceOrigin:
    """The origin of a source's records. Any record can be kept, whatever is wrong with it."""

    def __init__(self, converters: Converters) -> None:
        self._converters = converters

    def where(self, record: SourceRecord) -> str:
        return (
            f"topic {record.topic}, source partition {record.source_partition}, "
            f"source offset {record.source_offset}"
        )

    def raw(self, record: SourceRecord) -> Raw:
        topic, converters = record.topic, self._converters
        key, key_format = _written(converters.key.from_connect_data, topic, record.key_schema, record.key)
        value, value_format = _written(
            converters.value.from_connect_data, topic, record.value_schema, record.value
        )
        return Raw(
            topic,
            -1 if record.partition is None else record.partition,
            -1,
            record.timestamp,
            key,
            value,
            self._headers(record),
            source={
                "source.partition": _json(record.source_partition),
                "source.offset": _json(record.source_offset),
                "key.format": key_format,
                "value.format": value_format,
            },
        )

    def _headers(self, record: SourceRecord) -> RawHeaders:
        convert = self._converters.header.from_connect_header
        headers: RawHeaders = []
        for h in record.headers:
            try:
                data = convert(record.topic, h.name, h.schema, h.value)
            except Exception:  # it may be what is wrong with the record
                data = _json(h.value).encode("utf-8", "backslashreplace")
            headers.append((h.name, data))
        return headers


def _written(
    convert: Callable[[str, Schema | None, Any], bytes | None], topic: str, schema: Schema | None, data: Any
) -> tuple[bytes | None, str]:
    try:
        return convert(topic, schema, data), "converter"
    except Exception:  # it may be what is wrong with the record
        return _json(data).encode("utf-8", "backslashreplace"), "json"


def _json(data: Any) -> str:
    """Returns JSON, with Python's own form where JSON has none. Never fails."""
    try:
        return json.dumps(data, default=repr, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):  # keys that are no strings, a circle
        return json.dumps(repr(data))
