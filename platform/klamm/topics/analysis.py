"""Figures of a topic's records: sizes, keys, times. Takes bounded memory, however many records there are."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

KEYS_MAX: Final = 100_000
"""Keys that are counted one by one; later keys count as others."""
KEY_BYTES_MAX: Final = 64 * 1024 * 1024
"""Their bytes together, at most."""
BUCKETS_MAX: Final = 20
TOP: Final = 10


@dataclass(slots=True)
class Sizes:
    """The spread of sizes in bytes, in classes of powers of two."""

    count: int = 0
    total: int = 0
    largest: int = 0
    classes: Counter[int] = field(default_factory=Counter)

    def add(self, size: int) -> None:
        """Count one size."""
        self.count += 1
        self.total += size
        self.largest = max(self.largest, size)
        self.classes[size.bit_length()] += 1

    def percentile(self, share: float) -> int:
        """Return a size that so many do not exceed; exact to the next power of two."""
        wanted, seen = share * self.count, 0
        for bits, number in sorted(self.classes.items()):
            seen += number
            if seen >= wanted:
                return min((1 << bits) - 1, self.largest)
        return self.largest


@dataclass(slots=True)
class Analysis:
    """Records are added one by one; `facts` and the other methods say what was found."""

    partitions: Counter[int] = field(default_factory=Counter)
    partition_bytes: Counter[int] = field(default_factory=Counter)
    keys: Counter[bytes] = field(default_factory=Counter)
    kept_bytes: int = 0
    """The bytes of `keys`."""
    other_keys: int = 0
    null_keys: int = 0
    tombstones: int = 0
    headers: int = 0
    key_sizes: Sizes = field(default_factory=Sizes)
    value_sizes: Sizes = field(default_factory=Sizes)
    largest: list[tuple[int, int, int]] = field(default_factory=list)
    """(bytes, partition, offset) of the largest records, as a heap."""
    minutes: Counter[int] = field(default_factory=Counter)

    def add(
        self,
        partition: int,
        offset: int,
        at_ms: int,
        *,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[Any] = (),
    ) -> None:
        """Count one record."""
        size = len(key or b"") + len(value or b"")
        self.partitions[partition] += 1
        self.partition_bytes[partition] += size
        if key is None:
            self.null_keys += 1
        else:
            self.key_sizes.add(len(key))
            if key in self.keys:
                self.keys[key] += 1
            elif len(self.keys) < KEYS_MAX and self.kept_bytes + len(key) <= KEY_BYTES_MAX:
                self.keys[key] = 1
                self.kept_bytes += len(key)
            else:
                self.other_keys += 1
        if value is None:
            self.tombstones += 1
        else:
            self.value_sizes.add(len(value))
        self.headers += bool(headers)
        row = (size, partition, -offset)
        if len(self.largest) < TOP:
            heapq.heappush(self.largest, row)
        elif row > self.largest[0]:
            heapq.heapreplace(self.largest, row)
        if at_ms >= 0:
            self.minutes[at_ms // 60_000] += 1

    @property
    def records(self) -> int:
        return self.partitions.total()

    @property
    def bytes(self) -> int:
        """The bytes of keys and values."""
        return self.partition_bytes.total()

    def facts(self) -> dict[str, Any]:
        """Return the figures of the whole topic by name."""
        several = "more than " if self.other_keys else ""
        return {
            "records": self.records,
            "bytes": self.bytes,
            "null_keys": self.null_keys,
            "tombstones": self.tombstones,
            "with_headers": self.headers,
            "distinct_keys": f"{several}{len(self.keys)}",
            "key_bytes_p50": self.key_sizes.percentile(0.5),
            "key_bytes_max": self.key_sizes.largest,
            "value_bytes_mean": round(self.value_sizes.total / max(self.value_sizes.count, 1), 1),
            "value_bytes_p50": self.value_sizes.percentile(0.5),
            "value_bytes_p99": self.value_sizes.percentile(0.99),
            "value_bytes_max": self.value_sizes.largest,
            "first_time": _time(min(self.minutes)) if self.minutes else None,
            "last_time": _time(max(self.minutes)) if self.minutes else None,
        }

    def by_partition(self) -> list[dict[str, Any]]:
        """Return a row for each partition that has records."""
        return [
            {
                "partition": p,
                "records": n,
                "bytes": self.partition_bytes[p],
                "share": f"{100 * n / self.records:.1f}%",
            }
            for p, n in sorted(self.partitions.items())
        ]

    def top_keys(self) -> list[dict[str, Any]]:
        """Return the keys with the most records."""
        rows = sorted(self.keys.items(), key=lambda i: (-i[1], i[0]))[:TOP]
        return [
            {
                "key": k.decode(errors="backslashreplace"),
                "records": n,
                "share": f"{100 * n / self.records:.1f}%",
            }
            for k, n in rows
        ]

    def largest_records(self) -> list[dict[str, Any]]:
        """Return the places of the largest records, the largest first."""
        return [
            {"partition": p, "offset": -offset, "bytes": size}
            for size, p, offset in sorted(self.largest, reverse=True)
        ]

    def by_time(self) -> list[dict[str, Any]]:
        """Return records and their rate by time, in at most `BUCKETS_MAX` steps of equal length."""
        if not self.minutes:
            return []
        first, last = min(self.minutes), max(self.minutes)
        step = -(-(last - first + 1) // BUCKETS_MAX)
        buckets: Counter[int] = Counter()
        for minute, n in self.minutes.items():
            buckets[(minute - first) // step] += n
        return [
            {
                "from": _time(first + at * step),
                "minutes": step,
                "records": buckets[at],
                "records_per_s": round(buckets[at] / (step * 60), 3),
            }
            for at in range((last - first) // step + 1)
        ]


def _time(minute: int) -> str:
    try:
        return datetime.fromtimestamp(minute * 60, UTC).isoformat(timespec="minutes")
    except (ValueError, OverflowError, OSError):
        return f"{minute} minutes since 1970"
