"""Tables that tell how far a task's partitions are behind: as metrics, and with words for `klamm mirror status`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from klamm_mirror.copy.partition import MirrorPartition
from klamm_mirror.metrics.tables import PREFIX, ROWS_MAX, figures
from klamm_mirror.stops import WHY_MAX
from klamm_plugins.metrics import TABLE_BYTES_MAX, Cell, MetricTable

LAG_ABOUT: Final = {
    "partition_lag": "Records of the source that the target has not acknowledged.",
    "partition_lag_seconds": "Age of the oldest record that the target may lack, s; 0: it has everything.",
    "gap_records_total": "Offsets of the source in gaps of the copy, by the gap ledger.",
}
STOPPED_ABOUT: Final = {"partitions_stopped": "Partitions that are no longer mirrored; the status says why."}
STATUS_PREFIX: Final = "klamm_mirror_status_"
STATUS_COLUMNS: Final = (
    "remote_topic", "offset", "lag", "missing_since_ms", "record_rate", "byte_rate", "closing_rate",
    "lag_peak", "gap_records", "waiting", "held_by", "stop", "why", "promoted",
)  # fmt: skip
"""The figures of a partition in `klamm mirror status`. `waiting` is the reason of a wait; `held_by` the key of
a limit; `stop` the kind of a stop; `promoted` 1 for a copy that was promoted at the target."""
ROW_BYTES: Final = 400
"""More than the figures of a partition take in all tables of a task, as JSON, without names and reasons."""


def rows_that_fit(partitions: Sequence[MirrorPartition]) -> int:
    """Returns the number of partitions, from the first on, whose figures a task may report."""
    left = TABLE_BYTES_MAX * 9 // 10
    for count, partition in enumerate(partitions[:ROWS_MAX]):
        left -= ROW_BYTES + 4 * (len(partition.remote) + len(partition.topic)) + len(_why(partition) or "")
        if left < 0:
            return count
    return min(len(partitions), ROWS_MAX)


LagRow = tuple[Sequence[Cell], Sequence[Cell]]
"""A partition's row in the metrics, and the one in the status."""


def lag_rows(
    partitions: Sequence[MirrorPartition], missing: Mapping[tuple[str, int], int], now_ms: int
) -> list[LagRow]:
    """Returns the partitions' rows, and notes their trends. `missing` are the records in gaps."""
    found: list[LagRow] = []
    for p in partitions:
        sensors, lag, since = p.sensors, p.lag, p.missing_since(now_ms)
        gap = missing.get((p.topic, p.partition), 0)
        p.trend.observe(now_ms, sensors.records, sensors.bytes, lag)
        row = (p.remote, p.partition, lag, _age(lag, since, now_ms), gap)
        found.append((row, _status_row(p, lag, since, gap, now_ms)))
    return found


def lag_tables(
    all_: Sequence[MirrorPartition], rows: Sequence[LagRow], *, flow: tuple[str, str], now_ms: int
) -> list[MetricTable]:
    """Makes the tables of the partitions that have rows, and counts over all of them."""
    labels = {"source": flow[0], "target": flow[1]}
    by = ("topic", "partition")
    return [
        MetricTable(
            prefix=PREFIX, labels=labels, by=by, columns=list(LAG_ABOUT), rows=[row for row, _ in rows],
            about=LAG_ABOUT,
        ),
        figures(flow, STOPPED_ABOUT, [sum(p.stopped is not None for p in all_)]),
        MetricTable(
            prefix=STATUS_PREFIX, labels={"at_ms": str(now_ms), "partitions": str(len(all_))}, by=by,
            columns=STATUS_COLUMNS, rows=[row for _, row in rows], exported=False,
        ),
    ]  # fmt: skip


def _age(lag: int | None, since: int | None, now_ms: int) -> float | None:
    """Returns the age of the oldest record that the target may lack; None: not known."""
    if since is None:
        return None if lag is None or lag else 0
    return round((now_ms - since) / 1000, 3)


def _status_row(
    partition: MirrorPartition, lag: int | None, since: int | None, gap: int, now_ms: int
) -> Sequence[Cell]:
    trend, stop = partition.trend, partition.stopped
    return (
        partition.topic, partition.partition, partition.remote, partition.done, lag, since,
        trend.record_rate, trend.byte_rate, trend.closing_rate, trend.peak,
        gap, partition.why_waiting(now_ms), partition.held_by if lag else None,
        None if stop is None else str(stop.kind), _why(partition), int(partition.promoted),
    )  # fmt: skip


def _why(partition: MirrorPartition) -> str | None:
    return partition.stopped.said[:WHY_MAX] if partition.stopped is not None else None
