"""The journal: the export format, entries as ECS fields, and the input against a real journald."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest
from agent.harness import AgentProcess
from hypothesis import given
from hypothesis import strategies as st
from support.broker import new_topic, wait_until

from klamm.testing.topics import TopicReader
from klamm_agent.config.readers import JournaldSettings
from klamm_agent.inputs.journal import Export, ExportError, Fields, time_of
from klamm_agent.inputs.journald import JournaldReader
from klamm_base.errors import ConfigError

JOURNALD = Path("/usr/lib/systemd/systemd-journald")


def written(entries):
    found = b""
    for entry in entries:
        for name, value in entry.items():
            if b"\n" in value:
                found += name + b"\n" + struct.pack("<Q", len(value)) + value + b"\n"
            else:
                found += name + b"=" + value + b"\n"
        found += b"\n"
    return found


NAME = st.text("ABCDEFGHIJKLMNOPQRSTUVWXYZ_", min_size=1, max_size=8).map(str.encode)
ENTRY = st.dictionaries(NAME, st.binary(max_size=40), min_size=1, max_size=5)


@given(st.lists(ENTRY, max_size=6), st.lists(st.integers(0, 10_000), max_size=6))
def test_entries_come_back_however_the_stream_is_cut(entries, places):
    stream = written(entries)
    edges = sorted({0, len(stream), *(p % (len(stream) + 1) for p in places)})
    export = Export()
    found = []
    for start, end in itertools.pairwise(edges):
        found += export.feed(stream[start:end])
    assert found == entries


def test_what_is_no_export_is_an_error():
    with pytest.raises(ExportError, match="no line end behind field b'MESSAGE'"):
        Export().feed(b"MESSAGE\n" + struct.pack("<Q", 3) + b"abcd")
    with pytest.raises(ExportError, match="of 18446744073709551615 bytes"):
        Export().feed(b"no export at all\n" + b"\xff" * 8)


def test_an_entry_as_fields():
    entry = {
        b"__REALTIME_TIMESTAMP": b"1795319365714456", b"_SOURCE_REALTIME_TIMESTAMP": b"1795319365000000",
        b"PRIORITY": b"3", b"SYSLOG_FACILITY": b"3", b"SYSLOG_IDENTIFIER": b"shop", b"_PID": b"77", b"_COMM": b"python",
        b"_HOSTNAME": b"web-1", b"_SYSTEMD_UNIT": b"shop.service", b"MESSAGE": b"hello", b"ORDER": b"7", b"_CAP_EFFECTIVE": b"0",
    }  # fmt: skip
    assert time_of(entry) == 1795319365.0
    assert Fields().of(entry) == {
        "host": {"name": "web-1"},
        "log": {
            "level": "error",
            "syslog": {
                "appname": "shop",
                "priority": 27,
                "severity": {"code": 3, "name": "error"},
                "facility": {"code": 3, "name": "daemon"},
            },
        },
        "process": {"pid": 77, "name": "python"},
        "systemd": {"unit": "shop.service"},
        "journald": {"custom": {"order": "7"}},
    }
    fields = Fields()
    plain = {name: value for name, value in entry.items() if name != b"ORDER"}
    assert fields.of(plain) is fields.of(plain), "entries of one process share them"


def test_without_journalctl_it_is_an_error():
    with pytest.raises(
        ConfigError, match="needs no-such-journalctl, which does not exist: it comes with systemd"
    ):
        JournaldReader(JournaldSettings(journalctl="no-such-journalctl"), parse=False, checkpoint=None)


def test_a_time_that_is_none_is_the_journals():
    assert time_of({b"_SOURCE_REALTIME_TIMESTAMP": b"9" * 5000, b"__REALTIME_TIMESTAMP": b"1000000"}) == 1.0


@pytest.mark.usefixtures("processes")
def test_a_journalctl_that_cannot_be_started_again_is_waited_for(tmp_path):
    program = tmp_path / "journalctl"
    program.write_text("#!/bin/sh\nexit 1\n")
    program.chmod(0o755)
    reader = JournaldReader(JournaldSettings(journalctl=str(program)), parse=False, checkpoint=None)
    try:
        wait_until(lambda: reader.poll(0.0) == [] and not reader.status()["running"], "its end")
        program.unlink()  # as while systemd is updated
        assert reader.poll(1000.0) == []
        assert "cannot be started: No such file" in reader.status()["error"]
        program.write_text("#!/bin/sh\nprintf 'MESSAGE=back\\n__CURSOR=c\\n\\n'; exec sleep 60\n")
        program.chmod(0o755)
        found = []
        wait_until(lambda: found.extend(reader.poll(2000.0)) or found, "entries")
        assert [events.values for events, _ in found] == [[b"back"]]
    finally:
        reader.close()


class Journal:
    """A journald of its own: systemd's namespaces."""

    def __init__(self) -> None:
        self.namespace = f"klamm{uuid.uuid4().hex[:8]}"
        self.process = subprocess.Popen(
            [JOURNALD, self.namespace], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self.socket = Path(f"/run/systemd/journal.{self.namespace}/socket")
        machine = Path("/etc/machine-id").read_text().strip()
        self.folders = [
            Path(f"/var/log/journal/{machine}.{self.namespace}"),
            Path(f"/run/log/journal/{machine}.{self.namespace}"),
            self.socket.parent,
        ]

    def log(self, *messages: bytes, **fields: str) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
            s.connect(str(self.socket))
            for message in messages:
                s.send(
                    written([{b"MESSAGE": message, **{k.encode(): v.encode() for k, v in fields.items()}}])[
                        :-1
                    ]
                )

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(60)
        for folder in self.folders:
            shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def journald():
    if (
        not JOURNALD.exists()
        or shutil.which("journalctl") is None
        or os.geteuid() != 0
        or sys.platform != "linux"
    ):
        pytest.skip(
            "needs systemd-journald (Debian: apt-get install systemd), and root to start one: run the tests as root"
        )
    found = Journal()
    try:
        deadline = time.monotonic() + 60
        while not found.socket.exists() and time.monotonic() < deadline:
            if found.process.poll() is not None:
                pytest.skip(
                    "journald ends at once here, as in some containers: run the test on a machine or in a virtual one"
                )
            time.sleep(0.01)
        found.log(b"begin")
        yield found
    finally:
        found.close()


class Follower:
    def __init__(self, journald, checkpoint=None, **settings):
        settings = JournaldSettings(namespace=journald.namespace, **settings)
        self.reader = JournaldReader(settings, parse=True, checkpoint=checkpoint)
        self.events = []

    def wait(self, *texts):
        """Waits until these have come, in this order; those of journald itself are not looked at."""

        def there():
            for events, position in self.reader.poll(time.monotonic()):
                self.events += zip(events.values, events.times, events.fields, strict=True)
                self.reader.acknowledged(position)
            return [e[0] for e in self.events if e[0] in texts] == list(texts)

        wait_until(there, f"{texts}, there are {[e[0] for e in self.events]}")
        return [e for e in self.events if e[0] in texts]


@pytest.fixture
def follow(journald):
    made = []

    def make(checkpoint=None, **settings):
        made.append(Follower(journald, checkpoint, **settings))
        return made[-1]

    yield make
    for each in made:
        each.reader.close()


def test_entries_are_followed_and_a_restart_goes_on_behind_the_last(journald, follow):
    first = follow()
    before = time.time()
    journald.log(b"f1", b"f2\nwith lines", PRIORITY="4", SYSLOG_IDENTIFIER="shop", ORDER="7")
    (_, at, fields), _ = first.wait(b"f1", b"f2\nwith lines")
    assert before - 5 < at < time.time() + 5
    assert fields["log"]["level"] == "warning"
    assert fields["log"]["syslog"]["appname"] == "shop"
    assert fields["process"]["pid"] == os.getpid()
    assert fields["journald"]["custom"] == {"order": "7"}
    first.reader.close()
    journald.log(b"f3")
    second = follow(first.reader.checkpoint())
    second.wait(b"f3")
    assert b"f1" not in [e[0] for e in second.events]
    assert second.reader.lost() == []


def test_from_the_end_and_by_field(journald, follow):
    journald.log(b"old")
    wait_until(lambda: "old" in shown(journald), "the entry to be in the journal")
    end = follow(start_position="end")
    cursor = end.reader.checkpoint()
    assert cursor["cursor"], "where it began counts at once"
    only = follow(matches=("SYSLOG_IDENTIFIER=shop",), start_position="end")
    journald.log(b"new 1", SYSLOG_IDENTIFIER="other")
    journald.log(b"new 2", SYSLOG_IDENTIFIER="shop")
    end.wait(b"new 1", b"new 2")
    assert b"old" not in [e[0] for e in end.events]
    only.wait(b"new 2")
    assert b"new 1" not in [e[0] for e in only.events]


def shown(journald):
    command = ["journalctl", f"--namespace={journald.namespace}", "--no-pager", "-o", "cat"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def test_a_journalctl_that_ends_is_started_again(journald, follow):
    f = follow(start_position="end")
    journald.log(b"k1")
    f.wait(b"k1")
    f.reader._process.kill()
    journald.log(b"k2")
    f.wait(b"k1", b"k2")
    assert f.reader.status()["restarts"] == 1


def test_a_cursor_that_is_gone_is_told(journald, follow):
    f = follow()
    f.wait(b"begin")
    cursor = f.reader.checkpoint()["cursor"]
    gone = ";".join("i=1" if part.startswith("i=") else part for part in cursor.split(";"))
    parts = [p if not p.startswith(("s=", "t=", "m=")) else p[:2] + "1" * len(p[2:]) for p in gone.split(";")]
    later = follow({"cursor": ";".join(parts)})
    lost = later.reader.lost()
    assert [path for path, _ in lost] == ["journald"]
    assert "vacuumed" in lost[0][1].reason


def test_an_agent_that_is_killed_loses_nothing(journald, broker, tmp_path):
    topic = new_topic(broker)
    a = AgentProcess(tmp_path / "agent", broker.bootstrap, topic)
    a.config.write_text(
        f'bootstrap_servers = "{broker.bootstrap}"\nstate_dir = "state"\n[[inputs]]\ntype = "journald"\n'
        f'namespace = "{journald.namespace}"\nmatches = ["SYSLOG_IDENTIFIER={topic}"]\ntopic = "{topic}"\nformat = "json"\n'
    )
    try:
        journald.log(b"a1", SYSLOG_IDENTIFIER=topic)
        a.start()
        with TopicReader(broker.bootstrap, topic) as reader:
            reader.wait_for(1)
            registry = a.state / "registry.json"
            wait_until(
                lambda: registry.exists() and json.loads(registry.read_text()).get("streams"),
                "the checkpoint",
            )
            a.kill()
            journald.log(b"a2", SYSLOG_IDENTIFIER=topic)
            a.start()
            reader.wait_for(2)
            documents = [json.loads(m.value()) for m in reader.seen]
        assert [d["message"] for d in documents] == ["a1", "a2"]
        assert documents[0]["log"]["syslog"]["appname"] == topic
        assert "offset" not in documents[0]["log"]
    finally:
        a.close()
