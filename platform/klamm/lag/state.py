"""All that is known of the groups of one cluster. Pure: what was seen comes in with its time, statuses come out.

A commit is judged against its log's end. While no end is known, its partition's last commits wait. A group that has
committed nothing for `expire_ms` is forgotten, and so is one whose offsets are deleted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from klamm.admin.model import TopicPartition
from klamm.lag.ends import EndHistory
from klamm.lag.model import Commit, GroupStatus, Owner, PartitionStatus, Status
from klamm.lag.rules import group_status, partition_status
from klamm.lag.window import Window

KINDS: Final = ("consumer", "connect", "share", "streams", "mirror", "spark")
_NOBODY: Final = Owner()


@dataclass(frozen=True, slots=True, kw_only=True)
class Judging:
    """The figures by which groups are judged, with Burrow's defaults but for `distance_ms` and `patience_ms`, which are 0 there."""

    intervals: int = 10
    distance_ms: int = 1_000
    expire_ms: int = 604_800_000
    minimum_complete: float = 0.0
    allowed_lag: int = 0
    patience_ms: int = 60_000


@dataclass(slots=True)
class _Group:
    kind: str = "consumer"
    windows: dict[TopicPartition, Window] = field(default_factory=dict)
    owners: dict[TopicPartition, Owner] = field(default_factory=dict)
    last_commit: int = 0


class ClusterState:
    """The groups and logs of cluster `name`."""

    def __init__(self, name: str, judging: Judging) -> None:
        self.name = name
        self._judging = judging
        self._groups: dict[str, _Group] = {}
        self._waiting: dict[TopicPartition, deque[tuple[str, Commit]]] = {}
        self.ends: dict[TopicPartition, EndHistory] = {}
        self.counts: dict[str, int] = {}
        """The number of partitions of each topic that is read."""
        self.changed: set[tuple[str, TopicPartition]] = set()
        """Windows that have changed since somebody cleared this."""
        self._written: dict[tuple[TopicPartition, int], int] = {}
        """Times of records at which a group is, by place and offset."""
        self._kinds: dict[str, str] = {}

    @property
    def patience_ms(self) -> int:
        """Nobody has stopped who has committed within this time."""
        return self._judging.patience_ms

    # ---- what was seen

    def commit(
        self, group: str, tp: TopicPartition, offset: int, *, at_ms: int, order: int, now_ms: int
    ) -> None:
        """Take in a commit. `order` rises with every commit of a partition by a group."""
        if at_ms < now_ms - self._judging.expire_ms:
            return
        commit = Commit(offset, at_ms, now_ms, None, order)
        known = self.ends.get(tp)
        if known is None or known.end is None:
            waiting = self._waiting.setdefault(tp, deque())
            waiting.append((group, commit))
            if sum(g == group for g, _ in waiting) > self._judging.intervals:
                waiting.remove(next(each for each in waiting if each[0] == group))
            return
        self._judged(group, tp, commit, known.end)

    def look(self, tp: TopicPartition, end: int, now_ms: int) -> None:
        """Take in the end of a log, and the commits that waited for it."""
        history = self.ends.get(tp)
        if history is None:
            history = self.ends[tp] = EndHistory(self._judging.intervals)
        if end < (history.end or 0):  # another log: its records have other times
            self._written = {place: at_ms for place, at_ms in self._written.items() if place[0] != tp}
        history.look(end, now_ms)
        self.counts[tp.topic] = max(self.counts.get(tp.topic, 0), tp.partition + 1)
        for group, commit in self._waiting.pop(tp, ()):
            self._judged(group, tp, commit, end)

    def begin_anew(self) -> None:
        """Take in that the log of commits began anew, and with it the orders of commits."""
        for name, group in self._groups.items():
            for tp, window in group.windows.items():
                window.begin_anew()
                self.changed.add((name, tp))
        for tp, waiting in self._waiting.items():
            self._waiting[tp] = deque((g, c._replace(order=-1)) for g, c in waiting)

    def wrote(self, tp: TopicPartition, offset: int, timestamp_ms: int) -> None:
        """Take in the timestamp of the record at an offset, or of the first one behind it."""
        self._written[tp, offset] = timestamp_ms

    def grouped(self, group: str, kind: str, owners: Mapping[TopicPartition, Owner]) -> None:
        """Take in what a group is and who reads what."""
        if (found := self._groups.get(group)) is not None:
            found.kind, found.owners = kind, dict(owners)

    def of_kind(self, group: str, kind: str) -> None:
        """Take in what a reader is that no coordinator knows."""
        self._kinds[group] = kind
        if (found := self._groups.get(group)) is not None:
            found.kind = kind

    def forget(self, group: str, tp: TopicPartition | None = None, *, topic: str | None = None) -> bool:
        """Forget a partition or topic of a group, or all of it. Returns whether it was known."""
        for place, waiting in list(self._waiting.items()):
            if tp in (None, place) and topic in (None, place.topic):
                self._waiting[place] = deque((g, c) for g, c in waiting if g != group)
        found = self._groups.get(group)
        if found is None:
            return False
        for place in list(found.windows):
            if tp in (None, place) and topic in (None, place.topic):
                del found.windows[place]
                self.changed.add((group, place))
        if not found.windows:
            del self._groups[group]
        return True

    def forget_partitions(self, gone: Collection[TopicPartition]) -> None:
        """Forget partitions that exist no more, in all groups."""
        for tp in gone:
            for group in list(self._groups):
                self.forget(group, tp)
            self.ends.pop(tp, None)
            self._waiting.pop(tp, None)
        for topic in {tp.topic for tp in gone}:
            left = [tp.partition + 1 for tp in self.ends if tp.topic == topic]
            if left:
                self.counts[topic] = max(left)
            else:
                self.counts.pop(topic, None)

    def expire(self, now_ms: int) -> None:
        """Forget groups that have committed nothing for so long, and logs that nobody reads."""
        old = now_ms - self._judging.expire_ms
        for name in [n for n, g in self._groups.items() if g.last_commit < old]:
            self.forget(name)
        read = self.partitions()
        for tp in [tp for tp in self.ends if tp not in read]:
            del self.ends[tp]
        places = {
            (tp, window.commits[-1].offset) for g in self._groups.values() for tp, window in g.windows.items()
        }
        self._written = {place: at_ms for place, at_ms in self._written.items() if place in places}
        topics = {tp.topic for tp in read}
        self.counts = {topic: n for topic, n in self.counts.items() if topic in topics}

    def restore(self, group: str, kind: str, tp: TopicPartition, commits: list[Commit]) -> None:
        """Take in a window of an earlier life."""
        if commits:
            found = self._groups.setdefault(group, _Group(kind))
            found.windows[tp] = Window(self._judging.intervals, self._judging.distance_ms, commits)
            found.last_commit = max(found.last_commit, commits[-1].timestamp)

    def restore_ends(self, tp: TopicPartition, points: list[tuple[int, int]]) -> None:
        """Take in what was known of a log in an earlier life."""
        self.ends[tp] = EndHistory(self._judging.intervals, points)
        self.counts[tp.topic] = max(self.counts.get(tp.topic, 0), tp.partition + 1)

    # ---- what is known

    def __contains__(self, group: str) -> bool:
        return group in self._groups

    def groups(self) -> list[str]:
        """Returns the names of all groups, in order."""
        return sorted(self._groups)

    def kind(self, group: str) -> str:
        """Returns what a group is: one of KINDS."""
        return self._groups[group].kind

    def topics(self) -> list[str]:
        """Returns the topics that are read, in order."""
        return sorted(self.counts)

    def partitions(self) -> set[TopicPartition]:
        """Returns the partitions that are read, those whose commits wait included."""
        return {tp for g in self._groups.values() for tp in g.windows}.union(self._waiting)

    def readers(self, topic: str) -> list[str]:
        """Returns the groups that read a topic, in order."""
        return sorted(n for n, g in self._groups.items() if any(tp.topic == topic for tp in g.windows))

    def window(self, group: str, tp: TopicPartition) -> list[Commit]:
        """Returns the commits of a partition, oldest first; none where it is not known."""
        found = self._groups.get(group)
        window = found.windows.get(tp) if found is not None else None
        return window.commits if window is not None else []

    def end_of(self, tp: TopicPartition) -> int:
        """Returns the end of a log at the last look, 0 for one that is not known."""
        history = self.ends.get(tp)
        return (history.end if history is not None else None) or 0

    def behind(self) -> Iterator[tuple[TopicPartition, int]]:
        """Yields each partition and offset at which a group is behind, and whose time is not known yet."""
        for group in self._groups.values():
            for tp, window in group.windows.items():
                offset = window.commits[-1].offset
                if self._lag(tp, offset) and (tp, offset) not in self._written:
                    yield tp, offset

    def status(self, group: str, now_ms: int) -> GroupStatus | None:
        """Returns the status of a group with all partitions of its topics; None for an unknown group."""
        found = self._groups.get(group)
        if found is None:
            return None
        topics = sorted({tp.topic for tp in found.windows})
        places = [
            TopicPartition(topic, n)
            for topic in topics
            for n in range(max(self.counts.get(topic, 0), *(tp.partition + 1 for tp in found.windows if tp.topic == topic)))
        ]  # fmt: skip
        partitions = tuple(self._partition(found, tp, now_ms) for tp in places)
        whole = sum(p.complete == 1.0 for p in partitions)
        return GroupStatus(
            cluster=self.name,
            group=group,
            kind=found.kind,
            status=group_status(p.status for p in partitions),
            complete=whole / len(partitions) if partitions else 0.0,
            partitions=partitions,
            total_lag=sum(p.lag for p in partitions),
        )

    # ---- inside

    def _judged(self, group: str, tp: TopicPartition, commit: Commit, end: int) -> None:
        found = self._groups.setdefault(group, _Group(self._kinds.get(group, "consumer")))
        window = found.windows.get(tp)
        if window is None:
            window = found.windows[tp] = Window(self._judging.intervals, self._judging.distance_ms)
        # An end is as old as the last look: a consumer may be ahead of it.
        if window.add(commit._replace(lag=max(end - commit.offset, 0))):
            found.last_commit = max(found.last_commit, commit.timestamp)
        self.changed.add((group, tp))

    def _partition(self, group: _Group, tp: TopicPartition, now_ms: int) -> PartitionStatus:
        window = group.windows.get(tp)
        owner = group.owners.get(tp, _NOBODY)
        if window is None:
            return PartitionStatus(
                partition=tp, owner=owner, status=Status.OK, start=None, end=None, lag=0, complete=0.0
            )
        commits, ends = window.commits, self.ends.get(tp)
        lag = self._lag(tp, commits[-1].offset)
        status = Status.OK
        if window.complete >= self._judging.minimum_complete:
            recent = ends.recent if ends is not None else ()
            status = partition_status(
                commits, recent, lag, now_ms,
                allowed_lag=self._judging.allowed_lag, patience_ms=self._judging.patience_ms,
                waits_ms=self._waits(tp, commits[-1].offset, now_ms),
            )  # fmt: skip
        return PartitionStatus(
            partition=tp,
            owner=owner,
            status=status,
            start=commits[0],
            end=commits[-1],
            lag=lag,
            complete=window.complete,
            time_lag_ms=self._time_lag(tp, commits[-1].offset, lag, now_ms),
        )

    def _lag(self, tp: TopicPartition, offset: int) -> int:
        ends = self.ends.get(tp)
        end = ends.end if ends is not None else None
        return max(end - offset, 0) if end is not None else 0

    def _time_lag(self, tp: TopicPartition, offset: int, lag: int, now_ms: int) -> int | None:
        """Returns the age of the next record: by its own timestamp where it was read, or else by the log's history."""
        if lag == 0:
            return 0
        timestamp = self._written.get((tp, offset))
        if timestamp is not None:
            return max(now_ms - timestamp, 0)
        age = self.ends[tp].age(offset, now_ms)
        return age.ms if age is not None else None

    def _waits(self, tp: TopicPartition, offset: int, now_ms: int) -> int | None:
        """Returns for how long the next record has been there: by the log's history, or by the record's time unless that is to come."""
        ends = self.ends.get(tp)
        age = ends.age(offset, now_ms) if ends is not None else None
        if age is not None and age.exact:
            return age.ms
        timestamp = self._written.get((tp, offset), now_ms + 1)
        return now_ms - timestamp if timestamp <= now_ms else None
