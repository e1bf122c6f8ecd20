"""Share groups on the wire: sessions, acquiring and acknowledging records, locks, limits, start offsets, a kill."""

from __future__ import annotations

import os
import time
import uuid

import pytest
from confluent_kafka import Producer
from support.broker import new_name, new_topic, wait_until
from support.share_client import Reader

from klamm.testing import EmbeddedBroker
from klamm_broker.log.record_rules import PACKED_AT_ONCE_BYTES
from klamm_kafka.wire.batch import HEADER_BYTES
from klamm_kafka.wire.errors import ErrorCode as E
from klamm_kafka.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from klamm_kafka.wire.messages.delete_groups import DeleteGroupsRequest
from klamm_kafka.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from klamm_kafka.wire.messages.find_coordinator import FindCoordinatorRequest
from klamm_kafka.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from klamm_kafka.wire.messages.share_fetch import FetchPartition, FetchTopic
from klamm_kafka.wire.messages.share_group_describe import ShareGroupDescribeRequest

ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4
SETTINGS = {"group.share.min.record.lock.duration.ms": "1000", "group.share.assignment.interval.ms": "0"}


@pytest.fixture(scope="module")
def broker():
    with EmbeddedBroker(config=SETTINGS) as running:
        yield running


@pytest.fixture
def reader(broker):
    with Reader(broker, new_name("share"), new_topic(broker)) as client:
        yield client.join()


@pytest.mark.parametrize("version", [1, 2])
def test_records_are_delivered_and_done(reader, version):
    reader.produce(b"a", b"b", b"c")
    acquired, values = reader.fetch(version)
    assert acquired == [(0, 2, 1)]
    assert values == {0: b"a", 1: b"b", 2: b"c"}
    assert reader.fetch(version) == ([], {}), "they are locked"
    assert reader.acknowledge((0, 2, [ACCEPT]), version=version) is E.NONE
    assert reader.start() == (0, 0), "as in Kafka, the stored start follows with the next report"
    reader.produce(b"d")
    assert reader.fetch(version)[0] == [(3, 3, 1)]
    assert reader.fetch(version, acks=[(3, 3, [ACCEPT])]) == ([], {})
    assert reader.ack_error == E.NONE
    assert reader.start() == (3, 0)


def test_released_records_come_again_until_they_are_given_up(reader):
    reader.produce(b"a", b"b", b"c")
    for count in range(1, 6):
        acquired, _ = reader.fetch()
        if count == 1:
            assert acquired == [(0, 2, 1)]
            assert reader.acknowledge((0, 2, [ACCEPT, RELEASE, REJECT])) is E.NONE
            assert reader.start() == (0, 1)
        else:
            assert acquired == [(1, 1, count)]
            assert reader.acknowledge((1, 1, [RELEASE])) is E.NONE
    assert reader.fetch() == ([], {})
    assert reader.start() == (1, 0)


def test_a_fetch_waits_for_new_and_for_released_records(broker, reader):
    reader.fetch()
    began = time.monotonic()
    reader.ask(wait_ms=20_000)
    with Reader(broker, reader.group, reader.topic) as other:
        other.produce(b"a")
        assert reader.told().responses[0].partitions[0].acquired_records[0].delivery_count == 1
        other.join()
        assert other.fetch() == ([], {})
        other.ask(wait_ms=20_000)
        reader.acknowledge((0, 0, [RELEASE]))
        assert other.told().responses[0].partitions[0].acquired_records[0].delivery_count == 2
    assert time.monotonic() - began < 15
    assert reader.fetch(wait_ms=20_000)[0] == [(0, 0, 3)], "the other connection has closed"


def test_locks_end_and_are_renewed(broker):
    with Reader(broker, new_name("share"), new_topic(broker), lock_ms=1_000) as reader:
        reader.join().produce(b"a", b"b")
        assert reader.fetch()[0] == [(0, 1, 1)]
        time.sleep(0.6)
        renew = {"most": 0, "min_bytes": 0, "max_bytes": 0, "is_renew_ack": True}
        assert reader.fetch(acks=[(1, 1, [RENEW])], **renew) == ([], {})
        assert reader.ack_error == E.NONE
        time.sleep(0.6)
        assert reader.fetch()[0] == [(0, 0, 2)]
        assert reader.fetch(wait_ms=3_000)[0] == [(1, 1, 2)]
        time.sleep(1.2)
        assert reader.acknowledge((0, 0, [ACCEPT])) is E.INVALID_RECORD_STATE


def test_a_record_limit_divides_batches(reader):
    reader.produce(*(b"%d" % i for i in range(10)))
    assert reader.fetch(most=4, limit=True)[0] == [(0, 3, 1)]
    assert reader.fetch(most=4, limit=True)[0] == [(4, 7, 1)]
    assert reader.fetch(most=4, limit=True)[0] == [(8, 9, 1)]
    reader.produce(*(b"%d" % i for i in range(10)))
    assert reader.fetch(most=4)[0] == [(10, 19, 1)], "otherwise batches are whole"


def test_the_first_answer_does_not_wait_for_all_partitions(broker):
    """Kafka's load one after another, and it answers with the first that has records."""
    topic = new_topic(broker, 2)
    with Reader(broker, new_name("share"), topic) as reader:
        reader.join()
        for partition in (0, 1):
            producer = Producer({"bootstrap.servers": broker.bootstrap})
            producer.produce(topic, b"x", partition=partition)
            assert producer.flush(60) == 0
        both = [FetchPartition(partition_index=0), FetchPartition(partition_index=1)]
        for found in ([0], [1], []):
            reader.ask(topics=[FetchTopic(topic_id=reader.topic_id, partitions=both)])
            told = [p for t in reader.told().responses for p in t.partitions]
            assert [p.partition_index for p in told if p.acquired_records] == found


def test_sessions_have_epochs(broker, reader):
    reader.fetch()
    reader.epoch += 1
    reader.ask()
    assert reader.told().error_code == E.INVALID_SHARE_SESSION_EPOCH
    assert reader.acknowledge() is E.INVALID_SHARE_SESSION_EPOCH
    reader.member = str(uuid.uuid4())
    reader.ask()
    assert reader.told().error_code == E.SHARE_SESSION_NOT_FOUND
    assert reader.acknowledge() is E.SHARE_SESSION_NOT_FOUND
    for member, group in (("", "g"), ("m" * 37, "g"), ("m", None)):
        reader.ask(member_id=member, group_id=group)
        assert reader.told().error_code == E.INVALID_REQUEST
    reader.epoch = 0
    reader.ask(acks=[(0, 0, [ACCEPT])])
    assert reader.told().error_code == E.INVALID_REQUEST
    assert reader.acknowledge() is E.INVALID_SHARE_SESSION_EPOCH


def test_the_end_of_a_session_gives_records_back(broker, reader):
    reader.produce(b"a", b"b")
    reader.fetch()
    reader.epoch = -1
    reader.ask(acks=[(0, 0, [ACCEPT])])
    [topic] = reader.told().responses
    assert topic.partitions[0].acknowledge_error_code == E.NONE
    reader.epoch = 0
    assert reader.fetch()[0] == [(1, 1, 2)]
    reader.epoch = -1
    assert reader.acknowledge() is E.NONE
    reader.epoch = 0
    assert reader.fetch()[0] == [(1, 1, 3)]


@pytest.mark.parametrize(
    ("ack", "error"),
    [
        ((0, 5, [ACCEPT]), E.INVALID_REQUEST),
        ((1, 0, [ACCEPT]), E.INVALID_REQUEST),
        ((0, 1, [ACCEPT, ACCEPT, ACCEPT]), E.INVALID_REQUEST),
        ((0, 1, [5]), E.INVALID_REQUEST),
        ((0, 1, []), E.INVALID_REQUEST),
        ((0, 1, [RENEW]), E.INVALID_REQUEST),
    ],
)
def test_wrong_acknowledgements_change_nothing(reader, ack, error):
    reader.produce(b"a", b"b")
    reader.fetch()
    assert reader.acknowledge(ack) is error
    assert reader.acknowledge((0, 1, [ACCEPT])) is E.NONE


def test_nobody_acknowledges_for_another(broker, reader):
    reader.produce(b"a")
    reader.fetch()
    with Reader(broker, reader.group, reader.topic) as other:
        other.join().fetch()
        assert other.acknowledge((0, 0, [ACCEPT])) is E.INVALID_RECORD_STATE
    assert reader.acknowledge((0, 0, [ACCEPT])) is E.NONE
    assert reader.acknowledge((0, 0, [ACCEPT])) is E.NONE, "it is behind the start"


def test_the_start_follows_deleted_records(reader):
    reader.produce(b"a", b"b")
    reader.produce(b"c")
    assert reader.fetch(most=1)[0] == [(0, 1, 1)]
    gone = DeleteRecordsTopic(
        name=reader.topic, partitions=[DeleteRecordsPartition(partition_index=0, offset=2)]
    )
    reader.request(DeleteRecordsRequest(topics=[gone], timeout_ms=5_000), 2)
    assert reader.fetch() == ([(2, 2, 1)], {2: b"c"})
    assert reader.acknowledge((2, 2, [ACCEPT])) is E.NONE


def test_groups_begin_where_they_are_told(broker):
    topic = new_topic(broker)
    with Reader(broker, new_name("share"), topic, **{"share.auto.offset.reset": "latest"}) as reader:
        reader.produce(b"a")
        assert reader.join().fetch() == ([], {})
        reader.produce(b"b")
        assert reader.fetch()[1] == {1: b"b"}
        for value in ("by_duration:PT1H", "by_duration:P36500D"):
            with Reader(broker, new_name("share"), topic, **{"share.auto.offset.reset": value}) as other:
                found = other.join().fetch()[1]
                assert found == ({0: b"a", 1: b"b"} if "P36500D" in value else {})


@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize("unpacked_in_a_thread", [False, True])
def test_a_start_that_meets_a_damaged_batch_is_told_and_tried_again(tmp_path, unpacked_in_a_thread):
    """Lookups by timestamp look into batches; the batch of this one is damaged on the disk, and mended later."""
    value = os.urandom(PACKED_AT_ONCE_BYTES + 1) if unpacked_in_a_thread else b"x" * 1000
    with EmbeddedBroker(tmp_path / "data", config=SETTINGS) as broker:
        topic, other = new_topic(broker), new_topic(broker)
        producer = Producer({"bootstrap.servers": broker.bootstrap, "compression.type": "gzip"})
        for name in (topic, other):
            producer.produce(name, value)
        assert producer.flush(60) == 0
        broker.stop()
        (path,) = broker.data_dir.glob(f"{topic}-0/*.log")
        data = bytearray(path.read_bytes())
        path.write_bytes(data[:HEADER_BYTES] + bytes(len(data) - HEADER_BYTES))
        broker.start()
        reset = {"share.auto.offset.reset": "by_duration:PT1H"}
        with Reader(broker, new_name("share"), topic, **reset) as reader:
            reader.join()
            for _ in range(2):
                began = time.monotonic()
                reader.ask(wait_ms=20_000)
                answer = reader.told()
                assert time.monotonic() - began < 15, "it waits for nothing"
                (told,) = answer.responses[0].partitions
                assert (answer.error_code, told.error_code) == (E.NONE, E.CORRUPT_MESSAGE)
                assert "looking up a timestamp failed" in told.error_message
            asked = [
                ListOffsetsTopic(name=n, partitions=[ListOffsetsPartition(partition_index=0, timestamp=1)])
                for n in (topic, other)
            ]
            answers = reader.request(ListOffsetsRequest(replica_id=-1, topics=asked), 7).topics
            assert [t.partitions[0].error_code for t in answers] == [E.CORRUPT_MESSAGE, E.NONE]
            path.write_bytes(data)
            assert len(reader.fetch(wait_ms=20_000, max_bytes=1 << 24)[1]) == 1


def test_offsets_are_set_while_nobody_reads(broker, reader):
    reader.produce(b"a", b"b", b"c")
    alter = AlterShareGroupOffsetsRequest(
        group_id=reader.group,
        topics=[
            AlterShareGroupOffsetsRequestTopic(
                topic_name=reader.topic,
                partitions=[AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=2)],
            )
        ],
    )
    assert reader.request(alter, 0).error_code == E.NON_EMPTY_GROUP
    reader.fetch()
    reader.heartbeat(-1)
    assert reader.request(alter, 0).error_code == E.NONE
    assert reader.start() == (2, 1)
    reader.epoch = 0
    assert reader.join().fetch()[0] == [(2, 2, 1)]
    reader.heartbeat(-1)
    [deleted] = reader.request(DeleteGroupsRequest(groups_names=[reader.group]), 2).results
    assert deleted.error_code == E.NONE
    [described] = reader.request(ShareGroupDescribeRequest(group_ids=[reader.group]), 1).groups
    assert described.error_code == E.GROUP_ID_NOT_FOUND


def test_share_partitions_have_a_coordinator(broker, reader):
    find = lambda key: reader.request(FindCoordinatorRequest(key_type=2, coordinator_keys=[key]), 6)
    assert find("g:" + "A" * 22 + ":0").coordinators[0].error_code == E.NONE
    assert find("nonsense").coordinators[0].error_code == E.INVALID_REQUEST


@pytest.mark.usefixtures("processes")
def test_what_was_acknowledged_survives_a_kill(tmp_path):
    with EmbeddedBroker(tmp_path / "data", config=SETTINGS) as broker:
        group, topic = new_name("share"), new_topic(broker)
        with Reader(broker, group, topic) as reader:
            reader.join().produce(b"a", b"b", b"c", b"d")
            assert reader.fetch()[0] == [(0, 3, 1)]
            assert reader.acknowledge((0, 2, [ACCEPT, RELEASE, ACCEPT])) is E.NONE
            broker.kill()  # while the reader is there: what it leaves would be written
        broker.start()
        with Reader(broker, group, topic) as reader:
            wait_until(lambda: reader.heartbeat(0, [topic]).error_code == E.NONE, "the group is loaded")
            reader.join()
            assert reader.start() == (0, 2)
            assert sorted(reader.fetch()[0]) == [(1, 1, 2), (3, 3, 1)]
