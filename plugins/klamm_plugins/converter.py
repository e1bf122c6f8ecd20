"""Converters: between what connectors handle (schema and value) and the bytes in a topic.

One instance serves the keys, values or headers of one task, from one thread. The runtime calls the `_many`
methods with the records of one topic that share a schema; a converter overrides them where a whole list goes
faster than its parts. `DataError` means that this one value cannot be converted, which the task's error
tolerance then judges.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from klamm_plugins.connector import Plugin
from klamm_plugins.schema import Schema


class SchemaAndValue(NamedTuple):
    """A value with its schema; None and None for a tombstone."""

    schema: Schema | None
    value: Any


NULL = SchemaAndValue(None, None)
Columns = tuple[Sequence[Schema | None], Sequence[Any]]
"""Schemas and values, as many and in the same order."""


class Converter(Plugin, ABC):
    """Converts keys or values. Constructed without arguments, then `configure`d once."""

    def configure(self, props: Mapping[str, Any], *, is_key: bool) -> None:
        """Take its settings: the properties below `key.converter.` or `value.converter.`, prefix removed.

        ConfigError for a setting that cannot be used.
        """

    @abstractmethod
    def from_connect_data(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        """To bytes for the topic; None is a tombstone. DataError when the value does not fit."""

    @abstractmethod
    def to_connect_data(self, topic: str, value: bytes | None) -> SchemaAndValue:
        """From the topic's bytes. DataError when they are not in this converter's format."""

    def from_connect_data_many(
        self, topic: str, schema: Schema | None, values: Sequence[Any]
    ) -> list[bytes | None]:
        """`from_connect_data` for a list.

        When it raises, the runtime converts the values one by one to find which are bad: a converter need not say.
        """
        convert = self.from_connect_data
        return [convert(topic, schema, v) for v in values]

    def to_connect_data_many(self, topic: str, values: Sequence[bytes | None]) -> list[SchemaAndValue]:
        """`to_connect_data` for a list; raises as `from_connect_data_many`."""
        convert = self.to_connect_data
        return [convert(topic, v) for v in values]

    def to_connect_columns(self, topic: str, values: Sequence[bytes | None]) -> Columns:
        """The same as a column of schemas and one of values, which is what a sink's records are made of. Override it
        where values have one schema: a pair for each costs more than many a conversion.
        """
        if not values:
            return (), ()
        schemas, data = zip(*self.to_connect_data_many(topic, values), strict=True)
        return schemas, data


class HeaderConverter(Plugin, ABC):
    """Converts header values. Constructed without arguments, then `configure_header` is called once."""

    def configure_header(self, props: Mapping[str, Any]) -> None:
        """Take its settings: the properties below `header.converter.`, prefix removed."""

    @abstractmethod
    def from_connect_header(self, topic: str, name: str, schema: Schema | None, value: Any) -> bytes | None:
        """To the header's bytes. DataError when the value does not fit."""

    @abstractmethod
    def to_connect_header(self, topic: str, name: str, value: bytes | None) -> SchemaAndValue:
        """From the header's bytes."""
