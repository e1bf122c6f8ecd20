"""The sender by itself: what comes back undelivered is sent again, in order, once."""

from __future__ import annotations

import json
import resource
import tempfile
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from support.broker import new_name, new_topic

from klamm.testing import EmbeddedBroker
from klamm_agent.agent import Agent
from klamm_agent.config.agent import AgentConfig, Input
from klamm_agent.config.producer import ProducerSettings
from klamm_agent.delivery.batches import Origin
from klamm_agent.delivery.sender import Sender
from klamm_agent.files.tracked import Checkpoint, Gap, Print
from klamm_agent.state.registry import StateDir, StateError
from klamm_kafka.wire.compression import Compression

ORIGIN = Origin("/x.log", (1, 2), 0, 100)


def sender_of(bootstrap, *, queue_bytes=1 << 20, topics=1, refused=lambda batch, size: None, **options):
    return Sender(
        bootstrap,
        ProducerSettings(**options),
        queue_bytes=queue_bytes,
        topics=topics,
        refused=refused,
    )


def poll_until(sender, condition, timeout_s=60):
    deadline = time.monotonic() + timeout_s
    while not condition() and time.monotonic() < deadline:
        sender.poll(0.05)
    assert condition()


@pytest.mark.usefixtures("processes")
def test_what_was_sent_while_the_broker_was_away_comes_once_and_in_order(tmp_path):
    broker = EmbeddedBroker(tmp_path / "data").start()
    topic = new_topic(broker)
    sender = sender_of(broker.bootstrap)
    first = sender.send(topic, [b"a-1 x", b"a-2 x"], 10, None, ORIGIN)
    poll_until(sender, lambda: first.done)
    broker.kill()
    batch = sender.send(topic, [b"b-%d x" % i for i in range(500)], 3000, b"key", ORIGIN)
    poll_until(sender, lambda: sender.brokers_away)
    assert not batch.done
    broker.start()
    try:
        poll_until(sender, lambda: batch.done)
        poll_until(sender, lambda: not sender.troubles and not sender.brokers_away)
        assert sender.has_room(topic)
        assert sender.acked == 502
        assert [v.split()[0] for v in values(broker, topic)] == [b"a-1", b"a-2"] + [
            b"b-%d" % i for i in range(500)
        ]
    finally:
        sender.close()
        broker.stop()


def values(broker, topic, partition=0):
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "v", "check.crcs": True})
    try:
        consumer.assign([TopicPartition(topic, partition, 0)])
        high = consumer.get_watermark_offsets(TopicPartition(topic, partition), 60)[1]
        found = []
        deadline = time.monotonic() + 60
        while len(found) < high and time.monotonic() < deadline:
            found += [m.value() for m in consumer.consume(high - len(found), 1.0) if not m.error()]
        return found
    finally:
        consumer.close()


def test_a_broker_that_is_away_is_said_once_a_minute(caplog):
    sender = sender_of("127.0.0.1:1")
    sender.send(new_name(), [b"x"], 1, None, ORIGIN)
    poll_until(sender, lambda: sender.brokers_away)
    tries = sender._outgoing.producers
    for _ in range(20):
        sender.poll(0.05)
    assert len([r for r in caplog.records if "no broker answers" in r.message]) == 1
    assert tries == 0
    sender.close()


def test_each_topic_has_its_share_of_the_queue():
    sender = sender_of("127.0.0.1:1", topics=2, codec=Compression.NONE, batch_bytes=100_000, linger=0.0)
    one, other = new_name(), new_name()
    while sender.has_room(one):
        sender.send(one, [b"x" * 1000] * 10, 10_000, None, ORIGIN)
    assert sender.has_room(other)
    assert sender._flying[one] < (1 << 19) + 20_000
    sender.close()


def test_a_record_that_is_too_large_is_given_up_and_nothing_else(broker):
    """The batch that it is in is halved until it is alone; what came after keeps its place."""
    topic = new_topic(broker, 1, config={"max.message.bytes": "20000"})
    refused = []
    sender = sender_of(
        broker.bootstrap, refused=lambda batch, size: refused.append((batch, size)), codec=Compression.NONE
    )
    small = [b"%04d " % i + b"s" * 95 for i in range(1000)]
    lines = [*small[:300], b"L" * 30_000, *small[300:]]
    batch = sender.send(topic, lines, sum(map(len, lines)), None, ORIGIN)
    after = sender.send(topic, [b"after"], 5, None, ORIGIN)
    poll_until(sender, lambda: batch.done and after.done)
    assert refused == [(batch, 30_000)]
    assert sender.acked == 1001
    assert values(broker, topic) == [*small, b"after"]
    assert not sender.waits
    assert sender._total == 0
    sender.close()


def test_keys_go_where_java_puts_them(broker):
    topic = new_topic(broker, 3)
    sender = sender_of(broker.bootstrap)
    keys = [b"/var/log/%d.log" % i for i in range(20)]
    batches = [sender.send(topic, [key + b" %d" % n for n in range(5)], 100, key, ORIGIN) for key in keys]
    poll_until(sender, lambda: all(b.done for b in batches))
    more = [sender.send(topic, [key + b" again"], 20, key, ORIGIN) for key in keys]
    poll_until(sender, lambda: all(b.done for b in more))
    sender.close()
    producer = Producer({"bootstrap.servers": broker.bootstrap, "partitioner": "murmur2_random"})
    for key in keys:
        producer.produce(topic, key + b" librdkafka", key=key)
    assert producer.flush(60) == 0
    for partition in range(3):
        by_key = {}
        for value in values(broker, topic, partition):
            key, _, what = value.partition(b" ")
            by_key.setdefault(key, []).append(what)
        assert all(w == [b"0", b"1", b"2", b"3", b"4", b"again", b"librdkafka"] for w in by_key.values())


def test_a_topic_that_was_made_anew_with_fewer_partitions_gets_what_waits(broker):
    topic = new_topic(broker, 4)
    sender = sender_of(broker.bootstrap, batch_bytes=1024, linger=0.0)
    first = [sender.send(topic, [b"a-%d" % i], 5, None, ORIGIN) for i in range(20)]
    poll_until(sender, lambda: all(b.done for b in first))
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.delete_topics([topic])[topic].result(60)
    second = []
    for i in range(20):
        second.append(sender.send(topic, [b"b-%d" % i], 5, None, ORIGIN))
        sender._seal((topic, None))
    assert len({box.partition for box in sender._outgoing.outboxes}) == 4
    new_topic(broker, 1, name=topic)
    poll_until(sender, lambda: all(b.done for b in second))
    assert sorted(values(broker, topic)) == sorted(b"b-%d" % i for i in range(20))
    sender.close()


def test_a_topic_that_comes_up_while_others_are_asked_for_is_asked_for_next(broker):
    """The topic is not in the answer that is on its way."""
    sender = sender_of(broker.bootstrap, topics=2, linger=0.0)
    refresh, late = sender._cluster.refresh, []

    async def slow(*args, **options):
        answer = await refresh(*args, **options)
        if not late:
            late.append(sender.send(topic, [b"late"], 4, None, ORIGIN))
            sender._seal((topic, None))
        return answer

    topic = new_topic(broker)
    sender._cluster.refresh = slow
    early = sender.send(new_topic(broker), [b"early"], 5, None, ORIGIN)
    poll_until(sender, lambda: early.done and late and late[0].done)
    sender.close()


def test_a_topic_that_is_missing_holds_up_no_other(broker):
    sender = sender_of(broker.bootstrap, topics=2)
    bad = sender.send("not/a/topic", [b"x"], 1, None, ORIGIN)
    good = sender.send(new_topic(broker), [b"x"], 1, None, ORIGIN)
    poll_until(sender, lambda: good.done)
    poll_until(sender, lambda: "not/a/topic" in sender.troubles)
    assert "INVALID_TOPIC" in sender.troubles["not/a/topic"]
    assert not bad.done
    sender.close()


class TestStateDir:
    CHECKPOINT = Checkpoint(
        path="/var/log/\udce4.log", inode=(1, 2), head=Print.of(b"h"), offset=7, tail=Print.of(b"t")
    )

    def test_what_was_saved_is_loaded(self, tmp_path):
        state = StateDir(tmp_path / "s")
        assert state.load() is None
        state.save([self.CHECKPOINT])
        assert state.load() == [self.CHECKPOINT]
        state.add_gaps([Gap(path="/x", inode=(1, 2), start=3, end=9, reason="gone")], "now")
        assert json.loads((tmp_path / "s/gaps.jsonl").read_text())["from"] == 3
        state.close()

    def test_the_status_keeps_the_mode_that_monitoring_needs_and_the_registry_is_private(self, tmp_path):
        state = StateDir(tmp_path)
        for name in ("status.json", "registry.json"):
            (tmp_path / name).touch()
            (tmp_path / name).chmod(0o644)
        state.write_status({"a": 1})
        state.save([self.CHECKPOINT])
        state.close()
        assert json.loads((tmp_path / "status.json").read_text()) == {"a": 1}
        modes = [(tmp_path / name).stat().st_mode & 0o777 for name in ("status.json", "registry.json")]
        assert modes == [0o644, 0o600]

    def test_a_ledger_entry_that_does_not_fit_leaves_no_half_line(self, tmp_path):
        state = StateDir(tmp_path)
        gap = Gap(path="/x", inode=(1, 2), start=3, end=9, reason="gone")
        state.add_gaps([gap], "now")
        ledger = tmp_path / "gaps.jsonl"
        before = ledger.read_bytes()
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 10, limits[1]))
        try:
            with pytest.raises(StateError, match=r"gaps\.jsonl cannot be written: File too large"):
                state.add_gaps([gap], "later")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert ledger.read_bytes() == before
        state.close()

    def test_no_checkpoint_passes_a_gap_that_is_not_in_the_ledger(self, tmp_path):
        config = AgentConfig(
            bootstrap_servers="127.0.0.1:1",
            state_dir=tmp_path,
            inputs=(Input(paths=("/none",), topic="t"),),
        )
        (tmp_path / "gaps.jsonl").mkdir()
        agent = Agent(config)
        agent._tracker.gaps.append(Gap(path="/x", inode=(1, 2), start=3, end=9, reason="too large"))
        agent._save()
        assert not (tmp_path / "registry.json").exists()
        (tmp_path / "gaps.jsonl").rmdir()
        agent._save()
        assert (tmp_path / "registry.json").exists()
        assert json.loads((tmp_path / "gaps.jsonl").read_text())["reason"] == "too large"
        agent._state.close()

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "{",
            "[]",
            '{"version": 1}',
            '{"version": 1, "files": [{}]}',
            '{"version": 1, "files": [{"path": "/x", "dev": 1, "inode": 2, "offset": 3, "head": [], "tail": []}]}',
        ],
    )
    def test_a_damaged_registry_is_one_sentence(self, tmp_path, text):
        state = StateDir(tmp_path)
        (tmp_path / "registry.json").write_text(text)
        with pytest.raises(StateError, match=r"registry\.json is damaged .*: move it away"):
            state.load()
        state.close()

    def test_a_directory_that_cannot_be_made(self, tmp_path):
        (tmp_path / "file").touch()
        with pytest.raises(StateError, match="cannot be used: Not a directory"):
            StateDir(tmp_path / "file" / "state")

    def test_a_directory_that_every_user_can_read_is_told(self, caplog):
        with tempfile.TemporaryDirectory(
            dir="/tmp"
        ) as folder:  # every user reaches it, as pytest's own is not
            state = Path(folder)
            state.chmod(0o755)
            StateDir(state).close()
            assert [m for m in caplog.messages if "every user" in m] == [
                f"every user of this machine can read {state}; to keep it private: chmod 700 {state}"
            ]
            assert state.stat().st_mode & 0o777 == 0o755
