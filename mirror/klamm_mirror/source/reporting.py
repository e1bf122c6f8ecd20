"""The figures of a task: metrics, and what `klamm mirror status` shows of its partitions.

Thousands of partitions take tens of milliseconds, in which no record would pass. So they are looked at in slices, and
records pass between two of them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from klamm_mirror.copy.lag_tables import lag_rows, lag_tables, rows_that_fit
from klamm_mirror.copy.partition import MirrorPartition
from klamm_mirror.metrics.sensors import SOURCE_ABOUT, SOURCE_PREFIX, WINDOW_MS
from klamm_mirror.metrics.tables import figures, pause_s, tables
from klamm_mirror.origins import LeftOut
from klamm_mirror.source.upkeep import upkeep_figures
from klamm_mirror.upkeep import Upkeep
from klamm_plugins.metrics import MetricTable

SLICE: Final = 250
"""Partitions of a slice: some two milliseconds."""
LEFT_OUT_ABOUT: Final = {
    f"batches_{why.name.lower()}_total": f"Batches that were not copied: {why.value}." for why in LeftOut
}
BY: Final = ("topic", "partition")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported:
    """The things that are reported. `missing` are the records in gaps, by topic and partition."""

    flow: tuple[str, str]
    partitions: Sequence[MirrorPartition]
    upkeep: Sequence[Upkeep]
    missing: Mapping[tuple[str, int], int]
    left_out: Mapping[LeftOut, int]


def slices(it: Reported, hand_in: Callable[[Sequence[MetricTable]], None], at_ms: int) -> Iterator[None]:
    """Looks at a slice of the partitions with each step, and hands all tables in with the last one.

    `at_ms` is the time that the windows of the sensors end.
    """
    now_ms = time.time_ns() // 1_000_000
    partitions = it.partitions[: rows_that_fit(it.partitions)]
    rows, lags = [], []
    for first in range(0, len(partitions), SLICE):
        some = partitions[first : first + SLICE]
        rows += [(p.remote, p.partition, *p.sensors.row(at_ms)) for p in some]
        lags += lag_rows(some, it.missing, now_ms)
        yield
    left_out = len(it.partitions) - len(partitions)
    hand_in(
        tables(SOURCE_PREFIX, SOURCE_ABOUT, flow=it.flow, by=BY, rows=rows, left_out=left_out)
        + lag_tables(it.partitions, lags, flow=it.flow, now_ms=now_ms)
        + [figures(it.flow, LEFT_OUT_ABOUT, [it.left_out.get(why, 0) for why in LeftOut])]
        + upkeep_figures(it.upkeep, it.flow, now_ms)
    )


async def report_on(look: Callable[[], Reported], hand_in: Callable[[Sequence[MetricTable]], None]) -> None:
    """Reports every two seconds, or less often where it takes long, until cancelled. Raises ConnectError."""
    while True:
        took_s, began = 0.0, time.monotonic()
        for _ in slices(look(), hand_in, time.time_ns() // 1_000_000):
            took_s += time.monotonic() - began
            await asyncio.sleep(0)
            began = time.monotonic()
        await asyncio.sleep(pause_s(took_s + time.monotonic() - began))


def report_idle(it: Reported, hand_in: Callable[[Sequence[MetricTable]], None]) -> None:
    """Reports once. The partitions will be silent from now on, so their windows count as empty."""
    for _ in slices(it, hand_in, time.time_ns() // 1_000_000 + WINDOW_MS):
        pass
