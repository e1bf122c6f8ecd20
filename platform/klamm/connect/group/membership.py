"""A worker's place in its group: joins, shares the work, keeps its session alive, joins again. One event
loop.

`GroupMembership` drives a `GroupListener`. Its rule of safety: the worker runs only what it has told the
group. It gives work up by `on_revoked` before the group hears so, and by `on_lost` before the session can be
over at the coordinator (see `session`). So a worker that slept, or was cut off, stops its work no later than
others may start it.

Membership is static for one purpose only: a worker that restarts removes its predecessor's membership
(LeaveGroup by group.instance.id), so that nobody waits for the old session to end. Like Kafka's workers it
then joins as a new member.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final

from klamm.connect.config import WorkerConfig
from klamm.connect.group.listener import GroupListener
from klamm.connect.group.protocol import MalformedGroupData, ProtocolName
from klamm.connect.group.rebalancer import Outcome, OutOfSync, Rebalancer
from klamm.connect.group.requests import Forgotten, GroupRequests, JoinAgain, Seat
from klamm.connect.group.session import RETRY_S, Session
from klamm.connect.model import TaskId
from klamm_base.errors import KlammError
from klamm_base.security import ClientSecurity
from klamm_kafka.client import ClientError, Cluster
from klamm_kafka.wire.errors import ErrorCode

log = logging.getLogger(__name__)

LEAVE_TIMEOUT_S: Final = 2.0
# The backoff after a failure to read the config topic grows 1, 2, 4 … s, at most to worker.unsync.backoff.ms;
# that applies from the 6th time on.
UNSYNC_TRIES: Final = 5
# The longest rest between a round and the next one that this worker asks for.
REST_MAX_S: Final = 0.5

MakeCluster = Callable[[str], Cluster]
"""Makes a client of the cluster with this client id, and knows how it connects (TLS, SASL)."""


class GroupMembership:
    """The worker's membership. Attributes are for status and metrics; they are set before `on_assigned` is called."""

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
        self._requests = self._connect("")
        self._pulse = self._connect("-heartbeat")
        self._rejoin: str | None = "the worker starts"
        self._rejoin_at: float | None = None
        self._rest_until = 0.0
        self._awaited = asyncio.Event()  # others wait for this worker, or the last round was no end: no rest
        self._wake = asyncio.Event()
        self._joined = asyncio.Event()
        self._session = Session(
            self._pulse,
            session_ms=config["session.timeout.ms"],
            interval_ms=config["heartbeat.interval.ms"],
            seat=lambda: self._rebalancer.seat,
            on_heard=self._heard,
        )
        self._rebalancer = Rebalancer(
            self._requests,
            self._session,
            listener,
            url=url,
            offered=ProtocolName(config["connect.protocol"].lower()),
            max_delay_ms=config["scheduled.rebalance.max.delay.ms"],
        )
        self._unsynced = 0
        self._said: set[str] = set()
        self._keeper: asyncio.Task[None] | None = None
        self._runner: asyncio.Task[None] | None = None
        self.rebalancing = False
        self.rebalances = 0
        self.failed_rebalances = 0
        self.rebalance_started_ms = 0.0
        self.last_rebalance_ms = 0.0
        self.rebalance_ms_total = 0.0
        self.rebalance_ms_max = 0.0
        self.last_rebalance_at_ms: float | None = None

    # For others to ask

    @property
    def is_leader(self) -> bool:
        return self._rebalancer.is_leader

    @property
    def leader_url(self) -> str:
        """The leader's url; empty during a rebalance."""
        return self._rebalancer.leader_url

    @property
    def member_id(self) -> str:
        return self._rebalancer.seat.member_id

    @property
    def generation(self) -> int:
        return self._rebalancer.seat.generation

    epoch = generation

    @property
    def protocol_version(self) -> int:
        """0 eager, 1 compatible, 2 sessioned (internal requests are signed)."""
        return self._rebalancer.protocol.version

    @property
    def assigned_connectors(self) -> int:
        return len(self._rebalancer.running.connectors) if self._rebalancer.running else 0

    @property
    def assigned_tasks(self) -> int:
        return len(self._rebalancer.running.tasks) if self._rebalancer.running else 0

    @property
    def alive(self) -> bool:
        """True while the session is certainly not over: false at once after the process slept too long."""
        return self._session.alive

    @property
    def heartbeats(self) -> int:
        """The number of heartbeats that were answered."""
        return self._session.heartbeats

    def owner_url(self, item: str | TaskId) -> str | None:
        """Returns the url of the worker that runs a connector or task; only the leader knows it."""
        made = self._rebalancer.made
        return made.owner_url(item) if made is not None and self.is_leader else None

    def has_tasks_of(self, connector: str) -> bool:
        """Tells whether a worker of the group may still run a task of it; only the leader knows it."""
        made = self._rebalancer.made
        return made is None or made.has_tasks_of(connector)

    async def members(self) -> dict[str, str]:
        """Returns the members' urls by member id: the leader knows them from its round, others ask the coordinator.
        Raises ClientError.
        """
        made = self._rebalancer.made
        return dict(made.urls) if made is not None and self.is_leader else await self._pulse.urls()

    def request_rejoin(self, reason: str) -> None:
        """Asks for a rebalance soon, since there is something else to assign."""
        log.debug("group %s: will be joined again: %s", self._group, reason)
        self._rejoin = reason
        self._wake.set()

    # Life

    async def start(self) -> None:
        """Joins; returns once the first assignment is handed on. Raises MembershipLost."""
        self._runner = asyncio.create_task(self._run(), name="group-membership")
        joined = asyncio.create_task(self._joined.wait())
        try:
            await asyncio.wait({self._runner, joined}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            joined.cancel()
        if self._runner.done():
            await self._runner

    async def lost(self) -> None:
        """Waits until the membership ends for good; raises MembershipLost with the reason."""
        assert self._runner is not None, "started"
        await asyncio.shield(self._runner)

    async def leave(self, reason: str) -> None:
        """Stops all work (`on_revoked`) while the session is kept alive, then leaves the group."""
        await _cancel(self._runner)
        try:
            if self._session.open:  # if it ends meanwhile, the work is stopped at once
                await self._unless_over(self._rebalancer.revoke_all())
        except KlammError as e:
            await self._end(str(e))
        finally:
            await _cancel(self._keeper)
            self._session.end()
            self._rebalancer.lead_no_more()
            if self._rebalancer.seat.member_id:
                await self._say_goodbye(reason)
            await self._requests.close()
            await self._pulse.close()

    async def _say_goodbye(self, reason: str) -> None:
        try:
            async with asyncio.timeout(LEAVE_TIMEOUT_S):
                await self._requests.leave(self._rebalancer.seat.member_id, reason)
        except (ClientError, JoinAgain, TimeoutError) as e:
            log.info("group %s could not be left (%s); the session expires by itself", self._group, e)
        self._rebalancer.seat = Seat()

    async def _run(self) -> None:
        await self._remove_predecessor()
        self._keeper = asyncio.create_task(self._session.run(), name="group-heartbeat")
        try:
            while True:
                await self._unless_over(self._step())
        except KlammError as e:
            await self._end(str(e))
            raise

    async def _end(self, why: str) -> None:
        """Ends the membership for good: stops everything that runs here."""
        self._session.end()
        self._rebalancer.seat = Seat()
        self._rebalancer.lead_no_more()
        await self._stop_now(why)

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

    async def _unless_over(self, doing: Coroutine[Any, Any, None]) -> None:
        """Awaits `doing`. If the session ends meanwhile, cancels it and stops everything."""
        assert self._keeper is not None, "running"
        step = asyncio.create_task(doing)
        over = asyncio.create_task(self._session.until_over())
        try:
            await asyncio.wait({step, over, self._keeper}, return_when=asyncio.FIRST_COMPLETED)
            if self._keeper.done():
                await self._keeper
            if step.done():
                await step
            if not self._session.over:
                return
        finally:
            await _cancel(over)
            await _cancel(step)
        await self._start_over()

    async def _step(self) -> None:
        if self._rejoin is not None:
            await self._rest()
            await self._rebalance(self._rejoin)
            return
        left_s = None if self._rejoin_at is None else max(0.0, self._rejoin_at - time.monotonic())
        try:
            async with asyncio.timeout(left_s):
                await self._wake.wait()
        except TimeoutError:
            self._rejoin = "a scheduled rebalance is due"
        self._wake.clear()

    async def _rest(self) -> None:
        """Waits after a round for as long as it took, so that changes in quick succession share the next one.

        A round costs more with each connector and task. Without a rest, each of many new connectors has two of its own.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, self._rest_until - time.monotonic())):
                await self._awaited.wait()

    # The session

    def _heard(self, code: ErrorCode) -> None:
        if self.rebalancing:
            return
        if code != ErrorCode.NONE:
            self._awaited.set()
            self.request_rejoin("the group is rebalancing")
        elif self._rejoin is None and self._rebalancer.load_has_changed():
            self.request_rejoin("the load has changed")

    async def _start_over(self) -> None:
        """Stops everything at once after the end of the session; then the worker joins again with nothing."""
        self._rebalancer.lead_no_more()
        await self._stop_now(self._session.why_over)
        self._rebalancer.seat = (
            Seat() if self._session.forgotten else Seat(member_id=self._rebalancer.seat.member_id)
        )
        self._session.reset()
        # An abandoned JoinGroup may still wait on this connection, and hold up everything behind it.
        await self._requests.close()
        self._rejoin = "the session was over"

    async def _stop_now(self, why: str) -> None:
        if self._rebalancer.running is not None:
            log.warning("group %s: the session is over: %s. The worker stops everything", self._group, why)
            self._rebalancer.running = None
            await self._listener.on_lost()

    # A rebalance

    async def _rebalance(self, reason: str) -> None:
        """Takes part in one round. A request for a rebalance during the round leads to another round."""
        self._rejoin = self._rejoin_at = None
        self._wake.clear()
        self._awaited.clear()
        self.rebalancing = True
        began_s = time.monotonic()
        self.rebalance_started_ms = began_s * 1000
        try:
            outcome = await self._try_rebalance(reason)
        finally:
            self.rebalancing = False
        ended_s = time.monotonic()
        self._rest_until = ended_s + min(ended_s - began_s, REST_MAX_S)
        if outcome.assigned:
            self._unsynced = 0
            self._said.clear()
            self._count()
            self._joined.set()
        elif outcome.again is not None:
            self.failed_rebalances += 1
        if outcome.again is not None:
            self._awaited.set()
        if outcome.delay_ms > 0:
            self._rejoin_at = time.monotonic() + outcome.delay_ms / 1000
        self._rejoin = self._rejoin or outcome.again

    async def _try_rebalance(self, reason: str) -> Outcome:
        try:
            return await self._rebalancer.take_part(reason)
        except JoinAgain as e:
            if e.wait:
                await self._pause(str(e))
            return Outcome(again=str(e))
        except MalformedGroupData as e:
            await self._pause(str(e))
            return Outcome(again=str(e))
        except Forgotten:
            self._session.fall("the group does not know this worker any more", forgotten=True)
            return Outcome(again="the group no longer knew the worker")
        except OutOfSync:
            await self._stay_away()
            return Outcome(again="the worker was out of sync")
        except ClientError as e:
            if not e.retriable:
                raise
            await self._pause(f"cannot be reached ({e})")
            return Outcome(again="the coordinator was away")

    def _count(self) -> None:
        now_ms = time.monotonic() * 1000
        self.rebalances += 1
        self.last_rebalance_at_ms = now_ms
        self.last_rebalance_ms = now_ms - self.rebalance_started_ms
        self.rebalance_ms_total += self.last_rebalance_ms
        self.rebalance_ms_max = max(self.rebalance_ms_max, self.last_rebalance_ms)

    async def _stay_away(self) -> None:
        """Leaves for a while since the config topic cannot be read, so that others run this worker's work."""
        await self._rebalancer.revoke_all()
        self._session.end()
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
        """Waits before a retry. Logs each reason once, until a round succeeds."""
        if why not in self._said:
            self._said.add(why)
            log.warning("group %s: %s; trying again", self._group, why)
        self._requests.forget_coordinator()
        await asyncio.sleep(RETRY_S)


async def _cancel(task: asyncio.Task[Any] | None) -> None:
    if task is None or task.done():
        return
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
