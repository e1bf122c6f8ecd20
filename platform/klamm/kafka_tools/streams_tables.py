"""The tables of `kafka-streams-groups`: column widths as Kafka's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from klamm.admin.model import TopicPartition
from klamm.admin.streams_groups import StreamsGroup, StreamsMember, StreamsPosition, Tasks, TaskSet
from klamm.kafka_tools.group_tables import aligned, missing


def offsets_table(group: str, rows: Sequence[StreamsPosition], *, verbose: bool) -> str:
    """Return how far one group has come."""
    more = ["CURRENT-OFFSET", "LEADER-EPOCH", "LOG-END-OFFSET"] * verbose
    cells = [["GROUP", "TOPIC", "PARTITION", *more, "OFFSET-LAG"]]
    for row in rows:
        done = row.committed
        epoch = None if done is None else done.leader_epoch
        told = [missing(None if done is None else done.offset), missing(epoch), str(row.end)] * verbose
        cells.append([group, row.partition.topic, str(row.partition.partition), *told, str(row.lag)])
    return aligned(cells, [15, 15, 10, *[15, 15, 15] * verbose])


def members_table(group: StreamsGroup, *, verbose: bool) -> str:
    """Return members of one group with their tasks."""
    if not verbose:
        rows = [[group.group, m.id, m.process_id, m.client_id, _tasks(m.assignment)] for m in group.members]
        head = ["GROUP", "MEMBER", "PROCESS", "CLIENT-ID", "ASSIGNMENTS"]
        return aligned([head, *rows], [15, 15, 15, 15])
    head = ["GROUP", "TARGET-ASSIGNMENT-EPOCH", "TOPOLOGY-EPOCH", "MEMBER", "MEMBER-PROTOCOL"]
    head += ["MEMBER-EPOCH", "PROCESS", "CLIENT-ID", "ASSIGNMENTS"]
    rows = [_member(group, m) for m in group.members]
    return aligned([head, *rows], [15, 25, 14, 15, 15, 15, 15, 15])


def _member(group: StreamsGroup, m: StreamsMember) -> list[str]:
    protocol = "classic" if m.is_classic else "streams"
    epochs = [str(group.target_epoch), str(m.topology_epoch)]
    tasks = _tasks(m.assignment) + _tasks(m.target, "TARGET-")
    return [group.group, *epochs, m.id, protocol, str(m.epoch), m.process_id, m.client_id, tasks]


def _tasks(tasks: TaskSet, prefix: str = "") -> str:
    roles = (("ACTIVE", tasks.active), ("STANDBY", tasks.standby), ("WARMUP", tasks.warmup))
    return "".join(f"{prefix}{role}: {_partitions(found)}" for role, found in roles if found)


def _partitions(tasks: Tasks) -> str:
    return "".join(f"{name}:[{','.join(map(str, partitions))}]; " for name, partitions in tasks.items())


def state_table(group: StreamsGroup, *, verbose: bool) -> str:
    """Return coordinator and state of one group."""
    coordinator = f"{group.coordinator.host}:{group.coordinator.port} ({group.coordinator.id})"
    epochs = ["GROUP-EPOCH", "TARGET-ASSIGNMENT-EPOCH"] * verbose
    row = [group.group, coordinator, group.state, *[str(group.epoch), str(group.target_epoch)] * verbose]
    head = ["GROUP", "COORDINATOR (ID)", "STATE", *epochs, "#MEMBERS"]
    return aligned([head, [*row, str(len(group.members))]], [15, 25, 25, *[15, 25] * verbose])


def reset_table(plans: Mapping[str, Mapping[TopicPartition, int]]) -> str:
    """Return new offsets of all groups."""
    rows = [
        [group, tp.topic, str(tp.partition), str(offset)]
        for group, offsets in plans.items()
        for tp, offset in offsets.items()
    ]
    return "\n" + aligned([["GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"], *rows], [30, 30, 10])
