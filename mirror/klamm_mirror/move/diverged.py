"""Records that one cluster has and the other lacks: reads them, leaving out what a flow has brought from there.

A client cannot cut the end off a log, so these records stay where they are. They can be copied, or written to a file.
"""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass, field
from typing import Any

from klamm_kafka.client import Cluster
from klamm_kafka.wire.batch import Record, check_crc, decode_records
from klamm_kafka.wire.offset_specs import LATEST
from klamm_mirror.offsets.translation import Partition
from klamm_mirror.provenance.marks import MarkReader
from klamm_mirror.raw import Aborted, whole_batches
from klamm_mirror.topics import internal_topics


@dataclass(frozen=True, slots=True)
class Side:
    """A cluster whose logs are read. `marks` tell what came from the cluster with the id `other`; None: names tell it."""

    cluster: Cluster
    marks: MarkReader | None
    other: str | None


async def own_records(side: Side, partition: Partition, start: int, end: int) -> AsyncIterator[Record]:
    """Yields a partition's committed records from `start` up to `end`, less those of the other cluster. Raises ClientError.

    `end` lies before the first open transaction: what is behind that is not read before its end.
    """
    topic, number = partition
    offset = start
    while offset < end:
        data = await internal_topics.fetch(side.cluster, topic, offset, partition=number, committed=True)
        buffer = data.records or b""
        batches = list(whole_batches(buffer))
        if side.marks is not None:
            await side.marks.learn({h.producer_id for _, h in batches})
        aborted = Aborted.of([(a.producer_id, a.first_offset) for a in data.aborted_transactions or ()])
        for pos, header in batches:
            check_crc(buffer, pos, header)
            if header.is_control:
                aborted.end(header, decode_records(buffer, pos))
            elif not aborted.hides(header) and not _came(side, header.producer_id):
                for record in decode_records(buffer, pos):
                    if start <= record.offset < end:
                        yield record
        offset = max(internal_topics.next_offset(data), offset)


async def glance(side: Side, partition: Partition, ends: tuple[int, int], show: int) -> Tail:
    """Returns a tail that may be long without reading it: offsets count as records, its first and last tell the times.

    Raises ClientError.
    """
    start, end = ends
    tail = Tail(topic=partition[0], partition=partition[1], start=start, end=end)
    settled = await internal_topics.offset_of(
        side.cluster, partition[0], LATEST, partition=partition[1], committed=True
    )
    async for record in own_records(side, partition, start, min(end, settled)):
        tail.add(record, show)
        if tail.records >= max(show, 1):
            break
    last = await internal_topics.fetch(side.cluster, partition[0], end - 1, partition=partition[1])
    latest = [h.max_timestamp for _, h in whole_batches(last.records or b"")]
    tail.last_ms = max([t for t in (*latest, tail.last_ms) if t is not None], default=None)
    tail.records = end - start
    return tail


def _came(side: Side, producer_id: int) -> bool:
    origin = None if side.marks is None or producer_id < 0 else side.marks.origin(producer_id)
    return origin is not None and origin.cluster == side.other


@dataclass(slots=True, kw_only=True)
class Tail:
    """The records of a partition that the other cluster lacks, from `start` up to `end`. `lost`: offsets that the other has
    copied, and that are gone here.
    """

    topic: str
    partition: int
    start: int
    end: int
    lost: int = 0
    records: int = 0
    first_ms: int | None = None
    last_ms: int | None = None
    shown: list[dict[str, Any]] = field(default_factory=list)

    def add(self, record: Record, show: int) -> None:
        """Counts a record; keeps the first `show` of them to look at."""
        self.records += 1
        self.first_ms = record.timestamp if self.first_ms is None else min(self.first_ms, record.timestamp)
        self.last_ms = record.timestamp if self.last_ms is None else max(self.last_ms, record.timestamp)
        if len(self.shown) < show:
            self.shown.append(as_row(self.topic, self.partition, record))

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def as_row(topic: str, partition: int, record: Record) -> dict[str, Any]:
    """Returns a record as JSON: text where it is UTF-8, else `base64:…`."""
    return {
        "topic": topic, "partition": partition, "offset": record.offset, "timestamp": record.timestamp,
        "key": _text(record.key), "value": _text(record.value),
        "headers": [[name, _text(value)] for name, value in record.headers],
    }  # fmt: skip


def as_line(topic: str, partition: int, record: Record) -> bytes:
    """Returns a record as a line of a file that has everything: keys, values and headers in base64."""
    row = {
        "topic": topic, "partition": partition, "offset": record.offset, "timestamp": record.timestamp,
        "key": _base64(record.key), "value": _base64(record.value),
        "headers": [[name, _base64(value)] for name, value in record.headers],
    }  # fmt: skip
    return json.dumps(row).encode() + b"\n"


def _base64(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _text(data: bytes | None) -> str | None:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return f"base64:{base64.b64encode(data).decode()}"
