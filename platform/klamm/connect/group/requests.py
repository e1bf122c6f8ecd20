"""The requests of a group member, and the meaning of their error codes. One event loop.

Heartbeats have connections of their own: an answer to JoinGroup may take long, and answers on one connection
keep their order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from klamm.connect.group.protocol import PROTOCOL_TYPE, MalformedGroupData, decode_metadata
from klamm_base.errors import KlammError
from klamm_kafka.client import Cluster, broker_error
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from klamm_kafka.wire.messages.heartbeat import HeartbeatRequest
from klamm_kafka.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from klamm_kafka.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from klamm_kafka.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from klamm_kafka.wire.struct import Message

# JoinGroup is answered when all members have joined or the rebalance timeout has passed.
JOIN_SLACK_S: Final = 10.0

_ELSEWHERE: Final = frozenset(
    {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
)


class MembershipLost(KlammError):
    """The worker cannot be (or stay) a member of this group, and a retry would not help."""


class JoinAgain(Exception):
    """The group has moved on, or cannot be asked now. `wait`: pause before joining again."""

    def __init__(self, why: str, *, wait: bool = False) -> None:
        super().__init__(why)
        self.wait = wait


class Forgotten(Exception):
    """The group does not know this member any more, so others may run its work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """A member's place: before it has one, `member_id` is "" and `generation` -1."""

    member_id: str = ""
    generation: int = -1


class GroupRequests:
    """A member's requests to the coordinator. `instance_id` outlives the process (group.instance.id)."""

    def __init__(
        self, cluster: Cluster, *, group: str, instance_id: str | None, session_ms: int, rebalance_ms: int
    ) -> None:
        self._cluster = cluster
        self._group = group
        self._instance_id = instance_id
        self._session_ms = session_ms
        self._rebalance_ms = rebalance_ms

    async def close(self) -> None:
        await self._cluster.close()

    def forget_coordinator(self) -> None:
        self._cluster.forget_coordinator(self._group)

    async def join(
        self, seat: Seat, protocols: Sequence[tuple[str, bytes]], reason: str
    ) -> JoinGroupResponse:
        """Joins; returns when the whole group has joined. Raises JoinAgain, Forgotten, MembershipLost,
        ClientError.
        """
        member_id = seat.member_id
        while True:
            request = JoinGroupRequest(
                group_id=self._group,
                session_timeout_ms=self._session_ms,
                rebalance_timeout_ms=self._rebalance_ms,
                member_id=member_id,
                group_instance_id=self._instance_id,
                protocol_type=PROTOCOL_TYPE,
                protocols=[JoinGroupRequestProtocol(name=name, metadata=data) for name, data in protocols],
                reason=reason,
            )
            answer: JoinGroupResponse = await self._ask(
                request, timeout_s=self._rebalance_ms / 1000 + JOIN_SLACK_S
            )
            if answer.error_code != ErrorCode.MEMBER_ID_REQUIRED:
                self._check(answer.error_code)
                return answer
            member_id = answer.member_id

    async def sync(self, seat: Seat, protocol: str, assignments: Mapping[str, bytes]) -> bytes:
        """Returns this member's assignment. Raises as `join`."""
        answer = await self._ask(
            SyncGroupRequest(
                group_id=self._group,
                generation_id=seat.generation,
                member_id=seat.member_id,
                group_instance_id=self._instance_id,
                protocol_type=PROTOCOL_TYPE,
                protocol_name=protocol,
                assignments=[
                    SyncGroupRequestAssignment(member_id=m, assignment=a) for m, a in assignments.items()
                ],
            ),
            timeout_s=self._rebalance_ms / 1000 + JOIN_SLACK_S,
        )
        self._check(answer.error_code)
        return bytes(answer.assignment)

    async def heartbeat(self, seat: Seat) -> ErrorCode:
        """Returns NONE, REBALANCE_IN_PROGRESS or ILLEGAL_GENERATION; with each the group knows the member.
        Raises as `join`.
        """
        answer = await self._ask(
            HeartbeatRequest(
                group_id=self._group,
                generation_id=seat.generation,
                member_id=seat.member_id,
                group_instance_id=self._instance_id,
            )
        )
        try:
            self._check(answer.error_code)
        except JoinAgain as e:
            if e.wait:
                raise
        return ErrorCode(answer.error_code)

    async def leave(self, member_id: str, reason: str) -> None:
        """Gives the place up. Member id "" means the place of the previous process with the same instance id.

        A place that is already gone is no error. Raises JoinAgain, ClientError.
        """
        if not member_id and self._instance_id is None:
            return
        me = MemberIdentity(member_id=member_id, group_instance_id=self._instance_id, reason=reason)
        answer = await self._ask(LeaveGroupRequest(group_id=self._group, members=[me]))
        if answer.error_code in _ELSEWHERE:
            self._check(answer.error_code)

    async def urls(self) -> dict[str, str]:
        """Returns the urls of the group's members by member id, as the coordinator knows them. Raises ClientError."""
        answer: DescribeGroupsResponse = await self._ask(DescribeGroupsRequest(groups=[self._group]))
        group = answer.groups[0]
        if group.error_code:
            raise broker_error(group.error_code, f"the members of group {self._group}")
        urls = {}
        for member in group.members:
            try:
                urls[member.member_id] = decode_metadata(bytes(member.member_metadata)).url
            except MalformedGroupData:  # between two rebalances the coordinator tells no metadata
                continue
        return urls

    async def _ask(self, request: Message, *, timeout_s: float | None = None) -> Any:
        connection = await self._cluster.coordinator(self._group)
        return await connection.request(request, timeout_s=timeout_s)

    def _check(self, code: int) -> None:
        """Raises the exception that an error code means for this member."""
        match code:
            case ErrorCode.NONE:
                return
            case ErrorCode.REBALANCE_IN_PROGRESS:
                raise JoinAgain("the group is rebalancing")
            case ErrorCode.ILLEGAL_GENERATION:
                raise JoinAgain("the group has a newer generation")
            case ErrorCode.UNKNOWN_MEMBER_ID:
                raise Forgotten
            case ErrorCode.FENCED_INSTANCE_ID:
                raise MembershipLost(
                    f"another worker took the place of {self._instance_id} in group {self._group}"
                )
            case ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
                raise MembershipLost(
                    f"group {self._group} has members that share no protocol with this worker (consumers, an older "
                    "Klamm, or workers whose connect.protocol has none in common with this one): give this worker a group.id "
                    "and storage topics of its own, or set connect.protocol to one that the others speak"
                )
            case _ if code in _ELSEWHERE:
                self.forget_coordinator()
                raise JoinAgain(f"the coordinator answered {ErrorCode(code).name}", wait=True)
            case _:
                said = str(broker_error(code, f"group {self._group} cannot be joined"))
                raise MembershipLost(f"{said}{self._hint(code)}")

    def _hint(self, code: int) -> str:
        """Returns advice on the settings, where the code alone does not say it."""
        match code:
            case ErrorCode.INVALID_SESSION_TIMEOUT:
                return (
                    f". session.timeout.ms={self._session_ms} is not between the broker's "
                    "group.min.session.timeout.ms and group.max.session.timeout.ms"
                )
            case ErrorCode.GROUP_AUTHORIZATION_FAILED:
                return f". The worker's principal needs READ on group {self._group}"
            case ErrorCode.GROUP_MAX_SIZE_REACHED:
                return ". The broker's group.max.size is the limit"
            case _:
                return ""
