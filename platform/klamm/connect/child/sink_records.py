"""Converts and transforms the consumer's messages in bulk into the records that a sink task sees.

A batch is processed in columns, because the work per record dominates a sink's cost. When a converter raises,
the messages of that topic are converted one by one: retriable errors are retried (`errors.retry.timeout`),
and the tolerance judges bad records by topic, partition and offset. With `keep`, records keep their message,
in case the task reports one (`Reporter`, KIP-610).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set
from itertools import groupby, repeat
from typing import Final, NamedTuple, cast

from confluent_kafka import Message

from klamm.connect.child.dead_letters import KeptRecord, raw_of
from klamm.connect.child.plugins import Converters
from klamm.connect.child.tolerance import Bad, Stage, Tolerance
from klamm.connect.child.transform_chain import TransformChain
from klamm_plugins.connector import Reported
from klamm_plugins.converter import Columns, Converter
from klamm_plugins.errors import RetriableError
from klamm_plugins.records import NO_HEADERS, Header, Headers, SinkRecord, TopicPartition

_TIMESTAMP_TYPES: Final = ("NoTimestampType", "CreateTime", "LogAppendTime")
_NO_CHAIN: Final = TransformChain()


class Consumed(NamedTuple):
    """Messages without errors, with their topics, partitions and offsets. `place`: the partition of all, if
    there is just one.
    """

    messages: list[Message]
    topics: list[str]
    partitions: list[int]
    offsets: list[int]
    place: TopicPartition | None

    @classmethod
    def of(cls, messages: list[Message]) -> Consumed:
        """Describes consumed messages. They have a topic, a partition and an offset, although their type
        allows None.
        """
        topics = cast("list[str]", list(map(Message.topic, messages)))
        partitions = cast("list[int]", list(map(Message.partition, messages)))
        offsets = cast("list[int]", list(map(Message.offset, messages)))
        # A busy partition often fills a whole batch, and sets of length one are the cheapest test for that.
        alone = len(set(topics)) == 1 and len(set(partitions)) == 1
        place = TopicPartition(topics[0], partitions[0]) if alone else None
        return cls(messages, topics, partitions, offsets, place)

    def places(self) -> Set[tuple[str, int]]:
        """Returns the topics and partitions of the messages, each once."""
        if self.place is not None:
            return {self.place}
        return set(zip(self.topics, self.partitions, strict=True))

    def ends(self) -> dict[TopicPartition, int]:
        """Returns the offset after the last message of each partition."""
        if self.place is not None:
            return {self.place: self.offsets[-1] + 1}
        last = dict(zip(zip(self.topics, self.partitions, strict=True), self.offsets, strict=True))
        return {TopicPartition(*place): offset + 1 for place, offset in last.items()}

    def starts(self) -> dict[TopicPartition, int]:
        """Returns the offset of the first message of each partition."""
        if self.place is not None:
            return {self.place: self.offsets[0]}
        places = zip(reversed(self.topics), reversed(self.partitions), strict=True)
        first = dict(zip(places, reversed(self.offsets), strict=True))
        return {TopicPartition(*place): offset for place, offset in first.items()}

    def by_topic(self) -> Iterator[tuple[str, Consumed]]:
        """Yields runs of messages of one topic."""
        if self.place is not None:
            yield self.place.topic, self
            return
        start = 0
        for topic, run in groupby(self.topics):
            end = start + sum(1 for _ in run)
            cut = slice(start, end)
            yield (
                topic,
                Consumed(self.messages[cut], self.topics[cut], self.partitions[cut], self.offsets[cut], None),
            )
            start = end


class RecordConverter:
    """Converts messages to records, in order."""

    def __init__(
        self,
        converters: Converters,
        tolerance: Tolerance,
        *,
        chain: TransformChain = _NO_CHAIN,
        keep: bool = False,
    ) -> None:
        self._converters = converters
        self._tolerance = tolerance
        self._chain = chain
        self._keep = keep
        self._new: type[SinkRecord] = KeptRecord if keep else SinkRecord

    def convert(self, consumed: Consumed) -> list[SinkRecord]:
        """Returns the task's records, without tolerated bad ones and those that a transform drops."""
        records: list[SinkRecord] = []
        for topic, run in consumed.by_topic():
            records += self._convert_topic(topic, run)
        if self._chain and records:
            pairs = self._chain.apply(records, self._tolerance)
            return [made for _, made in pairs if made is not None]
        return records

    def _convert_topic(self, topic: str, run: Consumed) -> list[SinkRecord]:
        messages = run.messages
        records: list[SinkRecord] | None
        try:
            keys = _columns(self._converters.key, topic, list(map(Message.key, messages)))
            values = _columns(self._converters.value, topic, list(map(Message.value, messages)))
            records = self._records(topic, run, keys, values)
        except Exception:
            records = None
        if records is None:
            # Converting one by one finds the bad messages and judges each. Outside of `except`: the errors must not have
            # the error of the bulk as their context, which says the same.
            found = (self._convert_one(topic, m) for m in messages)
            return [record for record in found if record is not None]
        if self._keep:
            for record, message in zip(cast("list[KeptRecord]", records), messages, strict=True):
                record.message = message
        return records

    def _records(self, topic: str, run: Consumed, keys: Columns, values: Columns) -> list[SinkRecord]:
        kinds, times = zip(*map(Message.timestamp, run.messages), strict=True)
        one_kind = len(set(kinds)) == 1 and kinds[0] != 0
        return list(
            map(
                self._new,
                repeat(topic),
                run.partitions,
                *keys,
                *values,
                run.offsets,
                times if one_kind else [t if k else None for k, t in zip(kinds, times, strict=True)],
                repeat(_TIMESTAMP_TYPES[kinds[0]]) if one_kind else map(_TIMESTAMP_TYPES.__getitem__, kinds),
                self._all_headers(topic, run.messages),
            )
        )

    def _all_headers(self, topic: str, messages: list[Message]) -> Iterable[Headers]:
        raw = list(map(Message.headers, messages))
        if not any(raw):
            return repeat(NO_HEADERS)
        return [self._headers(topic, each) if isinstance(each, list) and each else NO_HEADERS for each in raw]

    def _convert_one(self, topic: str, message: Message) -> SinkRecord | None:
        call, converters = self._tolerance.retry.call, self._converters
        stage, data = Stage.KEY_CONVERTER, message.key()
        try:
            key = call(stage, lambda: converters.key.to_connect_data(topic, message.key()))
            stage, data = Stage.VALUE_CONVERTER, message.value()
            value = call(stage, lambda: converters.value.to_connect_data(topic, message.value()))
            stage, data = Stage.HEADER_CONVERTER, None
            columns = ([key.schema], [key.value]), ([value.schema], [value.value])
            (record,) = call(stage, lambda: self._records(topic, Consumed.of([message]), *columns))
        except Exception as e:
            bad = Bad(
                error=e,
                stage=stage,
                executing=converters.class_name(stage),
                where=f"topic {topic}, partition {message.partition()}, offset {message.offset()}",
                record=message.value(),
                raw=lambda: raw_of(message),
                data=data,
            )
            self._tolerance.judge(bad)
            return None
        if isinstance(record, KeptRecord):
            record.message = message
        return record

    def _headers(self, topic: str, raw: list[tuple[str, str | bytes | None]]) -> Headers:
        convert = self._converters.header.to_connect_header
        headers = []
        for name, data in raw:
            schema, value = convert(topic, name, cast("bytes | None", data))
            headers.append(Header(name, value, schema))
        return Headers(headers)


def _columns(converter: Converter, topic: str, data: list[bytes | None]) -> Columns:
    """Returns schemas and values. Keys that are all null, as they often are, are converted once."""
    if not any(data) and data.count(None) == len(data):
        schema, value = converter.to_connect_data(topic, None)
        return [schema] * len(data), [value] * len(data)
    return converter.to_connect_columns(topic, data)


class Reporter:
    """The task's ErrantRecordReporter, and its own answer to each report."""

    def __init__(self, tolerance: Tolerance) -> None:
        self._tolerance = tolerance

    def report(self, record: SinkRecord, error: Exception) -> Reported:
        self._tolerance.failed(
            record, error, stage=Stage.TASK_PUT, executing="org.apache.kafka.connect.sink.SinkTask"
        )
        return self

    def wait(self, timeout_s: float) -> None:
        """Waits until all records reported so far are kept. Raises RetriableError."""
        if not self._tolerance.settle(timeout_s):
            raise RetriableError(f"dead letters are not acknowledged within {timeout_s:g} s")
