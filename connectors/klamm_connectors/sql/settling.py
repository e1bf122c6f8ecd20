"""Deletes and writes of one table in few statements. Pure: no I/O.

Rows of different keys do not touch each other. So all deletes of a batch may go before its writes, if each write is left
out that came before a delete of its key. The table is then as if each row had been written in its place.

Keys are equal here if Python says so. A database may take more keys for equal, by a collation or by conversion. So after
the writes, deletes that were the last word on their keys run again: if one finds a row, the order mattered.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

from klamm_connectors.sql.rows import Rows

Parts = list[Rows]


class Entangled(Exception):
    """The deletes and writes may not change places."""


def settled(parts: Sequence[Rows], *, apart: bool) -> tuple[Parts, Parts]:
    """Returns the rows in the order in which they are written, and the deletes that find no row afterwards.

    Raises Entangled, also for a table whose rows are not `apart`: a delete changes other rows of it.
    """
    deletes = [rows for rows in parts if rows.layout.deletes]
    writes = [rows for rows in parts if not rows.layout.deletes]
    if not deletes or not writes:
        return list(parts), []
    if not apart or len({tuple(sorted(rows.layout.key)) for rows in parts}) > 1:
        raise Entangled
    last: dict[Any, int] = {}
    for rows in deletes:
        last.update(zip(rows.keys(), rows.numbers, strict=True))
    writes = _those(writes, lambda key, number: last.get(key, -1) < number)
    written = set(chain.from_iterable(map(Rows.keys, writes)))
    if len(writes) > 1 and not written.isdisjoint(last):
        raise Entangled  # equal keys for the database alone could leave fields of a row that was deleted
    deletes = _those(deletes, lambda key, number: last[key] == number)
    return deletes + writes, _those(deletes, lambda key, _: key not in written)


def _those(parts: Parts, wanted: Callable[[Any, int], bool]) -> Parts:
    """Returns the rows whose key and number are `wanted`."""
    found = []
    for rows in parts:
        pairs = enumerate(zip(rows.keys(), rows.numbers, strict=True))
        if places := [i for i, (key, number) in pairs if wanted(key, number)]:
            found.append(rows.select(places))
    return found
