"""The brokers that a task's partitions are read from, with leader epochs and topic ids: the source's metadata.

A partition stays at the replica that its leader has named (KIP-392), as in Kafka's consumer: until that was a while ago,
another leader leads, or the replica is away. Pure: times are passed in, s.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from klamm_kafka.wire.fields import UUID_ZERO
from klamm_kafka.wire.messages.metadata import MetadataResponse, MetadataResponsePartition
from klamm_mirror.copy.fetch_settings import NEAREST_MS

Key = tuple[str, int]
NO_BROKER: Final = -1


class Nearest(NamedTuple):
    """A replica that a leader named, with the leader's epoch."""

    node: int
    epoch: int
    until: float


class SourceMetadata:
    """The last answer, and the replicas that leaders have named since.

    `stale` is True while it must be asked for again. `changes` counts changes of `brokers`. A replica is the nearest for
    `nearest_s`.
    """

    def __init__(self, nearest_s: float = NEAREST_MS / 1000) -> None:
        self._nearest_s = nearest_s
        self.stale = True
        self.changes = 0
        self.brokers: dict[Key, int] = {}
        """The brokers to read from: leaders, or the replicas that they name."""
        self.epochs: dict[Key, int] = {}
        self.ids: dict[str, bytes] = {}
        self.has_ids = False
        """True if the source tells the id of each topic."""
        self._replicas: dict[Key, Nearest] = {}
        """The partitions that are read from a replica."""
        self._named: dict[Key, int] = {}
        """The replicas that were named last, for the log."""

    def learn(self, answer: MetadataResponse, now: float) -> None:
        """Takes an answer. Partitions are read from their leaders, or from the replicas that these have named."""
        there = {(t.name or "", p.partition_index): p for t in answer.topics for p in t.partitions}
        self.stale = False
        self.ids = {t.name: t.topic_id for t in answer.topics if t.name and t.topic_id != UUID_ZERO}
        self.has_ids = all(name in self.ids for name, _ in there)
        self.epochs = {key: p.leader_epoch for key, p in there.items()}
        alive = {b.node_id for b in answer.brokers}
        self._replicas = {
            key: nearest for key, nearest in self._replicas.items()
            if now < nearest.until and nearest.node in alive and key in there and _still(there[key], nearest)
        }  # fmt: skip
        brokers = {key: p.leader_id for key, p in there.items()}
        brokers |= {key: nearest.node for key, nearest in self._replicas.items()}
        if brokers != self.brokers:
            self.brokers = brokers
            self.changes += 1

    def forget(self) -> None:
        """Reads no partition any more, until there is another answer."""
        self.stale = True
        self._replicas = {}
        if self.brokers:
            self.brokers = {}
            self.changes += 1

    def broker(self, key: Key) -> int:
        """Returns the broker to read a partition from; -1 if none is known."""
        return self.brokers.get(key, NO_BROKER)

    def read_from(self, key: Key, replica: int, now: float) -> bool:
        """Reads a partition from a replica. Returns True if it is another one than before."""
        new = self._named.get(key) != replica
        self._named[key] = replica
        self._replicas[key] = Nearest(replica, self.epochs.get(key, -1), now + self._nearest_s)
        self._put(key, replica)
        return new

    def leave_replica(self, key: Key) -> bool:
        """Reads a partition from its leader, once the metadata tell it. Returns False if it is read from there already."""
        if key not in self._replicas:
            return False
        del self._replicas[key]
        self.stale = True
        self._put(key, NO_BROKER)
        return True

    def _put(self, key: Key, broker: int) -> None:
        if self.broker(key) != broker:
            self.brokers[key] = broker
            self.changes += 1


def _still(partition: MetadataResponsePartition, nearest: Nearest) -> bool:
    """Returns True while the leader is the one that named the replica, and the replica is there."""
    return (
        partition.leader_epoch == nearest.epoch
        and nearest.node in partition.replica_nodes
        and nearest.node not in partition.offline_replicas
    )
