"""What a task's errors came to: Kafka's task-error-metrics, counted since the task's process started.

Plain counters, written by the task's thread (a sink that reports from threads of its own goes through a lock in
`Tolerance`), read by the control thread.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final

# Kafka's names of the figures, as REST's metrics and a task's progress show them.
NAMES: Final = {
    "failures": "total-record-failures",
    "errors": "total-record-errors",
    "skipped": "total-records-skipped",
    "retries": "total-retries",
    "logged": "total-errors-logged",
    "dead_letters": "deadletterqueue-produce-requests",
    "dead_letter_failures": "deadletterqueue-produce-failures",
    "last_error_ms": "last-error-timestamp",
}


@dataclass(slots=True)
class ErrorFigures:
    """`failures` counts failed operations (each retry, too), `errors` records that failed in the end, `skipped` those
    of them that were left out. `last_error_ms` is epoch ms, 0 for none.
    """

    failures: int = 0
    errors: int = 0
    skipped: int = 0
    retries: int = 0
    logged: int = 0
    dead_letters: int = 0
    dead_letter_failures: int = 0
    last_error_ms: int = 0

    def failed(self) -> None:
        """A record has failed for good."""
        self.errors += 1
        self.last_error_ms = time.time_ns() // 1_000_000

    @property
    def any(self) -> bool:
        return bool(self.failures or self.errors)

    def report(self) -> dict[str, int]:
        """By Kafka's names."""
        return {name: getattr(self, field) for field, name in NAMES.items()}
