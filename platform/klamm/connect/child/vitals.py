"""A task's signs of life and its progress: written by its main loop, read by the control thread.

Plain attributes, each written by one thread: a report may be a moment old, never wrong. `beats` grows only
when the main loop gets round, so a hung plugin shows as a number that stands still.
"""

from __future__ import annotations

import time
from typing import Any, Final

from klamm.connect.child.error_figures import ErrorFigures

# A phase that lasts longer than this is what the task waits for.
WAITING_AFTER_S: Final = 0.5


class Vitals:
    """See the module. Phases are what Progress.waiting_for may say."""

    def __init__(self) -> None:
        self.beats = 0
        self.records = 0
        self.last_ack_ms: int | None = None
        self.lag: int | None = None
        self.details: dict[str, Any] = {}
        self.errors = ErrorFigures()
        self.tables: bytes | None = None  # what is for /metrics alone, as JSON
        self._told: bytes | None = None
        self.figures: dict[str, float] = {}  # by Kafka's metric names (source-task, sink-task)
        self._phase: str | None = None
        self._since = time.monotonic()

    def enter(self, phase: str) -> None:
        """The main loop comes round, and does this now."""
        self.beats += 1
        if phase != self._phase:
            self._phase = phase
            self._since = time.monotonic()

    def beat(self) -> None:
        """The task lives; it does what it did."""
        self.beats += 1

    def say(self, records: int, lag: int | None, waiting_for: str | None, details: dict[str, Any]) -> None:
        """The word of a task that reports for itself; what it waits for is taken as it says it, at once."""
        self.beats += 1
        self.acknowledged(records)
        self.lag = lag
        self.details = details
        self._phase = waiting_for
        self._since = -WAITING_AFTER_S

    def moved(self) -> None:
        """There was something to do: the phase's clock starts again."""
        self._since = time.monotonic()

    def acknowledged(self, records: int) -> None:
        """So many records in all are acknowledged downstream."""
        if records != self.records:
            self.records = records
            self.last_ack_ms = time.time_ns() // 1_000_000

    def report(self) -> dict[str, Any]:
        """The fields of Progress, and the beats."""
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
        """What is new for /metrics since the last call."""
        tables = self.tables
        if tables is self._told:
            return None
        self._told = tables
        return tables

    def _all_details(self) -> dict[str, Any]:
        """The task's own, and what the runtime counts: shown once there is something to show."""
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
