"""Offsets of groups in copies that keep offsets: those of the source, as far as the copy has the records.

A group that is ahead of its copy continues at the copy's end, and moves on with it. Once a copy is promoted, its groups
are its own. Raises ClientError.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from klamm_kafka.client import Cluster
from klamm_kafka.wire.offset_specs import LATEST
from klamm_mirror.offsets.mapping import Translated
from klamm_mirror.offsets.translation import Partition
from klamm_mirror.settings.keep_offsets import MIRROR
from klamm_mirror.topics import internal_topics
from klamm_mirror.topics.mirror_states import states_of

UNKNOWN: Final = Translated(None, exact=False)


class KeptOffsets:
    """Translates offsets of the source's groups. `remote` names a topic's copy at the target."""

    def __init__(self, target: Cluster, remote: Callable[[str], str]) -> None:
        self._target = target
        self._remote = remote
        self._ends: dict[Partition, int] = {}
        self._mirrors: set[str] = set()

    async def learn(self, partitions: Iterable[Partition]) -> None:
        """Asks where the copies of these partitions end by now, and which are promoted."""
        remote = {(topic, p): (self._remote(topic), p) for topic, p in partitions}
        states = await states_of(self._target, sorted({topic for topic, _ in remote.values()}))
        self._mirrors = {topic for topic, state in states.items() if state == MIRROR}
        wanted = [place for place in remote.values() if place[0] in self._mirrors]
        ends = await internal_topics.offsets_of(self._target, wanted, LATEST) if wanted else {}
        self._ends = {place: ends[at] for place, at in remote.items() if at in ends}

    def follows(self, topic: str) -> bool:
        """Returns True for a topic whose copy is there and not promoted."""
        return self._remote(topic) in self._mirrors

    def is_mirror(self, remote: str) -> bool:
        """Returns True for a topic of the target that is a copy and not promoted."""
        return remote in self._mirrors

    def ends(self) -> dict[Partition, int]:
        """Returns the ends of the copies by upstream partition."""
        return self._ends

    def translate(self, topic: str, partition: int, offset: int) -> Translated:
        """Returns the offset in the copy."""
        end = self._ends.get((topic, partition))
        return UNKNOWN if end is None else Translated(min(offset, end), exact=offset <= end)
