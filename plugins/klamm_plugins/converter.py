"""Converters between the data of connectors (schema and value) and the bytes in a topic.

One instance serves the keys, values or headers of one task, from one thread. The runtime calls the `_many`
methods with the records of one topic that share a schema; a converter overrides them where a whole list goes
faster than its parts. A `DataError` means that this one value cannot be converted; the task's error tolerance
then judges it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

from klamm_plugins.batch import RawValues
from klamm_plugins.connector import Plugin
from klamm_plugins.overriding import is_newest
from klamm_plugins.schema import Schema


class SchemaAndValue(NamedTuple):
    """A value with its schema; None and None for a tombstone."""

    schema: Schema | None
    value: Any


NULL = SchemaAndValue(None, None)
Columns = tuple[Sequence[Schema | None], Sequence[Any]]
"""A column of schemas and a column of values, of the same length and order."""
_FASTER: Final = {
    "from_connect_data_many": ("from_connect_data",),
    "from_raw_values": ("from_connect_data", "from_connect_data_many"),
    "to_connect_data_many": ("to_connect_data",),
    "to_connect_columns": ("to_connect_data", "to_connect_data_many"),
    "raw_values": ("to_connect_data", "to_connect_data_many", "to_connect_columns"),
}
"""Faster methods, with those that say the same for less at once."""


class Converter(Plugin, ABC):
    """Converts keys or values. Constructed without arguments, then `configure`d once.

    A subclass of a converter may override only the simple methods. Then the faster ones, which it inherits, call them.
    """

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for faster, simple in _FASTER.items():
            if not is_newest(cls, faster, *simple):
                setattr(cls, faster, getattr(Converter, faster))

    def configure(self, props: Mapping[str, Any], *, is_key: bool) -> None:
        """Takes its settings: the properties below `key.converter.` or `value.converter.`, prefix removed.

        Raises ConfigError for a setting that cannot be used.
        """

    @abstractmethod
    def from_connect_data(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        """Converts a value to bytes for the topic; None is a tombstone. Raises DataError when the value does not fit."""

    @abstractmethod
    def to_connect_data(self, topic: str, value: bytes | None) -> SchemaAndValue:
        """Converts the topic's bytes. Raises DataError when they are not in this converter's format."""

    def from_connect_data_many(
        self, topic: str, schema: Schema | None, values: Sequence[Any]
    ) -> list[bytes | None]:
        """Does `from_connect_data` for a list.

        When it raises, the runtime converts the values one by one to find the bad ones: a converter need not name them.
        """
        convert = self.from_connect_data
        return [convert(topic, schema, v) for v in values]

    def to_connect_data_many(self, topic: str, values: Sequence[bytes | None]) -> list[SchemaAndValue]:
        """Does `to_connect_data` for a list; raises as `from_connect_data_many` does."""
        convert = self.to_connect_data
        return [convert(topic, v) for v in values]

    def to_connect_columns(self, topic: str, values: Sequence[bytes | None]) -> Columns:
        """Converts to a column of schemas and a column of values, as a sink's records need them. Override it where values
        have one schema: a pair for each value costs more than many a conversion.
        """
        if not values:
            return (), ()
        schemas, data = zip(*self.to_connect_data_many(topic, values), strict=True)
        return schemas, data

    def raw_values(
        self, topic: str, values: Sequence[bytes | None], formats: Collection[str]
    ) -> tuple[Schema | None, RawValues] | None:
        """Returns the schema that all these values have, and their bytes, checked but not converted; None if they must be
        converted, or have none of these formats. Raises as `to_connect_columns` does, for the same values.

        The runtime asks for sinks that take bytes, where no transform looks at the values. Override it for a format of
        `klamm_plugins.batch`, where checking costs less than converting.
        """
        return None

    def from_raw_values(
        self, topic: str, schema: Schema | None, raw: RawValues
    ) -> Sequence[bytes | None] | None:
        """Does `from_connect_data_many` for values that a source gave out as bytes; None if they must be made.

        Override it for a format of `klamm_plugins.batch` whose bytes lead to the topic's without the values.
        """
        return None


class HeaderConverter(Plugin, ABC):
    """Converts header values. Constructed without arguments, then `configure_header` is called once."""

    def configure_header(self, props: Mapping[str, Any]) -> None:
        """Takes its settings: the properties below `header.converter.`, prefix removed."""

    @abstractmethod
    def from_connect_header(self, topic: str, name: str, schema: Schema | None, value: Any) -> bytes | None:
        """Converts a value to the header's bytes. Raises DataError when the value does not fit."""

    @abstractmethod
    def to_connect_header(self, topic: str, name: str, value: bytes | None) -> SchemaAndValue:
        """Converts the header's bytes."""
