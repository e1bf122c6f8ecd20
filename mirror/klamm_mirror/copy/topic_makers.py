"""Remembers who made the topics that took a name at the source: a flow to the source, or somebody else.

The flow enters a topic that it makes in its ledger a moment behind the making, so a first no is not final.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

ASK_S: Final = 2.0
"""Seconds between two questions."""
SURE_S: Final = 6.0
"""Seconds after the first question when a no is final."""


class TopicMakers:
    """The answers by topic id. `made_by_mirror` looks into the ledgers at the source. Time is passed in."""

    def __init__(self, made_by_mirror: Callable[[bytes], Awaitable[bool]]) -> None:
        self._look = made_by_mirror
        self._known: dict[bytes, bool] = {}
        self._asked: dict[bytes, tuple[float, float]] = {}
        """When each topic was asked about first, and last."""

    async def made_by_mirror(self, topic_id: bytes, now: float) -> bool | None:
        """Returns True for a topic that a flow made as a copy, False for any other; None: not known yet. Raises ClientError."""
        if topic_id in self._known:
            return self._known[topic_id]
        first, last = self._asked.get(topic_id, (now, now - ASK_S))
        if now - last < ASK_S:
            return None
        made = await self._look(topic_id)
        self._asked[topic_id] = first, now
        if made or now - first >= SURE_S:
            self._known[topic_id] = made
        return self._known.get(topic_id)
