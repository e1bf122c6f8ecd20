"""Asks a cluster for the moment of a backup: groups' offsets, then where all logs end.

Brokers answer one after another while applications go on, so the order of the questions decides what a restore may miss. Whatever says
"done up to here" is asked for before what was done: groups' offsets before all ends, topics of Connect's offsets before other topics. A restored
application may then do some work again, and skips none. Topics of schemas come last: no record refers to a schema that the backup lacks.

A transaction ends in one partition after another, so a group's offsets may be committed before what was written with them is. They belong to
transactions whose commit is decided and not yet everywhere: those are waited for between groups and ends.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final

from klamm.admin.client import Admin
from klamm.admin.model import TopicPartition
from klamm.admin.offsets import known_offsets
from klamm.admin.transactions import list_transactions
from klamm.backup import cluster_state
from klamm.backup.cluster_state import Configs
from klamm.backup.increment import Log, is_compacted
from klamm.backup.model import Group
from klamm_kafka.client import UnsupportedApi
from klamm_kafka.wire.offset_specs import EARLIEST, LATEST

DECIDED: Final = "PrepareCommit"
"""The state of a transaction whose commit is decided and not yet written to all its partitions."""
DECIDED_S: Final = 10.0
"""The time for which decided transactions are waited for: markers take some milliseconds where all leaders live."""
DECIDED_PAUSE_S: Final = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """The groups' offsets, none of which is behind an end, and the logs. `said`: what the user should know of them."""

    groups: tuple[Group, ...]
    logs: Mapping[TopicPartition, Log]
    said: tuple[str, ...] = ()


async def moment(
    admin: Admin, places: Sequence[TopicPartition], configs: Mapping[str, Configs], rank: Mapping[str, int],
    epochs: Mapping[TopicPartition, int],
) -> Moment:  # fmt: skip
    """Return the moment of these partitions. `rank`: the order of topics; `epochs`: leader epochs whose ends tell whether a log was cut.

    Raises AdminError.
    """
    groups = await cluster_state.groups(admin, set(places))
    said = await _decided(admin) if groups else []
    ends: dict[TopicPartition, int] = {}
    for _, row in groupby(sorted(places, key=lambda tp: rank[tp.topic]), key=lambda tp: rank[tp.topic]):
        ends |= await _ends(admin, list(row), said)
    starts = await known_offsets(admin, places, EARLIEST)
    epoch_ends = await cluster_state.epoch_ends(admin, epochs) if epochs else {}
    compacted = [tp for tp in places if is_compacted(configs[tp.topic].effective)]
    sizes = await cluster_state.sizes(admin, compacted) if compacted else {}
    logs = {
        tp: Log(
            start=starts[tp], end=max(ends[tp], starts[tp]), epoch_end=epoch_ends.get(tp), size=sizes.get(tp)
        )
        for tp in places
    }
    return Moment(groups=_up_to(groups, logs), logs=logs, said=tuple(said))


async def _decided(admin: Admin) -> list[str]:
    """Wait until the transactions that are decided now have ended everywhere. Returns what to say of those that do not."""
    until = time.monotonic() + DECIDED_S
    left: set[tuple[str, int]] | None = None
    while left is None or left:
        try:
            listed = await list_transactions(admin, states=[DECIDED])
        except UnsupportedApi:  # a broker from before Kafka 3.0 tells no transactions
            return []
        now = {(t.transactional_id, t.producer_id) for t in listed if t.state == DECIDED}
        left = now if left is None else left & now
        if left and time.monotonic() > until:
            names = ", ".join(sorted(name for name, _ in left)[:5])
            said = f"transactions of {names} are decided, and not written to all partitions after {DECIDED_S:g} s"
            return [f"{said}: groups' offsets may be ahead of what was written with them"]
        if left:
            await asyncio.sleep(DECIDED_PAUSE_S)
    return []


async def _ends(admin: Admin, places: Sequence[TopicPartition], said: list[str]) -> dict[TopicPartition, int]:
    """Return the last stable offsets, and add to `said` which of them are before the end of the log."""
    written = await known_offsets(admin, places, LATEST)
    ends = await known_offsets(admin, places, LATEST, committed=True)
    said += [
        f"{tp}: a transaction is open from offset {ends[tp]} on; {written[tp] - ends[tp]} offsets behind it are left to the next backup"
        for tp in places
        if ends[tp] < written[tp]
    ]
    return ends


def _up_to(groups: Iterable[Group], logs: Mapping[TopicPartition, Log]) -> tuple[Group, ...]:
    """Return groups without what is behind an end: a consumer may read what is not committed."""
    return tuple(
        replace(
            group,
            offsets=tuple(
                replace(o, offset=min(o.offset, logs[TopicPartition(o.topic, o.partition)].end))
                for o in group.offsets
            ),
        )
        for group in groups
    )
