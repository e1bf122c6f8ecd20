"""Translates a group's offset in a topic that flows copy both ways, into the topic that it came from.

At both clusters such a topic holds records of its own between copies of the other's. A group may go on at the target
only before the first record there that it has not read: a copy of a source's record behind the group's offset, or a
record of the target whose copy lies behind it, or was not made yet. So both flows' mappings decide.
"""

from __future__ import annotations

from collections.abc import Sequence

from klamm_mirror.offsets.mapping import OffsetMapping, Translated
from klamm_mirror.offsets.translation import Partition


def translate_shared(
    forward: OffsetMapping,
    back: OffsetMapping,
    topic: str,
    partition: int,
    offset: int,
    *,
    there: str | None = None,
    left_out: Sequence[tuple[int, int]] = (),
) -> Translated:
    """Returns the target's offset for a reader that is at `offset` of the source.

    `there` is the topic's name at the target, where it is another one. `left_out` are ranges of the target, the first first, whose
    records are not copied on purpose.
    """
    key, back_key = (topic, partition), (there or topic, partition)
    ours = forward.translate(*key, offset)
    begin = back.begin(*back_key)
    if begin is None:
        return ours  # no flow back
    theirs = back.translate(*back_key, offset)
    copies, records = ours.offset, theirs.offset
    if (end := forward.read_past(*key, offset)) is not None:
        copies = _first_without(back, back_key, end, left_out)
    if (end := back.read_past(*back_key, offset)) is not None:
        records = _first_without(forward, key, end, left_out)
    if copies is None and forward.begin(*key) is not None:
        return ours  # the mapping does not reach so far back
    found = [o for o in (copies, begin if records is None else records) if o is not None]
    return Translated(min(found), exact=ours.exact and theirs.exact)


def _first_without(
    mapping: OffsetMapping, key: Partition, offset: int, left_out: Sequence[tuple[int, int]]
) -> int:
    """Returns the first offset of the target from `offset` on, outside of what is left out, at which no known record lies."""
    found = mapping.first_without(*key, offset)
    for first, behind in left_out:
        if first <= found < behind:
            found = mapping.first_without(*key, behind)
    return found
