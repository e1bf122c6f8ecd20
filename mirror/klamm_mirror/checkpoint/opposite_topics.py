"""Knows the topics that the opposite flow has copied here: their names, and whether they are still there.

A copy's name does not always show its original: `topic.map` names it, or the original was made anew. A topic that was made
anew at the target has other records behind the same offsets. The opposite flow's gap ledger, at this flow's source, has names and ids.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping

from klamm_kafka.client import BrokerError, Cluster
from klamm_mirror.gaps.entries import Known
from klamm_mirror.gaps.ledger import Ledger
from klamm_mirror.offsets.translation import Partition

log = logging.getLogger(__name__)


class OppositeTopics:
    """The originals at `target` of copies at `source`. `topic` is the opposite flow's ledger, at `source`."""

    def __init__(self, source: Cluster, target: Cluster, topic: str) -> None:
        self._ledger = Ledger(source, topic, 1)
        self._target = target
        self._originals: dict[str, str] = {}
        self._since: Mapping[Partition, float] = {}
        self._ids: Mapping[str, bytes] = {}
        self._refused = False

    async def catch_up(self) -> None:
        """Reads the ledger. One that is not there, or may not be read, has nothing. Raises ClientError."""
        try:
            await self._ledger.catch_up()
        except BrokerError as e:
            if e.retriable:
                raise
            if not self._refused:
                log.warning(
                    "groups that read topics of topic.map are not translated back: %s: %s",
                    self._ledger.topic,
                    e,
                )
            self._refused = True
        known = self._topics.values()
        self._originals = {
            name: each.topic for each in known if (name := each.remote or each.named) is not None
        }
        self._since = self._ledger.table.mapped_since()

    async def learn(self, originals: Iterable[str]) -> None:
        """Asks the target which ids these topics have there by now. Raises ClientError."""
        wanted = sorted(set(originals) & self._topics.keys())
        found = (await self._target.refresh(wanted)).topics if wanted else ()
        self._ids = {t.name: t.topic_id for t in found if t.name is not None}

    @property
    def _topics(self) -> Mapping[str, Known]:
        return self._ledger.table.topics

    def original(self, copy: str) -> str | None:
        """Returns the name of the topic that this one is a copy of, if the name does not show it; else None."""
        return self._originals.get(copy)

    def is_copy(self, original: str, copy: str) -> bool:
        """Returns False for a copy that the opposite flow has left behind: the original was made anew, and has another."""
        known = self._topics.get(original)
        return known is None or known.remote in {None, copy}

    def is_mapped(self, original: str, partition: int) -> bool:
        """Returns False where the mapping back may lead into another topic than the target's: one that was deleted."""
        return self.mapped_since(original, partition) < math.inf

    def mapped_since(self, original: str, partition: int) -> float:
        """Returns the time (ms) before which an offset in this partition may be one of a topic that was deleted; infinite:
        now, too. Ask `learn` first.
        """
        known = self._topics.get(original)
        if known is not None and self._ids.get(original) != known.topic_id:
            return math.inf
        return self._since.get((original, partition), -math.inf)
