"""Configurations of the broker that rounds of kill cycles run with, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

SESSIONS: Final[Mapping[str, str]] = {
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.session.timeout.ms": "6000",
    "group.consumer.heartbeat.interval.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "1000",
}
"""A member that leaves while the broker is away is waited for until its session ends."""
COMMON: Final[Mapping[str, str]] = {
    "auto.create.topics.enable": "false",  # a producer that refreshes a deleted topic would make it anew
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "log.retention.check.interval.ms": "1000",
    "log.flush.offset.checkpoint.interval.ms": "1500",
    "log.cleaner.backoff.ms": "200",
    **SESSIONS,
}
"""Upkeep happens often enough for a kill to come into its middle."""
MODES: Final[dict[str, Mapping[str, str]]] = {
    "default": {},
    "small segments": {"log.segment.bytes": "1048576", "log.roll.ms": "1500", "log.flush.interval.messages": "200"},
    "fsync": {"durability": "fsync"},
    "two directories": {"log.dirs": "{work}/data,{work}/data2"},
}  # fmt: skip
KAFKA: Final[Mapping[str, str]] = {
    "auto.create.topics.enable": "false",
    "log.cleaner.backoff.ms": "200",
    **SESSIONS,
}
