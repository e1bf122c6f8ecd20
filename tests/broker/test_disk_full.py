"""A disk that is really full: a broker on a small tmpfs that is filled and freed while clients go on."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic
from support.broker import new_topic, wait_until
from support.raw import RawClient

from klamm.testing import EmbeddedBroker
from klamm_broker.log import checkpoints
from klamm_kafka.wire.batch import Record, encode_batch
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.init_producer_id import InitProducerIdRequest
from klamm_kafka.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from klamm_kafka.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

SIZE_MB = 24
RETRIABLE = {
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.KAFKA_STORAGE_ERROR,
}


@pytest.fixture
def small_disk(processes, tmp_path):
    """Yields a file system of 24 MB. Needs the right to mount one."""
    if sys.platform != "linux":
        pytest.skip("tmpfs is Linux's")
    path = tmp_path / "disk"
    path.mkdir()
    if not shutil.which("mount") or not shutil.which("umount"):
        pytest.skip("mount is not installed (Debian: apt-get install mount)")
    options = f"size={SIZE_MB}m"
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(path)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip(
            f"cannot mount a tmpfs; run the test as root, in a container with CAP_SYS_ADMIN: {mounted.stderr.decode().strip()}"
        )
    yield path
    subprocess.run(["umount", "-l", str(path)], check=True)


class Filler:
    """Takes all the room there is, and gives it back."""

    def __init__(self, disk: Path) -> None:
        self._path = disk / "filler"

    def fill(self) -> None:
        chunk = 1 << 16
        with self._path.open("ab", buffering=0) as file:
            while chunk:
                try:
                    file.write(bytes(chunk))
                except OSError:
                    chunk //= 2

    def free(self) -> None:
        self._path.unlink()


def produce(client, topic, value):
    batch = encode_batch([Record(timestamp=int(time.time() * 1000), value=value)])
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=batch)])
    answer = client.request(ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[data]), 9)
    return ErrorCode(answer.responses[0].partition_responses[0].error_code)


def commit(client, topic, offset):
    wanted = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    request = OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=-1,
        topics=[OffsetCommitRequestTopic(name=topic, partitions=[wanted])],
    )
    return ErrorCode(client.request(request, 8).topics[0].partitions[0].error_code)


def values(broker, topic):
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "reader", "auto.offset.reset": "earliest",
         "enable.auto.commit": False, "enable.partition.eof": True, "fetch.wait.max.ms": 50}
    )  # fmt: skip
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = []
    while True:
        message = consumer.poll(60)
        assert message is not None
        if message.error():
            break
        found.append(message.value())
    consumer.close()
    return found


@pytest.mark.parametrize("durability", ["process", "fsync"])
def test_a_full_disk_loses_nothing_and_mends_itself(small_disk, durability):
    filler = Filler(small_disk)
    config = {
        "durability": durability,
        "log.flush.offset.checkpoint.interval.ms": "200",
        "num.partitions": "1",
    }
    with EmbeddedBroker(small_disk / "data", config=config) as broker:
        topic = new_topic(broker)
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        with RawClient(broker.port) as client:
            acknowledged = []

            def send(size):
                value = b"%d " % len(acknowledged) + b"x" * size
                error = produce(client, topic, value)
                if error is ErrorCode.NONE:
                    acknowledged.append(value)
                return error

            assert send(100_000) is ErrorCode.NONE
            assert commit(client, topic, 1) is ErrorCode.NONE
            filler.fill()
            said = len(broker.log_text)
            assert {send(100_000) for _ in range(20)} == {ErrorCode.KAFKA_STORAGE_ERROR}
            assert broker.log_text[said:].count("Each further append tries again") == 1, (
                "said once, not twenty times"
            )
            while commit(client, topic, 2) is ErrorCode.NONE:  # a page of the log may have room for some
                pass
            assert {commit(client, topic, 3) for _ in range(5)} <= RETRIABLE
            assert values(broker, topic) == acknowledged
            with pytest.raises(KafkaException):
                admin.create_topics([NewTopic("new", 1, 1)])["new"].result(60)
            changed = ConfigResource(
                "topic",
                topic,
                incremental_configs=[
                    ConfigEntry("retention.ms", "123456", incremental_operation=AlterConfigOpType.SET)
                ],
            )
            with pytest.raises(KafkaException):
                admin.incremental_alter_configs([changed])[changed].result(60)
            for transactional_id in (None, "tx"):
                asked = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=1000)
                error = ErrorCode(client.request(asked, 4).error_code)
                assert error in RETRIABLE | {ErrorCode.CONCURRENT_TRANSACTIONS} or (
                    error is ErrorCode.NONE and transactional_id is None
                )
            time.sleep(0.5)  # checkpoints are tried meanwhile
            assert broker.running

            filler.free()
            wait_until(lambda: send(1000) is ErrorCode.NONE, "the broker takes records again", timeout_s=60)
            assert send(100_000) is ErrorCode.NONE
            wait_until(lambda: commit(client, topic, 4) is ErrorCode.NONE, "commits are taken again")
            admin.create_topics([NewTopic("new", 1, 1)])["new"].result(60)
            asked = InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=1000)
            wait_until(lambda: client.request(asked, 4).error_code == 0, "transactions go on", timeout_s=60)
            assert values(broker, topic) == acknowledged
            assert "Traceback" not in broker.log_text
        files_are_whole(small_disk / "data")

        filler.fill()
        with RawClient(broker.port) as client:
            assert produce(client, topic, b"x" * 500_000) is ErrorCode.KAFKA_STORAGE_ERROR
        broker.kill()
        filler.free()
        broker.start()
        assert values(broker, topic) == acknowledged


def files_are_whole(data):
    json.loads((data / "klamm-topics.json").read_text())
    for name in (checkpoints.RECOVERY_POINT, checkpoints.HIGH_WATERMARK, checkpoints.LOG_START_OFFSET):
        if (data / name).exists():
            checkpoints.read_offsets(data / name)


def test_a_producer_goes_on_when_there_is_room_again(small_disk):
    """librdkafka retries KAFKA_STORAGE_ERROR by itself: nothing is lost and nothing is there twice."""
    filler = Filler(small_disk)
    with EmbeddedBroker(small_disk / "data", config={"num.partitions": "1"}) as broker:
        topic = new_topic(broker)
        failed = []
        producer = Producer(
            {"bootstrap.servers": broker.bootstrap, "enable.idempotence": True, "linger.ms": 1,
             "retry.backoff.ms": 20, "retry.backoff.max.ms": 100}
        )  # fmt: skip
        wanted = [b"%d " % n + b"x" * 20_000 for n in range(100)]
        for number, value in enumerate(wanted):
            if number == 30:
                producer.flush(60)
                filler.fill()
            if number == 60:
                time.sleep(0.3)
                filler.free()
            producer.produce(
                topic, value, on_delivery=lambda error, _: failed.append(error) if error else None
            )
            producer.poll(0)
        assert producer.flush(60) == 0
        assert not failed
        assert values(broker, topic) == wanted


def test_a_disk_that_is_full_when_the_broker_starts_and_stops(small_disk):
    filler = Filler(small_disk)
    broker = EmbeddedBroker(small_disk / "data", config={"num.partitions": "1"})
    with broker:
        topic = new_topic(broker)
        with RawClient(broker.port) as client:
            assert produce(client, topic, b"first") is ErrorCode.NONE
            filler.fill()
            while produce(client, topic, b"more" * 300) is ErrorCode.NONE:
                pass
        before = values(broker, topic)
        broker.stop()
        filler.free()
        broker.start()
        assert values(broker, topic) == before
    assert shutil.disk_usage(small_disk).total == SIZE_MB << 20


def last_epoch_of(broker, topic):
    """Returns the leader epoch that wrote the last record of the topic."""
    lines = (log_directory(broker) / f"{topic}-0" / "leader-epoch-checkpoint").read_text().splitlines()
    return int(lines[-1].split()[0])


def log_directory(broker):
    return Path(broker.config["log.dirs"])


@pytest.mark.parametrize("durability", ["process", "fsync"])
@pytest.mark.parametrize("how", ["kill", "stop"])
def test_a_broker_starts_and_stops_without_a_byte_of_room(small_disk, tmp_path, how, durability):
    """Again and again: what is there is read, nothing more is taken, and then all goes on in a new leader epoch."""
    filler = Filler(small_disk)
    config = {
        "log.dirs": str(small_disk / "data"),
        "durability": durability,
        "num.partitions": "1",
        "log.segment.bytes": "1048576",
    }
    broker = EmbeddedBroker(tmp_path / "beside", config=config)  # which is where it logs
    end = broker.kill if how == "kill" else broker.stop
    with broker:
        topic = new_topic(broker)
        acknowledged = [b"%d " % n + b"x" * 100_000 for n in range(25)]
        producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
        for value in acknowledged:
            producer.produce(topic, value)
        assert producer.flush(60) == 0
        with RawClient(broker.port) as client:
            assert commit(client, topic, 1) is ErrorCode.NONE
        before = last_epoch_of(broker, topic)
        filler.fill()
        for _ in range(2):
            assert not end()
            assert shutil.disk_usage(small_disk).free < 4096 or how == "stop"
            filler.fill()
            broker.start()
            assert values(broker, topic) == acknowledged
            with RawClient(broker.port) as client:
                assert {produce(client, topic, b"x" * 9000) for _ in range(5)} == {
                    ErrorCode.KAFKA_STORAGE_ERROR
                }
                assert commit(client, topic, 3) in RETRIABLE
        assert last_epoch_of(broker, topic) == before, "nothing was written in the epochs of the starts since"
        assert "Each further append tries again" in broker.log_text
        filler.free()
        with RawClient(broker.port) as client:
            wait_until(lambda: produce(client, topic, b"more") is ErrorCode.NONE, "it takes records")
            wait_until(lambda: commit(client, topic, 4) is ErrorCode.NONE, "it takes commits", timeout_s=60)
        assert values(broker, topic) == [*acknowledged, b"more"]
        epoch = last_epoch_of(broker, topic)
        assert epoch > before
        broker.kill()
        broker.start()
        with RawClient(broker.port) as client:
            assert produce(client, topic, b"last") is ErrorCode.NONE
        assert last_epoch_of(broker, topic) > epoch
    assert "Traceback" not in broker.log_text
    assert ("not everything could be written" in broker.log_text) == (how == "stop")
    files_are_whole(small_disk / "data")
