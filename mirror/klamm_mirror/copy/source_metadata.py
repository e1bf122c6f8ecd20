"""The brokers that a task's partitions are read from, with leader epochs and topic ids: the source's metadata. Pure."""

from __future__ import annotations

from typing import Final

from klamm_kafka.wire.fields import UUID_ZERO
from klamm_kafka.wire.messages.metadata import MetadataResponse

Key = tuple[str, int]
NO_BROKER: Final = -1


class SourceMetadata:
    """The last answer, and the replicas that leaders have named since.

    `stale` is True while it must be asked for again. `changes` counts changes of `brokers`.
    """

    def __init__(self) -> None:
        self.stale = True
        self.changes = 0
        self.brokers: dict[Key, int] = {}
        """The brokers to read from: leaders, or the replicas that they name."""
        self.epochs: dict[Key, int] = {}
        self.ids: dict[str, bytes] = {}
        self.has_ids = False
        """True if the source tells the id of each topic."""
        self._replicas: set[Key] = set()
        """The partitions that are read from a replica, until the next answer."""
        self._nearest: dict[Key, int] = {}
        """The replicas that were named last, for the log."""

    def learn(self, answer: MetadataResponse) -> None:
        """Takes an answer. Partitions are read from their leaders again."""
        there = {(t.name or "", p.partition_index): p for t in answer.topics for p in t.partitions}
        self.stale = False
        self.ids = {t.name: t.topic_id for t in answer.topics if t.name and t.topic_id != UUID_ZERO}
        self.has_ids = all(name in self.ids for name, _ in there)
        self.epochs = {key: p.leader_epoch for key, p in there.items()}
        self._replicas.clear()
        leaders = {key: p.leader_id for key, p in there.items()}
        if leaders != self.brokers:
            self.brokers = leaders
            self.changes += 1

    def broker(self, key: Key) -> int:
        """Returns the broker to read a partition from; -1 if none is known."""
        return self.brokers.get(key, NO_BROKER)

    def read_from(self, key: Key, replica: int) -> bool:
        """Reads a partition from a replica. Returns True if it is another one than before."""
        new = self._nearest.get(key) != replica
        self._nearest[key] = replica
        self._replicas.add(key)
        self._put(key, replica)
        return new

    def leave_replica(self, key: Key) -> bool:
        """Reads a partition from its leader, once the metadata tell it. Returns False if it is read from there already."""
        if key not in self._replicas:
            return False
        self._replicas.discard(key)
        self.stale = True
        self._put(key, NO_BROKER)
        return True

    def _put(self, key: Key, broker: int) -> None:
        if self.broker(key) != broker:
            self.brokers[key] = broker
            self.changes += 1
