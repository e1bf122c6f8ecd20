"""The counters of the log cleaner, for the metrics."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class CleanerStats:
    """Counters since the start, and gauges of the last round under the names of Kafka's metrics."""

    runs: int = 0
    aborted: int = 0
    crashes: int = 0
    bytes_read: int = 0  # the map's included
    bytes_written: int = 0
    records_read: int = 0
    records_written: int = 0
    records_without_key: int = 0
    cpu_s: float = 0.0  # of the current process
    last_duration_s: float = 0.0
    longest_swap_s: float = 0.0  # on the loop
    max_buffer_utilization_percent: int = 0
    cleaner_recopy_percent: int = 0
    max_dirty_percent: int = 0
    max_compaction_delay_ms: int = 0
    last_run_s: float = 0.0  # monotonic


def size_text(size: int) -> str:
    """Returns a number of bytes with three significant digits: `812 bytes`, `12.3 kB`, `4.56 GB`."""
    if size < 1000:
        return f"{size} byte{'' if size == 1 else 's'}"
    value, units = size / 1000, ["kB", "MB", "GB", "TB"]
    while value >= 999.5 and len(units) > 1:
        value /= 1000
        units.pop(0)
    return f"{value:.{2 if value < 9.995 else 1 if value < 99.95 else 0}f} {units[0]}"
