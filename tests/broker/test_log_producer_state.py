"""Sequence numbers and epochs of producers: the cases of Kafka's ProducerAppendInfo."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm_broker.log.cleaner.filter import _without_records
from klamm_broker.log.errors import InvalidProducerEpoch, OutOfOrderSequence
from klamm_broker.log.producer_state import BATCHES_KEPT, BatchMetadata, ProducerState
from klamm_broker.log.replay import apply_batch
from klamm_kafka.wire.batch import encode_end_txn_marker, read_header

MAX = 2**31 - 1
PRODUCER = 42


def check(state: ProducerState, epoch: int, first: int, count: int = 1):
    return state.check(PRODUCER, epoch, first, (first + count - 1) % (MAX + 1), where="t-0")


def write(state: ProducerState, epoch: int, first: int, count: int = 1, *, offset: int = 0, **rest) -> None:
    last = (first + count - 1) % (MAX + 1)
    batch = BatchMetadata(last, offset + count - 1, count - 1, 5)
    state.update(PRODUCER, epoch, batch, transactional=rest.get("transactional", False), timestamp=5)


def known(epoch: int = 3, last: int = 9) -> ProducerState:
    state = ProducerState()
    write(state, epoch, last)
    return state


@pytest.mark.parametrize("first", [0, 1, 1000])
def test_an_unknown_producer_may_start_anywhere(first):
    assert check(ProducerState(), 0, first) is None


@pytest.mark.parametrize(
    ("epoch", "first", "error"),
    [
        (3, 10, None),
        (3, 11, OutOfOrderSequence),
        (3, 0, OutOfOrderSequence),
        (3, 8, OutOfOrderSequence),
        (4, 0, None),
        (4, 10, OutOfOrderSequence),
        (2, 10, InvalidProducerEpoch),
        (2, 0, InvalidProducerEpoch),
    ],
)
def test_sequence_after_9_in_epoch_3(epoch, first, error):
    state = known()
    if error is None:
        assert check(state, epoch, first) is None
    else:
        with pytest.raises(error):
            check(state, epoch, first)


def test_sequences_wrap():
    state = known(last=MAX)
    assert check(state, 3, 0) is None
    state = known(last=MAX - 1)
    assert check(state, 3, MAX, 3) is None
    write(state, 3, MAX, 3, offset=100)
    assert check(state, 3, 2) is None
    duplicate = check(state, 3, MAX, 3)
    assert (duplicate.first_offset, duplicate.last_offset) == (100, 102)


def test_only_whole_earlier_batches_are_duplicates():
    state = known(last=0)
    write(state, 3, 1, 4, offset=1)
    assert check(state, 3, 1, 4).first_offset == 1
    for first, count in [(1, 3), (2, 3), (1, 5), (2, 4)]:
        with pytest.raises(OutOfOrderSequence):
            check(state, 3, first, count)


def test_the_last_five_batches_are_remembered():
    state = ProducerState()
    for n in range(8):
        write(state, 0, n, offset=100 + n)
    for n in range(8):
        if n >= 8 - BATCHES_KEPT:
            assert check(state, 0, n).first_offset == 100 + n
        else:
            with pytest.raises(OutOfOrderSequence):
                check(state, 0, n)


def test_a_new_epoch_forgets_the_old_batches():
    state = known()
    write(state, 4, 0, offset=50)
    assert check(state, 4, 1) is None
    with pytest.raises(InvalidProducerEpoch):
        check(state, 3, 9)


def test_after_a_marker_of_a_new_epoch_sequences_start_at_zero():
    state = known()
    state.end_transaction(PRODUCER, 4, offset=10, aborted=True, coordinator_epoch=0, timestamp=5)
    assert check(state, 4, 0) is None
    with pytest.raises(OutOfOrderSequence):
        check(state, 4, 1)


def test_open_transactions():
    state = ProducerState()
    write(state, 0, 0, 3, offset=10, transactional=True)
    write(state, 0, 3, 3, offset=13, transactional=True)
    assert state.first_undecided_offset == 10
    done = state.end_transaction(PRODUCER, 0, offset=16, aborted=True, coordinator_epoch=1, timestamp=5)
    assert done == (PRODUCER, 10, 16, True)
    assert state.first_undecided_offset is None
    assert (
        state.end_transaction(PRODUCER, 0, offset=17, aborted=False, coordinator_epoch=1, timestamp=5) is None
    )


@given(st.integers(0, MAX), st.lists(st.integers(1, 50), min_size=1, max_size=12))
def test_a_producer_in_order_is_never_refused_and_repetitions_are_found(start, counts):
    state = ProducerState()
    sequence, offset, written = start, 0, []
    for count in counts:
        assert check(state, 0, sequence, count) is None
        write(state, 0, sequence, count, offset=offset)
        written.append((sequence, count, offset))
        sequence, offset = (sequence + count) % (MAX + 1), offset + count
    for first, count, at in written[-BATCHES_KEPT:]:
        assert check(state, 0, first, count).first_offset == at


@pytest.mark.parametrize("known_before", [False, True])
def test_an_emptied_marker_still_tells_of_its_producer(known_before):
    """The cleaner keeps it so that a producer whose transactions are all gone is not taken for an unknown one."""
    marker = encode_end_txn_marker(
        committed=False,
        producer_id=PRODUCER,
        producer_epoch=4,
        coordinator_epoch=0,
        timestamp=77,
        base_offset=9,
    )
    empty = bytearray(_without_records(read_header(marker)).data)
    state = known(epoch=3) if known_before else ProducerState()
    assert apply_batch(state, empty, 0, read_header(empty)) is None
    entry = state.entries[PRODUCER]
    assert (entry.epoch, entry.last_sequence, entry.current_txn_first_offset) == (4, -1, None)
    assert entry.last_timestamp == 77
    with pytest.raises(InvalidProducerEpoch):
        check(state, 3, 10)
