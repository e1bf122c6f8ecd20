"""The schema of arriving documents: inference, and later documents that have more than it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import needs

from klamm_spark.schema_drift import (
    MISSING_AFTER,
    TopicDrift,
    columns,
    ddl,
    differences,
    merged,
    merged_all,
    of_spark,
    sentence,
    type_of,
)
from klamm_spark.schema_kept import adopted, rows

values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text("ab", max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("xyz", min_size=1, max_size=2), inner, max_size=4),
    max_leaves=8,
)  # fmt: skip
documents = st.dictionaries(st.text("xyz", min_size=1, max_size=2), values, max_size=5)


@given(st.lists(values, min_size=1, max_size=5))
def test_a_type_that_was_inferred_from_values_holds_them(found: list[Any]) -> None:
    kind = merged_all(type_of(v) for v in found)
    for value in found:
        assert merged(kind, type_of(value)) == kind, "widening ends"
        assert list(differences(kind, type_of(value))) == []


@given(values, values, values)
def test_the_order_of_documents_does_not_matter(a: Any, b: Any, c: Any) -> None:
    x, y, z = map(type_of, (a, b, c))
    assert merged(x, y) == merged(y, x)
    assert merged(merged(x, y), z) == merged(x, merged(y, z))


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ([{"a": 1}, {"a": 2.5, "b": "x"}], "`a` DOUBLE, `b` STRING"),
        ([{"a": None}], "`a` STRING"),
        ([{"a": [1, None]}, {"a": []}], "`a` ARRAY<BIGINT>"),
        ([{"a": {"b c": True}}], "`a` STRUCT<`b c`: BOOLEAN>"),
        ([{"a": 1}, {"a": "x"}], "`a` STRING"),
        ([{"a": 1 << 64}], "`a` DOUBLE"),
        ([{"a`b": 1}], "`a``b` BIGINT"),
    ],
)
def test_the_schema_of_documents(found: list[Any], said: str) -> None:
    assert columns(merged_all(map(type_of, found))) == said


SCHEMA = of_spark(
    {
        "type": "struct",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "name", "type": "string"},
            {"name": "at", "type": "timestamp"},
            {"name": "price", "type": "decimal(10,2)"},
            {"name": "tags", "type": {"type": "array", "elementType": "string"}},
            {"name": "more", "type": {"type": "map", "keyType": "string", "valueType": "integer"}},
            {"name": "in", "type": {"type": "struct", "fields": [{"name": "n", "type": "double"}]}},
        ],
    }
)


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"id": 1, "name": {"any": "text"}, "at": "2026-01-01", "price": 2.5, "tags": ["x"], "more": {"a": 1}}, []),
        ({"id": "1"}, [("changed", "id", "BIGINT", "STRING")]),
        ({"ID": 1}, []),
        ({"id": 1.5}, [("changed", "id", "BIGINT", "DOUBLE")]),
        ({"new": [1]}, [("new", "new", None, "ARRAY<BIGINT>")]),
        ({"in": {"n": 1, "m": None, "k": 2}}, [("new", "in.k", None, "BIGINT")]),
        ({"in": 3}, [("changed", "in", "STRUCT<`n`: DOUBLE>", "BIGINT")]),
        ({"more": {"a": "x"}}, [("changed", "more.*", "INT", "STRING")]),
        ({"at": True}, [("changed", "at", "TIMESTAMP", "BOOLEAN")]),
        ([1], [("changed", "(the document)", ddl(SCHEMA), "ARRAY<BIGINT>")]),
    ],
)  # fmt: skip
def test_what_a_schema_cannot_hold(document: Any, said: list[tuple[Any, ...]]) -> None:
    found = [(d.kind, d.path, d.was, d.now) for d in differences(SCHEMA, type_of(document))]
    assert found == said


def test_a_difference_is_told_once_and_counted() -> None:
    drift = TopicDrift({"struct": {"id": "BIGINT"}})
    assert not drift.take({"id": 1}, 1.0)
    assert drift.take({"id": 1, "x": 1}, 2.0)
    assert not drift.take({"id": 1, "x": 2}, 3.0)
    assert drift.take({"id": 1, "x": 2.5}, 4.0), "it is wider than was told"
    (entry,) = drift.to_json()["found"]
    assert (entry["count"], entry["now"], entry["first"], entry["last"]) == (3, "DOUBLE", 2.0, 4.0)
    assert sentence("t", entry) == "t: a field that the schema has not: x (DOUBLE)"
    assert drift.records == 3


def test_a_field_that_no_longer_comes_and_comes_again() -> None:
    drift = TopicDrift({"struct": {"id": "BIGINT", "never": "STRING"}})
    drift.take({"id": 1}, 1.0)
    told = [n for n in range(MISSING_AFTER + 5) if drift.take({}, 2.0)]
    assert told == [MISSING_AFTER - 1]
    assert [sentence("t", e) for e in drift.to_json()["found"]] == [
        "t: the field id (BIGINT) no longer comes"
    ]
    assert drift.take({"id": 1}, 3.0)
    assert drift.to_json()["found"] == []


def test_ever_new_names_do_not_fill_the_memory() -> None:
    drift = TopicDrift({"struct": {"id": "BIGINT"}})
    for n in range(1000):
        drift.take({f"f{n}": 1}, 1.0)
    assert len(drift.found) == 200
    assert drift.more == 800
    wide = merged_all(type_of({f"f{i}": 1}) for i in range(3000))
    assert isinstance(wide, dict)
    assert len(wide["struct"]) == 2000


def test_a_watch_takes_its_observation_out_of_the_progress_and_keeps_what_it_found(tmp_path: Path) -> None:
    needs.module("pyspark", extra="spark")
    from klamm_spark.beside import SCHEMA as FILE
    from klamm_spark.beside import LocalFiles
    from klamm_spark.schema_watch import NAME, SchemaWatch

    class Reports(list[dict[str, Any]]):
        send = list.append

    reports = Reports()
    watch = SchemaWatch(LocalFiles(tmp_path), reports, {"struct": {"id": "BIGINT"}}, {"version": 1})
    sample = [{"topic": "t", "value": '{"id": 1}'}, {"topic": "t", "value": '{"id": 1, "x": "a"}'}]
    unread = [{"topic": "t", "value": '{"id": "one"}'}, {"topic": "t", "value": "no JSON"}]
    event: dict[str, Any] = {
        "observed": {NAME: {"rows": 9, "corrupt": 2, "sample": sample, "unread": unread}, "theirs": {"n": 1}}
    }
    watch.take(event, 5.0)
    assert event == {"observed": {"theirs": {"n": 1}}}
    (told,) = reports
    assert (told["event"], told["records"], told["corrupt"]) == ("drift", {"t": 3}, 2)
    assert [e["kind"] for e in told["topics"]["t"]["found"]] == ["new", "changed", "unreadable"]
    kept = json.loads((tmp_path / FILE).read_text())
    assert kept["drift"] == told["topics"]
    event = {"observed": {NAME: {"rows": 9, "corrupt": 0, "sample": sample, "unread": None}}}
    watch.take(event, 6.0)
    assert event == {}
    assert len(reports) == 1, "counts that grow are told now and then"
    watch.take({"observed": {NAME: {"rows": 9, "corrupt": 0, "sample": sample, "unread": []}}}, 60.0)
    assert reports[1]["records"] == {"t": 5}
    again = SchemaWatch(
        LocalFiles(tmp_path), reports, {"struct": {"id": "BIGINT"}}, json.loads((tmp_path / FILE).read_text())
    )
    again.take({"observed": {NAME: {"rows": 1, "corrupt": 0, "sample": sample, "unread": None}}}, 99.0)
    found = reports[-1]["topics"]["t"]["found"]
    assert [(e["kind"], e["first"]) for e in found] == [
        ("new", 5.0),
        ("changed", 5.0),
        ("unreadable", 5.0),
    ], "it is remembered"


def test_what_is_nested_without_end_is_unreadable_and_an_adopted_schema_stays(tmp_path: Path) -> None:
    needs.module("pyspark", extra="spark")
    from klamm_spark.beside import SCHEMA as FILE
    from klamm_spark.beside import LocalFiles
    from klamm_spark.schema_watch import NAME, SchemaWatch

    class Reports(list[dict[str, Any]]):
        send = list.append

    reports, kept = Reports(), {"version": 1, "schema": "`id` BIGINT", "inferred": True}
    watch = SchemaWatch(LocalFiles(tmp_path), reports, {"struct": {"id": "BIGINT"}}, kept)
    for depth in (900, 30_000):
        sample = [{"topic": "t", "value": "[" * depth + "]" * depth}]
        watch.take({"observed": {NAME: {"rows": 1, "corrupt": 0, "sample": sample, "unread": None}}}, 5.0)
    assert reports[-1]["topics"]["t"]["found"][0]["kind"] in {"unreadable", "changed"}
    assert json.loads((tmp_path / FILE).read_text())["schema"] == "`id` BIGINT"
    (tmp_path / FILE).write_text('{"schema": "`id` BIGINT, `x` BIGINT"}')
    sample = [{"topic": "t", "value": '{"id": 1, "x": 2}'}]
    watch.take({"observed": {NAME: {"rows": 1, "corrupt": 0, "sample": sample, "unread": None}}}, 99.0)
    assert json.loads((tmp_path / FILE).read_text()) == {"schema": "`id` BIGINT, `x` BIGINT"}
    assert reports[-1]["topics"]["t"]["found"][-1]["kind"] == "new"
    given = SchemaWatch(
        LocalFiles(tmp_path), reports, {"struct": {"id": "BIGINT"}}, kept | {"inferred": False}
    )
    given.take({"observed": {NAME: {"rows": 1, "corrupt": 0, "sample": sample, "unread": None}}}, 99.0)
    kept_now = json.loads((tmp_path / FILE).read_text())
    assert (kept_now["schema"], kept_now["drift"]["t"]["records"]) == ("`id` BIGINT", 1), (
        "a schema of the job's file counts"
    )


def test_what_came_since_is_taken_into_the_schema() -> None:
    drift = TopicDrift(type_of({"id": 1, "in": [{"a": 1}], "old": 1}))
    for document in ({"id": "x", "in": [{"a": 1, "b": 2.5}]}, {"new": {"y": True}}, [1]):
        drift.take(document, 1.0)
    kept = {
        "version": 1,
        "inferred": True,
        "topics": {"t": {"type": drift.schema}},
        "drift": {"t": drift.to_json()},
    }
    taken = adopted(kept)
    assert (
        taken["schema"]
        == "`id` STRING, `in` ARRAY<STRUCT<`a`: BIGINT, `b`: DOUBLE>>, `old` BIGINT, `new` STRUCT<`y`: BOOLEAN>"
    )
    assert "drift" not in taken
    assert {(r["field"], r["drift"]) for r in rows(kept) if r["drift"]} == {
        ("id", "changed (was BIGINT)"), ("in[].b", "new"), ("new", "new"), ("(the document)", f"changed (was {ddl(drift.schema)})"),
    }  # fmt: skip
    assert [r["field"] for r in rows(kept) if not r["drift"]] == ["id", "in", "old"]
