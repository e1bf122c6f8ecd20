"""`klamm top` beside a broker, and on a terminal of its own."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import time
from typing import TYPE_CHECKING

import pytest
import yaml
from confluent_kafka import Consumer, Producer, TopicPartition
from support.broker import new_name, new_topic
from support.klamm import KLAMM
from typer.testing import CliRunner

from klamm.cli.main import app

if TYPE_CHECKING:
    from klamm.testing import EmbeddedBroker


@pytest.fixture
def filled(broker: EmbeddedBroker) -> tuple[str, str]:
    topic, group = new_topic(broker, 2), new_name("group")
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for i in range(10):
        producer.produce(topic, str(i), partition=0)
    assert producer.flush(60) == 0
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    consumer.commit(offsets=[TopicPartition(topic, 0, 4)], asynchronous=False)
    consumer.close()
    return topic, group


def test_once_in_json(broker: EmbeddedBroker, filled: tuple[str, str]) -> None:
    topic, group = filled
    words = ["top", "-b", broker.bootstrap, "--url", "http://127.0.0.1:9", "--json", "-n", "0.2"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    shown = json.loads(done.stdout)
    assert {t["topic"]: t["records"] for t in shown["topics"]}[topic] == 10
    assert {g["group"]: g["lag"] for g in shown["groups"]}[group] == 6
    assert "no answer from a Connect worker" in shown["said"][0]


@pytest.mark.usefixtures("processes")
def test_the_page_shows_the_topic_and_ends_by_q(broker: EmbeddedBroker, filled: tuple[str, str]) -> None:
    terminal, other = pty.openpty()
    environ = os.environ | {"TERM": "xterm", "COLUMNS": "120", "LINES": "40"}
    words = [str(KLAMM), "top", "-b", broker.bootstrap, "--no-connect", "-n", "0.3"]
    process = subprocess.Popen(words, stdin=other, stdout=other, stderr=subprocess.DEVNULL, env=environ)
    os.close(other)
    shown, end = b"", time.monotonic() + 30
    while filled[1].encode() not in shown:
        assert time.monotonic() < end, shown
        if select.select([terminal], [], [], 1)[0]:
            shown += os.read(terminal, 65536)
    os.write(terminal, b"q")
    while process.poll() is None:  # what it draws must be taken, or it waits for us
        assert time.monotonic() < end
        if select.select([terminal], [], [], 0.1)[0]:
            try:
                os.read(terminal, 65536)
            except OSError:  # the other end is closed
                break
    assert process.wait(10) == 0
    os.close(terminal)


def test_other_formats_have_the_same_figures(broker: EmbeddedBroker, filled: tuple[str, str]) -> None:
    words = ["top", "-b", broker.bootstrap, "--no-connect", "-n", "0.2", "-o", "yaml"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    shown = yaml.safe_load(done.stdout)
    assert {g["group"]: g["lag"] for g in shown["groups"]}[filled[1]] == 6
