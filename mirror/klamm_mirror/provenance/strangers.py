"""Finds records of a partition that a flow's source did not write, by the marks of their producers."""

from __future__ import annotations

from klamm_kafka.client import Cluster
from klamm_kafka.wire.offset_specs import EARLIEST, LATEST
from klamm_mirror.provenance.marks import MarkReader
from klamm_mirror.raw import whole_batches
from klamm_mirror.topics import internal_topics


async def first_stranger(
    cluster: Cluster, marks: MarkReader, source: str, topic: str, partition: int
) -> int | None:
    """Returns the first batch's offset that was not first written at the cluster with the id `source`; None: there is none.

    `marks` are those of `cluster`, which holds the partition. Raises ClientError, ConnectError.
    """
    end = await internal_topics.offset_of(cluster, topic, LATEST, partition=partition)
    offset = await internal_topics.offset_of(cluster, topic, EARLIEST, partition=partition)
    while offset < end:
        data = await internal_topics.fetch(cluster, topic, offset, partition=partition)
        headers = [h for _, h in whole_batches(data.records or b"")]
        await marks.learn(h.producer_id for h in headers)
        for header in headers:
            origin = marks.origin(header.producer_id)
            if not header.is_control and header.record_count and (origin is None or origin.cluster != source):
                return header.base_offset
        offset = max(internal_topics.next_offset(data), offset)
    return None
