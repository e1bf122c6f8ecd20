"""Changes of groups one after the other: computed, written, and applied once they are durable.

Invariant: nobody computes upon a group with a change under way. Later requests wait here, in order, and then find the
group as that change left it. Normally an append is durable at once and nothing ever waits.

A waiting operation has no caller to raise to. When it fails by a defect its `refuse` is called, so that its request is
answered, and the operations after it go on.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from klamm_broker.coordinator.effects import KeyValue, Turn
from klamm_kafka.wire.errors import ErrorCode

log = logging.getLogger(__name__)


class _Waiting(NamedTuple):
    operation: Callable[[], None]
    refuse: Callable[[], None]


def _nobody_asked() -> None:
    """Do nothing: nobody waits for an answer."""


class Journal:
    """The queue of changes, per group. See the module's docstring."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._waiting: dict[str, deque[_Waiting]] = {}

    def is_busy(self, group_id: str) -> bool:
        return group_id in self._waiting

    def when_free(
        self, group_id: str, operation: Callable[[], None], refuse: Callable[[], None] = _nobody_asked
    ) -> None:
        """Run `operation` now, or after the changes of this group that are under way or wait already.

        If it runs now, its exception goes to the caller. If it had to wait and fails, `refuse` tells whoever asked for it.
        """
        waiting = self._waiting.get(group_id)
        if waiting is None:
            operation()
        else:
            waiting.append(_Waiting(operation, refuse))

    def write(
        self,
        group_id: str,
        partition: int,
        records: Sequence[KeyValue],
        done: Callable[[ErrorCode], None],
        *,
        refuse: Callable[[], None] = _nobody_asked,
        after: Callable[[], None] | None = None,
    ) -> None:
        """Append these records as one batch. `done` gets the outcome before anything else happens to the group.

        `refuse` is called when `done` fails. `after` comes next, before waiting operations.
        """
        if not records:
            done(ErrorCode.NONE)
            if after is not None:
                after()
            return
        assert group_id not in self._waiting
        self._waiting[group_id] = deque(() if after is None else (_Waiting(after, _nobody_asked),))

        def then(error: ErrorCode) -> None:
            waiting = self._waiting.pop(group_id)
            failed: Exception | None = None
            rest = (_Waiting(partial(self.when_free, group_id, *w), w.refuse) for w in waiting)
            for it in (_Waiting(partial(done, error), refuse), *rest):
                try:
                    it.operation()
                except Exception as e:
                    log.exception(
                        "group %s: an operation that waited for a change failed; the others go on", group_id
                    )
                    it.refuse()
                    failed = e
            if failed is not None:
                raise failed

        self._turn.append(partition, records, then)
