"""`klamm up` where things go wrong: the environment, taken ports, a worker that hangs, bytes that are no text."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from support.broker import new_topic, wait_until
from support.klamm import KLAMM, Server, gone, klamm, up_words
from typer.testing import CliRunner

from klamm.cli.main import app
from klamm.up import embedded, ports, supervisor
from klamm.up.extras import EXTRAS
from klamm_base.backoff import Backoff
from klamm_base.errors import KlammError


def up(data_dir):
    return Server(*up_words(data_dir))


@pytest.mark.usefixtures("processes")
def test_the_environment_does_not_move_a_server_away_from_its_ready_line(tmp_path, monkeypatch):
    monkeypatch.setenv("KLAMM_LISTENERS", "PLAINTEXT://127.0.0.1:1")
    monkeypatch.setenv("KLAMM_NUM_PARTITIONS", "3")
    with up(tmp_path / "data") as server:
        klamm("produce", "t", "v", "-b", server.ready["broker"])
        listed = json.loads(
            klamm("topic", "list", "--topic", "t", "-o", "json", "-b", server.ready["broker"]).stdout
        )
    assert listed[0]["partitions"] == 3  # the environment counts where `up` has nothing to say


@pytest.mark.usefixtures("processes")
def test_documented_variables_are_not_warned_about(tmp_path, monkeypatch):
    """Under `klamm up` broker and worker share the environment, and commands have variables of their own."""
    documented = [
        "KLAMM_MYSQL_PASSWORD", "KLAMM_REST_TOKEN", "KLAMM_SPARK_DIR", "KLAMM_SQL_URL", "KLAMM_PLUGINS_DIRECTORY",
    ]  # fmt: skip
    for name in documented:
        monkeypatch.setenv(name, str(tmp_path / "x"))
    monkeypatch.setenv("KLAMM_LOG_RETENTION_MS", "100000")
    monkeypatch.setenv("KLAMM_NUM_PARTITION", "3")
    with up(tmp_path / "data") as server:
        pass
    said = [line for line in server.errors if "environment KLAMM_" in line]
    assert len(said) == 1, said
    assert "environment KLAMM_NUM_PARTITION: configuration num.partition " in said[0]
    assert "is unknown and ignored; did you mean num.partitions?" in said[0]


@pytest.mark.usefixtures("processes")
def test_a_second_signal_ends_what_hangs(tmp_path):
    server = up(tmp_path / "data")
    (worker,) = [c for c in psutil.Process(server.process.pid).children() if "distributed" in c.cmdline()]
    pids = [p.pid for p in psutil.Process(server.process.pid).children(recursive=True)]
    os.kill(worker.pid, signal.SIGSTOP)
    server.process.send_signal(signal.SIGINT)
    wait_until(lambda: any("stopping" in line for line in server.errors), "the first signal is heard")
    with pytest.raises(subprocess.TimeoutExpired):
        server.process.wait(0.5)  # it waits for the worker
    assert server.stop(signal.SIGINT) == 1
    assert all(gone(pid) for pid in pids)
    assert "killed by a second signal" in server.errors[-1]
    assert not any("starting it again" in line for line in server.errors)


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="/proc/net/tcp is Linux's")
@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_who_has_a_port_is_named(host):
    with socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET) as taken:
        port = taken.getsockname()[1]
        who = ports.holder(port)
        assert who is not None
        assert who.startswith(f"process {os.getpid()} (")
    assert ports.holder(port) is None


def test_where_nobody_can_tell_who_has_a_port_it_is_still_refused(tmp_path, monkeypatch):
    assert ports.holder(1, proc=tmp_path) is None  # no such files: not Linux
    monkeypatch.setattr(ports, "holder", lambda _port: None)
    with socket.create_server((ports.HOST, 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(KlammError, match=f"--rest-port {port}: the port is taken on .*; stop who has it"):
            ports.choose(port, 8083, "--rest-port")
        chosen, said = ports.choose(None, port, "--rest-port")
    assert chosen != port
    assert said == f"port {port} is taken on 127.0.0.1, using {chosen} (--rest-port chooses)"


def test_one_port_for_two_servers_is_refused():
    """Nobody listens there yet: there is nothing to stop."""
    port = ports.any_free()
    with pytest.raises(KlammError) as refused:
        ports.choose(port, 8082, "--rest-proxy-port", frozenset({port}))
    assert str(refused.value) == (
        f"--rest-proxy-port {port}: the port is taken on 127.0.0.1 by another server of this command; give another"
    )


def test_a_server_is_not_left_out_and_given_a_port(tmp_path):
    words = ["up", "--data-dir", str(tmp_path / "data"), "--no-registry", "--registry-port", "8081"]
    done = CliRunner().invoke(app, words)
    assert (done.exit_code, done.stderr.splitlines()[-1]) == (
        2,
        "klamm: --no-registry and --registry-port 8081: give one of them",
    )


def test_settings_of_a_server_that_does_not_run_do_not_stay(tmp_path):
    lag = next(extra for extra in EXTRAS if extra.name == "lag")
    embedded.children(tmp_path, 1, 2, 3, companions={lag: 4})
    assert (tmp_path / "lag.properties").is_file()
    embedded.children(tmp_path, 1, 2, 3)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["broker.properties", "connect.properties"]


def test_bytes_that_are_no_text_go_through_unchanged(broker):
    topic, data = new_topic(broker), b"k\xfe\tv\xff\xc3\n"
    at = ["-b", broker.bootstrap]
    sent = subprocess.run(
        [str(KLAMM), "produce", topic, "--property", "parse.key=true", *at],
        input=data,
        check=True,
        timeout=60,
    )
    assert sent.returncode == 0
    shown = subprocess.run(
        [str(KLAMM), "consume", topic, "--from-beginning", "-e", "-f", "%k\\t%v\\n", *at],
        stdout=subprocess.PIPE, check=True, timeout=60,
    )  # fmt: skip
    assert shown.stdout == data
    record = json.loads(klamm("consume", topic, "--from-beginning", "-e", "-o", "json", *at).stdout)
    assert record["value"] == {"base64": base64.b64encode(b"v\xff\xc3").decode()}


@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize(
    ("args", "code", "named"),
    [
        ((b"topic", b"create", b"a\xff"), 2, "TOPIC"),
        ((b"group", b"describe", b"g", b"-b", b"h\xff:1"), 2, "'--bootstrap-server' / '-b'"),
        ((b"connector", b"create", b"c", b"-c", b"a=\xff"), 2, "'--config' / '-c'"),
        ((b"kafka-console-consumer", b"--topic", b"a\xff"), 2, "'[ARG]...'"),
        ((b"up", b"--data-dir", b"/dev/null/\xff"), 2, "'--data-dir'"),
        ((b"kafka-dump-log", b"--files", b"/no/\xff.log"), 1, None),
    ],
)
def test_bytes_that_are_no_text_are_an_error_in_words(args, code, named):
    """Text must be UTF-8; paths need not be."""
    done = subprocess.run([str(KLAMM), *args], capture_output=True, timeout=60, check=False)
    said = done.stderr.decode(errors="replace")
    assert (done.returncode, "Traceback" in said, "UnicodeEncodeError" in said) == (code, False, False), said
    if named is not None:
        assert f"Invalid value for {named}" in said or f"Invalid value for '{named}'" in said
        assert "is not UTF-8" in said


@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize(
    "args",
    [
        (b"up", b"--data-dir"),
        (),
        (b"connector", b"apply", b"-f"),
        (b"connect", b"distributed"),
        (b"agent", b"check"),
    ],
)
def test_bytes_that_are_no_text_are_escaped(args, tmp_path):
    done = subprocess.run(
        [str(KLAMM), *args, b"a\xff\xfeb"], capture_output=True, timeout=60, check=False, cwd=tmp_path
    )
    assert done.returncode in (1, 2)
    assert b"a\\xff\\xfeb" in done.stderr, done.stderr
    assert b"udcff" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_keys_and_values_may_be_any_bytes(broker):
    topic, at = new_topic(broker), ["-b", broker.bootstrap]
    subprocess.run([str(KLAMM), "produce", topic, b"v\xff", "-k", b"k\xfe", *at], check=True, timeout=60)
    shown = subprocess.run(
        [str(KLAMM), "consume", topic, "--from-beginning", "-e", "-f", "%k %v", *at],
        stdout=subprocess.PIPE, check=True, timeout=60,
    )  # fmt: skip
    assert shown.stdout == b"k\xfe v\xff"


def test_a_bad_line_does_not_hide_what_was_sent_before_it(broker):
    topic, at = new_topic(broker), ["-b", broker.bootstrap]
    result = klamm("produce", topic, "--property", "parse.key=true", *at, stdin="a\tone\nno separator\n")
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == (
        "klamm: 1 record acknowledged, then line 2: no key separator '\\t' in 'no separator'\n"
    )
    assert klamm("consume", topic, "--from-beginning", "-e", *at).stdout == "one\n"


def test_a_reader_that_goes_away_is_no_error(broker):
    topic, at = new_topic(broker), ["-b", broker.bootstrap]
    klamm("produce", topic, *at, stdin="x" * 200 + "\n" + "line\n" * 50_000)
    consume = subprocess.Popen(
        [str(KLAMM), "consume", topic, "--from-beginning", "-e", *at],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert consume.stdout is not None
    assert consume.stderr is not None
    consume.stdout.readline()
    consume.stdout.close()
    assert consume.wait(60) == 0
    assert consume.stderr.read() == b""
    consume.stderr.close()


@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (["connector", "list", "--url", "nonsense"], 2, "--url nonsense: write http://HOST:PORT"),
        (["up", "--broker-port", "99999"], 2, "--broker-port"),
        (["consume", "t", "--isolation-level", "dirty"], 2, '"dirty"'),
        (["produce", "t", "v", "-z", "zip"], 2, '"zip"'),
        (["consume", "t", "--command-config", "/nonexistent"], 2, "/nonexistent: cannot be read"),
        (["produce", "t", "--property", "key.separator="], 2, "key.separator is empty"),
    ],
)
def test_bad_values_are_named(args, code, said):
    result = klamm(*args)
    assert (result.returncode, "Traceback" in result.stderr) == (code, False)
    assert said in " ".join(result.stderr.split())


@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("klamm top", ["top", "topic"]),
        ("klamm topic de", ["delete", "describe"]),
        ("klamm consume t --from", ["--from", "--from-beginning"]),
    ],
)
def test_shells_can_complete(words, offered):
    env = {"_KLAMM_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
    result = klamm(**env)
    assert (result.returncode, sorted(result.stdout.split())) == (0, offered)


def test_a_tasks_progress_is_shown_as_people_read_it():
    from klamm.cli.connector import _task_row

    task = {"id": 0, "state": "RUNNING", "progress": {"records": 7, "last_ack_ms": 1_000, "lag": 0}}
    assert _task_row(task, 63_400)["last_ack"] == "62 s ago"
    assert "last_ack" not in _task_row({"id": 0, "state": "FAILED"}, 0)


def test_many_tasks_are_counted():
    from klamm.cli.connector import TIMES, _counts

    assert _counts(["RUNNING"]) == ["RUNNING"]
    assert _counts(["RUNNING"] * 30 + ["FAILED"] + ["RUNNING"] * 19) == [f"49{TIMES}RUNNING", "FAILED"]
    assert _counts([]) == []


def test_what_nobody_foresaw_is_a_sentence_unless_asked(monkeypatch, capsys):
    from klamm.cli import main

    def boom(**_: object):
        raise RuntimeError("two\nlines")

    monkeypatch.delenv("KLAMM_DEBUG", raising=False)
    monkeypatch.setattr(main, "app", boom)
    with pytest.raises(SystemExit) as ended:
        main.main()
    assert ended.value.code == 1
    assert capsys.readouterr().err.startswith("klamm: unexpected RuntimeError: two lines (KLAMM_DEBUG=1")
    monkeypatch.setenv("KLAMM_DEBUG", "1")
    with pytest.raises(RuntimeError):
        main.main()


@pytest.mark.usefixtures("processes")
async def test_a_child_that_takes_long_is_waited_for_and_that_is_said(tmp_path, monkeypatch, caplog):
    read_end, write_end = os.pipe()
    slow = tmp_path / "slow.py"
    slow.write_text(
        "import time; time.sleep(0.5); print('noise'); print('ready at=last', flush=True); time.sleep(60)"
    )
    monkeypatch.setattr(supervisor, "COMMAND", (sys.executable, str(slow)))
    monkeypatch.setattr(supervisor, "PATIENCE_S", 0.1)
    child = supervisor.Child(supervisor.ChildSpec("tortoise", ()), read_end)
    try:
        assert await child.start() == "at=last"
    finally:
        await child.stop()
        os.close(read_end)
        os.close(write_end)
    assert "the tortoise is not ready after" in caplog.text


@pytest.mark.usefixtures("processes")
async def test_a_child_that_ends_before_it_is_ready_is_an_error(tmp_path, monkeypatch):
    read_end, write_end = os.pipe()
    broken = tmp_path / "broken.py"
    broken.write_text("import sys; sys.exit(3)")
    monkeypatch.setattr(supervisor, "COMMAND", (sys.executable, str(broken)))
    child = supervisor.Child(supervisor.ChildSpec("hare", ()), read_end)
    try:
        with pytest.raises(KlammError, match=r"the hare ended \(exit code 3\) before it was ready"):
            await child.start()
    finally:
        await child.stop()
        os.close(read_end)
        os.close(write_end)


@pytest.mark.usefixtures("processes")
async def test_a_child_may_print_whatever_it_likes_once_it_is_ready(tmp_path, monkeypatch, capsys):
    """A policy or another plugin that prints must not hold its server up."""
    read_end, write_end = os.pipe()
    chatty, done = tmp_path / "chatty.py", tmp_path / "done"
    chatty.write_text(
        "import pathlib, sys, time\n"
        "print('ready at=last', flush=True)\n"
        "for i in range(20_000): print(i, 'x' * 50, flush=True)\n"
        "pathlib.Path(sys.argv[2]).touch(); time.sleep(60)"
    )
    monkeypatch.setattr(supervisor, "COMMAND", (sys.executable, str(chatty)))
    child = supervisor.Child(supervisor.ChildSpec("magpie", (str(done),)), read_end)
    try:
        await child.start()
        async with asyncio.timeout(20):
            while not done.exists():
                await asyncio.sleep(0.05)
    finally:
        await child.stop()
        os.close(read_end)
        os.close(write_end)
    assert "19999 xxx" in capsys.readouterr().err


@pytest.mark.usefixtures("processes")
async def test_a_child_is_started_again_once_the_system_can(tmp_path, monkeypatch, caplog):
    """No process may be left to start it with for a while."""
    read_end, write_end = os.pipe()
    short, starts = tmp_path / "short.py", tmp_path / "starts"
    short.write_text(
        "import sys, time\n"
        "with open(sys.argv[2], 'a') as f: f.write('x')\n"
        "print('ready at=last', flush=True)\n"
        "time.sleep(0.2 if len(open(sys.argv[2]).read()) == 1 else 60)"
    )
    monkeypatch.setattr(supervisor, "COMMAND", (sys.executable, str(short)))
    monkeypatch.setattr(supervisor, "restarts", lambda: Backoff(first_s=0.05, longest_s=0.1))
    child = supervisor.Child(supervisor.ChildSpec("mayfly", (str(starts),)), read_end)
    begin, refusals = child._begin, [BlockingIOError(11, "Resource temporarily unavailable")]

    async def begin_later():
        if refusals:
            raise refusals.pop()
        return await begin()

    try:
        await child.start()
        monkeypatch.setattr(child, "_begin", begin_later)
        async with asyncio.timeout(20):
            while starts.read_text() != "xx":
                await asyncio.sleep(0.05)
    finally:
        await child.stop()
        os.close(read_end)
        os.close(write_end)
    assert "the mayfly cannot be started" in caplog.text
