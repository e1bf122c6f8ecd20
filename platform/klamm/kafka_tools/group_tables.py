"""The tables of Kafka's commands for groups: column widths and blank lines exactly as Kafka's."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Final

from klamm.admin.group_report import Position
from klamm.admin.groups import Group, GroupListing, Member, assignment_text
from klamm.admin.model import TopicPartition

MISSING: Final = "-"
_REBALANCING: Final = ("PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling")


def missing(value: object) -> str:
    """Return a value, or a hyphen where there is none."""
    return MISSING if value is None else str(value)


def aligned(rows: Sequence[Sequence[str]], least: Sequence[int]) -> str:
    """Return rows in columns that are at least so wide; the last column is as wide as its words."""
    widths = [max(low, *(len(row[i]) for row in rows)) for i, low in enumerate(least)]
    lines = (
        " ".join([*(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=False)), row[-1]])
        for row in rows
    )
    return "".join(f"{line}\n" for line in lines)


def listed(groups: Sequence[GroupListing], *, with_type: bool, with_state: bool) -> str:
    """Return groups with their types and states."""
    width = max([15, *(len(g.group) for g in groups)]) + 10
    head = ["TYPE"] * with_type + ["STATE"] * with_state
    rows = [["GROUP", *head]] + [
        [g.group, *[g.type or "Unknown"] * with_type, *[g.state or "Unknown"] * with_state] for g in groups
    ]
    return "".join(f"{row[0]:<{width}}" + "".join(f" {cell:<20}" for cell in row[1:]) + "\n" for row in rows)


def warn_of_state(group: Group, *, rows: int) -> bool:
    """Say what is unusual about the group's state; whether there is anything to show."""
    if group.state == "Dead":
        sys.stdout.write(f"\nError: Consumer group '{group.group}' does not exist.\n")
    elif group.state == "Empty":
        sys.stderr.write(f"\nConsumer group '{group.group}' has no active members.\n")
    elif group.state in _REBALANCING:
        sys.stderr.write(f"\nWarning: Consumer group '{group.group}' is rebalancing.\n")
    return group.state != "Dead" and rows > 0


def offsets_table(rows: Sequence[Position], *, verbose: bool) -> str:
    """Return positions and lag of one group."""
    cells = [_position(p, verbose=verbose) for p in rows]
    epoch = ["LEADER-EPOCH"] * verbose
    head = ["GROUP", "TOPIC", "PARTITION", *epoch, "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG"]
    head += ["CONSUMER-ID", "HOST", "CLIENT-ID"]
    flexible = {0, 1, len(head) - 3, len(head) - 2}  # the others have fixed widths
    widths = [
        max([15, *(len(c[i]) for c in cells)]) if i in flexible else 10 if i == 2 else 15
        for i in range(len(head) - 1)
    ]
    lines = (
        " ".join([*(f"{text:<{width}}" for text, width in zip(row, widths, strict=False)), row[-1]])
        for row in [head, *cells]
    )
    return "\n" + "\n".join(lines) + "\n"


def _position(p: Position, *, verbose: bool) -> list[str]:
    member = [p.member.id, p.member.host, p.member.client_id] if p.member else [MISSING] * 3
    epoch = [missing(p.leader_epoch)] * verbose
    offsets = [missing(p.current), missing(p.end), missing(p.lag)]
    return [p.group, p.partition.topic, str(p.partition.partition), *epoch, *offsets, *member]


def members_table(group: Group, *, verbose: bool) -> str:
    """Return members of one group; an empty group has the head alone."""
    with_instance = any(m.instance_id for m in group.members)
    kinds = {m.upgraded for m in group.members}
    migrating = verbose and {True, False} <= kinds
    head = [
        "GROUP",
        "CONSUMER-ID",
        *["GROUP-INSTANCE-ID"] * with_instance,
        "HOST",
        "CLIENT-ID",
        "#PARTITIONS",
    ]
    rows = [_member(group, m, with_instance=with_instance) for m in group.members]
    least = [15, 15, *[17] * with_instance, 15, 15]
    widths = [max([low, *(len(r[i]) for r in rows)]) for i, low in enumerate(least)] + [15]
    lines = ["".join(f"{c:<{w}} " for c, w in zip(r, widths, strict=True)) for r in [head, *rows]]
    if verbose:
        more = ["CURRENT-EPOCH", "CURRENT-ASSIGNMENT", "TARGET-EPOCH", "TARGET-ASSIGNMENT"]
        extra = [_epochs(group, m) for m in group.members]
        last = [["UPGRADED"], *([_upgraded(m)] for m in group.members)] if migrating else None
        wide = [15, max([20, *(len(e[1]) for e in extra)]), 15, max([20, *(len(e[3]) for e in extra)])]
        for i, row in enumerate([more, *extra]):
            cells = [f"{c:<{w}}" for c, w in zip(row, wide, strict=True)]
            lines[i] += " ".join([*cells, *(last[i] if last else [])])
    return "\n" + "\n".join(lines) + "\n"


def _member(group: Group, m: Member, *, with_instance: bool) -> list[str]:
    instance = [m.instance_id or ""] * with_instance
    return [group.group, m.id, *instance, m.host, m.client_id, str(len(m.assignment))]


def _upgraded(m: Member) -> str:
    return MISSING if m.upgraded is None else str(m.upgraded).lower()


def _epochs(group: Group, m: Member) -> list[str]:
    return [
        missing(m.epoch),
        assignment_text(m.assignment) or MISSING,
        missing(group.target_epoch),
        assignment_text(m.target) or MISSING,
    ]


def state_table(group: Group, *, verbose: bool) -> str:
    """Return coordinator, assignor and state of one group."""
    coordinator = f"{group.coordinator.host}:{group.coordinator.port}  ({group.coordinator.id})"
    epochs = ["GROUP-EPOCH", "TARGET-ASSIGNMENT-EPOCH"] * verbose
    head = ["GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE", *epochs, "#MEMBERS"]
    values = [group.group, coordinator, group.assignor or MISSING, group.state]
    values += [missing(group.epoch), missing(group.target_epoch)] * verbose
    values.append(str(len(group.members)))
    widths = [max(15, len(group.group)), max(25, len(coordinator)), 20, 20, *[15, 25] * verbose]
    lines = (
        " ".join([*(f"{c:<{w}}" for c, w in zip(row, widths, strict=False)), row[-1]])
        for row in (head, values)
    )
    return "\n" + "\n".join(lines) + "\n"


def reset_table(plans: Mapping[str, Mapping[TopicPartition, int]]) -> str:
    """Return new offsets of all groups."""
    group_width = max([15, *map(len, plans)])
    topic_width = max([15, *(len(tp.topic) for offsets in plans.values() for tp in offsets)])
    rows = [("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET")] if plans else []
    rows += [
        (g, tp.topic, str(tp.partition), str(o)) for g, offsets in plans.items() for tp, o in offsets.items()
    ]
    body = "".join(f"\n{g:<{group_width}} {t:<{topic_width}} {p:<10} {o}" for g, t, p, o in rows)
    return body + "\n"
