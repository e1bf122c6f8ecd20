"""Requests about log directories, and what is answered, in short."""

from __future__ import annotations

from pathlib import Path

from klamm_kafka.client import Connection
from klamm_kafka.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from klamm_kafka.wire.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from klamm_kafka.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic

Described = dict[str, tuple[int, dict[tuple[str, int, bool], tuple[int, int]], tuple[int, int]]]
"""By directory: error code, (size, lag) by topic, partition and whether it is being moved there, (total, usable) bytes."""


def move(path: Path, topic: str, *partitions: int) -> AlterReplicaLogDirsRequest:
    return AlterReplicaLogDirsRequest(
        dirs=[
            AlterReplicaLogDir(
                path=str(path), topics=[AlterReplicaLogDirTopic(name=topic, partitions=list(partitions))]
            )
        ]
    )


async def describe(connection: Connection, topics: list[DescribableLogDirTopic] | None = None) -> Described:
    answer = await connection.request(DescribeLogDirsRequest(topics=topics), 4)
    assert answer.error_code == 0
    return {
        result.log_dir: (
            result.error_code,
            {
                (t.name, p.partition_index, p.is_future_key): (p.partition_size, p.offset_lag)
                for t in result.topics
                for p in t.partitions
            },
            (result.total_bytes, result.usable_bytes),
        )
        for result in answer.results
    }


def fetch_request(topic: str, offset: int, *, partition: int = 0, wait_ms: int = 100) -> FetchRequest:
    part = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20)
    return FetchRequest(
        replica_id=-1, max_wait_ms=wait_ms, min_bytes=1, max_bytes=1 << 20, isolation_level=0, session_id=0,
        session_epoch=-1, rack_id="", topics=[FetchTopic(topic=topic, partitions=[part])],
    )  # fmt: skip
