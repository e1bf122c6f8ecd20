"""Commands that are killed in the middle, and what is whole afterwards."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from support.backups import backup, commit, committed, contents, read, topic_configs, write
from support.broker import new_topic
from support.klamm import KLAMM, klamm

pytestmark = pytest.mark.usefixtures("processes")


def killed_when(condition, *args):
    """Start `klamm backup` and kill it as soon as the condition holds. Returns whether it still ran."""
    process = subprocess.Popen(
        [str(KLAMM), "backup", *map(str, args)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    until = time.monotonic() + 60
    while not condition() and process.poll() is None:
        assert time.monotonic() < until, "nothing happened"
        time.sleep(0.002)
    os.kill(process.pid, signal.SIGKILL)
    return process.wait() == -signal.SIGKILL


def test_a_killed_create_leaves_the_former_backup_and_a_later_one_is_whole(broker, tmp_path):
    topic, at = new_topic(broker, 6), ("-b", broker.bootstrap)
    folder = tmp_path / "b"
    write(broker.bootstrap, topic, 0, 60, 6)
    backup("create", folder, *at, "-t", topic)
    write(broker.bootstrap, topic, 60, 60_000, 6)
    manifests = folder / "manifests"
    chunks = lambda: len(list((folder / "data").rglob("*.chunk")))
    before = chunks()
    assert killed_when(lambda: chunks() > before, "create", folder, *at, "-t", topic)
    assert len(list(manifests.iterdir())) == 1
    said = backup("verify", folder)
    assert "good: 1 backup, 6 chunks, 60 records" in said
    assert "of killed commands" in said
    assert "60060 records" in backup("create", folder, *at, "-t", topic)
    assert "removed 0 backups and" in backup("prune", folder, "--keep-last", "2")
    said = backup("verify", folder)
    assert "good: 2 backups, 12 chunks, 60060 records" in said
    assert "killed" not in said


def test_a_killed_restore_goes_on_and_nothing_comes_twice(broker, tmp_path):
    topic, at = new_topic(broker, 2), ("-b", broker.bootstrap)
    write(broker.bootstrap, topic, 0, 120_000, 2, **{"batch.size": 20_000, "linger.ms": 5})
    commit(broker.bootstrap, "slow", {(topic, 0): 59_000})
    backup("create", tmp_path / "b", *at, "-t", topic)
    copy = f"{topic}-copy"
    wanted = ("restore", tmp_path / "b", *at, "--rename", f"{topic}={copy}", "--parts", "topics,groups")

    slow = ("quota", "set", "--client-id", "klamm", "producer_byte_rate=1000000", *at)
    assert klamm(*slow).returncode == 0
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "watcher"})

    def some():
        with contextlib.suppress(KafkaException):  # the topic is not there yet
            return consumer.get_watermark_offsets(TopicPartition(copy, 0), timeout=1)[1] > 0
        return False

    assert killed_when(some, *wanted)
    consumer.close()
    assert klamm("quota", "unset", "--client-id", "klamm", "producer_byte_rate", *at).returncode == 0
    there = sum(map(len, read(broker.bootstrap, copy, 2).values()))
    again = klamm("backup", *map(str, wanted))
    assert again.returncode == 1
    assert f"topic {copy} is there and holds records" in again.stderr
    said = backup(*wanted, "--resume")
    assert f"and {there} that were there" in said
    assert read(broker.bootstrap, copy, 2) == read(broker.bootstrap, topic, 2)
    assert contents(read(broker.bootstrap, copy, 2)) == contents(read(broker.bootstrap, topic, 2))
    assert committed(broker.bootstrap, "slow", [(copy, 0)]) == [59_000]
    assert "retention.ms" not in topic_configs(broker.bootstrap, copy)

    # a topic with other records is not taken for one that a killed restore left
    other = new_topic(broker, 2)
    write(broker.bootstrap, other, 500, 10, 2)
    refused = klamm("backup", "restore", str(tmp_path / "b"), *at, "--rename", f"{topic}={other}", "--resume")
    assert refused.returncode == 1
    assert "is not what a restore of this backup left" in refused.stderr


def test_a_killed_append_goes_on_and_is_not_begun_twice(broker, tmp_path):
    topic, at = new_topic(broker, 2), ("-b", broker.bootstrap)
    write(broker.bootstrap, topic, 0, 120_000, 2, **{"batch.size": 20_000, "linger.ms": 5})
    backup("create", tmp_path / "b", *at, "-t", topic)
    other = new_topic(broker, 2)
    write(broker.bootstrap, other, 0, 10, 2)
    wanted = ("restore", tmp_path / "b", *at, "--rename", f"{topic}={other}", "--parts", "topics", "--append")
    early = klamm("backup", *map(str, wanted), "--resume")
    assert (early.returncode, "was killed: leave --resume away" in early.stderr) == (1, True)

    slow = ("quota", "set", "--client-id", "klamm", "producer_byte_rate=1000000", *at)
    assert klamm(*slow).returncode == 0
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "watcher"})
    ends = lambda: [consumer.get_watermark_offsets(TopicPartition(other, p), timeout=10)[1] for p in (0, 1)]
    assert killed_when(lambda: max(ends()) > 5, *wanted)
    assert klamm("quota", "unset", "--client-id", "klamm", "producer_byte_rate", *at).returncode == 0
    there = sum(ends()) - 10
    consumer.close()
    assert 0 < there < 120_000
    again = klamm("backup", *map(str, wanted))
    assert (again.returncode, "go on with it by --append --resume" in again.stderr) == (1, True)
    assert f"and {there} that were there" in backup(*wanted, "--resume")
    found, due = contents(read(broker.bootstrap, other, 2)), contents(read(broker.bootstrap, topic, 2))
    assert {p: rows[5:] for p, rows in found.items()} == due
    assert "klamm-restore" not in klamm("group", "list", *at).stdout


def interrupted_when(condition, *args, number=signal.SIGINT):
    """Start `klamm backup`, and send a signal as soon as the condition holds. Returns what it said, and its exit code."""
    process = subprocess.Popen(
        [str(KLAMM), "backup", *map(str, args)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    until = time.monotonic() + 60
    while not condition() and process.poll() is None:
        assert time.monotonic() < until, "nothing happened"
        time.sleep(0.002)
    process.send_signal(number)
    said = process.communicate(timeout=20)[1]
    return said, process.returncode


def test_after_a_signal_commands_say_how_to_go_on_and_that_works(broker, tmp_path):
    topic, at = new_topic(broker, 2), ("-b", broker.bootstrap)
    folder, copy = tmp_path / "b", f"{topic}-copy"
    write(broker.bootstrap, topic, 0, 120_000, 2, **{"batch.size": 20_000, "linger.ms": 5})
    chunks = lambda: len(list((folder / "data").rglob("*.chunk*")))
    said, code = interrupted_when(chunks, "create", folder, *at, "-t", topic)
    assert (code, "ended by Ctrl-C; former backups stay as they were: the same command" in said) == (
        130,
        True,
    ), said
    assert "Traceback" not in said
    assert "120000 records" in backup("create", folder, *at, "-t", topic)

    slow = ("quota", "set", "--client-id", "klamm", "producer_byte_rate=1000000", *at)
    assert klamm(*slow).returncode == 0
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "watcher"})

    def some():
        with contextlib.suppress(KafkaException):  # the topic is not there yet
            return consumer.get_watermark_offsets(TopicPartition(copy, 0), timeout=1)[1] > 0
        return False

    wanted = ("restore", folder, *at, "--rename", f"{topic}={copy}", "--parts", "topics")
    said, code = interrupted_when(some, *wanted, number=signal.SIGTERM)
    consumer.close()
    assert klamm("quota", "unset", "--client-id", "klamm", "producer_byte_rate", *at).returncode == 0
    how = "ended by SIGTERM; what is restored stays: go on by the same command with --resume"
    assert (code, how in said) == (143, True), said
    assert "Traceback" not in said
    backup(*wanted, "--resume")
    assert read(broker.bootstrap, copy, 2) == read(broker.bootstrap, topic, 2)
