"""Converts and transforms the consumer's messages in bulk into the batches that a sink task takes.

A batch is columns of one partition, because the work per record dominates a sink's cost. Values stay bytes where the
task and all transforms can do without them: the converter then only checks them. When a converter raises,
the messages of that topic are converted one by one: retriable errors are retried (`errors.retry.timeout`),
and the tolerance judges bad records by topic, partition and offset. With `keep`, records keep their message,
in case the task reports one (`Reporter`, KIP-610).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence, Set
from itertools import groupby
from typing import Any, Final, NamedTuple, cast

from confluent_kafka import Message

from klamm.connect.child.dead_letters import KeptRecord, raw_of
from klamm.connect.child.plugins import Converters
from klamm.connect.child.tolerance import Bad, Stage, Tolerance
from klamm.connect.child.transform_chain import TransformChain
from klamm_plugins.batch import RawValues, SinkBatch, Timestamp, batches_of
from klamm_plugins.connector import Reported
from klamm_plugins.converter import Columns, Converter
from klamm_plugins.errors import RetriableError
from klamm_plugins.records import NO_HEADERS, Header, Headers, SinkRecord, TopicPartition
from klamm_plugins.schema import Schema

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
        """Yields the messages of each topic, partition by partition, as Kafka's consumer has them."""
        if self.place is not None:
            yield self.place.topic, self
            return
        rows: dict[str, dict[int, list[int]]] = {}
        for row, (topic, partition) in enumerate(zip(self.topics, self.partitions, strict=True)):
            rows.setdefault(topic, {}).setdefault(partition, []).append(row)
        for topic, places in rows.items():
            yield topic, Consumed.of([self.messages[row] for of_one in places.values() for row in of_one])


class RecordConverter:
    """Converts messages to batches, in order. Values stay bytes of the `raw_formats`, which the task takes."""

    def __init__(
        self,
        converters: Converters,
        tolerance: Tolerance,
        *,
        chain: TransformChain = _NO_CHAIN,
        keep: bool = False,
        raw_formats: Collection[str] = (),
    ) -> None:
        self._converters = converters
        self._tolerance = tolerance
        self._chain = chain
        self._keep = keep
        self.raw_formats = raw_formats
        self._new: type[SinkRecord] = KeptRecord if keep else SinkRecord

    def convert(self, consumed: Consumed) -> list[SinkBatch]:
        """Returns the task's batches, without tolerated bad records and those that a transform drops."""
        batches: list[SinkBatch] = []
        for topic, run in consumed.by_topic():
            batches += self._convert_topic(topic, run)
        return self._chain.apply_batches(batches, self._tolerance) if self._chain else batches

    def _convert_topic(self, topic: str, run: Consumed) -> list[SinkBatch]:
        batches: list[SinkBatch] | None
        try:
            batches = self._batches(topic, run)
        except Exception:
            batches = None
        if batches is not None:
            return batches
        # Converting one by one finds the bad messages and judges each. Outside of `except`: the errors must not have
        # the error of the bulk as their context, which says the same.
        found = (self._convert_one(topic, m) for m in run.messages)
        return batches_of(record for record in found if record is not None)

    def _batches(self, topic: str, run: Consumed) -> list[SinkBatch]:
        messages = run.messages
        raw_keys, data = list(map(Message.key, messages)), list(map(Message.value, messages))
        key_schemas, keys = _columns(self._converters.key, topic, raw_keys)
        no_keys = keys[0] is None and raw_keys.count(None) == len(raw_keys)
        formats = self.raw_formats if self._chain.leaves_values else ()
        raw = self._converters.value.raw_values(topic, data, formats) if formats else None
        if raw is not None:
            schemas, values = cast("Columns", ([raw[0]] * len(data), raw[1].data))
        else:
            schemas, values = _columns(self._converters.value, topic, data)
        headers, times = self._all_headers(topic, messages), _Times(messages)
        cuts = list(_alike(run.partitions, key_schemas, schemas))
        return [
            SinkBatch(
                TopicPartition(topic, run.partitions[cut.start]),
                run.offsets[cut],
                values[cut] if raw is None else RawValues(raw[1].format, values[cut], raw[1].decode),
                key_schema=key_schemas[cut.start],
                keys=None if no_keys else keys[cut],
                value_schema=schemas[cut.start],
                times=times if len(cuts) == 1 else times()[cut],
                headers=headers and headers[cut],
                new=self._new,
                kept=messages[cut] if self._keep else None,
            )
            for cut in cuts
        ]

    def _all_headers(self, topic: str, messages: list[Message]) -> list[Headers] | None:
        raw = list(map(Message.headers, messages))
        if not any(raw):
            return None
        return [self._headers(topic, each) if isinstance(each, list) and each else NO_HEADERS for each in raw]

    def _convert_one(self, topic: str, message: Message) -> SinkRecord | None:
        call, converters = self._tolerance.retry.call, self._converters
        stage, data = Stage.KEY_CONVERTER, message.key()
        try:
            key = call(stage, lambda: converters.key.to_connect_data(topic, message.key()))
            stage, data = Stage.VALUE_CONVERTER, message.value()
            value = call(stage, lambda: converters.value.to_connect_data(topic, message.value()))
            stage, data = Stage.HEADER_CONVERTER, None
            headers = call(stage, lambda: self._all_headers(topic, [message]))
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
        return SinkBatch(
            TopicPartition(topic, message.partition() or 0),
            [message.offset() or 0],
            [value.value],
            key_schema=key.schema,
            keys=[key.value],
            value_schema=value.schema,
            times=_Times([message]),
            headers=headers,
            new=self._new,
            kept=[message] if self._keep else None,
        )[0]

    def _headers(self, topic: str, raw: list[tuple[str, str | bytes | None]]) -> Headers:
        convert = self._converters.header.to_connect_header
        headers = []
        for name, data in raw:
            schema, value = convert(topic, name, cast("bytes | None", data))
            headers.append(Header(name, value, schema))
        return Headers(headers)


class _Times:
    """The timestamps of messages, which most tasks do not ask for."""

    __slots__ = ("_found", "_messages")

    def __init__(self, messages: list[Message]) -> None:
        self._messages = messages
        self._found: list[Timestamp] | None = None

    def __call__(self) -> list[Timestamp]:
        if self._found is None:
            times = map(Message.timestamp, self._messages)
            self._found = [(_TIMESTAMP_TYPES[kind], time if kind else None) for kind, time in times]
        return self._found


def _columns(converter: Converter, topic: str, data: list[bytes | None]) -> Columns:
    """Returns schemas and values. Keys that are all null, as they often are, are converted once."""
    if not any(data) and data.count(None) == len(data):
        schema, value = converter.to_connect_data(topic, None)
        return [schema] * len(data), [value] * len(data)
    return converter.to_connect_columns(topic, data)


def _alike(partitions: Sequence[int], *schemas: Sequence[Schema | None]) -> Iterator[slice]:
    """Yields the runs of records that have the same partition and schemas."""
    columns: tuple[Sequence[Any], ...] = partitions, *schemas
    if all(column.count(column[0]) == len(partitions) for column in columns):
        yield slice(0, len(partitions))
        return
    start = 0
    for _, run in groupby(zip(partitions, *(map(id, column) for column in schemas), strict=True)):
        end = start + sum(1 for _ in run)
        yield slice(start, end)
        start = end


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
