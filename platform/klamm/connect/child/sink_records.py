"""Messages of the consumer to the records that a sink task sees: converted in bulk, one by one on error.

A record that cannot be converted is judged by the tolerance, with its topic, partition and offset.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from typing import Final, cast

from confluent_kafka import Message

from klamm.connect.child.plugins import Converters
from klamm.connect.child.tolerance import Tolerance
from klamm_plugins.converter import SchemaAndValue
from klamm_plugins.records import NO_HEADERS, Header, Headers, SinkRecord

_TIMESTAMP_TYPES: Final = ("NoTimestampType", "CreateTime", "LogAppendTime")


class RecordConverter:
    """See the module. Order is kept."""

    def __init__(self, converters: Converters, config: Mapping[str, str]) -> None:
        self._converters = converters
        self.tolerance = Tolerance(config)

    def convert(self, messages: list[Message]) -> list[SinkRecord]:
        """The records of messages without errors; those that are tolerated are left out."""
        records: list[SinkRecord] = []
        for topic, group in groupby(messages, key=Message.topic):
            records += self._convert_topic(topic or "", list(group))
        return records

    def _convert_topic(self, topic: str, messages: list[Message]) -> list[SinkRecord]:
        try:
            keys = self._converters.key.to_connect_data_many(topic, [m.key() for m in messages])
            values = self._converters.value.to_connect_data_many(topic, [m.value() for m in messages])
            return [self._record(topic, m, k, v) for m, k, v in zip(messages, keys, values, strict=True)]
        except Exception:
            # Which message it was is found, and judged, one by one.
            found = (self._convert_one(topic, m) for m in messages)
            return [record for record in found if record is not None]

    def _convert_one(self, topic: str, message: Message) -> SinkRecord | None:
        stage = "KEY_CONVERTER"
        try:
            key = self._converters.key.to_connect_data(topic, message.key())
            stage = "VALUE_CONVERTER"
            value = self._converters.value.to_connect_data(topic, message.value())
            stage = "HEADER_CONVERTER"
            return self._record(topic, message, key, value)
        except Exception as e:
            where = f"topic {topic}, partition {message.partition()}, offset {message.offset()}"
            self.tolerance.judge(e, stage=stage, where=where, record=message.value())
            return None

    def _record(self, topic: str, message: Message, key: SchemaAndValue, value: SchemaAndValue) -> SinkRecord:
        kind, timestamp = message.timestamp()
        raw = message.headers()
        return SinkRecord(
            topic,
            message.partition() or 0,
            key[0],
            key[1],
            value[0],
            value[1],
            message.offset() or 0,
            timestamp if kind else None,
            _TIMESTAMP_TYPES[kind],
            self._headers(topic, raw) if isinstance(raw, list) else NO_HEADERS,
        )

    def _headers(self, topic: str, raw: list[tuple[str, str | bytes | None]]) -> Headers:
        convert = self._converters.header.to_connect_header
        headers = []
        for name, data in raw:
            schema, value = convert(topic, name, cast("bytes | None", data))
            headers.append(Header(name, value, schema))
        return Headers(headers)
