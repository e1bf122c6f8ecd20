"""The group coordinator: finds and makes groups, and connects requests, time and the log.

It is a plain state machine. Every method takes the time (`Now`) and returns effects in order, or an answer at
once; nothing waits and nothing is written here (see `effects.py`). It is not thread-safe and not reentrant:
a shell finishes the effects of one call before it makes the next one.

One object holds all partitions of `__consumer_offsets`. While a partition is loading, requests for its groups are
answered COORDINATOR_LOAD_IN_PROGRESS, which every client repeats. The same holds for a group whose deletion is being
written, as the outcome is not known yet.
"""

from __future__ import annotations

import logging
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from klamm_base.first_use import FirstUse
from klamm_broker.coordinator import view
from klamm_broker.coordinator.administration import Administration
from klamm_broker.coordinator.base import Group
from klamm_broker.coordinator.consumer import core
from klamm_broker.coordinator.consumer import view as consumer_view
from klamm_broker.coordinator.consumer.change import Steps
from klamm_broker.coordinator.consumer.group import ConsumerGroup, ConsumerGroupState
from klamm_broker.coordinator.consumer.journal import Journal
from klamm_broker.coordinator.consumer.member import MemberState
from klamm_broker.coordinator.consumer.model import (
    ConsumerConfig,
    ConsumerGroupDescription,
    HeartbeatRequest,
)
from klamm_broker.coordinator.consumer.topics import NoTopics, Topics
from klamm_broker.coordinator.effects import Effect, KeyValue, Now, Token, Turn
from klamm_broker.coordinator.group import ClassicGroup
from klamm_broker.coordinator.group_state import GroupState
from klamm_broker.coordinator.loading import Loader
from klamm_broker.coordinator.members import Members
from klamm_broker.coordinator.membership import Membership
from klamm_broker.coordinator.model import (
    CommitRequest,
    CommitResult,
    FetchResult,
    GroupConfig,
    GroupDescription,
    JoinRequest,
    LeavingMember,
    ListedGroup,
    SyncRequest,
    TopicPartition,
)
from klamm_broker.coordinator.offsets import Offsets
from klamm_broker.coordinator.producer_ids import NO_PRODUCER_ID
from klamm_broker.coordinator.rebalance import Rebalancer
from klamm_broker.coordinator.share.config import ShareConfig
from klamm_broker.coordinator.streams.config import StreamsConfig, StreamsGroupState
from klamm_broker.coordinator.table import GroupTable
from klamm_broker.coordinator.timers import Timers
from klamm_kafka.wire.errors import ErrorCode

if TYPE_CHECKING:
    from klamm_broker.coordinator.share.groups import ShareGroups
    from klamm_broker.coordinator.streams.groups import StreamsGroups

log = logging.getLogger(__name__)

_CLEANUP: Final = ("cleanup",)
_SESSIONS_PER_TICK: Final = 500
"""Deadlines that one tick handles; the rest is due at once in the next."""
_AGAIN_MS: Final = 5_000
"""The pause after work that was due failed by a defect: it is tried again, without filling the log."""


class GroupCoordinator:
    """The coordinator of all groups. See the module's docstring."""

    def __init__(
        self,
        config: GroupConfig,
        *,
        consumer: ConsumerConfig | None = None,
        streams: StreamsConfig | None = None,
        share: ShareConfig | None = None,
        topics: Topics | None = None,
        new_uuid: Callable[[], str] = lambda: str(uuid.uuid4()),
    ) -> None:
        self._table = GroupTable(config)
        self.groups = self._table.groups
        self._turn = Turn()
        self._timers = Timers()
        self._rebalancer = Rebalancer(config, self._timers, self._turn)
        self._membership = Membership(config, self._rebalancer, self._turn, new_uuid=new_uuid)
        self._offsets = Offsets(config, self._rebalancer, self._turn)
        self._consumer_config = consumer or ConsumerConfig()
        self._topics = topics or NoTopics()
        self._steps = Steps(self._consumer_config, self._topics)
        self._core = core.Core(
            classic_config=config,
            config=self._consumer_config,
            groups=self.groups,
            turn=self._turn,
            timers=self._timers,
            journal=Journal(self._turn),
            steps=self._steps,
            rebalancer=self._rebalancer,
            partition_for=self.partition_for,
            new_member_id=new_uuid,
        )
        self._members = Members(self._table, self._turn, self._membership, self._core, self._drop_if_void)
        self._share_config, self._streams_config = share or ShareConfig(), streams or StreamsConfig()
        self.share_groups, self._streams_groups = FirstUse(self._make_share), FirstUse(self._make_streams)
        self._expire_others: dict[str, Callable[[tuple[str, ...]], None]] = {}
        """What is done at deadlines of share and Streams groups, by the deadline's kind."""
        self._administration = Administration(
            self._table,
            self._turn,
            self._offsets,
            self._rebalancer,
            self._core.journal,
            delete_share_states=self._delete_share_states,
        )
        self._loading: dict[int, Loader] = {}

    def _make_share(self) -> ShareGroups:
        from klamm_broker.coordinator.share.core import SESSION, ShareCore
        from klamm_broker.coordinator.share.groups import ShareGroups

        core = ShareCore(
            config=self._share_config,
            groups=self.groups,
            turn=self._turn,
            timers=self._timers,
            journal=self._core.journal,
            topics=self._topics,
            hashes=self._steps.hashes,
            partition_for=self.partition_for,
            max_groups=lambda: self.config.max_groups,
        )
        made = ShareGroups(table=self._table, turn=self._turn, core=core)
        self._expire_others[SESSION] = made.members.expire
        return made

    def _delete_share_states(self, group: Group, then: Callable[[ErrorCode], None]) -> None:
        self.share.delete_states(group, then)

    def _make_streams(self) -> StreamsGroups:
        from klamm_broker.coordinator.streams.change import Steps
        from klamm_broker.coordinator.streams.core import DEADLINES, StreamsCore
        from klamm_broker.coordinator.streams.groups import StreamsGroups

        core = StreamsCore(
            config=self._streams_config,
            table=self._table,
            turn=self._turn,
            timers=self._timers,
            journal=self._core.journal,
            steps=Steps(self._topics, self._steps.hashes),
            rebalancer=self._rebalancer,
        )
        self._expire_others |= dict.fromkeys(DEADLINES, core.expire)
        return StreamsGroups(core)

    @property
    def share(self) -> ShareGroups:
        """Share groups; made at the first use, as `streams`."""
        return self.share_groups()

    @property
    def streams(self) -> StreamsGroups:
        """Streams groups."""
        return self._streams_groups()

    @property
    def config(self) -> GroupConfig:
        return self._table.config

    # Members

    def consumer_heartbeat(self, request: HeartbeatRequest, token: Token, now: Now) -> list[Effect]:
        """Handle a ConsumerGroupHeartbeat. The reply is a HeartbeatResult."""
        self._turn.begin(now)
        self._members.consumer_heartbeat(request, token)
        return self._turn.end()

    def serves_streams(self) -> bool:
        """Returns whether requests of Streams groups are served."""
        return self._streams_config.enabled()

    def join(self, request: JoinRequest, token: Token, now: Now) -> list[Effect]:
        """Handle a JoinGroup. The reply is a JoinResult."""
        self._turn.begin(now)
        self._members.join(request, token)
        return self._turn.end()

    def sync(self, request: SyncRequest, token: Token, now: Now) -> list[Effect]:
        """Handle a SyncGroup. The reply is a SyncResult."""
        self._turn.begin(now)
        self._members.sync(request, token)
        return self._turn.end()

    def heartbeat(
        self, group_id: str, member_id: str, group_instance_id: str | None, generation_id: int, now: Now
    ) -> ErrorCode:
        """Answer a Heartbeat. It changes only the member's deadline, so it has no effects."""
        self._turn.begin(now)
        return self._members.heartbeat(group_id, member_id, group_instance_id, generation_id)

    def leave(self, group_id: str, members: Sequence[LeavingMember], token: Token, now: Now) -> list[Effect]:
        """Handle a LeaveGroup. The reply is a LeaveResult; further effects tell the other members."""
        self._turn.begin(now)
        self._members.leave(group_id, members, token)
        return self._turn.end()

    # Topics

    def on_topics_changed(self, names: Iterable[str], *, created: bool = False) -> None:
        """Note topics that were created, deleted or have more partitions: groups look at them with their next heartbeat."""
        changed = set(names)
        for name in changed:
            self._steps.hashes.forget(name)
        for group in self.groups.values():
            group.on_topics_changed(changed, created=created)

    # Offsets

    def commit(self, request: CommitRequest, token: Token, now: Now) -> list[Effect]:
        """Handle an OffsetCommit. The reply is a CommitResult."""
        self._turn.begin(now)
        # A change of the group that is being written comes first: it may have removed this member.
        self._core.journal.when_free(
            request.group_id,
            lambda: self._commit(request, token),
            lambda: self._turn.reply(token, CommitResult(error=ErrorCode.UNKNOWN_SERVER_ERROR)),
        )
        return self._turn.end()

    def _commit(self, request: CommitRequest, token: Token) -> None:
        error, group = self._group_to_commit_to(request)
        if group is None:
            self._turn.reply(token, CommitResult(error=error))
        else:
            self._offsets.commit(group, request, token)
            self._drop_if_void(group)

    def _group_to_commit_to(self, request: CommitRequest) -> tuple[ErrorCode, Group | None]:
        error = self._table.unavailable(request.group_id)
        if error is not ErrorCode.NONE:
            return error, None
        if request.group_id not in self.groups and request.generation_id >= 0:
            missing = request.reports_missing_group
            return ErrorCode.GROUP_ID_NOT_FOUND if missing else ErrorCode.ILLEGAL_GENERATION, None
        return self._table.found_or_made(request.group_id, self._turn.now.wall_ms)

    def fetch(
        self,
        group_id: str,
        *,
        member_id: str | None = None,
        member_epoch: int = -1,
        require_stable: bool = False,
    ) -> FetchResult:
        """Answer an OffsetFetch: all committed offsets of a group, as a view that the next call may change.

        With `require_stable` the answer also names the offsets that an open transaction may still change.
        """
        error = self._table.unavailable(group_id)
        if error is not ErrorCode.NONE:
            return FetchResult(error=error)
        group = self.groups.get(group_id)
        if group is None:
            return FetchResult()
        error = group.validate_fetch(member_id, member_epoch)
        if error is not ErrorCode.NONE:
            return FetchResult(error=error)
        offsets = MappingProxyType(group.offsets)
        if not require_stable:
            return FetchResult(offsets=offsets)
        pending = self._offsets.in_transactions[group.partition]
        return FetchResult(offsets=offsets, unstable=pending.of_group(group_id))

    def on_marker(self, partition: int, producer_id: int, *, committed: bool, now: Now) -> list[Effect]:
        """Decide the offsets of a transaction whose marker is in this partition of `__consumer_offsets`."""
        self._turn.begin(now)
        closed, visible = self._offsets.complete(partition, producer_id, committed=committed)
        for group_id, offsets in visible.items():
            self.groups[group_id].offsets.update(offsets)
        for group_id, at in closed:
            self._offsets.settle(self.groups[group_id], at)
        for group_id in {group_id for group_id, _ in closed}:
            self._drop_if_void(self.groups[group_id])
        return self._turn.end()

    def is_loading(self, partition: int) -> bool:
        """Returns whether this partition of `__consumer_offsets` is being replayed."""
        return partition in self._loading

    def delete_offsets(
        self, group_id: str, partitions: Sequence[TopicPartition], token: Token, now: Now
    ) -> list[Effect]:
        """Handle an OffsetDelete. The reply is a CommitResult: an error of the whole, or one per partition."""
        self._turn.begin(now)
        self._administration.delete_offsets(group_id, partitions, token)
        return self._turn.end()

    def on_partitions_deleted(self, partitions: Collection[TopicPartition], now: Now) -> list[Effect]:
        """Forget the offsets of deleted partitions: a new topic of that name starts over."""
        self._turn.begin(now)
        self._administration.forget_partitions(partitions)
        return self._turn.end()

    def forget_deleted_topics(self, topic_ids: Mapping[str, bytes], now: Now) -> list[Effect]:
        """Forget, after loading, the offsets of topics that were deleted or replaced before a crash."""
        self._turn.begin(now)
        self._administration.forget_deleted_topics(topic_ids)
        return self._turn.end()

    # Groups

    def delete_group(self, group_id: str, token: Token, now: Now) -> list[Effect]:
        """Handle a DeleteGroups for one group. The reply is an ErrorCode."""
        self._turn.begin(now)
        self._administration.delete_group(group_id, token)
        return self._turn.end()

    def describe(self, group_id: str) -> GroupDescription:
        """Answer a DescribeGroups for one group. GROUP_ID_NOT_FOUND is for versions that know it; the state is Dead."""
        error = self._table.unavailable(group_id)
        if error is not ErrorCode.NONE:
            return GroupDescription(group_id=group_id, error=error)
        return view.describe(group_id, self.groups.get(group_id))

    def describe_consumer(self, group_id: str) -> ConsumerGroupDescription:
        """Answer a ConsumerGroupDescribe for one group."""
        error, group = self._table.found(group_id, ErrorCode.GROUP_ID_NOT_FOUND)
        if isinstance(group, ConsumerGroup):
            return consumer_view.describe(group, self._topics, self._steps.assignor_of(group))
        text = error.message
        if error is ErrorCode.GROUP_ID_NOT_FOUND:
            text = f"Group {group_id} {'not found' if group is None else 'is not a consumer group'}."
        return ConsumerGroupDescription(group_id=group_id, error=error, error_message=text)

    def list_groups(
        self, states: Collection[str] = (), types: Collection[str] = ()
    ) -> tuple[ErrorCode, list[ListedGroup]]:
        """Answer a ListGroups: the groups in these states and of these types (empty: all), names in any case."""
        error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if self._loading else ErrorCode.NONE
        return error, view.list_groups(self.groups.values(), states, types)

    # Time

    def next_deadline_ms(self) -> int | None:
        """Returns the time of the next necessary `tick`, on the clock of `Now.mono_ms`. An earlier call does no harm."""
        return self._timers.next_ms()

    def tick(self, now: Now) -> list[Effect]:
        """Do what is due."""
        self._turn.begin(now)
        for _ in range(_SESSIONS_PER_TICK):
            key = self._timers.pop_due(now.mono_ms)
            if key is None:
                break
            try:
                self._expire(key)
            except Exception:  # an error in one group must not stop the others, nor end this deadline
                log.exception("what was due could not be done, it is tried again: %s", " ".join(key))
                self._try_again(key)
        return self._turn.end()

    def _expire(self, key: tuple[str, ...]) -> None:
        if key == _CLEANUP:
            self._clean()
        elif key[0] in core.DEADLINES or key[0] == core.REGEX:
            self._core.expire(key)
        elif key[0] in self._expire_others:
            self._expire_others[key[0]](key)
        else:
            self._core.journal.when_free(
                key[1], partial(self._expire_classic, key), partial(self._try_again, key)
            )

    def _try_again(self, key: tuple[str, ...]) -> None:
        if key not in self._timers:
            self._timers.set(key, self._turn.now.mono_ms + _AGAIN_MS)

    def _expire_classic(self, key: tuple[str, ...]) -> None:
        group = self.groups.get(key[1])
        if not isinstance(group, ClassicGroup) or key in self._timers:
            return
        match key[0]:
            case "session":
                self._rebalancer.expire_session(group, key[2])
            case "join":
                self._rebalancer.expire_join(group)
            case "sync":
                self._rebalancer.expire_sync(group)
        self._drop_if_void(group)

    def _clean(self) -> None:
        pause_ms = self._administration.expire_offsets()
        self._timers.set(_CLEANUP, self._turn.now.mono_ms + pause_ms)

    # Loading

    def start(self, now: Now) -> None:
        """Begin to look for expired offsets. Called once."""
        self._timers.set(_CLEANUP, now.mono_ms + self.config.offsets_retention_check_interval_ms)

    def start_loading(self, partition: int) -> None:
        """Make the partition's groups unavailable until its records have been replayed."""
        self._loading[partition] = Loader()
        self._table.loading.add(partition)

    def replay(self, partition: int, batch: Iterable[KeyValue], *, producer_id: int = NO_PRODUCER_ID) -> None:
        """Take in records of a partition that is being loaded, in the order of its log.

        Records of a transaction come with its producer's id.
        """
        self._loading[partition].replay(batch, producer_id)

    def replay_marker(self, partition: int, producer_id: int, *, committed: bool) -> None:
        """Take in the end of a transaction in a partition that is being loaded."""
        self._loading[partition].complete(producer_id, committed=committed)

    def finish_loading(self, partition: int, now: Now) -> list[Effect]:
        """Make the replayed partition's groups available, and start their members' sessions.

        When this raises they stay unavailable: a part of them would take offsets back.
        """
        self._turn.begin(now)
        loader = self._loading[partition]
        loaded = loader.groups(partition)
        waiting = list(loader.in_transactions())
        del self._loading[partition]
        self._table.loading.discard(partition)
        for group in loaded:
            self.groups[group.group_id] = group
            if isinstance(group, ConsumerGroup):
                self._start_consumer_group(group)
            elif isinstance(group, ClassicGroup):
                self._start_classic_group(group)
            elif group.kind == "share":
                self.share.watch(group)
            else:
                self.streams.watch(group)
        for producer_id, group_id, at, offset in waiting:
            opened = self._offsets.in_transactions[partition].add(producer_id, group_id, {at: offset})
            (
                self.groups.get(group_id) or self._table.make(group_id, self._turn.now.wall_ms)
            ).pending_offsets.update(opened)
        return self._turn.end()

    def _start_classic_group(self, group: ClassicGroup) -> None:
        for member in group.members.values():
            self._rebalancer.restart_session(group, member)
        if len(group.members) > self.config.max_size:
            self._rebalancer.prepare(group, f"{len(group.members)} members are more than group.max.size")

    def _start_consumer_group(self, group: ConsumerGroup) -> None:
        for member in group.members.values():
            self._core.restart_session(group, member)
            if member.state is MemberState.UNREVOKED_PARTITIONS:
                self._core.watch_revocation(group, member)

    def close(self, now: Now) -> list[Effect]:
        """Answer all parked requests and accept no more, as the broker stops."""
        self._turn.begin(now)
        self._table.closing = True
        classic = [group for group in self.groups.values() if isinstance(group, ClassicGroup)]
        for group in classic:
            for member in group.members.values():
                self._rebalancer.release(group, member, ErrorCode.NOT_COORDINATOR, answer_as=member.member_id)
        return self._turn.end()

    # Finding groups

    def on_offsets_topic_created(self, partitions: int) -> None:
        """Take over the number of partitions of the new, empty `__consumer_offsets`; its creator chose it."""
        self._table.on_offsets_topic_created(partitions)

    def partition_for(self, group_id: str) -> int:
        return self._table.partition_for(group_id)

    def _drop_if_void(self, group: Group) -> None:
        if group.is_void and self.groups.get(group.group_id) is group:
            self._administration.remove(group)

    def statistics(self) -> Mapping[str, int]:
        """Returns numbers for metrics and logs."""
        counts = Counter({state.value: 0 for state in GroupState if state is not GroupState.DEAD})
        counts |= {state.value: 0 for state in (*ConsumerGroupState, *StreamsGroupState)}
        counts.update(group.state_name for group in self.groups.values())
        return {**counts, "offsets": sum(len(g.offsets) for g in self.groups.values())}
