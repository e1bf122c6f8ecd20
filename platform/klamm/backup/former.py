"""Finds what former backups of a folder have of topics. Blocks."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from klamm.backup.errors import DamagedError
from klamm.backup.folder import BackupFolder
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
    """Return topics by name, each from the last backup that has it and can be read. Raises BackupError."""
    found: dict[str, Former] = {}
    for name in reversed(ids[-LOOK_BACK:]):
        try:
            state = folder.manifest(name).state(folder.key)
        except DamagedError as e:
            log.warning("%s", e)
            continue
        for topic in state.topics:
            if topic.name in names and topic.name not in found:
                found[topic.name] = Former(topic=topic, taken_ms=state.taken_ms, cluster_id=state.cluster_id)
        if len(found) == len(names):
            break
    return found
