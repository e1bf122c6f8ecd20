"""A worker's place in its group: joins, shares the work, keeps its session alive, joins again. One event loop.

`GroupMembership` drives a `GroupListener`. Its rule of safety: what the worker runs is what it has told the group that it
runs. Something is given up by `on_revoked` before the group hears so, and by `on_lost` before the session can be
over at the coordinator: the clock of the session starts when a heartbeat is *sent*, so a worker that slept, or was cut
off, stops its work before (or the moment) others may run it.

Membership is static for one purpose only: a worker that starts again removes what is left of its predecessor
(LeaveGroup by group.instance.id), so that nobody waits for the old session to end. Like Kafka's workers it then joins
as a new member.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, Final

from klamm.connect.config import WorkerConfig
from klamm.connect.group.assignor import Sharing
from klamm.connect.group.leader import Round, make_round
from klamm.connect.group.listener import ConfigView, GroupListener
from klamm.connect.group.load_watch import LoadWatch
from klamm.connect.group.protocol import (
    ExtendedAssignment,
    MalformedGroupData,
    ProtocolName,
    WorkerState,
    decode_assignment,
    encode_metadata,
)
from klamm.connect.group.requests import Forgotten, GroupRequests, JoinAgain, Seat
from klamm.connect.model import TaskId
from klamm_base.security import ClientSecurity
from klamm_broker.client import ClientError, Cluster
from klamm_broker.wire.errors import ErrorCode
from klamm_broker.wire.messages.join_group import JoinGroupResponse

log = logging.getLogger(__name__)

RETRY_S: Final = 0.5
LEAVE_TIMEOUT_S: Final = 2.0
# The session counts as over this part of its timeout early (1 s at most): stopping takes a moment.
MARGIN: Final = 0.1
MARGIN_MAX_S: Final = 1.0
# After failing to read the config topic: 1, 2, 4 … s, at most worker.unsync.backoff.ms, and that from the 6th time on.
UNSYNC_TRIES: Final = 5

MakeCluster = Callable[[str], Cluster]
"""Makes a client of the cluster with this client id; how it connects (TLS, SASL) is its maker's business."""


class GroupMembership:
    """See the module. Attributes are for status and metrics; they are set before `on_assigned` is called."""

    def __init__(
        self,
        config: WorkerConfig,
        *,
        url: str,
        listener: GroupListener,
        instance_id: str | None = None,
        make_cluster: MakeCluster | None = None,
    ) -> None:
        self._config = config
        self._group: str = config["group.id"]
        self._url = url
        self._listener = listener
        self._instance_id = instance_id
        self._make_cluster = make_cluster or self._plain_cluster
        self._offered = ProtocolName(config["connect.protocol"].lower())
        self._requests = self._connect("")
        self._pulse = self._connect("-heartbeat")
        self._seat = Seat()
        self._protocol = self._offered
        self._running: ExtendedAssignment | None = None
        self._sharing = Sharing(max_delay_ms=config["scheduled.rebalance.max.delay.ms"])
        self._round: Round | None = None
        self._load_watch = LoadWatch()
        self._rejoin: str | None = "the worker starts"
        self._rejoin_at: float | None = None
        self._wake = asyncio.Event()
        self._joined = asyncio.Event()
        self._fallen = asyncio.Event()
        self._forgotten = False
        self._session = False
        self._alive_at = 0.0
        self._unsynced = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._runner: asyncio.Task[None] | None = None
        self.is_leader = False
        self.leader_url = ""
        self.rebalancing = False
        self.rebalances = 0
        self.failed_rebalances = 0
        self.rebalance_started_ms = 0.0
        self.last_rebalance_ms = 0.0
        self.rebalance_ms_total = 0.0
        self.rebalance_ms_max = 0.0
        self.last_rebalance_at_ms: float | None = None
        self.heartbeats = 0

    # What others ask

    @property
    def member_id(self) -> str:
        return self._seat.member_id

    @property
    def generation(self) -> int:
        return self._seat.generation

    epoch = generation

    @property
    def protocol_version(self) -> int:
        """0 eager, 1 compatible, 2 sessioned (internal requests are signed)."""
        return self._protocol.version

    @property
    def assigned_connectors(self) -> int:
        return len(self._running.connectors) if self._running else 0

    @property
    def assigned_tasks(self) -> int:
        return len(self._running.tasks) if self._running else 0

    @property
    def alive(self) -> bool:
        """Whether the session is certainly not over: false at once after the process slept too long."""
        return self._session and _now() < self._alive_at + self._limit_s

    def owner_url(self, item: str | TaskId) -> str | None:
        """Where a connector or task runs; known to the leader only."""
        return self._round.owner_url(item) if self._round is not None and self.is_leader else None

    async def members(self) -> dict[str, str]:
        """The members' urls by member id; the coordinator is asked. Raises ClientError."""
        return await self._pulse.urls()

    def request_rejoin(self, reason: str) -> None:
        """What is to be assigned has changed: let the group meet again."""
        log.debug("group %s: to be joined again: %s", self._group, reason)
        self._rejoin = reason
        self._wake.set()

    # Life

    async def start(self) -> None:
        """Join; returns once the first assignment is handed on. Raises MembershipLost."""
        self._runner = asyncio.create_task(self._run(), name="group-membership")
        joined = asyncio.create_task(self._joined.wait())
        await asyncio.wait({self._runner, joined}, return_when=asyncio.FIRST_COMPLETED)
        joined.cancel()
        if self._runner.done():
            await self._runner

    async def lost(self) -> None:
        """Wait until the membership ends for good; raises MembershipLost with the reason."""
        assert self._runner is not None, "started"
        await asyncio.shield(self._runner)

    async def leave(self, reason: str) -> None:
        """Stop what runs (`on_revoked`), with the session kept alive, then give the place up."""
        await _cancel(self._runner)
        if self._session:  # when it ends meanwhile, nobody waits for the work to end well
            await self._unless_fallen(self._revoke_all())
        for task in self._tasks:
            await _cancel(task)
        self._running = None
        if self._seat.member_id:
            await self._say_goodbye(reason)
        self._session = False
        await self._requests.close()
        await self._pulse.close()

    async def _say_goodbye(self, reason: str) -> None:
        try:
            async with asyncio.timeout(LEAVE_TIMEOUT_S):
                await self._requests.leave(self._seat.member_id, reason)
        except (ClientError, JoinAgain, TimeoutError) as e:
            log.info("group %s was not left (%s); its session ends by itself", self._group, e)
        self._seat = Seat()

    async def _run(self) -> None:
        await self._remove_predecessor()
        self._tasks = [
            asyncio.create_task(self._beat(), name="group-heartbeat"),
            asyncio.create_task(self._watch(), name="group-session"),
        ]
        while True:
            await self._unless_fallen(self._step())
            for task in self._tasks:
                if task.done():
                    await task

    async def _remove_predecessor(self) -> None:
        while self._instance_id is not None:
            try:
                await self._requests.leave("", "the worker starts again")
            except JoinAgain as e:
                await self._pause(str(e))
            except ClientError as e:
                if not e.retriable:
                    raise
                await self._pause(f"cannot be reached ({e})")
            else:
                return

    async def _unless_fallen(self, doing: Coroutine[Any, Any, None]) -> None:
        """Do it; if the session ends meanwhile, leave off and stop everything."""
        step = asyncio.create_task(doing)
        fallen = asyncio.create_task(self._fallen.wait())
        try:
            await asyncio.wait({step, fallen}, return_when=asyncio.FIRST_COMPLETED)
            if step.done():
                await step
            if not self._fallen.is_set():
                return
        finally:
            await _cancel(fallen)
            await _cancel(step)
        await self._start_over()

    async def _step(self) -> None:
        if self._rejoin is not None:
            await self._rebalance(self._rejoin)
            return
        left_s = None if self._rejoin_at is None else max(0.0, self._rejoin_at - _now())
        try:
            async with asyncio.timeout(left_s):
                await self._wake.wait()
        except TimeoutError:
            self._rejoin = "a scheduled rebalance is due"
        self._wake.clear()

    # The session

    @property
    def _limit_s(self) -> float:
        session_s: float = self._config["session.timeout.ms"] / 1000
        return session_s - min(MARGIN * session_s, MARGIN_MAX_S)

    async def _beat(self) -> None:
        """Heartbeats while there is a session. They tell when the group rebalances, and that the worker is known."""
        interval_s = self._config["heartbeat.interval.ms"] / 1000
        wait_s = interval_s
        while True:
            await asyncio.sleep(wait_s)
            wait_s = interval_s
            if not self._session:
                continue
            seat, sent = self._seat, _now()
            try:
                async with asyncio.timeout(max(interval_s, RETRY_S)):
                    code = await self._pulse.heartbeat(seat)
            except Forgotten:
                if seat.member_id == self._seat.member_id:
                    self._fall("the group does not know this worker any more", forgotten=True)
            except (ClientError, JoinAgain, TimeoutError) as e:
                log.warning("group %s: no heartbeat (%s)", self._group, e or "no answer in time")
                self._pulse.forget_coordinator()
                self._requests.forget_coordinator()
                wait_s = min(interval_s, RETRY_S)
            else:
                self._heard(seat, sent, code)

    def _heard(self, seat: Seat, sent: float, code: ErrorCode) -> None:
        self.heartbeats += 1
        if seat.member_id == self._seat.member_id:
            self._alive_at = max(self._alive_at, sent)
        if seat != self._seat or self.rebalancing or self._rejoin is not None:
            return
        if code != ErrorCode.NONE:
            self.request_rejoin("the group is rebalancing")
        elif self._protocol is not ProtocolName.EAGER and self._load_watch.wants_rebalance(
            self._listener.loads(), _now_ms()
        ):
            self.request_rejoin("the load has changed")

    async def _watch(self) -> None:
        """The session's clock: nobody else notices when no answer comes."""
        while True:
            left_s = self._alive_at + self._limit_s - _now() if self._session else self._limit_s
            if left_s > 0:
                await asyncio.sleep(left_s)
                continue
            self._fall(f"no heartbeat was answered for {self._limit_s:g} s (session.timeout.ms)")

    def _fall(self, why: str, *, forgotten: bool = False) -> None:
        if self._session:
            log.warning("group %s: the session is over: %s. Everything is stopped", self._group, why)
        self._session = False
        self._forgotten |= forgotten
        self._fallen.set()

    async def _start_over(self) -> None:
        """The session is over. What runs is stopped at once; then the worker joins again with nothing."""
        forget, self._forgotten = self._forgotten, False
        self._session = self.is_leader = False
        self.leader_url = ""
        if self._running is not None:
            self._running = None
            await self._listener.on_lost()
        self._seat = Seat() if forget else Seat(member_id=self._seat.member_id)
        self._fallen.clear()
        # A JoinGroup that was given up may still be waiting there, and everything behind it.
        await self._requests.close()
        self._rejoin = "the session was over"

    # A rebalance

    async def _rebalance(self, reason: str) -> None:
        """One round. What is asked for from now on asks for another one."""
        self._rejoin = self._rejoin_at = None
        self._wake.clear()
        self.rebalancing = True
        self.rebalance_started_ms = _now() * 1000
        again: str | None = None
        try:
            again = await self._take_part(reason)
        except JoinAgain as e:
            again = str(e)
            if e.wait:
                await self._pause(again)
        except MalformedGroupData as e:
            again = str(e)
            await self._pause(again)
        except Forgotten:
            self._fall("the group does not know this worker any more", forgotten=True)
            again = "the worker was not known any more"
        except ClientError as e:
            if not e.retriable:
                raise
            again = "the coordinator was away"
            await self._pause(f"cannot be reached ({e})")
        finally:
            self.rebalancing = False
        self._count(again)
        self._rejoin = self._rejoin or again

    def _count(self, again: str | None) -> None:
        now_ms = _now() * 1000
        if self.leader_url:
            self.rebalances += 1
            self.last_rebalance_at_ms = now_ms
            self.last_rebalance_ms = now_ms - self.rebalance_started_ms
            self.rebalance_ms_total += self.last_rebalance_ms
            self.rebalance_ms_max = max(self.rebalance_ms_max, self.last_rebalance_ms)
        elif again is not None:
            self.failed_rebalances += 1

    async def _take_part(self, reason: str) -> str | None:
        """Join, assign if this worker leads, sync, carry out. Returns why to join again at once, or None."""
        if self._protocol is ProtocolName.EAGER and self._running is not None:
            await self._revoke_all()
        await self._listener.catch_up(-1)
        view = self._listener.snapshot()
        self.is_leader, self.leader_url = False, ""
        joined = await self._requests.join(self._seat, self._metadata(view), reason)
        seat = Seat(member_id=joined.member_id, generation=joined.generation_id)
        if seat.member_id != self._seat.member_id:
            self._seat = Seat(member_id=seat.member_id)
        protocol = ProtocolName.of_group(joined.protocol_name or "")
        made = await self._lead(joined, protocol, view) if joined.leader == joined.member_id else None
        sent = _now()
        told = await self._requests.sync(
            seat, protocol.group_name, made.assignments if made is not None else {}
        )
        if not told:
            raise JoinAgain("the leader said nothing to this worker", wait=True)
        assignment = decode_assignment(told)
        self._seat, self._protocol = seat, protocol
        self._session, self._alive_at = True, max(self._alive_at, sent)
        self._round = made
        self._sharing = made.sharing if made is not None else Sharing(max_delay_ms=self._sharing.max_delay_ms)
        return await self._carry_out(assignment, view)

    def _metadata(self, view: ConfigView) -> list[tuple[str, bytes]]:
        loads = self._listener.loads()
        self._load_watch.told(loads, _now_ms())
        state = WorkerState(url=self._url, offset=view.offset, assignment=self._running, loads=loads)
        return [(p.group_name, encode_metadata(state, p)) for p in self._offered.offered()]

    async def _lead(self, joined: JoinGroupResponse, protocol: ProtocolName, view: ConfigView) -> Round:
        """As the leader: assign. One that has read less than some member reads on first.

        When the group falls back to the eager protocol, members still run what they have and do not say what. Nobody gets
        anything then; all join again, and by the rules of that protocol they stop everything before.
        """
        metadata = {m.member_id: bytes(m.metadata) for m in joined.members}
        falls_back = (
            protocol is ProtocolName.EAGER
            and self._protocol is not ProtocolName.EAGER
            and self._running is not None
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

    async def _carry_out(self, assignment: ExtendedAssignment, joined_with: ConfigView) -> str | None:
        revokes = bool(assignment.revoked_connectors or assignment.revoked_tasks)
        if revokes:
            await self._listener.on_revoked(assignment.revoked_connectors, assignment.revoked_tasks)
        running = self._merged(assignment)
        if not assignment.failed:
            self._running = running
        behind = self._listener.snapshot().offset < assignment.offset
        if (behind or assignment.failed) and not await self._listener.catch_up(assignment.offset):
            return await self._out_of_sync()
        self._unsynced = 0
        if assignment.failed:
            return "the leader could not assign"
        self.is_leader = assignment.leader == self._seat.member_id
        self.leader_url = assignment.leader_url
        log.info(
            "group %s: generation %d, protocol %s, %s: %d connectors and %d tasks here%s",
            self._group,
            self._seat.generation,
            self._protocol,
            "this worker leads" if self.is_leader else f"the leader is {self.leader_url}",
            len(running.connectors),
            len(running.tasks),
            f"; some wait {assignment.delay_ms} ms for their worker" if assignment.delay_ms else "",
        )
        await self._listener.on_assigned(running, self._seat.generation, self._seat.member_id)
        self._joined.set()
        if assignment.delay_ms > 0:
            self._rejoin_at = _now() + assignment.delay_ms / 1000
        if revokes:
            return "what was revoked here can be given out"
        return self._outdated(assignment, joined_with)

    async def _revoke_all(self) -> None:
        """Cut short by the end of the session, what runs is still known to run, and `on_lost` follows."""
        if self._running is not None:
            await self._listener.on_revoked(self._running.connectors, self._running.tasks)
            self._running = None

    def _merged(self, assignment: ExtendedAssignment) -> ExtendedAssignment:
        """All that this worker has from now on."""
        before = self._running
        if self._protocol is ProtocolName.EAGER or before is None:
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

    async def _out_of_sync(self) -> str:
        """The config topic cannot be read: leave, so that others run what was to run here, and try again later."""
        await self._revoke_all()
        self._session = False
        await self._say_goodbye("taking too long to read the log")
        wait_s: float = self._config["worker.unsync.backoff.ms"] / 1000
        if self._unsynced < UNSYNC_TRIES:
            wait_s = min(wait_s, float(1 << self._unsynced))
        self._unsynced += 1
        log.error(
            "group %s: the config topic could not be read to its end in time (worker.sync.timeout.ms). The worker has left "
            "and joins again in %g s (worker.unsync.backoff.ms)",
            self._group,
            wait_s,
        )
        await asyncio.sleep(wait_s)
        return "the worker was out of sync"

    # Small things

    def _plain_cluster(self, client_id: str) -> Cluster:
        return Cluster(
            ",".join(self._config["bootstrap.servers"]),
            client_id=client_id,
            security=ClientSecurity.from_properties(self._config.client),
        )

    def _connect(self, suffix: str) -> GroupRequests:
        return GroupRequests(
            self._make_cluster(f"klamm-connect{suffix}"),
            group=self._group,
            instance_id=self._instance_id,
            session_ms=self._config["session.timeout.ms"],
            rebalance_ms=self._config["rebalance.timeout.ms"],
        )

    async def _pause(self, why: str) -> None:
        log.warning("group %s: %s; trying again", self._group, why)
        self._requests.forget_coordinator()
        await asyncio.sleep(RETRY_S)


def _now() -> float:
    return asyncio.get_running_loop().time()


def _now_ms() -> int:
    return int(_now() * 1000)


async def _cancel(task: asyncio.Task[Any] | None) -> None:
    if task is None or task.done():
        return
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
