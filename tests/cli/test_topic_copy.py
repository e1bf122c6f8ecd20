"""`klamm topic copy` and `analyse` where something comes between: all that is there is read, and what is not is said."""

from __future__ import annotations

import json
import re
import types

import confluent_kafka
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from support.broker import new_name, new_topic
from support.klamm import klamm
from typer.testing import CliRunner

from klamm.cli import topic_reading
from klamm.cli.cluster import Cluster
from klamm.cli.main import app
from klamm.cli.topic_records import _Sender
from klamm_base.errors import KlammError

pytestmark = pytest.mark.usefixtures("processes")


def filled(broker, number, partitions=1, **settings):
    topic = new_topic(broker, partitions)
    producer = Producer({"bootstrap.servers": broker.bootstrap, **settings})
    for n in range(number):
        producer.produce(topic, b"%d" % n, partition=n % partitions)
    assert producer.flush(60) == 0
    return topic


def count(broker, topic):
    reader = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": new_name()})
    low, high = reader.get_watermark_offsets(TopicPartition(topic, 0), 30)
    reader.close()
    return high - low


def in_process(*words):
    done = CliRunner().invoke(app, list(words))
    return done.exit_code, done.output


def test_records_behind_a_new_start_are_copied(broker, monkeypatch):
    """First records are deleted between the question for the ends and the first fetch."""
    topic, to = filled(broker, 10), new_topic(broker)

    class Trimmed(Consumer):
        def assign(self, places):
            admin = AdminClient({"bootstrap.servers": broker.bootstrap})
            for future in admin.delete_records([TopicPartition(topic, 0, 4)]).values():
                future.result(60)
            super().assign(places)

    monkeypatch.setattr(confluent_kafka, "Consumer", Trimmed)
    code, said = in_process("topic", "copy", topic, to, "-b", broker.bootstrap)
    assert (code, said) == (0, f"6 records copied from {topic} to {to}\n")


def test_a_topic_is_not_copied_to_itself_by_another_name_of_its_broker(broker):
    topic = filled(broker, 3)
    words = ["topic", "copy", topic, topic, "-b", broker.bootstrap, "--to-bootstrap-server"]
    done = klamm(*words, broker.bootstrap.replace("127.0.0.1", "localhost"))
    assert (done.returncode, done.stderr) == (1, "klamm: a topic is not copied to itself\n")
    assert count(broker, topic) == 3


def test_a_record_is_copied_that_java_may_write(broker):
    topic, to = new_topic(broker), new_topic(broker)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "message.max.bytes": 2_000_000})
    producer.produce(topic, b"x" * 1_030_000)
    assert producer.flush(60) == 0
    done = klamm("topic", "copy", topic, to, "-b", broker.bootstrap)
    assert (done.returncode, done.stdout) == (0, f"1 record copied from {topic} to {to}\n"), done.stderr


def test_a_copy_that_fails_tells_how_far_it_came(broker):
    topic, to = filled(broker, 4, partitions=2), new_topic(broker)
    done = klamm("topic", "copy", topic, to, "-b", broker.bootstrap)
    assert done.returncode == 1
    said = f"record(s)? copied, then {to} has 1 partitions and none of number 1: give --by-key\n"
    assert re.match(r"klamm: [0-2] " + said, done.stderr)


def test_an_open_transaction_is_told(broker):
    topic, to = filled(broker, 2), new_topic(broker)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": new_name()})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, b"open")
    producer.flush(60)
    done = klamm("topic", "copy", topic, to, "-b", broker.bootstrap)
    assert (done.returncode, done.stdout) == (0, f"2 records copied from {topic} to {to}\n")
    assert done.stderr == f"klamm: {topic}-0 was copied up to offset 2: a transaction is open there\n"
    producer.abort_transaction(60)
    done = klamm("topic", "copy", topic, to, "-b", broker.bootstrap)
    assert (done.stdout, done.stderr) == (f"2 records copied from {topic} to {to}\n", "")
    assert (
        json.loads(klamm("topic", "analyse", topic, "-o", "json", "-b", broker.bootstrap).stdout)["records"]
        == 3
    )


def test_a_slow_taker_is_no_silent_broker(broker, monkeypatch):
    topic = filled(broker, 5)
    monkeypatch.setattr(topic_reading, "IDLE_S", 0.05)
    with topic_reading.records_of(Cluster(bootstrap=broker.bootstrap), topic, None, None) as records:
        for _ in records:
            topic_reading.time.sleep(0.1)


class Answers:
    """A consumer of one partition that gives these messages."""

    def __init__(self, *messages):
        self.left = [*messages]

    def assign(self, places):
        pass

    def incremental_unassign(self, places):
        pass

    def consume(self, _number, _seconds):
        return [self.left.pop(0)]


def message(offset, code=None, topic="t"):
    error = None if code is None else types.SimpleNamespace(code=lambda: code, str=lambda: "refused")
    return types.SimpleNamespace(
        error=lambda: error, topic=lambda: topic, partition=lambda: 0, offset=lambda: offset
    )


def test_a_reader_of_a_topic_needs_no_right_to_a_group():
    refusal = message(-1, code=30, topic=None)
    records = topic_reading.Records(Answers(refusal, message(0)), "t", None, {0: 0}, {0: 1})
    assert [m.offset() for m in records] == [0]
    with pytest.raises(KlammError, match="cannot read t: refused"):
        list(topic_reading.Records(Answers(message(-1, code=29)), "t", None, {0: 0}, {0: 1}))


def test_a_topic_that_was_made_anew_is_not_read_twice():
    records = topic_reading.Records(Answers(message(5), message(0)), "t", None, {0: 5}, {0: 9})
    with pytest.raises(KlammError, match="cannot read t-0: it was cut or made anew meanwhile"):
        list(records)


def test_bytes_on_disk_that_are_not_told_are_no_error(broker, monkeypatch):
    from klamm.admin import records

    async def refused(*_):
        raise KlammError("not authorized")

    monkeypatch.setattr(records, "describe_log_dirs", refused)
    code, said = in_process("topic", "analyse", filled(broker, 2), "-o", "csv", "-b", broker.bootstrap)
    assert code == 0
    assert "the bytes on disk are not known: not authorized" in said
    assert "records,2\n" in said


def test_a_refused_record_is_said_once():
    sender = _Sender(types.SimpleNamespace(flush=lambda _: 0), "t", None)
    sender._delivered(types.SimpleNamespace(str=lambda: "too large"), None)
    with pytest.raises(KlammError, match="a record failed: too large"):
        sender.send(message(0))
