"""Keeps each flow to one process by a Kafka group, which refuses a second process instead of letting it do
harm.

A flow's worker joins the group with protocol type `connect`, as Kafka's workers do, but does not share
the work. The group's leader names one owner, who runs everything: the member that already runs, else
the leader itself. Every other member leaves and ends with a sentence that names the owner. Membership
is static (the flow of the file). So a process that was killed and started again takes its own seat at
once, and need not wait for its old session to end. While the broker is away the owner keeps running.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import orjson

from klamm.connect.config import WorkerConfig
from klamm_base.backoff import Backoff
from klamm_base.errors import KlammError
from klamm_base.security import ClientSecurity
from klamm_kafka.client import ClientError, Cluster
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.heartbeat import HeartbeatRequest
from klamm_kafka.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from klamm_kafka.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from klamm_kafka.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from klamm_kafka.wire.struct import Message

log = logging.getLogger(__name__)

PROTOCOL_TYPE: Final = "connect"
# Not one of Kafka's ("sessioned", "compatible", "default"): its workers and ours must not share a group.
PROTOCOL: Final = "klamm-1"
RETRY_S: Final = 0.5
RETRY_FIRST_S: Final = 0.02
"""The pause before the first repetition: a coordinator that is just being made is there in a moment."""
LEAVE_TIMEOUT_S: Final = 2.0
# The answer to JoinGroup comes when all members have joined or the rebalance timeout has passed.
JOIN_SLACK_S: Final = 10.0

_ELSEWHERE: Final = frozenset(
    {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
)


class MembershipLost(KlammError):
    """The worker may not (or no longer) run the group's connectors."""


class _JoinAgain(Exception):
    """The group moves on; `forget` when it no longer knows this member."""

    def __init__(self, *, forget: bool = False) -> None:
        super().__init__()
        self.forget = forget


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A worker's report of itself to the leader. `id` outlives its process."""

    id: str
    worker_id: str
    url: str
    running: bool

    def encode(self) -> bytes:
        return orjson.dumps(asdict(self))

    @classmethod
    def decode(cls, data: bytes) -> Member:
        return cls(**orjson.loads(data))


def choose_owner(members: Sequence[Member], leader: Member) -> Member:
    """Returns the member who runs everything: the leader if it already does, else another that does, else the
    leader.

    Two members that both run meet when one was away (suspended) for longer than its session. The group went
    on with the other, which leads it by now.
    """
    if leader.running:
        return leader
    return next((m for m in members if m.running), leader)


class Membership:
    """See the module. `on_generation` gets the group's generation after each join.

    `on_stranger` gets a sentence while something else than Klamm uses the group, and None when it is gone. Without it,
    such a group is refused.
    """

    def __init__(
        self,
        *,
        config: WorkerConfig,
        worker_id: str,
        url: str,
        on_generation: Callable[[int], None] = lambda _generation: None,
        on_stranger: Callable[[str | None], None] | None = None,
    ) -> None:
        self._config = config
        self._group: str = config["group.id"]
        self._worker_id = worker_id
        self._url = url
        self._id = f"{socket.gethostname()}:{url.rpartition(':')[2]}"
        self._on_generation = on_generation
        self._on_stranger = on_stranger
        self._stranger = False
        self._cluster = Cluster(
            ",".join(config["bootstrap.servers"]),
            client_id="klamm-mirror",
            security=ClientSecurity.from_properties(config.client),
        )
        self._member_id = ""
        self._generation = -1
        self._running = False
        self._heart: asyncio.Task[None] | None = None
        self._elsewhere = Backoff(RETRY_FIRST_S, RETRY_S)

    async def join(self) -> None:
        """Become the owner, and stay it from now on. Raises MembershipLost when another worker is the owner."""
        await self._join_until_settled()
        self._running = True
        self._heart = asyncio.create_task(self._beat(), name="membership")

    async def lost(self) -> None:
        """Wait until the membership ends; raises MembershipLost with the reason."""
        if self._heart is None:
            await asyncio.Event().wait()
        else:
            await self._heart

    async def leave(self) -> None:
        """Leave the group, so that the next worker need not wait."""
        if self._heart is not None:
            self._heart.cancel()
            await asyncio.gather(self._heart, return_exceptions=True)
        if self._member_id:
            await self._say_goodbye()
        await self._cluster.close()

    async def _say_goodbye(self) -> None:
        me = MemberIdentity(member_id=self._member_id, group_instance_id=self._id, reason="the worker stops")
        try:
            async with asyncio.timeout(LEAVE_TIMEOUT_S):
                await self._ask(LeaveGroupRequest(group_id=self._group, members=[me]))
        except (ClientError, TimeoutError) as e:
            log.info("group %s could not be left (%s); the session expires by itself", self._group, e)
        self._member_id = ""

    # The group protocol

    async def _join_until_settled(self) -> None:
        while True:
            try:
                await self._join_once()
            except _JoinAgain as again:
                if again.forget:
                    self._member_id = ""
            except ClientError as e:
                if not e.retriable:
                    raise
                log.warning("group %s: %s; trying again", self._group, e)
                self._cluster.forget_coordinator(self._group)
                await asyncio.sleep(RETRY_S)
            else:
                if self._stranger and self._on_stranger is not None:
                    self._on_stranger(None)
                self._on_generation(self._generation)
                return

    async def _join_once(self) -> None:
        joined = await self._ask(
            JoinGroupRequest(
                group_id=self._group,
                session_timeout_ms=self._config["session.timeout.ms"],
                rebalance_timeout_ms=self._config["rebalance.timeout.ms"],
                member_id=self._member_id,
                group_instance_id=self._id,
                protocol_type=PROTOCOL_TYPE,
                protocols=[JoinGroupRequestProtocol(name=PROTOCOL, metadata=self._me.encode())],
            ),
            timeout_s=self._config["rebalance.timeout.ms"] / 1000 + JOIN_SLACK_S,
        )
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = joined.member_id
            raise _JoinAgain
        await self._check(joined.error_code)
        self._member_id, self._generation = joined.member_id, joined.generation_id
        synced = await self._ask(
            SyncGroupRequest(
                group_id=self._group,
                generation_id=self._generation,
                member_id=self._member_id,
                group_instance_id=self._id,
                protocol_type=PROTOCOL_TYPE,
                protocol_name=PROTOCOL,
                assignments=self._assignments(joined),
            )
        )
        await self._check(synced.error_code)
        owner = Member.decode(bytes(synced.assignment)) if synced.assignment else self._me
        if owner.id != self._id:
            await self._say_goodbye()
            raise MembershipLost(
                f"worker {owner.worker_id} already runs in group {self._group} (REST at {owner.url}); a flow is "
                "run by one process. Stop that one first"
            )

    async def _wait_for_stranger(self) -> None:
        """Waits a moment for another program to leave the group. Raises MembershipLost where nobody waits."""
        said = (
            f"group {self._group} is in use by another program: by MirrorMaker, or by one that was killed and whose "
            "session has not ended yet. Stop MirrorMaker before Klamm runs its flows"
        )
        if self._on_stranger is None:
            raise MembershipLost(said)
        if not self._stranger:
            log.warning("%s; waiting for that", said)
        self._stranger = True
        self._on_stranger(said)
        await asyncio.sleep(RETRY_S)

    @property
    def _me(self) -> Member:
        return Member(id=self._id, worker_id=self._worker_id, url=self._url, running=self._running)

    def _assignments(self, joined: JoinGroupResponse) -> list[SyncGroupRequestAssignment]:
        """Returns the leader's assignments, which tell every member who the owner is."""
        if joined.leader != joined.member_id or joined.skip_assignment:
            return []
        owner = choose_owner([_of(m) for m in joined.members], self._me).encode()
        return [SyncGroupRequestAssignment(member_id=m.member_id, assignment=owner) for m in joined.members]

    async def _beat(self) -> None:
        """Send heartbeats until the membership is lost."""
        while True:
            await asyncio.sleep(self._config["heartbeat.interval.ms"] / 1000)
            try:
                answer = await self._ask(
                    HeartbeatRequest(
                        group_id=self._group,
                        generation_id=self._generation,
                        member_id=self._member_id,
                        group_instance_id=self._id,
                    )
                )
                await self._check(answer.error_code)
            except ClientError as e:
                log.warning("group %s: no heartbeat (%s)", self._group, e)
                self._cluster.forget_coordinator(self._group)
            except _JoinAgain as again:
                if again.forget:
                    self._member_id = ""
                await self._join_until_settled()

    async def _ask(self, request: Message, *, timeout_s: float | None = None) -> Any:
        connection = await self._cluster.coordinator(self._group)
        return await connection.request(request, timeout_s=timeout_s)

    async def _check(self, code: int) -> None:
        """Raise the error that a code means for this member."""
        match code:
            case ErrorCode.NONE:
                self._elsewhere.succeeded()
            case ErrorCode.REBALANCE_IN_PROGRESS:
                raise _JoinAgain
            case ErrorCode.ILLEGAL_GENERATION | ErrorCode.UNKNOWN_MEMBER_ID:
                raise _JoinAgain(forget=True)
            case ErrorCode.FENCED_INSTANCE_ID:
                raise MembershipLost(f"another worker took the place of {self._id} in group {self._group}")
            case ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
                await self._wait_for_stranger()
                raise _JoinAgain
            case _ if code in _ELSEWHERE:
                self._cluster.forget_coordinator(self._group)
                await asyncio.sleep(self._elsewhere.failed(time.monotonic(), ErrorCode(code).name))
                raise _JoinAgain
            case _:
                known = ErrorCode(code)
                raise MembershipLost(f"group {self._group} cannot be joined: {known.name} ({known.message})")


def _of(member: JoinGroupResponseMember) -> Member:
    return Member.decode(bytes(member.metadata))
