"""A client that finds the right broker for each request, and repeats retriable requests until the timeout.

An `Admin` lives for one command. A partition's leader and a coordinator may move at any time: a request that fails
for that reason goes to the new broker. An unknown topic is an error at once: a user who mistypes a name wants to
know.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final, Self, TypeVar

from klamm.admin.errors import AdminError
from klamm.admin.model import Node, TopicPartition
from klamm_base.security import ClientSecurity
from klamm_kafka.client import ClientError, Cluster, Connection, ConnectionLost, UnsupportedApi
from klamm_kafka.wire.api_keys import ApiKey
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.find_coordinator import FindCoordinatorRequest
from klamm_kafka.wire.messages.metadata import MetadataResponse
from klamm_kafka.wire.struct import Message

GROUP: Final = 0
TRANSACTION: Final = 1
CONNECT_S: Final = 5.0  # to a first broker; who waits longer has the wrong address
TIMEOUT_S: Final = 30.0
_PAUSE_S: Final = 0.1
_PASSING: Final = frozenset(
    {
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REBALANCE_IN_PROGRESS,
    }
)
_AT_A_TIME: Final = 16  # requests; a cluster has other clients too
K = TypeVar("K")
T = TypeVar("T")
LeaderCall = Callable[[int, list[TopicPartition]], Awaitable[Mapping[TopicPartition, Any]]]
"""Asks broker `int` about these partitions, and returns a value or an AdminError for each."""


def passing(code: int) -> bool:
    """Return whether the same request may succeed a moment later."""
    return code in _PASSING


class Admin:
    """A client for administrative requests: `async with Admin(bootstrap, timeout_s=30) as admin`. Raises AdminError
    and ClientError.
    """

    def __init__(
        self,
        bootstrap: str,
        *,
        timeout_s: float = TIMEOUT_S,
        client_id: str = "klamm-admin",
        security: ClientSecurity | None = None,
    ) -> None:
        self._cluster = Cluster(
            bootstrap, client_id=client_id, timeout_s=min(CONNECT_S, timeout_s), security=security
        )
        self.timeout_s = timeout_s
        self._coordinators: dict[tuple[int, str], Node] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._cluster.close()

    @property
    def timeout_ms(self) -> int:
        """The time in ms that a request allows the broker."""
        return int(self.timeout_s * 1000)

    # ---- one request

    async def ask(self, request: Message, *, cap: int | None = None, floor: int = 0) -> Any:
        """Send to some broker. `cap`: no newer version of the request than this; `floor` as for `ask_broker`."""
        return await self._send(await self._cluster.any_broker(), request, cap, floor)

    async def ask_broker(
        self, node_id: int, request: Message, *, cap: int | None = None, floor: int = 0
    ) -> Any:
        """Send to one broker. `floor`: an older version cannot say it; raises UnsupportedApi."""
        return await self._send(await self._cluster.broker(node_id), request, cap, floor)

    async def _send(self, connection: Connection, request: Message, cap: int | None, floor: int = 0) -> Any:
        version = connection.version_for(type(request))
        if cap is not None:
            version = min(version, cap)
        if version < floor:
            name = ApiKey(request.API_KEY).name
            raise UnsupportedApi(f"the broker serves {name} up to version {version}, this needs {floor}")
        return await connection.request(request, version, timeout_s=self.timeout_s)

    async def patiently(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Repeat `attempt` while it fails for a reason that may pass, until the timeout."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.timeout_s
        while True:
            try:
                return await attempt()
            except AdminError as e:
                if not passing(e.code) or loop.time() >= deadline:
                    raise
            except ConnectionLost:
                if loop.time() >= deadline:
                    raise
            await asyncio.sleep(_PAUSE_S)

    async def each(self, items: Sequence[K], call: Callable[[K], Awaitable[T]]) -> list[T | AdminError]:
        """Call `call` for every item, several at a time.

        Returns results in the order of the items; an AdminError is a result.
        """
        room = asyncio.Semaphore(_AT_A_TIME)

        async def one(item: K) -> T | AdminError:
            async with room:
                try:
                    return await call(item)
                except AdminError as e:
                    return e

        return list(await asyncio.gather(*(one(item) for item in items)))

    # ---- the cluster

    async def api_versions(self, node_id: int) -> Mapping[int, tuple[int, int]]:
        """Return the lowest and highest version of each API that a broker serves, by the API's key."""
        return (await self._cluster.broker(node_id)).api_versions

    async def brokers(self) -> dict[int, Node]:
        """Return the live brokers, by id in ascending order."""
        answer = await self.metadata([])
        nodes = (Node(id=b.node_id, host=b.host, port=b.port) for b in answer.brokers)
        return {n.id: n for n in sorted(nodes, key=lambda n: n.id)}

    async def metadata(self, topics: Iterable[str] | None = None) -> MetadataResponse:
        """Return metadata of these topics (None: all).

        A topic that does not exist carries its error code and is not created.
        """
        await self._cluster.any_broker()
        answer: MetadataResponse = await self._cluster.refresh(topics)
        return answer

    # ---- partitions' leaders

    async def by_leader(
        self, partitions: Collection[TopicPartition], call: LeaderCall, *, again: bool = True
    ) -> dict[TopicPartition, Any]:
        """Ask each partition's leader. Values, or AdminErrors where there is no value (an unknown partition too); `again`: errors that
        pass are waited for.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + (self.timeout_s if again else 0)
        results: dict[TopicPartition, Any] = {}
        left = set(partitions)
        while left:
            leaders, failed = await self._leaders(left)
            for node_id in sorted(set(leaders.values())):
                mine = sorted(tp for tp, n in leaders.items() if n == node_id)
                try:
                    results.update(await call(node_id, mine))
                except ConnectionLost:
                    results.update({tp: AdminError(ErrorCode.NETWORK_EXCEPTION, str(tp)) for tp in mine})
            results.update(failed)
            late = loop.time() >= deadline
            left = {tp for tp in left if not late and _again(results.get(tp))}
            if left:
                await asyncio.sleep(_PAUSE_S)
        return results

    async def _leaders(
        self, partitions: Collection[TopicPartition]
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, AdminError]]:
        answer = await self.metadata(sorted({tp.topic for tp in partitions}))
        codes = {t.name: t.error_code for t in answer.topics}
        found = {
            TopicPartition(t.name or "", p.partition_index): p for t in answer.topics for p in t.partitions
        }
        leaders, failed = {}, {}
        for tp in partitions:
            code = codes.get(tp.topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            if code or tp not in found:
                failed[tp] = AdminError(code or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, str(tp))
            elif found[tp].leader_id < 0:
                failed[tp] = AdminError(ErrorCode.LEADER_NOT_AVAILABLE, str(tp))
            else:
                leaders[tp] = found[tp].leader_id
        return leaders, failed

    # ---- coordinators

    async def coordinator(self, key: str, key_type: int = GROUP) -> Node:
        """Return the coordinator of a group or a transactional id, found again after `forget`."""
        known = self._coordinators.get((key_type, key))
        if known is None:
            known = self._coordinators[key_type, key] = await self._find(key, key_type)
        return known

    async def ask_coordinator(
        self, key: str, request: Message, *, key_type: int = GROUP, cap: int | None = None
    ) -> Any:
        """Send to a coordinator; it is looked for again when it answers or fails like one that has moved."""
        node = await self.coordinator(key, key_type)
        try:
            return await self.ask_broker(node.id, request, cap=cap)
        except ClientError:
            self.forget(key, key_type)
            raise

    def forget(self, key: str, key_type: int = GROUP) -> None:
        """Look for this coordinator again next time."""
        self._coordinators.pop((key_type, key), None)

    def refused(self, key: str, code: int, what: str, text: str | None = None, key_type: int = GROUP) -> None:
        """Raise the error that a coordinator answered with; nothing for NONE."""
        if code:
            if passing(code):
                self.forget(key, key_type)
            raise AdminError(code, what, text)

    async def _find(self, key: str, key_type: int) -> Node:
        what = f"the coordinator of {'group' if key_type == GROUP else 'transactional id'} {key!r}"

        async def attempt() -> Node:
            connection = await self._cluster.any_broker()
            version = connection.version_for(FindCoordinatorRequest)
            if version >= 4:
                request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
                answer = (await connection.request(request, version)).coordinators[0]
            else:
                request = FindCoordinatorRequest(key=key, key_type=key_type)
                answer = await connection.request(request, version)
            if answer.error_code:
                raise AdminError(answer.error_code, what, answer.error_message)
            return Node(id=answer.node_id, host=answer.host, port=answer.port)

        return await self.patiently(attempt)


def _again(result: object) -> bool:
    return isinstance(result, AdminError) and passing(result.code)
