"""The sender by itself: what comes back undelivered is sent again, also by a new producer."""

from __future__ import annotations

import json
import logging
import resource
import time

import pytest
from agent.harness import arrived
from support.broker import new_name, new_topic

from klamm.testing import EmbeddedBroker
from klamm_connectors.logs.agent import Agent
from klamm_connectors.logs.config import AgentConfig, Input
from klamm_connectors.logs.registry import StateDir, StateError
from klamm_connectors.logs.sender import Origin, Sender
from klamm_connectors.logs.tracker import Checkpoint, Gap, Print

ORIGIN = Origin("/x.log", (1, 2), 0, 100)


class Fatal:
    """As librdkafka tells a producer's end."""

    def fatal(self):
        return True

    def str(self):
        return "a sequence number is gone"


def poll_until(sender, condition, timeout_s=20):
    deadline = time.monotonic() + timeout_s
    while not condition() and time.monotonic() < deadline:
        sender.poll(0.05)
    assert condition()


def test_a_producer_that_failed_for_good_is_replaced(tmp_path):
    broker = EmbeddedBroker(tmp_path / "data").start()
    topic = new_topic(broker)
    sender = Sender({"bootstrap.servers": broker.bootstrap}, 1 << 20, 1, lambda batch, size: None)
    first = sender.send(topic, [b"a-1 x", b"a-2 x"], 10, None, ORIGIN)
    poll_until(sender, lambda: first.done)
    broker.stop()
    batch = sender.send(topic, [b"b-%d x" % i for i in range(500)], 3000, b"key", ORIGIN)
    sender._on_error(Fatal())
    poll_until(sender, lambda: topic in sender.troubles)
    assert not batch.done
    assert not sender.has_room(topic)
    broker.start()
    try:
        poll_until(sender, lambda: batch.done)
        poll_until(sender, lambda: sender.has_room(topic))
        assert sender.acked == 502
        found = arrived(broker.bootstrap, topic)
        assert set(found) == {"a-1", "a-2"} | {f"b-{i}" for i in range(500)}
        assert set(found.values()) == {1}
    finally:
        broker.stop()


def test_failed_connections_are_said_once_a_minute():
    sender = Sender({"bootstrap.servers": "127.0.0.1:1"}, 1 << 20, 1, lambda batch, size: None)
    logging.getLogger("klamm.librdkafka.agent").filters[0].said_at = float("-inf")
    tries = []
    logging.getLogger("klamm.librdkafka.agent").addFilter(lambda record: tries.append(record) or True)
    sender.send(new_name(), [b"x"], 1, None, ORIGIN)
    poll_until(sender, lambda: sender.brokers_away)
    deadline = time.monotonic() + 1
    while time.monotonic() < deadline:
        sender.poll(0.05)
    assert [r.args[0] for r in tries] == ["FAIL"]
    sender._producer.purge()
    sender._producer.flush(1)
    logging.getLogger("klamm.librdkafka.agent").filters.pop()


def test_each_topic_has_its_share_of_the_queue():
    sender = Sender({"bootstrap.servers": "127.0.0.1:1"}, 1 << 20, 2, lambda batch, size: None)
    one, other = new_name(), new_name()
    while sender.has_room(one):
        sender.send(one, [b"x" * 1000] * 10, 10_000, None, ORIGIN)
    assert sender.has_room(other)
    assert sender._flying[one] < (1 << 19) + 20_000
    sender._producer.purge()
    sender._producer.flush(1)


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
            producer={},
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
