"""The records of one read, as columns; only the last record has the position behind the read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, overload

from klamm_plugins.batch import SourceBatch
from klamm_plugins.records import SourceRecord
from klamm_plugins.schema import STRING, Schema


class PlacedBatch(SourceBatch):
    """A batch whose source offset is `after` for the last record and `before` for the others, whatever keys these offsets have."""

    __slots__ = ("_after", "_before", "_is_end")

    def __init__(
        self,
        partition: dict[str, Any],
        topic: str,
        values: Sequence[Any],
        before: dict[str, Any],
        after: dict[str, Any],
        *,
        value_schema: Schema,
        key: str | None = None,
        is_end: bool = True,
    ) -> None:
        super().__init__(
            partition,
            topic,
            values,
            range(len(values)),
            offset_name="",
            value_schema=value_schema,
            keys=None if key is None else [key] * len(values),
            key_schema=None if key is None else STRING,
        )
        self._before, self._after, self._is_end = before, after, is_end

    def offset(self, index: int) -> dict[str, Any]:
        last = self._is_end and index in {len(self.values) - 1, -1}
        return self._after if last else self._before

    def __iter__(self) -> Iterator[SourceRecord]:
        return (self[i] for i in range(len(self.values)))

    @overload
    def __getitem__(self, index: int) -> SourceRecord: ...
    @overload
    def __getitem__(self, index: slice) -> SourceBatch: ...
    def __getitem__(self, index: int | slice) -> SourceRecord | SourceBatch:
        if not isinstance(index, slice):
            return super().__getitem__(index)
        values = self.values[index]
        reaches_end = bool(values) and range(len(self.values))[index][-1] == len(self.values) - 1
        return PlacedBatch(
            self.source_partition,
            self.topic,
            values,
            self._before,
            self._after,
            value_schema=self.value_schema or STRING,
            key=None if self.keys is None else self.keys[0],
            is_end=self._is_end and reaches_end,
        )
