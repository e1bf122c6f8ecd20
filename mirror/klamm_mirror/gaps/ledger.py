"""The gap ledger's topic: reads its latest entries, and writes new ones. One event loop. Raises ClientError."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from klamm_kafka.client import BrokerError, Cluster
from klamm_kafka.wire.batch import Record
from klamm_kafka.wire.errors import ErrorCode
from klamm_mirror.gaps.entries import Gap, GapTable, Known, decode
from klamm_mirror.settings.policy import ReplicationPolicy
from klamm_mirror.target_admin import Admin
from klamm_mirror.topics import internal_topics
from klamm_mirror.topics.follower import TopicFollower

BATCH_RECORDS: Final = 500


def ledger_of(target: Cluster, policy: ReplicationPolicy, parsed: Mapping[str, Any]) -> Ledger:
    """Returns the ledger of a flow, not read yet. `parsed` is the source connector's configuration."""
    topic = policy.gaps_topic(parsed["source.cluster.alias"])
    return Ledger(target, topic, parsed["mirror.gaps.topic.replication.factor"])


async def table_of(target: Cluster, policy: ReplicationPolicy, parsed: Mapping[str, Any]) -> GapTable:
    """Returns the latest entries of a flow's ledger. Raises ClientError."""
    ledger = ledger_of(target, policy, parsed)
    await ledger.catch_up()
    return ledger.table


async def remotes_of(target: Cluster, policy: ReplicationPolicy, parsed: Mapping[str, Any]) -> dict[str, str]:
    """Returns the target's names of topics that were made anew, where they are not the policy's. Raises ClientError."""
    return (await table_of(target, policy, parsed)).remotes()


class Ledger(TopicFollower):
    """The ledger of one flow. `cluster` is a client of the target; `table` holds what was read and written."""

    def __init__(self, cluster: Cluster, topic: str, replication_factor: int) -> None:
        super().__init__(cluster, topic)
        self.table = GapTable()
        self._replication_factor = replication_factor

    async def make(self, admin: Admin | None = None) -> None:
        """Creates the topic, unless it exists. `admin` creates it instead of a request."""
        await internal_topics.create(self._cluster, self.topic, self._replication_factor, admin=admin)

    async def write(self, entries: Sequence[Gap | Known]) -> None:
        """Appends entries, and makes the topic if it is not there. All in-sync replicas have them when it returns."""
        now_ms = time.time_ns() // 1_000_000
        for at in range(0, len(entries), BATCH_RECORDS):
            part = entries[at : at + BATCH_RECORDS]
            records = internal_topics.as_records(part, now_ms)
            try:
                await internal_topics.produce(self._cluster, self.topic, records)
            except BrokerError as e:
                if e.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise
                await self.make()
                await internal_topics.produce(self._cluster, self.topic, records)
            for entry in part:
                self.table.apply(entry)

    def reset(self) -> None:
        self.table = GapTable()

    def take(self, record: Record) -> None:
        if record.value is not None:
            self.table.apply(decode(record.key, record.value))
