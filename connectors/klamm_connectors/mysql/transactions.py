"""Records of transactions: each one's begin and end, and each envelope's place in its transaction, as Debezium has them.

Pure: no I/O, times are passed in.
"""

from __future__ import annotations

from typing import Any, Final

from klamm_plugins.columns import Repeated, StructColumn
from klamm_plugins.records import SourceRecord
from klamm_plugins.schema import INT64, OPTIONAL_INT64, STRING, SchemaBuilder, Struct

BLOCK_SCHEMA: Final = (
    SchemaBuilder.struct("event.block")
    .version(1)
    .optional()
    .field("id", STRING)
    .field("total_order", INT64)
    .field("data_collection_order", INT64)
    .build()
)
_COUNT_SCHEMA: Final = (
    SchemaBuilder.struct("event.collection")
    .version(1)
    .optional()
    .field("data_collection", STRING)
    .field("event_count", INT64)
    .build()
)
_KEY_SCHEMA: Final = (
    SchemaBuilder.struct("io.debezium.connector.common.TransactionMetadataKey")
    .version(1)
    .field("id", STRING)
    .build()
)
_VALUE_SCHEMA: Final = (
    SchemaBuilder.struct("io.debezium.connector.common.TransactionMetadataValue")
    .version(1)
    .field("status", STRING)
    .field("id", STRING)
    .field("event_count", OPTIONAL_INT64)
    .field("data_collections", SchemaBuilder.array(_COUNT_SCHEMA).optional().build())
    .field("ts_ms", INT64)
    .build()
)


class TransactionCount:
    """The number of records of the transaction under way, in all and by table."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._total = 0
        self._by_table: dict[str, int] = {}

    def block(self, table: str) -> Struct:
        """Counts a record of a table and returns its `transaction` block."""
        self.add(table, 1)
        return Struct.of_checked(BLOCK_SCHEMA, [self.name, self._total, self._by_table[table]])

    def blocks(self, table: str, records: int) -> StructColumn:
        """Counts records of a table and returns their `transaction` blocks."""
        self.add(table, records)
        total, of_table = self._total + 1, self._by_table[table] + 1
        orders = [range(end - records, end) for end in (total, of_table)]
        return StructColumn(BLOCK_SCHEMA, [Repeated(self.name, records), *orders], records)

    def add(self, table: str, records: int) -> None:
        """Counts records that an earlier task has handed over."""
        self._total += records
        self._by_table[table] = self._by_table.get(table, 0) + records

    def begin(
        self, topic: str, partition: dict[str, Any], offset: dict[str, Any], ts_ms: int
    ) -> SourceRecord:
        """Returns the record of the begin."""
        return self._record(topic, partition, offset, ["BEGIN", self.name, None, None, ts_ms])

    def end(self, topic: str, partition: dict[str, Any], offset: dict[str, Any], ts_ms: int) -> SourceRecord:
        """Returns the record of the end, with the counts."""
        counts = [Struct.of_checked(_COUNT_SCHEMA, [table, n]) for table, n in self._by_table.items()]
        return self._record(topic, partition, offset, ["END", self.name, self._total, counts, ts_ms])

    def _record(
        self, topic: str, partition: dict[str, Any], offset: dict[str, Any], values: list[Any]
    ) -> SourceRecord:
        key = Struct.of_checked(_KEY_SCHEMA, [self.name])
        value = Struct.of_checked(_VALUE_SCHEMA, values)
        return SourceRecord(partition, offset, topic, None, _KEY_SCHEMA, key, _VALUE_SCHEMA, value, values[4])
