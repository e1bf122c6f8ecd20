"""Every question of tests/fixtures/connect_transforms, answered as Apache Kafka's transforms answer it.

Where we differ on purpose, `DIFFERENCES` has the reason and what is ours. A question that differs without a reason
fails, and so does a reason that no question needs any more.
"""

import functools
import json
import struct
import sys
from pathlib import Path

import pytest
from support import kafka_oracle, transforms
from support.random_data import RandomData

TABLE = Path(__file__).parents[1] / "fixtures/connect_transforms"
sys.path.append(str(TABLE))
from cases import questions  # noqa: E402  beside its table

RECORDED = dict(map(json.loads, (TABLE / "table.jsonl").read_text("utf-8").splitlines()))
QUESTIONS = questions()


def transform(question):
    return question.get("transform", "").removeprefix(transforms.TRANSFORMS).partition("$")[0]


def part(question, which="value"):
    return question["record"].get(which) or {}


def of_logical(question):
    schema = part(question).get("schema") or {}
    return schema.get("name", "").startswith("org.apache.kafka.connect.data.")


# Why, which questions, what Kafka says to them, whether our answer is what it should be.
DIFFERENCES = {
    "a date or decimal that is cast keeps its logical name, which Kafka's converters refuse": (
        lambda q, a: transform(q) == "Cast" and of_logical(q) and "Invalid type for" in a.get("message", ""),
        lambda a: "name" not in a["record"]["value"]["schema"],
    ),
    "Kafka's SetSchemaMetadata fails for all but structs, which it does not mean to": (
        lambda q, a: (
            transform(q) == "SetSchemaMetadata"
            and a.get("message") == "Cannot list fields on non-struct type"
        ),
        lambda a: any(
            (a["record"][p] or {}).get("schema", {}).get("name") in {"x.Y", "n"}
            or (a["record"][p] or {}).get("schema", {}).get("version") == 9
            for p in ("key", "value")
        ),
    ),
    "Kafka cannot change the default of a struct": (
        lambda q, a: (
            transform(q) in {"Cast", "TimestampConverter", "Flatten"}
            and a.get("message") == "Invalid default value"
        ),
        lambda a: a["record"]["value"]["schema"]["optional"] in {True, False},
    ),
    "classes of characters that intersect have no counterpart in Python": (
        lambda q, a: transform(q) == "RegexRouter" and "&&" in q["config"]["regex"],
        lambda a: "intersections" in a["message"],
    ),
    "Python's dates end with year 9999": (
        lambda q, a: transform(q) == "TimestampConverter" and part(q)["payload"] == 1_600_000_000_123_456_789,
        lambda a: "out of range" in a["message"],
    ),
    "before 1582 Java counts by the Julian calendar": (
        lambda q, a: (
            transform(q) == "TimestampConverter"
            and q["config"]["target.type"] == "unix"
            and a["record"]["value"]["payload"] < -12_219_292_800_000
        ),
        lambda a: a["record"]["value"]["payload"] < -12_219_292_800_000,
    ),
    "Kafka's JSON parser loses the sign of zero": (
        lambda q, a: transform(q) == "Cast" and part(q)["payload"] == 0 and q["config"]["spec"] == "string",
        lambda a: a["record"]["value"]["payload"] == "-0.0",
    ),
}
used = set()


def same(question, ours, theirs):
    """Equal, or for floats of 32 bits the same number: before version 19 Java did not always write the shortest digits."""
    if transforms.comparable(ours) == transforms.comparable(theirs):
        return True
    if transform(question) == "Cast" and question["config"]["spec"] == "float32" and "record" in theirs:
        one, other = (a["record"]["value"]["payload"] for a in (ours, theirs))
        return struct.pack("f", one) == struct.pack("f", other)
    return False


def check(question, theirs):
    ours = transforms.ask_ours(question)
    if "validate" in question:
        assert ours["errors"].keys() == theirs["errors"].keys()
        return
    if same(question, ours, theirs):
        return
    for why, (applies, right) in DIFFERENCES.items():
        if applies(question, theirs):
            used.add(why)
            assert right(ours), (why, ours)
            return
    pytest.fail(f"{json.dumps(question)}\nKafka: {json.dumps(theirs)}\nours: {json.dumps(ours)}")


def kind(question):
    return next(
        question[k].rpartition(".")[2]
        for k in ("transform", "predicate", "validate", "converter")
        if k in question
    )


@functools.cache
def answers_of(name):
    """Asks all questions of a kind, once; returns the reasons that were needed."""
    used.clear()
    for question in QUESTIONS:
        if kind(question) == name:
            check(question, RECORDED[transforms.digest(question)])
    return frozenset(used)


KINDS = sorted(set(map(kind, QUESTIONS)))


@pytest.mark.parametrize("name", KINDS)
def test_kafkas_answers(name):
    answers_of(name)


def test_every_difference_is_one():
    assert frozenset().union(*map(answers_of, KINDS)) == DIFFERENCES.keys()


def test_the_table_holds_nothing_else():
    assert RECORDED.keys() == set(map(transforms.digest, QUESTIONS))


@pytest.mark.usefixtures("apache_kafka")
def test_the_recorded_answers_are_kafkas():
    oracle = kafka_oracle.require()
    asked = QUESTIONS
    for question, answer in zip(asked, transforms.ask_kafka(oracle, asked), strict=True):
        recorded = RECORDED[transforms.digest(question)]
        assert transforms.comparable(answer) == transforms.comparable(recorded), question


# Of random questions: the differences above, and that Kafka masks a decimal with a zero of another scale.
KAFKAS_WORDS = ("Invalid type for", "mismatching scale", "Cannot list fields", "Invalid default value")


@pytest.mark.usefixtures("apache_kafka")
def test_random_questions():
    oracle = kafka_oracle.require()
    random = RandomData(821)
    asked = [random.question() for _ in range(4000)]
    good = different = 0
    for question, theirs in zip(asked, transforms.ask_kafka(oracle, asked), strict=True):
        ours = transforms.ask_ours(question)
        good += "error" not in theirs
        if transforms.comparable(ours) != transforms.comparable(theirs):
            different += 1
            in_words = any(words in theirs.get("message", "") for words in KAFKAS_WORDS)
            beyond = "is out of range" in ours.get("message", "")
            assert in_words or beyond, (
                f"{json.dumps(question)}\nKafka: {json.dumps(theirs)}\nours: {json.dumps(ours)}"
            )
    assert good > len(asked) / 2
    assert different < len(asked) / 100
