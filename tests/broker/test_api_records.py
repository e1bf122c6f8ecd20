"""Produce, Fetch, ListOffsets, OffsetForLeaderEpoch and DeleteRecords in all their versions, on raw sockets."""

from __future__ import annotations

import time

import pytest
from confluent_kafka.admin import AdminClient
from support.broker import new_name, new_topic
from support.raw import RawClient, batch, fetch_request, produce_request

from klamm.testing import EmbeddedBroker
from klamm_kafka.wire.batch import decode_records
from klamm_kafka.wire.compression import Compression
from klamm_kafka.wire.errors import ErrorCode as E
from klamm_kafka.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from klamm_kafka.wire.messages.fetch import FetchRequest
from klamm_kafka.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from klamm_kafka.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from klamm_kafka.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)


@pytest.fixture
def client(broker):
    with RawClient(broker.port) as connection:
        yield connection


@pytest.fixture
def topic(broker):
    return new_topic(broker)


def topic_id(client, name):
    return client.request(MetadataRequest(topics=[MetadataRequestTopic(name=name)]), 12).topics[0].topic_id


def produce(client, topic, *values, version=9, **more):
    acks = more.pop("acks", 1)
    answer = client.request(produce_request(topic, batch(*values, **more), acks=acks), version)
    return answer.responses[0].partition_responses[0]


def fetch(client, topic, offset=0, version=11, **more):
    answer = client.request(fetch_request(topic, offset, **more), version)
    return answer.responses[0].partitions[0]


def values(partition):
    """Returns the values in a fetched record set, batch after batch."""
    found, data = [], bytes(partition.records or b"")
    while data:
        size = int.from_bytes(data[8:12]) + 12
        found += [record.value for record in decode_records(data[:size])]
        data = data[size:]
    return found


@pytest.mark.parametrize("version", range(3, 14))
def test_produce_in_every_version(client, topic, version):
    key = topic_id(client, topic) if version >= 13 else topic
    assert produce(client, key, b"a", b"b", version=version).base_offset == 0
    done = produce(client, key, b"c", version=version)
    assert (done.error_code, done.base_offset, done.log_append_time_ms) == (0, 2, -1)
    assert values(fetch(client, topic)) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("version", range(4, 19))
def test_fetch_in_every_version(client, topic, version):
    produce(client, topic, b"a", b"b")
    produce(client, topic, b"c")
    key = topic_id(client, topic) if version >= 13 else topic
    got = fetch(client, key, 1, version)
    assert (got.error_code, got.high_watermark, got.last_stable_offset) == (0, 3, 3)
    assert values(got) == [b"a", b"b", b"c"], "the batch that holds offset 1 comes whole"
    assert values(fetch(client, key, 2, version)) == [b"c"]
    assert values(fetch(client, key, 3, version)) == []


@pytest.mark.parametrize("compression", list(Compression))
def test_batches_come_back_as_they_were_sent(client, topic, compression):
    sent = batch(b"x" * 1000, b"y" * 1000, compression=compression)
    client.request(produce_request(topic, sent), 9)
    got = bytes(fetch(client, topic).records)
    assert got[:8] == bytes(8)
    assert got[16:] == sent[16:], "all but offset and leader epoch is the producer's"


def test_unknown_topics_partitions_and_ids(client, topic):
    assert produce(client, new_name(), b"a").error_code == E.UNKNOWN_TOPIC_OR_PARTITION
    assert produce(client, bytes(range(16)), b"a", version=13).error_code == E.UNKNOWN_TOPIC_ID
    assert fetch(client, new_name()).error_code == E.UNKNOWN_TOPIC_OR_PARTITION
    assert fetch(client, bytes(range(16)), version=16).error_code == E.UNKNOWN_TOPIC_ID
    assert fetch(client, topic, partition=5).error_code == E.UNKNOWN_TOPIC_OR_PARTITION
    answer = client.request(produce_request(topic, batch(b"a"), partition=-1), 9)
    assert answer.responses[0].partition_responses[0].error_code == E.UNKNOWN_TOPIC_OR_PARTITION


def test_an_error_is_of_its_partition_only(broker, client):
    topic = new_topic(broker, partitions=2)
    request = produce_request(topic, batch(b"good"))
    damaged_batch = batch(b"bad")[:-1] + b"?"
    bad = produce_request(topic, damaged_batch, partition=1).topic_data[0].partition_data[0]
    request.topic_data[0].partition_data.append(bad)
    good, damaged = client.request(request, 9).responses[0].partition_responses
    assert (good.error_code, good.base_offset) == (0, 0)
    assert damaged.error_code == E.CORRUPT_MESSAGE
    assert damaged.error_message
    assert values(fetch(client, topic)) == [b"good"]
    assert fetch(client, topic, partition=1).high_watermark == 0


def test_damaged_batches_are_refused(client, topic):
    good = bytearray(batch(b"value"))
    good[-1] ^= 1
    answer = client.request(produce_request(topic, bytes(good)), 9)
    assert answer.responses[0].partition_responses[0].error_code == E.CORRUPT_MESSAGE
    for records in (None, b""):
        answer = client.request(produce_request(topic, records), 9)
        assert answer.responses[0].partition_responses[0].error_code == E.INVALID_RECORD
    assert fetch(client, topic).high_watermark == 0


def test_acks(broker, client, topic):
    assert produce(client, topic, b"a", acks=-1).error_code == 0
    assert produce(client, topic, b"a", acks=2).error_code == E.INVALID_REQUIRED_ACKS
    strict = new_topic(broker, config={"min.insync.replicas": "2"})
    assert produce(client, strict, b"a", acks=-1).error_code == E.NOT_ENOUGH_REPLICAS
    assert produce(client, strict, b"a", acks=1).error_code == 0


def test_message_too_large(broker, client):
    topic = new_topic(broker, config={"max.message.bytes": "1000"})
    done = produce(client, topic, bytes(2000))
    assert done.error_code == E.MESSAGE_TOO_LARGE
    assert produce(client, topic, bytes(100)).base_offset == 0


def test_log_append_time(broker, client):
    topic = new_topic(broker, config={"message.timestamp.type": "LogAppendTime"})
    before = time.time() * 1000
    done = produce(client, topic, b"a", timestamp=5)
    assert abs(done.log_append_time_ms - before) < 60_000
    assert decode_records(bytes(fetch(client, topic).records))[0].timestamp == done.log_append_time_ms


def test_idempotent_repetition_gets_the_same_offset(client, topic):
    def send(sequence, *what):
        return produce(client, topic, *what, producer_id=77, producer_epoch=0, base_sequence=sequence)

    assert send(0, b"a", b"b").base_offset == 0
    assert send(2, b"c").base_offset == 2
    assert send(0, b"a", b"b").base_offset == 0, "a repetition"
    assert send(5, b"z").error_code == E.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert fetch(client, topic).high_watermark == 3


def test_internal_topics_are_refused(broker, client):
    new_topic(broker, name="__transaction_state")
    assert produce(client, "__transaction_state", b"a").error_code == E.INVALID_TOPIC_EXCEPTION


def test_fetch_offset_out_of_range(client, topic):
    produce(client, topic, b"a")
    for offset in (-1, 2, 1 << 60):
        got = fetch(client, topic, offset)
        assert (got.error_code, got.high_watermark, got.log_start_offset) == (E.OFFSET_OUT_OF_RANGE, -1, -1)


def test_fetch_limits(client, topic):
    for _ in range(4):
        produce(client, topic, bytes(1000))
    one = len(fetch(client, topic, max_bytes=1).records)
    assert 1000 < one < 1200, "the first batch comes whole, whatever the limit"
    assert len(fetch(client, topic, max_bytes=one * 2 + 10).records) == one * 2, "whole batches only"


def test_max_bytes_counts_over_partitions(broker, client):
    topic = new_topic(broker, partitions=3)
    for partition in range(3):
        client.request(produce_request(topic, batch(bytes(1000)), partition=partition), 9)
    request = fetch_request(topic, max_bytes=1100)
    first = request.topics[0].partitions[0]
    request.topics[0].partitions += [type(first)(partition=p, partition_max_bytes=1 << 20) for p in (1, 2)]
    sizes = [len(p.records or b"") for p in client.request(request, 11).responses[0].partitions]
    assert sizes[0] > 1000
    assert sizes[1:] == [0, 0]


def test_long_poll_waits_and_wakes(broker, client, topic):
    begin = time.monotonic()
    assert values(fetch(client, topic, max_wait_ms=150)) == []
    assert time.monotonic() - begin > 0.14
    client.send(fetch_request(topic, max_wait_ms=200_000), 11)
    with RawClient(broker.port) as producer:
        produce(producer, topic, b"now")
    # within the minute that the client waits, not at the end of the poll
    assert values(client.receive(FetchRequest, 11)[1].responses[0].partitions[0]) == [b"now"]


def test_long_poll_waits_for_min_bytes(broker, client, topic):
    client.send(fetch_request(topic, max_wait_ms=200_000, min_bytes=2500), 11)
    with RawClient(broker.port) as producer:
        for _ in range(3):
            produce(producer, topic, bytes(1000))
    got = client.receive(FetchRequest, 11)[1].responses[0].partitions[0]
    assert len(values(got)) == 3


def test_long_poll_ends_when_its_topic_is_deleted(broker, client, topic):
    client.send(fetch_request(topic, max_wait_ms=200_000), 11)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.delete_topics([topic])[topic].result(60)
    client.receive(FetchRequest, 11)
    assert fetch(client, topic).error_code == E.UNKNOWN_TOPIC_OR_PARTITION


def test_a_fetch_session_tells_what_is_new(client, topic):
    produce(client, topic, b"a")
    opened = client.request(fetch_request(topic, session_epoch=0), 11)
    assert opened.session_id > 0

    def go_on(epoch, offset=None):
        request = fetch_request(topic, offset or 0, session_id=opened.session_id, session_epoch=epoch)
        if offset is None:
            request.topics = []
        return client.request(request, 11)

    (again,) = go_on(1).responses[0].partitions
    assert again.records, "who does not say that it has read them gets them again"
    assert go_on(2, 1).responses == []
    produce(client, topic, b"b")
    (new,) = go_on(3).responses[0].partitions
    assert (new.high_watermark, len(new.records) > 0) == (2, True)
    assert go_on(3).error_code == E.INVALID_FETCH_SESSION_EPOCH
    answer = client.request(fetch_request(topic, session_id=5, session_epoch=3), 11)
    assert answer.error_code == E.FETCH_SESSION_ID_NOT_FOUND


def test_read_committed_lists_no_aborted_transactions(client, topic):
    produce(client, topic, b"a")
    assert fetch(client, topic).aborted_transactions is None
    committed = fetch(client, topic, isolation_level=1)
    assert (committed.aborted_transactions, values(committed)) == ([], [b"a"])


def list_offset(client, topic, timestamp, version=7, **more):
    asked = ListOffsetsPartition(partition_index=more.pop("partition", 0), timestamp=timestamp)
    asked.current_leader_epoch = more.pop("epoch", -1)
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[asked])], **more
    )
    return client.request(request, version).topics[0].partitions[0]


@pytest.mark.parametrize("version", range(1, 12))
def test_list_offsets_in_every_version(client, topic, version):
    for timestamp in (1000, 3000, 2000):
        produce(client, topic, b"a", timestamp=timestamp)
    epoch = 0 if version >= 4 else -1

    def at(timestamp):
        got = list_offset(client, topic, timestamp, version)
        return got.error_code, got.timestamp, got.offset, got.leader_epoch

    assert at(-1) == (0, -1, 3, epoch)
    assert at(-2) == (0, -1, 0, epoch)
    assert at(1001) == (0, 3000, 1, epoch)
    assert at(3001) == (0, -1, -1, -1)
    refused = (E.UNSUPPORTED_VERSION, -1, -1, -1)
    assert at(-3) == ((0, 3000, 1, epoch) if version >= 7 else refused)
    assert at(-4) == ((0, -1, 0, epoch) if version >= 8 else refused)
    assert at(-5) == ((0, -1, -1, -1) if version >= 9 else refused)
    assert at(-6) == ((0, -1, -1, -1) if version >= 11 else refused)
    assert at(-7) == refused


def test_list_offsets_errors(client, topic):
    assert list_offset(client, new_name(), -1).error_code == E.UNKNOWN_TOPIC_OR_PARTITION
    assert list_offset(client, topic, -1, partition=9).error_code == E.UNKNOWN_TOPIC_OR_PARTITION
    partition = ListOffsetsPartition(partition_index=0, timestamp=-1)
    twice = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[partition] * 2)]
    )
    answer = client.request(twice, 7).topics[0].partitions
    assert [p.error_code for p in answer] == [E.INVALID_REQUEST], "Kafka answers it once"


def epoch_end(client, topic, epoch, *, current=-1, version=4):
    asked = OffsetForLeaderPartition(partition=0, current_leader_epoch=current, leader_epoch=epoch)
    request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=topic, partitions=[asked])])
    got = client.request(request, version).topics[0].partitions[0]
    return got.error_code, got.leader_epoch, got.end_offset


@pytest.mark.usefixtures("processes")
def test_leader_epochs_grow_with_every_start_and_are_checked(tmp_path):
    with EmbeddedBroker(tmp_path / "data") as own:
        topic = new_topic(own)
        for start in range(3):
            with RawClient(own.port) as client:
                produce(client, topic, b"%d" % start)
                described = client.request(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), 12)
                assert described.topics[0].partitions[0].leader_epoch == start
            if start < 2:
                if start:
                    own.kill()
                else:
                    own.stop()
                own.start()
        with RawClient(own.port) as client:
            assert [epoch_end(client, topic, e) for e in (0, 1, 2)] == [(0, 0, 1), (0, 1, 2), (0, 2, 3)]
            assert epoch_end(client, topic, 9) == (0, -1, -1)
            for old, code in ((1, E.FENCED_LEADER_EPOCH), (3, E.UNKNOWN_LEADER_EPOCH)):
                assert epoch_end(client, topic, 0, current=old)[0] == code
                assert fetch(client, topic, current_leader_epoch=old).error_code == code
                assert list_offset(client, topic, -1, epoch=old).error_code == code
            assert fetch(client, topic, current_leader_epoch=2).error_code == 0
            assert list_offset(client, topic, -2).leader_epoch == 0


def delete_records(client, topic, offset, version=2):
    partition = DeleteRecordsPartition(partition_index=0, offset=offset)
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=topic, partitions=[partition])], timeout_ms=1000
    )
    got = client.request(request, version).topics[0].partitions[0]
    return got.error_code, got.low_watermark


def test_delete_records(broker, client, topic):
    for _ in range(5):
        produce(client, topic, b"a")
    assert delete_records(client, topic, 2) == (0, 2)
    assert delete_records(client, topic, 1) == (0, 2), "the start never goes back"
    assert fetch(client, topic, 1).error_code == E.OFFSET_OUT_OF_RANGE
    assert list_offset(client, topic, -2).offset == 2
    assert delete_records(client, topic, 9) == (E.OFFSET_OUT_OF_RANGE, -1)
    assert delete_records(client, topic, -1, version=0) == (0, 5)
    assert fetch(client, topic, 5).error_code == 0
    compacted = new_topic(broker, config={"cleanup.policy": "compact"})
    assert delete_records(client, compacted, 0) == (E.POLICY_VIOLATION, -1)
    assert delete_records(client, new_name(), 0) == (E.UNKNOWN_TOPIC_OR_PARTITION, -1)
