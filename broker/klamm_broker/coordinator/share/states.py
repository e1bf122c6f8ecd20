"""The share coordinator: keeps the state of share partitions in `__share_group_state`.

It is a plain state machine as the group coordinator is: methods take the time and return effects. A key's changes are
written one after the other, so that a snapshot has all updates before it. The state is replaced once its record is
durable.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from klamm_broker.coordinator.consumer.journal import Journal
from klamm_broker.coordinator.effects import Effect, KeyValue, Now, Token, Turn
from klamm_broker.coordinator.partitioning import partition_for
from klamm_broker.coordinator.rebalance import append_error
from klamm_broker.coordinator.share.combining import combined
from klamm_broker.coordinator.share.model import NO_OFFSET, ShareKey, StateBatch
from klamm_broker.coordinator.share.state_records import UNKNOWN, ShareState, StateRecord, decode
from klamm_kafka.wire.errors import ErrorCode, ProtocolError

log = logging.getLogger(__name__)

_UNINITIALIZED = "operation on uninitialized share partition not allowed."


@dataclass(frozen=True, slots=True, kw_only=True)
class StateConfig:
    """The share coordinator's settings."""

    partitions: int = 50
    updates_per_snapshot: int = 500
    cold_ms: int = 300_000


class Written(NamedTuple):
    """The outcome of a change."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


class ReadState(NamedTuple):
    """The state of a share partition, for the one who serves it."""

    error: ErrorCode
    message: str | None
    state: ShareState


class Report(NamedTuple):
    """Changes of a share partition, told to the coordinator."""

    state_epoch: int
    leader_epoch: int
    start_offset: int
    complete_count: int
    batches: Sequence[StateBatch]


class ShareStates:
    """The states of all share partitions. `log_end` returns the end offset of a partition of the topic."""

    def __init__(self, config: StateConfig, *, log_end: Callable[[int], int]) -> None:
        self.config = config
        self._log_end = log_end
        self._turn = Turn()
        self._journal = Journal(self._turn)
        self._states: dict[ShareKey, ShareState] = {}
        self._snapshot_at: dict[ShareKey, int] = {}
        """No later than the offset of each key's last snapshot: what is before all of them is not needed."""
        self._loading: set[int] = set()

    def partition_for(self, key: ShareKey) -> int:
        return partition_for(coordinator_key(key), self.config.partitions)

    def on_topic_created(self, partitions: int) -> None:
        """Take over the number of partitions of the new topic; its creator chose it."""
        self.config = replace(self.config, partitions=partitions)

    def unavailable(self, key: ShareKey) -> ErrorCode:
        """Returns why nothing can be done with this key now; NONE when something can."""
        loading = self._loading and self.partition_for(key) in self._loading
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if loading else ErrorCode.NONE

    def get(self, key: ShareKey) -> ShareState | None:
        return self._states.get(key)

    # Changes

    def initialize(
        self, key: ShareKey, state_epoch: int, start_offset: int, token: Token, now: Now
    ) -> list[Effect]:
        """Begin a state anew. The reply is a Written."""

        def make() -> StateRecord | Written:
            old = self._states.get(key)
            if old is not None and old.state_epoch > state_epoch:
                return _refused(ErrorCode.FENCED_STATE_EPOCH)
            state = ShareState(
                snapshot_epoch=0 if old is None else old.snapshot_epoch + 1,
                state_epoch=state_epoch,
                start_offset=start_offset,
                complete_count=UNKNOWN if start_offset == NO_OFFSET else 0,
                created_ms=now.wall_ms,
                written_ms=now.wall_ms,
            )
            return StateRecord(key, state)

        return self._change(key, make, token, now)

    def write(self, key: ShareKey, report: Report, token: Token, now: Now) -> list[Effect]:
        """Take in what has changed. The reply is a Written."""

        def make() -> StateRecord | Written:
            old = self._states.get(key)
            if old is None:
                return Written(ErrorCode.INVALID_REQUEST, f"Write {_UNINITIALIZED}")
            if old.leader_epoch > report.leader_epoch:
                return _refused(ErrorCode.FENCED_LEADER_EPOCH)
            if old.state_epoch > report.state_epoch:
                return _refused(ErrorCode.FENCED_STATE_EPOCH)
            return self._record(key, old, report, old.leader_epoch)

        return self._change(key, make, token, now)

    def read(self, key: ShareKey, leader_epoch: int, token: Token, now: Now) -> list[Effect]:
        """Hand out a state to the leader of its partition, and note the leader's epoch. The reply is a ReadState."""
        self._turn.begin(now)
        old = self._states.get(key)
        error = self.unavailable(key)
        message: str | None = error.message
        if error is ErrorCode.NONE and old is None:
            error, message = ErrorCode.INVALID_REQUEST, f"Read {_UNINITIALIZED}"
        if error is ErrorCode.NONE and old is not None and old.leader_epoch > leader_epoch:
            error, message = ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.FENCED_LEADER_EPOCH.message
        if error is not ErrorCode.NONE or old is None:
            self._turn.reply(token, ReadState(error, message, ShareState()))
            return self._turn.end()
        if old.leader_epoch == leader_epoch:
            self._turn.reply(token, ReadState(error, None, old))
            return self._turn.end()
        report = Report(old.state_epoch, leader_epoch, old.start_offset, old.complete_count, ())

        def told(written: Written) -> None:
            state = self._states.get(key, old)
            self._turn.reply(token, ReadState(written.error, written.message, state))

        self._write(key, lambda: self._record(key, self._states.get(key, old), report, leader_epoch), told)
        return self._turn.end()

    def delete(self, key: ShareKey, token: Token, now: Now) -> list[Effect]:
        """Forget a state. The reply is a Written; there need not be one."""

        def make() -> StateRecord | Written:
            return StateRecord(key, None) if key in self._states else Written()

        return self._change(key, make, token, now)

    def on_topics_deleted(self, topic_ids: Collection[bytes], now: Now) -> list[Effect]:
        """Forget the states of deleted topics."""
        self._turn.begin(now)
        for key in [key for key in self._states if key.topic_id in topic_ids]:
            self._write(key, lambda key=key: StateRecord(key, None), lambda _: None)  # type: ignore[misc]
        return self._turn.end()

    def _change(
        self, key: ShareKey, make: Callable[[], StateRecord | Written], token: Token, now: Now
    ) -> list[Effect]:
        self._turn.begin(now)
        error = self.unavailable(key)
        if error is not ErrorCode.NONE:
            self._turn.reply(token, _refused(error))
        else:
            self._write(key, make, lambda written: self._turn.reply(token, written))
        return self._turn.end()

    def _record(self, key: ShareKey, old: ShareState, report: Report, leader_epoch: int) -> StateRecord:
        """Returns an update, or a snapshot if there are many updates since the last one."""
        if old.updates < self.config.updates_per_snapshot:
            batches = combined((), report.batches, report.start_offset)
            update = ShareState(
                snapshot_epoch=old.snapshot_epoch,
                leader_epoch=leader_epoch,
                start_offset=report.start_offset,
                complete_count=report.complete_count,
                batches=tuple(batches),
            )
            return StateRecord(key, update, is_update=True)
        start = old.start_offset if report.start_offset == NO_OFFSET else report.start_offset
        now_ms = self._turn.now.wall_ms
        state = ShareState(
            snapshot_epoch=old.snapshot_epoch + 1,
            state_epoch=old.state_epoch,
            leader_epoch=leader_epoch,
            start_offset=start,
            complete_count=report.complete_count,
            batches=tuple(combined(old.batches, report.batches, start)),
            created_ms=now_ms,
            written_ms=now_ms,
        )
        return StateRecord(key, state)

    def _write(
        self,
        key: ShareKey,
        make: Callable[[], StateRecord | Written],
        told: Callable[[Written], None],
    ) -> None:
        """Write what `make` returns once the changes of this key before it are written."""
        name = coordinator_key(key)
        failed = _refused(ErrorCode.UNKNOWN_SERVER_ERROR)

        def begin() -> None:
            record = make()
            if isinstance(record, Written):
                told(record)
                return
            partition = self.partition_for(key)
            at = self._log_end(partition)

            def done(error: ErrorCode) -> None:
                if error is ErrorCode.NONE:
                    self._take(record, at)
                    told(Written())
                else:
                    told(_refused(append_error(error)))

            self._journal.write(name, partition, [record.encode()], done, refuse=lambda: told(failed))

        self._journal.when_free(name, begin, lambda: told(failed))

    def _take(self, record: StateRecord, at: int) -> None:
        """Take in a durable record; `at` is no later than its offset."""
        key, state = record.key, record.state
        if state is None:
            self._states.pop(key, None)
            self._snapshot_at.pop(key, None)
        elif not record.is_update:
            self._states[key] = state
            self._snapshot_at[key] = at
        else:
            old = self._states.get(key)
            self._states[key] = state if old is None else old.merged(state)
            self._snapshot_at.setdefault(key, at)

    # The log

    def start_loading(self, partition: int) -> None:
        """Make the partition's keys unavailable until its records have been replayed."""
        self._loading.add(partition)

    def replay(self, partition: int, offset: int, records: Iterable[KeyValue]) -> None:
        """Take in records from `offset` on of a partition that is being loaded, in the order of its log."""
        for key, value in records:
            try:
                record = decode(key, value)
            except ProtocolError as e:
                log.error("__share_group_state-%d: a record cannot be read: %s", partition, e)  # noqa: TRY400
                continue
            if record is not None:
                self._take(record, offset)

    def finish_loading(self, partition: int) -> None:
        self._loading.discard(partition)

    def redundant_before(self) -> Mapping[int, int]:
        """Returns for each loaded partition the offset before which its records are not needed."""
        found: dict[int, int] = {}
        for key, at in self._snapshot_at.items():
            partition = self.partition_for(key)
            found[partition] = min(at, found.get(partition, at))
        return {partition: at for partition, at in found.items() if partition not in self._loading}

    def write_cold_snapshots(self, now: Now) -> list[Effect]:
        """Write snapshots of states that have rested, so that old records are not kept for them."""
        self._turn.begin(now)
        for key, state in list(self._states.items()):
            if now.wall_ms - state.written_ms >= self.config.cold_ms and state.created_ms == state.written_ms:
                self._write(key, lambda key=key: self._cold(key), lambda _: None)  # type: ignore[misc]
        return self._turn.end()

    def _cold(self, key: ShareKey) -> StateRecord | Written:
        state = self._states.get(key)
        if state is None:
            return Written()
        epoch, now_ms = state.snapshot_epoch + 1, self._turn.now.wall_ms
        return StateRecord(key, replace(state, snapshot_epoch=epoch, written_ms=now_ms, updates=0))

    def recover(self, now: Now) -> list[Effect]:
        """Returns the effects that a failed call has left behind."""
        self._turn.begin(now)
        return self._turn.end()


def coordinator_key(key: ShareKey) -> str:
    """Returns a key as FindCoordinator names it: group, topic id and partition."""
    topic_id = base64.urlsafe_b64encode(key.topic_id).decode().rstrip("=")
    return f"{key.group_id}:{topic_id}:{key.partition}"


def _refused(error: ErrorCode) -> Written:
    return Written(error, error.message)
