"""The tables of driver tasks (`klamm_plugins.metrics`) as Prometheus families: a family's samples come from all tasks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from klamm.connect.model import TaskId
from klamm_base.metrics_text import Family, Sample
from klamm_plugins.metrics import MetricTable

COUNTER: Final = "_total"
"""The end of a counter's name. Kafka's `record_count` is a gauge, as jmx_exporter has it."""


class _Column(NamedTuple):
    task: TaskId
    table: MetricTable
    at: int


def table_families(tables: Iterable[tuple[TaskId, MetricTable]]) -> Iterator[Family]:
    """Yields the families by name. Samples are made while they are read, so that many partitions are never in
    memory twice.
    """
    found: defaultdict[str, list[_Column]] = defaultdict(list)
    for task, table in ((task, table) for task, table in tables if table.exported):
        for i, column in enumerate(table.columns):
            found[table.prefix + column].append(_Column(task, table, len(table.by) + i))
    for name, columns in sorted(found.items()):
        first = columns[0]
        column = name.removeprefix(first.table.prefix)
        yield Family(
            name,
            "counter" if name.endswith(COUNTER) else "gauge",
            first.table.about.get(column, "A metric of the task's own; see the connector's page."),
            (sample for each in columns for sample in _samples(each)),
        )


def _samples(column: _Column) -> Iterator[Sample]:
    task, table, at = column
    always: dict[str, str | int] = {"connector": task.connector, "task": task.task, **table.labels}
    for row in table.rows:
        value = row[at]
        if isinstance(value, int | float):
            own: dict[str, str | int] = {
                k: v if isinstance(v, int) else str(v) for k, v in zip(table.by, row, strict=False)
            }
            yield Sample({**always, **own}, value)
