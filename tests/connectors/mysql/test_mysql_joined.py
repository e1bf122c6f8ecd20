"""Rows of neighbouring events in one batch: the same records in the same order, with the same offsets."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm_connectors.mysql.columns import Column, Kind, Table
from klamm_connectors.mysql.events import Origin, TableEvents
from klamm_connectors.mysql.joined import Joined, JoinedRows
from klamm_connectors.mysql.position import Position
from klamm_connectors.mysql.shape import Shape
from klamm_connectors.mysql.view import View
from klamm_plugins.batch import SourceBatch
from klamm_plugins.records import SourceRecord

COLUMNS = (Column("id", Kind.INT, nullable=False, size=4), Column("v", Kind.STRING))
TABLES = [
    TableEvents(
        Table("d", name, COLUMNS, ("id",)),
        View(frozenset({"id", "v"}), ("id",)),
        Shape("p", tombstones=False),
    )
    for name in "ab"
]
NOTE = SourceRecord({"s": 1}, {"other": 1}, "note", None, None, None, None, "x", None)

EVENTS = st.lists(
    st.none()
    | st.tuples(
        st.sampled_from(TABLES),
        st.sampled_from("cud"),
        st.lists(st.tuples(st.integers(0, 9), st.none() | st.text(max_size=2)), min_size=1, max_size=6),
        st.integers(0, 3),
    ),
    max_size=12,
)


def columns(rows):
    return [list(column) for column in zip(*rows, strict=True)]


@given(EVENTS)
def test_joined_rows_are_the_records_of_their_events(events):
    joined, expected = Joined(), []
    for number, event in enumerate(events):
        if event is None:  # a record of something else keeps its place
            joined.add([NOTE])
            expected.append(NOTE)
            continue
        table, op, rows, first = event
        origin = Origin(1000 * number, 1, f"0-1-{number}", "f", 10 * number)
        end = Position(f"0-1-{number}", "f", number, f"0-1-{number + 1}", event=2)
        before, after = None if op == "c" else rows, None if op == "d" else [(i, "new") for i, _ in rows]
        places = [(end, first + i) for i in range(len(rows))]
        images = [columns(image) if image is not None else None for image in (before, after)]
        joined.add(JoinedRows(table, op, *images, [(origin, len(rows))], places))
        for i, (_, row) in enumerate(places):
            pair = [None if image is None else list(image[i]) for image in (before, after)]
            offset = replace(end, row=row + 1).to_offset()
            expected += table.records(op, *pair, origin, {"s": 1}, offset, row, 7)
    assert len(joined) == len(expected)
    assert list(joined.made({"s": 1}, 7)) == expected


@pytest.mark.usefixtures("mariadb_server")
@pytest.mark.parametrize("format", ["envelope", "row"])
def test_small_transactions_share_a_batch_and_each_record_has_its_place(source, format):
    source.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    settings = {"snapshot__mode": "no_data", "event__format": format}
    task = source(**settings)
    assert not task.task.poll()
    for number in range(30):
        source.sql("INSERT INTO t VALUES (%s, 0)", number)
    source.sql("CREATE TABLE other (id INT PRIMARY KEY)")
    task.task._disconnect()  # all is there when it reads on
    parts = []
    while sum(map(len, parts)) < 30:
        found = task.task.poll()
        parts += found.parts if found is not None else []
    assert any(isinstance(part, SourceBatch) and len(part) > 4 for part in parts)
    records = [record for part in parts for record in part]
    assert [r.key["id"] for r in records] == list(range(30))
    assert len({r.source_offset["gtids"] for r in records}) == 30
    if format == "envelope":
        assert len({r.value["source"]["gtid"] for r in records}) == 30
        assert {r.value["source"]["row"] for r in records} == {0}
    task.task.stop()
    rest = source(records[16], **settings).read(13)
    assert [r.key["id"] for r in rest] == list(range(17, 30))


@pytest.mark.usefixtures("mariadb_server")
def test_deleted_rows_with_tombstones_are_converted_once(source, monkeypatch):
    source.sql("CREATE TABLE t (id INT PRIMARY KEY)")
    source.sql("INSERT INTO t SELECT seq FROM seq_1_to_20")
    task = source(snapshot__mode="no_data", event__format="envelope")
    assert not task.task.poll()

    def never(*_):
        raise AssertionError("their records are made one by one")

    monkeypatch.setattr(TableEvents, "converted", never)
    source.sql("DELETE FROM t")
    found = task.read(40)
    assert [r.value is None for r in found] == [False, True] * 20
