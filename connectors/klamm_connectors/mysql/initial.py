"""Records of a snapshot: each row as read (`r`); the last record has the offset that ends the snapshot.

A blocking snapshot interrupts the binlog, so its offsets are those of the place where the binlog waits.
"""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from typing import Any

from klamm_connectors.mysql.catalog import Captured, Catalog
from klamm_connectors.mysql.columns import Table
from klamm_connectors.mysql.events import Origin
from klamm_connectors.mysql.failures import Failures
from klamm_connectors.mysql.position import Position
from klamm_connectors.mysql.snapshot import Snapshot
from klamm_plugins.records import SourceRecord

log = logging.getLogger(__name__)


class SnapshotRecords:
    """The records of one snapshot. When it is done, the binlog continues at `position`."""

    def __init__(
        self,
        snapshot: Snapshot,
        catalog: Catalog,
        server_id: int,
        partition: dict[str, Any],
        failures: Failures,
        *,
        running: Position | None = None,
        done: Position | None = None,
    ) -> None:
        self._snapshot = snapshot
        self._catalog = catalog
        self._server_id = server_id
        self._partition = partition
        self._failures = failures
        self._held: SourceRecord | None = None
        self._table: tuple[Table, Captured] | None = None
        self.blocking = running is not None
        self.running = running if running is not None else replace(snapshot.position, snapshot=True)
        """The position in the offsets of all records but the last."""
        self.position = done if done is not None else snapshot.position
        self.done = False

    @property
    def tables(self) -> list[Table]:
        return self._snapshot.tables

    @property
    def origin(self) -> Origin:
        """The place of the snapshot's rows."""
        place, now = self._snapshot.position, time.time_ns() // 1_000_000
        return Origin(now, self._server_id, None, place.file, place.pos, "true")

    def close(self) -> None:
        self._snapshot.close()

    def batch(self) -> list[SourceRecord]:
        """Returns rows of the next chunk. Holds one row back: if it is the very last, its offset ends the snapshot."""
        chunk = self._snapshot.next_chunk()
        if chunk is None:
            return self._end()
        now = time.time_ns() // 1_000_000
        offset, origin = self.running.to_offset(), self.origin
        events = self._captured(chunk.table).events
        found = [self._held] if self._held is not None else []
        for values in self._failures.all(events.convert, chunk.rows, chunk.table.full_name):
            if values is not None:
                found += events.records("r", None, values, origin, self._partition, offset, 0, now)
        self._held = found.pop() if found else None
        return found

    def _captured(self, table: Table) -> Captured:
        if self._table is None or self._table[0] is not table:
            self._table = table, self._catalog.of_table(table)
        return self._table[1]

    def _end(self) -> list[SourceRecord]:
        self.close()
        self.done = True
        log.info("snapshot done, %d rows", self._snapshot.rows)
        if self._held is None:
            return []
        self._held.source_offset = self.position.to_offset()
        return [self._held]
