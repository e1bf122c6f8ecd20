"""Columns of values that are not lists: one value for all records, and structs that are made when somebody looks at them.

A source that has rows need not make a `Struct` of each. It gives `SourceBatch` a `StructColumn` of the fields' columns.
Converters that know it write the columns; for all others it is a sequence of structs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import Any, overload

from klamm_plugins.schema import Schema, Struct


class Repeated(Sequence[Any]):
    """The same value `count` times."""

    __slots__ = ("_count", "value")

    def __init__(self, value: Any, count: int) -> None:
        self.value = value
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Any]:
        return repeat(self.value, self._count)

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> Repeated: ...
    def __getitem__(self, index: int | slice) -> Any:
        found = range(self._count)[index]
        return Repeated(self.value, len(found)) if isinstance(found, range) else self.value


class StructColumn(Sequence[Struct]):
    """Structs of one schema: `columns` has the values of each of its fields, which the caller has checked.

    A column is a list, a tuple, a range, a `Repeated` or, of a field that is a struct, another `StructColumn`. Nobody changes it.
    """

    __slots__ = ("_count", "columns", "schema")

    def __init__(self, schema: Schema, columns: Sequence[Sequence[Any]], count: int) -> None:
        if len(columns) != len(schema.fields) or any(len(column) != count for column in columns):
            raise ValueError(
                f"{schema!r} needs {len(schema.fields)} columns of {count} values, not {[len(c) for c in columns]}"
            )
        self.schema = schema
        self.columns = columns
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Struct]:
        schema, new = self.schema, Struct.of_checked
        rows = zip(*self.columns, strict=True) if self.columns else repeat((), self._count)
        return (new(schema, list(row)) for row in rows)

    @overload
    def __getitem__(self, index: int) -> Struct: ...
    @overload
    def __getitem__(self, index: slice) -> StructColumn: ...
    def __getitem__(self, index: int | slice) -> Struct | StructColumn:
        found = range(self._count)[index]
        if isinstance(found, range):
            return StructColumn(self.schema, [column[index] for column in self.columns], len(found))
        return Struct.of_checked(self.schema, [column[found] for column in self.columns])
