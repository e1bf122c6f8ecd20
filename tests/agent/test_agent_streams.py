"""Inputs that are no files between their readers and the sender: what is kept, what is waited for, what is told."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from klamm_agent.config.agent import AgentConfig
from klamm_agent.events import Events
from klamm_agent.inputs.streams import Streams
from klamm_agent.lanes.lane import Lane
from klamm_base.errors import ConfigError

HEAD = 'bootstrap_servers = "h:1"\nstate_dir = "s"\n'


@dataclass
class Sent:
    done: bool = False


class Reader:
    """Gives one event a poll."""

    def __init__(self, *events: bytes, cursor: str | None = None) -> None:
        self.events, self.cursor = list(events), cursor
        self.ended = self.closed = False

    def poll(self, now):
        self.ended = len(self.events) < 2
        return [(Events([self.events.pop(0)], "r", 1.0), len(self.events))] if self.events else []

    def acknowledged(self, position):
        self.cursor = f"c{position}"

    def checkpoint(self):
        return None

    def place(self, position):
        return None

    def finish(self):
        pass

    def lost(self):
        return []

    def status(self):
        return {}

    def close(self):
        self.closed = True


@pytest.fixture
def lanes(tmp_path):
    def make(*inputs: str) -> list[Lane]:
        path = tmp_path / "agent.toml"
        path.write_text(HEAD + "".join(f'[[inputs]]\ntopic = "t"\n{i}\n' for i in inputs))
        return [Lane(i, host="h", agent_id="a") for i in AgentConfig.load(path).inputs]

    return make


STDIN = 'type = "stdin"'
NO_JOURNAL = 'type = "journald"\njournalctl = "no-such-journalctl"'


def test_what_a_reader_holds_outlives_a_configuration_that_cannot_be_used(lanes):
    reader = Reader(b"held")
    options = lanes(STDIN)[0].config.options
    kept = [(options, False, reader)]
    with pytest.raises(ConfigError, match="no-such-journalctl"):
        Streams(lanes(STDIN, NO_JOURNAL), {}, kept)
    assert kept == [(options, False, reader)]
    assert not reader.closed
    streams = Streams(lanes(STDIN), {}, kept)
    given = []
    streams.take(
        0.0,
        has_room=lambda _topic: True,
        deliver=lambda _lane, records, _n: given.append(records.values) or [],
    )
    assert given == [[b"held"]]
    streams.close()
    assert reader.closed


def test_the_end_is_when_all_is_delivered(lanes):
    sent = Sent()
    lane = lanes(STDIN)
    streams = Streams(lane, {}, [(lane[0].config.options, False, Reader(b"a"))])
    streams.take(0.0, has_room=lambda _topic: True, deliver=lambda *_: [sent])
    streams.acknowledge()
    assert not streams.ended
    sent.done = True
    streams.acknowledge()
    assert streams.ended


@pytest.mark.usefixtures("processes")
def test_a_journal_of_which_nothing_is_acknowledged_is_read_again(lanes, tmp_path):
    """The next agent does not get it, because it would go on behind it; and it is not lost."""
    program = tmp_path / "journalctl"
    program.write_text("#!/bin/sh\nexec sleep 60\n")
    program.chmod(0o755)
    journal = lanes(f'type = "journald"\njournalctl = "{program}"')
    streams = Streams(journal, {})
    try:
        stream = streams._streams[0][1]
        stream.reader.close()
        stream.reader = Reader(b"a")
        streams.take(0.0, has_room=lambda _topic: True, deliver=lambda *_: [Sent()])
        assert streams.keep([lane.config for lane in journal]) == []
        assert streams.abandoned() == []
    finally:
        streams.close()
