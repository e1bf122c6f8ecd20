"""The keys of the JDBC sink that the SQL sink takes over: each does what it says."""

import logging
import traceback
from datetime import UTC, date, datetime

import pytest
import sqlalchemy as sa
from support.sql_sink import UPSERT, Reporter, record

from klamm.connect.child.failure import trace
from klamm_connectors.sql.connector import SqlSinkConnector
from klamm_plugins import logical
from klamm_plugins.errors import ConfigError, ConnectError, DataError, RetriableError
from klamm_plugins.schema import SchemaBuilder, Struct, Type

MOMENT = datetime(2024, 2, 29, 12, 0, 0, 5000, tzinfo=UTC)
MICROSECONDS = int(MOMENT.timestamp()) * 1_000_000 + 5000


def test_names_without_quotes_have_the_case_of_the_database(on_postgres):
    on_postgres.put({"userName": 1}, quote__sql__identifiers="never", table__name__format="Users")
    on_postgres.put({"USERNAME": 2}, quote__sql__identifiers="NEVER", table__name__format="USERS")
    on_postgres.put({"userName": 3}, quote__sql__identifiers="always", table__name__format="Users")
    assert on_postgres.sql("SELECT username FROM users") == [(2,)]
    assert on_postgres.sql('SELECT "userName" FROM "Users"') == [(3,)]


def test_a_view_is_written_to_if_its_type_is_listed(database):
    database.sql("CREATE TABLE real_one (id INT PRIMARY KEY, v INT)")
    database.sql("CREATE VIEW t AS SELECT id, v FROM real_one")
    with pytest.raises(ConfigError, match=r"t is a view: add VIEW to table\.types"):
        database.put({"v": 1})
    if "sqlite" not in database.props["connection.url"]:  # whose views take no rows
        database.put({"v": 1}, table__types="view,table")
        assert database.sql("SELECT * FROM real_one") == [(0, 1)]
    database.sql("DROP VIEW t")
    database.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    with pytest.raises(ConfigError, match="add TABLE"):
        database.put({"v": 1}, table__types="VIEW")


@pytest.mark.usefixtures("mariadb_server")
def test_a_connection_is_tried_some_times_before_it_counts_as_a_try(on_maria):
    props = {"connection.url": "jdbc:mariadb://127.0.0.1:1/x", "connection.attempts": "2", "connection.backoff.ms": "7", "max.retries": "1", "retry.backoff.ms": "9"}  # fmt: skip
    task = on_maria.start(props=UPSERT | props)
    waited = []
    for _ in range(3):
        with pytest.raises(RetriableError):
            task.put([record({"v": 1}, 0, 1)])
        waited.append(task.context.timeout_ms)
    assert waited == [7, 9, 7]
    with pytest.raises(ConnectError, match="given up after 2 tries"):
        task.put([record({"v": 1}, 0, 1)])


def test_a_server_of_postgresql_that_is_away_is_tried_again(on_postgres):
    task = on_postgres.start(props=UPSERT | {"connection.url": "jdbc:postgresql://127.0.0.1:1/x"})
    with pytest.raises(RetriableError, match=r"attempt 1 of connection\.attempts"):
        task.put([record({"v": 1}, 0, 1)])


@pytest.mark.parametrize(("zone", "day"), [("UTC", 29), ("DB_TIMEZONE", 28)])
def test_a_date_is_its_day_or_that_of_the_zone_at_midnight_in_utc(on_sqlite, zone, day):
    schema = SchemaBuilder.struct("row").field("d", logical.date_builder().build()).build()
    props = UPSERT | {"db.timezone": "America/New_York", "date.timezone": zone}
    on_sqlite.start(props=props).put([record(Struct(schema, d=date(2024, 2, 29)), 0, 1, schema=schema)])
    assert on_sqlite.sql("SELECT d FROM t") == [(f"2024-02-{day}",)]


@pytest.mark.parametrize("precision", ["MICROSECONDS", "nanoseconds"])
def test_numbers_and_texts_become_timestamps(database, precision):
    number = MICROSECONDS * (1000 if precision == "nanoseconds" else 1)
    values = [{"at": number, "n": 1}, {"at": str(number), "n": 2}, {"at": MOMENT.isoformat(), "n": 3}, {"at": None, "n": 4}]  # fmt: skip
    reporter = Reporter()
    database.put(*values, {"at": "soon", "n": 5}, {"at": 1.5, "n": 6}, reporter=reporter, timestamp__fields__list="at", timestamp__precision__mode=precision, db__timezone="Europe/Vienna")  # fmt: skip
    found = database.sql("SELECT at FROM t ORDER BY id")
    assert [str(at)[:23] for (at,) in found] == ["2024-02-29 13:00:00.005"] * 3 + ["None"]
    assert reporter.offsets == [4, 5]


def test_fields_of_schemas_become_timestamps(on_postgres):
    schema = SchemaBuilder.struct("row").field("at", SchemaBuilder(Type.INT64).build()).build()
    task = on_postgres.start(props=UPSERT | {"timestamp.fields.list": "at"})
    task.put([record(Struct(schema, at=MICROSECONDS), 0, 1, schema=schema)])
    assert on_postgres.sql("SELECT at FROM t") == [(MOMENT.replace(tzinfo=None),)]


@pytest.mark.parametrize(("replaced", "found"), [("true", 7), ("false", None)])
def test_a_null_is_replaced_by_its_default_or_not(on_sqlite, replaced, found):
    number = SchemaBuilder(Type.INT32).optional().default(7).build()
    schema = SchemaBuilder.struct("row").field("n", number).build()
    on_sqlite.start(props=UPSERT | {"replace.null.with.default": replaced}).put(
        [record(Struct(schema, n=None), 0, 1, schema=schema)]
    )
    assert on_sqlite.sql("SELECT n FROM t") == [(found,)]


@pytest.mark.parametrize("trimmed", [True, False])
def test_values_stay_out_of_messages_if_asked(database, trimmed, caplog):
    caplog.set_level(logging.DEBUG)
    database.sql("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(9) UNIQUE, d DATE)")
    props = {
        "trim__sensitive__log": str(trimmed).lower(),
        "timestamp__fields__list": "d",
        "insert__mode": "insert",
    }
    reporter = Reporter()
    one, two, three = (f"secret-{number}" for number in (1, 2, 3))  # traces quote lines of this code
    database.put({"v": one}, {"v": one}, {"d": two}, reporter=reporter, **props)
    database.sql("DELETE FROM t")
    with pytest.raises(DataError) as failed:
        database.put({"v": one, "w": 0}, {"v": one, "w": 0}, **props)
    with pytest.raises(DataError) as unfit:
        database.put({"d": three}, **props)
    said = " ".join(text for _, text in reporter.reported)
    shown = trace(failed.value) + "".join(traceback.format_exception(failed.value)) + trace(unfit.value)
    assert reporter.offsets == [1, 2]
    if trimmed:
        assert "secret" not in said + shown + caplog.text
        assert "trim.sensitive.log" in said
    else:
        assert three in shown
        if "sqlite" not in database.props["connection.url"]:  # which quotes nothing
            assert one in said
            assert two in said
            assert one in trace(failed.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("quote.sql.identifiers", "sometimes"),
        ("dialect.name", "PaperDatabaseDialect"),
        ("table.types", "TABLE,STOOL"),
        ("connection.attempts", "0"),
        ("date.timezone", "Mars"),
        ("timestamp.precision.mode", "days"),
    ],
)
def test_values_that_mean_nothing_are_refused(name, value):
    said = {v.name: v.errors for v in SqlSinkConnector.validate({"name": "c", "topics": "t", name: value})}
    assert said[name]


@pytest.mark.parametrize(
    ("url", "module"),
    [("jdbc:sqlserver://db:1433;databaseName=shop", "pymssql"), ("jdbc:oracle:thin:@//db/XE", "oracledb")],
)
def test_drivers_of_other_databases_are_named(url, module):
    found = {
        v.name: v.errors
        for v in SqlSinkConnector.validate({"name": "c", "topics": "t", "connection.url": url})
    }
    [said] = found["connection.url"]
    assert said.endswith(f"the Python package {module}, is not installed: pip install '{module}'")


def test_a_moment_is_the_same_in_a_column_with_a_zone(on_postgres):
    on_postgres.sql("CREATE TABLE t (id INT PRIMARY KEY, at TIMESTAMPTZ)")
    schema = SchemaBuilder.struct("row").field("at", logical.timestamp_builder().build()).build()
    task = on_postgres.start(props=UPSERT | {"db.timezone": "Asia/Tokyo"})
    for first in (0, 10):  # the second transaction of a session, too
        task.put([record(Struct(schema, at=MOMENT), i, i, schema=schema) for i in range(first, first + 2)])
    assert {at.astimezone(UTC) for (at,) in on_postgres.sql("SELECT at FROM t")} == {MOMENT}


def test_tables_of_sql_server_and_oracle_have_types_that_hold_texts():
    from sqlalchemy.dialects import mssql, oracle

    from klamm_connectors.sql.kinds import ColumnType, Kind
    from klamm_connectors.sql.tables import column_type

    text = ColumnType(Kind.STRING)
    for dialect, free, key in ((mssql.dialect(), "NVARCHAR(max)", "NVARCHAR(255)"), (oracle.dialect(), "CLOB", "VARCHAR2(255 CHAR)")):  # type: ignore[no-untyped-call]  # fmt: skip
        assert column_type(text, dialect, in_key=False).compile(dialect) == free
        assert column_type(text, dialect, in_key=True).compile(dialect) == key
    assert isinstance(column_type(ColumnType(Kind.TIMESTAMP), mssql.dialect(), in_key=False), sa.DateTime)  # type: ignore[no-untyped-call]
