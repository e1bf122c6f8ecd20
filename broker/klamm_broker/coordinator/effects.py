"""The effects that a coordinator asks its shell to carry out, and the turn in which they are collected.

A coordinator does nothing by itself: each call returns a list of effects, in order. `Reply` answers a
request that was parked under a token. `Append` writes records to a partition of the coordinator's topic and
then calls `then` with the outcome. The shell must report the appends of one partition in their order; it may do so at
once or any time later. Only the transaction coordinator uses `WriteMarker`: it ends a transaction in a partition of any
topic. Only the group coordinator uses `ChangeShareStates`: it asks the share coordinator.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from klamm_kafka.wire.errors import ErrorCode

log = logging.getLogger(__name__)

_Outcome = TypeVar("_Outcome")

Token = Hashable
"""Names a request that waits for its answer. The coordinator only stores it and hands it back."""


class Now(NamedTuple):
    """The time, twice: deadlines must not jump when somebody sets the clock, timestamps must follow it."""

    mono_ms: int
    """A clock that never goes back and never jumps, for deadlines."""
    wall_ms: int
    """Milliseconds since the epoch, for record timestamps and offset retention."""


class KeyValue(NamedTuple):
    """A record of a coordinator's log: versioned key and value; no value is a tombstone."""

    key: bytes
    value: bytes | None


class Reply(NamedTuple):
    """Answer the request that waits under `token`."""

    token: Token
    response: object


class Append(NamedTuple):
    """Write `records` as one batch, then call `then(error, now)` and carry out the effects that it returns.

    With `producer` (id, epoch) the batch is part of that producer's transaction.
    """

    partition: int
    records: Sequence[KeyValue]
    then: Callable[[ErrorCode, Now], list[Effect]]
    producer: tuple[int, int] | None = None


class WriteMarker(NamedTuple):
    """End a producer's transaction in one partition of any topic, then call `then(error, now)`."""

    topic: str
    partition: int
    producer: tuple[int, int]
    """Producer id and epoch."""
    coordinator_epoch: int
    committed: bool
    transaction_version: int
    then: Callable[[ErrorCode, Now], list[Effect]]


ShareKeyLike = tuple[str, bytes, int]
"""Group, topic id and partition."""


class ChangeShareStates(NamedTuple):
    """Begin the state of share partitions anew (with a state epoch and a start offset), or delete it (None).

    Then call `then(errors, now)` with the error of each.
    """

    changes: Mapping[ShareKeyLike, tuple[int, int] | None]
    then: Callable[[Mapping[ShareKeyLike, ErrorCode], Now], list[Effect]]


Effect = Reply | Append | WriteMarker | ChangeShareStates


class Turn:
    """One call of a coordinator: the time of the call, and its effects so far.

    A call that raises leaves its effects behind; they go out first with the next call's, as the state has moved on to where
    they were asked for. Without them members would wait for answers, and offsets be pending, for ever.
    """

    __slots__ = ("_effects", "now")

    def __init__(self) -> None:
        self.now = Now(0, 0)
        self._effects: list[Effect] = []

    def begin(self, now: Now) -> None:
        if self._effects:
            log.error("a call of the coordinator failed: %d effects of it are done late", len(self._effects))
        self.now = now

    def end(self) -> list[Effect]:
        """Returns the effects of this call, in order; the turn is empty afterwards."""
        effects, self._effects = self._effects, []
        return effects

    def reply(self, token: Token, response: object) -> None:
        self._effects.append(Reply(token, response))

    def append(
        self,
        partition: int,
        records: Sequence[KeyValue],
        then: Callable[[ErrorCode], None],
        *,
        producer: tuple[int, int] | None = None,
        refuse: Callable[[], None] | None = None,
    ) -> None:
        """Ask for an append; `then` runs in a turn of its own once the outcome is known.

        If `then` fails by a defect, `refuse` tells whoever waits for it.
        """
        self._effects.append(Append(partition, records, self._resume(then, refuse), producer))

    def write_marker(
        self,
        topic: str,
        partition: int,
        *,
        producer: tuple[int, int],
        coordinator_epoch: int,
        committed: bool,
        transaction_version: int,
        then: Callable[[ErrorCode], None],
    ) -> None:
        """Ask for a transaction marker; `then` runs in a turn of its own once the outcome is known."""
        marker = WriteMarker(
            topic=topic,
            partition=partition,
            producer=producer,
            coordinator_epoch=coordinator_epoch,
            committed=committed,
            transaction_version=transaction_version,
            then=self._resume(then),
        )
        self._effects.append(marker)

    def change_share_states(
        self,
        changes: Mapping[ShareKeyLike, tuple[int, int] | None],
        then: Callable[[Mapping[ShareKeyLike, ErrorCode]], None],
    ) -> None:
        """Ask the share coordinator for changes; `then` runs in a turn of its own once the outcomes are known."""
        self._effects.append(ChangeShareStates(changes, self._resume(then)))

    def _resume(
        self, then: Callable[[_Outcome], None], refuse: Callable[[], None] | None = None
    ) -> Callable[[_Outcome, Now], list[Effect]]:
        def resume(outcome: _Outcome, now: Now) -> list[Effect]:
            self.begin(now)
            try:
                then(outcome)
            except Exception:
                if refuse is not None:
                    refuse()
                raise
            return self.end()

        return resume
