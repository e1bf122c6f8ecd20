"""Metrics of a driver task with many rows: one for each topic partition, group, table or file.

They go to the worker's `GET /metrics` alone, not to the task's status, which is small and for people.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from klamm_plugins.errors import ConnectError

Cell = str | int | float | None

TABLE_BYTES_MAX: Final = 4 << 20
"""The limit of JSON for all tables of one call: about 20,000 rows of twelve figures."""

_PREFIX: Final = re.compile(r"(klamm_|kafka_connect_mirror_)[a-z0-9_]{1,80}")
_COLUMN: Final = re.compile(r"[a-z0-9_]{1,60}")
_LABEL: Final = re.compile(r"(?!connector$|task$)[a-z_]{1,40}")


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricTable:
    """A table of figures. `prefix` and a column's name make a metric's name, such as `klamm_acme_` and `rows_total` (a
    counter, by its ending).

    `labels` are those of all rows; a row begins with the values of its own labels, in the order of `by`, and goes on
    with one figure per column. A figure that is None is left out. Prefixes begin with `klamm_`, or are those of
    Kafka's mirror.
    """

    prefix: str
    by: Sequence[str]
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    labels: Mapping[str, str] = field(default_factory=dict)
    about: Mapping[str, str] = field(default_factory=dict)
    """Help by column."""
    exported: bool = True
    """False: the table is for the worker's own pages, not for /metrics. Its figures may be texts."""

    def as_json(self) -> dict[str, Any]:
        return {
            "prefix": self.prefix, "by": list(self.by), "columns": list(self.columns), "rows": list(self.rows),
            "labels": dict(self.labels), "about": dict(self.about), "exported": self.exported,
        }  # fmt: skip


def tables_of(entries: Sequence[Mapping[str, Any]]) -> list[MetricTable]:
    """Reads the result of `as_json`. Raises ValueError, TypeError."""
    tables = [MetricTable(**entry) for entry in entries]
    try:
        check_tables(tables)
    except ConnectError as e:
        raise ValueError(str(e)) from None
    return tables


def check_tables(tables: Sequence[MetricTable]) -> None:
    """Raises ConnectError for tables that cannot be shown as metrics. Another place checks that cells are JSON."""
    for table in tables:
        for pattern, what, names in (
            (_PREFIX, "prefix", [table.prefix]),
            (_COLUMN, "column", table.columns),
            (_LABEL, "label", [*table.by, *table.labels]),
        ):
            for name in names:
                if not pattern.fullmatch(name):
                    raise ConnectError(f"A metric table's {what} {name!r} does not match {pattern.pattern}")
        width = len(table.by) + len(table.columns)
        for row in table.rows:
            if len(row) != width:
                raise ConnectError(
                    f"A row of the metric table {table.prefix} has {len(row)} cells; {width} are right: {row!r:.200}"
                )
