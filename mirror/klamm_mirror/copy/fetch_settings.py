"""The settings of fetches, from a consumer's keys under Java's names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from klamm_base.configdef import invalid
from klamm_kafka.wire.offset_specs import EARLIEST
from klamm_mirror.clients import number
from klamm_mirror.copy.start_offset import parse_start

WAIT_MS: Final = 500
ANSWER_MS: Final = 30_000
"""The time for an answer of up to `max_bytes` over a slow line."""
METADATA_MS: Final = 30_000
NEAREST_MS: Final = 300_000
"""The time for which a replica is the nearest, without `metadata.max.age.ms`: the default of that key in Kafka's consumer."""
PREFIX: Final = "source.consumer"


@dataclass(frozen=True, slots=True)
class FetchSettings:
    """Limits of fetches: sizes in bytes, waits in ms."""

    max_bytes: int | None = None
    partition_bytes: int | None = None
    """None: the line decides (`fetch_size`)."""
    min_bytes: int = 1
    wait_ms: int = WAIT_MS
    committed_only: bool = False
    metadata_s: float = METADATA_MS / 1000
    nearest_s: float = NEAREST_MS / 1000
    """The time for which a replica that a leader has named is read from, before the leader is asked again."""
    answer_s: float = ANSWER_MS / 1000
    rack: str = ""
    """The rack in which the task runs: a leader may then name a replica there to read from."""
    start: int = EARLIEST
    """The place of partitions without a committed offset: EARLIEST, LATEST, or a time in ms."""

    @classmethod
    def of(cls, consumer: Mapping[str, str], poll_timeout_ms: int, start: str | None = None) -> FetchSettings:
        """Reads a consumer's settings, under Java's names. `start` wins over its auto.offset.reset. Raises ConfigError."""
        isolation = _one_of(consumer, "isolation.level", "read_committed", "read_uncommitted")
        reset = _one_of(consumer, "auto.offset.reset", "earliest", "latest")
        read = partial(number, consumer, PREFIX)
        return cls(
            max_bytes=read("fetch.max.bytes", 0) or None,
            partition_bytes=read("max.partition.fetch.bytes", 0) or None,
            min_bytes=read("fetch.min.bytes", 1),
            wait_ms=min(read("fetch.max.wait.ms", WAIT_MS), poll_timeout_ms),
            committed_only=isolation == "read_committed",
            rack=consumer.get("client.rack", "").strip(),
            metadata_s=read("metadata.max.age.ms", METADATA_MS) / 1000,
            nearest_s=read("metadata.max.age.ms", NEAREST_MS) / 1000,
            answer_s=read("request.timeout.ms", ANSWER_MS) / 1000,
            start=parse_start(start or reset),
        )


def _one_of(consumer: Mapping[str, str], key: str, default: str, other: str) -> str:
    found = consumer.get(key, default)
    if found not in {default, other}:
        raise invalid(f"{PREFIX}.{key}", found, f"Must be {default} or {other}")
    return found
