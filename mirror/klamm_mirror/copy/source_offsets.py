"""Committed source offsets of MirrorSource: MirrorMaker's, and beside them the id of the topic that they count.

An offset is `{"offset": N, "topic_id": "J6Fs8pQkRyKx0nQ0rT1v1A", "leader_epoch": 4}`. MirrorMaker reads `offset` alone,
so both continue where the other stopped. `offset` -1 means that the copy begins with the first record; MirrorMaker takes it
for no offset. Without `offset` the topic is known, but not yet where the copy begins. An offset without an id belongs to the topic that has the name when it is first read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from klamm_mirror import topic_ids
from klamm_plugins.connector import SourceOffset, SourcePartition
from klamm_plugins.errors import ConnectError

_CLUSTER: Final = "cluster"
_TOPIC: Final = "topic"
_PARTITION: Final = "partition"
_OFFSET: Final = "offset"
_ID: Final = "topic_id"
_EPOCH: Final = "leader_epoch"
_REMOTE: Final = "remote"
_COPY: Final = "copy_id"
_COPY_END: Final = "copy_end"


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """The last record of a partition that is at the target (-1: the copy begins with the first; None: not known where).

    `topic_id` and `epoch` (the leader epoch of that record, -1: not known) say which log `offset` counts. `remote` is
    the topic at the target where it is not the one that the replication policy names, `copy_id` that topic's id, `copy_end` the
    end that its log had behind the record (-1: not known).
    """

    offset: int | None
    topic_id: bytes | None = None
    epoch: int = -1
    remote: str | None = None
    copy_id: bytes | None = None
    copy_end: int = -1

    @property
    def next_offset(self) -> int | None:
        """Returns the offset to copy next; None: not known yet."""
        return None if self.offset is None else self.offset + 1

    @property
    def by_another(self) -> bool:
        """Returns True for an offset that no task of ours has committed: MirrorMaker has, or somebody by REST."""
        return self.offset is not None and self.topic_id is None

    def counts(self, *, source: bytes | None, copy: bytes | None, copy_end: int | None = None) -> bool:
        """Returns True while it counts the logs that are there: the topic at the source and its copy have these ids, and the
        copy ends there. None is not known, and passes.
        """
        same_source = None in {source, self.topic_id} or source == self.topic_id
        same_copy = None in {copy, self.copy_id} or copy == self.copy_id
        return same_source and same_copy and (copy_end is None or copy_end >= self.copy_end)

    def encode(self) -> dict[str, Any]:
        """Returns the offset to commit."""
        found: dict[str, Any] = {} if self.offset is None else {_OFFSET: self.offset}
        if self.topic_id is not None:
            found[_ID] = topic_ids.to_text(self.topic_id)
        if self.epoch >= 0:
            found[_EPOCH] = self.epoch
        if self.remote is not None:
            found[_REMOTE] = self.remote
        if self.copy_id is not None:
            found[_COPY] = topic_ids.to_text(self.copy_id)
        if self.copy_end >= 0:
            found[_COPY_END] = self.copy_end
        return found

    @classmethod
    def decode(cls, offset: SourceOffset) -> Position:
        """Reads a committed offset. Raises ConnectError."""
        number, epoch, end = offset.get(_OFFSET), offset.get(_EPOCH, -1), offset.get(_COPY_END, -1)
        for key, value in ((_OFFSET, number), (_EPOCH, epoch), (_COPY_END, end)):
            unknown = key == _OFFSET and value is None and _ID in offset
            if not unknown and (not isinstance(value, int) or isinstance(value, bool) or value < -1):
                raise ConnectError(f"Source offset {dict(offset)}: '{key}' must be a number from -1 on")
        remote = offset.get(_REMOTE)
        if remote is not None and not isinstance(remote, str):
            raise ConnectError(f"Source offset {dict(offset)}: '{_REMOTE}' must be the name of a topic")
        return cls(
            offset=number, topic_id=_topic_id(offset, _ID), epoch=epoch, remote=remote,
            copy_id=_topic_id(offset, _COPY), copy_end=end,
        )  # fmt: skip


def _topic_id(offset: SourceOffset, key: str) -> bytes | None:
    text = offset.get(key)
    try:
        return None if text is None else topic_ids.from_text(str(text))
    except ValueError as e:
        raise ConnectError(f"Source offset {dict(offset)}: '{key}': {e}") from None


def source_partition(alias: str, topic: str, partition: int) -> dict[str, Any]:
    """Returns the key of a partition's committed offset.

    The order is that of MirrorMaker's JSON: it knows an offset by the bytes of its key.
    """
    return {_CLUSTER: alias, _PARTITION: partition, _TOPIC: topic}


def check_partition(partition: SourcePartition) -> None:
    """Raises ConnectError for what is not a key of `source_partition`."""
    for key in (_CLUSTER, _TOPIC, _PARTITION):
        if partition.get(key) is None:
            raise ConnectError(f"Source partition {dict(partition)} has no '{key}', which must be there")
    number = partition[_PARTITION]
    if not isinstance(number, int) or isinstance(number, bool) or number < 0:
        raise ConnectError(f"Source partition has '{_PARTITION}' {number!r}: must be a number from 0 on")


def check_offset(offset: SourceOffset) -> None:
    """Raises ConnectError for what no user may set."""
    if Position.decode(offset).offset is None:
        raise ConnectError(f"Source offset {dict(offset)}: '{_OFFSET}' must be a number from -1 on")


def has_begun(offset: SourceOffset) -> bool:
    """Returns True for a committed offset that says where the copy is."""
    return offset.get(_OFFSET) is not None
