"""DeleteRecords (21), up to an offset, and DescribeLogDirs (35)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from klamm.admin.client import Admin
from klamm.admin.errors import AdminError
from klamm.admin.model import TopicPartition, by_topic
from klamm_kafka.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from klamm_kafka.wire.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """A directory's replica of a partition: its size in bytes, and the `lag` in records while it is catching up."""

    partition: TopicPartition
    size: int
    lag: int
    future: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDir:
    """A log directory of a broker. Byte counts of the file system are None where the broker does not tell them."""

    broker: int
    path: str
    error: AdminError | None
    replicas: tuple[Replica, ...]
    total_bytes: int | None
    usable_bytes: int | None


async def delete_records(
    admin: Admin, before: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int | AdminError]:
    """Delete what is before each offset (-1: everything): the new log start, or why not."""

    async def call(node_id: int, mine: list[TopicPartition]) -> Mapping[TopicPartition, Any]:
        topics = [
            DeleteRecordsTopic(
                name=t,
                partitions=[
                    DeleteRecordsPartition(partition_index=p, offset=before[TopicPartition(t, p)])
                    for p in ids
                ],
            )
            for t, ids in by_topic(mine).items()
        ]
        request = DeleteRecordsRequest(topics=topics, timeout_ms=admin.timeout_ms)
        answer = await admin.ask_broker(node_id, request)
        return {
            tp: AdminError(p.error_code, str(tp)) if p.error_code else p.low_watermark
            for t in answer.topics
            for p in t.partitions
            for tp in [TopicPartition(t.name, p.partition_index)]
        }

    return await admin.by_leader(list(before), call)


async def describe_log_dirs(
    admin: Admin, brokers: Collection[int], partitions: Collection[TopicPartition] | None = None
) -> list[LogDir]:
    """Return the log directories of these brokers, with these partitions (None: all). Raises AdminError, ClientError."""
    asked = None
    if partitions is not None:
        asked = [DescribableLogDirTopic(topic=t, partitions=ids) for t, ids in by_topic(partitions).items()]
    result: list[LogDir] = []
    for node_id in sorted(brokers):
        answer = await admin.ask_broker(node_id, DescribeLogDirsRequest(topics=asked))
        if answer.error_code:
            raise AdminError(answer.error_code, f"cannot describe the log directories of broker {node_id}")
        result += [_directory(node_id, found) for found in answer.results]
    return result


def _directory(node_id: int, found: Any) -> LogDir:
    replicas = [
        Replica(
            partition=TopicPartition(t.name, p.partition_index),
            size=p.partition_size,
            lag=p.offset_lag,
            future=p.is_future_key,
        )
        for t in found.topics
        for p in t.partitions
    ]
    return LogDir(
        broker=node_id,
        path=found.log_dir,
        error=AdminError(found.error_code, found.log_dir) if found.error_code else None,
        replicas=tuple(sorted(replicas, key=lambda r: (r.partition, r.future))),
        total_bytes=found.total_bytes if found.total_bytes >= 0 else None,
        usable_bytes=found.usable_bytes if found.usable_bytes >= 0 else None,
    )
