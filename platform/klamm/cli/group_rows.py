"""The rows of `klamm group describe`: offsets, members and states of groups of all kinds."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any

from klamm.admin import streams_groups
from klamm.admin.client import Admin
from klamm.admin.group_report import positions
from klamm.admin.groups import Group, assignment_text
from klamm.admin.share_groups import SHARE, starts
from klamm.admin.streams_groups import STREAMS, StreamsGroup, Tasks, TaskSet

Row = dict[str, Any]


async def offset_rows(admin: Admin, groups: Sequence[Group | StreamsGroup]) -> list[Row]:
    """Return a row for each partition that a group has an offset of, or reads."""
    shares = [g for g in groups if isinstance(g, Group) and g.type == SHARE]
    streams = [g for g in groups if isinstance(g, StreamsGroup)]
    others = [g for g in groups if isinstance(g, Group) and g.type != SHARE]
    rows = [row for group in shares for row in await _start_rows(admin, group)]
    rows += [row for group in streams for row in await _streams_rows(admin, group)]
    rows += [
        {
            "group": p.group,
            "topic": p.partition.topic,
            "partition": p.partition.partition,
            "current_offset": p.current,
            "log_end_offset": p.end,
            "lag": p.lag,
            "consumer_id": p.member.id if p.member else None,
            "host": p.member.host if p.member else None,
            "client_id": p.member.client_id if p.member else None,
            "leader_epoch": p.leader_epoch,
            "state": group.state,
        }
        for group, found in zip(others, await positions(admin, others), strict=True)
        for p in found
    ]
    return rows


async def _start_rows(admin: Admin, group: Group) -> list[dict[str, Any]]:
    """Return rows of a share group, whose start offsets are its offsets; it may have several members for a partition."""
    return [
        {
            "group": group.group,
            "topic": tp.topic,
            "partition": tp.partition,
            "current_offset": start.offset,
            "lag": start.lag,
            "leader_epoch": start.leader_epoch,
            "state": group.state,
        }
        for tp, start in (await starts(admin, group.group)).items()
    ]


async def _streams_rows(admin: Admin, group: StreamsGroup) -> list[Row]:
    """Return rows of a Streams group, whose members have tasks, not partitions."""
    return [
        {
            "group": group.group,
            "topic": p.partition.topic,
            "partition": p.partition.partition,
            "current_offset": None if p.committed is None else p.committed.offset,
            "log_end_offset": p.end,
            "lag": p.lag,
            "leader_epoch": None if p.committed is None else p.committed.leader_epoch,
            "state": group.state,
        }
        for p in await streams_groups.positions(admin, group)
    ]


def chosen(rows: Sequence[Row], topics: Sequence[str] | None, *, lagging: bool) -> list[Row]:
    """Return the rows of topics like these patterns (None: of all), and only those with a lag if `lagging`."""
    return [
        row
        for row in rows
        if (not topics or any(fnmatchcase(row["topic"] or "", t) for t in topics))
        and (not lagging or row["lag"])
    ]


def by_topic(rows: Sequence[Row]) -> list[Row]:
    """Return a row for each topic of each group, with the sum of the lags that are known."""
    result: dict[tuple[str, str], Row] = {}
    for row in rows:
        whole = result.setdefault(
            (row["group"], row["topic"]),
            {
                "group": row["group"],
                "topic": row["topic"],
                "partitions": 0,
                "lag": None,
                "state": row["state"],
            },
        )
        whole["partitions"] += 1
        if row["lag"] is not None:
            whole["lag"] = (whole["lag"] or 0) + row["lag"]
    return list(result.values())


def member_rows(group: Group | StreamsGroup) -> list[Row]:
    """Return a row for each member."""
    return _task_rows(group) if isinstance(group, StreamsGroup) else _consumer_rows(group)


def _consumer_rows(group: Group) -> list[dict[str, Any]]:
    return [
        {
            "group": group.group,
            "consumer_id": m.id,
            "host": m.host,
            "client_id": m.client_id,
            "partitions": len(m.assignment),
            "group_instance_id": m.instance_id,
            "current_epoch": m.epoch,
            "assignment": assignment_text(m.assignment),
            "target_epoch": group.target_epoch,
            "target_assignment": assignment_text(m.target),
            "upgraded": m.upgraded,
        }
        for m in group.members
    ]


def _task_rows(group: StreamsGroup) -> list[Row]:
    """Return rows of members with tasks: their number counts standbys, too."""
    return [
        {
            "group": group.group,
            "consumer_id": m.id,
            "client_id": m.client_id,
            "partitions": _count(m.assignment),
            "current_epoch": m.epoch,
            "assignment": _tasks_text(m.assignment),
            "target_epoch": group.target_epoch,
            "target_assignment": _tasks_text(m.target),
            "upgraded": not m.is_classic,
        }
        for m in group.members
    ]


def _count(tasks: TaskSet) -> int:
    return sum(len(ids) for role in (tasks.active, tasks.standby, tasks.warmup) for ids in role.values())


def _tasks_text(tasks: TaskSet) -> str:
    """Return tasks as `active 0:0,1;1:0 standby 0:2`, by subtopology."""
    roles = {"active": tasks.active, "standby": tasks.standby, "warmup": tasks.warmup}
    return " ".join(f"{role} {_by_subtopology(found)}" for role, found in roles.items() if found)


def _by_subtopology(tasks: Tasks) -> str:
    return ";".join(f"{name}:{','.join(map(str, ids))}" for name, ids in tasks.items())


def state_row(group: Group | StreamsGroup) -> Row:
    """Return the row of a group as a whole."""
    return {
        "group": group.group,
        "type": STREAMS if isinstance(group, StreamsGroup) else group.type,
        "state": group.state,
        "assignor": None if isinstance(group, StreamsGroup) else group.assignor or None,
        "members": len(group.members),
        "coordinator": f"{group.coordinator.host}:{group.coordinator.port}",
        "coordinator_id": group.coordinator.id,
        "group_epoch": group.epoch,
        "target_epoch": group.target_epoch,
    }
