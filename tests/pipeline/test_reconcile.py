"""The comparison by id: every kind of difference is found, listed and counted, whatever the sizes."""

from __future__ import annotations

import gzip
import json
import sqlite3
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.reconcile import files, targets
from klamm.reconcile.compare import Comparison, Document, SourceLine, compare
from klamm.reconcile.spill import reconcile
from klamm_base.errors import ConfigError, KlammError

LINES = [SourceLine(f"id{n}", "a.log", n * 10) for n in range(1000)]
DOCUMENTS = [Document(f"id{n}", f"events/{n}", n % 100 != 0) for n in range(1000)]


def test_equal_sides_are_complete():
    result = reconcile(LINES, reversed(DOCUMENTS))
    assert result.complete
    assert (result.source_lines, result.delivered, result.documents, result.unparsed) == (
        1000,
        1000,
        1000,
        10,
    )


def test_a_missing_line_is_named_with_file_and_offset():
    result = reconcile(LINES, [d for d in DOCUMENTS if d.id not in {"id7", "id3"}])
    assert not result.complete
    assert result.missing.items == [SourceLine("id3", "a.log", 30), SourceLine("id7", "a.log", 70)]
    assert result.delivered == 998


def test_a_stray_document_is_unexpected_and_a_second_one_a_duplicate():
    stray, second = Document("id5000", "events/x", True), Document("id4", "events/again", True)
    result = reconcile(LINES, [*DOCUMENTS, stray, second])
    assert not result.complete
    assert result.unexpected.items == [stray]
    assert [tuple(d) for d in result.duplicates.items] == [("id4", ("events/4", "events/again"))]
    assert result.missing.count == 0


def test_what_has_no_id_is_a_difference():
    result = reconcile([*LINES, SourceLine("", "b.log", 5)], [*DOCUMENTS, Document("", "events/y", True)])
    assert not result.complete
    assert result.lines_without_id.items == [SourceLine("", "b.log", 5)]
    assert result.documents_without_id.items == [Document("", "events/y", True)]
    assert reconcile([*LINES, LINES[4]], DOCUMENTS).repeated.items == [LINES[4]]


def test_the_first_of_many_differences_are_listed_in_order():
    result = reconcile(reversed(LINES), [])
    assert result.missing.count == 1000
    assert result.missing.items == LINES[:20]


IDS = st.lists(st.sampled_from([f"i{n}" for n in range(12)] + [""]), max_size=40)


@given(IDS, IDS, st.integers(1, 50))
def test_in_parts_and_on_disk_as_at_once(source, target, in_memory):
    lines = [SourceLine(id_, "f", n) for n, id_ in enumerate(source)]
    documents = [Document(id_, str(n), n % 3 > 0) for n, id_ in enumerate(target)]
    once = Comparison()
    compare(lines, documents, once)
    parts = reconcile(lines, documents, in_memory=in_memory)
    assert (parts.source_lines, parts.documents, parts.delivered, parts.unparsed) == (
        (once.source_lines, once.documents, once.delivered, once.unparsed)
    )
    for kind, listing in once.differences.items():
        assert parts.differences[kind].count == listing.count, kind
        assert sorted(parts.differences[kind].items) == sorted(listing.items), kind
    # and against what the words mean
    wanted, got = Counter(i for i in source if i), Counter(i for i in target if i)
    assert once.missing.count == len(wanted.keys() - got.keys())
    assert once.unexpected.count == sum(n for i, n in got.items() if i not in wanted)
    assert once.duplicates.count == sum(n > 1 for i, n in got.items() if i in wanted)
    assert once.complete == (
        wanted == got and "" not in source + target and all(n == 1 for n in wanted.values())
    )


def test_files_are_read_whole_rotated_and_compressed(tmp_path):
    (tmp_path / "a.log").write_bytes('{"id":"1"}\n{"id":"é"}\nno id\n{"id":"cut o'.encode())
    with gzip.open(tmp_path / "a.log.1.gz", "wb") as file:
        file.write(b'{"id": "3"}\r\n')
    found = list(
        files.source_lines(files.expand([str(tmp_path / "a.log*")]), files.identifier(files.json_field("id")))
    )
    assert [(line.id, line.offset) for line in found] == [("1", 0), ("é", 11), ("", 23), ("3", 0)]
    assert found[3].file.endswith(".gz")


def test_bad_arguments_are_named():
    with pytest.raises(ConfigError, match="no file matches '/nowhere"):
        files.expand(["/nowhere/*.log"])
    with pytest.raises(ConfigError, match="no group"):
        files.identifier("rid=.*")
    with pytest.raises(ConfigError, match="not a regular expression"):
        files.identifier("(")


def test_rows_of_sqlite(tmp_path):
    path = tmp_path / "a b#.db"
    with sqlite3.connect(path) as connection:
        connection.execute('CREATE TABLE "my events" ("event id" TEXT, message TEXT)')
        connection.execute("INSERT INTO \"my events\" VALUES ('1', 'x'), (NULL, 'rid=7')")
    connection.close()
    rows = list(targets.sqlite_rows(path, "my events", ["event id"]))
    assert list(targets.documents(iter(rows), targets.field_id("event id"))) == [
        Document("1", "my events/1", True),
        Document("", "my events/2", True),
    ]
    raw = targets.sqlite_rows(path, "my events", ["message"])
    found = targets.documents(raw, targets.pattern_id("message", files.identifier("rid=(.)")), parsed=False)
    assert [d.id for d in found] == ["", "7"]
    with pytest.raises(KlammError, match="cannot read table 'none'"):
        list(targets.sqlite_rows(path, "none", ["a"]))
    with pytest.raises(KlammError, match="no such SQLite file"):
        list(targets.sqlite_rows(tmp_path / "none.db", "t", ["a"]))


def test_a_field_may_be_inside_an_object():
    row = json.loads('{"event": {"id": 5}, "a.b": "c"}')
    assert targets.field_id("event.id")(row) == "5"
    assert targets.field_id("a.b")(row) == "c"
    assert targets.field_id("event.none.deeper")(row) == ""
