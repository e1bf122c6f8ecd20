"""A task's signs of life and its progress: written by its main loop, read by the control thread.

Plain attributes, each written by one thread: a report may be a moment old, never wrong. `beats` grows only
when the main loop advances, so the number stands still when a plugin hangs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

from klamm.connect.child.error_figures import ErrorFigures

# After so long in a phase, the task counts as waiting for it.
WAITING_AFTER_S: Final = 0.5


class Vitals:
    """The vitals of one task. Phases have the names of Progress.waiting_for."""

    def __init__(self) -> None:
        self.beats = 0
        self.records = 0
        self.last_ack_ms: int | None = None
        self.lag: int | None = None
        self.details: dict[str, Any] = {}
        self.errors = ErrorFigures()
        self.tables: bytes | None = None  # tables for /metrics alone, as JSON
        self._told: bytes | None = None
        self.figures: dict[str, float] = {}  # by Kafka's metric names (source-task, sink-task)
        self.wake: Callable[[], None] | None = None  # called once, with the next progress
        self._phase: str | None = None
        self._since = time.monotonic()

    def enter(self, phase: str) -> None:
        """Records that the main loop advanced, and the phase that it is in now."""
        self.beats += 1
        if phase != self._phase:
            self._phase = phase
            self._since = time.monotonic()

    def place(self) -> tuple[str | None, float]:
        """Returns the phase, and since when, for `go_back`."""
        return self._phase, self._since

    def go_back(self, place: tuple[str | None, float]) -> None:
        """Returns to an earlier phase as if it had not ended, because there was nothing to do in those since."""
        self.beats += 1
        self._phase, self._since = place

    def beat(self) -> None:
        """Records a sign of life without a change of phase."""
        self.beats += 1

    def say(self, records: int, lag: int | None, waiting_for: str | None, details: dict[str, Any]) -> None:
        """Takes the report of a task that reports for itself. `waiting_for` counts at once."""
        self.beats += 1
        self.acknowledged(records)
        self.lag = lag
        self.details = details
        self._phase = waiting_for
        self._since = -WAITING_AFTER_S

    def moved(self) -> None:
        """Restarts the phase's clock, since there was something to do."""
        self._since = time.monotonic()

    def acknowledged(self, records: int) -> None:
        """Sets the number of records acknowledged downstream in all."""
        if records != self.records:
            self.records = records
            self.last_ack_ms = time.time_ns() // 1_000_000
            wake, self.wake = self.wake, None
            if wake is not None:
                wake()

    def report(self) -> dict[str, Any]:
        """Returns the fields of Progress, and the beats."""
        waiting = time.monotonic() - self._since > WAITING_AFTER_S
        return {
            "beats": self.beats,
            "records": self.records,
            "last_ack_ms": self.last_ack_ms,
            "lag": self.lag,
            "waiting_for": self._phase if waiting else None,
            "details": self._all_details(),
        }

    def take_tables(self) -> bytes | None:
        """Returns the tables for /metrics if they are new since the last call."""
        tables = self.tables
        if tables is self._told:
            return None
        self._told = tables
        return tables

    def _all_details(self) -> dict[str, Any]:
        """Returns the task's own details, and the runtime's counters once they count something."""
        details = dict(self.details)
        if self.errors.skipped:
            details["skipped"] = self.errors.skipped
        if self.errors.retrying:
            details["retrying"] = self.errors.retrying
        if self.errors.any:
            details["errors"] = self.errors.report()
        if self.figures:
            details["figures"] = dict(self.figures)
        return details
