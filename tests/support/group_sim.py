"""A group coordinator in simulated time: a log whose appends can wait or fail, and replies by token."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable
from struct import pack

from klamm_broker.coordinator.effects import Append, Effect, KeyValue, Now, Reply
from klamm_broker.coordinator.groups import GroupCoordinator
from klamm_broker.coordinator.model import (
    CommitRequest,
    GroupConfig,
    JoinRequest,
    JoinResult,
    LeavingMember,
    OffsetToCommit,
    Protocol,
    SyncRequest,
    TopicPartition,
)
from klamm_kafka.wire.errors import ErrorCode

WALL_MS = 1_700_000_000_000
GROUP = "g"


def subscription(*topics: str) -> bytes:
    """Returns a ConsumerProtocolSubscription, version 0."""
    body = b"".join(pack(">h", len(t)) + t.encode() for t in topics)
    return pack(">hi", 0, len(topics)) + body + pack(">i", -1)


class Sim:
    """`log` holds what was appended, by partition. With `auto` appends succeed at once."""

    def __init__(self, *, auto: bool = True, log: dict[int, list[KeyValue]] | None = None, **config) -> None:
        config.setdefault("initial_rebalance_delay_ms", 0)
        uuids = itertools.count()
        self.coordinator = self.make(GroupConfig(**config), lambda: f"id{next(uuids)}")
        self.mono_ms = 0
        self.auto = auto
        self.log: dict[int, list[KeyValue]] = {} if log is None else log
        self.in_flight: dict[int, deque[Append]] = {}
        self.replies: dict[object, object] = {}
        self._tokens = itertools.count()
        self.coordinator.start(self.now)

    def make(self, config: GroupConfig, new_uuid: Callable[[], str]) -> GroupCoordinator:
        return GroupCoordinator(config, new_uuid=new_uuid)

    @property
    def now(self) -> Now:
        return Now(self.mono_ms, WALL_MS + self.mono_ms)

    # Effects

    def run(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Reply):
                assert effect.token not in self.replies, f"{effect.token} was answered twice"
                self.replies[effect.token] = effect.response
            elif self.auto and not self.in_flight.get(effect.partition):
                self._finish(effect, ErrorCode.NONE)
            else:
                self.in_flight.setdefault(effect.partition, deque()).append(effect)

    def finish_append(self, partition: int, error: ErrorCode = ErrorCode.NONE) -> None:
        """Ends the oldest append of this partition."""
        queue = self.in_flight[partition]
        append = queue.popleft()
        if not queue:
            del self.in_flight[partition]
        self._finish(append, error)

    def finish_appends(self, error: ErrorCode = ErrorCode.NONE) -> None:
        while self.in_flight:
            self.finish_append(next(iter(self.in_flight)), error)

    def _finish(self, append: Append, error: ErrorCode) -> None:
        if error is ErrorCode.NONE:
            self.log.setdefault(append.partition, []).extend(append.records)
        self.run(append.then(error, self.now))

    def advance(self, ms: int) -> None:
        """Let time pass, ticking at every deadline on the way."""
        end = self.mono_ms + ms
        while (due := self.coordinator.next_deadline_ms()) is not None and due <= end:
            self.mono_ms = max(self.mono_ms, due)
            self.run(self.coordinator.tick(self.now))
        self.mono_ms = end

    def restarted(self, **config) -> Sim:
        """Returns another coordinator that has loaded the log, at the same time."""
        sim = type(self)(auto=self.auto, log={p: list(r) for p, r in self.log.items()}, **config)
        sim.mono_ms = self.mono_ms
        for partition in range(sim.coordinator.config.offsets_topic_partitions):
            sim.coordinator.start_loading(partition)
            sim.coordinator.replay(partition, sim.log.get(partition, []))
            sim.run(sim.coordinator.finish_loading(partition, sim.now))
        return sim

    def forget_deleted_topics(self, topic_ids: dict[str, bytes]) -> None:
        self.run(self.coordinator.forget_deleted_topics(topic_ids, self.now))

    # Requests: each returns its token

    def token(self, what: str) -> str:
        return f"{what}-{next(self._tokens)}"

    def join(
        self,
        member_id: str = "",
        *,
        group: str = GROUP,
        protocols: tuple[Protocol, ...] = (Protocol("range", b"m"),),
        protocol_type: str = "other",
        session_ms: int = 10_000,
        rebalance_ms: int = 60_000,
        instance: str | None = None,
        needs_id: bool = False,
        skips: bool = True,
    ) -> str:
        token = self.token("join")
        request = JoinRequest(
            group_id=group,
            member_id=member_id,
            group_instance_id=instance,
            client_id="client",
            client_host="/127.0.0.1",
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            protocol_type=protocol_type,
            protocols=protocols,
            requires_known_member_id=needs_id,
            supports_skipping_assignment=skips,
        )
        self.run(self.coordinator.join(request, token, self.now))
        return token

    def sync(
        self,
        member_id: str,
        generation: int,
        assignments: dict[str, bytes] | None = None,
        *,
        group: str = GROUP,
        instance: str | None = None,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
    ) -> str:
        token = self.token("sync")
        request = SyncRequest(
            group_id=group,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocol_name=protocol_name,
            assignments=assignments or {},
        )
        self.run(self.coordinator.sync(request, token, self.now))
        return token

    def heartbeat(
        self, member_id: str, generation: int, *, group: str = GROUP, instance: str | None = None
    ) -> ErrorCode:
        return self.coordinator.heartbeat(group, member_id, instance, generation, self.now)

    def leave(self, *members: str | LeavingMember, group: str = GROUP) -> list[ErrorCode]:
        leaving = [m if isinstance(m, LeavingMember) else LeavingMember(m) for m in members]
        token = self.token("leave")
        self.run(self.coordinator.leave(group, leaving, token, self.now))
        result = self.replies[token]
        return [error for _, error in result.members] or [result.error]

    def commit(
        self,
        offsets: dict[tuple[str, int], int | OffsetToCommit],
        *,
        group: str = GROUP,
        member_id: str = "",
        generation: int = -1,
        instance: str | None = None,
        **rest,
    ) -> str:
        token = self.token("commit")
        request = CommitRequest(
            group_id=group,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance,
            offsets={
                TopicPartition(*at): o if isinstance(o, OffsetToCommit) else OffsetToCommit(o)
                for at, o in offsets.items()
            },
            **rest,
        )
        self.run(self.coordinator.commit(request, token, self.now))
        return token

    def delete(self, group: str = GROUP) -> str:
        token = self.token("delete")
        self.run(self.coordinator.delete_group(group, token, self.now))
        return token

    def delete_offsets(self, *partitions: tuple[str, int], group: str = GROUP) -> str:
        token = self.token("delete-offsets")
        at = [TopicPartition(*p) for p in partitions]
        self.run(self.coordinator.delete_offsets(group, at, token, self.now))
        return token

    # Answers

    def result(self, token: str):
        """Returns the reply to a request that must have been answered by now."""
        assert token in self.replies, f"{token} is still parked"
        return self.replies[token]

    def parked(self, token: str) -> bool:
        return token not in self.replies

    def error(self, token: str) -> ErrorCode:
        response = self.result(token)
        return response if isinstance(response, ErrorCode) else response.error

    def offsets(self, group: str = GROUP) -> dict[tuple[str, int], int]:
        result = self.coordinator.fetch(group)
        assert result.error is ErrorCode.NONE, result.error
        return {tuple(at): committed.offset for at, committed in result.offsets.items()}

    def state(self, group: str = GROUP) -> str:
        return self.coordinator.describe(group).state

    # Shortcuts

    def settle(self) -> None:
        """Let what is due now happen."""
        self.advance(0)

    def stable(self, count: int = 1, **how) -> list[JoinResult]:
        """Returns a Stable group of `count` new members, leader first, each assigned its own id."""
        group = how.get("group", GROUP)
        tokens = [self.join(**how) for _ in range(count)]
        self.settle()
        joined = [self.result(t) for t in tokens]
        return self.assign(joined, group=group)

    def assign(self, joined: list[JoinResult], *, group: str = GROUP) -> list[JoinResult]:
        """Sync everybody; every member's assignment is its own id."""
        joined = sorted(joined, key=lambda j: j.member_id != j.leader)
        assignments = {j.member_id: j.member_id.encode() for j in joined}
        for j in joined:
            assert j.error is ErrorCode.NONE, j.error
            self.sync(
                j.member_id, j.generation_id, assignments if j.member_id == j.leader else None, group=group
            )
        assert self.state(group) == "Stable"
        return joined
