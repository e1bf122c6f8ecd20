"""The transaction coordinator's answers, request by request: both versions of clients, epochs that run out, repeated
requests (KIP-360, KIP-890), time-outs, expiry, loading."""

from __future__ import annotations

import pytest
from support.txn_sim import WALL_MS, DataPartition, Sim

from klamm_broker.coordinator.effects import KeyValue
from klamm_broker.coordinator.model import TopicPartition
from klamm_broker.coordinator.transactions import records
from klamm_broker.coordinator.transactions.markers import RETRY_MS
from klamm_broker.coordinator.transactions.model import (
    AddRequest,
    EndRequest,
    InitRequest,
    ListFilter,
    ProducerRequest,
)
from klamm_broker.coordinator.transactions.state import FROM, TransactionState
from klamm_broker.coordinator.transactions.transaction import IllegalStep, Recorded, Transaction
from klamm_kafka.wire.errors import ErrorCode as E

S = TransactionState
AT = TopicPartition("t", 0)
OTHER = TopicPartition("t", 1)
DAY_MS = 24 * 3_600_000


@pytest.fixture
def sim():
    sim = Sim()
    sim.data = {AT: DataPartition(), OTHER: DataPartition()}
    return sim


def init(sim, name="x", *, expected=None, timeout_ms=60_000):
    request = InitRequest(transactional_id=name, timeout_ms=timeout_ms, expected=expected)
    result = sim.answer(lambda token, now: sim.coordinator.init(request, token, now))
    return result.error, result.producer_id, result.producer_epoch


def add(sim, producer, *partitions, name="x", version=2):
    request = AddRequest(
        transactional_id=name,
        producer_id=producer[0],
        producer_epoch=producer[1],
        partitions=frozenset(partitions or {AT}),
        client_version=version,
    )
    return sim.answer(lambda token, now: sim.coordinator.add_partitions(request, token, now))


def end(sim, producer, *, committed=True, name="x", version=2):
    request = EndRequest(
        transactional_id=name,
        producer_id=producer[0],
        producer_epoch=producer[1],
        committed=committed,
        client_version=version,
    )
    return sim.answer(lambda token, now: sim.coordinator.end(request, token, now))


def recorded(sim, name="x"):
    return sim.coordinator.transactions[name].recorded


def put(sim, name="x", *, epoch=0, producer_id=7, state=S.EMPTY, **rest):
    """Puts a transactional id as a record of the log has it."""
    rest.setdefault("updated_ms", WALL_MS)
    sim.ids.reserve(producer_id)
    value = Recorded(producer_id=producer_id, epoch=epoch, timeout_ms=60_000, state=state, **rest)
    partition = sim.coordinator.partition_for(name)
    sim.coordinator.start_loading(partition)
    sim.coordinator.replay(partition, [records.encode(name, value, transaction_version=2)])
    sim.run(sim.coordinator.finish_loading(partition, sim.now)[1])


# Producer ids and epochs


def test_each_producer_fences_the_one_before(sim):
    error, producer_id, epoch = init(sim)
    assert (error, epoch) == (E.NONE, 0)
    assert init(sim) == (E.NONE, producer_id, 1)
    assert init(sim, "y")[1:] == (producer_id + 1, 0)
    assert add(sim, (producer_id, 0)) is E.PRODUCER_FENCED
    assert end(sim, (producer_id, 0), version=0).error is E.PRODUCER_FENCED
    assert add(sim, (producer_id + 1, 1)) is E.INVALID_PRODUCER_ID_MAPPING
    assert add(sim, (producer_id, 1), name="nobody") is E.INVALID_PRODUCER_ID_MAPPING
    assert add(sim, (producer_id, 1), name="") is E.INVALID_REQUEST


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_a_timeout_beyond_the_brokers_is_refused(sim, timeout_ms):
    assert init(sim, timeout_ms=timeout_ms) == (E.INVALID_TRANSACTION_TIMEOUT, -1, -1)
    assert not sim.coordinator.transactions


def test_an_open_transaction_is_aborted_before_the_next_producer(sim):
    _, producer_id, epoch = init(sim)
    add(sim, (producer_id, epoch))
    write = sim.data[AT].write(producer_id, epoch, "first")
    assert init(sim)[0] is E.CONCURRENT_TRANSACTIONS
    assert (write.committed, recorded(sim).state) == (False, S.COMPLETE_ABORT)
    assert init(sim) == (E.NONE, producer_id, 2), "one epoch for the abort, one for the producer"


def test_a_producer_goes_on_under_its_own_id(sim):
    _, producer_id, _ = init(sim)
    assert init(sim, expected=(producer_id, 0)) == (E.NONE, producer_id, 1)
    assert init(sim, expected=(producer_id, 0)) == (E.NONE, producer_id, 1), (
        "the answer was lost, asked again"
    )
    assert init(sim, expected=(producer_id, 1)) == (E.NONE, producer_id, 2)
    assert init(sim, expected=(producer_id, 0))[0] is E.PRODUCER_FENCED
    assert init(sim, expected=(producer_id + 5, 2))[0] is E.PRODUCER_FENCED
    assert init(sim) == (E.NONE, producer_id, 3)
    assert init(sim, expected=(producer_id, 2))[0] is E.PRODUCER_FENCED, "somebody else has come meanwhile"
    assert init(sim, "new", expected=(99, 5))[0] is E.NONE, "an id that expired may come back"


def test_epochs_that_run_out_give_a_new_producer_id(sim):
    put(sim, epoch=32765)
    assert init(sim) == (E.NONE, 7, 32766)
    error, producer_id, epoch = init(sim, expected=(7, 32766))
    assert (error, producer_id > 7, epoch) == (E.NONE, True, 0)
    assert init(sim, expected=(7, 32766)) == (E.NONE, producer_id, 0), "asked again"
    assert recorded(sim).previous_producer_id in (7, producer_id)


def test_epochs_that_run_out_at_the_end_of_a_transaction(sim):
    put(sim, epoch=32766)
    assert add(sim, (7, 32766)) is E.NONE
    sim.data[AT].write(7, 32766, "last")
    done = end(sim, (7, 32766))
    assert (done.error, done.producer_id > 7, done.producer_epoch) == (E.NONE, True, 0)
    assert sim.data[AT].producers.entries[7].epoch == 32767, "the marker has the epoch that no client gets"
    assert end(sim, (7, 32766)) == done, "asked again"
    assert add(sim, (7, 32766)) is E.INVALID_PRODUCER_ID_MAPPING


def test_a_fenced_producer_whose_epochs_ran_out_is_replaced(sim):
    put(sim, epoch=32766, state=S.ONGOING, partitions=frozenset({AT}), start_ms=WALL_MS)
    assert init(sim)[0] is E.CONCURRENT_TRANSACTIONS
    error, producer_id, epoch = init(sim)
    assert (error, producer_id > 7, epoch) == (E.NONE, True, 1)


# The end, by version: the table of `ending.py`, and Kafka's for older clients


EMPTY, ABORTED, COMMITTED = "EMPTY", "COMPLETE_ABORT", "COMPLETE_COMMIT"


@pytest.mark.parametrize(
    ("state", "committed", "again", "error", "ends"),
    [
        (EMPTY, False, True, E.PRODUCER_FENCED, False),
        (EMPTY, False, False, E.NONE, True),
        (EMPTY, True, True, E.PRODUCER_FENCED, False),
        (EMPTY, True, False, E.INVALID_TXN_STATE, False),
        (ABORTED, False, True, E.NONE, False),
        (ABORTED, False, False, E.NONE, True),
        (ABORTED, True, True, E.INVALID_TXN_STATE, False),
        (ABORTED, True, False, E.INVALID_TXN_STATE, False),
        (COMMITTED, False, True, E.INVALID_TXN_STATE, False),
        (COMMITTED, False, False, E.NONE, True),
        (COMMITTED, True, True, E.NONE, False),
        (COMMITTED, True, False, E.INVALID_TXN_STATE, False),
    ],
)
def test_ends_that_have_nothing_to_end(sim, state, committed, again, error, ends):
    put(sim, epoch=5, state=S[state], start_ms=WALL_MS, client_version=2)
    done = end(sim, (7, 4 if again else 5), committed=committed)
    assert done.error is error
    assert recorded(sim).epoch == (6 if ends else 5)
    if error is E.NONE:
        assert (done.producer_id, done.producer_epoch) == (7, 6 if ends else 5)


@pytest.mark.parametrize(
    ("state", "committed", "error"),
    [
        (EMPTY, False, E.INVALID_TXN_STATE),
        (EMPTY, True, E.INVALID_TXN_STATE),
        (ABORTED, False, E.NONE),
        (ABORTED, True, E.INVALID_TXN_STATE),
        (COMMITTED, False, E.INVALID_TXN_STATE),
        (COMMITTED, True, E.NONE),
    ],
)
def test_ends_of_older_clients_that_have_nothing_to_end(sim, state, committed, error):
    put(sim, epoch=5, state=S[state], start_ms=WALL_MS)
    assert end(sim, (7, 5), committed=committed, version=0) == (error, -1, -1)
    assert end(sim, (7, 4), committed=committed, version=0).error is E.PRODUCER_FENCED


@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize("committed", [True, False])
def test_a_transaction_ends_in_all_its_partitions(sim, version, committed):
    _, producer_id, epoch = init(sim)
    assert add(sim, (producer_id, epoch), AT, version=version) is E.NONE
    assert add(sim, (producer_id, epoch), OTHER, version=version) is E.NONE
    writes = [sim.data[at].write(producer_id, epoch, "t") for at in (AT, OTHER)]
    done = end(sim, (producer_id, epoch), committed=committed, version=version)
    assert done == (E.NONE, producer_id, 1) if version == 2 else (E.NONE, -1, -1)
    assert [w.committed for w in writes] == [committed] * 2
    assert recorded(sim).state is (S.COMPLETE_COMMIT if committed else S.COMPLETE_ABORT)
    assert not recorded(sim).partitions


def test_nothing_begins_while_a_transaction_is_being_ended(sim):
    _, producer_id, epoch = init(sim)
    add(sim, (producer_id, epoch))
    sim.auto = False
    first = EndRequest(
        transactional_id="x", producer_id=producer_id, producer_epoch=epoch, committed=True, client_version=2
    )
    token = sim.ask(lambda token, now: sim.coordinator.end(first, token, now))
    assert token not in sim.replies, "not before the decision is in the log"
    sim.finish(recorded_log(sim))
    assert sim.replies[token].error is E.NONE
    assert AT in sim.in_flight, "the marker is under way"
    for version in (0, 2):
        error = end(sim, (producer_id, 1), version=version).error
        assert error is E.CONCURRENT_TRANSACTIONS
    assert add(sim, (producer_id, 1)) is E.CONCURRENT_TRANSACTIONS
    assert init(sim)[0] is E.CONCURRENT_TRANSACTIONS
    verify = ProducerRequest(transactional_id="x", producer_id=producer_id, producer_epoch=1)
    assert sim.coordinator.verify_partitions(verify, [AT]) == {AT: E.CONCURRENT_TRANSACTIONS}
    sim.finish_all()
    assert recorded(sim).state is S.COMPLETE_COMMIT


def recorded_log(sim):
    return sim.coordinator.partition_for("x")


def test_partitions_are_verified(sim):
    _, producer_id, epoch = init(sim)
    add(sim, (producer_id, epoch), AT, version=0)
    verify = sim.coordinator.verify_partitions
    mine = ProducerRequest(transactional_id="x", producer_id=producer_id, producer_epoch=epoch)
    assert verify(mine, [AT, OTHER]) == {AT: E.NONE, OTHER: E.TRANSACTION_ABORTABLE}
    fenced = ProducerRequest(transactional_id="x", producer_id=producer_id, producer_epoch=9)
    assert verify(fenced, [AT]) == {AT: E.PRODUCER_FENCED}
    wrong = ProducerRequest(transactional_id="x", producer_id=99, producer_epoch=epoch)
    assert verify(wrong, [AT]) == {AT: E.INVALID_PRODUCER_ID_MAPPING}


# Disks that fail


def test_a_decision_that_cannot_be_written_is_none(sim):
    _, producer_id, epoch = init(sim)
    add(sim, (producer_id, epoch))
    sim.auto = False
    request = EndRequest(
        transactional_id="x", producer_id=producer_id, producer_epoch=epoch, committed=True, client_version=2
    )
    token = sim.ask(lambda token, now: sim.coordinator.end(request, token, now))
    sim.finish(recorded_log(sim), E.KAFKA_STORAGE_ERROR)
    assert sim.replies[token].error is E.NOT_COORDINATOR
    assert (recorded(sim).state, recorded(sim).epoch) == (S.ONGOING, epoch)
    sim.auto = True
    assert end(sim, (producer_id, epoch)).error is E.NONE


def test_markers_and_completion_are_tried_until_they_are_written(sim):
    _, producer_id, epoch = init(sim)
    add(sim, (producer_id, epoch))
    sim.auto = False
    request = EndRequest(
        transactional_id="x", producer_id=producer_id, producer_epoch=epoch, committed=True, client_version=2
    )
    sim.ask(lambda token, now: sim.coordinator.end(request, token, now))
    sim.finish(recorded_log(sim))
    for _ in range(3):
        sim.finish(AT, E.KAFKA_STORAGE_ERROR)
        assert not sim.in_flight
        sim.advance(RETRY_MS)
    sim.finish(AT)
    sim.finish(recorded_log(sim), E.KAFKA_STORAGE_ERROR)
    assert recorded(sim).state is S.PREPARE_COMMIT
    sim.advance(RETRY_MS)
    sim.finish_all()
    assert recorded(sim).state is S.COMPLETE_COMMIT


def end_with_a_marker_that_fails(sim):
    """Ends a transaction of AT and OTHER, whose marker fails once. Both markers are written again then."""
    _, producer_id, epoch = init(sim)
    add(sim, (producer_id, epoch), AT, OTHER)
    sim.auto = False
    request = EndRequest(
        transactional_id="x", producer_id=producer_id, producer_epoch=epoch, committed=True, client_version=2
    )
    sim.ask(lambda token, now: sim.coordinator.end(request, token, now))
    sim.finish(recorded_log(sim))
    sim.finish(OTHER, E.KAFKA_STORAGE_ERROR)
    sim.advance(RETRY_MS)
    return producer_id, epoch


def test_a_repeated_marker_that_fails_late_does_no_harm(sim):
    """With durability=fsync a marker that waits is written once more beside one that has failed."""
    end_with_a_marker_that_fails(sim)
    assert len(sim.in_flight[AT]) == 2
    sim.finish(AT)
    sim.finish(OTHER)
    sim.finish(AT, E.KAFKA_STORAGE_ERROR)
    sim.advance(RETRY_MS)
    assert len(sim.in_flight.pop(recorded_log(sim))) == 1, "the completion is written once"


def test_a_completion_is_written_once_whatever_was_to_be_tried_again(sim):
    """The other attempt at a marker that has failed succeeds: at its time there is nothing left to try."""
    producer = end_with_a_marker_that_fails(sim)
    sim.finish(AT, E.KAFKA_STORAGE_ERROR)
    sim.finish(AT)
    sim.finish(OTHER)
    sim.advance(RETRY_MS)
    sim.finish_all()
    assert recorded(sim).state is S.COMPLETE_COMMIT
    assert end(sim, producer).error is E.NONE


def test_a_partition_that_is_deleted_needs_no_marker(sim):
    _, producer_id, epoch = init(sim)
    add(sim, (producer_id, epoch), AT, OTHER)
    del sim.data[AT]
    assert end(sim, (producer_id, epoch)).error is E.NONE
    assert recorded(sim).state is S.COMPLETE_COMMIT


# Time


def test_a_transaction_that_is_open_for_too_long_is_aborted(sim):
    _, producer_id, epoch = init(sim, timeout_ms=15_000)
    sim.advance(5_000)
    add(sim, (producer_id, epoch))
    write = sim.data[AT].write(producer_id, epoch, "slow")
    sim.advance(15_000)
    assert recorded(sim).state is S.ONGOING, "its time begins with its first partition"
    sim.advance(10_000)
    assert (recorded(sim).state, write.committed) == (S.COMPLETE_ABORT, False)
    assert end(sim, (producer_id, epoch)).error is E.INVALID_TXN_STATE
    assert add(sim, (producer_id, epoch)) is E.PRODUCER_FENCED


def test_without_epoch_bumps_the_timeout_fences_by_itself():
    sim = Sim(transaction_version=1)
    sim.data = {AT: DataPartition()}
    _, producer_id, epoch = init(sim, timeout_ms=15_000)
    add(sim, (producer_id, epoch), version=0)
    sim.auto = False
    sim.advance(30_000)
    sim.finish(recorded_log(sim), E.KAFKA_STORAGE_ERROR)
    sim.auto = True
    sim.advance(10_000)
    assert (recorded(sim).state, recorded(sim).epoch) == (S.COMPLETE_ABORT, 1), "raised once, not twice"
    assert end(sim, (producer_id, epoch), version=0).error is E.PRODUCER_FENCED


def test_ids_that_nobody_uses_are_forgotten():
    sim = Sim(id_expiration_ms=DAY_MS)
    sim.data = {AT: DataPartition()}
    for name in ("unused", "used", "open"):
        init(sim, name)
    _, producer_id, epoch = init(sim, "open")
    add(sim, (producer_id, epoch), name="open")
    sim.coordinator.transactions["open"].recorded = put_timeout(sim, "open")
    sim.advance(DAY_MS - 1)
    init(sim, "used")
    sim.advance(3_600_000)
    assert set(sim.coordinator.transactions) == {"used", "open"}
    assert set(sim.replayed()) == {"used", "open"}, "a tombstone each"


def put_timeout(sim, name):
    """Returns a transaction that somebody else coordinates, which has no time-out (two-phase commit)."""
    from dataclasses import replace

    return replace(sim.coordinator.transactions[name].recorded, timeout_ms=2**31 - 1)


def test_an_id_stays_when_its_tombstone_cannot_be_written():
    sim = Sim(id_expiration_ms=DAY_MS)
    init(sim)
    sim.auto = False
    sim.advance(DAY_MS + 1)
    assert sim.coordinator.describe("x").error is E.TRANSACTIONAL_ID_NOT_FOUND
    assert init(sim)[0] is E.CONCURRENT_TRANSACTIONS
    sim.finish(recorded_log(sim), E.KAFKA_STORAGE_ERROR)
    assert sim.coordinator.describe("x").error is E.NONE


# Loading


@pytest.mark.parametrize("state", [S.PREPARE_COMMIT, S.PREPARE_ABORT])
@pytest.mark.parametrize("version", [0, 2])
def test_what_was_decided_is_completed_after_a_restart(sim, state, version):
    sim.data[AT].write(7, 4 if version == 2 else 5, "t")
    partitions = frozenset({AT, OTHER})
    put(sim, epoch=5, state=state, partitions=partitions, start_ms=WALL_MS, client_version=version)
    assert sim.data[AT].writes[0].committed is (state is S.PREPARE_COMMIT)
    assert recorded(sim).state is (S.COMPLETE_COMMIT if state is S.PREPARE_COMMIT else S.COMPLETE_ABORT)


@pytest.mark.parametrize("version", [0, 2])
def test_a_fence_that_was_recorded_is_completed_after_a_restart(version):
    """No broker writes this state today; nobody could leave it if one had."""
    sim = Sim(transaction_version=version)
    sim.data = {AT: DataPartition()}
    sim.data[AT].write(7, 5, "t")
    put(sim, epoch=5, state=S.PREPARE_EPOCH_FENCE, partitions=frozenset({AT}), start_ms=WALL_MS)
    assert sim.data[AT].writes[0].committed is False
    assert (recorded(sim).state, recorded(sim).epoch) == (S.COMPLETE_ABORT, 6)
    assert init(sim) == (E.NONE, 7, 7)


def test_an_id_that_was_dying_is_gone_after_a_restart(sim):
    put(sim, state=S.DEAD)
    assert not sim.coordinator.transactions


def test_a_topic_that_is_deleted_while_it_is_loaded_leaves_nothing(sim):
    value = Recorded(producer_id=3, epoch=1, timeout_ms=1, updated_ms=0)
    batch = [records.encode("x", value, transaction_version=2)]
    sim.coordinator.start_loading(0)
    sim.coordinator.replay(0, batch)
    sim.coordinator.on_topic_deleted()
    sim.coordinator.replay(0, batch)
    assert sim.coordinator.finish_loading(0, sim.now) == (-1, [])
    assert not sim.coordinator.transactions


def test_ids_that_are_being_loaded_are_unavailable(sim):
    _, producer_id, epoch = init(sim)
    sim.coordinator.start_loading(recorded_log(sim))
    assert init(sim)[0] is E.COORDINATOR_LOAD_IN_PROGRESS
    assert add(sim, (producer_id, epoch)) is E.COORDINATOR_LOAD_IN_PROGRESS
    assert end(sim, (producer_id, epoch)).error is E.COORDINATOR_LOAD_IN_PROGRESS
    assert sim.coordinator.describe("x").error is E.COORDINATOR_LOAD_IN_PROGRESS
    assert sim.coordinator.list_transactions(ListFilter(), sim.now).error is E.COORDINATOR_LOAD_IN_PROGRESS
    elsewhere = next(n for n in "abcdefgh" if sim.coordinator.partition_for(n) != recorded_log(sim))
    assert init(sim, elsewhere)[0] is E.NONE


def test_records_that_cannot_be_read_harm_nobody_else(sim, caplog):
    good = records.encode(
        "x", Recorded(producer_id=3, epoch=1, timeout_ms=1, updated_ms=0), transaction_version=2
    )
    newer = KeyValue(b"\0\x09" + good.key[2:], good.value)
    sim.coordinator.start_loading(0)
    sim.coordinator.replay(0, [KeyValue(b"\0", b"x"), newer, good, KeyValue(good.key + b"?", b"\0\x01\0")])
    largest, _ = sim.coordinator.finish_loading(0, sim.now)
    assert (largest, list(sim.coordinator.transactions)) == (3, ["x"])
    assert "cannot be read" in caplog.text
    assert "1 records of an unknown version" in caplog.text


@pytest.mark.parametrize("version", [0, 1, 2])
def test_records_are_read_as_they_were_written(version):
    value = Recorded(
        producer_id=5, previous_producer_id=4 if version else -1, next_producer_id=6 if version else -1, epoch=3,
        timeout_ms=60_000, state=S.ONGOING, partitions=frozenset({AT, OTHER, TopicPartition("u", 9)}), start_ms=10,
        updated_ms=20, client_version=version or 0,
    )  # fmt: skip
    key, encoded = records.encode("x", value, transaction_version=version)
    assert encoded is not None
    assert encoded[:2] == (b"\0\1" if version else b"\0\0")
    assert records.decode(key, encoded) == ("x", value)


# Administration


def test_listing_filters(sim):
    init(sim, "empty-1")
    _, open_id, epoch = init(sim, "open-1")
    add(sim, (open_id, epoch), name="open-1")
    sim.advance(5_000)

    def names(**wanted):
        return [
            t.transactional_id
            for t in sim.coordinator.list_transactions(ListFilter(**wanted), sim.now).transactions
        ]

    assert names() == ["empty-1", "open-1"]
    assert names(states=["Ongoing"]) == ["open-1"]
    assert names(producer_ids=[open_id]) == ["open-1"]
    assert names(duration_ms=4_999) == ["empty-1", "open-1"], (
        "as in Kafka: one that has not begun is open for ever"
    )
    assert names(duration_ms=5_000) == ["empty-1"]
    assert names(pattern="open") == []
    assert names(pattern="o.*1") == ["open-1"]
    listed = sim.coordinator.list_transactions(ListFilter(states=["Ongoing", "Gone"]), sim.now)
    assert list(listed.unknown_states) == ["Gone"]
    assert (
        sim.coordinator.list_transactions(ListFilter(pattern="("), sim.now).error
        is E.INVALID_REGULAR_EXPRESSION
    )


def test_describing(sim):
    _, producer_id, epoch = init(sim)
    add(sim, (producer_id, epoch), AT, OTHER)
    found = sim.coordinator.describe("x")
    assert (found.state, found.producer_id, found.producer_epoch) == ("Ongoing", producer_id, epoch)
    assert (found.timeout_ms, found.start_ms, found.partitions) == (60_000, WALL_MS, [AT, OTHER])
    assert sim.coordinator.describe("").error is E.INVALID_REQUEST
    assert sim.coordinator.describe("nobody").error is E.TRANSACTIONAL_ID_NOT_FOUND


# The table


def test_every_state_can_be_entered_and_the_names_are_kafkas():
    assert set(FROM) == set(S)
    titles = "Empty Ongoing PrepareCommit PrepareAbort CompleteCommit CompleteAbort Dead PrepareEpochFence"
    assert [s.title for s in S] == titles.split()


def test_steps_that_the_table_does_not_have_are_defects():
    value = Recorded(producer_id=1, epoch=0, timeout_ms=1, updated_ms=0)
    transaction = Transaction("x", value, log_partition=0)
    with pytest.raises(IllegalStep):
        transaction.prepare(
            Recorded(producer_id=1, epoch=0, timeout_ms=1, updated_ms=0, state=S.COMPLETE_COMMIT)
        )
    transaction.prepare(value)
    with pytest.raises(IllegalStep):
        transaction.prepare(value)
    with pytest.raises(IllegalStep):
        transaction.complete(Recorded(producer_id=1, epoch=0, timeout_ms=1, updated_ms=0, state=S.ONGOING))
