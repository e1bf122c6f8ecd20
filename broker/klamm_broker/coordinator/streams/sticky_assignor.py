"""Kafka's `sticky` assignor: tasks stay where they were, as far as every member gets its share of them.

Active tasks go to their last owner, then to whoever had them as standby, then to the process with the least load. Standbys
go to the last owner of the active task, then to the last standby, then to the process with the least load, never
twice to one process. Like the other assignors this imitates the order in which Kafka walks, because it decides ties.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, NamedTuple, TypeVar

from klamm_broker.coordinator import java_order
from klamm_broker.coordinator.streams.tasks import TaskId, TaskSet, each

log = logging.getLogger(__name__)

_T = TypeVar("_T")
_NO_LOAD: Final = -1.0


class MemberSpec(NamedTuple):
    """A member as the assignor sees it: its process, and its part of the last target."""

    process_id: str
    last: TaskSet


class SubtopologySpec(NamedTuple):
    name: str
    tasks: int
    is_stateful: bool


class _Member(NamedTuple):
    process_id: str
    member_id: str


def assign(
    members: Mapping[str, MemberSpec], subtopologies: Sequence[SubtopologySpec], standbys: int
) -> dict[str, TaskSet]:
    """Returns the new target by member id. There is at least one member; `standbys` is the number for each stateful task."""
    state = _State(members, subtopologies, standbys)
    state.assign_active([TaskId(s.name, p) for s in subtopologies for p in range(s.tasks)])
    if standbys > 0:
        state.assign_standby(
            [TaskId(s.name, p) for s in subtopologies if s.is_stateful for p in range(s.tasks)]
        )
    return {member_id: state.target(member_id, spec.process_id) for member_id, spec in members.items()}


class _PriorityQueue(Generic[_T]):
    """Java's PriorityQueue: among equals its heap decides, so it is done step by step as there."""

    def __init__(self, key: Callable[[_T], float]) -> None:
        self._key = key
        self._heap: list[_T] = []

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, item: _T) -> None:
        heap, key = self._heap, self._key
        heap.append(item)
        at, value = len(heap) - 1, key(item)
        while at > 0:
            parent = (at - 1) >> 1
            if value >= key(heap[parent]):
                break
            heap[at] = heap[parent]
            at = parent
        heap[at] = item

    def poll(self) -> _T:
        heap, key = self._heap, self._key
        first, last = heap[0], heap.pop()
        size = len(heap)
        if not size:
            return first
        at, value = 0, key(last)
        while at < size >> 1:
            child = 2 * at + 1
            if child + 1 < size and key(heap[child]) > key(heap[child + 1]):
                child += 1
            if value <= key(heap[child]):
                break
            heap[at] = heap[child]
            at = child
        heap[at] = last
        return first


@dataclass(slots=True)
class _Process:
    """The members of one process, and the tasks that it gets. `load` is tasks by member."""

    counts: dict[str, int] = field(default_factory=dict)
    """Tasks by member id, in the order of Kafka's table."""
    active: dict[str, set[TaskId]] = field(default_factory=dict)
    standby: dict[str, set[TaskId]] = field(default_factory=dict)
    tasks: set[TaskId] = field(default_factory=set)
    count: int = 0
    by_load: _PriorityQueue[list[object]] | None = None

    @property
    def load(self) -> float:
        return self.count / len(self.counts) if self.counts else _NO_LOAD

    def add(self, member_id: str, task: TaskId, *, active: bool) -> int:
        """Give a task to a member. Returns how many it has now."""
        self.by_load = None
        return self._add(member_id, task, active=active)

    def add_to_least_loaded(self, task: TaskId, *, active: bool) -> int:
        """Give a task to the member with the fewest. Returns how many it has now."""
        if len(self.counts) == 1:
            return self._add(next(iter(self.counts)), task, active=active)
        if self.by_load is None:
            self.by_load = _PriorityQueue(_entry_count)
            for member_id, count in self.counts.items():
                self.by_load.add([member_id, count])
        entry = self.by_load.poll()
        count = self._add(str(entry[0]), task, active=active)
        entry[1] = count
        self.by_load.add(entry)
        return count

    def _add(self, member_id: str, task: TaskId, *, active: bool) -> int:
        self.count += 1
        self.tasks.add(task)
        (self.active if active else self.standby).setdefault(member_id, set()).add(task)
        self.counts[member_id] += 1
        return self.counts[member_id]


def _entry_count(entry: list[object]) -> float:
    count = entry[1]
    assert isinstance(count, int)
    return count


def _load(process: _Process) -> float:
    return process.load


@dataclass(slots=True)
class _Quota:
    """The most tasks that a member should have. It rises when members are full and a remainder is left."""

    tasks: int
    members: int
    each: int = 0

    def __post_init__(self) -> None:
        self._share()

    def _share(self) -> None:
        self.each = -(-self.tasks // self.members) if self.members else 0

    def note(self, count: int) -> None:
        """Take note that a member has this many tasks: one that is full counts no more."""
        if count == self.each:
            self.members -= 1
            self.tasks -= count
            self._share()


class _State:
    def __init__(
        self, members: Mapping[str, MemberSpec], subtopologies: Sequence[SubtopologySpec], standbys: int
    ) -> None:
        self._standbys = standbys
        active = sum(s.tasks for s in subtopologies)
        stateful = sum(s.tasks for s in subtopologies if s.is_stateful)
        self._active_quota = _Quota(active, len(members))
        self._total_quota = _Quota(active + stateful * standbys, len(members))
        self._was_active: dict[TaskId, _Member] = {}
        self._was_standby: dict[TaskId, list[_Member]] = {}
        found: dict[str, _Process] = {}
        for member_id in java_order.strings(members):
            spec = members[member_id]
            member = _Member(spec.process_id, member_id)
            found.setdefault(spec.process_id, _Process()).counts[member_id] = 0
            self._was_active.update(dict.fromkeys(each(spec.last.active), member))
            for task in each(spec.last.standby):
                self._was_standby.setdefault(task, []).append(member)
        for process in found.values():
            process.counts = dict.fromkeys(java_order.strings(process.counts), 0)
        self._processes = {p: found[p] for p in java_order.strings(found, capacity=len(members))}

    def target(self, member_id: str, process_id: str) -> TaskSet:
        process = self._processes[process_id]
        return TaskSet(
            active=_compact(process.active.get(member_id, ())),
            standby=_compact(process.standby.get(member_id, ())),
        )

    # Active tasks

    def assign_active(self, tasks: list[TaskId]) -> None:
        tasks.sort(key=_by_partition)
        left = [task for task in tasks if not self._stays(task, self._was_active.get(task))]
        last = [t for t in left if not self._stays(t, self._least_loaded(self._was_standby.get(t, []), None))]
        queue = self._by_load()
        for task in sorted(last):
            process = queue.poll()
            count = process.add_to_least_loaded(task, active=True)
            self._note(count, active=True)
            queue.add(process)

    def _stays(self, task: TaskId, member: _Member | None) -> bool:
        """Give an active task to a member that had it, if that has not its share yet."""
        if member is None:
            return False
        process = self._processes[member.process_id]
        if process.counts[member.member_id] >= self._active_quota.each:
            return False
        self._note(process.add(member.member_id, task, active=True), active=True)
        return True

    def _note(self, count: int, *, active: bool) -> None:
        if active:
            self._active_quota.note(count)
        self._total_quota.note(count)

    def _by_load(self) -> _PriorityQueue[_Process]:
        queue = _PriorityQueue(_load)
        for process in self._processes.values():
            queue.add(process)
        return queue

    def _least_loaded(self, members: Sequence[_Member], task: TaskId | None) -> _Member | None:
        """Returns the member whose process has the least load; None if the first one's process has `task` already."""
        if not members:
            return None
        candidate = members[0]
        first = self._processes[candidate.process_id]
        load, count = first.load, first.counts[candidate.member_id]
        for member in members[1:]:
            process = self._processes[member.process_id]
            if process.load >= load or (task is not None and task in process.tasks):
                continue
            if process.counts[member.member_id] < count:
                load, count, candidate = process.load, process.counts[member.member_id], member
        # Kafka asks the first candidate's process here, not the chosen one's.
        return candidate if task is None or task not in first.tasks else None

    # Standby tasks

    def assign_standby(self, tasks: list[TaskId]) -> None:
        left: list[tuple[TaskId, int]] = []
        for task in sorted(tasks, key=_by_partition, reverse=True):
            for n in range(self._standbys):
                if not self._keeps_standby(task):
                    left.append((task, self._standbys - n))
                    break
        queue, without_place = self._by_load(), 0
        for task, missing in sorted(left, reverse=True):
            for n in range(missing):
                if not self._standby_to_least_loaded(queue, task):
                    without_place += missing - n
                    break
        if without_place:
            log.warning("%d standby tasks have no place: that needs more processes", without_place)

    def _keeps_standby(self, task: TaskId) -> bool:
        active = self._was_active.get(task)
        if active is not None and self._may_stand_by(active, task):
            return True
        standby = self._least_loaded(self._was_standby.get(task, []), task)
        return standby is not None and self._may_stand_by(standby, task, anywhere=True)

    def _may_stand_by(self, member: _Member, task: TaskId, *, anywhere: bool = False) -> bool:
        """Give a standby to a member, if that has not its share yet, and (unless `anywhere`) its process has not the task."""
        process = self._processes[member.process_id]
        if not anywhere and task in process.tasks:
            return False
        if process.counts[member.member_id] >= self._total_quota.each:
            return False
        self._note(process.add(member.member_id, task, active=False), active=False)
        return True

    def _standby_to_least_loaded(self, queue: _PriorityQueue[_Process], task: TaskId) -> bool:
        skipped: list[_Process] = []
        found = False
        while len(queue):
            process = queue.poll()
            skipped.append(process)
            if task not in process.tasks:
                self._note(process.add_to_least_loaded(task, active=False), active=False)
                found = True
                break
        for process in reversed(skipped):
            queue.add(process)
        return found


def _by_partition(task: TaskId) -> tuple[int, str]:
    return task.partition, task.subtopology


def _compact(tasks: Sequence[TaskId] | set[TaskId] | tuple[()]) -> dict[str, frozenset[int]]:
    found: dict[str, set[int]] = {}
    for task in tasks:
        found.setdefault(task.subtopology, set()).add(task.partition)
    return {subtopology: frozenset(partitions) for subtopology, partitions in found.items()}
