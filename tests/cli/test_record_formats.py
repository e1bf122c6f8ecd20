"""Keys and values as `klamm consume` and `klamm produce` have them: formats, templates, paths; at a broker and a registry."""

from __future__ import annotations

import csv
import io
import json
import struct
import types

import pytest
import typer
import yaml
from confluent_kafka import Producer
from hypothesis import given
from hypothesis import strategies as st
from support.broker import new_name, new_topic
from support.klamm import klamm
from support.schema_registry import SchemaRegistry

from klamm.cli import consume as consuming
from klamm.cli.produce_options import Record, parse_template, template_records
from klamm.records import formats
from klamm.records.paths import parse
from klamm_base.errors import ConfigError, KlammError
from klamm_base.interrupts import Interrupts

NUMBERS = {
    "short": st.integers(-(2**15), 2**15 - 1),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "double": st.floats(allow_nan=False, allow_infinity=False),
}
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(st.characters(exclude_categories=["Cs"]))),
    lambda inner: st.one_of(
        st.lists(inner, max_size=2), st.dictionaries(st.text(max_size=2), inner, max_size=2)
    ),
    max_leaves=5,
)


@given(st.data(), st.sampled_from(formats.PLAIN))
def test_what_is_written_in_a_format_is_read_in_it(data, name):
    if name == "float":
        value = data.draw(st.floats(width=32, allow_nan=False, allow_infinity=False))
    elif name in NUMBERS:
        value = data.draw(NUMBERS[name])
    elif name == "json":
        value = data.draw(JSON)
    elif name == "string":
        value = data.draw(st.text(st.characters(exclude_categories=["Cs"])))
    else:
        raw = data.draw(st.binary())
        value = formats.decoder(name, is_key=False)("t", raw)
        assert formats.encode(name, formats.as_bytes(value)) == raw
        return
    text = json.dumps(value).encode() if name == "json" else formats.as_bytes(value)
    assert formats.decoder(name, is_key=False)("t", formats.encode(name, text)) == value


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("short", b"99999"),
        ("int", b"x"),
        ("float", b"1e40"),
        ("hex", b"xy"),
        ("base64", b"!"),
        ("json", b"{"),
        ("string", b"\xff"),
    ],
)
def test_what_does_not_fit_is_refused(name, text):
    with pytest.raises(ValueError, match=r"."):
        formats.encode(name, text)


@pytest.mark.parametrize(("name", "data"), [("int", b"123"), ("string", b"\xff"), ("json", b"{")])
def test_what_cannot_be_read_is_named(name, data):
    with pytest.raises(formats.BadRecord, match=r"value of t-0@7: "):
        formats.decoded(formats.decoder(name, is_key=False), "t", data, "value of t-0@7")


@pytest.mark.parametrize(
    ("text", "document", "fulfilled"),
    [
        ("$.a", {"a": 0}, True),
        ("$.a", {"a": None}, False),
        ("$.a", [1], False),
        ("$", 5, True),
        ("$.a[1].b == 'x'", {"a": [0, {"b": "x"}]}, True),
        ("$.a[*].n > 10", {"a": [{"n": 1}, {"n": 11}]}, True),
        ("$.a[*].n > 10", {"a": [{"n": "x"}, {"n": 10}]}, False),
        ("$.* == true", {"x": False, "y": True}, True),
        ('$["a b"] != 1', {"a b": 2}, True),
        ("$.n =~ '^a.c'", {"n": "abcd"}, True),
        ("$.n =~ '^a.c'", {"n": 5}, False),
        ("$.n==word", {"n": "word"}, True),
        ("$.t <= 1.5", {"t": 1.5}, True),
        ("$.a[9]", {"a": []}, False),
    ],
)
def test_conditions(text, document, fulfilled):
    assert parse(text)(document) is fulfilled


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a.b", "begins with"),
        ("$.a ~ 1", "neither a step"),
        ("$.a == {", "no JSON value"),
        ("$.a =~ '('", "no regular expression"),
        ("$.a =~ 1", "needs a regular expression"),
    ],
)
def test_conditions_that_make_no_sense(text, said):
    with pytest.raises(ConfigError, match=said):
        parse(text)


def lines(pattern, *texts, key=None):
    return list(template_records(parse_template(pattern), iter(texts), key))


def test_lines_become_records_by_a_template():
    assert lines("%k:%v", b"a:b:c", b":") == [Record(b"a", b"b:c", []), Record(b"", b"", [])]
    assert lines(r"%p|%h|%k\t%v", b"3|x=1,y=|k\tv") == [Record(b"k", b"v", [("x", b"1"), ("y", b"")], 3)]
    assert lines("[%v]", b"[x]", key=b"k") == [Record(b"k", b"x", [])]
    assert lines("100%% %v", b"100% x") == [Record(None, b"x", [])]
    row = b'{"key": null, "value": {"a": 1}, "headers": [["h", {"base64": "/w=="}]]}'
    assert lines("json", row) == [Record(None, b'{"a": 1}', [("h", b"\xff")])]
    assert lines("json", b'{"value": "v", "partition": 1, "timestamp": 5}') == [Record(None, b"v", [], 1, 5)]
    assert lines("json", b'{"value": "v", "timestamp": -1}') == [Record(None, b"v", [])]


@pytest.mark.parametrize("pattern", ["%k%v", "%x", "%v %v"])
def test_templates_that_make_no_sense(pattern):
    with pytest.raises(typer.BadParameter):
        parse_template(pattern)


@pytest.mark.parametrize(
    ("pattern", "line", "said"),
    [
        ("%k:%v", b"ab", "line 1: no ':' in 'ab'"),
        ("x%v", b"y", "does not begin with 'x'"),
        ("%h %v", b"a v", "must be name=value"),
        ("%p %v", b"a v", "invalid literal"),
        ("json", b"[]", "must be like"),
        ("json", b'{"value": 1, "headers": 3}', "headers must be like"),
        ("json", b'{"value": 1, "partition": "0"}', 'partition is "0", not a whole number from -1'),
        ("json", b'{"value": 1, "timestamp": true}', "timestamp is true, not a whole number from -1"),
    ],
)
def test_lines_that_do_not_fit_are_named(pattern, line, said):
    with pytest.raises(KlammError, match=said):
        lines(pattern, line)


# ---- at a broker


def produce(broker, topic, text, *words, code=0):
    done = klamm("produce", topic, *words, "-b", broker.bootstrap, stdin=text)
    assert done.returncode == code, done.stderr
    return done.stderr


def consume(broker, topic, *words, code=0):
    done = klamm("consume", topic, "-e", *words, "-b", broker.bootstrap)
    assert done.returncode == code, done.stderr
    return done.stdout if code == 0 else done.stderr


@pytest.mark.parametrize(("number", "text"), [("nan", "NaN"), ("inf", "Infinity"), ("-inf", "-Infinity")])
def test_numbers_that_json_does_not_have_are_text(number, text):
    data = struct.pack(">d", float(number))
    assert formats.decoder("double", is_key=False)("t", data) == text
    assert formats.encode("double", text.encode()) == data


def test_a_header_may_be_there_twice(broker):
    topic = new_topic(broker, 1)
    produce(broker, topic, "v\n", "-H", "a=1", "-H", "a=2", "-H", "b=3")
    assert consume(broker, topic, "--from-beginning", "-f", r"%h\n") == "a=1,a=2,b=3\n"


def test_times_are_written_and_headers_chosen(broker):
    topic = new_topic(broker, 1)
    produce(broker, topic, "1700000000000 a=1 x\n1700000000001 a=2,b=1 y\n", "-f", "%d %h %v")
    shown = ("--from-beginning", "-f", r"%d %v\n")
    assert consume(broker, topic, *shown) == "1700000000000 x\n1700000000001 y\n"
    assert consume(broker, topic, *shown, "-H", "a=2", "-H", "b=1") == "1700000000001 y\n"
    assert consume(broker, topic, *shown, "-H", "b=2") == ""
    assert "must be KEY=VALUE" in consume(broker, topic, "-H", "b", code=2)
    assert "line 1: 'now' is no time in ms" in produce(broker, topic, "now x\n", "-f", "%d %v", code=1)


def test_records_are_chosen(broker):
    topic = new_topic(broker, 1)
    produce(broker, topic, 'k1|{"n": 1}\nk2|{"n": 2}\nk1|{"n": 3}\nk3|word\n', "-f", "%k|%v")
    every = ("--from-beginning", "-f", r"%o %k\n")
    assert consume(broker, topic, *every, "--key", "k1") == "0 k1\n2 k1\n"
    assert consume(broker, topic, *every, "--jsonpath", "$.n > 1") == "1 k2\n2 k1\n"
    assert consume(broker, topic, *every, "--jsonpath", "$.n > 1", "--key", "k1", "-n", "5") == "2 k1\n"
    assert consume(broker, topic, *every, "--grep", "wor|k2") == "1 k2\n3 k3\n"
    assert consume(broker, topic, "-f", r"%o\n", "--from", "1", "--to", "3") == "1\n2\n"
    assert consume(broker, topic, "-f", r"%o\n", "--to", "2") == "0\n1\n"
    assert consume(broker, topic, "-f", r"%o\n", "--from", "2000-01-01", "--to", "2001-01-01") == ""
    assert "no regular expression" in consume(broker, topic, "--grep", "(", code=2)


def test_formats_without_schemas(broker):
    topic = new_topic(broker, 1)
    produce(broker, topic, "5:00ff\n", "-f", "%k:%v", "--key-format", "long", "--value-format", "hex")
    produce(broker, topic, "", "--tombstone", "-k", "6", "--key-format", "long")
    shown = ("--from-beginning", "--key-format", "long", "--value-format", "hex")
    assert consume(broker, topic, *shown, "-f", r"%k %v\n") == "5 00ff\n6 null\n"
    rows = [json.loads(line) for line in consume(broker, topic, *shown, "-o", "json").splitlines()]
    assert [(r["key"], r["value"]) for r in rows] == [(5, "00ff"), (6, None)]
    assert "key of" in consume(broker, topic, "--from-beginning", "--key-format", "int", code=1)
    skipping = ("--from-beginning", "--value-format", "int", "--skip-bad", "-f", r"%o\n")
    assert consume(broker, topic, *skipping) == "1\n"
    assert "record 1: value: " in produce(broker, topic, "x", "--value-format", "int", code=1)
    assert "use one of raw" in produce(broker, topic, "x", "--value-format", "xml", code=2)


def test_a_dump_is_written_again(broker):
    topics = [new_topic(broker, 3) for _ in range(2)]
    rows = "k;2;1700000000000;a=b;v\nk;0;1700000000001;;w\n"
    produce(broker, topics[0], rows, "-f", "%k;%p;%d;%h;%v")
    produce(broker, topics[0], "", "--tombstone", "-k", "k", "-p", "1")
    dump = consume(broker, topics[0], "--from-beginning", "-o", "json")
    produce(broker, topics[1], dump, "-f", "json")
    assert records(consume(broker, topics[1], "--from-beginning", "-o", "json")) == records(dump)


def records(dump):
    """Returns a dump's records without their topic, in an order of their own."""
    rows = [json.loads(line) for line in dump.splitlines()]
    return sorted((json.dumps(row | {"topic": None}) for row in rows), key=str)


def test_a_dump_is_written_to_other_partitions_now(broker):
    topic, by_key = new_topic(broker, 1), new_topic(broker, 3)
    dump = '{"key": "k", "value": "v", "partition": 2, "timestamp": 1700000000000}\n'
    said = produce(broker, topic, dump, "-f", "json", code=1)
    assert said.endswith("Local: Unknown partition; -p -1 chooses partitions by the key\n")
    later = '{"value": "v", "timestamp": 4102444800000}\n'  # 2100
    said = produce(broker, topic, later, "-f", "json", code=1)
    assert said.endswith("Broker: Invalid timestamp; --now gives the present time\n")
    produce(broker, topic, dump, "-f", "json", "-p", "0", "--now")
    shown = ("--from-beginning", "-o", "json")
    (row,) = map(json.loads, consume(broker, topic, *shown).splitlines())
    assert row["partition"] == 0
    assert row["timestamp"] > 1_790_000_000_000
    produce(broker, by_key, dump, "-f", "json", "-p", "-1")
    produce(broker, by_key, "v\n", "-k", "k")
    first, second = map(json.loads, consume(broker, by_key, *shown).splitlines())
    assert (first["partition"], first["timestamp"]) == (second["partition"], 1700000000000)


AVRO = {"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}, {"name": "s", "type": ["null", "string"], "default": None}]}  # fmt: skip


def test_formats_with_schemas(broker, tmp_path):
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.schema_registry.avro import AvroDeserializer
    from confluent_kafka.serialization import MessageField, SerializationContext

    topic = new_topic(broker, 1)
    schema = tmp_path / "r.avsc"
    schema.write_text(json.dumps(AVRO))
    with SchemaRegistry() as registry:
        there = ("--registry", registry.url)
        form = ("--value-format", "avro", *there)
        assert "has no subject" in produce(broker, topic, '{"n": 1}\n', *form, code=1)
        produce(broker, topic, '{"n": 1}\n', *form, "--value-schema", str(schema))
        produce(broker, topic, '{"n": 2, "s": "x"}\n', *form)
        assert "does not fit the schema" in produce(broker, topic, '{"n": "x"}\n', *form, code=1)
        assert "which schema registry" in produce(broker, topic, "1", "--value-format", "avro", code=2)
        shown = consume(broker, topic, "--from-beginning", *form, "--jsonpath", "$.n >= 2")
        assert json.loads(shown) == {"n": 2, "s": "x"}
        # Confluent's own deserializer reads it
        raw = consume(broker, topic, "--from-beginning", "--value-format", "hex", "-n", "1").strip()
        read = AvroDeserializer(SchemaRegistryClient({"url": registry.url}))
        assert read(bytes.fromhex(raw), SerializationContext(topic, MessageField.VALUE)) == {
            "n": 1,
            "s": None,
        }

        other = new_topic(broker, 1)
        schema.write_text('{"type": "object", "properties": {"n": {"type": "integer"}}}')
        form = ("--value-format", "jsonschema", *there)
        produce(broker, other, '{"n": 1}\n', *form, "--value-schema", str(schema))
        assert "$.n: 'x' is not of type 'integer'" in produce(broker, other, '{"n": "x"}\n', *form, code=1)
        assert json.loads(consume(broker, other, "--from-beginning", *form)) == {"n": 1}


class _Refused:
    """A consumer whose group may not be used, and then a record."""

    def __init__(self) -> None:
        error = types.SimpleNamespace(code=lambda: 30, str=lambda: "not authorized for the group")
        place = {"topic": lambda: None, "partition": lambda: -1}
        refusal = types.SimpleNamespace(error=lambda: error, **place)
        self.left = [[refusal], [types.SimpleNamespace(error=lambda: None, **place)]]

    def consume(self, _room, _timeout):
        return self.left.pop(0)


def test_a_consumer_without_a_group_of_its_own_needs_no_right_to_one(capsysbinary):
    out, interrupts = consuming._Printed(lambda _: b"a record\n", None, None, 1), Interrupts()
    consuming._print_all(_Refused(), out, None, interrupts, exit_at_end=False, in_group=False)
    assert capsysbinary.readouterr().out == b"a record\n"
    out = consuming._Printed(bytes, None, None, 1)
    with pytest.raises(KlammError, match=r"^cannot read: not authorized for the group$"):
        consuming._print_all(_Refused(), out, None, interrupts, exit_at_end=False, in_group=True)


def test_times_that_go_back_end_a_partition_once():
    def message(offset, partition, ms):
        return types.SimpleNamespace(
            offset=lambda: offset, topic=lambda: "t", partition=lambda: partition, timestamp=lambda: (1, ms)
        )

    out = consuming._Printed(lambda _: b"", None, ("time", 100), None)
    found = [message(0, 0, 50), message(1, 0, 150), message(2, 0, 60), message(0, 1, 70)]
    assert [out.take(m) for m in found] == [True, False, False, True]
    assert out.ended == {("t", 0)}


def test_an_offset_before_the_first_record_begins_there(broker):
    topic = new_topic(broker, 1)
    produce(broker, topic, "0\n1\n2\n3\n")
    assert (
        klamm("topic", "trim", topic, "--before-offset", "2", "--execute", "-b", broker.bootstrap).returncode
        == 0
    )
    assert consume(broker, topic, "--from", "0") == "2\n3\n"
    assert consume(broker, topic, "--offset", "1") == "2\n3\n"
    assert consume(broker, topic, "--offset", "99") == ""


def test_a_group_reads_again_what_was_not_printed(broker):
    topic, group = new_topic(broker, 1), new_name("group")
    produce(broker, topic, "1\n2\nno number\n4\n")
    words = ("--from-beginning", "-g", group, "--value-format", "json")
    assert "value of" in consume(broker, topic, *words, code=1)
    assert consume(broker, topic, "-g", group) == "no number\n4\n"


def test_topics_and_partitions_are_chosen(broker):
    prefix = new_name()
    one, two = (new_topic(broker, 3, name=f"{prefix}-{n}") for n in (1, 2))
    produce(broker, one, "0:a\n1:b\n2:c\n", "-f", "%p:%v")
    produce(broker, two, "0:d\n", "-f", "%p:%v")
    shown = ("--from-beginning", "-f", r"%t %p %v\n")
    found = consume(broker, f"{prefix}.*", "--regex", *shown, "-p", "0", "-p", "2").splitlines()
    assert sorted(found) == [f"{one} 0 a", f"{one} 2 c", f"{two} 0 d"]
    assert "no partition 7" in consume(broker, one, "-p", "0", "-p", "7", code=1)
    assert "no topic matches" in consume(broker, "no-such.*", "--regex", code=1)
    assert "is no regular expression" in consume(broker, "(", "--regex", code=2)
    group = ("-g", new_name("group"), "--from-beginning", "-n", "4", "-f", r"%v\n")
    assert sorted(consume(broker, f"{prefix}.*", "--regex", *group).split()) == ["a", "b", "c", "d"]


def test_records_are_printed_in_every_format(broker):
    topic = new_topic(broker, 1)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    values = [b'say "hi", now', b"", None, b"\xff", b"two\nlines"]
    for value in values:
        producer.produce(topic, value, b"k", timestamp=1_700_000_000_000, headers=[("a", b"1"), ("b", None)])
    assert producer.flush(60) == 0
    every = ("--from-beginning", "-o")
    expected = ['say "hi", now', "", None, {"base64": "/w=="}, "two\nlines"]
    rows = [json.loads(line) for line in consume(broker, topic, *every, "json").splitlines()]
    assert [r["value"] for r in rows] == expected
    assert yaml.safe_load(consume(broker, topic, *every, "yaml")) == rows
    text = consume(broker, topic, *every, "csv")
    cells = list(csv.DictReader(io.StringIO(text)))
    assert [c["value"] for c in cells] == ['say "hi", now', "", "", '{"base64": "/w=="}', "two\nlines"]
    assert (',"",' in text, ",k,," in text) == (True, True)  # empty text, and null
    assert json.loads(cells[0]["headers"]) == [["a", "1"], ["b", None]]
    (first, *_) = consume(broker, topic, *every, "wide", "-n", "1").splitlines()
    assert first == f'{topic}-0@0\t2023-11-14T22:13:20.000+00:00\tk\tsay "hi", now\ta=1,b=null'
