"""Many source records in columns, which a fast source returns instead of a list of records.

Lines of a file or rows of one table share nearly everything. A `SourceBatch` holds the shared parts once and the
others as lists, and is a sequence of `SourceRecord`s for code that wants records (transforms, `commit_record`).
The runtime converts and sends its lists without ever making a record, at a fraction of the cost.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, overload

from klamm_plugins.records import SourceRecord
from klamm_plugins.schema import Schema


class SourceBatch(Sequence[SourceRecord]):
    """Records of one source partition and one topic, in columns. Nobody changes its lists.

    `positions[i]` is the task's position once record `i` is acknowledged; as a source offset it is `{offset_name:
    position}`. `keys` None: no record has a key. `timestamp` is that of all records, in epoch milliseconds; None: the
    time of sending.
    """

    __slots__ = (
        "key_schema", "keys", "offset_name", "partition", "positions",
        "source_partition", "timestamp", "topic", "value_schema", "values",
    )  # fmt: skip

    def __init__(
        self,
        source_partition: dict[str, Any],
        topic: str,
        values: list[Any],
        positions: Sequence[Any],
        *,
        offset_name: str,
        value_schema: Schema | None = None,
        keys: list[Any] | None = None,
        key_schema: Schema | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> None:
        if len(positions) != len(values) or (keys is not None and len(keys) != len(values)):
            raise ValueError(f"{len(values)} values need as many positions, and keys if there are any")
        self.source_partition = source_partition
        self.topic = topic
        self.values = values
        self.positions = positions
        self.offset_name = offset_name
        self.value_schema = value_schema
        self.keys = keys
        self.key_schema = key_schema
        self.partition = partition
        self.timestamp = timestamp

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[SourceRecord]:
        keys = [None] * len(self.values) if self.keys is None else self.keys
        for value, position, key in zip(self.values, self.positions, keys, strict=True):
            yield SourceRecord(
                self.source_partition,
                {self.offset_name: position},
                self.topic,
                self.partition,
                self.key_schema,
                key,
                self.value_schema,
                value,
                self.timestamp,
            )

    @overload
    def __getitem__(self, index: int) -> SourceRecord: ...
    @overload
    def __getitem__(self, index: slice) -> SourceBatch: ...
    def __getitem__(self, index: int | slice) -> SourceRecord | SourceBatch:
        if isinstance(index, slice):
            return SourceBatch(
                self.source_partition,
                self.topic,
                self.values[index],
                self.positions[index],
                offset_name=self.offset_name,
                value_schema=self.value_schema,
                keys=None if self.keys is None else self.keys[index],
                key_schema=self.key_schema,
                partition=self.partition,
                timestamp=self.timestamp,
            )
        return SourceRecord(
            self.source_partition,
            self.offset(index),
            self.topic,
            self.partition,
            self.key_schema,
            None if self.keys is None else self.keys[index],
            self.value_schema,
            self.values[index],
            self.timestamp,
        )

    def offset(self, index: int) -> dict[str, Any]:
        """Returns the source offset of one record."""
        return {self.offset_name: self.positions[index]}
