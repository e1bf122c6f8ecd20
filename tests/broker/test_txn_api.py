"""The transaction APIs over the wire: errors by version, administration, settings. Answers are compared with Kafka's in
tests/conformance/test_conformance_answers_transactions.py; here is what must hold without it."""

from __future__ import annotations

from typing import Any

import pytest
from support.broker import new_name, new_topic, wait_until
from support.raw import RawClient, batch, fetch_request, produce_request

from klamm.testing import EmbeddedBroker
from klamm_kafka.wire.errors import ErrorCode as E
from klamm_kafka.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from klamm_kafka.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from klamm_kafka.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from klamm_kafka.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from klamm_kafka.wire.messages.describe_transactions import DescribeTransactionsRequest
from klamm_kafka.wire.messages.end_txn import EndTxnRequest
from klamm_kafka.wire.messages.find_coordinator import FindCoordinatorRequest
from klamm_kafka.wire.messages.init_producer_id import InitProducerIdRequest
from klamm_kafka.wire.messages.list_transactions import ListTransactionsRequest
from klamm_kafka.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from klamm_kafka.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from klamm_kafka.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)


@pytest.fixture
def raw(broker):
    with RawClient(broker.port) as client:
        yield client


@pytest.fixture
def topic(broker):
    return new_topic(broker, 2)


class Txn:
    """A transactional id with the producer id and epoch that it was given."""

    def __init__(self, raw: RawClient, name: str | None = None) -> None:
        self.raw, self.name = raw, name or new_name("txn")
        given = raw.request(
            InitProducerIdRequest(transactional_id=self.name, transaction_timeout_ms=60_000), 4
        )
        assert given.error_code == E.NONE
        self.producer_id, self.epoch = given.producer_id, given.producer_epoch

    @property
    def who(self) -> dict[str, Any]:
        return {"transactional_id": self.name, "producer_id": self.producer_id, "producer_epoch": self.epoch}

    def add(self, topic: str, *partitions: int, version: int = 3) -> list[int]:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=list(partitions))],
        )
        (answer,) = self.raw.request(request, version).results_by_topic_v3_and_below
        return [r.partition_error_code for r in answer.results_by_partition]

    def produce(
        self, topic: str, sequence: int = 0, *, version: int = 9, partition: int = 0, named: bool = True, transactional: bool = True
    ) -> int:  # fmt: skip
        records = batch(
            b"x", producer_id=self.producer_id, producer_epoch=self.epoch, base_sequence=sequence, is_transactional=transactional
        )  # fmt: skip
        name = self.name if named else None
        request = produce_request(topic, records, partition=partition, acks=-1, transactional_id=name)
        return self.raw.request(request, version).responses[0].partition_responses[0].error_code

    def end(self, *, committed: bool = True, version: int = 3) -> int:
        return self.raw.request(EndTxnRequest(**self.who, committed=committed), version).error_code

    def commit_offset(self, group: str, topic: str, offset: int, *, version: int, partition: int = 0) -> int:
        part = TxnOffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)
        topics = [TxnOffsetCommitRequestTopic(name=topic, partitions=[part])]
        request = TxnOffsetCommitRequest(**self.who, group_id=group, topics=topics)
        return self.raw.request(request, version).topics[0].partitions[0].error_code

    def mark(self, topic: str, *partitions: int, coordinator_epoch: int = 50) -> list[int]:
        marker = WritableTxnMarker(
            producer_id=self.producer_id, producer_epoch=self.epoch, transaction_result=False,
            topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=list(partitions))], coordinator_epoch=coordinator_epoch,
        )  # fmt: skip
        (answer,) = self.raw.request(WriteTxnMarkersRequest(markers=[marker]), 1).markers
        return [p.error_code for t in answer.topics for p in t.partitions]


@pytest.mark.parametrize("version", range(4))
def test_partitions_must_be_added_before_they_are_written_to(raw, topic, version):
    txn = Txn(raw)
    assert txn.produce(topic) == E.INVALID_TXN_STATE
    assert txn.produce(topic, version=11) == E.TRANSACTION_ABORTABLE
    assert txn.add(topic, 0, version=version) == [E.NONE]
    assert txn.produce(topic) == E.NONE
    assert txn.produce(topic, partition=1) == E.INVALID_TXN_STATE
    assert txn.add(topic, 1, 9, version=version) == [E.OPERATION_NOT_ATTEMPTED, E.UNKNOWN_TOPIC_OR_PARTITION]
    assert txn.end() == E.NONE
    assert txn.produce(topic, 1) == E.INVALID_TXN_STATE, "the transaction is over"


def test_what_does_not_belong_to_a_transaction_is_refused(raw, topic):
    txn = Txn(raw)
    assert txn.produce(topic, named=False) == E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert txn.add(topic, 0) == [E.NONE]
    assert txn.produce(topic) == E.NONE
    assert txn.produce(topic, 1, transactional=False) == E.INVALID_TXN_STATE
    other = Txn(raw)
    two = [
        batch(b"x", producer_id=t.producer_id, producer_epoch=0, base_sequence=0, is_transactional=True)
        for t in (txn, other)
    ]
    request = produce_request(topic, b"".join(two), acks=-1, transactional_id=txn.name)
    answer = raw.request(request, 9).responses[0].partition_responses[0]
    assert answer.error_code == E.INVALID_PRODUCER_ID_MAPPING


@pytest.mark.parametrize(
    ("version", "error"),
    [(0, E.INVALID_PRODUCER_EPOCH), (1, E.INVALID_PRODUCER_EPOCH), (2, E.PRODUCER_FENCED)],
)
def test_older_clients_do_not_know_that_they_are_fenced(raw, topic, version, error):
    txn = Txn(raw)
    Txn(raw, txn.name)
    assert txn.add(topic, 0, version=version) == [error]
    assert txn.end(version=version) == error
    added = raw.request(AddOffsetsToTxnRequest(**txn.who, group_id="g"), version)
    assert added.error_code == error
    assert txn.produce(topic) == E.INVALID_PRODUCER_EPOCH


def test_a_batch_of_transactions_is_added_or_verified(raw, topic):
    one, two = Txn(raw), Txn(raw)
    assert one.add(topic, 0) == [E.NONE]

    def ask(*asked: tuple[Txn, int, bool]) -> list[int]:
        transactions = [
            AddPartitionsToTxnTransaction(
                **txn.who,
                verify_only=verify,
                topics=[AddPartitionsToTxnTopic(name=topic, partitions=[partition])],
            )
            for txn, partition, verify in asked
        ]
        answer = raw.request(AddPartitionsToTxnRequest(transactions=transactions), 5)
        return [
            r.topic_results[0].results_by_partition[0].partition_error_code
            for r in answer.results_by_transaction
        ]

    assert ask((one, 0, True), (two, 0, True)) == [E.NONE, E.TRANSACTION_ABORTABLE]
    assert ask((two, 0, False)) == [E.NONE]
    assert ask((two, 0, True), (two, 7, True)) == [E.NONE, E.UNKNOWN_TOPIC_OR_PARTITION]


def test_a_hanging_transaction_is_ended_by_hand(raw, topic):
    txn = Txn(raw)
    txn.add(topic, 0)
    assert txn.produce(topic) == E.NONE

    def open_from() -> int:
        asked = DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=[0])])
        (producer,) = raw.request(asked, 0).topics[0].partitions[0].active_producers
        assert (producer.producer_id, producer.producer_epoch) == (txn.producer_id, txn.epoch)
        return producer.current_txn_start_offset

    assert open_from() == 0
    assert txn.mark(topic, 0, 9) == [E.NONE, E.UNKNOWN_TOPIC_OR_PARTITION]
    assert open_from() == -1
    assert txn.mark(topic, 0, coordinator_epoch=49) == [E.TRANSACTION_COORDINATOR_FENCED]
    committed = raw.request(fetch_request(topic, isolation_level=1), 12).responses[0].partitions[0]
    assert [(t.producer_id, t.first_offset) for t in committed.aborted_transactions] == [(txn.producer_id, 0)]


def test_transactions_are_listed_and_described(raw, topic):
    txn = Txn(raw)
    txn.add(topic, 0, 1)
    (described,) = raw.request(
        DescribeTransactionsRequest(transactional_ids=[txn.name]), 0
    ).transaction_states
    assert (described.transaction_state, described.transaction_timeout_ms) == ("Ongoing", 60_000)
    assert (described.producer_id, described.producer_epoch) == (txn.producer_id, 0)
    assert [(t.topic, t.partitions) for t in described.topics] == [(topic, [0, 1])]
    for version, more in ((0, {}), (1, {"duration_filter": 0}), (2, {"transactional_id_pattern": "txn-.*"})):
        found = raw.request(ListTransactionsRequest(state_filters=["Ongoing", "?"], **more), version)
        assert (txn.name, "Ongoing") in {
            (t.transactional_id, t.transaction_state) for t in found.transaction_states
        }
        assert found.unknown_state_filters == ["?"]
    assert (
        raw.request(ListTransactionsRequest(transactional_id_pattern="("), 2).error_code
        == E.INVALID_REGULAR_EXPRESSION
    )


def test_the_coordinator_of_transactions_is_found(broker, raw):
    (found,) = raw.request(FindCoordinatorRequest(key_type=1, coordinator_keys=["x"]), 4).coordinators
    assert (found.error_code, found.node_id, found.port) == (E.NONE, 1, broker.port)


@pytest.mark.parametrize(
    ("version", "before"), [(0, E.INVALID_TXN_STATE), (4, E.TRANSACTION_ABORTABLE), (5, E.NONE)]
)
def test_offsets_within_a_transaction(raw, topic, version, before):
    txn, group = Txn(raw), new_name("group")

    def offset(*, stable: bool) -> tuple[int, int]:
        asked = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=group, topics=None)], require_stable=stable
        )
        topics = raw.request(asked, 8).groups[0].topics
        return (
            (topics[0].partitions[0].error_code, topics[0].partitions[0].committed_offset)
            if topics
            else (E.NONE, -1)
        )

    assert txn.commit_offset(group, topic, 3, version=version) == before
    if version < 5:
        assert raw.request(AddOffsetsToTxnRequest(**txn.who, group_id=group), 3).error_code == E.NONE
        assert txn.commit_offset(group, topic, 3, version=version) == E.NONE
    assert txn.commit_offset(group, topic, 3, version=version, partition=9) == E.UNKNOWN_TOPIC_OR_PARTITION
    assert txn.commit_offset("", topic, 3, version=version) == E.INVALID_GROUP_ID
    assert offset(stable=False) == (E.NONE, -1)
    assert txn.end(version=3) == E.NONE
    assert offset(stable=True) == (E.NONE, 3)


def test_a_topic_may_be_deleted_within_a_transaction(raw, broker):
    gone, kept = new_topic(broker), new_topic(broker)
    txn = Txn(raw)
    for name in (gone, kept):
        txn.add(name, 0)
        assert txn.produce(name) == E.NONE
    deleted = raw.request(DeleteTopicsRequest(topics=[DeleteTopicState(name=gone)], timeout_ms=5000), 6)
    assert deleted.responses[0].error_code == E.NONE
    assert txn.end() == E.NONE
    (described,) = raw.request(
        DescribeTransactionsRequest(transactional_ids=[txn.name]), 0
    ).transaction_states
    assert described.transaction_state == "CompleteCommit"


@pytest.mark.usefixtures("processes")
def test_settings(tmp_path):
    settings = {
        "transaction.max.timeout.ms": "5000", "transaction.partition.verification.enable": "false",
        "transaction.state.log.num.partitions": "3", "producer.id.expiration.ms": "300",
        "producer.id.expiration.check.interval.ms": "100", "transactional.id.expiration.ms": "300",
        "transaction.remove.expired.transaction.cleanup.interval.ms": "100",
    }  # fmt: skip
    with EmbeddedBroker(tmp_path / "data", config=settings) as broker, RawClient(broker.port) as raw:
        topic = new_topic(broker)
        asked = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=5001)
        assert raw.request(asked, 4).error_code == E.INVALID_TRANSACTION_TIMEOUT
        given = raw.request(InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=5000), 4)
        records = batch(
            b"x", producer_id=given.producer_id, producer_epoch=0, base_sequence=0, is_transactional=True
        )
        request = produce_request(topic, records, acks=-1, transactional_id="x")
        answer = raw.request(request, 9).responses[0].partition_responses[0]
        assert answer.error_code == E.NONE, "not verified"
        assert len(list((tmp_path / "data").glob("__transaction_state-*"))) == 3

        def forgotten() -> bool:
            found = raw.request(DescribeTransactionsRequest(transactional_ids=["x"]), 0).transaction_states[0]
            return found.error_code == E.TRANSACTIONAL_ID_NOT_FOUND

        def producers() -> int:
            asked = DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=[0])])
            return len(raw.request(asked, 0).topics[0].partitions[0].active_producers)

        wait_until(forgotten, "the id to be forgotten")
        assert producers() == 1, "a producer whose transaction is open is never forgotten"
        marker = WritableTxnMarker(
            producer_id=given.producer_id, producer_epoch=0, transaction_result=False, coordinator_epoch=0,
            topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[0])],
        )  # fmt: skip
        raw.request(WriteTxnMarkersRequest(markers=[marker]), 1)
        wait_until(lambda: not producers(), "the producer to be forgotten")


@pytest.mark.usefixtures("processes")
def test_a_transaction_log_that_a_client_makes_or_deletes(tmp_path):
    """The maker of `__transaction_state` decides on its partitions; all transactional ids go with it."""
    with EmbeddedBroker(tmp_path / "data") as broker, RawClient(broker.port) as raw:
        new_topic(broker, 5, name="__transaction_state")
        first = Txn(raw, "x")
        assert len(list((tmp_path / "data").glob("__transaction_state-*"))) == 5
        deleted = DeleteTopicsRequest(topics=[DeleteTopicState(name="__transaction_state")], timeout_ms=5000)
        assert raw.request(deleted, 6).responses[0].error_code == E.NONE
        assert first.end() == E.INVALID_PRODUCER_ID_MAPPING
        again = Txn(raw, "x")
        assert again.producer_id > first.producer_id
