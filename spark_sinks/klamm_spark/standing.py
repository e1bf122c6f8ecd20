"""Reports during a long batch: what its writer waits for, and how far behind the query is.

Spark reports on a query only when a batch is done. Until then, a lag of 0 would be minutes old.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from klamm_base.errors import KlammError
from klamm_base.sparing import Sparing
from klamm_spark import figures, reset
from klamm_spark.beside import local_place
from klamm_spark.datasource.cluster import Cluster
from klamm_spark.datasource.offsets import Partition, Position, flat, lag
from klamm_spark.datasource.options import read_options
from klamm_spark.model import Job

log = logging.getLogger(__name__)

EVERY_S: Final = 10.0
"""The outputs are looked at this often. A batch that takes longer is a long one."""
WARN_EVERY_S: Final = 30.0

Ends = Callable[[list[Partition]], dict[Partition, int]]


class _Reports(Protocol):
    def send(self, event: dict[str, Any]) -> None: ...


class Standing:
    """Watches long batches. `took` gets every progress; `look` sends `waiting` and `lag` for outputs whose batch
    takes long.
    """

    def __init__(self, job: Job, reporter: _Reports, ends: Ends | None = None) -> None:
        self._job, self._reporter = job, reporter
        self._ends = _ends(job) if ends is None else ends
        self._next: dict[str, dict[Partition, int]] = {}
        self._at: dict[str, float] = dict.fromkeys((o.name for o in job.outputs), time.monotonic())
        self._said = Sparing(WARN_EVERY_S)

    def took(self, event: Mapping[str, Any]) -> None:
        name = event["query"]
        self._at[name] = time.monotonic()
        self._said.forget(name)
        if event["offsets"]:
            self._next[name] = dict(flat(event["offsets"]))

    def look(self, now: float) -> None:
        """Sends the lag of outputs that were silent for `EVERY_S`, and now and then a warning for those that wait."""
        late = [name for name, at in self._at.items() if now - at >= EVERY_S]
        for name in late:
            why = figures.waits(name)
            if why is not None and self._said.left_out(name, now) is not None:
                self._reporter.send({"event": "waiting", "for": f"the output {name}: {why}", "output": name})
        if late and self._ends is not None:
            self._tell_lags(late, self._ends)

    def _tell_lags(self, late: list[str], ends: Ends) -> None:
        places = {name: place for name in late if (place := self._place(name))}
        latest = ends(sorted({p for place in places.values() for p in place})) if places else {}
        for name, place in places.items():
            self._reporter.send({"event": "lag", "query": name, "lag": lag(Position(place), latest)})

    def _place(self, name: str) -> dict[Partition, int]:
        """Returns the position of the next read: by the last progress, else by the checkpoint."""
        if name not in self._next and local_place(self._job.checkpoint) is not None:
            found = reset.standings(reset.place(self._job))
            self._next |= {s.output: dict(s.next) for s in found if s.output not in self._next}
        return self._next.get(name, {})

    def run(self, over: threading.Event) -> None:
        """Looks periodically, in a thread, until `over`."""
        while not over.wait(EVERY_S):
            try:
                self.look(time.monotonic())
            except (KlammError, OSError) as e:
                log.warning("the lag of the queries cannot be read: %s", e)


def _ends(job: Job) -> Ends | None:
    """Returns a function for the ends of the topics; None for a source without topics."""
    if job.source.format is not None:
        return None
    cluster = Cluster(read_options(job.source.reader_options() | {"fetchOffset.numRetries": "0"}))
    return cluster.ends
