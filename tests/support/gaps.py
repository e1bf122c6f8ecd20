"""Gap ledgers in tests: their entries, decisions as `klamm mirror resolve` writes them, and topics that come and go."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection

from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic
from support.broker import wait_until

from klamm_kafka.client import Cluster
from klamm_mirror.gaps import resolve
from klamm_mirror.gaps.entries import Gap
from klamm_mirror.gaps.ledger import Ledger
from klamm_mirror.stops import Action

LEDGER = "mm2-gaps.A.internal"


def gaps(bootstrap: str, topic: str, ledger: str = LEDGER) -> list[Gap]:
    """A topic's gaps, in order of partitions and offsets."""

    async def read() -> list[Gap]:
        async with Cluster(bootstrap) as cluster:
            found = Ledger(cluster, ledger, 1)
            await found.catch_up()
            return sorted(
                (g for g in found.table.gaps.values() if g.topic == topic),
                key=lambda g: (g.partition, g.start),
            )

    return asyncio.run(read())


def decide(
    bootstrap: str,
    topic: str,
    action: Action | None,
    partitions: Collection[int] = (),
    timeout_s: float = 60,
    ledger: str = LEDGER,
) -> list[Gap]:
    """Writes a decision and returns the gaps as they are once the task has dealt with it."""

    async def run() -> list[Gap]:
        async with Cluster(bootstrap) as cluster:
            entries = Ledger(cluster, ledger, 1)
            asked = await resolve.ask(entries, topic, partitions, action, time.time_ns() // 1_000_000)
            told: list[Gap] = []
            left = await resolve.follow(entries, asked, timeout_s, told.append)
            assert not left, left
            return told

    return asyncio.run(run())


def make(bootstrap: str, topic: str, partitions: int = 1, **config: str) -> str:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1, config=config)])[topic].result(60)
    return topic


def delete(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics([topic])[topic].result(60)
    wait_until(lambda: topic not in admin.list_topics(timeout=60).topics, "deleted")


def change(bootstrap: str, topic: str, name: str, value: str) -> None:
    """Sets a config of a topic."""
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": bootstrap})  # it must live until the answer
    admin.incremental_alter_configs([resource])[resource].result(60)
