"""Finds what former backups of a folder have of topics. Blocks."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Final

from klamm.backup.errors import DamagedError
from klamm.backup.folder import BackupFolder
from klamm.backup.manifest import DATA
from klamm.backup.model import Topic

log = logging.getLogger(__name__)

LOOK_BACK: Final = 20
"""Backups that are looked at: backups of other topics may lie in between."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Former:
    """A topic as a backup has it."""

    topic: Topic
    taken_ms: int
    cluster_id: str

    def is_of(self, cluster_id: str, topic_id: str) -> bool:
        """Return whether it is the topic that the cluster has now. Without ids, brokers cannot tell."""
        return self.topic.id == topic_id and (bool(topic_id) or self.cluster_id == cluster_id)


def former_topics(folder: BackupFolder, ids: Sequence[str], names: Collection[str]) -> dict[str, Former]:
    """Return topics by name, each from the last backup that has it and can be read. Raises BackupError.

    A partition is left out when one of its files is gone, so that it is read anew.
    """
    found: dict[str, Former] = {}
    files = set(folder.store.names(DATA))
    for name in reversed(ids[-LOOK_BACK:]):
        try:
            state = folder.manifest(name).state(folder.key)
        except DamagedError as e:
            log.warning("%s", e)
            continue
        for topic in state.topics:
            if topic.name in names and topic.name not in found:
                whole = _whole(topic, files)
                found[topic.name] = Former(topic=whole, taken_ms=state.taken_ms, cluster_id=state.cluster_id)
        if len(found) == len(names):
            break
    return found


def _whole(topic: Topic, files: Collection[str]) -> Topic:
    """Return the topic with the partitions of which all files are there."""
    whole = []
    for partition in topic.partitions:
        gone = [c.file for c in partition.chunks if c.file not in files]
        if gone:
            log.warning("%s-%d is read anew: %s is not there", topic.name, partition.number, gone[0])
        else:
            whole.append(partition)
    return replace(topic, partitions=tuple(whole))
