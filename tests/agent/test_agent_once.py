"""No line twice: agents that are killed, on real brokers. `./dev soak agent` does it two hundred times."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections import Counter
from pathlib import Path

import pytest
from agent.harness import Writer, arrived
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic
from support.agent_soak import lines_of
from support.broker import new_name, new_topic, wait_until
from support.kafka_broker import KafkaBroker

from klamm.testing import EmbeddedBroker
from klamm_agent.config.producer import ProducerSettings
from klamm_agent.config.spool import SpoolSettings
from klamm_agent.delivery.batches import Origin
from klamm_agent.delivery.sender import Sender
from klamm_agent.delivery.wal.log import WriteAheadLog
from klamm_agent.report import report
from klamm_kafka.wire.compression import Compression

pytestmark = pytest.mark.usefixtures("processes")


def write(path: Path, name: str, count: int, first: int = 0) -> set[str]:
    path.parent.mkdir(parents=True, exist_ok=True)
    ids = [f"{name}-{i:08d}" for i in range(first, first + count)]
    with path.open("a") as file:
        file.writelines(f"{one} {'x' * 80}\n" for one in ids)
    return set(ids)


def once(found: Counter[str], expected: set[str]) -> None:
    assert expected - found.keys() == set(), "missing"
    assert {line: times for line, times in found.items() if times != 1} == {}, "twice"
    assert found.keys() == expected


def test_three_kills_while_a_hundred_thousand_lines_are_read(agent, broker):
    topic = new_topic(broker, 2)
    a = agent(broker.bootstrap, topic)
    expected = set()
    for i in range(4):
        a.start()
        a.begun()
        expected |= write(a.folder / "logs/x.log", "a", 25_000, 25_000 * i)
        wait_until(lambda: a.status()["acked"] > 0, "the first of them")
        a.kill()
    a.start()
    a.caught_up()
    assert a.stop() == 0
    once(arrived(broker.bootstrap, topic), expected)
    assert a.status()["unproved"] == 0


def test_on_apache_kafka(agent, tmp_path, apache_kafka):
    """Kafka is restarted in order while the agent is dead: it remembers only the last batch of a producer then."""
    (tmp_path / "kafka").mkdir()
    with KafkaBroker(tmp_path / "kafka") as kafka:
        topic = new_name()
        admin = AdminClient({"bootstrap.servers": kafka.address})
        admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(60)
        a = agent(kafka.address, topic)
        writer = Writer(a.folder / "logs/x.log", "w", rate=20_000)
        writer.start()
        for i in range(6):
            a.start()
            a.begun()
            wait_until(lambda: a.status().get("acked", 0) > 1000, "lines")
            time.sleep(i * 0.03)
            a.kill()
            if i % 3 == 1:
                kafka.stop()
                kafka.start()
        writer.finish()
        a.start()
        a.caught_up()
        assert a.stop() == 0
        once(arrived(kafka.address, topic), writer.ids())


def test_requests_of_a_dead_agent_that_come_late(agent, tmp_path):
    """The broker stands still; the agent is killed and started while its requests lie in the broker's socket."""
    with EmbeddedBroker(tmp_path / "own" / "data") as broker:
        topic = new_topic(broker)
        a = agent(broker.bootstrap, topic)
        expected = write(a.folder / "logs/x.log", "a", 1000)
        a.start()
        a.caught_up()
        for i in range(3):
            os.kill(broker.pid, signal.SIGSTOP)
            expected |= write(a.folder / "logs/x.log", "a", 20_000, 1000 + i * 20_000)
            wait_until(lambda: a.status()["queued_bytes"] > 0, "lines to be under way")
            time.sleep(0.3)  # no figure says that a request is in the socket
            a.kill()
            a.start()
            os.kill(broker.pid, signal.SIGCONT)
            a.begun()
        a.caught_up()
        assert a.stop() == 0
        once(arrived(broker.bootstrap, topic), expected)


def test_dead_letters_keys_and_filters(agent, broker):
    topic, dead = new_topic(broker, 3), new_topic(broker, 2)
    a = agent(
        broker.bootstrap,
        topic,
        more=(
            'format = "json"\nkey = "path"\nexclude_lines = ["5 x"]\n'
            f'dead_letter_topic = "{dead}"\n[[inputs.parse]]\ntype = "regex"\n'
            "pattern = '^(?<id>[a-z]-\\d+[1-9]) '\non_error = \"dead_letter\"\n"
        ),
    )
    expected = set().union(*(write(a.folder / f"logs/{n}.log", n, 30_000) for n in "abc"))
    for _ in range(4):
        a.start()
        a.begun()
        wait_until(lambda: a.status().get("acked", 0) > 3000, "lines")
        a.kill()
    a.start()
    a.caught_up()
    assert a.stop() == 0
    kept = {line for line in expected if not line.endswith("5")}
    once(lines_of(broker.bootstrap, topic), {line for line in kept if not line.endswith("0")})
    once(lines_of(broker.bootstrap, dead), {line for line in kept if line.endswith("0")})
    (rule,) = {(e["reason"], e["lines"]) for e in report(a.state)["policy"] if e["path"].endswith("a.log")}
    assert rule[1] == 3000, "the counts of filters outlive kills, too"


@pytest.mark.parametrize("spool", ["", 'when = "always"\nfsync = false\n'])
def test_spooled_batches_come_once(agent, tmp_path, spool):
    with EmbeddedBroker(tmp_path / "own" / "data") as broker:
        topic = new_topic(broker, 2)
        a = agent(broker.bootstrap, topic, more=f"[spool]\n{spool}")
        writer = Writer(a.folder / "logs/x.log", "w", rate=20_000)
        writer.start()
        for i in range(4):
            a.start()
            a.begun()
            wait_until(lambda: a.status().get("acked", 0) > 1000, "lines")
            broker.kill()
            wait_until(lambda: a.status().get("spool_records", 0) > 1000, "the spool")
            if i % 2:
                a.kill()
                a.start()
            broker.start()
            acked = a.status()["acked"]
            wait_until(lambda: a.status()["acked"] > acked, "the spool to be sent")
            a.kill()
        writer.finish()
        a.start()
        a.caught_up()
        wait_until(lambda: a.status()["spool_records"] == 0, "the spool to be empty")
        assert a.stop() == 0
        once(arrived(broker.bootstrap, topic), writer.ids())


def test_what_cannot_be_proved_is_said_and_counted(agent, broker):
    """The registry is not the one that the log knows, as after a power cut that the log did not survive."""
    topic = new_topic(broker)
    a = agent(broker.bootstrap, topic)
    expected = write(a.folder / "logs/x.log", "a", 10_000)
    a.start()
    a.caught_up()
    a.kill()
    shutil.copytree(a.state / "wal", a.folder / "wal.old")
    expected |= write(a.folder / "logs/x.log", "a", 10_000, 10_000)
    a.start()
    a.has_acknowledged(a.folder / "logs/x.log")
    a.kill()
    shutil.rmtree(a.state / "wal")
    (a.folder / "wal.old").rename(a.state / "wal")
    expected |= write(a.folder / "logs/x.log", "a", 10, 20_000)
    a.start()
    a.caught_up()
    assert "the write-ahead log does not know registry.json" in a.log
    assert a.stop() == 0
    found = arrived(broker.bootstrap, topic)
    assert expected == found.keys()


def test_a_topic_that_was_made_again_leaves_doubt(agent, tmp_path):
    """The broker does not know the producer any more, although its first batches were acknowledged."""
    with EmbeddedBroker(tmp_path / "own" / "data") as broker:
        topic = new_topic(broker)
        a = agent(broker.bootstrap, topic)
        write(a.folder / "logs/x.log", "a", 1000)
        a.start()
        a.caught_up()
        os.kill(broker.pid, signal.SIGSTOP)
        expected = write(a.folder / "logs/x.log", "b", 1000)
        wait_until(lambda: a.status()["queued_bytes"] > 0, "lines to be under way")
        time.sleep(0.3)  # no figure says that a request is in the socket
        a.kill()
        os.kill(broker.pid, signal.SIGCONT)
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.delete_topics([topic])[topic].result(60)
        new_topic(broker, name=topic)
        a.start()
        a.caught_up()
        wait_until(lambda: a.status()["acked"] >= 1000, "the lines")
        assert a.status()["unproved"] == 1000
        assert "1000 lines are sent again and may come twice" in a.log
        assert a.stop() == 0
        once(arrived(broker.bootstrap, topic), expected)


ORIGIN = Origin("/x.log", (1, 2), 0, 100)


class Life:
    """A sender over a write-ahead log. It learns of no acknowledgement, as if the agent were killed just before, unless it `learns`."""

    def __init__(
        self, folder: Path, bootstrap: str, *, spool: SpoolSettings | None = None, learns: bool = False
    ) -> None:
        self.wal = WriteAheadLog(folder)
        if self.wal.is_empty:
            self.wal.begin_anew(None)
        if not learns:
            self.wal.acknowledged = lambda number: None
        self.refused: list[int] = []
        settings = ProducerSettings(codec=Compression.NONE)
        self.sender = Sender(
            bootstrap,
            settings,
            queue_bytes=1 << 20,
            topics=1,
            refused=lambda receipt, size: self.refused.append(size),
            wal=self.wal,
            spool=spool,
        )

    def send(self, topic: str, values: list[bytes]) -> None:
        self.sender.send(topic, values, sum(map(len, values)), None, ORIGIN)
        self.sender.commit()

    def end(self) -> dict[str, int]:
        """Waits until all is settled; returns the figures."""
        assert self.sender.drain(60), self.sender.troubles
        self.close()
        return self.sender.figures()

    def close(self) -> None:
        self.sender.close()
        self.wal.close()


def limit(broker, topic: str, most: int) -> None:
    entry = ConfigEntry("max.message.bytes", str(most), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.incremental_alter_configs([resource])[resource].result(60)


@pytest.mark.parametrize("most", [1800, 1000])
def test_a_batch_that_was_sent_in_parts_comes_once(broker, tmp_path, most):
    """The topic refuses the batch: it goes in two parts, or in four. The log has it as a whole."""
    topic = new_topic(broker, config={"max.message.bytes": str(most)})
    values = [b"%02d %s" % (i, b"x" * 97) for i in range(30)]
    life = Life(tmp_path / "wal", broker.bootstrap)
    life.send(topic, [b"before"])
    life.send(topic, values)
    life.end()
    figures = Life(tmp_path / "wal", broker.bootstrap).end()
    assert (figures["resumed"], figures["unproved"]) == (31, 0)
    assert raw(broker, topic) == [b"before", *values]


@pytest.mark.parametrize("taken", [0, 1])
def test_a_batch_in_parts_is_not_spooled_by_its_parts(tmp_path, monkeypatch, taken):
    """The broker is away once it has refused the batch, or taken its first part; then the agent is killed."""
    found, expected, unproved = killed_with_parts(tmp_path, monkeypatch, taken)
    assert found == expected
    assert unproved == 0


def test_parts_that_an_older_release_spooled_are_not_taken_for_each_other(tmp_path, monkeypatch):
    monkeypatch.setattr(Sender, "has_log", False)
    found, expected, unproved = killed_with_parts(tmp_path, monkeypatch, 0)
    assert sorted(found) == sorted(expected)
    assert unproved, "one of the parts goes as a new batch"


def killed_with_parts(tmp_path, monkeypatch, taken: int) -> tuple[list[bytes], list[bytes], int]:
    """Returns what is in the topic in the end, what should be, and how many lines were called unproved."""
    spool = SpoolSettings(path=tmp_path / "spool")
    values = [b"%02d %s" % (i, b"x" * 97) for i in range(30)]
    with EmbeddedBroker(tmp_path / "own" / "data") as broker:
        topic = new_topic(broker, config={"max.message.bytes": "1800"})
        life = Life(tmp_path / "wal", broker.bootstrap, spool=spool, learns=True)
        life.send(topic, [b"before"])
        assert life.sender.drain(60)
        left = [taken]

        def gone(told) -> None:
            if not left[0]:
                broker.kill()
            left[0] -= 1

        for name in ("split", "delivered"):
            after(monkeypatch, life.sender, name, gone)
        life.send(topic, values)
        life.send(topic, [b"behind"])
        wait_until(lambda: life.sender.poll(0.05) or life.sender.figures()["spool_records"], "the spool")
        life.close()
        broker.start()
        life = Life(tmp_path / "wal", broker.bootstrap, spool=spool, learns=True)

        def done() -> bool:
            life.sender.poll(0.05)
            return not life.sender.waits and not life.sender.figures()["spool_records"]

        wait_until(done, "all to be sent")
        return raw(broker, topic), [b"before", *values, b"behind"], life.end()["unproved"]


def after(monkeypatch, owner, name: str, then) -> None:
    """Calls `then` with the first argument after each call of a method."""
    method = getattr(owner, name)

    def called(*given):
        method(*given)
        then(given[0])

    monkeypatch.setattr(owner, name, called)


@pytest.mark.parametrize("then", ["", "restart", "kill"])
def test_neither_another_producer_nor_retention_matters(tmp_path, then):
    """Retention takes all that was sent, and the records of another producer behind it: the broker still knows the producer."""
    with EmbeddedBroker(tmp_path / "data", config={"log.retention.check.interval.ms": "100"}) as broker:
        topic = new_topic(broker, config={"retention.ms": "1", "file.delete.delay.ms": "100"})
        life = Life(tmp_path / "wal", broker.bootstrap)
        life.send(topic, [b"a"] * 10)
        life.send(topic, [b"b"] * 10)
        life.end()
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for _ in range(100):
            producer.produce(topic, b"other", partition=0)
        producer.flush(60)
        wait_until(lambda: bounds(broker, topic) == (120, 120), "retention to take all")
        if then:
            broker.stop() if then == "restart" else broker.kill()
            broker.start()
        figures = Life(tmp_path / "wal", broker.bootstrap).end()
        assert (figures["resumed"], figures["unproved"]) == (20, 0)
        assert bounds(broker, topic)[1] == 120, "nothing was written again"


def bounds(broker, topic: str) -> tuple[int, int]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "bounds"})
    try:
        return consumer.get_watermark_offsets(TopicPartition(topic, 0), 60)
    finally:
        consumer.close()


def test_a_batch_that_has_become_too_large_holds_up_none_before_it(broker, tmp_path):
    topic = new_topic(broker)
    life = Life(tmp_path / "wal", broker.bootstrap)
    life.send(topic, [b"a" * 10])
    life.send(topic, [b"b" * 2000])
    life.end()
    limit(broker, topic, 1000)
    life = Life(tmp_path / "wal", broker.bootstrap)
    life.end()
    assert life.refused == [2000]


def raw(broker, topic: str) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "raw"})
    place = TopicPartition(topic, 0, 0)
    consumer.assign([place])
    _, end = consumer.get_watermark_offsets(place, 60)
    found = consumer.consume(end, 60)
    consumer.close()
    return [message.value() for message in found]


def test_it_can_be_switched_off(agent, broker):
    topic = new_topic(broker)
    a = agent(broker.bootstrap, topic)
    a.config.write_text(a.config.read_text().replace("[agent]\n", "[agent]\nexactly_once = false\n"))
    expected = write(a.folder / "logs/x.log", "a", 1000)
    a.start()
    a.caught_up()
    assert a.stop() == 0
    assert not (a.state / "wal").exists()
    once(arrived(broker.bootstrap, topic), expected)
    assert json.loads((a.state / "status.json").read_text())["exactly_once"] == "exactly_once = false"
