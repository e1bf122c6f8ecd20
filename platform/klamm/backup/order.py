"""Finds the order in which a backup asks for the ends of topics: those that say "done" first, those that others refer to last.

Connect and MirrorMaker keep the offsets of sources in compacted topics, mostly with `offsets` in their names, and registries keep schemas in `_schemas`.
Where a name tells nothing, the key of a compacted topic's first record does.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from itertools import groupby
from typing import Final

from klamm.admin.client import Admin
from klamm.admin.model import TopicPartition
from klamm.admin.offsets import known_offsets
from klamm.backup.cluster_state import Configs
from klamm.backup.increment import is_compacted
from klamm.backup.reading import PartitionReader, Source, TopicGoneError
from klamm.backup.together import together
from klamm_kafka.wire.batch import decode_records
from klamm_kafka.wire.offset_specs import EARLIEST, LATEST

OFFSETS: Final = 0
USUAL: Final = 1
SCHEMAS: Final = 2
SCHEMAS_TOPIC: Final = "_schemas"
"""Both registries, ours and Confluent's, call it so unless told otherwise."""
KEY_TYPES: Final = frozenset({"SCHEMA", "CONFIG", "MODE", "NOOP", "DELETE_SUBJECT", "CLEAR_SUBJECT"})
AT_A_TIME: Final = 6
ANSWERS_MAX: Final = 20
"""Answers without a committed record, after which a topic counts as a usual one."""


async def ranks(
    admin: Admin, source: Source, places: Sequence[TopicPartition], configs: Mapping[str, Configs]
) -> dict[str, int]:
    """Return the rank of each topic. Raises AdminError, BackupError."""
    found = {name: by_name(name, own) for name, own in configs.items()}
    asked = [tp for tp in places if found[tp.topic] == USUAL and is_compacted(configs[tp.topic].effective)]
    starts = await known_offsets(admin, asked, EARLIEST)
    ends = await known_offsets(admin, asked, LATEST, committed=True)
    filled = sorted(tp for tp in asked if starts[tp] < ends[tp])
    waiting = iter([(name, list(row)) for name, row in groupby(filled, key=lambda tp: tp.topic)])

    async def work() -> None:
        for name, row in waiting:
            for tp in row:
                if (key := await _first_key(source, tp, starts[tp], ends[tp])) is not None:
                    found[name] = by_key(key)
                    break

    await together([work() for _ in range(AT_A_TIME)])
    return found


def by_name(topic: str, configs: Configs) -> int:
    """Return a topic's rank by its name."""
    if topic == SCHEMAS_TOPIC:
        return SCHEMAS
    return OFFSETS if "offsets" in topic and is_compacted(configs.effective) else USUAL


def by_key(key: bytes) -> int:
    """Return the rank of a compacted topic with this key: `["connector",{"of":"a source"}]`, or `{"keytype":"SCHEMA",…}`."""
    try:
        told = json.loads(key)
    except ValueError:
        return USUAL
    if isinstance(told, dict) and told.get("keytype") in KEY_TYPES:
        return SCHEMAS
    is_offset = (
        isinstance(told, list) and len(told) == 2 and isinstance(told[0], str) and isinstance(told[1], dict)
    )
    return OFFSETS if is_offset else USUAL


async def _first_key(source: Source, tp: TopicPartition, start: int, end: int) -> bytes | None:
    """Return the key of the first committed record. Asks for a batch at a time."""
    reader = PartitionReader(source, tp.topic, tp.partition, position=start, end=end, fetch_bytes=1)
    answers = 0
    try:
        async with aclosing(reader.read()) as reading:
            async for found in reading:
                if found.pieces:
                    return decode_records(found.pieces[0])[0].key
                answers += 1
                if answers == ANSWERS_MAX:
                    break
    except TopicGoneError:  # whoever asks next sees it
        return None
    return None
