"""Records of a snapshot: each row as read (`r`); the last record has the offset that ends the snapshot.

A blocking snapshot interrupts the binlog, so its offsets are those of the place where the binlog waits.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from klamm_connectors.mysql.catalog import Captured, Catalog
from klamm_connectors.mysql.columns import Table
from klamm_connectors.mysql.events import Origin, TableEvents
from klamm_connectors.mysql.failures import Failures
from klamm_connectors.mysql.position import Position
from klamm_connectors.mysql.snapshot import Chunk, Snapshot
from klamm_connectors.mysql.vanished import counted
from klamm_plugins.batch import SourceBatch
from klamm_plugins.columns import Repeated
from klamm_plugins.errors import DataError
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
        done: Position,
        running: Position | None = None,
    ) -> None:
        self._snapshot = snapshot
        self._catalog = catalog
        self._server_id = server_id
        self._partition = partition
        self._failures = failures
        self._held: SourceBatch | None = None
        self._table: tuple[Table, Captured] | None = None
        self._rows: Counter[str] = Counter()  # read, by topic
        self.blocking = running is not None
        self.running = running if running is not None else replace(done, snapshot=True, sweep="")
        """The position in the offsets of all records but the last."""
        self.position = done
        self.done = False

    @property
    def tables(self) -> list[Table]:
        return self._snapshot.tables

    @property
    def origin(self) -> Origin:
        """The place of the snapshot's rows."""
        place = self._snapshot.position
        return Origin(time.time_ns(), self._server_id, None, place.file, place.pos, "true")

    @property
    def failed(self) -> str | None:
        """The table whose rows could not be read."""
        return self._snapshot.failed

    def close(self) -> None:
        self._snapshot.close()

    def batch(self) -> Sequence[SourceRecord]:
        """Returns the rows of a chunk. Holds one chunk back: the offset of the very last row ends the snapshot."""
        while (chunk := self._snapshot.next_chunk()) is not None:
            ready, self._held = self._held, self._made(chunk) or self._held
            if ready is not None and ready is not self._held:
                return ready
        return self._end()

    def _made(self, chunk: Chunk) -> SourceBatch | None:
        """Returns the records of a chunk; None if all its rows are left out."""
        events = self._captured(chunk.table).events
        self._rows[events.topic] += len(chunk)
        columns, count = self._converted(events, chunk)
        if not count:
            return None
        return events.batch(
            "r", None, columns, [(self.origin, count)], self._partition,
            Repeated(self.running, count), Position.to_offset, Repeated(0, count), time.time_ns(),
        )  # fmt: skip

    def _converted(self, events: TableEvents, chunk: Chunk) -> tuple[list[Sequence[Any]], int]:
        """Returns the columns of the rows that fit, and their number."""
        try:
            return events.converted(chunk.columns), len(chunk)
        except DataError:
            rows = list(zip(*chunk.columns, strict=True))
            found = self._failures.all(events, rows, chunk.table.full_name)
            good = [values for values in found if values is not None]
            return list(zip(*good, strict=True)), len(good)

    def _captured(self, table: Table) -> Captured:
        if self._table is None or self._table[0] is not table:
            self._table = table, self._catalog.of_table(table)
        return self._table[1]

    def _end(self) -> Sequence[SourceRecord]:
        self.close()
        self.done = True
        if self.position.sweep:
            self.position = replace(self.position, sweep=counted(self.position.sweep, self._rows))
        log.info("snapshot done, %d rows", self._snapshot.rows)
        held, self._held = self._held, None
        if held is None:
            return []
        return held.replace(positions=[*held.positions[:-1], self.position])
