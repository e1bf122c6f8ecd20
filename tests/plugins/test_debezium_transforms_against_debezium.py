"""Every question of tests/fixtures/debezium_transforms, answered as Debezium's own transforms answer it.

Where we differ on purpose, `DIFFERENCES` has the reason and what is ours.
"""

import functools
import importlib.util
import json
from pathlib import Path

import pytest
from support import kafka_oracle, transforms

HERE = Path(__file__).parents[1] / "fixtures/debezium_transforms"
spec = importlib.util.spec_from_file_location("debezium_cases", HERE / "cases.py")
cases = importlib.util.module_from_spec(spec)
spec.loader.exec_module(cases)

RECORDED = dict(map(json.loads, (HERE / "table.jsonl").read_text("utf-8").splitlines()))
QUESTIONS = cases.questions()


def kind(question):
    return question["transform"].rpartition(".")[2]


def op(question):
    value = question["record"].get("value")
    return value["payload"].get("op") if value and isinstance(value["payload"], dict) else None


KINDS = sorted(set(map(kind, QUESTIONS)))

# Why, which questions, what Debezium says to them, whether our answer is what it should be.
DIFFERENCES = {
    "Debezium's tombstones have the row's schema, and then the JSON converter writes no null": (
        lambda q, a: (
            kind(q) == "ExtractNewRecordState" and op(q) == "d" and a["record"]["value"]["payload"] is None
        ),
        lambda a: a["record"]["value"] is None,
    ),
    "a setting that does not fit the table is an error with all its events, also those that are dropped": (
        lambda q, a: a == {"dropped": True} and op(q) in {"t", "u", "d"},
        lambda a: (a.get("error") == "DataError" and " which should be " in a["message"]) or " has no field gone" in a["message"],
    ),
}  # fmt: skip


@functools.cache
def answers(name):
    """Returns our answers to the questions about a transform, in their order: two tests look at them."""
    return [transforms.ask_ours(question) for question in QUESTIONS if kind(question) == name]


@pytest.mark.parametrize("name", KINDS)
def test_debeziums_answers(name):
    for question, answer in zip((q for q in QUESTIONS if kind(q) == name), answers(name), strict=True):
        theirs = RECORDED[transforms.digest(question)]
        ours = transforms.shortened(question, answer)
        if transforms.comparable(theirs) == transforms.comparable(ours):
            continue
        right = [is_right(ours) for applies, is_right in DIFFERENCES.values() if applies(question, theirs)]
        assert right == [True], (
            f"{json.dumps(question)}\nDebezium: {json.dumps(theirs)}\nours: {json.dumps(ours)}"
        )


def test_errors_are_those_of_records_or_configurations():
    given = [answer for name in KINDS for answer in answers(name)]
    assert {answer["error"] for answer in given if "error" in answer} == {
        "ConfigError",
        "ConnectError",
        "DataError",
    }


def test_the_table_holds_nothing_else():
    assert RECORDED.keys() == set(map(transforms.digest, QUESTIONS))


@pytest.mark.usefixtures("apache_kafka")
def test_the_recorded_answers_are_debeziums():
    jars = transforms.debezium_jars()
    if not jars:
        pytest.skip(f"no jars in {transforms.DEBEZIUM}: tests/peers/fetch_debezium.sh fetches them")
    answers = transforms.ask_kafka(kafka_oracle.require(), QUESTIONS, jars)
    for question, answer in zip(QUESTIONS, answers, strict=True):
        recorded = RECORDED[transforms.digest(question)]
        made = transforms.shortened(question, answer)
        assert transforms.comparable(made) == transforms.comparable(recorded), question
