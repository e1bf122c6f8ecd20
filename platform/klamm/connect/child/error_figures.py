"""Counters of a task's errors since its process started: Kafka's task-error-metrics.

They are plain counters. The task's thread writes them (a sink that reports from its own threads goes through
a lock in `Tolerance`); the control thread reads them.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

# Maps each field to Kafka's name, which REST's metrics and a task's progress show.
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
_SENTENCE_MAX: Final = 500


@dataclass(slots=True)
class ErrorFigures:
    """Counters of one task.

    `failures` counts failed operations, each retry included; `errors` counts records that failed in the end,
    and `skipped` those of them that were left out. `last_error_ms` is epoch ms, 0 for none. `retrying` says
    what is being retried now, by stage (`put`, `poll`, `flush`, VALUE_CONVERTER …): the last `error`,
    `since_ms` (epoch) and failed `attempts`. Each change makes a new mapping.
    """

    failures: int = 0
    errors: int = 0
    skipped: int = 0
    retries: int = 0
    logged: int = 0
    dead_letters: int = 0
    dead_letter_failures: int = 0
    last_error_ms: int = 0
    retrying: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def tries_again(self, stage: str, error: BaseException) -> None:
        """Records that a stage failed and will be retried, so that the status of a stuck task says why."""
        before = self.retrying.get(stage)
        now_ms = time.time_ns() // 1_000_000
        self.retrying = {
            **self.retrying,
            stage: {
                "error": sentence(error),
                "since_ms": before["since_ms"] if before else now_ms,
                "attempts": before["attempts"] + 1 if before else 1,
            },
        }

    def tries_no_more(self, stage: str) -> None:
        """Records that the stage succeeded or was given up."""
        if stage in self.retrying:
            self.retrying = {name: each for name, each in self.retrying.items() if name != stage}

    def failed(self) -> None:
        """Counts a record that has failed for good."""
        self.errors += 1
        self.last_error_ms = time.time_ns() // 1_000_000

    @property
    def any(self) -> bool:
        return bool(self.failures or self.errors)

    def report(self) -> dict[str, int]:
        """Returns the counters by Kafka's names."""
        return {name: getattr(self, field) for field, name in NAMES.items()}


def sentence(error: BaseException) -> str:
    """Returns an error's message and those of its causes in one line."""
    parts: list[str] = []
    current: BaseException | None = error
    while current is not None and len(parts) < 5:
        text = " ".join(str(current).split()) or type(current).__name__
        # An OSError's "[Errno 28] No space left on device" is left out after a sentence that contains its
        # text.
        core = (current.strerror or text) if isinstance(current, OSError) else text
        if not any(core in part for part in parts):
            parts.append(text)
        current = current.__cause__
    return ": ".join(parts)[:_SENTENCE_MAX]
