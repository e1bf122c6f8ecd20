"""The SQL sink and what databases have of their own: JSON columns, schemas, names that differ by case."""

from datetime import date
from decimal import Decimal

import pytest
import sqlalchemy as sa
from support.sql_sink import UPSERT, Reporter, record

from klamm_plugins import logical
from klamm_plugins.errors import ConfigError
from klamm_plugins.schema import INT32, SchemaBuilder, Struct, Type

JSON_TEXT = SchemaBuilder(Type.STRING).name("io.debezium.data.Json").optional().build()
ROW = SchemaBuilder.struct("row").field("n", INT32).field("j", JSON_TEXT).build()


def test_json_columns_of_postgresql_hold_json_and_no_quoted_text(on_postgres):
    on_postgres.sql("CREATE TABLE t (id INT PRIMARY KEY, j JSONB, k JSON)")
    values = [{"j": {"a": [1]}, "k": [None]}, {"j": '{"b": "ü"}', "k": "7"}, {"j": 5, "k": True}, {"j": None}]
    on_postgres.put(*values)
    found = on_postgres.sql("SELECT jsonb_typeof(j), json_typeof(k), j->'a'->0 FROM t ORDER BY id")
    assert found == [("object", "array", 1), ("object", "number", None), ("number", "boolean", None), (None, None, None)]  # fmt: skip


def test_json_s_own_null_is_no_null_of_sql(on_postgres):
    on_postgres.sql("CREATE TABLE t (id INT PRIMARY KEY, j JSONB)")
    on_postgres.put({"j": "null"}, {"j": " null "}, {"j": None}, {"j": "{}"})
    assert on_postgres.sql("SELECT j::text FROM t ORDER BY id") == [("null",), ("null",), (None,), ("{}",)]


def test_json_that_is_none_is_a_bad_record_of_its_own(on_postgres):
    on_postgres.sql("CREATE TABLE t (id INT PRIMARY KEY, j JSONB)")
    reporter = Reporter()
    on_postgres.put({"j": "{}"}, {"j": "no json"}, {"j": "[]"}, reporter=reporter)
    assert reporter.offsets == [1]
    assert on_postgres.sql("SELECT id FROM t ORDER BY id") == [(0,), (2,)]


def test_texts_that_are_half_a_json_make_no_rows(on_postgres):
    on_postgres.sql("CREATE TABLE t (id INT PRIMARY KEY, j JSON, v INT)")
    reporter = Reporter()
    wrong = '1}, {"id": 7, "v": 7, "j": 1'
    on_postgres.put({"j": "1", "v": 1}, {"j": wrong, "v": 2}, {"j": " [2 ] ", "v": 3}, reporter=reporter)
    assert reporter.offsets == [1]
    assert on_postgres.sql("SELECT id, j::text, v FROM t ORDER BY id") == [(0, "1", 1), (2, " [2 ] ", 3)]


def test_texts_of_debezium_s_json_become_json(on_postgres):
    on_postgres.sql("CREATE TABLE t (id INT PRIMARY KEY, n INT, j JSONB)")
    value = Struct(ROW, n=1, j='{"a": 1}')
    on_postgres.start(props=UPSERT).put([record(value, 0, 1, schema=ROW)])
    assert on_postgres.sql("SELECT j->'a', n FROM t") == [(1, 1)]


def test_json_columns_of_mysql_get_texts_as_they_are():
    from sqlalchemy.dialects import mysql

    from klamm_connectors.sql.statement import Statement

    dialect = mysql.dialect(paramstyle="format")  # type: ignore[no-untyped-call]
    table = sa.Table("t", sa.MetaData(), sa.Column("j", mysql.JSON()))
    bind = sa.bindparam("_klamm_0", type_=table.c.j.type)
    made = Statement(sa.insert(table).values({"j": bind}), {"j": bind}, dialect)
    assert made.parameters([['{"a": 1}', 5, True, None]]) == [('{"a": 1}',), ("5",), ("true",), (None,)]


def test_json_columns_of_mariadb_hold_json(on_maria):
    on_maria.sql("CREATE TABLE t (id INT PRIMARY KEY, j JSON, k JSON, x LONGTEXT)")
    reporter = Reporter()
    on_maria.put({"j": True, "k": [False], "x": True}, {"j": "[1]", "k": 5}, {"j": "no json"}, {"j": None}, reporter=reporter)  # fmt: skip
    found = on_maria.sql("SELECT id, j, k, x FROM t ORDER BY id")
    assert found == [(0, "true", "[false]", "1"), (1, "[1]", "5", None), (3, None, None, None)]
    assert reporter.offsets == [2]


@pytest.mark.parametrize("quoted", [False, True])
def test_a_dot_in_the_format_stands_between_schema_and_table(on_postgres, quoted):
    on_postgres.sql("CREATE SCHEMA app")
    name = '"app.q"' if quoted else "app.q"
    on_postgres.put({"v": 1}, table__name__format=name)
    on_postgres.put({"v": 2, "w": 3}, table__name__format=name)
    found = on_postgres.sql("SELECT table_schema, table_name FROM information_schema.tables WHERE table_schema IN ('app', 'public')")  # fmt: skip
    assert found == [("public", "app.q") if quoted else ("app", "q")]


def test_a_dot_in_the_format_stands_between_database_and_table(on_maria, mariadb):
    mariadb.sql("CREATE OR REPLACE DATABASE klamm_other")
    try:
        task = on_maria.put({"v": 1}, table__name__format="klamm_other.q", delete__enabled="true")
        task.put([record({"v": 5, "w": "x"}, 1, 7), record(None, 2, 0)])
        assert mariadb.sql("SELECT id, v, w FROM klamm_other.q") == [(7, 5, "x")]
        assert on_maria.sql("SHOW TABLES") == []
    finally:
        mariadb.sql("DROP DATABASE klamm_other")


def test_dots_of_a_topic_stay_in_the_name_of_its_table(database):
    database.start(props=UPSERT).put([record({"v": 1}, 0, 1, topic="p.shop.orders")])
    mark = "`" if "mariadb" in database.props["connection.url"] else '"'
    assert database.sql(f"SELECT v FROM {mark}p.shop.orders{mark}") == [(1,)]


def test_fields_find_columns_that_differ_by_case(database):
    quote = '"{}"'.format if "postgresql" in database.props["connection.url"] else str
    database.sql(f"CREATE TABLE t ({quote('ID')} INT PRIMARY KEY, {quote('userName')} VARCHAR(9))")
    task = database.put({"username": "a"}, {"USERNAME": "b"}, delete__enabled="true")
    task.put([record(None, 2, 0)])
    assert database.sql("SELECT * FROM t") == [(1, "b")]


def test_columns_that_differ_by_case_are_made_where_the_database_can_have_both(on_postgres):
    task = on_postgres.put({"a": 1}, {"A": 2}, {"a": 3, "A": 4})
    task.put([record({"A": 5, "a": 6}, 3, 9)])
    assert on_postgres.sql('SELECT id, a, "A" FROM t ORDER BY id') == [(0, 1, None), (1, None, 2), (2, 3, 4), (9, 6, 5)]  # fmt: skip


@pytest.mark.parametrize("where", ["on_sqlite", pytest.param("on_maria", marks=pytest.mark.needs("mariadb"))])
def test_fields_that_are_one_column_make_a_record_bad(where, request):
    database, reporter = request.getfixturevalue(where), Reporter()
    database.put({"a": 1}, {"a": 3, "A": 4}, {"A": 2}, reporter=reporter)
    [(offset, said)] = reporter.reported
    assert offset == 1
    assert "fields a and A are the same column" in said
    assert database.sql("SELECT id, a FROM t ORDER BY id") == [(0, 1), (2, 2)]


def test_a_format_with_too_many_dots_is_refused(on_sqlite):
    with pytest.raises(ConfigError, match=r"table\.name\.format=a\.b\.c .* schema\.table"):
        on_sqlite.put({"v": 1}, table__name__format="a.b.c")


ARRAYS = "tags TEXT[], ns INT[], fs FLOAT8[], ds NUMERIC[], js JSONB[], grid INT[], days DATE[]"
ROW_OF_ARRAYS = (
    SchemaBuilder.struct("row")
    .field("tags", SchemaBuilder.array(SchemaBuilder(Type.STRING).optional().build()).optional().build())
    .field("ns", SchemaBuilder.array(INT32).optional().build())
    .field("days", SchemaBuilder.array(logical.date_builder().build()).optional().build())
    .build()
)


@pytest.mark.parametrize("mode", ["insert", "upsert", "update"])
def test_arrays_become_arrays_of_postgresql(on_postgres, mode):
    on_postgres.sql(f"CREATE TABLE t (id INT PRIMARY KEY, {ARRAYS})")
    if mode == "update":
        on_postgres.sql("INSERT INTO t (id) VALUES (0), (1), (2), (3)")
    odd = ["", None, 'a"b', "c,d", "{e}", "\\", "NULL", "it's"]
    task = on_postgres.put(
        {"tags": odd, "ns": [1, None], "fs": [1, 2.5], "ds": [0.1, 2], "js": [{"a": [1]}, None, "7"], "grid": [[1, 2], [3, 4]], "days": ["2024-02-29"]},
        {"tags": [], "ns": None, "fs": [], "ds": None, "js": [[1], [2, 3]], "grid": [], "days": None},
        insert__mode=mode,
    )  # fmt: skip
    typed = [{"tags": odd, "ns": [1, 2], "days": [date(2024, 2, 29)]}, {"tags": None, "ns": [], "days": None}]
    task.put([record(Struct(ROW_OF_ARRAYS, **v), n, n, schema=ROW_OF_ARRAYS) for n, v in enumerate(typed, 2)])
    found = on_postgres.sql("SELECT tags, ns, fs, ds, js, grid, days FROM t ORDER BY id")
    assert found == [
        (odd, [1, None], [1.0, 2.5], [Decimal("0.1"), Decimal(2)], [{"a": [1]}, None, 7], [[1, 2], [3, 4]], [date(2024, 2, 29)]),
        ([], None, [], None, [[1], [2, 3]], [], None),
        (odd, [1, 2], None, None, None, None, [date(2024, 2, 29)]),
        (None, [], None, None, None, None, None),
    ]  # fmt: skip


def test_what_is_no_array_of_the_column_s_items_is_refused_by_its_column(on_postgres):
    on_postgres.sql(f"CREATE TABLE t (id INT PRIMARY KEY, {ARRAYS})")
    reporter = Reporter()
    bad = [
        ({"tags": "plain"}, "column tags: a value of str is no array"),
        ({"tags": "{a,b}"}, "column tags: a value of str is no array"),
        ({"tags": {"a": 1}}, "column tags: a value of dict is no array"),
        ({"tags": [1, "a"]}, "column tags: an array has items of several types (int, str)"),
        ({"ns": [1, 2.5]}, "column ns: 2.5 is not a whole number"),
        ({"ns": ["x"]}, "invalid input syntax for type integer"),
        ({"grid": [[1], [2, 3]]}, "array"),
        ({"grid": [1, [2]]}, "column grid: a value of int is no array"),
    ]  # fmt: skip
    on_postgres.put(*[value for value, _ in bad], {"tags": ["good"]}, reporter=reporter)
    assert reporter.offsets == list(range(len(bad)))
    said = [text for _, text in sorted(reporter.reported)]
    assert [text for (_, text), found in zip(bad, said, strict=True) if text not in found] == []
    assert on_postgres.sql("SELECT tags FROM t") == [(["good"],)]


def test_arrays_are_json_in_columns_of_texts_and_of_json(database):
    kind = "JSONB" if "postgresql" in database.props["connection.url"] else "TEXT"
    database.sql(f"CREATE TABLE t (id INT PRIMARY KEY, v {kind}, w TEXT)")
    value = {"v": ["a", 1], "w": ["ü", None]}
    database.put(value, {"v": None, "w": None}, value)
    found = database.sql("SELECT v, w FROM t ORDER BY id")
    v = ["a", 1] if kind == "JSONB" else '["a",1]'
    assert found == [(v, '["ü",null]'), (None, None), (v, '["ü",null]')]


@pytest.mark.parametrize("mode", ["insert", "upsert", "update"])
def test_values_of_generated_columns_are_left_to_the_database(database, mode, caplog):
    database.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT, g INT GENERATED ALWAYS AS (v * 2) STORED)")
    if mode == "update":
        database.sql("INSERT INTO t (id) VALUES (0), (1), (2)")
    task = database.put({"v": 1, "g": 7}, {"v": 2, "g": None}, insert__mode=mode)
    task.put([record({"v": 3, "g": 8}, 2, 2)])
    assert database.sql("SELECT v, g FROM t ORDER BY id") == [(1, 2), (2, 4), (3, 6)]
    assert caplog.text.count("g is generated by the database") == 1


def test_a_value_for_a_generated_key_is_a_bad_record(on_postgres):
    on_postgres.sql("CREATE TABLE t (id INT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, v INT)")
    reporter = Reporter()
    on_postgres.put({"v": 1}, reporter=reporter)
    assert reporter.offsets == [0]
    assert "GENERATED ALWAYS" in reporter.reported[0][1]
