"""The brokers of a cluster as a client sees them: metadata, leaders, coordinators, a connection to each.

Connections are opened when needed, and reopened after they were lost. Metadata and coordinators are cached. After
NOT_LEADER_OR_FOLLOWER the caller calls `refresh`, after NOT_COORDINATOR `forget_coordinator`; then they are asked for
again. The cluster retries nothing itself, except for metadata and the search for a first broker and a coordinator.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

from klamm_base.addresses import parse_addresses
from klamm_base.backoff import Backoff
from klamm_base.security import ClientSecurity
from klamm_kafka.client.connection import Connection
from klamm_kafka.client.errors import (
    AnotherCluster,
    AuthenticationFailed,
    BrokerError,
    ClientError,
    ConnectionLost,
)
from klamm_kafka.client.one_cluster import OneCluster
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.find_coordinator import FindCoordinatorRequest
from klamm_kafka.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from klamm_kafka.wire.struct import Message

if TYPE_CHECKING:
    from klamm_kafka.client.secure import Secure

RETRY_S: Final = 0.1
COORDINATOR_FIRST_S: Final = 0.02
"""The first pause between two searches for a coordinator: the topic of coordinators may be made just now."""
COORDINATOR_LONGEST_S: Final = 0.2
NEXT_S: Final = 0.3
"""The time for a connection to a broker, before another is tried beside it."""
SILENT_S: Final = 1.0
"""A broker that owes an answer for so long is asked only if there is no other. A fetch waits for less."""
GROUP: Final = 0
TRANSACTION: Final = 1
_KINDS: Final = {GROUP: "group", TRANSACTION: "transactional id"}


@dataclass(frozen=True, slots=True)
class Address:
    """Host and port of a broker."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def parse_bootstrap(text: str) -> list[Address]:
    """Parses `host:port,host:port`. Raises ConfigError."""
    return [Address(host, port) for host, port in parse_addresses(text)]


class Cluster:
    """A cluster. Use it as `async with Cluster("127.0.0.1:9092") as cluster`, in one event loop.

    `patience_s` limits the repeated search for a first broker; its default is `timeout_s`. `name` is the cluster's in
    errors that no broker can be reached.
    `security`: TLS and SASL, `ClientSecurity.from_properties(props)`; None is PLAINTEXT. Raises ConfigError for
    certificates that OpenSSL refuses. `one` checks that each broker is of the same cluster.
    """

    def __init__(
        self,
        bootstrap: str,
        *,
        client_id: str = "klamm",
        timeout_s: float = 10,
        patience_s: float | None = None,
        security: ClientSecurity | None = None,
        name: str | None = None,
        one: OneCluster | None = None,
    ) -> None:
        self._name, self._one = name, one
        self._bootstrap = parse_bootstrap(bootstrap)
        self._secure: Secure | None = None
        if security is not None and (security.tls or security.sasl):
            from klamm_kafka.client.secure import Secure  # slow to import, and most clients need no security

            self._secure = Secure(security)
        self._client_id = client_id
        self.timeout_s = timeout_s
        self._patience_s = timeout_s if patience_s is None else patience_s
        self._connections: dict[Address, Connection] = {}
        self._opening: dict[Address, asyncio.Lock] = {}
        self._given_up: set[asyncio.Task[Connection]] = set()  # attempts that another broker was quicker than
        self._coordinators: dict[tuple[int, str], Address] = {}
        self.brokers: dict[int, Address] = {}
        self.metadata: MetadataResponse | None = None
        self._indexed: MetadataResponse | None = None
        self._leaders: dict[tuple[str | None, int], int] = {}
        """The leaders in `_indexed`, the metadata that were looked at last."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        connections, self._connections = list(self._connections.values()), {}
        for connection in connections:
            await connection.close()
        await asyncio.gather(*self._given_up, return_exceptions=True)

    async def refresh(self, topics: Iterable[str] | None = None, *, create: bool = False) -> MetadataResponse:
        """Ask for the metadata of these topics (None: all) and learn the brokers. Raises ClientError."""
        asked = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(topics=asked, allow_auto_topic_creation=create)
        answer: MetadataResponse
        connection = await self.any_broker()
        try:
            answer = await connection.request(request)
        except ConnectionLost:  # an idle connection that the broker closed shows only when it is used
            answer = await (await self.any_broker()).request(request)
        self.brokers = {b.node_id: Address(b.host, b.port) for b in answer.brokers}
        self.metadata = answer
        if self._one is not None:
            self._one.heard(answer)
        return answer

    async def any_broker(self) -> Connection:
        """Returns a connection to some broker: to one that answers, if there is one.

        Tries the known brokers, then the bootstrap list, until patience ends.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._patience_s
        while True:
            for connection in self._connections.values():
                if not connection.closed and connection.silent_s < SILENT_S:
                    return connection
            known = dict.fromkeys([*self.brokers.values(), *self._bootstrap, *self._connections])
            failures: dict[Address, ClientError] = {}
            found = await self._quickest(sorted(known, key=self._connections.__contains__), failures)
            if found is not None:
                return found
            error = self._unreachable(failures)
            if loop.time() >= deadline or isinstance(error, AuthenticationFailed):
                raise error
            await asyncio.sleep(RETRY_S)

    def _unreachable(self, failures: Mapping[Address, ClientError]) -> ClientError:
        """Returns the error of a client that no broker takes."""
        for error in failures.values():
            if isinstance(error, AuthenticationFailed):
                return error
        of = f" of {self._name}" if self._name else ""
        reasons = [
            said if (said := str(e)).startswith(f"{a}: ") else f"{a}: {said}" for a, e in failures.items()
        ]
        what = f"no broker{of} can be reached ({'; '.join(reasons)})"
        for error in failures.values():
            if isinstance(error, AnotherCluster):
                return AnotherCluster(what, error.cluster_id)
        return ConnectionLost(what)

    async def _quickest(
        self, addresses: Iterable[Address], failures: dict[Address, ClientError]
    ) -> Connection | None:
        """Connects to the brokers in their order, and does not wait long for one before it tries the next. Adds to `failures` why there is no
        connection. Raises AuthenticationFailed at once, unless brokers of another cluster are to be passed over.
        """
        left = deque(addresses)
        opening: dict[asyncio.Task[Connection], Address] = {}
        try:
            while left or opening:
                if left:
                    address = left.popleft()
                    opening[asyncio.create_task(self._connect(address))] = address
                done, _ = await asyncio.wait(
                    opening, timeout=NEXT_S if left else None, return_when=asyncio.FIRST_COMPLETED
                )
                for task in done:
                    address = opening.pop(task)
                    try:
                        return task.result()
                    except ClientError as e:
                        if self._one is None and isinstance(e, AuthenticationFailed):
                            raise
                        failures[address] = e  # another cluster knows others
            return None
        finally:
            for task in opening:
                task.cancel()
                self._given_up.add(task)
                task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Connection]) -> None:
        """Forgets an attempt that nobody waits for, and its failure."""
        self._given_up.discard(task)
        if not task.cancelled():
            task.exception()

    async def broker(self, node_id: int) -> Connection:
        """Returns a connection to one broker of the metadata. Raises ConnectionLost when the broker is not known."""
        if node_id not in self.brokers:
            await self.refresh([])
        address = self.brokers.get(node_id)
        if address is None:
            raise ConnectionLost(f"broker {node_id} is not in the cluster's metadata")
        return await self._connect(address)

    async def leader(self, topic: str, partition: int) -> Connection:
        """Returns a connection to a partition's leader. Raises BrokerError for a topic or partition that does not exist."""
        node_id = self.leader_id(topic, partition)
        if node_id is None:
            await self.refresh([topic])
            node_id = self.leader_id(topic, partition)
        if node_id is None:
            raise self.no_leader(topic, partition)
        return await self.broker(node_id)

    def leader_id(self, topic: str, partition: int) -> int | None:
        """Returns the leader's node id in the last metadata: -1 if it has none now, None if it is not known."""
        if self._indexed is not self.metadata:
            self._indexed = self.metadata
            found = self.metadata.topics if self.metadata is not None else ()
            self._leaders = {(t.name, p.partition_index): p.leader_id for t in found for p in t.partitions}
        return self._leaders.get((topic, partition))

    def no_leader(self, topic: str, partition: int) -> BrokerError:
        """Returns the error of a partition that has no leader in the last metadata."""
        topics = self.metadata.topics if self.metadata is not None else ()
        code = next((t.error_code for t in topics if t.name == topic), ErrorCode.NONE)
        if not code:
            is_there = self.leader_id(topic, partition) is not None
            code = ErrorCode.LEADER_NOT_AVAILABLE if is_there else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return broker_error(code, f"{topic}-{partition}")

    async def coordinator(self, key: str, kind: int = GROUP) -> Connection:
        """Returns a connection to the coordinator of a group or (TRANSACTION) a transactional id.

        Waits for a coordinator until the timeout.
        """
        address = self._coordinators.get((kind, key))
        if address is None:
            address = self._coordinators[kind, key] = await self._find_coordinator(key, kind)
        try:
            return await self._connect(address)
        except ClientError:
            self.forget_coordinator(key, kind)
            raise

    def forget_coordinator(self, key: str, kind: int = GROUP) -> None:
        """Ask for the coordinator again next time: the broker said NOT_COORDINATOR, or is gone."""
        self._coordinators.pop((kind, key), None)

    async def request(self, message: Message, *, timeout_s: float | None = None) -> Any:
        """Send a request to some broker."""
        return await (await self.any_broker()).request(message, timeout_s=timeout_s)

    # ---- inside

    async def _connect(self, address: Address) -> Connection:
        async with self._opening.setdefault(address, asyncio.Lock()):
            connection = self._connections.get(address)
            if connection is None or connection.closed:
                if connection is not None:
                    await connection.close()
                    self._connections.pop(address, None)
                connection = self._connections[address] = await self._open(address)
            return connection

    async def _open(self, address: Address) -> Connection:
        connection = await Connection.open(
            address.host,
            address.port,
            client_id=self._client_id,
            timeout_s=self.timeout_s,
            secure=self._secure,
        )
        if self._one is not None:
            try:
                await self._one.check(connection, str(address))
            except BaseException:
                await connection.close()
                raise
        return connection

    async def _find_coordinator(self, key: str, kind: int) -> Address:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.timeout_s
        backoff = Backoff(COORDINATOR_FIRST_S, COORDINATOR_LONGEST_S)
        while True:
            connection = await self.any_broker()
            version = connection.version_for(FindCoordinatorRequest)
            if version >= 4:
                request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
                answer = (await connection.request(request, version)).coordinators[0]
            else:
                answer = await connection.request(FindCoordinatorRequest(key=key, key_type=kind), version)
            if answer.error_code == ErrorCode.NONE:
                return Address(answer.host, answer.port)
            error = broker_error(answer.error_code, f"the coordinator of {_KINDS[kind]} {key}")
            if not error.retriable or loop.time() >= deadline:
                raise error
            await asyncio.sleep(backoff.failed(loop.time(), str(error)))


def broker_error(code: int, what: str) -> BrokerError:
    """Returns an error code of an answer as an exception that says what it was about."""
    try:
        known = ErrorCode(code)
    except ValueError:
        return BrokerError(code, "unknown error", what, retriable=False)
    return BrokerError(code, known.name, what, retriable=known.retriable)
