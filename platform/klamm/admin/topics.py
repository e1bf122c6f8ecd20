"""Topics: what there is, creating, enlarging and deleting."""

from __future__ import annotations

import base64
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from klamm.admin.client import Admin
from klamm.admin.errors import AdminError
from klamm.admin.model import TopicPartition
from klamm_kafka.client import UnsupportedApi
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from klamm_kafka.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from klamm_kafka.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from klamm_kafka.wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsRequestCursor,
    TopicRequest,
)
from klamm_kafka.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from klamm_kafka.wire.messages.metadata import MetadataResponseTopic

_ELR_LIMIT = 2000  # partitions of an answer, what Kafka's own client asks for


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """A partition of a topic.

    `leader`: None without a leader. `elr`, `last_known_elr`: None where the broker does not say.
    """

    number: int
    leader: int | None
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    elr: tuple[int, ...] | None = None
    last_known_elr: tuple[int, ...] | None = None
    adding: tuple[int, ...] | None = None
    """Replicas that a running reassignment adds; None without a reassignment."""
    removing: tuple[int, ...] | None = None

    @property
    def replication_factor(self) -> int:
        """The number of replicas, without those that a reassignment is still adding."""
        moving = {*(self.adding or ()), *(self.removing or ())}
        return len(self.replicas) - (len(self.adding or ()) if moving & set(self.replicas) else 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A topic with its partitions in order."""

    name: str
    id: bytes
    internal: bool
    partitions: tuple[Partition, ...]


def id_text(raw: bytes) -> str:
    """Return a topic id as Kafka writes it: base64 for URLs, without padding."""
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def parse_id(text: str) -> bytes:
    """Return the bytes of a topic id as Kafka writes it. Raises ValueError."""
    raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    if len(raw) != 16:
        raise ValueError(f"{text} is no topic id: {len(raw)} bytes instead of 16")
    return raw


async def list_topics(admin: Admin) -> list[Topic]:
    """Return all topics by name, internal topics too."""
    answer = await admin.metadata()
    return sorted((_topic(t) for t in answer.topics if not t.error_code), key=lambda t: t.name)


async def partitions_where(
    admin: Admin, wanted: Callable[[TopicPartition], bool], *, exclude_internal: bool = False
) -> list[TopicPartition]:
    """Return the partitions that a filter lets through, by topic and number."""
    return [
        tp
        for topic in await list_topics(admin)
        if not (exclude_internal and topic.internal)
        for p in topic.partitions
        if wanted(tp := TopicPartition(topic.name, p.number))
    ]


def _topic(found: MetadataResponseTopic) -> Topic:
    partitions = (
        Partition(
            number=p.partition_index,
            leader=p.leader_id if p.leader_id >= 0 else None,
            replicas=tuple(p.replica_nodes),
            isr=tuple(p.isr_nodes),
        )
        for p in found.partitions
    )
    return Topic(
        name=found.name or "",
        id=found.topic_id,
        internal=found.is_internal,
        partitions=tuple(sorted(partitions, key=lambda p: p.number)),
    )


async def describe_topics(admin: Admin, names: Sequence[str], *, limit: int | None = None) -> list[Topic]:
    """Return topics in the order of their names, with the facts that DescribeTopicPartitions (75) adds where a broker
    serves it.

    Raises AdminError for a topic that is not there.
    """
    if not names:
        return []
    try:
        return await admin.patiently(lambda: _with_elr(admin, sorted(names), limit or _ELR_LIMIT))
    except UnsupportedApi:
        answer = await admin.metadata(sorted(names))
        for t in answer.topics:
            if t.error_code:
                raise AdminError(t.error_code, f"topic {t.name!r}") from None
        return sorted((_topic(t) for t in answer.topics), key=lambda t: t.name)


async def _with_elr(admin: Admin, names: Sequence[str], limit: int) -> list[Topic]:
    topics: dict[str, Topic] = {}
    cursor: DescribeTopicPartitionsRequestCursor | None = None
    while True:
        left = [n for n in names if cursor is None or n >= cursor.topic_name]
        request = DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name=n) for n in left], response_partition_limit=limit, cursor=cursor
        )
        answer = await admin.ask(request)
        for t in answer.topics:
            if t.error_code:
                raise AdminError(t.error_code, f"topic {t.name!r}")
            earlier = topics[t.name].partitions if t.name in topics else ()
            topics[t.name] = Topic(
                name=t.name,
                id=t.topic_id,
                internal=t.is_internal,
                partitions=(*earlier, *(_partition_75(p) for p in t.partitions)),
            )
        if answer.next_cursor is None:
            return [topics[n] for n in names]
        cursor = DescribeTopicPartitionsRequestCursor(
            topic_name=answer.next_cursor.topic_name, partition_index=answer.next_cursor.partition_index
        )


def _partition_75(p: Any) -> Partition:
    return Partition(
        number=p.partition_index,
        leader=p.leader_id if p.leader_id >= 0 else None,
        replicas=tuple(p.replica_nodes),
        isr=tuple(p.isr_nodes),
        elr=None if p.eligible_leader_replicas is None else tuple(p.eligible_leader_replicas),
        last_known_elr=None if p.last_known_elr is None else tuple(p.last_known_elr),
    )


async def reassignments(
    admin: Admin, topics: Collection[Topic]
) -> dict[TopicPartition, tuple[list[int], list[int]]]:
    """Return the replicas that reassignments add and remove, by partition; nothing where the broker cannot say."""
    asked = [
        ListPartitionReassignmentsTopics(name=t.name, partition_indexes=[p.number for p in t.partitions])
        for t in topics
    ]
    try:
        answer = await admin.ask(ListPartitionReassignmentsRequest(topics=asked, timeout_ms=admin.timeout_ms))
    except UnsupportedApi:
        return {}
    if answer.error_code:
        raise AdminError(answer.error_code, "cannot list reassignments", answer.error_message)
    return {
        TopicPartition(t.name, p.partition_index): (p.adding_replicas, p.removing_replicas)
        for t in answer.topics
        for p in t.partitions
    }


async def create_topic(
    admin: Admin,
    name: str,
    *,
    partitions: int = -1,
    replication_factor: int = -1,
    assignment: Mapping[int, Sequence[int]] | None = None,
    configs: Mapping[str, str] | None = None,
) -> None:
    """Create a topic; -1 takes the cluster's default. Raises AdminError."""
    topic = CreatableTopic(
        name=name,
        num_partitions=-1 if assignment else partitions,
        replication_factor=-1 if assignment else replication_factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=p, broker_ids=list(ids))
            for p, ids in (assignment or {}).items()
        ],
        configs=[CreatableTopicConfig(name=k, value=v) for k, v in (configs or {}).items()],
    )

    async def attempt() -> None:
        answer = await admin.ask(CreateTopicsRequest(topics=[topic], timeout_ms=admin.timeout_ms))
        found = answer.topics[0]
        if found.error_code:
            raise AdminError(found.error_code, f"cannot create topic {name!r}", found.error_message)

    await admin.patiently(attempt)


async def create_partitions(
    admin: Admin, topics: Mapping[str, int], assignments: Mapping[str, Sequence[Sequence[int]]] | None = None
) -> None:
    """Enlarge topics to so many partitions. Tries all, then raises the first AdminError."""
    new = assignments or {}
    rows = [
        CreatePartitionsTopic(
            name=name,
            count=count,
            assignments=[CreatePartitionsAssignment(broker_ids=list(ids)) for ids in new[name]]
            if name in new
            else None,
        )
        for name, count in topics.items()
    ]

    async def attempt() -> None:
        answer = await admin.ask(CreatePartitionsRequest(topics=rows, timeout_ms=admin.timeout_ms))
        for found in answer.results:
            if found.error_code:
                raise AdminError(found.error_code, f"cannot alter topic {found.name!r}", found.error_message)

    await admin.patiently(attempt)


async def delete_topics(admin: Admin, names: Sequence[str]) -> None:
    """Delete topics. Raises the first AdminError after all were tried."""

    async def attempt() -> None:
        request = DeleteTopicsRequest(
            topics=[DeleteTopicState(name=n) for n in names],
            topic_names=list(names),
            timeout_ms=admin.timeout_ms,
        )
        answer = await admin.ask(request)
        for found in answer.responses:
            if found.error_code:
                raise AdminError(found.error_code, f"cannot delete topic {found.name!r}", found.error_message)

    await admin.patiently(attempt)


def unknown(error: AdminError) -> bool:
    """Return whether a topic or partition simply is not there."""
    return error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
