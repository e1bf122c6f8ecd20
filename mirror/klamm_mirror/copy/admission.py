"""Decides which partitions may join a transaction: those with as many replicas in sync as the target wants. Pure.

A transaction ends, by a commit or an abort, when each of its partitions has a marker. A partition with too few replicas
in sync takes no marker, so it would hold up all others for as long as that lasts. Metadata tell of it before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from klamm_kafka.wire.messages.metadata import MetadataResponse
from klamm_mirror.copy.partition import MirrorPartition

MIN_ISR: Final = "min.insync.replicas"
FRESH_S: Final = 2.0
"""Seconds for which metadata, or an acknowledgement, tell how a partition is. A resting partition waits for new metadata."""
CONFIG_S: Final = 5.0
"""Seconds for which a topic's setting is believed. It is asked for only where it can make a difference."""
_NEVER: Final = float("-inf")


class Replicas(NamedTuple):
    """The replicas of a partition: those in sync, and all."""

    in_sync: int
    all: int


class Admission:
    """The knowledge about the replicas of a task's partitions. Time is a monotonic clock, in seconds."""

    def __init__(self) -> None:
        self._replicas: dict[tuple[str, int], Replicas] = {}
        self._learned_at = _NEVER
        self._acked_at: dict[MirrorPartition, float] = {}
        self._min_isr: dict[str, tuple[int, float]] = {}
        """The setting of topics, and when it was told."""

    def learned(self, answer: MetadataResponse, now: float) -> None:
        """Takes metadata of all partitions."""
        self._learned_at = now
        self._replicas = {
            (t.name, p.partition_index): Replicas(len(p.isr_nodes), len(p.replica_nodes))
            for t in answer.topics if t.name is not None
            for p in t.partitions
        }  # fmt: skip

    def acked(self, partition: MirrorPartition, now: float) -> None:
        """Notes that enough replicas have a batch."""
        self._acked_at[partition] = now

    def configured(self, min_isr: Mapping[str, int], now: float) -> None:
        """Takes the setting of topics."""
        self._min_isr |= {topic: (value, now) for topic, value in min_isr.items()}

    def knows(self, partition: MirrorPartition, now: float) -> bool:
        """Decides whether `lack` may be believed."""
        if self._acked_at.get(partition, _NEVER) > max(self._learned_at, now - FRESH_S):
            return True
        return self.has_metadata(now) and not self._must_ask(partition, now)

    def has_metadata(self, now: float) -> bool:
        """Decides whether the metadata are fresh."""
        return self._learned_at > now - FRESH_S

    def topics_to_ask(self, partitions: Iterable[MirrorPartition], now: float) -> list[str]:
        """Returns the topics whose setting must be asked for."""
        return sorted({p.remote for p in partitions if self._must_ask(p, now)})

    def lack(self, partition: MirrorPartition) -> str | None:
        """Returns a sentence about a partition that may not join a transaction; None: it may."""
        if self._acked_at.get(partition, _NEVER) > self._learned_at:
            return None
        replicas = self._replicas.get((partition.remote, partition.partition))
        setting, _ = self._min_isr.get(partition.remote, (1, _NEVER))
        if replicas is None:
            return None
        # Brokers differ in whether a partition ever needs more replicas than it has. One that refused a batch says it does.
        needed = setting if partition.scarce else min(setting, replicas.all)
        if replicas.in_sync >= needed:
            return None
        count = f"{replicas.in_sync} replica{'s' if replicas.in_sync != 1 else ''}"
        return f"{partition.remote}-{partition.partition} has {count} in sync, and needs {needed} ({MIN_ISR})"

    def _must_ask(self, partition: MirrorPartition, now: float) -> bool:
        replicas = self._replicas.get((partition.remote, partition.partition))
        if replicas is None or (replicas.in_sync >= replicas.all and not partition.scarce):
            return False
        _, told_at = self._min_isr.get(partition.remote, (1, _NEVER))
        return told_at <= now - CONFIG_S
