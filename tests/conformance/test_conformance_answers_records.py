"""Records and offsets: our answers beside Apache Kafka's, field by field."""

from __future__ import annotations

import time

import pytest
from support.answers import NOBODY, Request, Side
from support.raw import RawClient, batch, fetch_request, produce_request

from klamm_kafka.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from klamm_kafka.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from klamm_kafka.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from klamm_kafka.wire.messages.find_coordinator import FindCoordinatorRequest
from klamm_kafka.wire.messages.init_producer_id import InitProducerIdRequest
from klamm_kafka.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from klamm_kafka.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from klamm_kafka.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

pytestmark = pytest.mark.usefixtures("apache_kafka")
START = 1_700_000_000_000  # the first batch of `known`; the second is one second later


def offsets(
    timestamp: int,
    version: int,
    *,
    topic: str = "known",
    partition: int = 0,
    epoch: int = -1,
    isolation: int = 0,
) -> Request:
    asked = ListOffsetsPartition(partition_index=partition, current_leader_epoch=epoch, timestamp=timestamp)
    topics = [ListOffsetsTopic(name=topic, partitions=[asked])]
    return ListOffsetsRequest(
        replica_id=-1, isolation_level=isolation, topics=topics, timeout_ms=5000
    ), version


def list_offsets_by_special_timestamps(side: Side) -> list[Request]:
    firsts = {-1: 1, -2: 1, -3: 7, -4: 8, -5: 9, -6: 11}
    return [offsets(t, v) for t, first in firsts.items() for v in {first, 11}] + [
        offsets(t, 11, partition=1) for t in firsts
    ]


def list_offsets_by_special_timestamps_in_old_versions(side: Side) -> list[Request]:
    return [offsets(t, v) for t, v in ((-3, 6), (-4, 7), (-5, 8), (-6, 10), (-7, 11))]


def list_offsets_by_time(side: Side) -> list[Request]:
    times = (0, START, START + 1, START + 1000, START + 1001, START * 2)
    return [offsets(t, 11) for t in times] + [offsets(t, 11, isolation=1) for t in (START, -1)]


def list_offsets_refused(side: Side) -> list[Request]:
    twice = ListOffsetsTopic(
        name="known", partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)] * 2
    )
    return [
        offsets(-1, 11, topic="unknown"),
        offsets(-1, 11, partition=9),
        offsets(-1, 11, topic="bad/name"),
        offsets(-1, 11, epoch=0),
        offsets(-1, 11, epoch=5),
        (ListOffsetsRequest(replica_id=-1, topics=[twice]), 11),
    ]


def offsets_for_leader_epochs(side: Side) -> list[Request]:
    def ask(epoch: int, current: int = -1, topic: str = "known", partition: int = 0) -> Request:
        asked = OffsetForLeaderPartition(
            partition=partition, current_leader_epoch=current, leader_epoch=epoch
        )
        return OffsetForLeaderEpochRequest(
            replica_id=-1, topics=[OffsetForLeaderTopic(topic=topic, partitions=[asked])]
        ), 4

    return [
        ask(0), ask(0, 0), ask(1), ask(-1), ask(0, 7), ask(0, partition=1), ask(0, partition=9), ask(0, topic="unknown"),
    ]  # fmt: skip


def fetch(side: Side) -> list[Request]:
    """Partition 1 holds nothing; `known` has ten records in two batches."""
    known = side.topic_ids["known"]
    return [
        (fetch_request("known", max_wait_ms=10), 4),
        (fetch_request("known", max_wait_ms=10), 12),
        (fetch_request(known, max_wait_ms=10), 13),
        (fetch_request(known, 7, max_wait_ms=10), 18),
        (fetch_request(known, 7, max_wait_ms=10, max_bytes=1), 18),
        (fetch_request(known, 10, max_wait_ms=10), 18),
        (fetch_request(known, 0, partition=1, max_wait_ms=10), 18),
        (fetch_request(known, 0, max_wait_ms=10, isolation_level=1), 18),
    ]


def fetch_refused(side: Side) -> list[Request]:
    known = side.topic_ids["known"]
    return [
        (fetch_request(known, 11), 18),
        (fetch_request(known, -1), 18),
        (fetch_request("known", 11), 11),
        (fetch_request(known, 0, partition=9), 18),
        (fetch_request(NOBODY, 0), 18),
        (fetch_request("unknown", 0), 12),
        (fetch_request(known, 0, current_leader_epoch=0), 18),
        (fetch_request(known, 0, current_leader_epoch=7), 18),
        (fetch_request(known, 10, last_fetched_epoch=0), 18),
        (fetch_request(known, 0, session_id=77, session_epoch=5), 18),
        (fetch_request(known, 0, session_id=77, session_epoch=0), 18),
    ]


def fetch_of_several(side: Side) -> list[Request]:
    topics = [
        FetchTopic(topic_id=side.topic_ids["known"], partitions=[
            FetchPartition(partition=p, fetch_offset=o, partition_max_bytes=1000) for p, o in ((0, 0), (1, 0))
        ]),
        FetchTopic(topic_id=side.topic_ids["empty"], partitions=[FetchPartition(partition=0, partition_max_bytes=1000)]),
    ]  # fmt: skip
    return [(FetchRequest(max_wait_ms=10, min_bytes=1, topics=topics), 17)]


def asked_of(*where: tuple[str, int, int]) -> list[FetchTopic]:
    """Topic, partition and offset of each; a topic's partitions are together."""
    topics: dict[str, FetchTopic] = {}
    for name, p, o in where:
        asked = FetchPartition(partition=p, fetch_offset=o, partition_max_bytes=1000)
        topics.setdefault(name, FetchTopic(topic=name)).partitions.append(asked)
    return list(topics.values())


def go_on(epoch: int, topics: list[FetchTopic], first: int = 0, **more: object) -> Request:
    """Returns an incremental fetch of the session that the answer number `first` opened."""
    version = more.pop("version", 12)

    def make(answers: list[object]) -> Request:
        session_id = answers[first].session_id
        asked = FetchRequest(
            max_wait_ms=10, min_bytes=1, session_id=session_id, session_epoch=epoch, topics=topics, **more
        )
        return asked, version

    return make


def fetch_sessions(side: Side) -> list[Request]:
    begin = asked_of(("known", 0, 0), ("known", 1, 0), ("empty", 0, 0))
    forget = [ForgottenTopic(topic="known", partitions=[0, 9])]
    return [
        (FetchRequest(max_wait_ms=10, min_bytes=1, session_epoch=0, topics=begin), 12),
        go_on(1, []),
        go_on(2, asked_of(("known", 0, 10))),
        go_on(3, []),
        go_on(3, []),
        go_on(9, []),
        go_on(4, asked_of(("nobody", 0, 0), ("known", 7, 0))),
        go_on(5, asked_of(("known", 1, 99))),
        go_on(6, asked_of(("known", 1, 0))),
        go_on(7, asked_of(("known", 0, 5))),
        go_on(8, [], forgotten_topics_data=forget),
        go_on(9, [], version=17),
        go_on(9, [], isolation_level=1),
        go_on(-1, asked_of(("known", 0, 0))),
        go_on(10, []),
    ]


def fetch_session_that_is_forgotten(side: Side) -> list[Request]:
    forget = [ForgottenTopic(topic="empty", partitions=[0])]
    return [
        (FetchRequest(max_wait_ms=10, session_epoch=0, topics=asked_of(("empty", 0, 0))), 12),
        go_on(1, [], forgotten_topics_data=forget),
        go_on(2, []),
        (FetchRequest(max_wait_ms=10, session_epoch=0), 12),
        go_on(1, asked_of(("empty", 0, 0)), first=3),
    ]


def produce(side: Side) -> list[Request]:
    records = batch(b"a", b"b")
    empty = side.topic_ids["empty"]
    return [
        (produce_request("empty", records), 3),
        (produce_request("empty", records, acks=-1), 8),
        (produce_request(empty, records, partition=1), 13),
        (fetch_request(empty, max_wait_ms=10), 18),
    ]


def produce_refused(side: Side) -> list[Request]:
    known = side.topic_ids["known"]
    good = batch(b"a")
    torn = bytearray(good)
    torn[-1] ^= 1
    return [
        (produce_request(known, good, acks=2), 13),
        (produce_request(known, good, partition=9), 13),
        (produce_request(NOBODY, good), 13),
        (produce_request("unknown", good), 12),
        (produce_request("bad/name", good), 12),
        (produce_request(known, bytes(torn)), 13),
        (produce_request(known, good + good), 13),
        (produce_request(known, batch(*[b"x" * 1000] * 1100)), 13),
        (produce_request(known, batch(b"a", timestamp=99_999_999_999_999)), 13),
        (
            produce_request(
                side.topic_ids["empty"], batch(b"a", producer_id=7, producer_epoch=0, base_sequence=5)
            ),
            13,
        ),
        (produce_request(known, good[:40]), 13),
        (produce_request(known, b""), 13),
        # records=None: Kafka's handler dies of it and never answers
    ]


def produce_of_both_kinds(side: Side) -> list[Request]:
    """Asks for a good and a bad partition in one request: the good one is taken."""
    data = [PartitionProduceData(index=p, records=batch(b"x")) for p in (0, 9)]
    topics = [TopicProduceData(topic_id=side.topic_ids["empty"], partition_data=data)]
    return [(ProduceRequest(acks=-1, timeout_ms=5000, topic_data=topics), 13)]


def idempotent_produce(side: Side) -> list[Request]:
    """Produces in order, once more, with a gap, from an older epoch, from a newer one that does not start at 0."""
    empty = side.topic_ids["empty"]
    sent = [(0, 0), (0, 1), (0, 1), (0, 0), (0, 5), (1, 3), (1, 0), (0, 2)]
    return [
        (produce_request(empty, batch(b"x", producer_id=4242, producer_epoch=e, base_sequence=s), partition=1, acks=-1), 13)
        for e, s in sent
    ]  # fmt: skip


def init_producer_id_refused(side: Side) -> list[Request]:
    return [
        (InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000, producer_id=5, producer_epoch=-1), 4),
        (InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000, producer_id=-1, producer_epoch=3), 4),
        (InitProducerIdRequest(transactional_id="", transaction_timeout_ms=1000), 4),
    ]  # fmt: skip


def delete_records(side: Side) -> list[Request]:
    def ask(offset: int, topic: str = "empty", partition: int = 0) -> Request:
        part = DeleteRecordsPartition(partition_index=partition, offset=offset)
        topics = [DeleteRecordsTopic(name=topic, partitions=[part])]
        return DeleteRecordsRequest(topics=topics, timeout_ms=5000), 2

    return [
        ask(0), ask(1), ask(0), ask(100), ask(-2), ask(-1, partition=9), ask(0, topic="unknown"), ask(-1),
        offsets(-2, 11, topic="empty"), (fetch_request(side.topic_ids["empty"], 0), 18),
    ]  # fmt: skip


_SPECS = {-1: 1, -2: 1, -3: 7, -4: 8, -5: 9, -6: 11}


def offsets_of_a_trimmed_log(side: Side) -> list[Request]:
    """Asks for offsets of five batches with times that go up and down; the log starts in the middle of one, at its end, at its last record."""
    name = "trimmed"
    times = (START + 5000, START + 1000, START + 9000, START + 2000, START + 3000)
    asked = [START - 1, *sorted(times), START + 9001]

    def trim(offset: int) -> list[Request]:
        part = DeleteRecordsPartition(partition_index=0, offset=offset)
        topics = [DeleteRecordsTopic(name=name, partitions=[part])]
        listed = [offsets(t, 11, topic=name, isolation=i) for t in (*_SPECS, *asked) for i in (0, 1)]
        epochs = [OffsetForLeaderPartition(partition=0, leader_epoch=epoch) for epoch in (0, 1)]
        about = [
            (
                OffsetForLeaderEpochRequest(
                    replica_id=-1, topics=[OffsetForLeaderTopic(topic=name, partitions=[e])]
                ),
                4,
            )
            for e in epochs
        ]
        return [(DeleteRecordsRequest(topics=topics, timeout_ms=5000), 2), *listed, *about]

    created = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    return [
        (CreateTopicsRequest(topics=[created], timeout_ms=10_000), 7),
        *((produce_request(name, batch(b"a", b"b", timestamp=t), acks=-1), 8) for t in times),
        *[request for offset in (0, 1, 3, 6, 9, -1, 10, 11) for request in trim(offset)],
    ]


def offsets_beside_an_open_transaction(side: Side) -> list[Request]:
    """Committed records end where the transaction begins, for every question that has an isolation level."""
    name = "undecided"
    asked_for = FindCoordinatorRequest(key_type=1, coordinator_keys=["offsets-of"])
    init = InitProducerIdRequest(transactional_id="offsets-of", transaction_timeout_ms=60_000)
    with RawClient(side.port) as client:  # the first question makes the coordinator's topic
        end = time.monotonic() + 60
        while client.request(asked_for, 4).coordinators[0].error_code or client.request(init, 4).error_code:
            assert time.monotonic() < end
            time.sleep(0.1)

    def within(answers: list[object]) -> Request:
        got = answers[2]
        records = batch(
            b"x", b"y", timestamp=START + 5000, producer_id=got.producer_id, producer_epoch=got.producer_epoch,
            base_sequence=0, is_transactional=True,
        )  # fmt: skip
        return produce_request(name, records, acks=-1, transactional_id="offsets-of"), 12

    created = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    part = DeleteRecordsPartition(partition_index=0, offset=-1)
    topics = [DeleteRecordsTopic(name=name, partitions=[part])]
    listed = [
        offsets(t, 11, topic=name, isolation=i)
        for t in (*_SPECS, START, START + 1, START + 5000, START + 6000)
        for i in (0, 1)
    ]
    return [
        (CreateTopicsRequest(topics=[created], timeout_ms=10_000), 7),
        (produce_request(name, batch(b"a", b"b", timestamp=START), acks=-1), 8),
        (init, 4),
        within,
        (produce_request(name, batch(b"z", timestamp=START + 3000), acks=-1), 8),
        *listed,
        (DeleteRecordsRequest(topics=topics, timeout_ms=5000), 2),
        *listed,
    ]


INTENDED: dict[str, dict[str, str]] = {
    "fetch_refused": {
        r"aborted_transactions": "null and empty mean the same",
    },
    "fetch_sessions": {r"aborted_transactions": "null and empty mean the same"},
    "produce_refused": {
        r"^6\.": "several batches for a partition: Kafka takes one, we take them all or none",
        r"^8\..*log_start_offset": "Kafka says the log start with some errors",
        r"^10\.": "a torn batch: Kafka calls it an invalid record, we a corrupt message",
    },
    "idempotent_produce": {
        r"^[23]\..*log_append_time_ms": "a repeated batch: Kafka answers its create time as an append time",
        r"^[457]\..*log_start_offset": "Kafka says the log start with some errors",
    },
}


@pytest.mark.parametrize(
    "case",
    [
        list_offsets_by_special_timestamps, list_offsets_by_special_timestamps_in_old_versions, list_offsets_by_time,
        list_offsets_refused, offsets_for_leader_epochs, fetch, fetch_refused, fetch_of_several,
        fetch_sessions, fetch_session_that_is_forgotten, produce, produce_refused,
        produce_of_both_kinds, idempotent_produce, init_producer_id_refused, delete_records, offsets_of_a_trimmed_log, offsets_beside_an_open_transaction,
    ],
    ids=lambda case: case.__name__,
)  # fmt: skip
def test_answers_are_kafkas(two_brokers, case):
    two_brokers.compare(case, INTENDED.get(case.__name__))
