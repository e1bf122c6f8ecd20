"""`klamm bench`, kafka-producer-perf-test and kafka-consumer-perf-test: their figures, and the text of Kafka's tools."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import kafka_oracle
from support.broker import new_topic
from support.klamm import klamm

from klamm.kafka_tools import run as kafka_tools
from klamm.kafka_tools.consumer_perf_test import figures
from klamm.kafka_tools.producer_perf_test import total
from klamm.load.latencies import Latencies, Pace
from klamm.load.running import Reading


@given(st.lists(st.floats(0, 9_999), min_size=1), st.floats(0.01, 1))
def test_percentiles_are_those_of_the_latencies(latencies, share):
    found = Latencies()
    for ms in latencies:
        found.add(ms, 10)
    exact = sorted(map(int, latencies))[max(0, -int(-share * len(latencies) // 1) - 1)]
    assert found.percentile(share) == exact
    assert found.max_ms == max(latencies)
    assert (found.count, found.bytes) == (len(latencies), 10 * len(latencies))


def test_a_pace_spreads_records_evenly():
    pace = Pace(100, 5.0)
    assert [round(pace.wait_s(n, 5.0), 3) for n in (0, 1, 50)] == [0, 0.01, 0.5]
    assert pace.wait_s(10, 6.0) == 0
    assert Pace(-1, 0).wait_s(10**9, 0) == 0


def test_the_text_is_kafkas():
    whole = Latencies()
    for ms in (1.0, 3.0):
        whole.add(ms, 1024)
    assert total(whole, 2.0) == (
        "2 records sent, 1.000000 records/sec (0.00 MB/sec), 2.00 ms avg latency, 3.00 ms max latency,"
        " 1 ms 50th, 3 ms 95th, 3 ms 99th, 3 ms 99.9th.\n"
    )
    assert figures(2000, 1024 * 1024, (2000, 1024 * 1024, 2.0), 1000) == (
        "1.0000, 0.5000, 2000, 1000.0000, 1000, 1000, 1.0000, 2000.0000"
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "too few arguments"),
        (["--topic", "t"], "required"),
        (["--num-records", "0", "--record-size", "1"], "should be greater than zero"),
        (["--num-records", "5", "--record-size", "1", "--warmup-records", "5"], "strictly fewer"),
        (["--num-records", "5", "--record-size", "1"], "--bootstrap-server"),
        (["--num-records", "5", "--payload-file", "/absent"], "/absent"),
        (["--num-records", "5", "--payload-file", "x", "--record-size", "1"], "not allowed with"),
    ],
)
def test_command_lines_that_make_no_sense(words, said, capsys):
    common = ["--topic", "t", "--throughput", "-1"] if words and words[0] == "--num-records" else []
    assert kafka_tools.main("kafka-producer-perf-test", [*words, *common]) == 1
    assert said in capsys.readouterr().err


# ---- at brokers


def digits_out(text):
    """Returns the different forms of lines: how many reports there are depends on the machine."""
    lines = [re.sub(r"\d+", "N", re.sub(r"\d+\.\d+", "F", line)) for line in text.splitlines()]
    return list(dict.fromkeys(lines))


def test_a_bench_tells_rates(broker):
    topic = new_topic(broker, 2)
    done = klamm(
        "bench",
        "produce",
        topic,
        "-n",
        "2000",
        "-s",
        "50",
        "--keys",
        "3",
        "-b",
        broker.bootstrap,
        "-o",
        "json",
    )
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)
    assert row["records"] == 2000
    assert row["p50_ms"] <= row["p99_ms"] <= row["max_ms"]
    assert row["mb_per_s"] > 0
    done = klamm("bench", "consume", topic, "-n", "2000", "-b", broker.bootstrap, "-o", "json")
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)
    assert (row["records"], row["records_per_s"] > 0) == (2000, True)
    done = klamm("bench", "consume", topic, "-n", "2001", "--timeout-ms", "500", "-b", broker.bootstrap)
    assert (done.returncode, "2000 of 2001 records came" in done.stderr) == (1, True)
    done = klamm("bench", "produce", "absent-topic", "-b", broker.bootstrap)
    assert (done.returncode, "no topic absent-topic" in done.stderr) == (1, True)


def test_a_transaction_is_committed_by_the_perf_test(broker, capsys):
    topic = new_topic(broker, 1)
    words = ["--topic", topic, "--num-records", "500", "--record-size", "10", "--throughput", "-1"]
    words += [
        "--bootstrap-server",
        broker.bootstrap,
        "--transactional-id",
        topic,
        "--transaction-duration-ms",
        "20",
    ]
    assert kafka_tools.main("kafka-producer-perf-test", words) == 0
    done = klamm(
        "consume",
        topic,
        "--from-beginning",
        "-e",
        "--isolation-level",
        "read_committed",
        "-b",
        broker.bootstrap,
    )
    assert len(done.stdout.splitlines()) == 500


@pytest.fixture(scope="module")
def tools(processes, tmp_path_factory):
    from support.kafka_tools import KafkaTools

    tools = KafkaTools(kafka_oracle.require(), tmp_path_factory.mktemp("tools"))
    yield tools
    tools.close()


@pytest.mark.usefixtures("apache_kafka")
def test_the_perf_tests_print_what_kafkas_print(broker, tools, capfd):
    topic = new_topic(broker, 1)
    at = ["--bootstrap-server", broker.bootstrap]
    produce = ["--topic", topic, "--num-records", "1000", "--record-size", "100", "--throughput", "500", *at]
    produce += ["--reporting-interval", "800"]
    consume = ["--topic", topic, "--num-records", "2000", *at]
    for tool, words in (
        ("kafka-producer-perf-test", produce),
        ("kafka-consumer-perf-test", consume),
        ("kafka-consumer-perf-test", [*consume, "--hide-header"]),
        ("kafka-consumer-perf-test", at),
        ("kafka-consumer-perf-test", ["--topic", topic, *at]),
        ("kafka-consumer-perf-test", [*consume, "--include", "x"]),
    ):
        theirs = tools.run(tool, *words)
        code = kafka_tools.main(tool, words)
        printed = capfd.readouterr()
        if code:
            assert (code, theirs.out) == (theirs.code, printed.out)
            assert printed.err.splitlines()[0] in theirs.err
        else:
            assert (code, digits_out(printed.out)) == (theirs.code, digits_out(theirs.out))


def events(text):
    """Returns events without what differs from run to run."""
    rows = [json.loads(line) for line in text.splitlines()]
    for row in rows:
        assert row.pop("timestamp") > 1_700_000_000_000
        row.pop("avg_throughput", None)
    return rows


def test_the_verifiable_producer_prints_kafkas_events(broker, capfd):
    topic = new_topic(broker, 1)
    words = ["--topic", topic, "--max-messages", "3", "--bootstrap-server", broker.bootstrap]
    assert (
        kafka_tools.main(
            "kafka-verifiable-producer", [*words, "--value-prefix", "7", "--repeating-keys", "2"]
        )
        == 0
    )
    sent = {"name": "producer_send_success", "topic": topic, "partition": 0}
    assert events(capfd.readouterr().out) == [
        {"name": "startup_complete"},
        *[{**sent, "key": str(n % 2), "value": f"7.{n}", "offset": n} for n in range(3)],
        {"name": "shutdown_complete"},
        {"name": "tool_data", "sent": 3, "acked": 3, "target_throughput": -1},
    ]


@pytest.mark.usefixtures("apache_kafka")
def test_the_verifiable_consumer_prints_what_kafkas_prints(broker, tools, capfd):
    topic = new_topic(broker, 1)
    klamm("produce", topic, "a", "b", "c", "-b", broker.bootstrap)
    at = ["--topic", topic, "--max-messages", "3", "--bootstrap-server", broker.bootstrap, "--verbose"]
    for more in ([], ["--enable-autocommit"]):
        theirs = tools.run(
            "kafka-verifiable-consumer", *at, *more, "--group-id", f"theirs-{topic}-{len(more)}"
        )
        words = [*at, *more, "--group-id", f"ours-{topic}-{len(more)}"]
        assert kafka_tools.main("kafka-verifiable-consumer", words) == 0
        *found, last = events(capfd.readouterr().out)
        assert found == events(theirs.out)
        assert last == {
            "name": "shutdown_requested"
        }  # Kafka's prints it at the end of its JVM, which lives on here


def test_latency_from_end_to_end(broker, capfd):
    topic = new_topic(broker, 1) + "-new"
    assert kafka_tools.main("kafka-e2e-latency", [broker.bootstrap, topic, "20", "1", "10"]) == 0
    printed = capfd.readouterr()
    assert "Positional argument usage is deprecated" in printed.err
    made, first, mean, percentiles = printed.out.splitlines()
    assert (
        made
        == f'Topic "{topic}" does not exist. Will create topic with 1 partition(s) and replication factor = 1'
    )
    assert re.fullmatch(r"0\t[\d.]+", first)
    assert re.fullmatch(r"Avg latency: \d+\.\d{4} ms", mean)
    assert re.fullmatch(r"Percentiles: 50th = \d+, 99th = \d+, 99.9th = \d+", percentiles)


class _Record:
    def error(self):
        return None

    def key(self):
        return None

    def value(self):
        return b"value"


def test_a_wait_for_records_that_do_not_come_is_not_in_the_time_of_reading():
    now = 0.0

    class FewRecords:
        def subscribe(self, names, on_assign):
            self.answers = [[_Record()] * 3, [_Record()] * 2]
            on_assign(self, [])

        def consume(self, count, wait_s):
            nonlocal now
            now += 1.0
            return self.answers.pop(0) if self.answers else []

    reading = Reading(FewRecords(), lambda *_: None, clock=lambda: now)
    topics = list("t")
    assert not reading.run(topics, 100, idle_s=10)
    assert (reading.records, reading.read_s, reading.elapsed_s) == (5, 2.0, 13.0)
