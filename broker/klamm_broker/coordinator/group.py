"""A classic group: its members, their protocols, the leader, and the state.

Invariants: `_awaiting_join` holds exactly the members with a parked JoinGroup; `_supported` counts the
members behind each protocol name; `leader_id` names a member whenever there are members; a group instance id
names at most one member. State changes go through `handle` (the table is in `group_state.py`).

The group does not decide when to rebalance, and it knows neither time-outs nor records.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from klamm_broker.coordinator import group_state
from klamm_broker.coordinator.base import Clock, Group
from klamm_broker.coordinator.effects import Token
from klamm_broker.coordinator.group_state import Event, GroupState
from klamm_broker.coordinator.model import (
    CONSUMER_PROTOCOL_TYPE,
    UNKNOWN_MEMBER_ID,
    CommitRequest,
    CommittedOffset,
    JoinedMember,
    Protocol,
)
from klamm_broker.coordinator.subscription import MalformedSubscription, subscribed_topics
from klamm_kafka.wire.errors import ErrorCode


@dataclass(slots=True, kw_only=True)
class Member:
    """A member of a group; `join_token` and `sync_token` are set while that request is parked."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[Protocol, ...]
    assignment: bytes = b""
    is_new: bool = False
    """True until its first JoinGroup is answered; until then it cannot send heartbeats."""
    join_token: Token | None = None
    sync_token: Token | None = None

    def metadata(self, protocol_name: str | None) -> bytes:
        """Returns the member's metadata for this protocol; empty when it does not support it."""
        return next((p.metadata for p in self.protocols if p.name == protocol_name), b"")

    def vote(self, candidates: set[str]) -> str:
        """Returns the candidate that this member prefers."""
        return next(p.name for p in self.protocols if p.name in candidates)


class ClassicGroup(Group):
    """A group of the classic protocol. See the module's docstring."""

    kind = "classic"

    def __init__(self, group_id: str, *, partition: int, wall_ms: int) -> None:
        super().__init__(group_id, partition=partition)
        self.state = GroupState.EMPTY
        self.state_since_ms = wall_ms
        self.generation_id = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader_id: str | None = None
        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}
        self.pending_members: set[str] = set()
        """Ids that were given out and have not come back in a JoinGroup yet."""
        self.pending_sync: set[str] = set()
        """Members of this generation whose SyncGroup has not come yet."""
        self.initial_delay: InitialDelay | None = None
        """Set while the first join phase of an empty group waits for more members."""
        self.assigning_generation: int | None = None
        """The generation whose assignment is being stored."""
        self.subscribed_topics: frozenset[str] | None = None
        """What members of a consumer group subscribed to; None when it cannot be known."""
        self.has_metadata_record = False
        self._supported: Counter[str] = Counter()
        self._awaiting_join: set[str] = set()

    # State

    def handle(self, event: Event, wall_ms: int) -> None:
        """Move to the state that `event` leads to."""
        self.state = group_state.after(self.state, event)
        self.state_since_ms = wall_ms

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def can_rebalance(self) -> bool:
        return group_state.can_rebalance(self.state)

    @property
    def is_empty(self) -> bool:
        return self.state is GroupState.EMPTY

    @property
    def is_void(self) -> bool:
        return (
            self.state is GroupState.EMPTY
            and not self.pending_members
            and not self.has_metadata_record
            and not self.offsets
            and not self.pending_offsets
            and not self.deleting
        )

    @property
    def uses_consumer_protocol(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    # Members

    def add(self, member: Member) -> None:
        """Add a new member. The group's protocol type, which the first member decides, is set elsewhere."""
        assert member.member_id not in self.members
        if member.group_instance_id is not None:
            assert member.group_instance_id not in self.static_members
            self.static_members[member.group_instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        self._supported.update({p.name for p in member.protocols})
        self._note_awaiting(member)
        self.pending_members.discard(member.member_id)

    def remove(self, member_id: str) -> Member | None:
        """Remove a member or a pending member; its parked requests must have been answered before."""
        self.pending_members.discard(member_id)
        self.pending_sync.discard(member_id)
        member = self.members.pop(member_id, None)
        if member is None:
            return None
        assert member.join_token is None
        assert member.sync_token is None
        self._supported.subtract({p.name for p in member.protocols})
        self._supported = +self._supported
        if member.group_instance_id is not None:
            del self.static_members[member.group_instance_id]
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        return member

    def replace_static_member(self, old_id: str, new_id: str) -> Member:
        """Give a static member a new id; its place, assignment and leadership stay."""
        member = self.members.pop(old_id)
        assert member.join_token is None
        assert member.sync_token is None
        assert member.group_instance_id is not None
        member.member_id = new_id
        self.members[new_id] = member
        self.static_members[member.group_instance_id] = new_id
        self.pending_sync.discard(old_id)
        if self.leader_id == old_id:
            self.leader_id = new_id
        return member

    def update(
        self,
        member: Member,
        *,
        protocols: tuple[Protocol, ...],
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
    ) -> None:
        """Update a member that joins again with what it sent."""
        self._supported.subtract({p.name for p in member.protocols})
        self._supported.update({p.name for p in protocols})
        self._supported = +self._supported
        member.protocols = protocols
        member.session_timeout_ms = session_timeout_ms
        member.rebalance_timeout_ms = rebalance_timeout_ms

    def set_join_token(self, member: Member, token: Token | None) -> None:
        """Park a JoinGroup with the member; None takes it out."""
        member.join_token = token
        self._note_awaiting(member)

    def _note_awaiting(self, member: Member) -> None:
        if member.join_token is None:
            self._awaiting_join.discard(member.member_id)
        else:
            self._awaiting_join.add(member.member_id)

    def validate_member(self, member_id: str, group_instance_id: str | None) -> ErrorCode:
        """Returns NONE if this is a member and, if it has an instance id, the current one under it; otherwise the error."""
        if group_instance_id is not None:
            current = self.static_members.get(group_instance_id)
            if current is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if current != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    # Offsets

    @property
    def may_lose_offsets(self) -> bool:
        return self.is_empty or self.uses_consumer_protocol

    def retention_starts(self) -> Clock | None:
        if self.protocol_type is None:
            return _commit_time  # a consumer outside group management
        if self.is_empty:
            since_ms = self.state_since_ms
            # Group records before version 2 do not say when the group became empty.
            return _commit_time if since_ms == -1 else lambda _: since_ms
        if (
            self.uses_consumer_protocol
            and self.state is GroupState.STABLE
            and self.subscribed_topics is not None
        ):
            return _commit_time
        return None

    def validate_commit(self, request: CommitRequest) -> ErrorCode:
        generation_id = request.generation_id
        if generation_id < 0 and self.is_empty:
            return ErrorCode.NONE  # an administrator, or a consumer that assigns its partitions itself
        nobody = request.member_id == UNKNOWN_MEMBER_ID and request.group_instance_id is None
        if generation_id < 0 and nobody:
            # The group has members, so its offsets are theirs. Older versions of TxnOffsetCommit name no member.
            return ErrorCode.NONE if request.is_transactional else ErrorCode.UNKNOWN_MEMBER_ID
        error = self.validate_member(request.member_id, request.group_instance_id)
        if error is not ErrorCode.NONE:
            return error
        if generation_id != self.generation_id:
            return ErrorCode.ILLEGAL_GENERATION
        if self.state is GroupState.COMPLETING_REBALANCE and not request.is_transactional:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def validate_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        return ErrorCode.NONE

    # Rebalance

    @property
    def num_awaiting_join(self) -> int:
        return len(self._awaiting_join)

    @property
    def has_all_members_joined(self) -> bool:
        return len(self.members) == len(self._awaiting_join) and not self.pending_members

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout that any member asks for."""
        return max((m.rebalance_timeout_ms for m in self.members.values()), default=0)

    def not_yet_rejoined(self) -> list[Member]:
        return [m for m in self.members.values() if m.join_token is None]

    def elect_joined_leader(self) -> bool:
        """Make sure that the leader is a member that has joined. Returns False when no member has."""
        if self.leader_id in self._awaiting_join:
            return True
        joined = next((id_ for id_ in self.members if id_ in self._awaiting_join), None)
        if joined is None:
            return False
        self.leader_id = joined
        return True

    def next_generation(self, wall_ms: int) -> None:
        """End the join phase: go on to CompletingRebalance with members, to Empty without."""
        self.generation_id += 1
        self.pending_sync.clear()
        self.protocol_name = self.select_protocol() if self.members else None
        self.refresh_subscribed_topics()
        self.handle(Event.JOIN_PHASE_COMPLETED if self.members else Event.ALL_MEMBERS_LEFT, wall_ms)

    def select_protocol(self) -> str:
        """Returns the protocol with most votes among those that all members support.

        Among equals the longest-standing member's favourite wins, so that the outcome is repeatable.
        """
        candidates = {name for name, count in self._supported.items() if count == len(self.members)}
        votes = Counter(m.vote(candidates) for m in self.members.values())
        return votes.most_common(1)[0][0]

    def supports(self, protocol_type: str, protocols: Iterable[Protocol]) -> bool:
        """Decides whether a member with these protocols could be in this group.

        A group without members takes any member that has a protocol type and at least one protocol.
        """
        names = [p.name for p in protocols]
        if self.state is GroupState.EMPTY:
            return bool(protocol_type) and bool(names)
        if protocol_type != self.protocol_type:
            return False
        return any(self._supported[name] == len(self.members) for name in names)

    def joined_members(self) -> tuple[JoinedMember, ...]:
        """Returns the members as the leader needs them for the assignment."""
        return tuple(
            JoinedMember(m.member_id, m.group_instance_id, m.metadata(self.protocol_name))
            for m in self.members.values()
        )

    # Subscriptions

    def refresh_subscribed_topics(self) -> None:
        """Read the members' subscriptions, if the coordinator can read the protocol."""
        self.subscribed_topics = None
        if not self.uses_consumer_protocol:
            return
        if self.members and self.protocol_name is None:
            return
        try:
            self.subscribed_topics = frozenset(
                topic
                for m in self.members.values()
                for topic in subscribed_topics(m.metadata(self.protocol_name))
            )
        except MalformedSubscription:
            # This is Kafka's choice too: a client with its own format still gets a working group, but its
            # subscription protects no offsets by name (see `is_subscribed_to`).
            self.subscribed_topics = None

    def is_subscribed_to(self, topic: str) -> bool:
        """Decides whether a member is subscribed. A group of consumers with unreadable subscriptions says yes."""
        if self.subscribed_topics is not None:
            return topic in self.subscribed_topics
        return self.uses_consumer_protocol


@dataclass(slots=True)
class InitialDelay:
    """The rest of the time that the first join phase waits for members (group.initial.rebalance.delay.ms)."""

    delay_ms: int
    remaining_ms: int
    member_added: bool = False


def _commit_time(committed: CommittedOffset) -> int:
    return committed.commit_timestamp_ms
