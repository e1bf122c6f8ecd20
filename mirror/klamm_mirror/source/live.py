"""The settings that a source task takes while it runs, so that their change starts no task again. Pure.

A task also takes partitions that nobody had, and loses some. Only where partitions move from one task to another, all tasks
start again (`LAYOUT` changes), because a task must not read a partition that another one has not given up. A task may be slow to
give up what it loses, so its configuration keeps those partitions (`LOST`) until all start again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from klamm_mirror.copy import throttle
from klamm_mirror.source.config import ASSIGNED, FOUND_LATER, PAUSED, split_assigned
from klamm_mirror.source.placement import Shares
from klamm_mirror.topics import config_policy
from klamm_plugins.contexts import LIVE_SETTINGS

LAYOUT: Final = "task.layout"
"""A number that grows whenever partitions move between tasks."""
LOST: Final = "task.partitions.lost"
"""The partitions that a task has had since the layout changed, and has no longer."""
_TIMED: Final = (
    "refresh.topics", "refresh.groups", "sync.topic.configs", "sync.topic.acls", "sync.group.offsets",
    "emit.checkpoints", "emit.heartbeats",
)  # fmt: skip
_LIVE: Final = (
    "topics", "topics.exclude", "groups", "groups.exclude", PAUSED, throttle.FLOW, throttle.TOPICS, throttle.SHARE,
    ASSIGNED, LOST, FOUND_LATER, "offset.lag.max", "replication.factor", "config.properties.exclude", "use.defaults.from",
    "sync.topic.deletions", config_policy.POLICY, "mirror.gap.policy", "mirror.topic.recreated",
    *(f"{what}.{key}" for what in _TIMED for key in ("enabled", "interval.seconds")),
)  # fmt: skip


def live(present: Sequence[Mapping[str, str]], shares: Shares) -> list[dict[str, str]]:
    """Returns what the next task configurations say of their settings. `present` are those of now."""
    layout = 0
    if present and (number := present[0].get(LAYOUT, "")).isdigit():
        layout = int(number)
    held = shares_of(present) or []
    if len(held) != len(shares) or moved(held, shares):
        layout, held = layout + 1, [[] for _ in shares]
    common = {LIVE_SETTINGS: ",".join(sorted(_LIVE)), LAYOUT: str(layout)}
    lost = ([f"{t}-{p}" for t, p in sorted({*had} - {*has})] for had, has in zip(held, shares, strict=True))
    return [{**common, LOST: ",".join(names)} for names in lost]


def shares_of(present: Sequence[Mapping[str, str]]) -> Shares | None:
    """Returns the partitions that each task has, or may not have given up, by their configurations; None where there is no task."""
    keys = ASSIGNED, LOST
    return [[p for key in keys for p in split_assigned(config.get(key, ""))] for config in present] or None


def moved(before: Shares, after: Shares) -> bool:
    """Returns whether a partition goes from one task to another."""
    held = {partition: index for index, share in enumerate(before) for partition in share}
    return any(held.get(p, index) != index for index, share in enumerate(after) for p in share)
