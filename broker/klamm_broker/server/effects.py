"""Carries out the effects that a coordinator asks for: answers, appends, and the effects that follow from them.

A `Reply` goes to its handler at once. An `Append` is written at once as one batch. Its `then` is called when the batch
is committed (`Storage.when_committed`): in the normal mode before `run` goes on to the next effect, otherwise any time
later. Outcomes of one partition are told in the order of its appends, failures included. Effects are done in order;
those that follow from an outcome come after those that wait already. All calls come from the loop's thread.

A handler calls `ask` and returns its result: the message, or the Future of a message that has to wait.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from klamm_broker.coordinator.effects import (
    Append,
    ChangeShareStates,
    Effect,
    Now,
    ShareKeyLike,
    Token,
    WriteMarker,
)
from klamm_broker.log.errors import LogError, StorageError
from klamm_kafka.wire.batch import Record, encode_batch
from klamm_kafka.wire.errors import ErrorCode

if TYPE_CHECKING:
    from klamm_broker.server.storage import Storage
    from klamm_broker.server.topics import Partition

log = logging.getLogger(__name__)

_Outcome = TypeVar("_Outcome")
Then = Callable[[ErrorCode, Now], list[Effect]]


class Marker(NamedTuple):
    """The end of a producer's transaction in a partition."""

    producer_id: int
    epoch: int
    coordinator_epoch: int
    committed: bool
    transaction_version: int


WriteOneMarker = Callable[[str, int, Marker, Callable[[ErrorCode], None]], None]
"""Write a marker into a partition of a topic, then tell the outcome."""
ChangeStates = Callable[
    [
        Mapping[ShareKeyLike, tuple[int, int] | None],
        Callable[[Mapping[ShareKeyLike, ErrorCode]], None],
    ],
    None,
]
"""Change states of share partitions, then tell the error of each."""


class Parked:
    """A token. It turns the coordinator's answer into a message, for a handler that still runs or for a Future."""

    __slots__ = ("_convert", "future", "message")

    def __init__(self, convert: Callable[[Any], Any]) -> None:
        self._convert = convert
        self.message: Any = None
        self.future: asyncio.Future[Any] | None = None

    def answer(self, response: object) -> None:
        if self.message is not None:
            return  # a request that failed by a defect was refused already, and an effect from before answers it again
        self.message = self._convert(response)
        # A Future that is done already was given up: its connection is gone.
        if self.future is not None and not self.future.done():
            self.future.set_result(self.message)


class EffectRunner:
    """Runs the effects of one coordinator. See the module's docstring.

    `partition` returns a partition of the coordinator's topic, and creates the topic if necessary. `recover` returns the
    effects that a failed call of the coordinator has left behind. `settled` is called after each run, to set timers.
    `write_marker` and `change_share_states` carry out these effects, for the coordinators that ask for them.
    """

    def __init__(
        self,
        storage: Storage,
        *,
        partition: Callable[[int], Partition | None],
        recover: Callable[[Now], list[Effect]],
        settled: Callable[[], None],
        write_marker: WriteOneMarker | None = None,
        change_share_states: ChangeStates | None = None,
    ) -> None:
        self._storage = storage
        self._loop = storage.loop
        self._partition = partition
        self._recover = recover
        self._settled = settled
        self._write_one_marker = write_marker
        self._change_share_states = change_share_states
        self._queue: deque[Effect] = deque()
        self._running = False
        self._failed: Exception | None = None

    def now(self) -> Now:
        return Now(int(self._loop.time() * 1000), int(time.time() * 1000))

    # Requests

    def ask(
        self, call: Callable[[Token, Now], list[Effect]], convert: Callable[[Any], Any]
    ) -> Any | asyncio.Future[Any]:
        """Make one call of the coordinator; the call may park its request.

        `call` gets a token and the time. `convert` turns the answer into a message, whenever the answer comes.
        """
        parked = Parked(convert)
        try:
            effects = call(parked, self.now())
        except Exception:
            # `Turn` has kept the effects that the call asked for before it failed.
            self.run(self._recover(self.now()))
            raise
        try:
            self.run(effects)
        except Exception:
            if parked.message is None:
                raise
            # The error was logged; this request has its answer all the same.
        if parked.message is not None:
            return parked.message
        parked.future = self._loop.create_future()
        return parked.future

    async def ask_all(self, calls: Iterable[Callable[[Token, Now], list[Effect]]]) -> list[Any]:
        """Make several calls. Returns their answers in the same order, once all are there."""
        answers = [self.ask(call, lambda answer: [answer]) for call in calls]
        return [(await a if isinstance(a, asyncio.Future) else a)[0] for a in answers]

    # Effects

    def run(self, effects: Iterable[Effect]) -> None:
        """Do these effects in order, and then those that follow from them."""
        self._queue.extend(effects)
        if self._running:
            return
        self._running = True
        try:
            while self._queue:
                self.do(self._queue.popleft())
        finally:
            self._running = False
        self._settled()
        failed, self._failed = self._failed, None
        if failed is not None:
            raise failed

    def do(self, effect: Effect) -> None:
        """Do one effect. Never raises."""
        match effect:
            case Append():
                self._append(effect)
            case WriteMarker():
                self._write_marker(effect)
            case ChangeShareStates():
                self._change_states(effect)
            case _:
                self._answer(effect.token, effect.response)

    def _answer(self, token: Token, response: object) -> None:
        assert isinstance(token, Parked)
        try:
            token.answer(response)
        except Exception as e:
            log.exception("an answer of a coordinator could not be made: %r", response)
            if token.future is not None and not token.future.done():
                token.future.set_exception(e)

    def _append(self, append: Append) -> None:
        partition = self._partition(append.partition)
        if partition is None:
            self._tell(append.then, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return
        now_ms = int(time.time() * 1000)
        producer_id, epoch = (-1, -1) if append.producer is None else append.producer

        def batch() -> bytearray:
            return encode_batch(
                [Record(timestamp=now_ms, key=key, value=value) for key, value in append.records],
                producer_id=producer_id,
                producer_epoch=epoch,
                is_transactional=append.producer is not None,
            )

        self.write(partition, batch, append.then, now_ms=now_ms, what=f"{len(append.records)} records")

    def _write_marker(self, marker: WriteMarker) -> None:
        def written(error: ErrorCode) -> None:
            self._tell(marker.then, error)

        producer_id, epoch = marker.producer
        assert self._write_one_marker is not None, "only the transaction coordinator asks for markers"
        self._write_one_marker(
            marker.topic,
            marker.partition,
            Marker(
                producer_id, epoch, marker.coordinator_epoch, marker.committed, marker.transaction_version
            ),
            written,
        )

    def _change_states(self, effect: ChangeShareStates) -> None:
        assert self._change_share_states is not None, "only the group coordinator asks for states"
        self._change_share_states(effect.changes, lambda errors: self._tell(effect.then, errors))

    def write(
        self, partition: Partition, make: Callable[[], bytearray], then: Then, *, now_ms: int, what: str
    ) -> None:
        """Append the batch that `make` returns. `then` gets the outcome once the batch is committed or has failed."""
        error = ErrorCode.NONE
        try:
            self._storage.append(partition, make(), now_ms=now_ms, origin="coordinator")
        except StorageError as e:
            partition.not_written(e, f"writing {what}")
            error = e.code
        except LogError as e:
            log.error("%s: %s could not be written: %s", partition, what, e)  # noqa: TRY400
            error = e.code
        except Exception:  # tell the coordinator, or the append stays pending for ever
            log.exception("%s: %s could not be written", partition, what)
            error = ErrorCode.UNKNOWN_SERVER_ERROR

        def committed(late: ErrorCode) -> None:
            self._tell(then, error if error is not ErrorCode.NONE else late)

        # A failure, too, waits for the appends before it: outcomes come in order.
        self._storage.when_committed(partition, partition.log.log_end_offset, committed)

    def _tell(self, then: Callable[[_Outcome, Now], list[Effect]], outcome: _Outcome) -> None:
        try:
            effects = then(outcome, self.now())
        except Exception as e:
            log.exception("what follows an append of a coordinator failed; the rest is done")
            if not self._running:
                self.run(self._recover(self.now()))
                return
            self._failed = e
            effects = self._recover(self.now())
        self.run(effects)
