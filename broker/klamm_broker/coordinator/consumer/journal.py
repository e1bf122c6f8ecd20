"""Changes of groups one after the other: computed, written, and applied once they are durable.

Invariant: a group with a change under way is computed upon by nobody. What comes meanwhile waits here, in order, and
then finds the group as that change left it. Normally an append is durable at once and nothing ever waits.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from klamm_broker.coordinator.effects import KeyValue, Turn
from klamm_broker.wire.errors import ErrorCode

log = logging.getLogger(__name__)


class Journal:
    """See the module's docstring."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._waiting: dict[str, deque[Callable[[], None]]] = {}

    def is_busy(self, group_id: str) -> bool:
        return group_id in self._waiting

    def when_free(self, group_id: str, operation: Callable[[], None]) -> None:
        """Run `operation` now, or after the changes of this group that are under way or wait already."""
        waiting = self._waiting.get(group_id)
        if waiting is None:
            operation()
        else:
            waiting.append(operation)

    def write(
        self,
        group_id: str,
        partition: int,
        records: Sequence[KeyValue],
        done: Callable[[ErrorCode], None],
    ) -> None:
        """Append these records as one batch; `done` hears the outcome before anything else happens to the group."""
        if not records:
            done(ErrorCode.NONE)
            return
        assert group_id not in self._waiting
        self._waiting[group_id] = deque()

        def then(error: ErrorCode) -> None:
            waiting = self._waiting.pop(group_id)
            failed: Exception | None = None
            for operation in (lambda: done(error), *(partial(self.when_free, group_id, o) for o in waiting)):
                try:
                    operation()
                except Exception as e:
                    log.exception("group %s: what waited for a change failed; the rest is done", group_id)
                    failed = e
            if failed is not None:
                raise failed

        self._turn.append(partition, records, then)
