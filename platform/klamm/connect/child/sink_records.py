"""Messages of the consumer to the records that a sink task sees: converted in bulk, one by one on error.

A record that cannot be converted is judged by the tolerance, with its topic, partition and offset. With `keep`,
records know the message they were made of, for the day that the task reports one (`Reporter`, KIP-610).
"""

from __future__ import annotations

from itertools import groupby
from typing import Final, cast

from confluent_kafka import Message

from klamm.connect.child.dead_letters import KeptRecord, raw_of
from klamm.connect.child.plugins import Converters
from klamm.connect.child.tolerance import Bad, Stage, Tolerance
from klamm_plugins.converter import SchemaAndValue
from klamm_plugins.records import NO_HEADERS, Header, Headers, SinkRecord

_TIMESTAMP_TYPES: Final = ("NoTimestampType", "CreateTime", "LogAppendTime")


class RecordConverter:
    """See the module. Order is kept."""

    def __init__(self, converters: Converters, tolerance: Tolerance, *, keep: bool = False) -> None:
        self._converters = converters
        self._tolerance = tolerance
        self._keep = keep
        self._new: type[SinkRecord] = KeptRecord if keep else SinkRecord

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
            records = [self._record(topic, m, k, v) for m, k, v in zip(messages, keys, values, strict=True)]
        except Exception:
            # Which message it was is found, and judged, one by one.
            found = (self._convert_one(topic, m) for m in messages)
            return [record for record in found if record is not None]
        if self._keep:
            for record, message in zip(cast("list[KeptRecord]", records), messages, strict=True):
                record.message = message
        return records

    def _convert_one(self, topic: str, message: Message) -> SinkRecord | None:
        stage = "KEY_CONVERTER"
        try:
            key = self._converters.key.to_connect_data(topic, message.key())
            stage = "VALUE_CONVERTER"
            value = self._converters.value.to_connect_data(topic, message.value())
            stage = "HEADER_CONVERTER"
            record = self._record(topic, message, key, value)
        except Exception as e:
            bad = Bad(
                error=e,
                stage=stage,
                executing=self._converters.class_name(stage),
                where=f"topic {topic}, partition {message.partition()}, offset {message.offset()}",
                record=message.value(),
                raw=raw_of(message),
            )
            self._tolerance.judge(bad)
            return None
        if isinstance(record, KeptRecord):
            record.message = message
        return record

    def _record(self, topic: str, message: Message, key: SchemaAndValue, value: SchemaAndValue) -> SinkRecord:
        kind, timestamp = message.timestamp()
        raw = message.headers()
        return self._new(
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


class Reporter:
    """ErrantRecordReporter for the task."""

    def __init__(self, tolerance: Tolerance) -> None:
        self._tolerance = tolerance

    def report(self, record: SinkRecord, error: Exception) -> None:
        self._tolerance.failed(
            record, error, stage=Stage.TASK_PUT, executing="org.apache.kafka.connect.sink.SinkTask"
        )
