"""LogTail's task alone: positions through rotation and restarts, tasks that share files, the agent's settings."""

from __future__ import annotations

import gzip
import json
import logging
import os
import re
import socket
import time

import pytest
from support.broker import wait_until

from klamm_connectors.logs.config import parse
from klamm_connectors.logs.connector import LogTailConnector
from klamm_connectors.logs.task import LogTailTask
from klamm_plugins.errors import ConfigError, ConnectError
from klamm_plugins.testing import MemorySourceContext


class Tail:
    """A task and the offsets that were committed; `restart` begins again from these."""

    def __init__(self, folder, **props):
        self.props = {"name": "t", "topic": "logs", "paths": f"{folder}/**/*.log", "scan.interval.ms": "10"}
        self.props |= {k.replace("__", "."): v for k, v in props.items()}
        self.context = MemorySourceContext(self.props)
        self.task = None
        self.start()

    def start(self):
        self.task = LogTailTask()
        self.task.initialize(self.context)
        self.task.start(self.props)

    def restart(self):
        self.task.stop()
        self.start()

    def read(self, count, *, commit=True):
        found = []

        def enough():
            for record in self.task.poll() or ():
                found.append(record)
                if commit:
                    self.context.commit(record)
            return len(found) >= count

        wait_until(enough, f"{count} records, there are {[r.value for r in found]}")
        return found

    def values(self, count, **more):
        return [r.value for r in self.read(count, **more)]

    def nothing(self):
        """Checks that a few looks at the files bring nothing."""
        return not any(self.task.poll() for _ in range(3))


@pytest.fixture
def tail(tmp_path):
    made = []

    def make(**props):
        made.append(Tail(tmp_path, **props))
        return made[-1]

    yield make
    for each in made:
        each.task.stop()


def write(path, *lines):
    with path.open("a") as f:
        f.writelines(f"{line}\n" for line in lines)


def test_files_are_followed_through_renaming_and_a_restart(tmp_path, tail):
    path = tmp_path / "app.log"
    write(path, "a1", "a2")
    t = tail()
    assert t.values(2) == ["a1", "a2"]
    path.rename(tmp_path / "app.1.log")
    write(tmp_path / "app.1.log", "a3")
    write(path, "b1")
    assert sorted(t.values(2)) == ["a3", "b1"]
    t.task.stop()
    (tmp_path / "app.1.log").rename(tmp_path / "app.2.log")
    write(tmp_path / "app.2.log", "a4")
    t.start()
    assert t.values(1) == ["a4"]
    assert t.nothing()


@pytest.mark.parametrize("how", ["running", "stopped"])
def test_a_file_that_was_renamed_out_of_the_patterns_while_it_was_closed(tmp_path, tail, how):
    path, old = tmp_path / "app.log", tmp_path / "app.log.1"
    write(path, "a1", "a2")
    t = tail(settings='close_inactive = "50ms"')
    t.read(2)
    if how == "stopped":
        t.task.stop()
    else:
        wait_until(lambda: t.nothing() and not t.task._source._files._open, "the file to be closed")
    path.rename(old)
    write(old, "a3")
    write(path, "b1")
    if how == "stopped":
        t.start()
    assert sorted(t.values(2)) == ["a3", "b1"]
    write(old, "a4")
    assert t.values(1) == ["a4"]
    t.restart()
    assert t.nothing()


def test_what_was_seen_and_is_gone_at_the_next_start_is_told(tmp_path, tail, caplog):
    path = tmp_path / "app.log"
    write(path, *(f"{i:07d}" for i in range(100_000)))  # more than one read
    t = tail()
    read = len(t.read(1))
    t.task.stop()
    path.write_text("new\n")
    t.start()
    assert t.values(1) == ["new"]
    t.task._source._tracker.expire(time.monotonic() + 60)
    t.nothing()
    assert f"bytes {read * 8} to 800000 are not delivered: truncated" in caplog.text


def test_a_read_that_was_not_committed_to_its_end_comes_again(tmp_path, tail):
    path = tmp_path / "app.log"
    write(path, "a1")
    t = tail()
    t.read(1)
    write(path, "a2", "a3", "a4")
    records = t.read(3, commit=False)
    t.context.commit(records[1])
    t.restart()
    assert t.values(3) == ["a2", "a3", "a4"]
    t.restart()
    assert t.nothing()


def test_another_content_under_the_same_name_is_read_from_its_beginning(tmp_path, tail):
    path = tmp_path / "app.log"
    write(path, "a1", "a2")
    t = tail()
    t.read(2)
    t.task.stop()
    path.write_text("other\ncontent\nof a file\n")
    t.start()
    assert t.values(3) == ["other", "content", "of a file"]


def test_offsets_say_where_in_which_file(tmp_path, tail):
    path = tmp_path / "app.log"
    write(path, "line")
    record = tail().read(1)[0]
    assert record.source_partition == {"root": str(tmp_path), "inode": path.stat().st_ino}
    offset = dict(record.source_offset)
    assert (offset["path"], offset["position"]) == (str(path), 5)
    assert all(isinstance(value, (str, int)) for value in offset.values()), "Connect keeps primitive values"


def test_an_offset_that_a_user_sets_counts(tmp_path, tail):
    path = tmp_path / "app.log"
    write(path, "a1", "a2", "a3")
    t = tail()
    record = t.read(3)[0]
    LogTailConnector.alter_offsets(t.props, [(record.source_partition, {"position": 3})])
    t.context._offsets[json.dumps(dict(record.source_partition), sort_keys=True)] = {"position": 3}
    t.restart()
    assert t.values(2) == ["a2", "a3"]


@pytest.mark.parametrize(
    ("partition", "offset"),
    [({"inode": 1}, {"position": 1}), ({"root": "/", "inode": "x"}, {"position": 1}), ({"root": "/", "inode": 1}, {"position": -1})],
)  # fmt: skip
def test_offsets_that_cannot_be_are_refused(partition, offset):
    with pytest.raises(ConnectError, match="should"):
        LogTailConnector.alter_offsets({}, [(partition, offset)])


def test_tasks_share_the_files(tmp_path):
    for i in range(12):
        write(tmp_path / f"{i}.log", f"file {i}")
    connector = LogTailConnector()
    connector.start({"name": "t", "topic": "logs", "paths": f"{tmp_path}/*.log"})
    found = []
    for props in connector.task_configs(3):
        task = LogTailTask()
        task.initialize(MemorySourceContext(props))
        task.start(props)
        while batch := task.poll():
            found += [r.value for r in batch]
        task.stop()
    assert sorted(found) == sorted(f"file {i}" for i in range(12))


def test_from_the_end_stays_so_after_a_restart(tmp_path, tail):
    old, other = tmp_path / "old.log", tmp_path / "other.log"
    write(old, "before")
    write(other, "before, too")
    past = time.time() - 3600
    os.utime(old, (past, past))
    t = tail(start__position="end")
    assert t.nothing()
    write(other, "after")
    assert t.values(1) == ["after"]
    t.restart()
    assert t.nothing(), "old.log has not changed since the first start"
    write(old, "new")
    assert t.values(1) == ["new"]


def test_documents_multiline_parsing_and_dead_letters(tmp_path, tail):
    write(tmp_path / "app.log", '{"level": "warn", "message": "m1"}', "no JSON", '{"message": "m2"}')
    settings = '[[parse]]\ntype = "json"\non_error = "dead_letter"\n'
    t = tail(
        format="json",
        fields='{"service": {"name": "shop"}}',
        settings='dead_letter_topic = "dead"\n' + settings,
    )
    records = t.read(3)
    by_topic = {
        topic: [json.loads(r.value) for r in records if r.topic == topic] for topic in ("logs", "dead")
    }
    assert [d["message"] for d in by_topic["logs"]] == ["m1", "m2"]
    assert by_topic["logs"][0]["service"] == {"name": "shop"}
    assert by_topic["dead"][0]["message"] == "no JSON"
    t.restart()
    assert t.nothing()


def test_stack_traces_are_one_event(tmp_path, tail):
    write(
        tmp_path / "app.log",
        "Traceback (most recent call last):",
        '  File "x", line 1',
        "ValueError: no",
        "next",
    )
    t = tail(multiline='{"preset": "python", "timeout": "100ms"}')
    assert t.values(2) == ['Traceback (most recent call last):\n  File "x", line 1\nValueError: no', "next"]


def test_an_archive_is_read_once_also_over_restarts(tmp_path, tail):
    path = tmp_path / "app.log"
    with gzip.open(path, "wb") as f:
        f.writelines(b"line %d\n" % i for i in range(50_000))
    t = tail()
    first = t.read(1)
    t.restart()
    rest = t.read(50_000 - len(first))
    assert [r.value for r in (*first, *rest)] == [f"line {i}" for i in range(50_000)]
    assert rest[-1].source_offset["packed"] == path.stat().st_size
    t.restart()
    assert t.nothing()


def test_bytes_and_keys(tmp_path, tail):
    (tmp_path / "app.log").write_bytes(b"\xff\xfe line\n")
    record = tail(value__as="bytes", key="path").read(1)[0]
    assert (record.value, record.key) == (b"\xff\xfe line", str(tmp_path / "app.log"))


def test_syslog_is_received(tail, caplog):
    t = tail(type="syslog", settings='listen = ["udp://127.0.0.1:0"]', format="json", paths="")
    (shown,) = t.task._source._reader.status()["listen"]
    port = int(shown.rpartition(":")[2])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.sendto(b"<14>1 - h app - - - hello", ("127.0.0.1", port))
        record = t.read(1)[0]
        document = json.loads(record.value)
        assert (document["message"], document["log"]["syslog"]["appname"]) == ("hello", "app")
        assert record.source_partition == {"input": "syslog udp:127.0.0.1"}
        s.sendto(b"<14>1 - h app - - - too late", ("127.0.0.1", port))
    t.task.stop()
    assert "syslog udp:127.0.0.1: 1 events had come and are not delivered: the task ends" in caplog.text


JOURNALCTL = r"""#!/bin/sh
case "$*" in *--follow*) ;; *) exit 0 ;; esac
i=0
case "$*" in *--after-cursor=c*) i=$(echo "$*" | sed 's/.*--after-cursor=c//') ;; esac
while [ $i -lt 3 ]; do i=$((i + 1)); printf 'MESSAGE=m%s\n__CURSOR=c%s\n\n' $i $i; done
exec sleep 60
"""


@pytest.mark.usefixtures("processes")
def test_a_first_batch_of_the_journal_that_a_crash_cuts_comes_again(tmp_path, tail):
    program = tmp_path / "journalctl"
    program.write_text(JOURNALCTL)
    program.chmod(0o755)
    t = tail(type="journald", settings=f'journalctl = "{program}"', paths="")
    first = t.read(3, commit=False)
    assert [r.value for r in first] == ["m1", "m2", "m3"]
    t.context.commit(first[0])
    t.restart()
    assert t.values(3) == ["m1", "m2", "m3"]
    t.task.stop()


def test_what_is_left_out_by_a_rule_is_told(tmp_path, tail, caplog):
    write(tmp_path / "app.log", "keep 1", "debug", "keep 2")
    with caplog.at_level(logging.INFO, logger="klamm_connectors.logs.task"):
        assert tail(settings='exclude_lines = ["debug"]').values(2) == ["keep 1", "keep 2"]
    assert "1 events were left out" in caplog.text


@pytest.mark.parametrize(
    ("props", "key", "text"),
    [
        ({"paths": "app.log"}, "paths", "absolute"),
        ({"max.line.bytes": "1"}, "max.line.bytes", "max.line.bytes = 1: a whole number from 16"),
        ({"rotate.wait": "soon"}, "rotate.wait", 'rotate.wait = .soon.: a time such as "500ms"'),
        ({"settings": "a ="}, "settings", "is not TOML"),
        ({"settings": 'rotat_wait = "5s"'}, "settings", "did you mean rotate_wait"),
        ({"multiline": "{"}, "multiline", "A JSON object"),
        ({"type": "journald", "start.position": "never"}, "paths", "paths is not a setting"),
    ],
)
def test_what_is_wrong_names_the_key(props, key, text):
    with pytest.raises(ConfigError, match=text) as failed:
        parse({"topic": "t", "paths": "/var/log/*.log"} | props)
    assert failed.value.key == key


@pytest.mark.parametrize(
    ("props", "expected"),
    [
        (
            {
                "topic": "a b",
                "pathz": "/a",
                "multiline": "jva",
                "max.line.bytes": "1",
                "scan.interval.ms": "soon",
            },
            {
                "topic": "a topic's name has",
                "paths": "paths is missing",
                "multiline": "presets are python, java",
                "max.line.bytes": "a whole number from 16",
                "scan.interval.ms": "Not a number",
            },
        ),
        (
            {"topic": "t", "paths": "app.log", "multiline": '{"preset": "jva"}', "settings": "rotat = 1"},
            {"paths": "absolute", "settings": "did you mean rotate_wait"},
        ),
        (
            {"topic": "t", "paths": "/a", "multiline": '{"preset": "jva"}', "key": "path"},
            {"multiline": r"\[multiline\] preset = 'jva'"},
        ),
        ({"topic": "t", "type": "syslog"}, {"settings": "listen is missing"}),
        ({"topic": "t", "type": "journald", "paths": "/a"}, {"paths": "is not a setting"}),
        ({"topic": "t", "paths": "/a", "fields": '{"a": 1}'}, {"fields": "has an effect with"}),
    ],
)
def test_validation_reports_every_error_at_its_key(props, expected):
    found = {v.name: v.errors for v in LogTailConnector.validate(props) if v.errors}
    assert found.keys() == expected.keys()
    for name, text in expected.items():
        assert re.search(text, found[name][0]), found[name]
