"""Records of row events. The position moves with the rows that become records, or not at all."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any, Protocol

from klamm_connectors.mysql.binlog_events import RowsEvent
from klamm_connectors.mysql.catalog import Captured
from klamm_connectors.mysql.ddl import Affected
from klamm_connectors.mysql.events import Origin
from klamm_connectors.mysql.failures import Failures
from klamm_connectors.mysql.joined import JoinedRows, Made
from klamm_connectors.mysql.progress import Progress
from klamm_connectors.mysql.transactions import TransactionCount
from klamm_plugins.errors import DataError
from klamm_plugins.records import SourceRecord


@dataclass(frozen=True, slots=True)
class Rows:
    """A row event and its table."""

    event: RowsEvent
    captured: Captured

    def images(self) -> list[list[Any]]:
        """Decodes the rows."""
        decoder = self.captured.decoder
        for bitmap in self.event.present:
            decoder.check_present(bitmap)
        return decoder.rows(self.event.images)


Change = tuple[str, Any, list[Any] | None, list[Any] | None]
"""The operation of a changed row, its key before the change, and its values before and after."""


class Watcher(Protocol):
    """Sees the rows that become records beside those of snapshots under way."""

    @property
    def state(self) -> str:
        """The state for the offset."""

    def inserted(self, row: dict[str, Any], origin: Origin) -> list[SourceRecord]:
        """Takes a row of the table of signals. Returns records, whose offsets the caller sets."""

    def changed(self, captured: Captured, images: list[list[Any]]) -> None:
        """Takes the images of changed rows."""

    def restructured(self, tables: list[Affected]) -> None:
        """Takes the tables that a statement empties, drops, renames or changes."""


class RowRecords:
    """Makes the records of row events of one stream."""

    def __init__(
        self,
        progress: Progress,
        partition: dict[str, Any],
        skipped: frozenset[str],
        failures: Failures,
        watcher: Watcher,
    ) -> None:
        self._progress = progress
        self._partition = partition
        self._skipped = skipped
        self._failures = failures
        self._watcher = watcher
        self.count: TransactionCount | None = None
        """The transaction under way, when its records are counted."""

    def of(self, rows: Rows) -> Made:
        """Counts the event and returns the records of its rows that were not returned before the start."""
        first = self._progress.rows()
        if first is None:
            if self.count is not None and not self._progress.past:
                self._made(rows, None)  # for their number
            return []
        return self._made(rows, first)

    def _made(self, rows: Rows, first: int | None) -> Made:
        """Makes records of the rows from `first` on; None: of none. Earlier rows are only counted."""
        images, op = rows.images(), rows.event.op
        number = len(images) // (2 if op == "u" else 1)
        made: Made = []
        if rows.captured.shown and op not in self._skipped:
            made = self._records(rows, op, images, number if first is None else first)
        if first is None:
            return []
        before = self._progress.position
        self._progress.position = self._progress.at(number, rows.event.timestamp)
        self._watcher.changed(rows.captured, images)
        if rows.captured.signals and op == "c" and isinstance(made, list):
            return self._signalled(rows, images[first:], made, before.to_offset())
        return made

    def _records(self, rows: Rows, op: str, images: list[list[Any]], first: int) -> Made:
        """Makes the records of rows, in columns where each row has one record."""
        if (
            rows.captured.events.one_for_each(op)
            and not rows.captured.signals
            and not rows.captured.decoder.is_flawed
            and (self.count is None or first == 0)
        ):
            found = self._in_columns(rows, op, images, first)
            if found is not None:
                return found if self.count is None else found.made(self._partition, time.time_ns())
        return self._one_by_one(rows, op, images, first)

    def _in_columns(self, rows: Rows, op: str, images: list[list[Any]], first: int) -> JoinedRows | None:
        """Converts the rows in columns; None if their records must be made one by one."""
        event, events, step = rows.event, rows.captured.events, 2 if op == "u" else 1
        numbers = range(first, len(images) // step)
        if not numbers:
            return None
        try:
            values = events.converted(list(zip(*images[first * step :], strict=True)))
        except DataError:
            return None  # not all of them fit
        before = None if op == "c" else [column[::step] for column in values]
        after = None if op == "d" else [column[step - 1 :: step] for column in values]
        if before is not None and after is not None and not events.same_keys(before, after):
            return None
        end = self._progress.at(0, event.timestamp)
        origins = [(self._origin(event), len(numbers))]
        return JoinedRows(events, op, before, after, origins, [(end, number) for number in numbers])

    def _one_by_one(self, rows: Rows, op: str, images: list[list[Any]], first: int) -> list[SourceRecord]:
        event, events, partition = rows.event, rows.captured.events, self._partition
        step = 2 if op == "u" else 1
        begin = 0 if self.count is not None else first
        now, origin = time.time_ns(), self._origin(event)
        previous = self._progress.position.to_offset()
        base = self._progress.at(1, event.timestamp).to_offset()
        made: list[SourceRecord] = []
        for number in range(begin, len(images) // step):
            at = number * step
            offset = {**base, "row": number + 1}
            old = None if op == "c" else images[at]
            new = None if op == "d" else images[at + step - 1]
            change = self._change(rows.captured, op, old, new)
            if change is None:
                continue
            found = events.keyed(*change, origin, partition, offset, number, now)
            if number < first:
                continue
            for record in found[:-1]:
                record.source_offset = previous  # the row is done with its last record
            made += found
            previous = offset
        return made

    def _change(self, captured: Captured, op: str, old: Any, new: Any) -> Change | None:
        """Returns a change of a row, from its images; None for one that is left out because a value does not fit.

        The state before only illustrates the change: without it, the key is enough.
        """
        failures, events, where = self._failures, captured.events, captured.full_name
        convert = events.convert_flawed if captured.decoder.is_flawed else events.convert
        before = None if old is None else failures.before(events, convert, old, where)
        after = None if new is None else failures.row(events, convert, new, where)
        if before is not None:
            known, key = True, events.key(before)
        else:
            known, key = failures.key(events, new if old is None else old)
        if after is not None:
            return op, key if known else events.key(after), before, after
        is_gone = op == "d" or (op == "u" and failures.key(events, new) not in ((True, key), (False, None)))
        if not known or key is None or not is_gone:
            return None
        return "d", key, before, None

    def _signalled(
        self, rows: Rows, images: list[list[Any]], made: list[SourceRecord], before: dict[str, Any]
    ) -> list[SourceRecord]:
        """Hands inserted signals to the watcher, and moves the position to the state that follows from them.

        Only the last record has the new position: a task that ends before it takes the signals again.
        """
        names = [c.name.lower() for c in rows.captured.columns]
        progress, origin = self._progress, self._origin(rows.event)
        for image in images:
            made += self._watcher.inserted(dict(zip(names, image, strict=True)), origin)
        progress.position = replace(progress.position, incremental=self._watcher.state)
        for record in made:
            record.source_offset = before
        if made:
            made[-1].source_offset = progress.position.to_offset()
        return made

    def _origin(self, event: RowsEvent) -> Origin:
        progress = self._progress
        return Origin(
            progress.time_ns(event.timestamp),
            event.server_id,
            progress.position.gtid or None,
            progress.file,
            event.log_pos,
            transaction=self.count,
        )
