"""Topic, produce and consume commands against a real broker; errors, exit codes and output formats."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.broker import new_name, new_topic
from support.klamm import KLAMM, klamm

from klamm_base.version import __version__

pytestmark = pytest.mark.usefixtures("processes")


def test_version():
    result = klamm("--version")
    assert (result.returncode, result.stdout) == (0, f"klamm {__version__}\n")


def test_topic_life(broker):
    name, at = new_name(), ["-b", broker.bootstrap]
    assert (
        klamm("topic", "create", name, "-p", "3", "-c", "retention.ms=-1", *at).stdout == f"created {name}\n"
    )
    listed = json.loads(klamm("topic", "list", "--topic", name, "-o", "json", *at).stdout)
    assert listed == [{"topic": name, "partitions": 3, "replicas": 1}]
    described = json.loads(klamm("topic", "describe", name, "-o", "json", *at).stdout)
    assert [(r["partition"], r["end_offset"], r["configs"]) for r in described] == [
        (p, 0, {"retention.ms": "-1"}) for p in range(3)
    ]
    again = klamm("topic", "create", name, *at)
    assert again.returncode == 1
    assert "already exists" in again.stderr
    assert klamm("topic", "create", name, "--if-not-exists", *at).returncode == 0
    assert klamm("topic", "delete", name, *at).stdout == f"deleted {name}\n"
    for word in ("describe", "delete"):
        absent = klamm("topic", word, name, *at)
        assert (absent.returncode, absent.stderr) == (1, f"klamm: no topic {name} at {broker.bootstrap}\n")
    assert klamm("topic", "delete", name, "--if-exists", *at).returncode == 0


def test_produce_and_consume(broker):
    topic, at = new_topic(broker), ["-b", broker.bootstrap]
    sent = klamm(
        "produce", topic, "-H", "h=1", "--property", "parse.key=true", *at, stdin="a\tone\nb\tzwölf\n"
    )
    assert (sent.returncode, sent.stderr) == (0, "2 records acknowledged\n")
    assert klamm("produce", topic, "-k", "a", "--tombstone", "-z", "zstd", *at).returncode == 0
    shown = klamm("consume", topic, "--from-beginning", "-e", "-f", "%o %k=%v %h %V\\n", *at)
    assert shown.stdout == "0 a=one h=1 3\n1 b=zwölf h=1 6\n2 a=null  -1\n"
    tail = klamm("consume", topic, "--offset", "-1", "-e", "-o", "json", *at)
    assert json.loads(tail.stdout) | {"timestamp": 0} == {
        "topic": topic, "partition": 0, "offset": 2, "timestamp": 0, "key": "a", "value": None, "headers": [],
    }  # fmt: skip


def test_a_group_goes_on_where_it_was(broker):
    topic, group = new_topic(broker), new_name("group")
    args = ["consume", topic, "-g", group, "--from-beginning", "-n", "1", "-b", broker.bootstrap]
    klamm("produce", topic, "one", "two", "-b", broker.bootstrap)
    assert [klamm(*args).stdout for _ in range(2)] == ["one\n", "two\n"]


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (["topic", "create", "x", "-c", "retention.ms"], 2, "'retention.ms' is not key=value"),
        (["consume", "x", "-f", "%y"], 2, "%y is not one of"),
        (["consume", "x", "--from-beginning", "--offset", "3"], 2, "not both"),
        (["produce", "x", "--tombstone"], 2, "a tombstone has a --key"),
        (["produce", "x", "v", "--property", "parse.keys=true"], 2, "'parse.keys' is not one of"),
        (["--log-level", "LOUD", "topic", "list"], 2, "'LOUD' is not one of"),
        (["nonsense"], 2, "nonsense"),
    ],
)
def test_wrong_use_is_said_and_exits_2(args, code, said):
    result = klamm(*args)
    assert result.returncode == code
    assert said in " ".join(result.stderr.split())
    assert "Traceback" not in result.stderr


def test_no_broker_is_one_sentence():
    commands = [
        ["topic", "list"],
        ["consume", "a", "-g", "g", "-n", "1"],
        ["consume", "a"],
        ["produce", "a", "x"],
    ]
    with socket.socket() as s, ThreadPoolExecutor() as pool:  # bound, not listening: nobody answers there
        s.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{s.getsockname()[1]}"
        # All at once, since each waits for some seconds
        results = list(pool.map(lambda words: klamm(*words, "-b", address), commands))
    for result in results:
        assert result.returncode == 1
        assert result.stderr.startswith(f"klamm: no answer from a broker at {address}")
        assert len(result.stderr.splitlines()) == 1


def test_asking_for_an_answer_creates_no_topic(broker):
    topic, at = new_name(), ["-b", broker.bootstrap]
    absent = klamm("consume", topic, *at)
    assert (absent.returncode, absent.stderr) == (1, f"klamm: no topic {topic} at {broker.bootstrap}\n")
    assert json.loads(klamm("topic", "list", "--topic", topic, "-o", "json", *at).stdout) == []


@pytest.mark.parametrize("command", [["topic", "list"], ["consume", "t"], ["produce", "t", "v"]])
def test_a_client_setting_that_does_not_exist_is_named_with_its_file(command, tmp_path):
    path = tmp_path / "cl.properties"
    path.write_text("client.id=me\nfoo=1\n")
    result = klamm(*command, "--command-config", str(path))
    said = f'klamm: {path}: client settings: No such configuration property: "foo"\n'
    assert (result.returncode, result.stderr) == (2, said)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="/dev/full is Linux's")
@pytest.mark.parametrize("command", ["consume", "topic", "--version"])
def test_output_that_cannot_be_written_is_one_sentence(command, broker):
    args = [command]
    if command != "--version":
        topic, at = new_topic(broker), ["-b", broker.bootstrap]
        klamm("produce", topic, "v", *at)
        args = (
            ["consume", topic, "--from-beginning", "-n", "1", *at]
            if command == "consume"
            else ["topic", "list", *at]
        )
    with Path("/dev/full").open("w") as full:
        result = klamm_into(full.fileno(), args)
    said = "klamm: cannot write to standard output: No space left on device\n"
    assert (result.returncode, result.stderr) == (1, said)


@pytest.mark.parametrize("command", ["topic", "reconcile", "--help"])
def test_a_reader_that_went_away_is_no_error(command, broker, tmp_path):
    args = {"topic": ["topic", "list", "-b", broker.bootstrap], "reconcile": reconcile_args(tmp_path)}
    reading, writing = os.pipe()
    os.close(reading)
    try:
        result = klamm_into(writing, args.get(command, [command]))
    finally:
        os.close(writing)
    assert result.stderr == ""


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_are_no_error(closed, broker):
    topic, at = new_topic(broker), f"-b {broker.bootstrap}"
    words = f"{KLAMM} consume {topic} --from-beginning -n 1 {at} {closed}"
    script = f"{KLAMM} produce {topic} v {at} {closed} && {words} && {KLAMM} topic list {at} {closed}"
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, "klamm: " in done.stderr) == (0, False)
    assert ("v\n" in done.stdout) == (">&-" not in closed.replace("2>&-", ""))


def klamm_into(stdout, args):
    """Runs the command with its output into a file descriptor; what it writes is buffered, as users run it."""
    return subprocess.run(
        [str(KLAMM), *args],
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        env=os.environ | {"PYTHONUNBUFFERED": ""},
        check=False,
    )


def reconcile_args(folder):
    (folder / "app.log").write_text('{"id": "1"}\n')
    with contextlib.closing(sqlite3.connect(folder / "d.db")) as db:
        db.execute("create table events (id text)")
    named = ["--source", str(folder / "app.log"), "--sqlite", str(folder / "d.db"), "--table", "events"]
    return ["reconcile", *named, "--id-field", "id", "--settle", "0"]


def test_a_command_is_named_as_users_call_it():
    for command in ([str(KLAMM)], [sys.executable, "-m", "klamm.cli.main"]):
        shown = subprocess.run(
            [*command, "demo", "logs", "--help"], capture_output=True, text=True, timeout=60, check=True
        )
        assert shown.stdout.split("[OPTIONS]")[0].split() == ["Usage:", "klamm", "demo", "logs"]


def test_no_worker_is_one_sentence():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{s.getsockname()[1]}"
        result = klamm("connector", "list", "--url", url)
    assert result.returncode == 1
    assert (
        result.stderr == f"klamm: no answer from a Connect worker at {url}: [Errno 111] Connection refused\n"
    )


def test_a_bad_property_names_file_line_and_key(tmp_path):
    path = tmp_path / "server.properties"
    path.write_text("# broker\n\nnum.partitions=many\n")
    result = klamm("broker", "start", str(path))
    assert result.returncode == 2
    assert (
        f"{path}:3: Invalid value many for configuration num.partitions: Not a number of type INT"
        in result.stderr
    )
    assert "Traceback" not in result.stderr


@pytest.mark.usefixtures("processes")
def test_a_command_imports_no_other_commands():
    """Each process of a mirror and of `klamm up` is a command of its own."""
    code = """
import sys
from klamm.cli.main import app
try:
    app(["mirror", "flow", "--help"], prog_name="klamm")
except SystemExit:
    pass
print(*sys.modules, file=sys.stderr)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    others = {f"klamm.cli.{name}" for name in ("connector", "spark", "up", "agent", "kafka", "plugins")}
    assert not others & set(done.stderr.split())
