"""One rebalance after the other, seen from one member: join, assign if it leads, sync, carry out. One event loop.

`Rebalancer` knows the member's place and what it runs; when to rebalance, and what to do when that fails, is `membership`'s.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, replace

from klamm.connect.group.assignor import Sharing
from klamm.connect.group.leader import Round, make_round
from klamm.connect.group.listener import ConfigView, GroupListener
from klamm.connect.group.load_watch import LoadWatch
from klamm.connect.group.protocol import (
    ExtendedAssignment,
    ProtocolName,
    WorkerState,
    decode_assignment,
    encode_metadata,
)
from klamm.connect.group.requests import GroupRequests, JoinAgain, Seat
from klamm.connect.group.session import Session
from klamm_kafka.wire.messages.join_group import JoinGroupResponse

log = logging.getLogger(__name__)


class OutOfSync(Exception):
    """The config topic could not be read as far as the assignment presumes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a round ended. `again`: why there is to be another at once; `delay_ms` > 0: one is due after that.

    `assigned`: whether the listener was told what to run.
    """

    again: str | None = None
    delay_ms: int = 0
    assigned: bool = False


class Rebalancer:
    """See the module."""

    def __init__(
        self,
        requests: GroupRequests,
        session: Session,
        listener: GroupListener,
        *,
        url: str,
        offered: ProtocolName,
        max_delay_ms: int,
    ) -> None:
        self._requests = requests
        self._session = session
        self._listener = listener
        self._url = url
        self._offered = offered
        self._sharing = Sharing(max_delay_ms=max_delay_ms)
        self._load_watch = LoadWatch()
        self.seat = Seat()
        self.protocol = offered
        self.running: ExtendedAssignment | None = None
        """What the group may think that this worker runs; None is nothing."""
        self.made: Round | None = None
        """What this worker made of the last round as its leader."""
        self.is_leader = False
        self.leader_url = ""

    def load_has_changed(self) -> bool:
        """Whether the worker should tell its loads, so that the leader may move tasks. To be asked at every heartbeat."""
        self._load_watch.observe(self._listener.loads(), _now_ms())
        return self.protocol is not ProtocolName.EAGER and self._load_watch.wants_rebalance(_now_ms())

    def lead_no_more(self) -> None:
        self.is_leader, self.leader_url = False, ""

    async def revoke_all(self) -> None:
        """Cut short by the end of the session, what runs is still known to run, and `on_lost` follows."""
        if self.running is not None:
            await self._listener.on_revoked(self.running.connectors, self.running.tasks)
            self.running = None

    async def take_part(self, reason: str) -> Outcome:
        """One round. Raises JoinAgain, Forgotten, MembershipLost, OutOfSync, MalformedGroupData, ClientError."""
        if self.protocol is ProtocolName.EAGER:
            await self.revoke_all()
        await self._listener.catch_up(-1)
        view = self._listener.snapshot()
        self.lead_no_more()
        joined = await self._requests.join(self.seat, self._metadata(view), reason)
        seat = Seat(member_id=joined.member_id, generation=joined.generation_id)
        if seat.member_id != self.seat.member_id:
            self.seat = Seat(member_id=seat.member_id)
        protocol = ProtocolName.of_group(joined.protocol_name or "")
        made = await self._lead(joined, protocol, view) if joined.leader == joined.member_id else None
        sent = time.monotonic()
        told = await self._requests.sync(
            seat, protocol.group_name, made.assignments if made is not None else {}
        )
        if not told:
            raise JoinAgain("the leader said nothing to this worker", wait=True)
        assignment = decode_assignment(told)
        self.seat, self.protocol = seat, protocol
        self._session.begin(sent)
        self.made = made
        self._sharing = made.sharing if made is not None else Sharing(max_delay_ms=self._sharing.max_delay_ms)
        return await self._carry_out(assignment, view)

    def _metadata(self, view: ConfigView) -> list[tuple[str, bytes]]:
        self._load_watch.observe(self._listener.loads(), _now_ms())
        loads = self._load_watch.tell(_now_ms())
        state = WorkerState(url=self._url, offset=view.offset, assignment=self.running, loads=loads)
        return [(p.group_name, encode_metadata(state, p)) for p in self._offered.offered()]

    async def _lead(self, joined: JoinGroupResponse, protocol: ProtocolName, view: ConfigView) -> Round:
        """As the leader: assign. One that has read less than some member reads on first.

        When the group falls back to the eager protocol, members still run what they have and do not say what. Nobody gets
        anything then; all join again, and by the rules of that protocol they stop everything before.
        """
        metadata = {m.member_id: bytes(m.metadata) for m in joined.members}
        falls_back = (
            protocol is ProtocolName.EAGER
            and self.protocol is not ProtocolName.EAGER
            and self.running is not None
        )

        def attempt(view: ConfigView) -> Round:
            return make_round(
                metadata=metadata,
                leader=joined.leader,
                protocol=protocol,
                view=None if falls_back else view,
                sharing=self._sharing,
                now_ms=_now_ms(),
            )

        made = attempt(view)
        if made.plan is None and not falls_back and await self._listener.catch_up(made.offset):
            made = attempt(self._listener.snapshot())
        return made

    async def _carry_out(self, assignment: ExtendedAssignment, joined_with: ConfigView) -> Outcome:
        revokes = bool(assignment.revoked_connectors or assignment.revoked_tasks)
        if revokes:
            await self._listener.on_revoked(assignment.revoked_connectors, assignment.revoked_tasks)
        running = self._merged(assignment)
        if not assignment.failed:
            self.running = running
        behind = self._listener.snapshot().offset < assignment.offset
        if (behind or assignment.failed) and not await self._listener.catch_up(assignment.offset):
            raise OutOfSync
        if assignment.failed:
            return Outcome(again="the leader could not assign")
        self.is_leader = assignment.leader == self.seat.member_id
        self.leader_url = assignment.leader_url
        self._log(running)
        await self._listener.on_assigned(running, self.seat.generation, self.seat.member_id)
        again = (
            "what was revoked here can be given out" if revokes else self._outdated(assignment, joined_with)
        )
        return Outcome(again=again, delay_ms=assignment.delay_ms, assigned=True)

    def _log(self, running: ExtendedAssignment) -> None:
        log.info(
            "generation %d, protocol %s, %s: %d connectors and %d tasks here%s",
            self.seat.generation,
            self.protocol,
            "this worker leads" if self.is_leader else f"the leader is {self.leader_url}",
            len(running.connectors),
            len(running.tasks),
            f"; some wait {running.delay_ms} ms for their worker" if running.delay_ms else "",
        )

    def _merged(self, assignment: ExtendedAssignment) -> ExtendedAssignment:
        """All that this worker has from now on."""
        before = self.running
        if self.protocol is ProtocolName.EAGER or before is None:
            return replace(assignment, revoked_connectors=(), revoked_tasks=())
        gone = {*assignment.revoked_connectors}, {*assignment.revoked_tasks}
        connectors = dict.fromkeys(c for c in before.connectors if c not in gone[0])
        tasks = dict.fromkeys(t for t in before.tasks if t not in gone[1])
        return replace(
            assignment,
            connectors=tuple(connectors | dict.fromkeys(assignment.connectors)),
            tasks=tuple(tasks | dict.fromkeys(assignment.tasks)),
            revoked_connectors=(),
            revoked_tasks=(),
        )

    def _outdated(self, assignment: ExtendedAssignment, joined_with: ConfigView) -> str | None:
        """Whether something else is to be assigned by now. The assignment was made from the config topic up to
        its offset, which this worker knew when it joined, or has caught up with since.
        """
        now = self._listener.snapshot()
        if now.offset == assignment.offset:
            return None
        if joined_with.offset == assignment.offset and joined_with.tasks == now.tasks:
            return None
        return "the configuration has changed since"


def _now_ms() -> int:
    return int(time.monotonic() * 1000)
