"""Compares a partition's records in a backup with those of a cluster, row by row in their order: pure.

`by_offset`: both sides have the same topic, so rows belong together by offset. Otherwise they do by their order, because a restored log has other
offsets. `lenient`: compaction may have taken rows from the cluster since.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from klamm_kafka.wire.batch import Record


@dataclass(slots=True, kw_only=True)
class Pairing:
    """A comparison that goes on. Put rows into `backup` and `cluster`, then call `step`."""

    by_offset: bool
    lenient: bool
    equal: int = 0
    compacted: int = 0
    """Rows that only the backup has, where that is no difference."""
    difference: str | None = None
    backup: list[Record] = field(default_factory=list)
    cluster: list[Record] = field(default_factory=list)

    def step(self) -> None:
        """Compare what both sides have."""
        while self.backup and self.cluster and self.difference is None:
            count = min(len(self.backup), len(self.cluster))
            same = self._same(count)
            self.equal += same
            del self.backup[:same], self.cluster[:same]
            if same < count:
                self._unequal()

    def end(self, *, cluster_has_more: bool) -> None:
        """Judge what is left, when the backup is read to its end and the cluster as far as it goes. `cluster_has_more`: rows behind
        the backup's are no difference.
        """
        self.step()
        if self.difference is not None:
            return
        if self.backup and self.lenient:
            self.compacted += len(self.backup)
        elif self.backup:
            self.difference = (
                f"the record at offset {self.backup[0].offset} of the backup is missing in the cluster"
            )
        elif self.cluster and not cluster_has_more:
            self.difference = (
                f"the cluster has a record at offset {self.cluster[0].offset} that the backup lacks"
            )

    def _same(self, count: int) -> int:
        ours, theirs = self.backup[:count], self.cluster[:count]
        if not self.by_offset:
            ours, theirs = _without_offsets(ours), _without_offsets(theirs)
        if ours == theirs:
            return count
        return next(i for i in range(count) if ours[i] != theirs[i])

    def _unequal(self) -> None:
        ours, theirs = self.backup[0], self.cluster[0]
        if self.lenient and (ours.offset < theirs.offset if self.by_offset else True):
            self.compacted += 1
            del self.backup[0]
        elif self.by_offset and ours.offset < theirs.offset:
            self.difference = f"the record at offset {ours.offset} of the backup is missing in the cluster"
        elif self.by_offset and ours.offset > theirs.offset:
            self.difference = f"the cluster has a record at offset {theirs.offset} that the backup lacks"
        else:
            parts = ", ".join(
                name
                for name in ("timestamp", "key", "value", "headers")
                if _part(ours, name) != _part(theirs, name)
            )
            self.difference = f"the record at offset {ours.offset} of the backup has another {parts} at offset {theirs.offset} of the cluster"


def _part(record: Record, name: str) -> object:
    found = getattr(record, name)
    return list(found) if name == "headers" else found


def _without_offsets(rows: Sequence[Record]) -> list[Record]:
    return [row._replace(offset=0) for row in rows]
