"""The state of a transactional producer against a model of the coordinator: what is said to be committed, is."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from klamm_kafka.client import ClientError, ProducerFenced, TransactionFailed, broker_error
from klamm_kafka.client.transaction import State, Transaction, WrongState
from klamm_kafka.wire.errors import ErrorCode

PARTITIONS = st.sampled_from([("a", 0), ("a", 1), ("b", 0)])


class Coordinator:
    """Epochs and the open transaction of one transactional id, and what its partitions hold."""

    def __init__(self) -> None:
        self.epoch = -1
        self.timed_out_epoch = -2
        self.partitions: set[tuple[str, int]] = set()
        self.pending: list[int] = []
        self.committed: list[int] = []
        self.expected: dict[tuple[str, int], int] = {}

    def init(self, epoch: int) -> int:
        """Returns the new epoch, or -1: fenced. An epoch that only the timeout has bumped is still the owner's."""
        if epoch not in {-1, self.epoch, self.timed_out_epoch}:
            return -1
        self.abort()
        self.epoch += 1
        self.timed_out_epoch = -2
        return self.epoch

    def time_out(self) -> None:
        self.abort()
        self.timed_out_epoch = self.epoch
        self.epoch += 1

    def abort(self) -> None:
        self.partitions, self.pending, self.expected = set(), [], {}

    def write(self, epoch: int, partition: tuple[str, int], sequence: int, number: int) -> int:
        if epoch != self.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        assert partition in self.partitions, "a batch for a partition that is not in the transaction"
        assert sequence == self.expected.get(partition, 0), "sequences without gaps"
        self.expected[partition] = sequence + 1
        self.pending.append(number)
        return ErrorCode.NONE

    def end(self, epoch: int) -> int:
        if epoch != self.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        self.committed += self.pending
        self.partitions, self.pending = set(), []
        return ErrorCode.NONE


class Producing(RuleBasedStateMachine):
    """One producer that numbers its records, beside a coordinator whose answers are lost now and then."""

    def __init__(self) -> None:
        super().__init__()
        self.coordinator = Coordinator()
        self.transaction = Transaction()
        self.next = 0
        self.sent: list[int] = []
        self.told: list[int] = []
        self.other_came = False

    def usable(self) -> bool:
        return self.transaction.state in {State.READY, State.OPEN}

    @rule()
    def init(self) -> None:
        if self.transaction.state is State.FENCED:
            with pytest.raises(ProducerFenced):
                self.transaction.initialized(1, 1)
            return
        epoch = self.coordinator.init(self.transaction.producer[1])
        if epoch < 0:
            assert self.other_came
            self.transaction.fenced("another producer")
            return
        self.transaction.initialized(1, epoch)
        self.told, self.sent = list(self.coordinator.committed), []  # as the committed offsets tell

    @precondition(usable)
    @rule(partition=PARTITIONS)
    def send(self, partition: tuple[str, int]) -> None:
        missing = self.transaction.missing([partition])
        if missing:
            if self.transaction.producer[1] != self.coordinator.epoch:
                self.fail(ErrorCode.PRODUCER_FENCED)
                return
            self.coordinator.partitions.update(missing)
            self.transaction.added(missing)
        sequence = self.transaction.take_sequence(partition, 1)
        number, self.next = self.next, self.next + 1
        code = self.coordinator.write(self.transaction.producer[1], partition, sequence, number)
        if code:
            self.fail(code)
        else:
            self.sent.append(number)

    @precondition(lambda self: self.transaction.state in {State.OPEN, State.ENDING})
    @rule(lost=st.booleans())
    def commit(self, lost: bool) -> None:
        self.transaction.ending()
        code = self.coordinator.end(self.transaction.producer[1])
        if lost:
            with pytest.raises(WrongState):
                self.transaction.missing([("a", 0)])
            return
        if code:
            self.fail(code)
            return
        self.transaction.ended()
        self.told += self.sent
        self.sent = []

    @rule()
    def time_out(self) -> None:
        if self.coordinator.epoch >= 0 and self.coordinator.partitions:
            self.coordinator.time_out()

    @rule()
    def another_producer(self) -> None:
        self.coordinator.init(-1)
        self.other_came = True

    def fail(self, code: int) -> None:
        error = self.transaction.judge(code, broker_error(code, "asking"))
        assert isinstance(error, TransactionFailed)
        for call in (lambda: self.transaction.missing([("a", 0)]), self.transaction.ending):
            with pytest.raises(TransactionFailed):
                call()

    @invariant()
    def what_is_told_is_committed(self) -> None:
        assert self.told == self.coordinator.committed[: len(self.told)]
        assert len(set(self.coordinator.committed)) == len(self.coordinator.committed)
        if self.transaction.state is State.READY:
            assert self.told == self.coordinator.committed


TestProducing = Producing.TestCase
TestProducing.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def test_other_errors_leave_the_transaction_as_it_is():
    transaction = Transaction()
    transaction.initialized(7, 0)
    error = broker_error(ErrorCode.NOT_COORDINATOR, "asking")
    assert transaction.judge(error.code, error) is error
    assert transaction.state is State.READY


def test_calls_out_of_order_are_mistakes():
    transaction = Transaction()
    for call in (lambda: transaction.missing([("a", 0)]), transaction.ending, transaction.ended):
        with pytest.raises(WrongState):
            call()
    transaction.initialized(7, 0)
    with pytest.raises(WrongState):
        transaction.ending()
    with pytest.raises(WrongState):
        transaction.take_sequence(("a", 0), 1)
    assert issubclass(ProducerFenced, ClientError)
