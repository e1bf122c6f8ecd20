"""Searches of records, the offsets that they read, and the forms of bytes."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.console.errors import ConsoleError
from klamm.console.records import plan
from klamm.console.records.expression import compile_expression, compile_path
from klamm.console.records.plan import Newest, from_offset, going_on, total, windows
from klamm.console.records.query import read_partitions, read_places, read_query, read_time, written_places
from klamm.console.records.shown import Record, Shown, decoded, no_registry

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
        ('contains(value.absent, "on")', False), ('endswith(value.note, "e")', False), ('lower(value.note) == "none"', False),
        ('not contains(value.note, "x")', True), ('text(1 < 2) == "true"', True), ('contains(value.items, "a.b")', True),
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
        "contains(value)", "len()",
    ],
)  # fmt: skip
def test_expressions_that_are_refused(text):
    with pytest.raises(ConsoleError):
        compile_expression(text)


@pytest.mark.parametrize(
    "text",
    ["'a' * 99999999", "[1] * 99999999", "value.country * 1000000", "value.amount / 0", "len('%99999999s' % 'a') > 0"],
)  # fmt: skip
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
        ({"text": "GRÜN"}, True), ({"text": "X1"}, True),
    ],
)  # fmt: skip
def test_searches(asked, wanted):
    assert read_query(asked).wants(_record(headers=[("trace", b"x1"), ("c", "grün".encode())])) is wanted


def test_a_key_by_a_schema_is_searched_as_it_is_shown():
    record = _record(key=b"\0\0\0\0\7\x0cuser-7", look=lambda *_: Shown("avro", '"user-7"', "user-7"))
    for key, wanted in (("user-7", True), ("user-*", True), ("user", False)):
        assert read_query({"key": key}).wants(record) is wanted


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"start": "middle"}, "start: 'middle'"), ({"start": "offset", "at": "x"}, "offset: 'x'"), ({"start": "time", "at": ""}, "time: "),
        ({"on": "7"}, "on: '7'"), ({"on": "0:x"}, "on: 'x'"), ({"p": "1-"}, "partitions: "), ({"p": "3-1"}, "partitions: "), ({"limit": "0"}, "limit: "), ({"vf": "xml"}, "vf: 'xml'"),
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


RECORDS = st.lists(
    st.builds(
        Record, topic=st.just("t"), partition=st.integers(0, 2), offset=st.integers(0, 30), timestamp=st.integers(0, 9),
        key=st.none(), value=st.sampled_from([b"", b"x" * 40]),
    ),
    unique_by=lambda r: (r.partition, r.offset),
)  # fmt: skip


@given(records=RECORDS, limit=st.integers(1, 5), step=st.integers(1, 4))
def test_the_newest_are_kept_and_the_rest_can_be_gone_on_with(records, limit, step):
    most, plan.BYTES_MAX = plan.BYTES_MAX, 100
    try:
        found = Newest(limit)
        for i in range(0, len(records), step):
            found.add(records[i : i + step])
            assert sum(r.size for r in found.kept) <= 2 * plan.BYTES_MAX + step * 40
        found.cut()
    finally:
        plan.BYTES_MAX = most
    newest = sorted(((r.timestamp, r.offset) for r in records), reverse=True)
    assert [(r.timestamp, r.offset) for r in found.kept] == newest[: len(found.kept)]
    assert len(found.kept) <= limit
    assert found.kept or not records
    window = dict.fromkeys(range(3), (10, 31))
    places = found.places(window, dict.fromkeys(range(3), (0, 31)))
    for record in records:
        if record not in found.kept:
            assert record.offset < places[record.partition] or record.offset < 10


def test_a_search_goes_on_where_it_was():
    bounds = {0: (10, 20), 1: (0, 5), 2: (0, 5)}
    places = read_places("0:15,1:0")
    assert written_places(places) == "0:15,1:0"
    assert going_on(bounds, places, back=False) == {0: (15, 20), 1: (0, 5)}
    assert going_on(bounds, places, back=True) == {0: (10, 15), 1: (0, 0)}
    assert going_on(bounds, {0: 3}, back=True) == {0: (10, 10)}, "retention has taken them"


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
