"""Writes to one of the mirror's own topics: the base of the writers of offset syncs and offset segments."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from typing import ClassVar, Final

from klamm_kafka.client import ClientError

log = logging.getLogger(__name__)

BACKOFF_S: Final = 2.0


class TopicWriter(ABC):
    """Writes what has come, again and again until it is cancelled. Waits for a broker that is away."""

    WRITES: ClassVar[str]
    """The name of its entries in the log."""
    PAUSE_S: ClassVar[float]

    def __init__(self) -> None:
        self.why: str | None = None
        """The error that it waits for; None while the broker answers."""

    @abstractmethod
    async def flush(self) -> None:
        """Writes all that waits. After a ClientError it still waits."""

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self.PAUSE_S)
            try:
                await self.flush()
            except ClientError as e:
                if self.why is None:
                    log.warning("%s wait: %s", self.WRITES, e)
                self.why = str(e)
                await asyncio.sleep(BACKOFF_S)
            else:
                self.why = None
