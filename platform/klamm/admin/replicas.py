"""Leaders and replicas: ElectLeaders (43), AlterPartitionReassignments (45) and its list (46), AlterReplicaLogDirs (34)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from klamm.admin.client import Admin
from klamm.admin.errors import AdminError
from klamm.admin.model import TopicPartition, by_topic
from klamm_kafka.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from klamm_kafka.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from klamm_kafka.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from klamm_kafka.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)

PREFERRED: Final = 0
UNCLEAN: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Reassignment:
    """A running move of a partition: `replicas` are all of now, those being added among them."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


async def elect_leaders(
    admin: Admin, election_type: int, partitions: Collection[TopicPartition] | None
) -> dict[TopicPartition, AdminError | None]:
    """Elect leaders of these partitions (None: of all that need it): what became of each. Raises AdminError."""
    asked = None
    if partitions is not None:
        asked = [TopicPartitions(topic=t, partitions=ids) for t, ids in by_topic(partitions).items()]
    request = ElectLeadersRequest(
        election_type=election_type, topic_partitions=asked, timeout_ms=admin.timeout_ms
    )
    answer = await admin.ask(request, floor=election_type)
    if answer.error_code:
        raise AdminError(answer.error_code, "cannot elect leaders")
    return {
        tp: AdminError(p.error_code, str(tp), p.error_message) if p.error_code else None
        for t in answer.replica_election_results
        for p in t.partition_result
        for tp in [TopicPartition(t.topic, p.partition_id)]
    }


async def list_reassignments(
    admin: Admin, partitions: Collection[TopicPartition] | None = None
) -> dict[TopicPartition, Reassignment]:
    """Return the running moves of these partitions (None: all). Raises AdminError."""
    asked = None
    if partitions is not None:
        asked = [
            ListPartitionReassignmentsTopics(name=t, partition_indexes=ids)
            for t, ids in by_topic(partitions).items()
        ]
    answer = await admin.ask(ListPartitionReassignmentsRequest(timeout_ms=admin.timeout_ms, topics=asked))
    if answer.error_code:
        raise AdminError(answer.error_code, "cannot list reassignments", answer.error_message)
    return {
        TopicPartition(t.name, p.partition_index): Reassignment(
            replicas=tuple(p.replicas), adding=tuple(p.adding_replicas), removing=tuple(p.removing_replicas)
        )
        for t in answer.topics
        for p in t.partitions
    }


async def reassign(
    admin: Admin,
    targets: Mapping[TopicPartition, Sequence[int] | None],
    *,
    allow_replication_factor_change: bool = True,
) -> dict[TopicPartition, AdminError]:
    """Begin to move partitions (None: stop a move). Returns those that were refused. Raises AdminError."""
    topics = [
        ReassignableTopic(
            name=topic,
            partitions=[
                ReassignablePartition(
                    partition_index=p, replicas=None if (to := targets[TopicPartition(topic, p)]) is None else list(to)
                )
                for p in ids
            ],
        )
        for topic, ids in by_topic(targets).items()
    ]  # fmt: skip
    request = AlterPartitionReassignmentsRequest(
        timeout_ms=admin.timeout_ms,
        allow_replication_factor_change=allow_replication_factor_change,
        topics=topics,
    )
    answer = await admin.ask(request, floor=0 if allow_replication_factor_change else 1)
    if answer.error_code:
        raise AdminError(answer.error_code, "cannot reassign partitions", answer.error_message)
    return {
        tp: AdminError(p.error_code, str(tp), p.error_message)
        for t in answer.responses
        for p in t.partitions
        for tp in [TopicPartition(t.name, p.partition_index)]
        if p.error_code
    }


async def alter_log_dirs(
    admin: Admin, moves: Mapping[tuple[TopicPartition, int], str]
) -> dict[tuple[TopicPartition, int], AdminError | None]:
    """Begin to move replicas, by partition and broker, to other directories: what became of each."""
    results: dict[tuple[TopicPartition, int], AdminError | None] = {}
    for broker in sorted({broker for _, broker in moves}):
        mine = {tp: path for (tp, node), path in moves.items() if node == broker}
        dirs = [
            AlterReplicaLogDir(
                path=path,
                topics=[
                    AlterReplicaLogDirTopic(name=t, partitions=ids)
                    for t, ids in by_topic(tp for tp, to in mine.items() if to == path).items()
                ],
            )
            for path in sorted(set(mine.values()))
        ]
        answer = await admin.ask_broker(broker, AlterReplicaLogDirsRequest(dirs=dirs))
        for t in answer.results:
            for p in t.partitions:
                tp = TopicPartition(t.topic_name, p.partition_index)
                results[tp, broker] = AdminError(p.error_code, str(tp)) if p.error_code else None
    return results
