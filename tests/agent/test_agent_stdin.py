"""Standard input: lines as they come, the end of the pipe, and an agent in a pipeline."""

from __future__ import annotations

import os
import subprocess
import time

import pytest
from agent.harness import KLAMM
from support.broker import new_topic, wait_until

from klamm.testing.topics import TopicReader
from klamm_agent.config.readers import StdinSettings
from klamm_agent.inputs.stdin import StdinReader


@pytest.fixture
def pipe():
    read, write = os.pipe()
    yield StdinReader(StdinSettings(max_message_bytes=20), read), write
    os.close(read)


def poll(reader):
    return [
        (v, o)
        for events, _ in reader.poll(time.monotonic())
        for v, o in zip(events.values, events.offsets, strict=True)
    ]


def test_lines_come_when_they_are_whole(pipe):
    reader, write = pipe
    assert poll(reader) == []
    os.write(write, b"one\ntw")
    assert poll(reader) == [(b"one", 0)]
    os.write(write, b"o\r\n\nno end")
    assert poll(reader) == [(b"two", 4), (b"", 9)]
    os.write(write, b"x" * 30)
    assert b"".join(v for v, _ in poll(reader)) == b"no end" + b"x" * 14
    os.close(write)
    assert b"".join(v for v, _ in poll(reader)) == b"x" * 16
    assert reader.ended
    assert poll(reader) == []


def test_at_the_end_of_the_agent_a_line_without_end_is_given_out(pipe):
    reader, write = pipe
    os.write(write, b"one\npart")
    assert poll(reader) == [(b"one", 0)]
    reader.finish()
    assert poll(reader) == [(b"part", 4)]
    assert poll(reader) == []
    os.close(write)


def test_an_agent_ends_when_its_input_does_and_all_is_delivered(broker, tmp_path):
    topic = new_topic(broker)
    config = tmp_path / "agent.toml"
    config.write_text(
        f'bootstrap_servers = "{broker.bootstrap}"\nstate_dir = "state"\n[[inputs]]\ntype = "stdin"\ntopic = "{topic}"\n'
    )
    agent = subprocess.Popen(
        [KLAMM, "agent", "start", str(config)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert agent.stdout.readline() == b"ready agent files=0\n"
        agent.stdin.write(b"".join(b"line %d\n" % i for i in range(10_000)) + b"the last one")
        agent.stdin.close()
        wait_until(lambda: agent.poll() is not None, "the agent to end")
        assert agent.returncode == 0
    finally:
        agent.kill()
        agent.wait()
        agent.stdout.close()
    with TopicReader(broker.bootstrap, topic) as reader:
        reader.wait_for(10_001)
        assert [m.value() for m in reader.seen][-1] == b"the last one"
