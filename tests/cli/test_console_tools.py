"""`kafka-console-producer` and `kafka-console-consumer`: lines to records and back, also against Kafka's own."""

from __future__ import annotations

import subprocess

import pytest
from support import kafka_oracle
from support.broker import new_name, new_topic
from support.klamm import KLAMM, klamm

from klamm.kafka_tools import run as kafka_tools
from klamm.kafka_tools.console_records import ConsoleError, Formatter, LineReader, Shown


@pytest.mark.parametrize(
    ("props", "line", "key", "value", "headers"),
    [
        ({}, "a\tb", None, b"a\tb", []),
        ({"parse.key": "true"}, "k\tv\tw", b"k", b"v\tw", []),
        ({"parse.key": "true", "key.separator": ":", "null.marker": "NULL"}, "k:NULL", b"k", None, []),
        ({"parse.key": "true", "null.marker": "-"}, "-\tv", None, b"v", []),
        ({"parse.headers": "true"}, "a:1,b:\tv", None, b"v", [("a", b"1"), ("b", b"")]),
        (
            {"parse.headers": "true", "parse.key": "true", "null.marker": "N"},
            "a:N\tk\tv",
            b"k",
            b"v",
            [("a", None)],
        ),
        ({"parse.key": "true", "ignore.error": "true"}, "no key", None, b"no key", []),
    ],
)
def test_lines_as_records(props, line, key, value, headers):
    found = LineReader(props).parse(line, 1)
    assert (found.key, found.value, found.headers) == (key, value, headers)


@pytest.mark.parametrize(
    ("props", "line", "said"),
    [
        ({"parse.key": "true"}, "x", "No key separator found on line number 7: 'x'"),
        ({"parse.headers": "true"}, "x\tv", "No header key separator found in pair 'x' on line number 7"),
        (
            {"parse.headers": "true", "headers.separator": ":"},
            "",
            "headers.separator and headers.key.separator may not be equal",
        ),
        ({"parse.keys": "true"}, "", "property parse.keys is not known"),
    ],
)
def test_what_is_no_record(props, line, said):
    with pytest.raises(ConsoleError) as error:
        LineReader(props).parse(line, 7)
    assert said in str(error.value)


@pytest.mark.parametrize("tool", ["kafka-console-consumer", "kafka-console-producer"])
@pytest.mark.parametrize("address", ["", "localhost:abc", "localhost:99999"])
def test_an_address_that_cannot_be_one_is_not_waited_for(tool, address, capsys):
    assert kafka_tools.main(tool, ["--bootstrap-server", address, "--topic", "t"]) == 1
    assert f"Invalid value {address!r} for configuration bootstrap.servers" in capsys.readouterr().err


RECORD = Shown(
    partition=2, offset=5, timestamp=(1, 9), key=b"k", value=None, headers=[("h", b"1"), ("i", None)]
)


@pytest.mark.parametrize(
    ("props", "line"),
    [
        ({}, b"null\n"),
        ({"print.value": "false"}, b""),
        ({"print.key": "true", "key.separator": "|", "null.literal": "-"}, b"k|-\n"),
        (
            {
                f"print.{n}": "true"
                for n in ("timestamp", "partition", "offset", "delivery", "epoch", "headers", "key")
            },
            b"CreateTime:9\tPartition:2\tOffset:5\tDelivery:NOT_PRESENT\tEpoch:NOT_PRESENT\th:1,i:null\tk\tnull\n",
        ),
    ],
)
def test_records_as_lines(props, line):
    assert Formatter(props).format(RECORD) == line


def test_numbers_are_deserialized():
    name = "org.apache.kafka.common.serialization.IntegerDeserializer"
    shown = Formatter({"key.deserializer": name, "print.key": "true", "print.value": "false"})
    record = Shown(partition=0, offset=0, timestamp=(0, -1), key=b"\0\0\1\0", value=None, headers=[])
    assert shown.format(record) == b"256\n"
    with pytest.raises(ConsoleError, match="does not fit its deserializer"):
        shown.format(RECORD)
    with pytest.raises(ConsoleError, match="a Java class cannot be loaded here"):
        Formatter({"key.deserializer": "com.example.Mine"})


def test_there_and_back(broker):
    topic, at = new_topic(broker), ["--bootstrap-server", broker.bootstrap, "--topic"]
    sent = klamm(
        "kafka-console-producer",
        *at,
        topic,
        "--reader-property",
        "parse.key=true",
        "--sync",
        stdin="a\teins\nb\tzwölf\n",
    )
    assert (sent.returncode, sent.stdout, sent.stderr) == (0, "", "")
    words = ["--from-beginning", "--max-messages", "2", "--property", "print.key=true"]
    shown = klamm("kafka-console-consumer.sh", *at, topic, *words)
    assert (shown.returncode, shown.stdout) == (0, "a\teins\nb\tzwölf\n")
    assert shown.stderr.splitlines() == [
        "Option --property is deprecated and will be removed in a future version. Use --formatter-property instead.",
        "Processed a total of 2 messages",
    ]
    end = ["--partition", "0", "--offset", "1"]
    part = klamm("kafka-console-consumer", *at, topic, *end, "--max-messages", "1")
    assert (part.returncode, part.stdout) == (0, "zwölf\n")
    waited = klamm("kafka-console-consumer", *at, topic, *end, "--timeout-ms", "500")
    assert waited.returncode == 0
    assert waited.stdout in ("zwölf\n", ""), "nothing where the broker was silent for half a second"


@pytest.mark.usefixtures("processes")
def test_a_reader_may_come_before_its_topic(broker):
    """As Kafka's does: it waits for it."""
    topic, at = new_name(), ["--bootstrap-server", broker.bootstrap, "--topic"]
    words = [str(KLAMM), "kafka-console-consumer", *at, topic, "--from-beginning", "--max-messages", "1"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as reader:
        assert reader.stderr is not None
        assert reader.stderr.readline().endswith("Broker: Unknown topic or partition; waiting for it\n")
        assert klamm("kafka-console-producer", *at, topic, stdin="a\n").returncode == 0
        out, said = reader.communicate(timeout=30)
    assert (reader.returncode, out) == (0, "a\n"), said


def test_a_refusal_has_the_name_of_kafkas_exception(broker, capsys):
    words = ["--list", "--bootstrap-server", broker.bootstrap]
    assert kafka_tools.main("kafka-acls", words) == 1
    name = (
        "org.apache.kafka.common.errors.SecurityDisabledException: No Authorizer is configured on the broker"
    )
    assert capsys.readouterr().out == f"Error while executing ACL command: {name}\n"


def test_bytes_that_are_no_text_come_back(broker):
    topic, at = new_topic(broker), ["--bootstrap-server", broker.bootstrap, "--topic"]
    sent = subprocess.run(
        [KLAMM, "kafka-console-producer", *at, topic], input=b"\xff\xfe\n", check=False, timeout=60
    )
    assert sent.returncode == 0
    words = [KLAMM, "kafka-console-consumer", *at, topic, "--from-beginning", "--max-messages", "1"]
    assert subprocess.run(words, capture_output=True, check=True, timeout=60).stdout == b"\xff\xfe\n"


@pytest.mark.parametrize(
    ("tool", "words", "said"),
    [
        ("producer", ["--topic", "t"], 'Missing required argument "[bootstrap-server]"'),
        ("producer", ["--broker-list", "x"], "--broker-list is gone since Kafka 4.0"),
        ("producer", ["--topic", "t", "--bootstrap-server", "h:1", "--compression-codec", "zip"], "Unknown compression name: zip"),
        ("producer", ["--topic", "t", "--bootstrap-server", "h:1", "--reader-property", "x"], "x must be key=value"),
        ("consumer", ["--bootstrap-server", "h:1"], "Exactly one of the following arguments is required"),
        ("consumer", ["--topic", "t", "--offset", "1", "--bootstrap-server", "h:1"], "The partition is required when offset"),
        ("consumer", ["--topic", "t", "--partition", "0", "--offset", "x", "--bootstrap-server", "h:1"], "offset value 'x' is incorrect"),
        ("consumer", ["--topic", "t", "--zookeeper", "h:1"], "--zookeeper is gone"),
    ],
)  # fmt: skip
def test_wrong_use(tool, words, said, capsys):
    assert kafka_tools.main(f"kafka-console-{tool}", words) == 1
    assert said in capsys.readouterr().err


@pytest.mark.usefixtures("apache_kafka")
def test_kafkas_tools_read_and_write_the_same(broker, tmp_path):
    from support.kafka_tools import KafkaTools

    tools = KafkaTools(kafka_oracle.require(), tmp_path)
    words = ["--bootstrap-server", broker.bootstrap, "--topic"]
    reader = [
        "--reader-property",
        "parse.key=true",
        "--reader-property",
        "parse.headers=true",
        "--reader-property",
        "null.marker=N",
    ]
    columns = ("timestamp", "partition", "offset", "headers", "key", "value", "epoch", "delivery")
    shown = [
        w
        for c in columns
        for w in ("--formatter-property", f"print.{c}={'false' if c == 'timestamp' else 'true'}")
    ]
    lines = "h:1,i:N\tk\tv\nh:\tN\tN\nN\tä\tö\n"
    try:
        outputs = []
        for producer in (tools, None):
            topic = new_topic(broker, name=new_name())
            if producer is None:
                assert klamm("kafka-console-producer", *words, topic, *reader, stdin=lines).returncode == 0
            else:
                tools.run("kafka-console-producer", *words, topic, *reader, stdin=lines).ok()
            end = ["--from-beginning", "--max-messages", "3", *shown]
            outputs.append(tools.run("kafka-console-consumer", *words, topic, *end).out)
            outputs.append(klamm("kafka-console-consumer", *words, topic, *end).stdout)
        assert len(set(outputs)) == 1, outputs
        assert outputs[0].count("\n") == 3
    finally:
        tools.close()
