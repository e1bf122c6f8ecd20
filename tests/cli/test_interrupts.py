"""Commands that Ctrl-C or SIGTERM ends: their exit codes, and what is said and kept until then."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import time

import pytest
from confluent_kafka import Consumer, TopicPartition
from support import kafka_oracle
from support.broker import new_name, new_topic, wait_until
from support.klamm import KLAMM, klamm
from typer.testing import CliRunner

from klamm.admin import group_reset, records
from klamm.cli.main import app
from klamm_base.interrupts import Interrupted, Interrupts, interruptible

pytestmark = pytest.mark.usefixtures("processes")
SIGNALS = pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["SIGINT", "SIGTERM"]
)


def ended(words, number, ready):
    """Starts a command, sends the signal once it has written this; returns exit code, output and errors."""
    process = subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stderr is not None
    stream = process.stderr if ready.startswith("2:") else process.stdout
    said = ""
    while ready.removeprefix("2:") not in said:
        line = stream.readline()
        assert line, f"ended with {process.wait(60)}: {said}"
        said += line
    process.send_signal(number)
    out, errors = process.communicate(timeout=60)
    return process.returncode, said + out, said + errors


@SIGNALS
def test_a_reader_that_is_ended_has_committed_what_it_printed(broker, number, code):
    topic, group = new_topic(broker), new_name("group")
    klamm("produce", topic, "one", "two", "-b", broker.bootstrap)
    words = [str(KLAMM), "consume", topic, "-g", group, "--from-beginning", "-b", broker.bootstrap]
    found, out, errors = ended(words, number, "two\n")
    assert (found, out) == (code, "one\ntwo\n"), errors
    reader = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    (committed,) = reader.committed([TopicPartition(topic, 0)], 30)
    assert committed.offset == 2


@SIGNALS
def test_a_bench_that_is_ended_tells_its_figures(broker, number, code):
    topic, at = new_topic(broker), ["-o", "json", "-b", broker.bootstrap]
    found, out, errors = ended(
        [str(KLAMM), "bench", "produce", topic, "--rate", "500", *at], number, "2:records/s"
    )
    assert found == code, errors
    (row,) = json.loads(out[out.index("[\n") :])
    assert 0 < row["records"] < 100_000
    assert row["p50_ms"] <= row["max_ms"]
    assert re.search(r"klamm: ended after \d+ of 1000000 records\n$", errors)
    found, out, errors = ended([str(KLAMM), "bench", "consume", topic, *at], number, "2:records after")
    assert found == code, errors
    (again,) = json.loads(out[out.index("[\n") :])
    assert again["records"] >= row["records"]


def test_lines_until_ctrl_c_are_written(broker):
    topic = new_topic(broker)
    process = subprocess.Popen(
        [str(KLAMM), "produce", topic, "-b", broker.bootstrap],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    process.stdin.write("one\n")
    process.stdin.flush()
    wait_until(lambda: ends(broker, topic) == 1, "a record")
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (130, "klamm: 1 record acknowledged, then Ctrl-C\n")


def ends(broker, topic):
    reader = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": new_name()})
    found = reader.get_watermark_offsets(TopicPartition(topic, 0), 30)[1]
    reader.close()
    return found


JAVA = {
    "kafka-console-consumer": ("consumer.ConsoleConsumer", ["--from-beginning"], "one"),
    "kafka-verifiable-producer": ("VerifiableProducer", ["--throughput", "10"], "producer_send_success"),
    "kafka-verifiable-consumer": ("VerifiableConsumer", ["--group-id", "g"], "records_consumed"),
}


@pytest.mark.usefixtures("apache_kafka")
@pytest.mark.parametrize("tool", JAVA)
def test_kafkas_commands_end_with_the_same_code(broker, tool):
    cls, words, ready = JAVA[tool]
    oracle = kafka_oracle.require()
    for number in (signal.SIGINT, signal.SIGTERM):
        codes = []
        for command in (oracle.command("org.apache.kafka.tools." + cls), [str(KLAMM), tool]):
            topic = new_topic(broker)
            klamm("produce", topic, "one", "-b", broker.bootstrap)
            at = ["--bootstrap-server", broker.bootstrap, "--topic", topic, *words]
            codes.append(ended([*command, *at], number, ready)[0])
        assert codes == [128 + number] * 2


def test_a_perf_test_is_ended_without_a_word(broker):
    topic = new_topic(broker)
    words = ["--num-records", "100000", "--record-size", "10", "--throughput", "500"]
    code, _, errors = ended(
        [str(KLAMM), "kafka-producer-perf-test", "--topic", topic, *words, "--reporting-interval", "200",
         "--bootstrap-server", broker.bootstrap],
        signal.SIGINT,
        "records sent",
    )  # fmt: skip
    assert (code, "unexpected" in errors, "klamm:" in errors) == (130, False, False)


@SIGNALS
def test_a_reset_that_is_ended_tells_which_offsets_are_set(broker, monkeypatch, number, code):
    topic = new_topic(broker)
    groups = sorted(new_name("group") for _ in range(3))
    carry_out = group_reset.carry_out

    async def interrupted(admin, group, planned):
        if group == groups[1]:
            signal.raise_signal(number)
            await asyncio.sleep(30)
        await carry_out(admin, group, planned)

    monkeypatch.setattr(group_reset, "carry_out", interrupted)
    wanted = ["--topic", topic, "--to-earliest", "--execute", "-o", "csv", "-b", broker.bootstrap]
    done = CliRunner().invoke(app, ["group", "reset", *groups, *wanted])
    assert done.exit_code == code, done.output
    assert done.stdout.splitlines()[1:] == [f"{groups[0]},{topic},0,0"]
    name = "Ctrl-C" if number == signal.SIGINT else "SIGTERM"
    unknown = f"nobody knows whether the offsets of group {groups[1]!r} are set"
    assert done.stderr == f"1 offset set\nklamm: ended by {name}; {unknown}\n"


@SIGNALS
def test_a_trim_that_is_ended_tells_how_to_look(broker, monkeypatch, number, code):
    topic = new_topic(broker)
    klamm("produce", topic, "one", "-b", broker.bootstrap)

    async def interrupted(_admin, _before):
        signal.raise_signal(number)
        await asyncio.sleep(30)

    monkeypatch.setattr(records, "delete_records", interrupted)
    done = CliRunner().invoke(app, ["topic", "trim", topic, "--all", "--execute", "-b", broker.bootstrap])
    assert (done.exit_code, "nobody knows from which of 1 partition records are" in done.stderr) == (
        code,
        True,
    )
    assert "the same command without --execute shows what is left to delete" in done.stderr


@SIGNALS
def test_a_block_is_ended_by_either_signal(number, code):
    with pytest.raises(Interrupted) as e, interruptible():
        interrupt(number)
    assert e.value.code == code
    with pytest.raises(Interrupted) as e, interruptible():
        asyncio.run(waiting(number))
    assert e.value.code == code
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_sigterm_ends_a_block_where_ctrl_c_is_ignored():
    """As it is in a script's command with `&`."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with pytest.raises(Interrupted) as e, interruptible():
            asyncio.run(waiting(signal.SIGTERM, 2))
    finally:
        signal.signal(signal.SIGINT, before)
    assert e.value.code == 143


async def waiting(number, seconds=30.0):
    signal.raise_signal(number)
    await asyncio.sleep(seconds)


def interrupt(number=signal.SIGINT):
    os.kill(os.getpid(), number)
    time.sleep(30)  # a handler runs before


def test_a_signal_is_told_where_it_is_asked_for():
    with Interrupts() as interrupts:
        interrupts.check()
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(Interrupted, match="Ctrl-C"):
            interrupts.check()
        with pytest.raises(KeyboardInterrupt):
            interrupt()
        assert interrupts.code == 130


def test_a_wait_is_ended_at_once():
    with Interrupts() as interrupts, pytest.raises(Interrupted, match="SIGTERM") as e:  # noqa: SIM117
        with interrupts.raising():
            interrupt(signal.SIGTERM)
    assert e.value.code == 143


def test_a_second_signal_ends_the_wait_for_acknowledgements():
    class Silent:
        def flush(self, _seconds):
            os.kill(os.getpid(), signal.SIGINT)
            return 3

    with Interrupts() as interrupts:
        assert interrupts.flush(Silent(), 60) == 3
        assert interrupts.count == 1
