"""Following the binlog: bounds of transactions, what is skipped after a start, statements and events that hide changes."""

import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klamm_connectors.mysql.binlog_events import CommitEvent, GtidEvent, QueryEvent, RowsEvent
from klamm_connectors.mysql.catalog import Captured
from klamm_connectors.mysql.changes import Changes, _check_type
from klamm_connectors.mysql.charsets import Charsets
from klamm_connectors.mysql.columns import Column, Kind, Table
from klamm_connectors.mysql.config import parse
from klamm_connectors.mysql.events import TableEvents
from klamm_connectors.mysql.failures import Failures
from klamm_connectors.mysql.filters import Filters
from klamm_connectors.mysql.position import Position
from klamm_connectors.mysql.progress import Progress
from klamm_connectors.mysql.rows import RowDecoder
from klamm_connectors.mysql.server import PositionPurgedError
from klamm_connectors.mysql.statements import changing_word, concerns, is_truncate, load_statement
from klamm_connectors.mysql.view import View
from klamm_plugins.converters.json import JsonConverter
from klamm_plugins.errors import ConfigError, ConnectError, DataError

CHARSETS = Charsets({}.__getitem__)
UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"


def play(progress, transactions, given_out):
    """Feed transactions of MySQL (no GTIDs) with so many rows per event; note the rows that are given out."""
    for number, sizes in enumerate(transactions):
        progress.query("BEGIN", 0, 0)
        for event, size in enumerate(sizes):
            first = progress.rows()
            if first is None:
                continue
            for row in range(first, size):
                given_out.append((number, event, row, progress.at(row + 1, 0)))
            progress.position = progress.at(size, 0)
        progress.query("COMMIT", number + 1, 0)


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(1, 3), max_size=4), min_size=1, max_size=5), st.data())
def test_after_any_row_the_rest_comes_and_nothing_twice(transactions, data):
    whole, start = [], Position(None, "f", 0)
    play(Progress(start, gtids=False), transactions, whole)
    assert [w[:3] for w in whole] == [
        (n, e, r) for n, t in enumerate(transactions) for e, size in enumerate(t) for r in range(size)
    ]
    if not whole:
        return
    index = data.draw(st.integers(0, len(whole) - 1))
    committed = Position.from_offset(whole[index][3].to_offset())
    rest = []
    play(Progress(committed, gtids=False), transactions[committed.pos :], rest)
    assert [(n + committed.pos, e, r) for n, e, r, _ in rest] == [w[:3] for w in whole[index + 1 :]]


def test_a_stream_that_breaks_before_it_is_where_it_was_keeps_the_position():
    reached = Position("0-1-4", "f", 9, gtid="0-1-5", event=3, row=2)
    progress = Progress(reached, gtids=True)
    progress.begin("0-1-5", in_transaction=True)
    assert progress.rows() is None
    assert progress.position == reached
    assert [progress.rows(), progress.rows()] == [None, 2]
    other = Progress(reached, gtids=True)
    other.begin("0-2-5", in_transaction=True)
    assert other.rows() == 0


@pytest.mark.parametrize("gtids", [False, True])
def test_an_xa_transaction_is_complete_when_it_is_prepared(gtids):
    progress = Progress(Position(f"{UUID}:1-4" if gtids else None, "f", 4), gtids=gtids)
    if gtids:
        progress.begin(f"{UUID}:5", in_transaction=False)
    progress.query("XA START X'61',X'',1", 50, 0)
    progress.rows()
    inside = progress.at(1, 0)
    assert (inside.done, inside.pos, inside.event) == (f"{UUID}:1-4" if gtids else None, 4, 1)
    progress.query("XA END X'61',X'',1", 90, 0)
    assert progress.position.pos == 4
    progress.complete(100, 0)
    assert (progress.position.done, progress.position.pos) == (f"{UUID}:1-5" if gtids else None, 100)


def test_ddl_is_a_transaction_by_itself_and_a_savepoint_none():
    progress = Progress(Position("", "f", 4), gtids=True)
    progress.begin("7-1-1", in_transaction=False)
    progress.query("CREATE TABLE t (id INT)", 30, 0)
    assert progress.position == Position("7-1-1", "f", 30)
    progress.begin("0-1-1", in_transaction=True)
    progress.query("SAVEPOINT a", 40, 0)
    progress.query("ROLLBACK TO a", 50, 0)
    assert progress.position.done == "7-1-1"
    progress.complete(60, 0)
    assert progress.position.done == "0-1-1,7-1-1"


def test_an_offset_of_debezium_begins_its_transaction_anew():
    found = Position.from_offset({"file": "f", "pos": 4, "gtids": f"{UUID}:1-4", "event": 7, "row": 3})
    assert (found.event, found.row) == (0, 0)
    with pytest.raises(ConnectError, match="gtids must be a text"):
        Position.from_offset({"file": "f", "pos": 4, "gtids": 7})


@pytest.mark.parametrize(
    ("statement", "word"),
    [
        ("insert into t values (1)", "INSERT"),
        ("/* app:1 */ -- more\n UPDATE t SET a=1", "UPDATE"),
        ("/*!40000 REPLACE */ INTO t VALUES (1)", "REPLACE"),
        ("/*M!100100 DELETE FROM t */", "DELETE"),
        ("SET STATEMENT max_statement_time=1 FOR DELETE FROM t", "DELETE"),
        ("WITH x AS (SELECT 1) DELETE FROM t", "WITH"),
        ("CREATE OR REPLACE TABLE t (id INT) SELECT 1 AS id", "CREATE"),
        ("CREATE TABLE t (id INT COMMENT 'select one')", None),
        ("CREATE VIEW v AS SELECT 1", None),
        ("DROP TABLE t /* generated by server */", None),
        ("# INSERT\nALTER TABLE t ADD a INT", None),
        ("SAVEPOINT a", None),
    ],
)
def test_statements_that_change_rows(statement, word):
    assert changing_word(statement) == word


def test_a_statement_concerns_captured_tables_by_its_database_or_by_their_names():
    filters = Filters({"table.include.list": [r"shop\.t"], "database.include.list": ["shop"]})
    assert concerns("INSERT INTO x VALUES (1)", "shop", filters)
    assert concerns("INSERT INTO `shop` . `t` VALUES (1)", "other", filters)
    assert not concerns("INSERT INTO x VALUES ('shop.t')", "other", filters)
    assert concerns("INSERT INTO shop.t VALUES (1)", "", filters)
    assert is_truncate("/* a */ TRUNCATE t")
    assert not is_truncate("DROP TABLE t")


@pytest.mark.parametrize(
    ("event_type", "error", "words"),
    [
        (26, PositionPurgedError, "incident"),
        (39, ConfigError, "binlog_row_value_options=''"),
        (40, ConfigError, "binlog_transaction_compression=OFF"),
        (166, ConfigError, "log_bin_compress=OFF"),
        (42, ConfigError, "tagged GTIDs"),
    ],
)
def test_events_that_hold_changes_nobody_reads_are_said(event_type, error, words):
    with pytest.raises(error, match=words):
        _check_type(event_type)
    _check_type(160)  # an annotation: harmless


def test_the_text_of_a_logged_load():
    header = bytes(8) + bytes([4]) + bytes(2) + (3).to_bytes(2, "little") + bytes(13)
    assert load_statement(header + b"\1\2\3" + b"shop\0LOAD DATA x") == ("shop", "LOAD DATA x")


class Played:
    """A reader of events that are there."""

    def __init__(self, events):
        self._events = list(events)

    def next(self, _):
        return self._events.pop(0) if self._events else None


class OneTable:
    """A catalog of one table, and no snapshot beside the stream."""

    state = ""

    def __init__(self, captured):
        self._captured = captured

    def forget_ids(self): ...

    def see(self, event): ...

    def changed(self, captured, images): ...

    def restructured(self, tables): ...

    def of(self, _):
        return self._captured


ID = Column("id", Kind.INT, nullable=False, size=4)


def followed(events, start, *, gtids, columns=(ID,), failures=None, hidden=(), **more):
    """Returns the records of events that change one table."""
    table = Table("d", "t", columns, ("id",))
    keys = {"database.hostname": "h", "database.user": "u", "topic.prefix": "p"}
    settings = parse(keys | {"provide.transaction.metadata": "true"} | more)
    shown = frozenset(c.name for c in columns) - {*hidden}
    made = TableEvents(table, View(shown, ("id",)), settings.events.shape)
    one = OneTable(Captured(table, RowDecoder("d.t", columns, CHARSETS, shown), made))
    changes = Changes(
        Played(events), one, Progress(start, gtids=gtids), {}, settings,
        failures=failures or Failures(), watcher=one, schema_changes=None,
    )  # fmt: skip
    return list(changes.batch(threading.Event()))


@pytest.mark.parametrize("count", [1, 4, 9])
@pytest.mark.parametrize(
    ("committed_us", "ns"), [(1_700_000_000_123_456, 1_700_000_000_123_456_000), (0, 1_700_000_007 * 10**9)]
)
def test_changes_have_the_time_of_the_commit_where_the_binlog_has_it(committed_us, ns, count):
    later = 1_700_000_007  # a row's event has the time of its statement
    begin = 1_700_000_007, 9, 100
    images = b"".join(b"\0" + number.to_bytes(4, "little") for number in range(count))
    events = [
        GtidEvent(*begin, f"{UUID}:5", False, False, committed_us),
        QueryEvent(later, 9, 200, "d", "BEGIN"),
        RowsEvent(later, 9, 300, "c", 71, (b"\xff",), images),
        CommitEvent(later, 9, 400),
    ]
    first, *rows, last = followed(events, Position(f"{UUID}:1-4", "f", 4), gtids=True)
    assert [r.value["source"]["ts_ns"] for r in rows] == [ns] * count
    assert {r.value["source"]["ts_us"] for r in rows} == {ns // 10**3}
    assert {first.value["ts_ms"], last.value["ts_ms"], rows[0].value["source"]["ts_ms"]} == {ns // 10**6}
    assert last.source_offset["gtids"] == f"{UUID}:1-5"


COLUMNS = (
    ID,
    Column("v", Kind.STRING, length_bytes=1),
    Column("e", Kind.ENUM, values=("a", "b"), size=1),
    Column("s", Kind.SET, values=("a",), size=1),
)
WRONG = b"\0\2\0\0\0\x0asecret-1\xff!\1\0"  # no UTF-8


@pytest.mark.parametrize("wrong", [WRONG, b"\0\2\0\0\0\1x\3\0", b"\0\2\0\0\0\1x\1\2"])
def test_a_row_that_cannot_be_read_goes_the_way_of_rows_that_do_not_fit(wrong, caplog):
    good = (b"\0\1\0\0\0\1x\1\1", b"\0\3\0\0\0\1x\2\0")
    events = [
        GtidEvent(7, 9, 100, f"{UUID}:5", False, False, 0),
        QueryEvent(7, 9, 200, "d", "BEGIN"),
        RowsEvent(7, 9, 300, "c", 71, (b"\xff",), good[0] + wrong + good[1]),
        RowsEvent(7, 9, 300, "c", 71, (b"\xff",), good[0]),
        CommitEvent(7, 9, 400),
    ]

    def rows(**more):
        more |= {"gtids": True, "columns": COLUMNS, "provide.transaction.metadata": "false"}
        return followed(events, Position(f"{UUID}:1-4", "f", 4), **more)

    with pytest.raises(DataError, match=r"d\.t\.[ves]: ") as failed:
        rows()
    assert "secret" not in str(failed.value)
    failures = Failures("warn")
    assert [r.value["after"]["id"] for r in rows(failures=failures)] == [1, 3, 1]
    assert failures.count == 1
    assert "secret" not in caplog.text
    later = rows(failures=Failures(refused_later=True), **{"errors.tolerance": "all"})
    assert [r.value["after"]["id"] for r in later] == [1, 2, 3, 1]
    converter = JsonConverter()
    converter.configure({}, is_key=False)
    with pytest.raises(DataError) as refused:
        converter.from_connect_data("t", later[1].value_schema, later[1].value)
    assert "secret" not in str(refused.value)
    assert [r.value["after"]["id"] for r in rows(hidden=("v", "e", "s"))] == [1, 2, 3, 1]
