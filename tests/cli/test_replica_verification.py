"""kafka-replica-verification: batches of replicas compared, as Kafka's own command compares them on the same cluster."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from support.broker import new_topic
from support.kafka_broker import KafkaBroker
from support.kafka_cluster import SecondNode
from support.kafka_oracle import write_log4j

from klamm.admin.model import TopicPartition
from klamm.kafka_tools import run as kafka_tools
from klamm.kafka_tools.replica_verification import ReplicasDiffer, Verifier
from klamm_kafka.wire.batch import Record, encode_batch
from klamm_kafka.wire.messages.fetch import PartitionData

TP = TopicPartition("t", 0)
KLAMM = str(Path(sys.executable).with_name("klamm"))
THEIRS = "org.apache.kafka.tools.ReplicaVerificationTool"


def data(*values: bytes, high: int | None = None, apart: int = 1) -> PartitionData:
    """Returns an answer with a batch for each value."""
    batches = [encode_batch([Record(value=v)], base_offset=n * apart) for n, v in enumerate(values)]
    high_watermark = len(values) * apart if high is None else high
    return PartitionData(partition_index=0, high_watermark=high_watermark, records=b"".join(batches))


def test_equal_replicas_move_on_to_what_all_of_them_have():
    verifier = Verifier({TP: 0})
    assert not list(verifier.compare({1: {TP: data(b"a", b"b", b"c")}, 2: {TP: data(b"a", b"b", high=2)}}))
    assert verifier.offsets == {TP: 2}
    assert verifier.report() == "max lag is 1 for partition t-0 at offset 2 among 1 partitions"


def test_nothing_above_a_high_watermark_is_compared():
    verifier = Verifier({TP: 0})
    assert not list(verifier.compare({1: {TP: data(b"a", b"b")}, 2: {TP: data(b"a", b"x", high=1)}}))
    assert verifier.offsets == {TP: 1}


def test_a_replica_without_an_answer_holds_all_up():
    verifier = Verifier({TP: 0})
    nothing = PartitionData(partition_index=0, high_watermark=-1, records=None)
    assert not list(verifier.compare({1: {TP: data(b"a")}, 2: {TP: nothing}}))
    assert verifier.report() == "max lag is 1 for partition t-0 at offset 0 among 1 partitions"
    assert not list(verifier.compare({1: {TP: nothing}, 2: {TP: nothing}}))
    assert verifier.report() == "max lag is -1 for partition null at offset -1 among 1 partitions"


def test_what_differs_is_said():
    verifier = Verifier({TP: 0})
    (line,) = verifier.compare({1: {TP: data(b"a", b"b")}, 2: {TP: data(b"a", b"x")}})
    assert re.fullmatch(
        r"partition t-0 has unmatched checksum at offset 1; replica 1's checksum \d+; replica 2's checksum \d+", line
    )  # fmt: skip
    with pytest.raises(
        ReplicasDiffer, match="partition t-0: replica 1's offset 1 doesn't match replica 2's offset 2"
    ):
        list(Verifier({TP: 0}).compare({1: {TP: data(b"a", b"b")}, 2: {TP: data(b"a", b"b", apart=2)}}))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "REQUIRED"),
        (["--topics-include", "t"], "broker-list"),
        (["--broker-list", "nonsense"], "Please provide valid host:port like host1:9091,host2:9092"),
        (["--broker-list", "127.0.0.1:1", "--topics-include", "("], "( is an invalid regex"),
    ],
)
def test_command_lines_that_make_no_sense(words, said, capsys):
    assert kafka_tools.main("kafka-replica-verification", words) == 1
    assert said in capsys.readouterr().err


def followed(command: list[str], lines: int, work: Path) -> list[str]:
    """Returns the first lines that a command prints, without their times."""
    with (work / "err").open("ab") as err:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=err, text=True)
    try:
        read = [process.stdout.readline().rstrip("\n") for _ in range(lines)]
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    assert all(re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}: ", line) for line in read), read
    return [line[25:] for line in read]


def test_a_broker_of_ours_agrees_with_itself(broker, tmp_path):
    topic = new_topic(broker, 1)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(topic, b"x")
    assert producer.flush(30) == 0
    command = [
        KLAMM,
        "kafka-replica-verification",
        "--broker-list",
        broker.bootstrap,
        "--topics-include",
        topic,
    ]
    command += ["--time", "-2", "--report-interval-ms", "1", "--max-wait-ms", "100"]
    assert followed(command, 2, tmp_path) == [
        "verification process is started", f"max lag is 0 for partition {topic}-0 at offset 1 among 1 partitions",
    ]  # fmt: skip


@pytest.mark.usefixtures("apache_kafka")
@pytest.mark.timeout(180)
def test_both_commands_say_the_same_of_replicas_that_differ(tmp_path):
    (tmp_path / "a").mkdir()
    with KafkaBroker(tmp_path / "a") as kafka, SecondNode(kafka, tmp_path / "b") as second:
        admin = AdminClient({"bootstrap.servers": kafka.address, "log_level": 2})
        admin.create_topics([NewTopic("t", 1, replica_assignment=[[1, 2]])])["t"].result(30)
        producer = Producer({"bootstrap.servers": kafka.address, "log_level": 2})
        for n in range(3):
            producer.produce("t", b"value%d" % n)
            assert producer.flush(30) == 0

        common = ["--broker-list", kafka.address, "--topics-include", "t", "--time", "-2"]
        common += ["--report-interval-ms", "500", "--max-wait-ms", "200"]
        theirs = kafka.oracle.command(THEIRS, *common, heap="-Xmx128M", log4j=write_log4j(tmp_path))
        ours = [KLAMM, "kafka-replica-verification", *common]
        good = followed(theirs, 2, tmp_path)
        assert good[1] == "max lag is 0 for partition t-0 at offset 3 among 1 partitions"
        assert followed(ours, 2, tmp_path) == good

        second.stop()
        file = tmp_path / "b/data/t-0/00000000000000000000.log"
        other = b"".join(
            bytes(encode_batch([Record(value=b"other%d" % n, timestamp=int(time.time() * 1000))], base_offset=n)) for n in range(3)
        )  # fmt: skip
        kept = file.read_bytes()
        assert len(other) == len(kept)
        file.write_bytes(other)
        second.start()
        bad = followed(theirs, 5, tmp_path)
        assert "has unmatched checksum at offset 2; replica 1's checksum" in bad[3]
        assert followed(ours, 5, tmp_path) == bad
