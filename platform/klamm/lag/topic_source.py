"""Follows a topic of commits: `__consumer_offsets` of a cluster, or the offsets of a mirror's or worker's sources.

The topic need not exist yet. Each partition is read on from where it was left; where that is gone, from its beginning.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final, Protocol

from klamm.admin.client import Admin
from klamm.admin.errors import AdminError
from klamm.admin.model import TopicPartition
from klamm.admin.offsets import known_offsets
from klamm.lag.commits import CommitReader
from klamm.lag.fetching import fetch, whole
from klamm.lag.sources import Position
from klamm_kafka.wire.batch import Record, decode_records, iter_headers
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.offset_specs import EARLIEST, LATEST

log = logging.getLogger(__name__)

MIRROR_TOPICS: Final = r"mm2-offsets\..*\.internal"


class Reader(Protocol):
    """Reads one partition of such a topic."""

    @property
    def position(self) -> int:
        """The next offset to be read."""
        ...

    @property
    def unfinished(self) -> int:
        """The offset at which another reader has to begin."""
        ...

    def positions(self, data: memoryview) -> Iterator[Position]:
        """Yields what whole batches tell."""
        ...


class GroupReader:
    """Reads commits of groups."""

    def __init__(self, cluster: str, position: int, wanted: Callable[[str], bool]) -> None:
        self._cluster = cluster
        self._wanted = wanted
        self._commits = CommitReader(position)

    @property
    def position(self) -> int:
        return self._commits.position

    @property
    def unfinished(self) -> int:
        return self._commits.unfinished

    def positions(self, data: memoryview) -> Iterator[Position]:
        for seen in self._commits.read(data):
            if self._wanted(seen.group):
                yield Position(
                    self._cluster, seen.group, "", seen.partition, seen.offset, seen.timestamp, seen.order
                )


class MirrorReader:
    """Reads the offsets of MirrorSource connectors at their target: positions in the cluster that a flow copies from."""

    def __init__(self, target: str, position: int, wanted: Callable[[str], bool]) -> None:
        self._target = target
        self._wanted = wanted
        self.position = position

    @property
    def unfinished(self) -> int:
        return self.position

    def positions(self, data: memoryview) -> Iterator[Position]:
        for at, header in iter_headers(data):
            if not header.is_control:
                for record in decode_records(data, at):
                    found = self._position(record) if record.offset >= self.position else None
                    if found is not None and self._wanted(found.group):
                        yield found
            self.position = max(self.position, header.next_offset)

    def _position(self, record: Record) -> Position | None:
        """Returns the position in a record; None for a record of another connector."""
        try:
            _, of = json.loads(record.key or b"")
            place = TopicPartition(of["topic"], int(of["partition"]))
            source, copied = of["cluster"], None if record.value is None else json.loads(record.value)
            offset = (
                None if copied is None else int(copied["offset"]) + 1
            )  # of the last record that was copied
        except (ValueError, TypeError, KeyError):
            return None
        flow = f"{source}->{self._target}"
        return Position(source, flow, "mirror", place, offset, record.timestamp, record.offset)


class TopicSource:
    """The topics of a cluster whose names match `topics`, read by readers that `reader` makes."""

    def __init__(
        self,
        admin: Admin,
        topics: str,
        reader: Callable[[int], Reader],
        begin: Mapping[TopicPartition, int],
        *,
        latest: bool = False,
    ) -> None:
        self.name = topics
        self._admin = admin
        self._exact = re.escape(topics) == topics.replace("-", r"\-")
        self._topics = re.compile(topics)
        self._reader = reader
        self._begin = dict(begin)
        self._first = LATEST if latest else EARLIEST
        self._readers: dict[TopicPartition, Reader] = {}
        self._behind: set[TopicPartition] = set()
        self._looked_ms = -1_000_000
        self._polled = False

    @property
    def caught_up(self) -> bool:
        return self._polled and not self._behind

    def places(self) -> dict[TopicPartition, int]:
        return {tp: reader.unfinished for tp, reader in self._readers.items()}

    async def poll(self, now_ms: int) -> list[Position]:
        if now_ms - self._looked_ms > 60_000 or not self._readers:
            await self._find()
            self._looked_ms = now_ms
        self._polled = True
        if not self._readers:
            return []
        wanted = {tp: reader.position for tp, reader in self._readers.items()}
        found: list[Position] = []
        for tp, data in (await fetch(self._admin, wanted, wait_ms=0)).items():
            if isinstance(data, AdminError):
                self._refused(tp, data)
                continue
            reader = self._readers[tp]
            found += reader.positions(whole(data.records or b""))
            (self._behind.add if reader.position < data.high_watermark else self._behind.discard)(tp)
        return found

    async def _find(self) -> None:
        answer = await self._admin.metadata([self.name] if self._exact else None)
        for topic in answer.topics:
            if topic.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                raise AdminError(topic.error_code, f"cannot read {topic.name}")
        there = {
            TopicPartition(t.name or "", p.partition_index)
            for t in answer.topics
            if not t.error_code and self._topics.fullmatch(t.name or "")
            for p in t.partitions
        }
        for tp in self._readers.keys() - there:
            del self._readers[tp]
            self._behind.discard(tp)
        if fresh := there - self._readers.keys() - self._begin.keys():
            self._begin |= await known_offsets(self._admin, fresh, self._first)
        for tp in there - self._readers.keys():
            self._readers[tp] = self._reader(self._begin.pop(tp))
            self._behind.add(tp)

    def _refused(self, tp: TopicPartition, error: AdminError) -> None:
        if error.code in {ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}:
            log.warning("%s: what was to be read next is gone; it is read from its beginning", tp)
            del self._readers[tp]
            self._behind.discard(tp)
            self._looked_ms = -1_000_000
        else:
            raise error
