"""The state of a transactional producer: its epoch, the partitions of the open transaction, sequence numbers. Pure.

| state | to |
|---|---|
| NEW | READY: the coordinator gave producer id and epoch |
| READY | OPEN: a partition was added |
| OPEN | ENDING: the end was asked for |
| ENDING | READY: the coordinator has decided |
| any | FAILED: only `initialized` leads on, from what was committed before |
| any | FENCED: another producer has the id; nothing leads on |

Invariant: a batch is sent only to a partition of the open transaction, with the producer's present epoch. Once the end
is asked for, nothing is sent until the coordinator has decided. Nobody sends anything after a failure: the outcome of
the transaction is then unknown, and what was committed must be asked for.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from klamm_kafka.client.errors import ClientError, ProducerFenced, TransactionFailed
from klamm_kafka.client.outbox import SEQUENCES
from klamm_kafka.wire.errors import ErrorCode

Partition = tuple[str, int]

ENDED = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
    }
)
"""Answers that end a transaction without its commit. Whether another producer is the cause, `InitProducerId` tells."""


class State(Enum):
    """The states of the table above."""

    NEW = "new"
    READY = "ready"
    OPEN = "open"
    ENDING = "ending"
    FAILED = "failed"
    FENCED = "fenced"


class WrongState(AssertionError):
    """A call that the state does not permit: a mistake of the caller."""


@dataclass(slots=True)
class Transaction:
    """One producer's transactions. `producer` is producer id and epoch; (-1, -1): it never had one."""

    producer: tuple[int, int] = (-1, -1)
    state: State = State.NEW
    why: str = ""
    partitions: set[Partition] = field(default_factory=set)
    _sequences: dict[Partition, int] = field(default_factory=dict)

    def initialized(self, producer_id: int, epoch: int) -> None:
        """Begins with a new epoch: no transaction is open, and sequences begin at 0."""
        self._not_fenced()
        self.producer = producer_id, epoch
        self._sequences.clear()
        self._ready()

    def missing(self, partitions: Iterable[Partition]) -> list[Partition]:
        """Returns the partitions that must be added before batches go there."""
        self._alive()
        if self.state is State.ENDING:
            raise WrongState("a batch while the transaction ends")
        return sorted(set(partitions) - self.partitions)

    def added(self, partitions: Iterable[Partition]) -> None:
        """Notes that the coordinator knows of these partitions."""
        self._alive()
        self.partitions.update(partitions)
        self.state = State.OPEN

    def take_sequence(self, partition: Partition, count: int) -> int:
        """Returns the sequence number of a batch's first record. Not for partitions with an `Outbox`, which counts itself."""
        self._alive()
        if partition not in self.partitions:
            raise WrongState(f"{partition} is not in the transaction")
        first = self._sequences.get(partition, 0)
        self._sequences[partition] = (first + count) % SEQUENCES
        return first

    def ending(self) -> None:
        """Notes that the end is asked for. May be done again."""
        self._alive()
        if self.state not in {State.OPEN, State.ENDING}:
            raise WrongState(f"the end of a transaction that is {self.state.value}")
        self.state = State.ENDING

    def ended(self) -> None:
        """Notes that the coordinator has decided."""
        self._alive()
        if self.state is not State.ENDING:
            raise WrongState(f"the outcome of a transaction that is {self.state.value}")
        self._ready()

    def failed(self, why: str) -> TransactionFailed:
        """Ends the transaction without a commit. Returns the error to raise."""
        if self.state is not State.FENCED:
            self.state, self.why = State.FAILED, why
        return TransactionFailed(why)

    def fenced(self, why: str) -> ProducerFenced:
        """Ends everything. Returns the error to raise."""
        self.state, self.why = State.FENCED, why
        return ProducerFenced(why)

    def judge(self, code: int, error: ClientError) -> ClientError:
        """Returns the error to raise for an answer's code: the error itself, unless it ends the transaction."""
        return self.failed(str(error)) if code in ENDED else error

    def _ready(self) -> None:
        self.partitions.clear()
        self.state, self.why = State.READY, ""

    def _alive(self) -> None:
        self._not_fenced()
        if self.state is State.FAILED:
            raise TransactionFailed(self.why)
        if self.state is State.NEW:
            raise WrongState("a transaction before InitProducerId")

    def _not_fenced(self) -> None:
        if self.state is State.FENCED:
            raise ProducerFenced(self.why)
