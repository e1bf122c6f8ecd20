"""Knows topics that the opposite flow has copied here under names that do not show it: those of its `topic.map`.

The opposite flow's gap ledger, at this flow's source, has the names.
"""

from __future__ import annotations

import logging

from klamm_kafka.client import BrokerError, Cluster
from klamm_mirror.gaps.ledger import Ledger

log = logging.getLogger(__name__)


class MappedNames:
    """The original topics by their copies' names. `topic` is the opposite flow's ledger."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._ledger = Ledger(cluster, topic, 1)
        self._originals: dict[str, str] = {}
        self._refused = False

    async def catch_up(self) -> None:
        """Reads the names. A ledger that is not there, or may not be read, has none. Raises ClientError."""
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
        known = self._ledger.table.topics.values()
        self._originals = {each.named: each.topic for each in known if each.named is not None}

    def original(self, topic: str) -> str | None:
        """Returns the name of the topic that this one is a copy of; None for any other topic."""
        return self._originals.get(topic)
