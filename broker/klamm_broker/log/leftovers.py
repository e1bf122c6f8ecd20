"""Handles files that an interrupted deletion or cleaning left in a partition directory, as Kafka does.

`.deleted` and `.cleaned` are removed. `.swap` files are the result of a finished cleaning that was being put in
place: they replace the segments that they cover, unless a `.cleaned` file shows that they were not complete
yet. Indexes without a log, and snapshots of segments that are gone, are removed.
"""

from __future__ import annotations

import logging
from pathlib import Path

from klamm_broker.log import files
from klamm_broker.log.segment import Segment

log = logging.getLogger(__name__)

_LEFT = (files.DELETED, files.CLEANED, files.SWAP, ".tmp")
_INDEXES = (files.OFFSET_INDEX, files.TIME_INDEX, files.TXN_INDEX)


def remove_leftovers(directory: Path, sizes: dict[str, int]) -> dict[str, int]:
    """Put the directory in order. Returns the sizes of the remaining files by name."""
    if not any(name.endswith(_LEFT) for name in sizes):
        _remove_orphans(directory, sizes)
        return sizes
    cleaned_from: int | None = None
    swaps = []
    for name in sorted(sizes):
        if name.endswith((files.DELETED, files.CLEANED, ".tmp")):
            if name.endswith(files.CLEANED) and (parsed := files.parse_offset_name(_stem(name))):
                cleaned_from = parsed[0] if cleaned_from is None else min(cleaned_from, parsed[0])
            _remove(directory, name, sizes)
        elif name.endswith(files.SWAP):
            swaps.append(name)
    for name in swaps:
        parsed = files.parse_offset_name(_stem(name))
        if parsed is None or (cleaned_from is not None and parsed[0] >= cleaned_from):
            _remove(directory, name, sizes)
    valid = [name for name in swaps if name in sizes]
    for name in valid:
        _drop_replaced(directory, name, sizes)
    for name in valid:
        (directory / name).replace(directory / _stem(name))
        sizes[_stem(name)] = sizes.pop(name)
        log.info("%s: an interrupted cleaning is completed", directory / _stem(name))
    _remove_orphans(directory, sizes)
    return sizes


def _stem(name: str) -> str:
    return name.rpartition(".")[0]


def _remove(directory: Path, name: str, sizes: dict[str, int]) -> None:
    (directory / name).unlink(missing_ok=True)
    sizes.pop(name, None)
    log.info("%s: leftover removed", directory / name)


def _drop_replaced(directory: Path, swap: str, sizes: dict[str, int]) -> None:
    """Remove the segments whose offsets the swapped-in segment covers."""
    parsed = files.parse_offset_name(_stem(swap))
    if parsed is None or parsed[1] != files.LOG:
        return
    base, size = parsed[0], sizes[swap]
    segment = Segment.at(directory / swap, base, size)
    end = base + 1
    for _, _, _, last, _ in segment.heads(0):
        end = last + 1
    for name in list(sizes):
        covered = files.parse_offset_name(name)
        if covered is not None and covered[1] in files.SEGMENT_SUFFIXES and base <= covered[0] < end:
            _remove(directory, name, sizes)


def _remove_orphans(directory: Path, sizes: dict[str, int]) -> None:
    stems = {name[:20] for name in sizes if name.endswith(files.LOG)}
    if all(name[:20] in stems for name in sizes if name[0].isdigit()):
        return
    parsed = {name: p for name in sizes if (p := files.parse_offset_name(name)) is not None}
    bases = {offset for offset, suffix in parsed.values() if suffix == files.LOG}
    for name, (offset, suffix) in parsed.items():
        if suffix in _INDEXES and offset not in bases:
            log.warning("%s: an index without a log", directory / name)
            _remove(directory, name, sizes)
    last_base = max(bases, default=-1)
    strays = sorted(o for o, suffix in parsed.values() if suffix == files.SNAPSHOT and o not in bases)
    for offset in strays:  # the last one may be that of the log end offset
        if offset != strays[-1] or offset < last_base:
            _remove(directory, files.offset_name(offset, files.SNAPSHOT), sizes)
