"""A driver source's share in exactly once (KIP-618): what the runtime gives a task that has a producer of its own.

The order is Kafka's: fence the tasks of former configurations, take the transactional id, have the worker confirm that
the task is still wanted, read the offsets. The offsets go to the workers' topic, in the transaction of their records.
"""

from __future__ import annotations

from collections.abc import Sequence

from klamm.connect.child.control import Control
from klamm.connect.child.offset_writer import encode_key, encode_offset
from klamm.connect.model import STANDALONE, Kind, TaskSpec, transactional_id
from klamm_plugins.connector import SourceOffset, SourcePartition


class WorkerTransactions:
    """The task's DriverTransactions."""

    def __init__(self, control: Control, spec: TaskSpec) -> None:
        self.transactional_id = transactional_id(spec.worker["group.id"], spec.id)
        self.offsets_topic = spec.worker["offset.storage.topic"]
        self._control = control
        self._spec = spec

    def fence(self) -> None:
        self._control.call("fence_zombies", {"connector": self._spec.id.connector})

    def confirm(self) -> None:
        connector, number = self._spec.id
        wanted = {"connector": connector, "task": number, "generation": self._spec.generation}
        self._control.call("verify_task", wanted)

    def encode(self, offsets: Sequence[tuple[SourcePartition, SourceOffset]]) -> list[tuple[bytes, bytes]]:
        connector = self._spec.id.connector
        return [(encode_key(connector, dict(p)), encode_offset(dict(o))) for p, o in offsets]


def transactions_of(control: Control, spec: TaskSpec) -> WorkerTransactions | None:
    """Returns the transactions of a source where the workers have exactly once enabled; standalone ones never have."""
    enabled = spec.worker.get("exactly.once.source.support") == "enabled"
    if spec.kind is not Kind.SOURCE or not enabled or spec.worker.get(STANDALONE) == "true":
        return None
    return WorkerTransactions(control, spec)
