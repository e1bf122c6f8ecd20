"""The settings of following a flow's groups. A value, which needs no client."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from zlib import crc32


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSettings:
    """The groups and topics to follow, and where to write. Durations are in seconds; None means never."""

    syncs_topic: str
    back_syncs_topic: str
    """The offset syncs of the opposite flow. They say where a reader of a mirrored topic continues in the original."""
    segments_topic: str
    back_segments_topic: str
    """The offset segments, which are exact: those of this flow at the target, those of the opposite one at the source."""
    checkpoints_topic: str
    replication_factor: int
    wants_group: Callable[[str], bool]
    wants_topic: Callable[[str], bool]
    gaps_topic: str
    """The gap ledger: a topic that was made anew may have another downstream name."""
    back_gaps_topic: str
    """The gap ledger of the opposite flow, at the source: it has the names of `topic.map`."""
    rename: Callable[[str], str]
    """Returns the downstream name of an upstream topic, by the replication policy."""
    original: Callable[[str], str | None]
    """Returns a mirrored topic's name in the target, where it came from; None for any other topic."""
    keeps_offsets: bool = False
    """True: offsets are the same downstream, and no mapping is read."""
    emit_every_s: float | None = 60
    sync_every_s: float | None = None
    refresh_every_s: float | None = 600
    task: int = 0
    tasks: int = 1

    def is_ours(self, group: str) -> bool:
        """Returns True when this task follows the group: tasks share the groups by a hash of their names."""
        return crc32(group.encode()) % self.tasks == self.task
