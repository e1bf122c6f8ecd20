"""Searches of records, the offsets that they read, and the forms of bytes."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.console.errors import ConsoleError
from klamm.console.records.expression import compile_expression, compile_path
from klamm.console.records.plan import from_offset, total, windows
from klamm.console.records.query import read_partitions, read_query, read_time
from klamm.console.records.shown import Record, decoded, no_registry

VALUE = {"amount": 120, "country": "DE", "items": [{"sku": "a.b", "n": 2}], "note": None}


def _record(value=VALUE, key=b"user-7", **more):
    data = value if isinstance(value, bytes | None) else json.dumps(value).encode()
    return Record(topic="t", partition=0, offset=5, timestamp=1_000, key=key, value=data, **more)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('value.amount > 100 and value.country == "DE"', True),
        ("value.amount > 100 && !(value.country == 'FR')", True),
        ("value.country in ['FR', 'PL'] or partition == 1", False),
        ("value.items[0].n * 2 == 4", True),
        ("value['items'][-1]['sku'] == 'a.b'", True),
        ("value.absent.deeper > 3", False),
        ("value.note == null and value.absent is None", True),
        ('startswith(key, "user-") and len(value.items) == 1', True),
        ('"!&&" in "a!&&b"', True),
        ("100 < value.amount <= 120 and timestamp >= 1000", True),
        ('headers.trace == "x1"', True),
        ("value.country > 3", False),
    ],
)  # fmt: skip
def test_expressions(text, expected):
    record = _record(headers=[("trace", b"x1")])
    assert bool(compile_expression(text)(record)) is expected


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os')", "value.__class__()", "(lambda: 1)()", "[x for x in value]", "value.amount >", "open('/etc/passwd')",
        "valu.amount > 3", "9**9**9**9", "'a' if value else 'b'", "x" * 3000, "(" * 500 + "1" + ")" * 500, "f'{value}'", "value := 3",
    ],
)  # fmt: skip
def test_expressions_that_are_refused(text):
    with pytest.raises(ConsoleError):
        compile_expression(text)


@pytest.mark.parametrize(
    "text", ["'a' * 99999999", "[1] * 99999999", "value.country * 1000000", "value.amount / 0"]
)
def test_an_expression_that_does_not_fit_is_no_match(text):
    assert not read_query({"where": text}).wants(_record())


def test_an_attribute_of_python_is_none():
    assert compile_expression("value.__class__")(_record()) is None


@pytest.mark.parametrize(
    ("path", "found"),
    [("$.items[0].sku", "a.b"), ("items[-1]['n']", 2), ("$", VALUE), ("$.nope.x", None), ('["country"]', "DE"), ("items[7]", None)],
)  # fmt: skip
def test_paths(path, found):
    assert compile_path(path)(VALUE) == found


def test_a_path_that_cannot_be_read_says_where():
    with pytest.raises(ConsoleError, match=r"from '\[x\]' on"):
        compile_path("$.a[x]")


@pytest.mark.parametrize(
    ("asked", "wanted"),
    [
        ({}, True),
        ({"key": "user-7"}, True), ({"key": "user-"}, False), ({"key": "user-*"}, True),
        ({"text": "de"}, True), ({"text": "FR"}, False),
        ({"path": "items[0].n", "is": "2"}, True), ({"path": "country", "is": "DE"}, True), ({"path": "country", "is": "FR"}, False),
        ({"path": "note"}, False), ({"path": "amount"}, True),
        ({"until": "1970-01-01T00:00:00"}, False), ({"until": "1001"}, True),
    ],
)  # fmt: skip
def test_searches(asked, wanted):
    assert read_query(asked).wants(_record()) is wanted


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"start": "middle"}, "start: 'middle'"), ({"start": "offset", "at": "x"}, "offset: 'x'"), ({"start": "time", "at": ""}, "time: "),
        ({"p": "1-"}, "partitions: "), ({"p": "3-1"}, "partitions: "), ({"limit": "0"}, "limit: "), ({"vf": "xml"}, "vf: 'xml'"),
    ],
)  # fmt: skip
def test_searches_that_are_refused(asked, said):
    with pytest.raises(ConsoleError, match=said):
        read_query(asked)


def test_partitions_and_times():
    assert read_partitions("0, 3-5") == {0, 3, 4, 5}
    assert read_partitions("") is None
    assert (
        read_time("t", "1970-01-02")
        == read_time("t", "1970-01-02 00:00:00")
        == read_time("t", "86400000")
        == 86_400_000
    )


@given(
    bounds=st.dictionaries(st.integers(0, 9), st.tuples(st.integers(0, 500), st.integers(0, 40_000)).map(lambda t: (t[0], t[0] + t[1])), max_size=6),
    limit=st.integers(1, 1000),
    picky=st.booleans(),
)  # fmt: skip
def test_windows_read_each_offset_once_from_the_end_backwards(bounds, limit, picky):
    left = {p: end for p, (_, end) in bounds.items()}
    for window in windows(bounds, limit, picky=picky):
        for partition, (start, end) in window.items():
            assert end == left[partition]
            assert bounds[partition][0] <= start < end
            left[partition] = start
    assert all(left[p] == start for p, (start, end) in bounds.items())


def test_an_offset_is_within_the_log():
    bounds = {0: (10, 20), 1: (0, 5)}
    assert from_offset(bounds, 12) == {0: (12, 20), 1: (5, 5)}
    assert from_offset(bounds, -3) == {0: (17, 20), 1: (2, 5)}
    assert total(from_offset(bounds, 12)) == 8


@pytest.mark.parametrize(
    ("data", "form", "shown"),
    [
        (b'{"a":1}', "auto", ("json", '{\n  "a": 1\n}')), (b"hello", "auto", ("text", "hello")), (None, "auto", ("null", "null")),
        (b"\xff\x00", "auto", ("hex", "00000000  ff 00" + " " * 44 + "..")), (b"\x00\x00\x00\x00\x07x", "registry", ("no schema", None)),
        (b"<x", "json", ("not JSON", "<x")), (b"7", "auto", ("json", "7")), (b"", "auto", ("text", "")),
    ],
)  # fmt: skip
def test_forms_of_bytes(data, form, shown):
    found = decoded("t", data, form, no_registry, is_key=False)
    assert found.form == shown[0]
    assert shown[1] in (None, found.text)
