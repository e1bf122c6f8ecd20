"""Remembers in the target cluster where a restore with `--append` began, so that it can go on after it was killed.

The log does not tell: the records before the first appended one are somebody else's. So the first offsets are committed as those of a group
without members, before the first record is sent, and the group is deleted at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from klamm.admin.client import Admin
from klamm.admin.groups import commit, committed, delete_group
from klamm.admin.model import TopicPartition
from klamm.backup.errors import BackupError
from klamm.backup.model import State
from klamm.backup.targets import TargetTopic


def group_of(state: State) -> str:
    """Return the group that remembers an append of this backup."""
    return f"klamm-restore-{state.cluster_id}-{state.taken_ms}"


async def resumed(admin: Admin, state: State, there: Sequence[TargetTopic]) -> list[TargetTopic]:
    """Return the topics as a killed append found them. Raises BackupError for a topic that none began with."""
    known = {tp: c.offset for tp, c in (await committed(admin, group_of(state))).items()}
    found = []
    for target in there:
        starts = {n: known.get(TopicPartition(target.name, n)) for n in target.ends}
        if None in starts.values():
            raise BackupError(
                f"no --append of this backup to topic {target.name} was killed: leave --resume away to begin with one"
            )
        found.append(replace(target, starts={n: start for n, start in starts.items() if start is not None}))
    return found


async def check_fresh(admin: Admin, state: State, there: Sequence[TargetTopic]) -> None:
    """Raise BackupError where an append of this backup was killed: its records would come twice."""
    known = {tp.topic for tp in await committed(admin, group_of(state))}
    if begun := sorted(known & {target.name for target in there}):
        raise BackupError(
            f"an --append of this backup to {', '.join(begun)} was killed: go on with it by --append --resume. What it wrote stays if you "
            f"begin anew, after `klamm group delete {group_of(state)}`"
        )


async def note(admin: Admin, state: State, there: Sequence[TargetTopic]) -> None:
    """Remember where the append begins."""
    starts = {TopicPartition(t.name, n): start for t in there for n, start in t.starts.items()}
    await commit(admin, group_of(state), starts)


async def forget(admin: Admin, state: State) -> None:
    """Forget an append that is done."""
    await delete_group(admin, group_of(state))
