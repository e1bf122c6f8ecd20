"""The share partitions that this broker serves: made when they are first read, with the timers of their locks.

A share partition's records in flight are here; what was reported on them is written through the share coordinator
(`share_states.py`) before it is answered. Event loop's thread only.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from klamm_broker.coordinator.share.delivery import Ack, AckRefused
from klamm_broker.coordinator.share.in_flight import Transition
from klamm_broker.coordinator.share.model import NO_OFFSET, DeliverySettings, ShareKey, StateBatch
from klamm_broker.coordinator.share.sessions import At, Owner, ShareSession, ShareSessions
from klamm_broker.coordinator.share.share_partition import SharePartition
from klamm_broker.coordinator.share.states import ReadState, Report, Written
from klamm_broker.log.errors import LogError
from klamm_broker.log.steps import Steps
from klamm_broker.server.cluster_config import ResourceType
from klamm_broker.server.coordinator_timer import CoordinatorTimer
from klamm_broker.server.group_config import offset_reset
from klamm_broker.server.slices import LONG_SLICE_S, drive, lane_of
from klamm_kafka.wire.errors import ErrorCode

if TYPE_CHECKING:
    from klamm_broker.server.cluster_config import ClusterConfig
    from klamm_broker.server.share_states import ShareStateShell
    from klamm_broker.server.storage import Storage
    from klamm_broker.server.topics import Partition
    from klamm_broker.server.waiting import Waiter

log = logging.getLogger(__name__)

_NOW: Final = 1 << 62
"""More bytes than any fetch waits for."""
_STEP: Final = 16
"""Partitions of a report in one step: each is written."""
_FOR_READERS: Final = {
    ErrorCode.NOT_COORDINATOR: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.FENCED_LEADER_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_STATE_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.INVALID_REQUEST: ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""Errors of the share coordinator, as readers are told them."""
_STALE: Final = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})

Outcome = tuple[ErrorCode, str | None]
OK: Final[Outcome] = (ErrorCode.NONE, None)


class Served:
    """A share partition that is served. `core` is None while its state is being read, `is_new` true until it is first looked at."""

    __slots__ = (
        "core",
        "error",
        "is_new",
        "key",
        "partition",
        "state_epoch",
        "timed_out",
        "timer",
        "waiters",
    )

    def __init__(self, key: ShareKey, partition: Partition) -> None:
        self.key = key
        self.partition = partition
        self.core: SharePartition | None = None
        self.error: Outcome = OK
        self.is_new = True
        self.state_epoch = 0
        self.timed_out = 0
        """Records whose locks have ended."""
        self.timer: CoordinatorTimer | None = None
        self.waiters: dict[Waiter, None] = {}

    def wake(self) -> None:
        """Let fetches that wait look again: records have come back, or there is room for more."""
        for waiter in list(self.waiters):
            waiter.advanced(_NOW)


class ShareServing:
    """All share partitions that are served, and the sessions of their readers."""

    def __init__(self, storage: Storage, states: ShareStateShell, cluster_config: ClusterConfig) -> None:
        self._storage = storage
        self._states = states
        self._cluster_config = cluster_config
        self._served: dict[ShareKey, Served] = {}
        self.sessions = ShareSessions()
        self.leaving: dict[Owner, dict[At, None]] = {}
        """Partitions whose records are still to be given back, by the owner of sessions that have ended."""
        self._due: dict[Served, None] = {}
        """Share partitions with locks that have ended."""
        self.acknowledged: Counter[int] = Counter()
        """Records that were reported on, by type of acknowledgement."""
        states.on_changed = self.drop

    def __len__(self) -> int:
        return len(self._served)

    def served(self) -> list[Served]:
        """Returns all share partitions that are served."""
        return list(self._served.values())

    def now_ms(self) -> int:
        return int(self._storage.loop.time() * 1000)

    # Settings

    def setting(self, group_id: str, name: str) -> str | None:
        """Returns a configuration of the group's own."""
        return self._cluster_config.get(ResourceType.GROUP, group_id).get(name)

    def delivery(self, group_id: str) -> DeliverySettings:
        """Returns the settings of a group's deliveries."""
        config = self._storage.config
        own = self._cluster_config.get(ResourceType.GROUP, group_id)

        def number(name: str) -> int:
            value = own.get(f"share.{name}")
            return int(config[f"group.share.{name}"] if value is None else value)

        return DeliverySettings(
            lock_ms=number("record.lock.duration.ms"),
            delivery_limit=number("delivery.count.limit"),
            max_locks=number("partition.max.record.locks"),
            renew_enabled=own.get("share.renew.acknowledge.enable", "true").lower() != "false",
        )

    # Serving

    def get(self, key: ShareKey, partition: Partition) -> Served:
        """Returns the share partition; its state may still be on the way, or there may be an error."""
        served = self._served.get(key)
        if served is not None and served.partition is partition:
            return served
        served = self._served[key] = Served(key, partition)
        epoch = partition.log.leader_epoch
        answer = self._states.ask(
            lambda token, now: self._states.states.read(key, epoch, token, now), lambda read: read
        )
        if isinstance(answer, asyncio.Future):
            answer.add_done_callback(lambda f: self._loaded(served, f.result()))
        else:
            self._loaded(served, answer)
        return served

    def _loaded(self, served: Served, read: ReadState) -> None:
        if read.error is not ErrorCode.NONE:
            self._refuse(served, (_FOR_READERS.get(read.error, read.error), read.message))
            return
        if read.state.start_offset != NO_OFFSET:
            self._begin(served, read, read.state.start_offset)
            return
        try:
            start = drive(self._storage.loop, self._resetting(served.key.group_id, served.partition))
        except Exception as e:
            self._not_found(served, e)
            return
        if isinstance(start, asyncio.Future):
            start.add_done_callback(lambda found: self._found(served, read, found))
        else:
            self._begin(served, read, start)

    def _found(self, served: Served, read: ReadState, start: asyncio.Future[int]) -> None:
        if (error := start.exception()) is not None:
            self._not_found(served, error)
        else:
            self._begin(served, read, start.result())

    def _not_found(self, served: Served, error: BaseException) -> None:
        """Take in that the start of a share partition cannot be found. As in Kafka, its readers get the error, and their next fetch
        tries again.
        """
        if isinstance(error, LogError):
            self._refuse(served, (error.code, str(error)))
        else:
            log.error("%s: no start was found", served.key, exc_info=error)
            self._refuse(served, (ErrorCode.UNKNOWN_SERVER_ERROR, None))

    def _refuse(self, served: Served, error: Outcome) -> None:
        served.error = error
        if self.serves(served):
            self.drop(served.key)

    def _begin(self, served: Served, read: ReadState, start: int) -> None:
        if not self.serves(served):
            return  # dropped since, which woke its readers
        group_id, state, stored = served.key.group_id, read.state, served.partition.log
        core = SharePartition(lambda: self.delivery(group_id))
        core.restore(start, state.batches, log_end=stored.log_end_offset)
        served.core, served.state_epoch = core, state.state_epoch
        served.timer = CoordinatorTimer(
            self._storage.loop,
            next_deadline_ms=lambda: None if served in self._due else core.next_deadline_ms(),
            tick=lambda: self._note_due(served),
        )
        served.wake()

    def _resetting(self, group_id: str, partition: Partition) -> Steps[int]:
        """Returns the offset at which a group begins: `share.auto.offset.reset`."""
        name, stored = "share.auto.offset.reset", partition.log
        value = self.setting(group_id, name) or "latest"
        if value == "earliest":
            return stored.log_start_offset
        age_ms = offset_reset(name, value)
        found = None
        if age_ms is not None:
            found = yield from stored.finding_timestamp(self._storage.now_ms() - age_ms)
        return stored.high_watermark if found is None else found[1]

    def serves(self, served: Served) -> bool:
        """Decides whether this is the share partition that is served: another one can have taken its place."""
        return self._served.get(served.key) is served

    def drop(self, key: ShareKey) -> None:
        """Stop serving a share partition: its state was changed behind it, or nobody reads it any more."""
        served = self._served.pop(key, None)
        if served is not None:
            if served.timer is not None:
                served.timer.cancel()
            served.wake()

    def drop_topics(self, topic_ids: frozenset[bytes]) -> None:
        for key in [key for key in self._served if key.topic_id in topic_ids]:
            self.drop(key)

    # Reports of readers

    def acknowledging(
        self, owner: Owner, acks: Mapping[At, Sequence[Ack]]
    ) -> Steps[dict[At, Outcome] | asyncio.Future[dict[At, Outcome]]]:
        """Take in acknowledgements. Makes the outcome for each partition, or a future of them."""
        outcomes: dict[At, Outcome] = {}
        left = len(acks)
        answer: asyncio.Future[dict[At, Outcome]] | None = None

        def settle(at: At, outcome: Outcome) -> None:
            outcomes[at] = outcome
            if answer is not None and len(outcomes) == left and not answer.done():
                answer.set_result(outcomes)

        for number, at in enumerate(acks, 1):
            if not number % _STEP:
                yield None
            served = self._served.get(ShareKey(owner[0], *at))
            if served is None or served.core is None:
                error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                settle(at, (error, error.message))
                continue
            try:
                transition = served.core.acknowledge(owner[1], acks[at], self.now_ms())
            except AckRefused as e:
                settle(at, (e.code, str(e)))
                served.wake()
                continue
            self._count(acks[at])
            self._write_transition(served, transition, lambda outcome, at=at: settle(at, outcome))  # type: ignore[misc]
        if len(outcomes) == left:
            return outcomes
        answer = self._storage.loop.create_future()
        return answer

    def _count(self, acks: Sequence[Ack]) -> None:
        for ack in acks:
            if len(ack.types) == 1:
                self.acknowledged[ack.types[0]] += ack.last - ack.first + 1
            else:
                self.acknowledged.update(ack.types)

    def _write_transition(
        self, served: Served, transition: Transition, told: Callable[[Outcome], None]
    ) -> None:
        core = served.core
        assert core is not None

        def done(outcome: Outcome) -> None:
            core.complete(transition, ok=outcome[0] is ErrorCode.NONE, now_ms=self.now_ms())
            self._settled(served)
            told(outcome)

        if transition.changes:
            self._write(served, core, transition.changes, done)
        else:
            self._settled(served)
            told(OK)

    def _write(
        self,
        served: Served,
        core: SharePartition,
        changes: Sequence[StateBatch],
        done: Callable[[Outcome], None],
    ) -> None:
        epoch = served.partition.log.leader_epoch
        report = Report(served.state_epoch, epoch, core.start, core.complete_count, changes)
        states = self._states.states

        def written(answer: Written) -> None:
            error = _FOR_READERS.get(answer.error, answer.error)
            if error in _STALE:
                self.drop(served.key)
            done((error, answer.message))

        answer = self._states.ask(
            lambda token, now: states.write(served.key, report, token, now), lambda written: written
        )
        if isinstance(answer, asyncio.Future):
            answer.add_done_callback(lambda f: written(f.result()))
        else:
            written(answer)

    def _settled(self, served: Served) -> None:
        if served.timer is not None:
            served.timer.set()
        served.wake()

    def _note_due(self, served: Served) -> None:
        """Look at ended locks soon, in slices: those of one fetch of very many partitions end together."""
        if not self._due:
            lane_of(self._storage.loop).next(self._expire_due)
        self._due[served] = None

    def _expire_due(self) -> None:
        end = perf_counter() + LONG_SLICE_S
        try:
            while True:
                served = next(iter(self._due))
                del self._due[served]
                if self.serves(served) and served.core is not None and served.timer is not None:
                    self._expire(served, served.core)
                    served.timer.set()
                if not self._due or perf_counter() >= end:
                    break
        finally:
            if self._due:
                lane_of(self._storage.loop).next(self._expire_due)

    def _expire(self, served: Served, core: SharePartition) -> None:
        """Give back the records whose locks have ended, and write that."""
        changes = core.expire(self.now_ms())
        if not changes:
            return
        served.timed_out += sum(change.last - change.first + 1 for change in changes)
        log.debug("share group %s: locks of %d batches have ended", served.key.group_id, len(changes))

        def done(outcome: Outcome) -> None:
            if outcome[0] is not ErrorCode.NONE:
                log.warning("share group %s: ended locks are not stored: %s", served.key.group_id, outcome[1])
            core.advance()
            served.wake()

        self._write(served, core, changes, done)

    # Sessions

    def close_session(self, owner: Owner) -> None:
        """End a member's session, if it has one, and give back its records, in slices."""
        session = self.sessions.close(owner)
        if session is not None:
            self._leave([session])

    def on_disconnect(self, connection: Any) -> None:
        """End the sessions of a connection that is gone, in slices. A group without any session then needs nothing here."""
        sessions = self.sessions.of_connection(connection)
        for session in sessions:
            self.sessions.evictions += 1
            self.sessions.close(session.owner)
        if sessions:
            self._leave(sessions, then=self._dropping({session.owner[0] for session in sessions}))

    def _leave(self, sessions: Sequence[ShareSession], *, then: Steps[None] | None = None) -> None:
        """Give back what the members of these sessions hold, in slices; what ends a group's serving comes after that."""
        for session in sessions:
            held = [at for at in session.held if at in session.partitions]
            if held:
                self.leaving.setdefault(session.owner, {}).update(dict.fromkeys(held))

        def steps() -> Steps[None]:
            for session in sessions:
                yield from self._giving_back(session.owner)
            if then is not None:
                yield from then

        drive(self._storage.loop, steps())

    def _giving_back(self, owner: Owner) -> Steps[None]:
        number = 0
        while (left := self.leaving.get(owner)) is not None:
            self.give_back(owner, next(iter(left)))
            number += 1
            if not number % _STEP:
                yield None

    def give_back(self, owner: Owner, at: At) -> None:
        """Give back the records that a member's last session held of a partition, unless that is done.

        Its next session calls this before it gets records of the partition, which it would lose otherwise.
        """
        left = self.leaving.get(owner)
        if left is None or at not in left:
            return
        del left[at]
        if not left:
            del self.leaving[owner]
        served = self._served.get(ShareKey(owner[0], *at))
        if served is not None and served.core is not None:
            self._write_transition(served, served.core.release(owner[1]), _note_release)

    def _dropping(self, groups: set[str]) -> Steps[None]:
        """Stop serving what these groups read, unless they have a session again."""
        for number, key in enumerate([key for key in self._served if key.group_id in groups]):
            if not number % _STEP:
                yield None
                groups = {group_id for group_id in groups if not self.sessions.has_members(group_id)}
            if key.group_id in groups:
                self.drop(key)

    def close(self) -> None:
        """Stop all timers."""
        for key in list(self._served):
            self.drop(key)


def _note_release(outcome: Outcome) -> None:
    """Say that records come back only when their lock ends: that they are given back could not be written."""
    if outcome[0] is not ErrorCode.NONE:
        log.warning("records of a share session that has ended stay locked: %s", outcome[1])
