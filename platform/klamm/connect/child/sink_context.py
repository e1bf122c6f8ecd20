"""A sink task's requests to its runtime: noted during its calls, carried out by the main loop after them."""

from __future__ import annotations

from collections.abc import Mapping

from klamm.connect.child.control import Control
from klamm_plugins.connector import ErrantRecordReporter, StopSignal
from klamm_plugins.records import TopicPartition


class SinkContext:
    """The task's SinkTaskContext; the main loop maintains `assigned`, `leaving` and `paused`."""

    def __init__(self, control: Control, configs: dict[str, str]) -> None:
        self.configs: Mapping[str, str] = configs
        self.stopping: StopSignal = control.stopping
        self.errant_record_reporter: ErrantRecordReporter | None = None
        self.assigned: set[TopicPartition] = set()
        self.leaving: frozenset[TopicPartition] = frozenset()
        self.paused: set[TopicPartition] = set()
        self._pauses: set[TopicPartition] = set()
        self._resumes: set[TopicPartition] = set()
        self._rewinds: dict[TopicPartition, int] = {}
        self._timeout_s: float | None = None
        self._commit_requested = False

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        return frozenset(self.assigned)

    def offset(self, offsets: Mapping[TopicPartition, int]) -> None:
        self._rewinds |= offsets

    def pause(self, *partitions: TopicPartition) -> None:
        self.paused |= set(partitions)
        self._pauses |= set(partitions)
        self._resumes -= set(partitions)

    def resume(self, *partitions: TopicPartition) -> None:
        self.paused -= set(partitions)
        self._resumes |= set(partitions)
        self._pauses -= set(partitions)

    def timeout(self, ms: int) -> None:
        self._timeout_s = ms / 1000

    def request_commit(self) -> None:
        self._commit_requested = True

    def take_timeout_s(self) -> float | None:
        taken, self._timeout_s = self._timeout_s, None
        return taken

    def take_commit_request(self) -> bool:
        taken, self._commit_requested = self._commit_requested, False
        return taken

    def take_changes(self) -> tuple[set[TopicPartition], set[TopicPartition], dict[TopicPartition, int]]:
        """Returns the pauses, resumes and rewinds since the last call."""
        taken = self._pauses, self._resumes, self._rewinds
        self._pauses, self._resumes, self._rewinds = set(), set(), {}
        return taken
