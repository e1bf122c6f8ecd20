"""`__consumer_offsets` in both directions: ours reads what Apache Kafka wrote, Kafka's tool reads ours."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from support import kafka_oracle
from support.archive import unpack
from support.broker import new_topic

from klamm.testing import EmbeddedBroker
from klamm_kafka.client.connection import Connection
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup

FIXTURES = Path(__file__).parent.parent / "fixtures/kafka-4.3.1"


@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize("archive", ["clean", "killed"])
def test_committed_offsets_of_a_kafka_are_ours(tmp_path, archive):
    data = tmp_path / "data"
    unpack(FIXTURES / f"{archive}.tar.xz", data)
    with EmbeddedBroker(data) as broker:
        consumer = Consumer(
            {"bootstrap.servers": broker.bootstrap, "group.id": "fixture-group", "log_level": 0}
        )
        (found,) = consumer.committed([TopicPartition("codecs", 0)], timeout=60)
        assert (found.offset, found.metadata) == (42, "half way")
        consumer.commit(offsets=[TopicPartition("codecs", 0, 43)], asynchronous=False)
        broker.kill()
        broker.start()
        (found,) = consumer.committed([TopicPartition("codecs", 0)], timeout=60)
        assert found.offset == 43
        consumer.close()


@pytest.mark.usefixtures("processes")
async def test_groups_of_a_damaged_log_stay_unavailable(tmp_path):
    """Serving them from a part of their records would take offsets back."""
    with EmbeddedBroker(tmp_path / "data", config={"offsets.topic.num.partitions": "1"}) as broker:
        topic = new_topic(broker, 1)
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g", "log_level": 0})
        for offset in (1, 2):
            consumer.commit(offsets=[TopicPartition(topic, 0, offset, "find me")], asynchronous=False)
        consumer.close()
        broker.stop()
        path = tmp_path / "data/__consumer_offsets-0/00000000000000000000.log"
        path.write_bytes(path.read_bytes().replace(b"find me", b"find he", 1))
        broker.start()
        async with await Connection.open("127.0.0.1", broker.port) as conn:
            request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
            answer = await conn.request(request, version=8)
            assert answer.groups[0].error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert "__consumer_offsets-0 cannot be read, what is in it stays unavailable" in broker.log_text


@pytest.mark.usefixtures("apache_kafka")
def test_kafka_decodes_our_records(tmp_path):
    oracle = kafka_oracle.require()
    with EmbeddedBroker(tmp_path / "data", config={"offsets.topic.num.partitions": "1"}) as broker:
        topic = new_topic(broker, 1)
        config = {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "dumped",
            "group.instance.id": "i",
            "client.id": "me",
            "log_level": 0,
        }
        consumer = Consumer(config)
        consumer.subscribe([topic])
        while not consumer.assignment():
            consumer.poll(0.05)
        consumer.commit(offsets=[TopicPartition(topic, 0, 7, "note")], asynchronous=False)
        consumer.close()
    log = tmp_path / "data/__consumer_offsets-0/00000000000000000000.log"
    dump = oracle.run(kafka_oracle.DUMP_LOG, "--offsets-decoder", "--deep-iteration", "--files", str(log))
    assert dump.returncode == 0, dump.stderr
    lines = [line for line in dump.stdout.splitlines() if "payload:" in line]
    assert len(lines) == 2, dump.stdout
    group, offset = lines
    for text in (
        '"group":"dumped"',
        '"groupInstanceId":"i"',
        '"protocol":"range"',
        '"clientHost":"/127.0.0.1"',
    ):
        assert text in group
    for text in (f'"topic":"{topic}"', '"offset":7', '"metadata":"note', '"topicId":"'):
        assert text in offset
