"""Finds a flow back that writes no marks, such as MirrorMaker's, by the offset syncs that it writes.

A flow under `IdentityReplicationPolicy` would copy that flow's copies, which would come back as new records.
"""

from __future__ import annotations

from typing import Final

from klamm_kafka.client import BrokerError, Cluster
from klamm_kafka.wire.errors import ErrorCode
from klamm_mirror.provenance.config import FlowBack
from klamm_mirror.provenance.marks import MarkReader
from klamm_mirror.raw import whole_batches
from klamm_mirror.topics import internal_topics
from klamm_mirror.topics.fields import MalformedRecord
from klamm_mirror.topics.formats import OffsetSync

RECENT_MS: Final = 60_000
"""The age of an offset sync up to which its flow counts as running."""
LAST_SYNCS: Final = 200


async def copied_back_unmarked(
    back: FlowBack, source: Cluster, target: Cluster, marks: MarkReader, now_ms: int
) -> str | None:
    """Returns a topic of ours that the opposite flow copies at present, under its name and without marks.

    `marks` are those of the source. Raises ClientError, ConnectError.
    """
    for sync in await _recent_syncs(back.syncs_topic, target, now_ms):
        if sync.topic in back.topics and not await _exists(source, back.renamed(sync.topic)):
            producers = await _producers_at(source, sync)
            await marks.learn(producers)
            if producers and all(marks.origin(p) is None for p in producers):
                return sync.topic
    return None


async def _recent_syncs(syncs_topic: str, cluster: Cluster, now_ms: int) -> list[OffsetSync]:
    """Returns the latest sync of each partition, where it is fresh."""
    try:
        records = [r async for r in internal_topics.read_present(cluster, syncs_topic, last=LAST_SYNCS)]
    except BrokerError as e:
        if e.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return []
        raise
    found = {}
    for record in records:
        if record.value is not None and record.timestamp >= now_ms - RECENT_MS:
            try:
                sync = OffsetSync.decode(record.key, record.value)
            except MalformedRecord:
                continue  # its reader, the checkpoint task, reports it
            found[sync.topic, sync.partition] = sync
    return list(found.values())


async def _exists(cluster: Cluster, topic: str) -> bool:
    return (await cluster.refresh([topic])).topics[0].error_code == ErrorCode.NONE


async def _producers_at(source: Cluster, sync: OffsetSync) -> set[int]:
    """Returns the producer id of the copied batch (-1: none); an empty set if the batch is gone."""
    offset = sync.downstream_offset
    try:
        data = await internal_topics.fetch(source, sync.topic, offset, partition=sync.partition)
    except BrokerError as e:
        if e.code in {ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}:
            return set()
        raise
    batches = whole_batches(data.records or b"")
    return {h.producer_id for _, h in batches if h.base_offset <= offset < h.next_offset and not h.is_control}
