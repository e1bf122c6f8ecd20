"""One worker per `group.id`."""

from __future__ import annotations

import asyncio

from klamm.connect.config import WorkerConfig


class Membership:
    def __init__(self, *, config: WorkerConfig, worker_id: str, url: str) -> None:
        self._config = config

    async def join(self) -> int:
        return 1

    async def lost(self) -> None:
        await asyncio.Event().wait()

    async def leave(self) -> None:
        return
