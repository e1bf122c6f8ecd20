"""Figures of a sink task by the names of Kafka's sink-task-metrics: counted by its loop, reported with its
vitals.
"""

from __future__ import annotations

from typing import Final

# Averages cover about so many of the last puts, so that a put that becomes slow shows.
_WEIGHT: Final = 1 / 20


class SinkFigures:
    """Writes the figures into `report` (Vitals.figures), which another thread reads."""

    def __init__(self, report: dict[str, float]) -> None:
        self._report = report
        for name in (
            "sink-record-read-total",
            "sink-record-send-total",
            "put-batch-avg-time-ms",
            "put-batch-max-time-ms",
            "batch-size-avg",
            "batch-size-max",
            "partition-count",
            "offset-commit-completion-total",
            "offset-commit-skip-total",
            "offset-commit-failures-total",
        ):
            report[name] = 0

    def read(self, records: int) -> None:
        """Counts consumed records."""
        self._report["sink-record-read-total"] += records

    def put(self, records: int, seconds: float) -> None:
        """Counts a `put` of so many records and its time; empty puts are ignored."""
        if not records:
            return
        self._report["sink-record-send-total"] += records
        self._average("put-batch-avg-time-ms", seconds * 1000)
        self._highest("put-batch-max-time-ms", seconds * 1000)
        self._average("batch-size-avg", records)
        self._highest("batch-size-max", records)

    def assigned(self, partitions: int) -> None:
        self._report["partition-count"] = partitions

    def committed(self, how: str) -> None:
        """Counts a commit. `how` is completion, skip or failures."""
        self._report[f"offset-commit-{how}-total"] += 1

    def _average(self, name: str, value: float) -> None:
        before = self._report[name]
        self._report[name] = round(before + (value - before) * (_WEIGHT if before else 1), 3)

    def _highest(self, name: str, value: float) -> None:
        self._report[name] = max(self._report[name], round(value, 3))
