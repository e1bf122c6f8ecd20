"""Values that are still bytes: as they were in a topic, or in what a source reads. They are decoded when somebody looks at them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

JSON: Final = "json"
"""The format of values whose bytes are JSON texts in UTF-8, each checked, without schemas."""
TEXT: Final = "text"
"""The format of values whose bytes are text in UTF-8, checked."""

Pick = Callable[[Any], Sequence[Any]]
"""A function from a column to some of it."""


class RawValues:
    """Checked bytes of values in a `format`, None for a null. `decode` makes all the values of such bytes, and cannot fail."""

    __slots__ = ("_values", "data", "decode", "format")

    def __init__(
        self,
        format: str,
        data: Sequence[bytes | None],
        decode: Callable[[Sequence[bytes | None]], Sequence[Any]],
    ) -> None:
        self.format = format
        self.data = data
        self.decode = decode
        self._values: Sequence[Any] | None = None

    def __len__(self) -> int:
        return len(self.data)

    @property
    def values(self) -> Sequence[Any]:
        """The values, which the first look makes."""
        if self._values is None:
            self._values = self.decode(self.data)
        return self._values

    def nulls(self) -> list[bool]:
        """Returns for each value whether it is null, without making it."""
        if self.format == JSON:
            return [data is None or data.strip() == b"null" for data in self.data]
        return [data is None for data in self.data]

    def part(self, pick: Pick) -> RawValues:
        """Returns some of them."""
        made = RawValues(self.format, pick(self.data), self.decode)
        made._values = None if self._values is None else pick(self._values)
        return made


class ValueColumn:
    """The values of a batch, raw or not."""

    __slots__ = ("_column",)

    _column: Sequence[Any] | RawValues

    @property
    def values(self) -> Sequence[Any]:
        """The values. The first look makes those of raw ones."""
        column = self._column
        return column.values if isinstance(column, RawValues) else column

    @property
    def raw_values(self) -> RawValues | None:
        """The raw values, if they are."""
        return self._column if isinstance(self._column, RawValues) else None

    def raw(self, *formats: str) -> Sequence[bytes | None] | None:
        """Returns the bytes of the values, None for a null, if their format is among these.

        Returns None if it is not, or a transform has made the values: then look at `values`.
        """
        raw = self.raw_values
        return raw.data if raw is not None and raw.format in formats else None

    def nulls(self) -> list[bool]:
        """Returns for each record whether its value is null. Raw values stay raw."""
        column = self._column
        return column.nulls() if isinstance(column, RawValues) else [value is None for value in column]

    def _picked(self, pick: Pick) -> Sequence[Any] | RawValues:
        column = self._column
        return column.part(pick) if isinstance(column, RawValues) else pick(column)


def raw_texts(data: Sequence[bytes | None]) -> RawValues | None:
    """Returns these bytes as raw values of the format TEXT; None if they are no UTF-8."""
    # A line feed between them: the halves of a character, at the end of one value and the beginning of the next, must not
    # make it whole.
    try:
        joined = b"\n".join(data)  # type: ignore[arg-type]
    except TypeError:
        joined = b"\n".join(v for v in data if v is not None)
    if not joined.isascii():
        try:
            joined.decode()
        except UnicodeDecodeError:
            return None
    return RawValues(TEXT, data, decode_texts)


def decode_texts(data: Sequence[bytes | None]) -> list[str | None]:
    """Returns the texts of bytes that are UTF-8."""
    try:
        return list(map(bytes.decode, data))  # type: ignore[arg-type]
    except TypeError:
        return [None if v is None else v.decode() for v in data]
