"""Batch and stream readers of `format("klamm")`: planning in the driver, reading in the workers."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from klamm_base.errors import ConfigError
from klamm_spark.datasource.cluster import Cluster, ClusterError, missing
from klamm_spark.datasource.fetch import RangePartition, read_ranges
from klamm_spark.datasource.offsets import (
    Offsets,
    Partition,
    Position,
    Range,
    advance,
    ranges,
    split,
    tasks,
    up_to,
    waiting,
)
from klamm_spark.datasource.options import ReadOptions

log = logging.getLogger(__name__)


KNOWN_S: Final = 2.0
"""The time for which new topics, new partitions and deleted records may stay unseen by a planner that asks
constantly.
"""


@dataclass(frozen=True, slots=True)
class Look:
    """Topics with their partitions, and the bounds of the logs that are read. `at` is a monotonic time."""

    at: float
    existing: dict[str, list[int]]
    earliest: dict[Partition, int]
    latest: dict[Partition, int]


class UnplannedPartition(InputPartition):
    """Everything in one task, which asks the brokers itself (refreshEachBatch)."""


class _Reading:
    """The work of both readers in a worker. It is pickled, so it holds settings only."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, RangePartition):  # Spark's own placeholder: there was nothing to read
            return iter(())
        schema = to_arrow_schema(self._schema, timezone="UTC")
        return read_ranges(partition.ranges, self._options, schema)


class KlammBatchReader(_Reading, DataSourceReader):
    """Reads everything between two bounds.

    Spark plans a Python source once, however often its frame is used: a table that is joined with a stream
    would never change. With refreshEachBatch, the task that reads asks for the bounds.
    """

    def partitions(self) -> list[InputPartition]:
        if self._options.refresh:
            return [UnplannedPartition(None)]
        return [RangePartition([r]) for r in self._ranges()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, UnplannedPartition):
            return super().read(partition)
        return super().read(RangePartition(self._ranges()))

    def _ranges(self) -> list[Range]:
        options, cluster = self._options, Cluster(self._options)
        existing = cluster.topics()
        _all_there(options, existing)
        wanted = cluster.subscribed(existing)
        if options.starting == "latest":
            raise ConfigError(
                "startingOffsets=latest would read nothing in a batch: use earliest", key="startingOffsets"
            )
        begins = _start(cluster, options, wanted, "earliest")
        ends = (
            cluster.resolve(options.ending, wanted, "endingOffsets")
            if options.ending_timestamp is None
            else cluster.at_time(wanted, options.ending_timestamp, "endingTimestamp", strict=False)
        )
        whole = [Range(*p, begins[p], ends[p]) for p in wanted if begins[p] < ends[p]]
        return split(whole, options.min_partitions, options.max_per_partition)


class KlammStreamReader(_Reading, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a stream. `offsets` describes positions. Lives in one process for as long as the query runs."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        if options.refresh:
            raise ConfigError(
                "refreshEachBatch is for tables (spark.read), a stream has what is new anyway",
                key="refreshEachBatch",
            )
        self._cluster: Cluster | None = None
        self._target: Offsets | None = None
        self._latest: Offsets | None = None
        self._first: dict[str, Any] | None = None
        self._last_batch = time.monotonic()
        self._seen: Look | None = None

    @property
    def cluster(self) -> Cluster:
        if self._cluster is None:
            self._cluster = Cluster(self._options)
        return self._cluster

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Returns the first position. Spark asks more than once for the first batch, and the answer stays the same."""
        if self._first is None:
            existing = self.cluster.topics()
            _all_there(self._options, existing)
            wanted = self.cluster.subscribed(existing)
            begins = _start(self.cluster, self._options, wanted, "latest")
            self._first = Position(begins, first=True).to_json()
        return self._first

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        most = self._options.max_records
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._seen = None
        self._target = self._look().latest

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        before = Position.from_json(start)
        look = self._look()
        existing, earliest, latest = look.existing, look.earliest, look.latest
        self._latest = latest
        if self._target is not None:
            latest = up_to(latest, self._target)
            earliest = {p: earliest[p] for p in latest}
        if self._too_few(before, earliest, latest):
            return start
        there = {(t, p) for t, numbers in existing.items() for p in numbers}
        after = advance(
            before,
            earliest,
            latest,
            max_records=limit.max_rows if isinstance(limit, ReadMaxRows) else None,
            unsubscribed=[p for p in before.next if p in there and p not in latest],
            fail_on_data_loss=self._options.fail_on_data_loss,
        )
        if after.lost > before.lost:
            log.warning("%d records were gone before they were read", after.lost - before.lost)
        if after is before:
            return start
        o = self._options
        return replace(after, parts=(o.min_partitions, o.max_per_partition, o.min_per_partition)).to_json()

    def _too_few(
        self, before: Position, earliest: dict[Partition, int], latest: dict[Partition, int]
    ) -> bool:
        """Returns True to wait for more records (minOffsetsPerTrigger), at most until maxTriggerDelay since the last
        batch.
        """
        least, now = self._options.min_records, time.monotonic()
        if (
            least is None or self._target is not None or before.first
        ):  # the first batch keeps where the query began
            return False
        if now - self._last_batch < self._options.max_delay_s and waiting(before, earliest, latest) < least:
            return True
        self._last_batch = now
        return False

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        return None if self._latest is None else Position(self._latest).to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        until = Position.from_json(end)
        whole = ranges(Position.from_json(start), until)
        return [RangePartition(some) for some in tasks(whole, until.parts)]

    def _look(self) -> Look:
        """Returns the present ends of logs. Topics and beginnings, which change seldom, may be a moment old."""
        known, now = self._seen, time.monotonic()
        if known is None or now - known.at > KNOWN_S:
            existing = self.cluster.topics()
            partitions = self.cluster.subscribed(existing)
            self._seen = known = Look(now, existing, *self.cluster.bounds(partitions))
            return known
        try:
            latest = self.cluster.ends(known.latest)
        except ClusterError:  # a topic is gone, perhaps: ask for everything
            self._seen = None
            return self._look()
        if all(known.earliest[p] <= end for p, end in latest.items()):
            return replace(known, latest=latest)
        self._seen = None  # a log that is shorter than it was begins somewhere else, too
        return self._look()


def _all_there(options: ReadOptions, existing: dict[str, list[int]]) -> None:
    if absent := missing(options.subscription, existing):
        raise ConfigError(
            f"there is no {', '.join(absent)} on {options.client['bootstrap.servers']}", key="subscribe"
        )


def _start(
    cluster: Cluster, options: ReadOptions, wanted: list[Partition], default: Any
) -> dict[Partition, int]:
    if options.starting_timestamp is not None:
        at, strict = options.starting_timestamp, options.strict_timestamp
        return cluster.at_time(wanted, at, "startingTimestamp", strict=strict)
    return cluster.resolve(options.starting or default, wanted, "startingOffsets")
