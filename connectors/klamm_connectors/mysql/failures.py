"""Rows that their schemas cannot hold: Debezium's `event.processing.failure.handling.mode`. For one thread."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from klamm_base.sparing import Sparing
from klamm_plugins.errors import DataError

log = logging.getLogger(__name__)

_SUMMARY_S: Final = 10.0

T = TypeVar("T")


class Failures:
    """Counts the rows that were left out. `fail` leaves none out, `warn` names each, `skip` counts them."""

    def __init__(self, mode: str = "fail") -> None:
        self._mode = mode
        self.count = 0
        self._sparing = Sparing(_SUMMARY_S)

    def all(self, convert: Callable[[Any], T], rows: Sequence[Any], where: str) -> list[T | None]:
        """Returns the converted rows, None for those that are left out. Raises DataError with the mode `fail`."""
        try:
            return [convert(row) for row in rows]
        except DataError:  # rare: now row by row
            return [self._tried(convert, row, where) for row in rows]

    def _tried(self, convert: Callable[[Any], T], row: Any, where: str) -> T | None:
        try:
            return convert(row)
        except DataError as e:
            if self._mode == "fail":
                raise DataError(f"{where}: {e}") from e
            self._left_out(e, where)
            return None

    def _left_out(self, error: DataError, where: str) -> None:
        self.count += 1
        if self._mode == "warn":
            log.warning("%s: row left out (event.processing.failure.handling.mode=warn): %s", where, error)
            return
        left_out = self._sparing.left_out("rows", time.monotonic())
        if left_out is not None:
            log.warning(
                "%d rows left out since the start, %d of them new (event.processing.failure.handling.mode=skip); the last one "
                "in %s: %s",
                self.count, left_out + 1, where, error,
            )  # fmt: skip
