"""A worker group's eventful life, for tests: see `Churn`."""

from __future__ import annotations

import asyncio
import random
from contextlib import AsyncExitStack

from support.cutting_proxy import CuttingProxy
from support.worker_group import Group


class Churn:
    """Workers that come, go, crash and are cut off, while the configuration changes. The seed tells the course."""

    def __init__(self, group: Group, seed: int, proxies: AsyncExitStack | None = None) -> None:
        self.group = group
        self.rng = random.Random(seed)
        self.number = 0
        self.stack = proxies
        self.proxies: dict[str, CuttingProxy] = {}

    async def run(self, rounds: int) -> None:
        self.group.topic.put(a=5, b=3)
        for _ in range(2):
            await self.join()
        kinds = [self.join, self.leave, self.crash, self.change, self.change]
        if self.stack is not None:
            kinds += [self.cut, self.cut_for_long]
        for _ in range(rounds):
            await self.rng.choice(kinds)()
            if self.rng.random() < 0.5:
                await self.group.until(timeout_s=60)
        await self.group.until(timeout_s=60)
        assert self.group.arena.clashes == []

    async def join(self) -> None:
        if len(self.group.members) == 5:
            return await self.change()
        name, make_cluster = f"w{self.number}", None
        self.number += 1
        if self.stack is not None:
            proxy = await self.stack.enter_async_context(CuttingProxy(self.group.bootstrap))
            self.proxies[name], make_cluster = proxy, proxy.cluster
        await self.group.start(name, make_cluster=make_cluster)
        return None

    def _anyone(self) -> str:
        return self.rng.choice(sorted(self.group.members))

    async def leave(self) -> None:
        if len(self.group.members) > 1:
            await self.group.leave(self._anyone())

    async def crash(self) -> None:
        if len(self.group.members) > 1:
            await self.group.crash(self._anyone())

    async def change(self) -> None:
        await self.group.change(**{self.rng.choice("abc"): self.rng.randint(0, 8)})

    async def cut(self) -> None:
        self.proxies[self._anyone()].reset()

    async def cut_for_long(self) -> None:
        proxy = self.proxies[self._anyone()]
        proxy.drop()
        await asyncio.sleep(self.rng.choice([0.2, 1.5]))
        proxy.restore()
