"""`klamm group clone`, and `describe --watch`."""

from __future__ import annotations

import json
import signal
import subprocess

from confluent_kafka import Consumer, TopicPartition
from support.broker import new_name, new_topic
from support.klamm import KLAMM, klamm


def committed(broker):
    """Returns a group with committed offsets of a new topic."""
    topic, group = new_topic(broker, 2), new_name()
    klamm("produce", topic, "a", "b", "-p", "0", "-b", broker.bootstrap)
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    consumer.commit(offsets=[TopicPartition(topic, 0, 2, metadata="m")], asynchronous=False)
    consumer.close()
    return topic, group


def test_a_group_gets_the_offsets_of_another(broker):
    topic, group = committed(broker)
    other = new_name()

    def run(*words, code=0):
        done = klamm("group", *words, "-b", broker.bootstrap)
        assert done.returncode == code, done.stderr
        return done

    rows = [{"group": other, "topic": topic, "partition": 0, "new_offset": 2}]
    shown = run("clone", group, other, "-o", "json")
    assert (json.loads(shown.stdout), "nothing was set" in shown.stderr) == (rows, True)
    assert other not in run("list").stdout
    run("clone", group, other, "--execute")
    (row,) = json.loads(run("describe", other, "-o", "json").stdout)
    assert (row["topic"], row["current_offset"], row["lag"]) == (topic, 2, 0)
    assert "has no committed offsets" in run("clone", new_name(), other, code=1).stderr


def test_a_description_is_repeated_until_it_is_interrupted(broker):
    _, group = committed(broker)
    words = [str(KLAMM), "group", "describe", group, "--watch", "0.1", "-o", "jsonl", "-b", broker.bootstrap]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert [json.loads(process.stdout.readline())["group"] for _ in range(3)] == [group] * 3
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=30)
    assert (process.returncode, said) == (0, "")
