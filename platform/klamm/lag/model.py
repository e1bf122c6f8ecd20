"""The words of lag: a commit, a status, the status of a partition and of a group. Pure.

Shapes and names of the JSON are those of Burrow's HTTP API v3; what Burrow does not have begins with `time_lag` or `kind`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple

from klamm.admin.model import TopicPartition


class Status(IntEnum):
    """Burrow's states, from the least bad. A group is NOTFOUND, OK, WARN or ERR; a partition any but NOTFOUND and ERR."""

    NOTFOUND = 0
    OK = 1
    WARN = 2
    ERR = 3
    STOP = 4
    STALL = 5
    REWIND = 6


class Commit(NamedTuple):
    """An offset that was committed. `lag` is that of the moment, None where it is not known.

    `order` tells which of two commits came first: the offset of the commit's own record.
    """

    offset: int
    timestamp: int
    observed: int
    lag: int | None
    order: int

    def shown(self) -> dict[str, Any]:
        """Returns the commit in Burrow's JSON."""
        return {
            "offset": self.offset,
            "timestamp": self.timestamp,
            "observedAt": self.observed,
            "lag": self.lag,
        }


class Owner(NamedTuple):
    """The member that reads a partition."""

    host: str = ""
    client_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStatus:
    """A partition as a group reads it. `complete` is the filled part of its window.

    `time_lag_ms` is the age of the next record to be read, None where it is not known.
    """

    partition: TopicPartition
    owner: Owner
    status: Status
    start: Commit | None
    end: Commit | None
    lag: int
    complete: float
    time_lag_ms: int | None = None

    def shown(self) -> dict[str, Any]:
        """Returns the partition in Burrow's JSON."""
        return {
            "topic": self.partition.topic,
            "partition": self.partition.partition,
            "owner": self.owner.host,
            "client_id": self.owner.client_id,
            "status": self.status.name,
            "start": self.start and self.start.shown(),
            "end": self.end and self.end.shown(),
            "current_lag": self.lag,
            "complete": round(self.complete, 5),
            "time_lag_ms": self.time_lag_ms,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupStatus:
    """A group: the worst of its partitions, and sums. `partitions` are in order of topic and number."""

    cluster: str
    group: str
    kind: str
    status: Status
    complete: float
    partitions: tuple[PartitionStatus, ...]
    total_lag: int

    @property
    def max_lag(self) -> PartitionStatus | None:
        """The partition with the largest lag, the first of several."""
        return max(self.partitions, key=lambda p: p.lag, default=None)

    @property
    def time_lag_ms(self) -> int | None:
        """The age of the oldest record that is still to be read."""
        return max((p.time_lag_ms for p in self.partitions if p.time_lag_ms is not None), default=None)

    def shown(self, *, every: bool = True) -> dict[str, Any]:
        """Returns the group in Burrow's JSON, with `every` partition or with those that are not OK."""
        worst = self.max_lag
        return {
            "cluster": self.cluster,
            "group": self.group,
            "status": self.status.name,
            "complete": round(self.complete, 5),
            "partitions": [p.shown() for p in self.partitions if every or p.status > Status.OK],
            "partition_count": len(self.partitions),
            "maxlag": worst and worst.shown(),
            "totallag": self.total_lag,
            "time_lag_ms": self.time_lag_ms,
            "kind": self.kind,
        }


def not_found(cluster: str, group: str) -> GroupStatus:
    """Returns the status of a group that is not known."""
    return GroupStatus(
        cluster=cluster,
        group=group,
        kind="",
        status=Status.NOTFOUND,
        complete=1.0,
        partitions=(),
        total_lag=0,
    )
