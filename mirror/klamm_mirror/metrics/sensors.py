"""MirrorMaker's measurements, taken per batch: counts, rates, ages, latencies. Pure: times are passed in, ms.

The windows are those of Kafka's sensors with a Connect worker's defaults: two samples of 30 s, so a maximum
or a rate covers the last 30 to 60 s. A batch stands for its records: their times count as evenly spread
between the first record's and the latest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from klamm_mirror.raw import Batch

SAMPLE_MS: Final = 30_000
SAMPLES: Final = 2
WINDOW_MS: Final = SAMPLE_MS * SAMPLES

Figures = tuple[int | float | None, int | float | None, int | float | None, int | float | None]


@dataclass(slots=True)
class _Sample:
    """The values since `start_ms`: count, sum, least and largest."""

    start_ms: int
    count: int
    sum: float
    least: float
    largest: float


@dataclass(slots=True)
class Sensor:
    """A value that is recorded now and then: its last value, and its statistics in the window.

    The code is written out for speed: each batch updates three sensors, each table reads thousands.
    """

    last: float | None = None
    _now: _Sample | None = None
    _before: _Sample | None = None

    def record(self, now_ms: int, value: float, *, largest: float | None = None, count: int = 1) -> None:
        """Records one value, or `count` values from `largest` down to `value`."""
        self.last = value
        most = value if largest is None else largest
        total = count * (value + most) / 2
        sample = self._now
        # A clock that was set back begins a new sample too: a rate over a negative time makes no sense.
        if sample is None or not 0 <= now_ms - sample.start_ms < SAMPLE_MS:
            self._before, self._now = sample, _Sample(now_ms, count, total, value, most)
            return
        sample.count += count
        sample.sum += total
        sample.least = min(sample.least, value)
        sample.largest = max(sample.largest, most)

    def rate(self, now_ms: int) -> float:
        """Returns the sum per second. As in Kafka, a window shorter than a sample counts as if another sample preceded it."""
        sample = self._window(now_ms)
        if sample is None:
            return 0.0
        elapsed = now_ms - sample.start_ms
        return sample.sum * 1000 / (elapsed if elapsed >= SAMPLE_MS else elapsed + SAMPLE_MS)

    def figures(self, now_ms: int) -> Figures:
        """Returns last value, least, largest and mean. The last three are None when the window is empty."""
        sample = self._window(now_ms)
        if sample is None:
            return self.last, None, None, None
        return self.last, sample.least, sample.largest, round(sample.sum / sample.count, 3)

    def _window(self, now_ms: int) -> _Sample | None:
        """Merges the samples that are still in the window."""
        now, before = self._now, self._before
        if now is None or not 0 <= now_ms - now.start_ms < WINDOW_MS:
            return None
        if before is None or not 0 <= now_ms - before.start_ms < WINDOW_MS:
            return now
        return _Sample(
            before.start_ms,
            before.count + now.count,
            before.sum + now.sum,
            min(now.least, before.least),
            max(now.largest, before.largest),
        )


SOURCE_PREFIX: Final = "kafka_connect_mirror_mirrorsourceconnector_"
SOURCE_ABOUT: Final = {
    "record_count": "Records that the target has acknowledged.",
    "record_rate": "Records that the target has acknowledged, by the second.",
    "byte_count": "Bytes of the batches that the target has acknowledged, as they are compressed.",
    "byte_rate": "Bytes of the batches that the target has acknowledged, by the second.",
    "record_age_ms": "How old records were when they were read at the source, ms.",
    "record_age_ms_min": "The least age of records when they were read at the source, ms.",
    "record_age_ms_max": "The largest age of records when they were read at the source, ms.",
    "record_age_ms_avg": "The mean age of records when they were read at the source, ms.",
    "replication_latency_ms": "From a record's timestamp to the target's acknowledgement, ms.",
    "replication_latency_ms_min": "The least time from a record's timestamp to the target's acknowledgement, ms.",
    "replication_latency_ms_max": "The largest time from a record's timestamp to the target's acknowledgement, ms.",
    "replication_latency_ms_avg": "The mean time from a record's timestamp to the target's acknowledgement, ms.",
}
"""Columns of `PartitionSensors.row`, in order, with their help texts."""


@dataclass(slots=True)
class PartitionSensors:
    """The sensors of one partition. They outlive a pause."""

    records: int = 0
    bytes: int = 0
    _record: Sensor = field(default_factory=Sensor)
    _byte: Sensor = field(default_factory=Sensor)
    _age: Sensor = field(default_factory=Sensor)
    _latency: Sensor = field(default_factory=Sensor)

    def fetched(self, batches: Iterable[Batch], now_ms: int) -> None:
        """Notes batches that were read at the source."""
        for batch in batches:
            _measure(self._age, batch, now_ms)

    def acked(self, batch: Batch, now_ms: int) -> None:
        """Notes that the target has the batch."""
        size = len(batch.data)
        self.records += batch.count
        self.bytes += size
        self._record.record(now_ms, batch.count)
        self._byte.record(now_ms, size)
        _measure(self._latency, batch, now_ms)

    def row(self, now_ms: int) -> tuple[int | float | None, ...]:
        """Returns one figure for each of SOURCE_ABOUT."""
        return (
            self.records, round(self._record.rate(now_ms), 3), self.bytes, round(self._byte.rate(now_ms), 3),
            *self._age.figures(now_ms), *self._latency.figures(now_ms),
        )  # fmt: skip


def _measure(sensor: Sensor, batch: Batch, now_ms: int) -> None:
    """Records the age of a batch's records. Clocks may differ: no age is below zero."""
    if batch.max_timestamp < 0:  # records without timestamps
        return
    least = max(now_ms - batch.max_timestamp, 0)
    first = batch.first_timestamp
    largest = max(now_ms - first, least) if first >= 0 else least
    sensor.record(now_ms, least, largest=largest, count=batch.count)


CHECKPOINT_PREFIX: Final = "kafka_connect_mirror_mirrorcheckpointconnector_"
CHECKPOINT_ABOUT: Final = {
    "checkpoint_latency_ms": "From reading a group's offset at the source to its checkpoint at the target, ms.",
    "checkpoint_latency_ms_min": "The least time from reading a group's offset to its checkpoint, ms.",
    "checkpoint_latency_ms_max": "The largest time from reading a group's offset to its checkpoint, ms.",
    "checkpoint_latency_ms_avg": "The mean time from reading a group's offset to its checkpoint, ms.",
}

GroupPartition = tuple[str, str, int]


class CheckpointSensors:
    """Sensors by group, topic and partition, at most `most`. `left_out` counts the others."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._sensors: dict[GroupPartition, Sensor] = {}
        self._beyond: set[GroupPartition] = set()

    @property
    def left_out(self) -> int:
        return len(self._beyond)

    def written(self, keys: Iterable[GroupPartition], latency_ms: int, now_ms: int) -> None:
        """Notes that the target has these checkpoints. `latency_ms` counts from the beginning of the pass that read them."""
        for key in keys:
            sensor = self._sensors.get(key)
            if sensor is None:
                if len(self._sensors) >= self._most:
                    self._beyond.add(key)
                    continue
                sensor = self._sensors[key] = Sensor()
            sensor.record(now_ms, latency_ms)

    def keep(self, groups: Sequence[str]) -> None:
        """Forgets all other groups."""
        there = set(groups)
        self._beyond = {key for key in self._beyond if key[0] in there}
        for key in [key for key in self._sensors if key[0] not in there]:
            del self._sensors[key]

    def rows(self, now_ms: int) -> list[tuple[str | int | float | None, ...]]:
        """Returns group, topic, partition and one figure for each of CHECKPOINT_ABOUT."""
        return [(*key, *sensor.figures(now_ms)) for key, sensor in self._sensors.items()]
