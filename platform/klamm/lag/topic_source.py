"""Follows a topic of commits: `__consumer_offsets` of a cluster, or the offsets of a mirror's or worker's sources.

The topic need not exist yet. Each partition is read on from where it was left; where that is gone, from its beginning.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Final, Protocol

from klamm.admin.client import Admin, passing
from klamm.admin.errors import AdminError
from klamm.admin.model import TopicPartition
from klamm.admin.offsets import list_offsets
from klamm.lag.commits import CommitReader, Seen
from klamm.lag.fetching import fetch, whole
from klamm.lag.sources import Position
from klamm_base.errors import KlammError
from klamm_broker.coordinator.partitioning import partition_for
from klamm_kafka.wire.batch import Record
from klamm_kafka.wire.errors import ErrorCode, ProtocolError
from klamm_kafka.wire.offset_specs import EARLIEST, LATEST

log = logging.getLogger(__name__)

MIRROR_TOPICS: Final = r"mm2-offsets\..*\.internal"
PASSING_MS: Final = 10_000
"""A partition may be without a leader for so long, before it is said."""
LATE_S: Final = 2.0
"""An answer that takes longer says nothing of what was committed meanwhile."""
AWAY_MS: Final = 5_000
"""Readers, too, lose what does not answer for so long."""
_LOOK_MS: Final = 60_000

Holds = Callable[[str, str, str, TopicPartition, int], bool]
"""Tells of a cluster, group and kind, and of a partition and how many its topic has, whether it may hold the group's positions."""


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


def group_holds(of: str) -> Holds:
    """Returns where coordinators of cluster `of` keep the positions of groups."""

    def holds(cluster: str, group: str, kind: str, tp: TopicPartition, count: int) -> bool:
        told = cluster == of and kind not in ("mirror", "spark")
        return told and partition_for(group, max(count, 1)) == tp.partition

    return holds


def mirror_holds(target: str) -> Holds:
    """Returns where the positions of mirror flows to `target` are: in any partition."""
    return lambda _cluster, group, kind, _tp, _count: kind in ("mirror", "") and group.endswith(f"->{target}")


class MirrorReader:
    """Reads the offsets of MirrorSource connectors at their target: positions in the cluster that a flow copies from. With exactly once they
    are in transactions.
    """

    def __init__(self, target: str, position: int, wanted: Callable[[str], bool]) -> None:
        self._to = f"->{target}"
        self._wanted = wanted
        self._commits = CommitReader(position, self._seen)

    @property
    def position(self) -> int:
        return self._commits.position

    @property
    def unfinished(self) -> int:
        return self._commits.unfinished

    def positions(self, data: memoryview) -> Iterator[Position]:
        for seen in self._commits.read(data):
            if self._wanted(seen.group):
                source = seen.group.removesuffix(self._to)
                yield Position(
                    source, seen.group, "mirror", seen.partition, seen.offset, seen.timestamp, seen.order
                )

    def _seen(self, record: Record) -> Seen | None:
        """Returns the position in a record; None for a record of another connector."""
        try:
            _, of = json.loads(record.key or b"")
            place = TopicPartition(of["topic"], int(of["partition"]))
            copied = None if record.value is None else json.loads(record.value)
            offset = (
                None if copied is None else int(copied["offset"]) + 1
            )  # of the last record that was copied
            return Seen(f"{of['cluster']}{self._to}", place, offset, record.timestamp, record.offset)
        except (ValueError, TypeError, KeyError):
            return None


class TopicSource:
    """The topics of a cluster whose names match `topics`, read by readers that `reader` makes. `holds` tells whether a partition (of so
    many) may hold positions of a group.

    Each partition stands for itself: one that cannot be read keeps the others from nothing.
    """

    def __init__(
        self,
        admin: Admin,
        topics: str,
        reader: Callable[[int], Reader],
        begin: Mapping[TopicPartition, int],
        *,
        latest: bool = False,
        holds: Holds = lambda *_: True,
        patience_ms: int = 0,
    ) -> None:
        """`patience_ms`: readers have so long to commit again after what could not be read."""
        self.name = topics
        self.trouble: str | None = None
        self.began_anew = False
        self._admin = admin
        self._exact = re.escape(topics) == topics.replace("-", r"\-")
        self._topics = re.compile(topics)
        self._reader = reader
        self._holds = holds
        self._patience_ms = patience_ms
        self._begin = dict(begin)
        self._first = LATEST if latest else EARLIEST
        self._readers: dict[TopicPartition, Reader] = {}
        self._there: set[TopicPartition] = set()
        self._counts: Counter[str] = Counter()
        """Partitions of each topic that is there."""
        self._ids: dict[str, object] = {}
        self._left: dict[TopicPartition, int] = {}
        """Where partitions were left that are read from their beginning again."""
        self._behind: set[TopicPartition] = set()
        self._failing: dict[TopicPartition, tuple[int, AdminError]] = {}
        """Partitions that cannot be read, since when, and why."""
        self._unread: dict[TopicPartition, int] = {}
        """Those, and those that are not yet read to their end since; since when."""
        self._early: dict[TopicPartition, int] = {}
        """Partitions that can be read again, and until when it is too early to say that somebody commits nothing."""
        self._looked_ms = -1_000_000
        self._polled = False

    @property
    def caught_up(self) -> bool:
        return self._polled and not self._behind - self._unread.keys()

    @property
    def unread(self) -> bool:
        """True while partitions cannot be read, or are not read to their end since."""
        return bool(self._unread)

    def blind(self, cluster: str, group: str, kind: str) -> bool:
        doubtful = self._unread.keys() | self._early.keys()
        return any(self._holds(cluster, group, kind, tp, self._counts[tp.topic]) for tp in doubtful)

    def places(self) -> dict[TopicPartition, int]:
        return self._begin | {tp: reader.unfinished for tp, reader in self._readers.items()}

    async def poll(self, now_ms: int) -> list[Position]:
        late = asyncio.get_running_loop().call_later(LATE_S, self._lose_all, now_ms)
        try:
            return await self._read_on(now_ms)
        except KlammError:
            self._lose_all(now_ms)
            raise
        finally:
            late.cancel()

    async def _read_on(self, now_ms: int) -> list[Position]:
        missing = self._there - self._readers.keys()
        if now_ms - self._looked_ms > _LOOK_MS or missing or not self._readers:
            await self._find(now_ms)
            self._looked_ms = now_ms
        self._polled = True
        found: list[Position] = []
        wanted = {tp: reader.position for tp, reader in self._readers.items()}
        answers = await fetch(self._admin, wanted, wait_ms=0, again=False) if wanted else {}
        for tp, data in answers.items():
            if isinstance(data, AdminError):
                self._refused(tp, data, now_ms)
                continue
            reader = self._readers[tp]
            try:
                found += reader.positions(whole(data.records or b""))
            except ProtocolError as e:
                self._fails(tp, AdminError(ErrorCode.CORRUPT_MESSAGE, str(tp), str(e)), now_ms)
                continue
            self._failing.pop(tp, None)
            if reader.position < data.high_watermark:
                self._behind.add(tp)
            else:
                self._behind.discard(tp)
                self._found(tp, now_ms)
        self._early = {tp: until_ms for tp, until_ms in self._early.items() if now_ms < until_ms}
        self.trouble = self._said(now_ms)
        return found

    async def _find(self, now_ms: int) -> None:
        answer = await self._admin.metadata([self.name] if self._exact else None)
        for topic in answer.topics:
            if topic.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                raise AdminError(topic.error_code, f"cannot read {topic.name}")
        named = [t for t in answer.topics if not t.error_code and self._topics.fullmatch(t.name or "")]
        self._there = {TopicPartition(t.name or "", p.partition_index) for t in named for p in t.partitions}
        self._counts = Counter(tp.topic for tp in self._there)
        for topic in named:
            if self._ids.setdefault(topic.name or "", topic.topic_id) != topic.topic_id:
                log.warning("%s was made anew; it is read from its beginning", topic.name)
                self._ids[topic.name or ""] = topic.topic_id
                self.began_anew = True
                for tp in [tp for tp in self._readers.keys() | self._begin if tp.topic == topic.name]:
                    self._leave(tp)
                    self._begin.pop(tp, None)
        for tp in (self._readers.keys() | self._unread.keys()) - self._there:
            if tp in self._readers:
                self._begin[tp] = self._readers[tp].unfinished  # it may be there again
            self._leave(tp)
            self._unread.pop(tp, None)
        await self._begin_at(self._there - self._readers.keys(), now_ms)

    async def _begin_at(self, fresh: set[TopicPartition], now_ms: int) -> None:
        """Makes readers of partitions that have none."""
        asked = fresh - self._begin.keys()
        answers = await list_offsets(self._admin, asked, self._first, again=False) if asked else {}
        for tp in sorted(fresh):
            first = answers[tp] if tp in asked else self._begin.pop(tp)
            if isinstance(first, AdminError):
                self._fails(tp, first, now_ms)
                continue
            left = self._left.pop(tp, None)
            if left is not None and first <= left:
                self.began_anew = True  # what was left is not below it: the log is another one, or was cut
            self._readers[tp] = self._reader(first)
            self._behind.add(tp)

    def _refused(self, tp: TopicPartition, error: AdminError, now_ms: int) -> None:
        if error.code == ErrorCode.OFFSET_OUT_OF_RANGE:
            log.warning("%s: what was to be read next is gone; it is read from its beginning", tp)
            self._left[tp] = self._readers[tp].position
            self._leave(tp)
        elif error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            self._looked_ms = -1_000_000  # gone, or not yet known to all brokers: the next look tells
            self._fails(tp, error, now_ms)
        else:
            self._fails(tp, error, now_ms)

    def _leave(self, tp: TopicPartition) -> None:
        self._readers.pop(tp, None)
        self._behind.discard(tp)
        self._failing.pop(tp, None)

    def _fails(self, tp: TopicPartition, error: AdminError, now_ms: int) -> None:
        since, _ = self._failing.get(tp, (now_ms, error))
        self._failing[tp] = (since, error)
        self._lose(tp, now_ms)

    def _lose_all(self, now_ms: int) -> None:
        """Takes in that nothing is known of any partition until it is read to its end again."""
        for tp in self._readers:
            self._lose(tp, now_ms)

    def _lose(self, tp: TopicPartition, now_ms: int) -> None:
        self._unread.setdefault(tp, now_ms)

    def _found(self, tp: TopicPartition, now_ms: int) -> None:
        if now_ms - self._unread.pop(tp, now_ms) > AWAY_MS:
            self._early[tp] = now_ms + self._patience_ms

    def _said(self, now_ms: int) -> str | None:
        """Returns why partitions cannot be read. Errors that pass are said when they have lasted."""
        last = {
            tp: error
            for tp, (since, error) in sorted(self._failing.items())
            if not passing(error.code) or now_ms - since >= PASSING_MS
        }
        if not last:
            return None
        more = f", and {len(last) - 1} more" if len(last) > 1 else ""
        return f"cannot be read: {next(iter(last.values()))}{more}"
