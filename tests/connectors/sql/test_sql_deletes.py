"""Deletes and updates of the SQL sink in columns: few statements, and tables as if each record was written in its place."""

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.sql_sink import UPSERT, Reporter, record

from klamm_connectors.sql.rows import Layout, Numbered, RowMaker, RowRules, Rows, halved
from klamm_connectors.sql.settling import Entangled, settled
from klamm_connectors.sql.values import TimeRules
from klamm_plugins.batch import batches_of
from klamm_plugins.errors import ConfigError

DELETES = UPSERT | {"delete.enabled": "true"}
UPDATES = DELETES | {"insert.mode": "update"}
SERVERS = [
    pytest.param("on_maria", marks=pytest.mark.needs("mariadb")),
    pytest.param("on_postgres", marks=pytest.mark.needs("postgresql")),
]
BESIDE_A_SERVER = settings(
    deadline=None, max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
FIELDS = st.dictionaries(st.sampled_from("abc"), st.integers(0, 9), min_size=1)
ONE_KEY = st.integers(0, 4)
TWO_KEYS = st.fixed_dictionaries({"id": st.integers(0, 2), "p": st.sampled_from("xy")})


def changes(keys):
    """Changes of rows: a key, and what is written; None: the row is deleted."""
    return st.lists(st.tuples(keys, st.one_of(st.none(), FIELDS)), min_size=1, max_size=12)


def made(pairs, **rules):
    given = {"pk_mode": "record_key", "pk_fields": ("id",), "whitelist": frozenset(), "delete_enabled": True, "keeps_order": False} | rules  # fmt: skip
    maker = RowMaker(RowRules(times=TimeRules(None), fold=str, **given))
    refused = []
    parts = maker.rows(batches_of(record(value, i, key) for i, (key, value) in enumerate(pairs)), lambda *bad: refused.append(bad))  # fmt: skip
    assert not refused
    return parts


def applied(parts, table=None):
    """A table, as rows by their keys, with these rows written one after another."""
    table = {} if table is None else table
    for rows in parts:
        for key, *values in zip(rows.keys(), *rows.columns, strict=True):
            if rows.layout.deletes:
                table.pop(key, None)
            else:
                table.setdefault(key, {}).update(zip(rows.layout.columns, values, strict=True))
    return table


def one_by_one(pairs):
    return applied(part for pair in pairs for part in made([pair]))


def in_halves(parts, write):
    """Writes parts, in halves if they are entangled."""
    try:
        write(settled(parts, apart=True))
    except Entangled:
        for half in halved(parts):
            in_halves(half, write)


@given(pairs=changes(ONE_KEY))
def test_rows_are_as_if_each_was_written_in_its_place(pairs):
    table = {}

    def write(found):
        ordered, absent = found
        applied(ordered, table)
        assert not table.keys() & {key for rows in absent for key in rows.keys()}  # noqa: SIM118

    in_halves(made(pairs), write)
    assert table == one_by_one(pairs)


@given(pairs=changes(ONE_KEY), data=st.data())
def test_halves_have_the_rows_before_and_after_a_place(pairs, data):
    parts = made(pairs, keeps_order=data.draw(st.booleans()))
    if len(pairs) == 1:
        assert [list(rows.numbers) for rows in parts] == [[0]]
        return
    sizes = [sum(map(len, half)) for half in halved(parts)]
    numbers = [{n for rows in half for n in rows.numbers} for half in halved(parts)]
    assert sizes == [len(pairs) // 2, len(pairs) - len(pairs) // 2]
    assert max(numbers[0]) < min(numbers[1])
    for rows in parts:
        for number in rows.numbers:
            assert rows.records.record(number).offset == number


def test_alternating_deletes_and_writes_are_two_parts():
    pairs = [(i // 2, {"v": i} if i % 2 else None) for i in range(100)]
    assert [len(rows) for rows in made(pairs)] == [50, 50]
    assert len(made(pairs, keeps_order=True)) == 100
    ordered, absent = settled(made(pairs), apart=True)
    assert [rows.layout.deletes for rows in ordered] == [True, False]
    assert not absent


def test_keys_of_other_names_and_rows_that_refer_to_others_stay_in_order():
    def rows(key, number, *, deletes):
        return Rows(Layout((key,), (key,), deletes), {}, Numbered(), [number], [[1]])

    with pytest.raises(Entangled):
        settled([rows("a", 0, deletes=True), rows("b", 1, deletes=False)], apart=True)
    with pytest.raises(Entangled):
        settled([rows("a", 0, deletes=True), rows("a", 1, deletes=False)], apart=False)


@pytest.mark.parametrize(
    ("kind", "mode"),
    [("INT", "upsert"), ("VARCHAR(9)", "upsert"), ("two", "upsert"), ("VARCHAR(9)", "update"), ("two", "update"), ("INT", "insert")],
)  # fmt: skip
def test_tables_are_as_if_each_record_was_put_alone(database, kind, mode):
    two = kind == "two"
    key = "id INT, p VARCHAR(3), PRIMARY KEY (id, p)" if two else f"id {kind} PRIMARY KEY"
    for table in ("together", "alone"):
        database.sql(f"CREATE TABLE {table} (a INT, b INT DEFAULT 7, c INT, {key})")
    props = DELETES | {"insert.mode": mode, "pk.fields": "id,p" if two else "id"}
    reporters = Reporter(), Reporter()
    tasks = [database.start(reporter, props | {"table.name.format": table}) for reporter, table in zip(reporters, ("together", "alone"), strict=True)]  # fmt: skip
    letters = st.sampled_from(["a", "A", "b", "a ", "ä"])
    keys = TWO_KEYS if two else letters if kind.startswith("V") else ONE_KEY

    @BESIDE_A_SERVER
    @given(before=st.lists(keys, max_size=4, unique_by=str), pairs=changes(keys))
    def same(before, pairs):
        for reporter, table in zip(reporters, ("together", "alone"), strict=True):
            reporter.reported.clear()
            database.sql(f"DELETE FROM {table}")
            for one in before:
                values = f"{one['id']}, '{one['p']}'" if two else repr(one)
                try:
                    database.sql(f"INSERT INTO {table} ({'id, p' if two else 'id'}, a) VALUES ({values}, 5)")
                except Exception as e:  # the database takes two of them for one
                    assert "uplicate" in str(e) or "UNIQUE" in str(e)  # noqa: PT017
        records = [record(value, i, one) for i, (one, value) in enumerate(pairs)]
        tasks[0].put(records)
        for one in records:
            tasks[1].put([one])
        assert reporters[0].offsets == reporters[1].offsets
        query = "SELECT * FROM {} ORDER BY 1, 2, 3, 4"
        assert database.sql(query.format("together")) == database.sql(query.format("alone"))

    same()


@pytest.mark.parametrize("where", SERVERS)
def test_deletes_and_writes_are_few_statements(where, request):
    database = request.getfixturevalue(where)
    task = database.start(props=DELETES)
    task.put([record({"v": i}, i, i) for i in range(600)])
    sent = statements(task, database, where)
    task.put([record(None if i % 2 else {"v": -i}, i, i) for i in range(600)])
    assert sent() == {"DELETE": 2, "INSERT": 1}
    assert database.sql("SELECT COUNT(*), MIN(v) FROM t") == [(300, -598)]
    task.put([record(None, i, i) for i in range(400)])
    assert sent() == {"DELETE": 1, "INSERT": 0}
    assert database.sql("SELECT COUNT(*) FROM t") == [(100,)]


def statements(task, database, where):
    """A function that tells how many statements were sent since it was called last."""
    written, seen = [], {"DELETE": 0, "INSERT": 0}
    sa.event.listen(task._engine, "before_cursor_execute", lambda *args: written.append(args[2]))

    def since():
        if where == "on_maria":  # which the driver alone sends
            count = {kind: int(database.sql(f"SHOW GLOBAL STATUS LIKE 'Com_{kind.lower()}'")[0][1]) for kind in seen}  # fmt: skip
        else:
            count = {kind: sum(text.startswith(kind) for text in written) for kind in seen}
        found = {kind: count[kind] - seen[kind] for kind in seen}
        seen.update(count)
        return found

    since()
    return since


@pytest.mark.parametrize("where", SERVERS)
def test_updates_change_the_rows_that_are_there(where, request):
    database = request.getfixturevalue(where)
    database.start(props=UPSERT).put([record({"v": "a", "w": i, "f": 0.5}, i, i) for i in range(100)])
    rows = [record({"v": "it's; DROP TABLE t", "w": -i, "f": i / 7}, i, i) for i in range(0, 200, 2)]
    database.start(props=UPDATES).put([*rows, record({"v": "last", "w": 7, "f": None}, 200, 4)])
    found = database.sql("SELECT id, v, w, f FROM t ORDER BY id")
    assert len(found) == 100
    assert found[4] == (4, "last", 7, None)
    assert found[6] == (6, "it's; DROP TABLE t", -6, 6 / 7)
    assert found[7] == (7, "a", 7, 0.5)


@pytest.mark.parametrize("props", [UPSERT, UPDATES])
def test_a_bad_row_among_deletes_names_itself(database, props):
    database.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT NOT NULL)")
    database.start(props=UPSERT).put([record({"v": i}, i, i) for i in range(100)])
    reporter = Reporter()
    batch = [record(None if i % 3 == 0 else {"v": None if i in {7, 50} else -i}, i, i) for i in range(100)]
    database.start(reporter, props | {"delete.enabled": "true"}).put(batch)
    assert reporter.offsets == [7, 50]
    assert "record t-0@7: table t refuses it" in dict(reporter.reported)[7]
    found = database.sql("SELECT id, v FROM t ORDER BY id")
    assert found == [(i, i if i in {7, 50} else -i) for i in range(100) if i % 3]


def test_a_row_that_another_refers_to_is_deleted_in_its_turn(database):
    database.sql("CREATE TABLE t (id INT PRIMARY KEY, boss INT, note VARCHAR(9), FOREIGN KEY (boss) REFERENCES t (id) ON DELETE CASCADE)")  # fmt: skip
    if "sqlite" in database.props["connection.url"]:
        pytest.skip("it heeds foreign keys only if a session asks it to")
    database.sql("INSERT INTO t VALUES (1, NULL, 'a'), (2, 1, 'b'), (3, 1, 'c')")
    task = database.start(props=DELETES)
    task.put([record({"boss": None}, 0, 2), record(None, 1, 1), record({"boss": 2}, 2, 4)])
    assert database.sql("SELECT * FROM t ORDER BY id") == [(2, None, "b"), (4, 2, None)]


_STRANGE_TYPES = pytest.mark.filterwarnings("ignore:Did not recognize type", "ignore:Type object.*DOMAIN")


@_STRANGE_TYPES
@pytest.mark.parametrize("props", [UPSERT, DELETES | {"insert.mode": "insert"}, UPDATES])
@pytest.mark.parametrize("type_", ["json", "xml", "point"])
def test_a_key_that_postgresql_cannot_compare_is_refused_by_name(on_postgres, props, type_):
    on_postgres.sql(f"CREATE TABLE t (id {type_}, v INT)")
    value = None if props["insert.mode"] == "insert" else {"v": 1}
    with pytest.raises(
        ConfigError, match=rf"t: column id is in .*compare its values \(.*{type_} = {type_}\).*jsonb"
    ) as e:
        on_postgres.start(None, props).put([record(value, 0, {"id": "1"})])
    assert e.value.key == "pk.fields"
    assert "LINE" not in str(e.value)


@_STRANGE_TYPES
@pytest.mark.parametrize("type_", ["jsonb", "citext", "mood", "inet", "ids"])
def test_a_key_that_postgresql_can_compare_is_taken(on_postgres, type_):
    for made in ("EXTENSION citext", "TYPE mood AS ENUM ('1')", "DOMAIN ids AS jsonb"):
        on_postgres.sql(f"CREATE {made}")
    on_postgres.sql(f"CREATE TABLE t (id {type_} PRIMARY KEY, v INT)")
    key = {"inet": "127.0.0.1"}.get(type_, "1")
    on_postgres.start(None, DELETES).put([record({"v": 1}, 0, {"id": key})])
    assert on_postgres.sql("SELECT v FROM t") == [(1,)]
    on_postgres.start(None, DELETES).put([record(None, 1, {"id": key})])
    assert on_postgres.sql("SELECT v FROM t") == []


def test_a_key_that_postgresql_cannot_compare_may_be_inserted(on_postgres):
    on_postgres.sql("CREATE TABLE t (id json, v INT)")
    on_postgres.start(None, UPSERT | {"insert.mode": "insert"}).put([record({"v": 1}, 0, {"id": "1"})])
    assert on_postgres.sql("SELECT v FROM t") == [(1,)]


@pytest.mark.parametrize(
    ("server", "count"),
    [pytest.param(*one.values, n, marks=one.marks) for one, n in zip(SERVERS, (1, 3), strict=True)],
)
def test_records_that_nobody_tried_are_counted(request, caplog, server, count):
    """A later delete undoes the first, which is too long; PostgreSQL gets the last of three records of one key."""
    caplog.set_level("INFO")
    database = request.getfixturevalue(server)
    database.sql("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(3))")
    task = database.start(Reporter(), DELETES)
    task.put([
        record({"v": "long"}, 0, 1), record(None, 1, 1),
        *(record({"v": str(i)}, 2 + i, 2) for i in range(3)), record({"v": "b"}, 5, 3),
    ])  # fmt: skip
    assert database.sql("SELECT id, v FROM t ORDER BY id") == [(2, "2"), (3, "b")]
    assert task._untried == count
    assert "were not written so far, because a later record of their key" in caplog.text
