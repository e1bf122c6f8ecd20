"""Asks a cluster for the moment of a backup: groups' offsets and rules, then where all logs end.

Brokers answer one after another while applications go on, so the order of the questions decides what a restore may miss. Whatever says
"done up to here" is asked for before what was done: groups' offsets before all ends, topics of Connect's offsets before other topics. A restored
application may then do some work again, and skips none. `_schemas` comes last: no record refers to a schema that the backup lacks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final

from klamm.admin.client import Admin
from klamm.admin.model import TopicPartition
from klamm.admin.offsets import known_offsets
from klamm.backup import cluster_state
from klamm.backup.cluster_state import Configs, Rules
from klamm.backup.increment import Log, is_compacted
from klamm.backup.model import Group
from klamm_kafka.wire.offset_specs import EARLIEST, LATEST

SCHEMAS: Final = "_schemas"
"""Both registries, ours and Confluent's, call it so unless told otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """The groups' offsets, none of which is behind an end, the rules, and the logs."""

    groups: tuple[Group, ...]
    rules: Rules
    logs: Mapping[TopicPartition, Log]


async def moment(
    admin: Admin, places: Sequence[TopicPartition], configs: Mapping[str, Configs], epochs: Mapping[TopicPartition, int],
    say: Callable[[str], None],
) -> Moment:  # fmt: skip
    """Return the moment of these partitions. `epochs`: leader epochs whose ends tell whether a log was cut. Raises AdminError."""
    rules = await cluster_state.rules(admin, say)
    groups = await cluster_state.groups(admin, set(places))
    ends: dict[TopicPartition, int] = {}
    rank = {name: _rank(name, found) for name, found in configs.items()}
    for _, row in groupby(sorted(places, key=lambda tp: rank[tp.topic]), key=lambda tp: rank[tp.topic]):
        ends |= await _ends(admin, list(row), say)
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
    return Moment(groups=_up_to(groups, logs), rules=rules, logs=logs)


def _rank(topic: str, configs: Configs) -> int:
    """Return when a topic's ends are asked for. Connect's and MirrorMaker's offsets are known by their names alone."""
    if topic == SCHEMAS:
        return 2
    return 0 if "offsets" in topic and is_compacted(configs.effective) else 1


async def _ends(
    admin: Admin, places: Sequence[TopicPartition], say: Callable[[str], None]
) -> dict[TopicPartition, int]:
    """Return the last stable offsets, and say which of them are before the end of the log."""
    written = await known_offsets(admin, places, LATEST)
    ends = await known_offsets(admin, places, LATEST, committed=True)
    for tp in places:
        if ends[tp] < written[tp]:
            say(
                f"{tp}: a transaction is open from offset {ends[tp]} on; {written[tp] - ends[tp]} offsets behind it are "
                "left to the next backup"
            )
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
