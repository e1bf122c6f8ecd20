"""Tables of sensors that the mirror's tasks report to the worker, under the names that MirrorMaker's
dashboards use.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from klamm_plugins.metrics import Cell, MetricTable

PREFIX: Final = "klamm_mirror_"
ROWS_MAX: Final = 5000
"""Rows of one task; the host accepts 4 MiB. `klamm_mirror_metrics_left_out` counts the rest: use more tasks."""
EVERY_S: Final = 2.0
SHARE: Final = 0.02
"""The share of the time that reporting may take, however many rows there are."""


class Pace:
    """Decides when the next report is due, by a monotonic clock in seconds: every `every_s`, and later if reports take
    more than a `share` of the time.
    """

    def __init__(self, every_s: float = EVERY_S, share: float = SHARE) -> None:
        self._every_s = every_s
        self._share = share
        self._at = 0.0

    def due(self, now: float) -> bool:
        return now >= self._at

    def took(self, began: float, ended: float) -> None:
        """Notes a report."""
        self._at = ended + pause_s(ended - began, self._every_s, self._share)


def pause_s(took_s: float, every_s: float = EVERY_S, share: float = SHARE) -> float:
    """Returns the time until the next report: the longer one takes, the longer."""
    return max(every_s, took_s / share)


def tables(
    prefix: str,
    about: Mapping[str, str],
    *,
    flow: tuple[str, str],
    by: Sequence[str],
    rows: Sequence[Sequence[Cell]],
    left_out: int,
) -> list[MetricTable]:
    """Makes tables of a task's rows (labels, then a figure for each of `about`) and of the number that it leaves out."""
    source, target = flow
    labels = {"source": source, "target": target}
    return [
        MetricTable(prefix=prefix, labels=labels, by=by, columns=list(about), rows=rows, about=about),
        figures(
            flow,
            {
                "metrics_left_out": "Partitions of the task that have no figures here: it has more than it may report."
            },
            [left_out],
        ),
    ]


def figures(flow: tuple[str, str], about: Mapping[str, str], values: Sequence[Cell]) -> MetricTable:
    """Makes a table of one row: a task's own figures, with their help texts."""
    source, target = flow
    return MetricTable(
        prefix=PREFIX,
        labels={"source": source, "target": target},
        by=(),
        columns=list(about),
        rows=[values],
        about=about,
    )
