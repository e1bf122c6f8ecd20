"""The mirror's changes at its target: topics, partitions, settings and ACLs.

`AdminRequests` makes them by requests to the brokers. `Forwarded` lets a ForwardingAdmin plugin make them, in a
thread, because plugins may block. Both return refusals by topic and raise ClientError when a repetition may help.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from enum import IntEnum
from typing import Any, Final, Protocol

from klamm_kafka.client import ClientError, Cluster, Connection, broker_error
from klamm_kafka.wire.acls import AclOperation, AclPermissionType
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from klamm_kafka.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from klamm_kafka.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from klamm_kafka.wire.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from klamm_kafka.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from klamm_plugins.errors import RetriableError
from klamm_plugins.mirror import AclBinding, ForwardingAdmin, NewTopic, Refused

TOPIC: Final = 2
"""The resource type of a topic in requests about settings and ACLs."""
LITERAL: Final = 3
"""The pattern type of an ACL of one topic."""
TIMEOUT_MS: Final = 60_000
_SET, _DELETE = 0, 1
_DONE: Final = frozenset({ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS})


def name_of(codes: type[IntEnum], code: int) -> str:
    """Returns the name of a code; the number itself for one that later brokers may have."""
    return codes(code).name if code in codes._value2member_map_ else str(code)


def _code_of(codes: type[IntEnum], name: str) -> int:
    return int(codes[name]) if name in codes.__members__ else int(name)


class Admin(Protocol):
    """The changes at a cluster, see `klamm_plugins.mirror.TopicAdmin`."""

    async def create_topics(self, topics: Sequence[NewTopic]) -> Refused: ...
    async def create_partitions(self, counts: Mapping[str, int]) -> Refused: ...
    async def incremental_alter_configs(self, changes: Mapping[str, Mapping[str, str | None]]) -> Refused: ...
    async def create_acls(self, bindings: Sequence[AclBinding]) -> Refused: ...


class AdminRequests:
    """Makes the changes by requests to the cluster's brokers."""

    def __init__(self, cluster: Cluster, timeout_ms: int = TIMEOUT_MS) -> None:
        self._cluster = cluster
        self._timeout_ms = timeout_ms

    async def create_topics(self, topics: Sequence[NewTopic]) -> Refused:
        if not topics:
            return {}
        wanted = [
            CreatableTopic(
                name=topic.name,
                num_partitions=topic.num_partitions,
                replication_factor=topic.replication_factor,
                configs=[CreatableTopicConfig(name=k, value=v) for k, v in topic.configs.items()],
            )
            for topic in topics
        ]
        answer: CreateTopicsResponse = await self._ask(
            CreateTopicsRequest(topics=wanted, timeout_ms=self._timeout_ms)
        )
        return _refused("making", ((t.name, t.error_code, t.error_message) for t in answer.topics))

    async def delete_topics(self, ids: Mapping[str, bytes]) -> Refused:
        """Deletes the topics with these ids, by name. One that has another id by now stays, and counts as deleted."""
        if not ids:
            return {}
        names = {topic_id: name for name, topic_id in ids.items()}
        request = DeleteTopicsRequest(
            topics=[DeleteTopicState(name=None, topic_id=topic_id) for topic_id in names],
            timeout_ms=self._timeout_ms,
        )
        answer: DeleteTopicsResponse = await self._ask(request)
        results = ((names[t.topic_id], t.error_code, t.error_message) for t in answer.responses)
        return _refused("deleting", (r for r in results if r[1] != ErrorCode.UNKNOWN_TOPIC_ID))

    async def create_partitions(self, counts: Mapping[str, int]) -> Refused:
        if not counts:
            return {}
        wanted = [CreatePartitionsTopic(name=n, count=c, assignments=None) for n, c in counts.items()]
        answer: CreatePartitionsResponse = await self._ask(
            CreatePartitionsRequest(topics=wanted, timeout_ms=self._timeout_ms, validate_only=False)
        )
        return _refused(
            "adding partitions to", ((t.name, t.error_code, t.error_message) for t in answer.results)
        )

    async def incremental_alter_configs(self, changes: Mapping[str, Mapping[str, str | None]]) -> Refused:
        if not changes:
            return {}
        resources = [
            AlterConfigsResource(
                resource_type=TOPIC,
                resource_name=topic,
                configs=[
                    AlterableConfig(name=n, config_operation=_DELETE if v is None else _SET, value=v)
                    for n, v in settings.items()
                ],
            )
            for topic, settings in changes.items()
        ]
        answer: IncrementalAlterConfigsResponse = await self._ask(
            IncrementalAlterConfigsRequest(resources=resources, validate_only=False)
        )
        return _refused(
            "settings of", ((r.resource_name, r.error_code, r.error_message) for r in answer.responses)
        )

    async def create_acls(self, bindings: Sequence[AclBinding]) -> Refused:
        if not bindings:
            return {}
        creations = [
            AclCreation(
                resource_type=TOPIC, resource_name=b.topic, resource_pattern_type=LITERAL, principal=b.principal,
                host=b.host, operation=_code_of(AclOperation, b.operation),
                permission_type=_code_of(AclPermissionType, b.permission),
            )
            for b in bindings
        ]  # fmt: skip
        answer: CreateAclsResponse = await self._ask(CreateAclsRequest(creations=creations))
        pairs = zip(bindings, answer.results, strict=True)
        return _refused("an ACL of", ((b.topic, r.error_code, r.error_message) for b, r in pairs))

    async def _ask(self, request: Any) -> Any:
        return await ask_controller(self._cluster, request, timeout_s=self._timeout_ms / 1000)


async def ask_controller(cluster: Cluster, request: Any, *, timeout_s: float = TIMEOUT_MS / 1000) -> Any:
    """Asks the controller, or any broker where the metadata names none. Raises ClientError."""
    if cluster.metadata is None:
        await cluster.refresh([])
    node = cluster.metadata.controller_id if cluster.metadata is not None else -1
    connection: Connection = await (cluster.broker(node) if node >= 0 else cluster.any_broker())
    return await connection.request(request, timeout_s=timeout_s)


def _refused(what: str, results: Any) -> Refused:
    """Returns refusals by topic. Raises ClientError for the first that a repetition may cure."""
    refused: dict[str, str] = {}
    for topic, code, said in results:
        if code not in _DONE:
            error = broker_error(code, f"{what} {topic}")
            if error.retriable:
                raise error
            refused[topic] = f"{error.name} ({code})" + (f": {said}" if said else "")
    return refused


class ForwardingFailed(ClientError):
    """A ForwardingAdmin asked for a repetition."""

    retriable = True


class Forwarded:
    """Lets a plugin make the changes. `requests` are its delegate."""

    def __init__(self, plugin: ForwardingAdmin, requests: AdminRequests) -> None:
        self._plugin = plugin
        self._requests = requests

    async def create_topics(self, topics: Sequence[NewTopic]) -> Refused:
        return await self._call(lambda: self._plugin.create_topics(topics))

    async def create_partitions(self, counts: Mapping[str, int]) -> Refused:
        return await self._call(lambda: self._plugin.create_partitions(counts))

    async def incremental_alter_configs(self, changes: Mapping[str, Mapping[str, str | None]]) -> Refused:
        return await self._call(lambda: self._plugin.incremental_alter_configs(changes))

    async def create_acls(self, bindings: Sequence[AclBinding]) -> Refused:
        return await self._call(lambda: self._plugin.create_acls(bindings))

    async def _call(self, method: Callable[[], Refused]) -> Refused:
        self._plugin.delegate = _Delegate(self._requests, asyncio.get_running_loop())
        try:
            return await asyncio.to_thread(method)
        except RetriableError as e:
            raise ForwardingFailed(f"{type(self._plugin).__name__}: {e}") from e


class _Delegate:
    """The requests for a plugin's thread: waits for the loop to make them."""

    def __init__(self, requests: AdminRequests, loop: asyncio.AbstractEventLoop) -> None:
        self._requests = requests
        self._loop = loop

    def create_topics(self, topics: Sequence[NewTopic]) -> Refused:
        return self._wait(self._requests.create_topics(topics))

    def create_partitions(self, counts: Mapping[str, int]) -> Refused:
        return self._wait(self._requests.create_partitions(counts))

    def incremental_alter_configs(self, changes: Mapping[str, Mapping[str, str | None]]) -> Refused:
        return self._wait(self._requests.incremental_alter_configs(changes))

    def create_acls(self, bindings: Sequence[AclBinding]) -> Refused:
        return self._wait(self._requests.create_acls(bindings))

    def _wait(self, request: Coroutine[Any, Any, Refused]) -> Refused:
        return asyncio.run_coroutine_threadsafe(request, self._loop).result()
