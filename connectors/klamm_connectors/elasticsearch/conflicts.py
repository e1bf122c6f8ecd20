"""Counts documents that the server kept because its own version is as new, so that the task can report them.
No I/O.

Records that are read again after a restart cause such conflicts, which are harmless. A topic that was
recreated, or got more partitions, has lower offsets than the versions in the index: then records are lost.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from klamm_connectors.elasticsearch.buffer import Document
from klamm_plugins.records import TopicPartition

_CURRENT: Final = re.compile(r"current version \[(\d+)\]")


@dataclass(slots=True)
class _Seen:
    first: Document
    count: int = 0
    highest: int = -1
    created: bool = False


class Conflicts:
    """Conflicts since the last report.

    With `offsets_are_versions`, a version beyond the partition's last record means that another partition wrote
    it.
    """

    def __init__(self, *, offsets_are_versions: bool) -> None:
        self._offsets_are_versions = offsets_are_versions
        self._seen: dict[TopicPartition, _Seen] = {}

    def add(self, document: Document, action: str, reason: str) -> None:
        """Counts a version conflict of `document`. `action` is the bulk request's, `reason` the server's."""
        seen = self._seen.setdefault(document.record.original_topic_partition, _Seen(document))
        seen.count += 1
        seen.created = seen.created or action == "create"
        if (found := _CURRENT.search(reason)) and int(found[1]) > seen.highest:
            seen.first, seen.highest = document, int(found[1])

    def take(self, ends: Mapping[TopicPartition, int]) -> list[tuple[bool, str]]:
        """Returns what was counted since the last call: whether it is a reason to worry, and a sentence.

        `ends` are the offsets up to which records of each partition arrived.
        """
        found, self._seen = self._seen, {}
        return [
            (self._worrying(seen, ends.get(place, 0)), _sentence(place, seen))
            for place, seen in found.items()
        ]

    def _worrying(self, seen: _Seen, end: int) -> bool:
        return seen.created or (self._offsets_are_versions and seen.highest >= end)


def _sentence(place: TopicPartition, seen: _Seen) -> str:
    many = f"{seen.count} records of {place.topic}-{place.partition} were not written to {seen.first.index}"
    if seen.created:
        why = "documents with their ids are there"
        if seen.first.id is not None:
            why += ", and a data stream takes an id once: set key.ignore=true to keep all records of a key"
    else:
        at = f"record at offset {seen.first.record.offset}, version there {seen.highest}"
        why = f"their documents are there in a version as high or higher ({at})"
    usual = "Right after a restart these are records that come again"
    return f"{many}: {why}. {usual}; otherwise the topic was made anew or got more partitions, or others write there"
