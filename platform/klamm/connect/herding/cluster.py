"""A worker's requests to the other workers of its group: it finds the leader, sends it task configs, and asks
the others for reports.

Only the leader writes configs; it also keeps the session key fresh. The worker that runs a connector
sends the leader its task configs, signed. A worker that is alone has no group here and may do
everything.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import orjson

from klamm.connect.config import WorkerConfig
from klamm.connect.errors import Conflict, NotAssigned, NotTheLeader
from klamm.connect.herding.addresses import WHAT_TO_SET, shared
from klamm.connect.herding.assignment import Assignment, everything
from klamm.connect.herding.group_adapter import Group, SoleMember
from klamm.connect.herding.session_keys import SessionKeys
from klamm.connect.model import TaskId
from klamm.connect.settings.rest import client_context
from klamm.connect.topics.config_topic import ConfigState, SessionKey
from klamm.connect.topics.kafka_log import LogError
from klamm.connect.topics.storage import RecordLog
from klamm_base.errors import KlammError

if TYPE_CHECKING:
    import aiohttp


log = logging.getLogger(__name__)

SEND_S: Final = 30.0
TELL_S: Final = 1.0  # of a worker that does not answer by then no progress is shown
TOLD_FRESH_S: Final = 0.5
KEY_RETRY_S: Final = 1.0
SIGNED_FROM: Final = (
    2  # the version of the group's protocol from which internal requests are signed (sessioned)
)


Answer = tuple[int, Any]
"""HTTP status and JSON of another worker's answer; status 0: no answer in time."""


class LeaderBusy(KlammError):
    """The leader could not take a request just now; the message says why. Send the request again later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Elsewhere:
    """Reports of other workers on what they run: `progress` and `restart` by task (`name-0`), `restart` by
    connector. Keys without a value are left out.
    """

    tasks: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    connectors: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderDuties:
    """The leader's part of other modules. `prepare` claims the right to write configs; `put_session_key` writes a key as
    long as its second argument holds; `fence` ends the producers of a connector's former tasks.
    """

    prepare: Callable[[], Awaitable[None]]
    put_session_key: Callable[[SessionKey, Callable[[], bool]], Awaitable[None]]
    fence: Callable[[str], Awaitable[None]]


class Cluster:
    """See the module. `group` is set by the worker once it has a membership; `assigned_here` returns what this worker
    runs. The runtime sets `duties`.
    """

    duties: LeaderDuties

    def __init__(
        self,
        config: WorkerConfig,
        *,
        url: str,
        configs: ConfigState,
        config_log: RecordLog,
        assigned_here: Callable[[], Assignment],
    ) -> None:
        self._config = config
        self.url = url
        self._configs = configs
        self._config_log = config_log
        self._assigned_here = assigned_here
        self.group: Group | None = None
        self.keys = SessionKeys(config.values)
        self._news = asyncio.Event()
        self._session: aiohttp.ClientSession | None = None
        self._key_task: asyncio.Task[None] | None = None
        self._told = Elsewhere()
        self._told_at = 0.0
        self._shares_url = False
        self._telling = asyncio.Lock()

    # The leader

    @property
    def is_leader(self) -> bool:
        return self.group is None or self.group.is_leader

    @property
    def leader_url(self) -> str:
        return self.group.leader_url if self.group is not None else ""

    @property
    def alive(self) -> bool:
        """Returns whether no other worker can have taken over what runs here."""
        return self.group is None or self.group.alive

    def check_alive(self) -> None:
        """Raises Conflict when other workers may have taken over by now and this worker does not know yet."""
        if not self.alive:
            raise Conflict("This worker has lost contact with its group; try again, or ask another worker")

    async def require_leader(self) -> None:
        """Wait for a rebalance to end. Raises NotTheLeader (with the leader's url) when another worker leads."""
        await self._known()
        if not self.is_leader:
            if self.leader_url == self.url:
                raise Conflict(
                    f"The leader of group {self._config['group.id']} is another worker, but both advertise the address "
                    f"{self.leader_url}, so that requests cannot be forwarded to it: {WHAT_TO_SET}"
                )
            raise NotTheLeader(
                "Only the leader of the group can do this", self._other(self.leader_url or None)
            )
        await self.duties.prepare()

    async def require_owner(self, item: str | TaskId) -> None:
        """Raises NotAssigned when the item does not run here, and NotTheLeader when only the leader knows who runs
        it.
        """
        assigned = self._assigned_here()
        if item in (assigned.tasks if isinstance(item, TaskId) else assigned.connectors):
            return
        await self.require_leader()
        url = self.group.owner_url(item) if self.group is not None else None
        raise NotAssigned(f"{item} does not run on this worker", self._other(url))

    async def tasks_gone(self, connector: str, timeout_s: float) -> bool:
        """As the leader, wait until no worker runs a task of a stopped connector; returns False when that takes
        longer than `timeout_s`.

        Once the group has met without the tasks, they have stopped where they ran and made their last commit.
        """
        deadline = time.monotonic() + timeout_s
        while self.group is not None and (not self.is_leader or self.group.has_tasks_of(connector)):
            if time.monotonic() > deadline:
                return False
            await self._next_news(0.1)
        return True

    def orphans(self) -> list[str | TaskId]:
        """Returns, for the leader, the connectors and tasks that nobody runs because they wait for their worker to
        come back.
        """
        group = self.group
        if group is None or isinstance(group, SoleMember):
            return []
        there = everything(self._configs)
        items: list[str | TaskId] = [*there.connectors, *there.tasks]
        return [item for item in items if group.owner_url(item) is None]

    def _other(self, url: str | None) -> str | None:
        return None if url == self.url else url

    async def _known(self) -> None:
        group, wait_s = self.group, self._config["rebalance.timeout.ms"] / 1000
        deadline = time.monotonic() + wait_s
        while group is not None and not (group.is_leader or group.leader_url):
            if time.monotonic() > deadline:
                raise Conflict(
                    "Cannot complete request momentarily due to no known leader URL, likely because a rebalance was "
                    "underway."
                )
            await self._next_news(0.5)

    async def _next_news(self, timeout_s: float) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                await self._news.wait()
        except TimeoutError:
            return

    async def leader_changed(self, url: str, timeout_s: float) -> bool:
        """Wait for a leader at another url than `url`; returns False when none is found in time."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            await self._next_news(0.1)
            if self.is_leader or self.leader_url not in {"", url}:
                return True
        return False

    def request_rejoin(self, reason: str) -> None:
        if self.group is not None:
            self.group.request_rejoin(reason)

    def assigned(self) -> None:
        """Note that the group has met: wake those who wait for it, and keep a session key if this worker leads."""
        self._news.set()
        self._news = asyncio.Event()
        if self.is_leader and self._signs and (self._key_task is None or self._key_task.done()):
            self._key_task = asyncio.create_task(self._keep_key(), name="session key")

    async def close(self) -> None:
        if self._key_task is not None:
            self._key_task.cancel()
            await asyncio.gather(self._key_task, return_exceptions=True)
        if self._session is not None:
            await self._session.close()

    # The session key

    async def _keep_key(self) -> None:
        """As the leader, keep a session key in the config topic that is no older than its configured lifetime."""
        while self.is_leader:
            wait_ms = self.keys.renewal_ms(self._configs.session_key, _epoch_ms())
            if wait_ms is None:
                return
            if wait_ms > 0:
                await asyncio.sleep(wait_ms / 1000)
                continue
            try:
                await self.duties.put_session_key(self.keys.new(_epoch_ms()), lambda: self.is_leader)
            except KlammError as e:
                log.warning("a new session key could not be written: %s", e)
                await asyncio.sleep(KEY_RETRY_S)

    @property
    def _signs(self) -> bool:
        """Returns whether requests are signed. A group with older workers, or one configured for an older
        protocol, does not sign.
        """
        group = self.group
        return (
            group is not None and not isinstance(group, SoleMember) and group.protocol_version >= SIGNED_FROM
        )

    def signed(self, body: bytes) -> dict[str, str]:
        """Returns the headers of an internal request. Raises LeaderBusy while there is no key."""
        if not self._signs:
            return {}
        key = self._configs.session_key
        if key is None:
            raise LeaderBusy("there is no session key in the config topic yet")
        return self.keys.sign(key, body)

    @property
    def demands_signatures(self) -> bool:
        """Returns whether `verify` refuses requests without a signature. A group with older workers, or one
        configured for an older protocol, takes them from anybody.
        """
        return self.group is None or self.group.protocol_version >= SIGNED_FROM

    async def verify(self, headers: Mapping[str, str], body: bytes) -> None:
        """Raises a RequestError unless another worker of the group has signed this internal request.

        The signature may be made with a key that this worker has not read yet, so it reads the config topic to
        its end before it refuses.
        """
        if not self.demands_signatures:
            return
        configs = self._configs
        try:
            self.keys.verify(configs.session_key, headers, body)
        except KlammError:
            before = configs.session_key
            try:
                await self._config_log.read_to_end(SEND_S)
            except LogError as e:
                log.warning("the newest session key is not known: %s", e)
            if configs.session_key == before:
                raise
            self.keys.verify(configs.session_key, headers, body)

    # Requests to other workers

    async def send_task_configs(self, name: str, configs: Sequence[Mapping[str, str]]) -> None:
        """Send task configs to the leader, which commits them. Raises LeaderBusy when another attempt may succeed."""
        await self._internal("POST", f"/connectors/{quote(name, safe='')}/tasks", orjson.dumps(list(configs)))
        await self._config_log.read_to_end(SEND_S)

    async def _internal(self, method: str, path: str, body: bytes) -> None:
        import aiohttp

        await self._known()
        url = self.leader_url
        if not url or self.is_leader:
            raise LeaderBusy("the leader has changed")
        headers = {"Content-Type": "application/json", **self.signed(body)}
        try:
            session = self.http()
            async with session.request(
                method, url.rstrip("/") + path, data=body, headers=headers, timeout=_timeout(SEND_S)
            ) as answer:
                text = await answer.text()
                if answer.status in {403, 404, 409, 500, 502, 503}:
                    raise LeaderBusy(f"{url} says {answer.status}: {text[:300]}")
                if answer.status >= 400:
                    raise KlammError(f"the leader at {url} refused {path} ({answer.status}): {text[:300]}")
        except (aiohttp.ClientError, TimeoutError, OSError) as e:
            raise LeaderBusy(f"the leader at {url} does not answer: {e or type(e).__name__}") from None

    async def fence(self, name: str) -> None:
        """Have the leader fence the producers of a connector's former tasks (KIP-618). Raises LeaderBusy,
        RequestError.
        """
        await self._known()
        if self.is_leader:
            await self.duties.fence(name)
            return
        await self._internal("PUT", f"/connectors/{quote(name, safe='')}/fence", b"")

    def http(self) -> aiohttp.ClientSession:
        """Returns the HTTP client for other workers' REST."""
        import aiohttp

        if self._session is None:
            tls = client_context(self._config.values, self._config.raw)
            connector = aiohttp.TCPConnector(ssl=tls if tls is not None else True)
            self._session = aiohttp.ClientSession(connector=connector, auto_decompress=False)
        return self._session

    # The other workers

    async def check_addresses(self) -> None:
        """Log when another member has this worker's url: once, until that is over."""
        if self.group is None or isinstance(self.group, SoleMember):
            return
        try:
            members = await self.group.members()
        except KlammError as e:
            log.debug("the group's members are not known: %s", e)
            return
        why = shared(self.url, self._config["group.id"], members)
        if why is not None and not self._shares_url:
            log.error("%s", why)
        self._shares_url = why is not None

    async def elsewhere(self) -> Elsewhere:
        """Returns what the group's other workers report on what they run, as far as they answer in time."""
        if self.group is None or isinstance(self.group, SoleMember):
            return Elsewhere()
        if self._signs and self._configs.session_key is None:
            return Elsewhere()
        async with self._telling:
            if time.monotonic() - self._told_at > TOLD_FRESH_S:
                answers = await asyncio.gather(*(self._ask(url) for url in await self._urls() or ()))
                self._told = Elsewhere(
                    tasks={k: v for each in answers for k, v in each.tasks.items()},
                    connectors={k: v for each in answers for k, v in each.connectors.items()},
                )
                self._told_at = time.monotonic()
        return self._told

    async def ask_others(self, path: str) -> dict[str, Answer] | None:
        """GET an internal path from all other workers of the group; returns their answers by url, or None while
        the group's members are unknown.
        """
        if self.group is None or isinstance(self.group, SoleMember):
            return {}
        urls = await self._urls()
        if urls is None:
            return None
        return dict(zip(urls, await asyncio.gather(*(self._get(url, path) for url in urls)), strict=True))

    async def _urls(self) -> set[str] | None:
        """Returns the urls of the group's other workers; None while the members are unknown."""
        assert self.group is not None, "looked"
        try:
            async with asyncio.timeout(TELL_S):
                members = (await self.group.members()).values()
        except (KlammError, TimeoutError) as e:
            log.debug("the group's members are not known: %s", e)
            return None
        return {url for url in members if url.startswith("http") and url != self.url}

    async def _ask(self, url: str) -> Elsewhere:
        status, told = await self._get(url, "/internal/tasks")
        found = told if status == 200 and isinstance(told, dict) else {}
        return Elsewhere(tasks=found.get("tasks", {}), connectors=found.get("connectors", {}))

    async def _get(self, url: str, path: str) -> Answer:
        import aiohttp

        try:
            async with self.http().get(
                url.rstrip("/") + path, headers=self.signed(b""), timeout=_timeout(TELL_S)
            ) as answer:
                return answer.status, orjson.loads(await answer.read()) if answer.status == 200 else None
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError, KlammError) as e:
            log.debug("%s does not answer GET %s: %s", url, path, e)
            return 0, None


def _timeout(seconds: float) -> aiohttp.ClientTimeout:
    import aiohttp

    return aiohttp.ClientTimeout(total=seconds)


def _epoch_ms() -> int:
    return time.time_ns() // 1_000_000
