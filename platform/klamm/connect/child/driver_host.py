"""Hosts a driver task: its context, and the loop around its `run`.

The task moves its data itself; the runtime gives it orders (stop, pause), a place for its offsets, and a
status. The task shows that it lives by calling `progress`. The host does so for the task only where it
cannot: while it is paused, waits, commits, or has nothing left to do.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Literal

import orjson

from klamm.connect.child import clients
from klamm.connect.child.control import Control
from klamm.connect.child.driver_offsets import DriverOffsets, GroupOffsets, TopicOffsets
from klamm.connect.child.driver_records import open_pipeline
from klamm.connect.child.driver_transactions import transactions_of
from klamm.connect.model import Kind, TaskSpec
from klamm_plugins.connector import DriverTask, SourceOffset, SourcePartition, StopSignal
from klamm_plugins.discovery import PluginManager
from klamm_plugins.errors import ConnectError
from klamm_plugins.metrics import TABLE_BYTES_MAX, MetricTable, check_tables
from klamm_plugins.record_pipeline import RecordPipeline

_BEAT_S: Final = 1.0
# Details are reported twice a second and shown in every status: they are for figures, not for logs.
DETAILS_BYTES_MAX: Final = 16 << 10


class DriverContext:
    """The task's DriverTaskContext."""

    def __init__(
        self,
        control: Control,
        spec: TaskSpec,
        offsets: DriverOffsets,
        make_pipeline: Callable[[], RecordPipeline | None],
    ) -> None:
        self.configs: Mapping[str, str] = spec.task_config
        self.stopping: StopSignal = control.stopping
        self._control = control
        self._spec = spec
        self._offsets = offsets
        self.transactions = transactions_of(control, spec)
        self._topics: set[str] = set()
        self._make_pipeline = make_pipeline

    @property
    def paused(self) -> bool:
        return self._control.paused

    def stay_paused(self) -> None:
        control = self._control
        if not control.paused or control.stopping.is_set():
            return
        control.notify("state", state="PAUSED")
        while control.paused and not control.stopping.is_set():
            control.vitals.enter("paused")
            control.wait_for_order(_BEAT_S)
        control.vitals.enter("input" if self._spec.kind is Kind.SOURCE else "target")
        if not control.stopping.is_set():
            control.notify("state", state="RUNNING")

    def take_update(self) -> Mapping[str, str] | None:
        found, self._control.update = self._control.update, None
        self.configs = self.configs if found is None else found
        return found

    def wait(self, timeout_s: float) -> None:
        self._control.vitals.beat()
        if not self._control.stopping.is_set():
            self._control.wait_for_order(timeout_s)

    def progress(
        self,
        records: int,
        *,
        lag: int | None = None,
        waiting_for: str | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        shown = _figures(details) if details else {}
        behind = None if lag is None else int(lag)
        self._control.vitals.say(int(records), behind, waiting_for and str(waiting_for), shown)

    def metrics(self, tables: Sequence[MetricTable]) -> None:
        check_tables(tables)
        data = orjson.dumps([table.as_json() for table in tables])
        if len(data) > TABLE_BYTES_MAX:
            raise ConnectError(
                f"The metrics of a task are {len(data)} bytes of JSON, more than {TABLE_BYTES_MAX}: leave rows out"
            )
        self._control.vitals.tables = data

    def use_topics(self, topics: Collection[str]) -> None:
        if not self._topics.issuperset(topics):
            self._topics |= set(topics)
            self._control.notify("topics", topics=sorted(self._topics))

    def offset(self, partition: SourcePartition) -> dict[str, Any] | None:
        return self.offsets([partition])[0]

    def offsets(self, partitions: Collection[SourcePartition]) -> list[dict[str, Any] | None]:
        return self._offsets.read([dict(p) for p in partitions])

    def commit(self, offsets: Sequence[tuple[SourcePartition, SourceOffset | None]]) -> None:
        if offsets:
            self._offsets.commit([(dict(p), None if o is None else dict(o)) for p, o in offsets])

    def client_properties(self, kind: Literal["producer", "consumer", "admin"]) -> dict[str, str]:
        return clients.properties(self._spec, kind)

    def record_pipeline(self) -> RecordPipeline | None:
        return self._make_pipeline()


def prepare(
    control: Control, spec: TaskSpec, task: DriverTask, plugins: PluginManager, secrets: Iterable[str] = ()
) -> Callable[[], None]:
    """Initializes `task`. Returns the function that runs it, once it is started, until it must stop."""
    offsets = TopicOffsets(control, spec) if spec.kind is Kind.SOURCE else GroupOffsets(control, spec)
    context = DriverContext(control, spec, offsets, partial(open_pipeline, control, spec, plugins, secrets))
    task.initialize(context)

    def run() -> None:
        try:
            context.stay_paused()
            if not control.stopping.is_set():
                task.run()
            # A task that has nothing left to do stays alive until somebody stops it.
            while not control.stopping.is_set():
                context.stay_paused()
                control.vitals.enter("done")
                control.wait_for_order(_BEAT_S)
        finally:
            offsets.close()

    return run


def _figures(details: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the details as they will be shown. Raises ConnectError for values that the status cannot hold."""
    try:
        data = orjson.dumps(dict(details), option=orjson.OPT_NON_STR_KEYS)
    except TypeError as e:
        raise ConnectError(f"The details of a task's progress can hold only JSON values: {e}") from e
    if len(data) > DETAILS_BYTES_MAX:
        raise ConnectError(
            f"The details of a task's progress are {len(data)} bytes of JSON, more than {DETAILS_BYTES_MAX}"
        )
    shown: dict[str, Any] = orjson.loads(data)
    return shown
