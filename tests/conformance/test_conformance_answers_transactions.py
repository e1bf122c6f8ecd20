"""Transactions: our answers beside Apache Kafka's, field by field, for clients of both transaction versions."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from support.answers import Request, Side
from support.broker import wait_until
from support.raw import RawClient, batch, fetch_request, produce_request

from klamm_kafka.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from klamm_kafka.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from klamm_kafka.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from klamm_kafka.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from klamm_kafka.wire.messages.describe_transactions import DescribeTransactionsRequest
from klamm_kafka.wire.messages.end_txn import EndTxnRequest
from klamm_kafka.wire.messages.find_coordinator import FindCoordinatorRequest
from klamm_kafka.wire.messages.init_producer_id import InitProducerIdRequest
from klamm_kafka.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from klamm_kafka.wire.messages.list_transactions import ListTransactionsRequest
from klamm_kafka.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
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

pytestmark = pytest.mark.usefixtures("apache_kafka")

Answers = list[Any]
NOW_MS = int(time.time() * 1000)
TOPIC, READ_TOPIC = "txn", "txn-read"


@pytest.fixture(scope="module")
def two(two_brokers) -> Iterator[Any]:
    """Returns both brokers, once their transaction coordinators are there."""
    for side in (two_brokers.ours, two_brokers.kafka):
        with RawClient(side.port, timeout_s=60) as client:
            wait_until(lambda client=client: _coordinates(client), f"{side.name} to coordinate", timeout_s=60)
            topics = [
                CreatableTopic(name=name, num_partitions=2, replication_factor=1)
                for name in (TOPIC, READ_TOPIC)
            ]
            made = client.request(CreateTopicsRequest(topics=topics, timeout_ms=10_000), 7).topics
            side.topic_ids.update({t.name: t.topic_id for t in made})
        side._wait_led([TOPIC, READ_TOPIC])
    return two_brokers


def _coordinates(client: RawClient) -> bool:
    client.request(FindCoordinatorRequest(key_type=1, coordinator_keys=["warm"]), 4)
    return not client.request(*init("warm")).error_code


# Requests


def init(
    name: str | None, version: int = 5, *, timeout_ms: int = 60_000, expected: tuple[int, int] = (-1, -1)
) -> Any:
    return InitProducerIdRequest(
        transactional_id=name,
        transaction_timeout_ms=timeout_ms,
        producer_id=expected[0],
        producer_epoch=expected[1],
    ), version


class Producer:
    """Requests under the id and epoch that an earlier answer gave: the `n`th request of the case."""

    def __init__(self, name: str, n: int = 0) -> None:
        self.name, self.n = name, n

    def _who(self, answers: Answers, epoch: int) -> dict[str, Any]:
        given = answers[self.n]
        return {
            "transactional_id": self.name,
            "producer_id": given.producer_id,
            "producer_epoch": given.producer_epoch + epoch,
        }

    def end(self, committed: bool = True, *, version: int, epoch: int = 0) -> Request:
        def ask(answers: Answers) -> Any:
            return EndTxnRequest(**self._who(answers, epoch), committed=committed), version

        return ask

    def add(self, *partitions: int, version: int = 3, epoch: int = 0, topic: str = TOPIC) -> Request:
        def ask(answers: Answers) -> Any:
            who = self._who(answers, epoch)
            return AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=who["transactional_id"],
                v3_and_below_producer_id=who["producer_id"],
                v3_and_below_producer_epoch=who["producer_epoch"],
                v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=list(partitions))],
            ), version

        return ask

    def add_many(self, *partitions: int, version: int, verify: bool, epoch: int = 0) -> Request:
        def ask(answers: Answers) -> Any:
            topics = [AddPartitionsToTxnTopic(name=TOPIC, partitions=list(partitions))]
            one = AddPartitionsToTxnTransaction(
                **self._who(answers, epoch), verify_only=verify, topics=topics
            )
            return AddPartitionsToTxnRequest(transactions=[one]), version

        return ask

    def produce(
        self,
        side: Side,
        sequence: int,
        *,
        version: int,
        epoch: int = 0,
        partition: int = 0,
        named: bool = True,
    ) -> Request:
        def ask(answers: Answers) -> Any:
            who = self._who(answers, epoch)
            records = batch(
                b"x", timestamp=NOW_MS, producer_id=who["producer_id"],
                producer_epoch=who["producer_epoch"], base_sequence=sequence, is_transactional=True,
            )  # fmt: skip
            topic = side.topic_ids[TOPIC] if version >= 13 else TOPIC
            name = self.name if named else None
            return produce_request(
                topic, records, partition=partition, acks=-1, transactional_id=name
            ), version

        return ask

    def add_offsets(self, group: str, *, version: int, epoch: int = 0) -> Request:
        def ask(answers: Answers) -> Any:
            return AddOffsetsToTxnRequest(**self._who(answers, epoch), group_id=group), version

        return ask

    def commit_offsets(
        self, group: str, offset: int, *, version: int, epoch: int = 0, topic: str = TOPIC, partition: int = 0, **more: Any
    ) -> Request:  # fmt: skip
        def ask(answers: Answers) -> Any:
            part = TxnOffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)
            topics = [TxnOffsetCommitRequestTopic(name=topic, partitions=[part])]
            return TxnOffsetCommitRequest(
                **self._who(answers, epoch), group_id=group, topics=topics, **more
            ), version

        return ask

    def mark(self, *partitions: int, version: int, committed: bool = False, epoch: int = 0, coordinator: int = 99, txn: int = 0, topic: str = TOPIC) -> Request:  # fmt: skip
        def ask(answers: Answers) -> Any:
            who = self._who(answers, epoch)
            topics = [WritableTxnMarkerTopic(name=topic, partition_indexes=list(partitions))]
            marker = WritableTxnMarker(
                producer_id=who["producer_id"], producer_epoch=who["producer_epoch"], transaction_result=committed,
                topics=topics, coordinator_epoch=coordinator, transaction_version=txn if version >= 2 else 0,
            )  # fmt: skip
            return WriteTxnMarkersRequest(markers=[marker]), version

        return ask


def describe(*names: str) -> Request:
    return (DescribeTransactionsRequest(transactional_ids=list(names)), 0)


def listed(version: int = 2, **filters: Any) -> Request:
    return (ListTransactionsRequest(**filters), version)


def producers(topic: str = TOPIC, partition: int = 0) -> Request:
    return (
        DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=[partition])]),
        0,
    )


def stable_offset(group: str, *, stable: bool = True) -> Request:
    topics = [OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[0, 1])]
    asked = [OffsetFetchRequestGroup(group_id=group, topics=topics)]
    return (OffsetFetchRequest(groups=asked, require_stable=stable), 8)


# Cases


def init_of_one_after_another(side: Side) -> list[Request]:
    return [init("one", v) for v in range(6)]


def init_refused(side: Side) -> list[Request]:
    return [
        init("r", timeout_ms=0), init("r", timeout_ms=-5), init("r", timeout_ms=900_001), init(""),
        init("r", expected=(5, -1)), init("r", expected=(-1, 5)), describe("r"),
    ]  # fmt: skip


def init_of_a_producer_that_goes_on(side: Side) -> list[Request]:
    def again(epoch: int, *, version: int = 5, id_add: int = 0) -> Request:
        return lambda answers: init("kip-360", version, expected=(answers[0].producer_id + id_add, answers[0].producer_epoch + epoch))  # fmt: skip

    return [
        init("kip-360"), again(0), again(0), again(1), again(0), again(0, version=3), again(2, id_add=1),
        init("kip-360"), again(2), init("nobody-yet", expected=(123456, 7)),
    ]  # fmt: skip


def a_transaction_of_an_older_client(side: Side) -> list[Request]:
    x = Producer("old")
    return [
        init("old"), x.add(0, version=0), x.produce(side, 0, version=9), x.produce(side, 1, version=9), describe("old"),
        x.add(0, 1, version=1), x.produce(side, 0, version=11, partition=1), x.end(version=1), describe("old"),
        x.end(version=1), x.end(False, version=1), x.end(version=3, epoch=1), x.end(version=1, epoch=1),
        x.add(1, version=3), x.produce(side, 1, version=9, partition=1), x.end(False, version=3), x.end(False, version=3),
        x.end(version=3), x.end(version=4), producers(),
    ]  # fmt: skip


def what_an_older_client_may_not(side: Side) -> list[Request]:
    x, nobody = Producer("older"), Producer("nobody")
    return [
        init("older"), x.end(version=3), x.add(9), x.add(0, 9), x.add(0, topic="unknown"), x.add(0, epoch=1),
        x.add(0, epoch=1, version=1), nobody.add(0), nobody.end(version=3), x.produce(side, 0, version=9),
        x.produce(side, 0, version=10), x.produce(side, 0, version=11), nobody.produce(side, 0, version=9),
        x.produce(side, 0, version=9, epoch=1), x.produce(side, 0, version=9, named=False), x.add(1),
        x.produce(side, 0, version=9, partition=0), x.produce(side, 0, version=9, partition=1),
        x.produce(side, 5, version=9, partition=1), x.end(False, version=3), x.produce(side, 1, version=9, partition=1),
    ]  # fmt: skip


def a_transaction_of_a_newer_client(side: Side) -> list[Request]:
    x = Producer("new")
    return [
        init("new"), x.produce(side, 0, version=12), x.produce(side, 1, version=13), x.produce(side, 0, version=12, partition=1),
        describe("new"), x.end(version=5), x.end(version=5), x.end(False, version=5), describe("new"), producers(),
        x.produce(side, 2, version=12), x.produce(side, 0, version=12, epoch=1), x.end(False, version=5, epoch=1),
        x.end(False, version=5, epoch=1), x.end(version=5, epoch=1), x.end(version=5, epoch=2),
        x.end(False, version=5, epoch=2), x.end(False, version=5, epoch=2), x.end(False, version=5, epoch=9), describe("new"),
    ]  # fmt: skip


def what_a_newer_client_may_not(side: Side) -> list[Request]:
    x, nobody = Producer("newer"), Producer("nobody")
    return [
        init("newer"), x.end(version=5), x.end(version=5, epoch=-1), x.produce(side, 3, version=12),
        nobody.produce(side, 0, version=12), x.produce(side, 0, version=12, epoch=1), x.produce(side, 0, version=12, partition=9),
        x.end(False, version=5), nobody.end(version=5), x.produce(side, 0, version=12, epoch=1), x.produce(side, 3, version=12, epoch=1),
        x.end(version=5, epoch=1),
    ]  # fmt: skip


def a_producer_that_is_fenced(side: Side) -> list[Request]:
    x = Producer("fenced")
    return [
        init("fenced"), x.produce(side, 0, version=12), init("fenced"), describe("fenced"), init("fenced"),
        x.produce(side, 1, version=12), x.produce(side, 1, version=9), x.end(version=5), x.end(version=3), x.end(version=1),
        x.add(0, version=3), x.add(0, version=1), x.add_offsets("g", version=3), x.add_offsets("g", version=1),
        x.commit_offsets("fenced-group", 1, version=5), x.commit_offsets("fenced-group", 1, version=3), describe("fenced"),
    ]  # fmt: skip


def partitions_added_in_batches(side: Side) -> list[Request]:
    x, nobody = Producer("batched"), Producer("nobody")
    return [
        init("batched"), x.add_many(0, version=4, verify=True), x.add_many(0, version=5, verify=False),
        x.add_many(0, version=5, verify=True), x.add_many(1, version=5, verify=True), x.add_many(0, version=4, verify=True, epoch=1),
        nobody.add_many(0, version=5, verify=True), nobody.add_many(0, version=5, verify=False), x.add_many(0, 9, version=5, verify=False),
        x.end(version=5),
    ]  # fmt: skip


def offsets_of_an_older_client(side: Side) -> list[Request]:
    x, group = Producer("offsets-old"), "offsets-old-group"
    return [
        init("offsets-old"), x.commit_offsets(group, 3, version=3), x.commit_offsets(group, 3, version=4), x.add_offsets(group, version=0),
        x.commit_offsets(group, 3, version=0), stable_offset(group), stable_offset(group, stable=False),
        x.commit_offsets(group, 4, version=3), x.commit_offsets(group, 4, version=3, topic="unknown"),
        x.commit_offsets(group, 4, version=3, partition=9), x.commit_offsets(group, 4, version=3, generation_id=5, member_id="m"),
        x.commit_offsets("", 4, version=3), x.end(version=3), stable_offset(group), x.add_offsets(group, version=3),
        x.commit_offsets(group, 9, version=2), stable_offset(group), x.end(False, version=3), stable_offset(group),
    ]  # fmt: skip


def offsets_of_a_newer_client(side: Side) -> list[Request]:
    x, group = Producer("offsets-new"), "offsets-new-group"
    return [
        init("offsets-new"), x.commit_offsets(group, 3, version=5), stable_offset(group), stable_offset(group, stable=False),
        x.end(version=5), stable_offset(group), x.commit_offsets(group, 7, version=5), x.commit_offsets(group, 7, version=5, epoch=1),
        x.end(False, version=5, epoch=1), stable_offset(group), x.commit_offsets(group, 8, version=5, epoch=2, generation_id=3, member_id="m"),
    ]  # fmt: skip


def a_hanging_transaction_is_ended(side: Side) -> list[Request]:
    x = Producer("hanging", 1)
    return [
        init("hanging"), init("hanging"), x.produce(side, 0, version=12), producers(), x.mark(0, version=1, epoch=-1), x.mark(0, 9, version=1, epoch=0, txn=2),
        producers(), x.mark(0, version=1, coordinator=1), x.mark(0, version=2, txn=2), x.mark(0, topic="unknown", version=1),
        (WriteTxnMarkersRequest(markers=[]), 1), x.produce(side, 1, version=12), x.end(version=5),
    ]  # fmt: skip


def a_late_marker_is_refused(side: Side) -> list[Request]:
    x = Producer("late")
    return [
        init("late"), x.produce(side, 0, version=12, partition=1), x.mark(1, version=2, txn=2, coordinator=0), x.end(version=5),
        x.produce(side, 0, version=12, partition=1, epoch=1), x.mark(1, version=2, txn=2, epoch=1, coordinator=0),
        x.mark(1, version=2, txn=1, epoch=0, coordinator=0), x.end(version=5, epoch=1),
    ]  # fmt: skip


def administration(side: Side) -> list[Request]:
    def of(answers: Answers) -> Any:
        return ListTransactionsRequest(producer_id_filters=[answers[0].producer_id]), 0

    return [
        init("admin-1"), of, listed(transactional_id_pattern="admin-.*"), listed(transactional_id_pattern="admin"),
        listed(transactional_id_pattern="("), listed(state_filters=["Nonsense", "Dead"]), listed(version=1, duration_filter=10**15),
        listed(state_filters=["Ongoing"], transactional_id_pattern="admin-.*"), describe("admin-1", "nobody", ""),
        producers("unknown"), producers("bad/name"), producers(TOPIC, 9),
        (FindCoordinatorRequest(key_type=1, coordinator_keys=["admin-1", ""]), 4), (FindCoordinatorRequest(key_type=1, key="admin-1"), 1),
    ]  # fmt: skip


def reading_committed(side: Side) -> list[Request]:
    x = Producer("read")

    def fetched(isolation: int) -> Request:
        return (
            fetch_request(side.topic_ids[READ_TOPIC], 0, isolation_level=isolation, max_bytes=1),
            17,
        )

    def produce(sequence: int, epoch: int = 0) -> Request:
        def ask(answers: Answers) -> Any:
            records = batch(
                b"x", timestamp=NOW_MS, producer_id=answers[0].producer_id,
                producer_epoch=answers[0].producer_epoch + epoch, base_sequence=sequence, is_transactional=True,
            )  # fmt: skip
            return produce_request(side.topic_ids[READ_TOPIC], records, acks=-1, transactional_id="read"), 13

        return ask

    return [init("read"), produce(0), fetched(1), fetched(0), x.end(False, version=5), fetched(1), produce(0, 1), fetched(1), x.end(version=5, epoch=1), fetched(1)]  # fmt: skip


def listing_offsets_below_an_open_transaction(side: Side) -> list[Request]:
    x = Producer("offsets")

    def listed_at(timestamp: int, isolation: int) -> Request:
        part = ListOffsetsPartition(partition_index=1, timestamp=timestamp)
        topics = [ListOffsetsTopic(name=READ_TOPIC, partitions=[part])]
        request = ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=topics, timeout_ms=5000)
        return (request, 8)

    def produce(sequence: int, epoch: int = 0) -> Request:
        def ask(answers: Answers) -> Any:
            records = batch(
                b"x",
                timestamp=NOW_MS + 10 * (sequence + epoch),
                producer_id=answers[0].producer_id,
                producer_epoch=answers[0].producer_epoch + epoch,
                base_sequence=sequence,
                is_transactional=True,
            )
            topic = side.topic_ids[READ_TOPIC]
            return produce_request(topic, records, partition=1, acks=-1, transactional_id="offsets"), 13

        return ask

    def all_of() -> list[Request]:
        times = (-1, -2, -3, NOW_MS, NOW_MS + 5, NOW_MS + 15)
        return [listed_at(timestamp, isolation) for isolation in (0, 1) for timestamp in times]

    return [
        init("offsets"),
        produce(0),
        x.end(version=5),
        produce(0, 1),
        *all_of(),
        x.end(version=5, epoch=1),
        *all_of(),
    ]


LOG_START = "Kafka says the log start with some errors"
INTENDED: dict[str, dict[str, str]] = {
    "what_an_older_client_may_not": {r"^18\..*log_start_offset": LOG_START},
    "listing_offsets_below_an_open_transaction": {
        r"\.timestamp$": "a marker has the time at which it was written"
    },
    "what_a_newer_client_may_not": {r"^(3|10)\..*log_start_offset": LOG_START},
}


@pytest.mark.parametrize(
    "case",
    [
        init_of_one_after_another, init_refused, init_of_a_producer_that_goes_on, a_transaction_of_an_older_client,
        what_an_older_client_may_not, a_transaction_of_a_newer_client, what_a_newer_client_may_not, a_producer_that_is_fenced,
        partitions_added_in_batches, offsets_of_an_older_client, offsets_of_a_newer_client, a_hanging_transaction_is_ended,
        a_late_marker_is_refused, administration, reading_committed, listing_offsets_below_an_open_transaction,
    ],
    ids=lambda case: case.__name__,
)  # fmt: skip
def test_answers_are_kafkas(two, case):
    two.compare(case, INTENDED.get(case.__name__))
