"""Rows that their schemas cannot hold: Debezium's `event.processing.failure.handling.mode`. For one thread."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from klamm_base.sparing import Sparing
from klamm_connectors.mysql.events import TableEvents
from klamm_plugins.errors import DataError

log = logging.getLogger(__name__)

_SUMMARY_S: Final = 10.0
Convert = Callable[[Any], list[Any]]
_KEY: Final = "event.processing.failure.handling.mode"


class Failures:
    """Counts the rows that were left out. `fail` leaves none out, `warn` names each, `skip` counts them.

    With `fail`, `refused_later` hands rows to the runtime whose values the records' converter refuses (errors.tolerance=all).
    """

    def __init__(self, mode: str = "fail", *, refused_later: bool = False) -> None:
        self._mode = mode
        self._refused_later = refused_later
        self.count = 0
        self._sparing = Sparing(_SUMMARY_S)

    def all(self, events: TableEvents, rows: Sequence[Any], where: str) -> list[list[Any] | None]:
        """Returns the converted rows, None for those that are left out. Raises DataError with the mode `fail`."""
        try:
            return [events.convert(row) for row in rows]
        except DataError:  # rare: now row by row
            return [self.row(events, events.convert, row, where) for row in rows]

    def row(self, events: TableEvents, convert: Convert, row: Any, where: str) -> list[Any] | None:
        """Returns the converted row, or None. Raises DataError."""
        try:
            return convert(row)
        except DataError as e:
            error = e
        if self._refused_later:
            try:
                return events.convert_unchecked(row)
            except DataError as e:
                error = e
        if self._mode == "fail":
            raise DataError(f"{where}: {error}") from error
        self._left_out(error, where, "row")
        return None

    def before(self, events: TableEvents, convert: Convert, row: Any, where: str) -> list[Any] | None:
        """Returns a row as it was before its change. None if it does not fit: the change itself is not lost for that."""
        try:
            return convert(row)
        except DataError as e:
            error = e
        if self._mode == "fail" and not self._refused_later:
            raise DataError(f"{where}: {error}") from error
        if self._refused_later and not self.key(events, row)[0]:
            return events.convert_unchecked(row)
        self._left_out(error, where, "state before a change")
        return None

    def key(self, events: TableEvents, row: Any) -> tuple[bool, Any]:
        """Returns whether the key of a row that does not fit is known, and the key."""
        try:
            return True, events.key_of(row)
        except DataError:
            return False, None

    def _left_out(self, error: DataError, where: str, what: str) -> None:
        self.count += 1
        setting = "errors.tolerance=all" if self._mode == "fail" else f"{_KEY}={self._mode}"
        if self._mode == "warn":
            log.warning("%s: %s left out (%s): %s", where, what, setting, error)
            return
        left_out = self._sparing.left_out("rows", time.monotonic())
        if left_out is not None:
            log.warning(
                "%d rows left out since the start, or their states before a change, %d of them new (%s); the last one, a %s in %s: %s",
                self.count, left_out + 1, setting, what, where, error,
            )  # fmt: skip
