"""Figures of a source task by the names of Kafka's source-task-metrics: counted by its loop, reported with
its vitals.
"""

from __future__ import annotations

# Averages cover about so many of the last values, so that a poll that becomes slow shows.
_WEIGHT = 1 / 20


class SourceFigures:
    """Writes the figures into `report` (Vitals.figures), which another thread reads."""

    def __init__(self, report: dict[str, float]) -> None:
        self._report = report
        for name in (
            "source-record-poll-total",
            "source-record-write-total",
            "source-record-active-count",
            "poll-batch-avg-time-ms",
            "poll-batch-max-time-ms",
            "batch-size-avg",
            "batch-size-max",
            "offset-commit-completion-total",
            "offset-commit-failures-total",
        ):
            report[name] = 0

    def polled(self, records: int, seconds: float) -> None:
        """Counts a poll that returned so many records after so long."""
        self._report["source-record-poll-total"] += records
        self._average("poll-batch-avg-time-ms", seconds * 1000)
        self._highest("poll-batch-max-time-ms", seconds * 1000)
        self._average("batch-size-avg", records)
        self._highest("batch-size-max", records)

    def written(self, records: int, under_way: int) -> None:
        """Sets the number of records acknowledged in all, and of those under way."""
        self._report["source-record-write-total"] = records
        self._report["source-record-active-count"] = under_way

    def committed(self, *, failed: bool = False) -> None:
        self._report[f"offset-commit-{'failures' if failed else 'completion'}-total"] += 1

    def transaction(self, records: int) -> None:
        """Counts a committed transaction of so many records."""
        first = "transaction-size-min" not in self._report
        self._report["transaction-size-min"] = (
            records if first else min(self._report["transaction-size-min"], records)
        )
        self._report.setdefault("transaction-size-max", 0)
        self._report.setdefault("transaction-size-avg", 0)
        self._highest("transaction-size-max", records)
        self._average("transaction-size-avg", records)

    def _average(self, name: str, value: float) -> None:
        before = self._report[name]
        self._report[name] = round(before + (value - before) * (_WEIGHT if before else 1), 3)

    def _highest(self, name: str, value: float) -> None:
        self._report[name] = max(self._report[name], round(value, 3))
