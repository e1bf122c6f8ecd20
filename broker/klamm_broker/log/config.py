"""The typed configuration of one partition log, for `PartitionLog` and retention.

It is built from the broker's defaults and the topic's overrides, and replaced as a whole when a topic's configuration
changes.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from klamm_base.errors import ConfigError
from klamm_broker.log.mirror_topic import MIRROR
from klamm_broker.log.topic_config import LAGS, TOPIC_CONFIGS, check_topic_configs
from klamm_kafka.wire.compression import Compression

log = logging.getLogger(__name__)

_MAX_LONG = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """Topic configuration values under Kafka's names with underscores; the defaults are Kafka's."""

    cleanup_policy: tuple[str, ...] = ("delete",)
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_type: str = "producer"
    compression_zstd_level: int = 3
    delete_retention_ms: int = 86_400_000
    file_delete_delay_ms: int = 60_000
    flush_messages: int = _MAX_LONG
    flush_ms: int = _MAX_LONG
    index_interval_bytes: int = 4096
    klamm_mirror_state: str | None = None
    max_compaction_lag_ms: int = _MAX_LONG
    max_message_bytes: int = 1_048_588
    message_timestamp_after_max_ms: int = 3_600_000
    message_timestamp_before_max_ms: int = _MAX_LONG
    message_timestamp_type: str = "CreateTime"
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    min_insync_replicas: int = 1
    preallocate: bool = False
    retention_bytes: int = -1
    retention_ms: int = 604_800_000
    segment_bytes: int = 1 << 30
    segment_index_bytes: int = 10 << 20
    segment_jitter_ms: int = 0
    segment_ms: int = 604_800_000
    producer_id_expiration_ms: int = 86_400_000  # the broker's producer.id.expiration.ms
    roll_ms: int = dataclasses.field(
        init=False
    )  # the age at which a segment is finished: segment.ms, or less for a compacted topic
    mirrors: bool = dataclasses.field(
        init=False
    )  # the topic takes another cluster's batches, and nothing else

    straight: bool = dataclasses.field(
        init=False
    )  # batches are stored as they come, and are readable at once (see `log.straight`)
    batch_bytes_max: int = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        limit = self.segment_ms
        if self.compact and self.max_compaction_lag_ms > 0:  # the active segment is never cleaned
            limit = min(limit, self.max_compaction_lag_ms)
        object.__setattr__(self, "roll_ms", limit)
        object.__setattr__(self, "mirrors", self.klamm_mirror_state == MIRROR)
        object.__setattr__(self, "straight", self._is_straight())
        object.__setattr__(self, "batch_bytes_max", min(self.max_message_bytes, self.segment_bytes))

    def _is_straight(self) -> bool:
        return (
            not self.mirrors
            and not self.compact
            and not self.log_append_time
            and self.compression_type == "producer"
            and self.message_timestamp_before_max_ms == _MAX_LONG
            and self.flush_messages == _MAX_LONG
            and self.segment_jitter_ms == 0
        )

    @property
    def compact(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def delete(self) -> bool:
        return "delete" in self.cleanup_policy

    @property
    def has_foreign_batches(self) -> bool:
        """True for a topic that is or was a mirror: its offsets may have holes, in any segment."""
        return self.klamm_mirror_state is not None

    @property
    def log_append_time(self) -> bool:
        return self.message_timestamp_type == "LogAppendTime"

    def compression_level(self, codec: Compression) -> int | None:
        """Returns the level for a codec; None where it has no levels."""
        match codec:
            case Compression.GZIP:
                return self.compression_gzip_level
            case Compression.LZ4:
                return self.compression_lz4_level
            case Compression.ZSTD:
                return self.compression_zstd_level
        return None

    @classmethod
    def from_topic(
        cls,
        overrides: Mapping[str, str],
        defaults: Mapping[str, str] | None = None,
        *,
        producer_id_expiration_ms: int = 86_400_000,
    ) -> LogConfig:
        """Makes the configuration from a topic's own properties over the broker's defaults, both under topic property names.

        Raises ConfigError naming the key, the value and what would be right.
        """
        values = check_topic_configs({**(defaults or {}), **overrides})
        fields = {f.name for f in dataclasses.fields(cls)}
        typed: dict[str, Any] = {
            name.replace(".", "_"): tuple(value) if isinstance(value, list) else value
            for name, value in values.items()
            if name.replace(".", "_") in fields
        }
        return cls(**typed, producer_id_expiration_ms=producer_id_expiration_ms)

    @classmethod
    def of_existing(
        cls,
        topic: str,
        overrides: Mapping[str, str],
        defaults: Mapping[str, str],
        *,
        producer_id_expiration_ms: int,
    ) -> LogConfig:
        """Does what `from_topic` does for a topic that exists. It is served also where newer defaults contradict its own compaction lags."""
        expiration_ms = producer_id_expiration_ms
        try:
            return cls.from_topic(overrides, defaults, producer_id_expiration_ms=expiration_ms)
        except ConfigError as e:
            if LAGS.isdisjoint(overrides):
                raise
            log.warning("topic %s goes by its own compaction lags alone: %s", topic, e)
        others = {name: value for name, value in defaults.items() if name not in LAGS}
        return cls.from_topic(overrides, others, producer_id_expiration_ms=expiration_ms)


assert {f.name for f in dataclasses.fields(LogConfig)} - {
    "producer_id_expiration_ms",
    "roll_ms",
    "mirrors",
    "straight",
    "batch_bytes_max",
} <= {key.name.replace(".", "_") for key in TOPIC_CONFIGS}, (
    "every field of LogConfig is a topic configuration"
)
