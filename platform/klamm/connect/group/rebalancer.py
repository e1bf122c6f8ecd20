"""One member's rebalances: join, assign if it leads, sync, carry out. One event loop.

`Rebalancer` knows the member's place and its work. `membership` decides when to rebalance, and what to do
after a failure.
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
    """The worker could not read the config topic as far as the assignment requires."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A round's end. `again`: why another round must follow at once; `delay_ms` > 0: another one is due after
    that.

    `assigned`: the listener got its assignment.
    """

    again: str | None = None
    delay_ms: int = 0
    assigned: bool = False


class Rebalancer:
    """A member's place in its group, and its rounds."""

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
        """The work that the group may believe to run here; None: nothing."""
        self.made: Round | None = None
        """The result of the last round, if this worker led it."""
        self.is_leader = False
        self.leader_url = ""

    def load_has_changed(self) -> bool:
        """Tells whether to report the loads again, so that the leader may move tasks. Called at every heartbeat."""
        self._load_watch.observe(self._listener.loads(), _now_ms())
        return self.protocol is not ProtocolName.EAGER and self._load_watch.wants_rebalance(_now_ms())

    def lead_no_more(self) -> None:
        self.is_leader, self.leader_url = False, ""

    async def revoke_all(self) -> None:
        """Gives up all work. If the session's end cancels this, the work still counts as running, and
        `on_lost` follows.
        """
        if self.running is not None:
            await self._listener.on_revoked(self.running.connectors, self.running.tasks)
            self.running = None

    async def take_part(self, reason: str) -> Outcome:
        """Takes part in one round. Raises JoinAgain, Forgotten, MembershipLost, OutOfSync,
        MalformedGroupData, ClientError.
        """
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
            raise JoinAgain("the leader sent this worker no assignment", wait=True)
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
        """Assigns as the leader. A leader that has read less than some member reads on first.

        When the group falls back to the eager protocol, members still run their work and do not report it. So
        the leader assigns nothing; all join again, and by the rules of that protocol they stop everything
        before they do.
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
            "the work revoked here can be assigned" if revokes else self._outdated(assignment, joined_with)
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
        """Returns all the work that this worker has from now on."""
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
        """Returns why the assignment is out of date; None if it is not.

        The leader assigned by the config topic up to the assignment's offset. This worker knew that much when
        it joined, or has caught up with it since.
        """
        now = self._listener.snapshot()
        if now.offset == assignment.offset:
            return None
        if joined_with.offset == assignment.offset and joined_with.tasks == now.tasks:
            return None
        return "the configuration has changed since"


def _now_ms() -> int:
    return int(time.monotonic() * 1000)
