"""Values of all types in columns of all types: the quick ways write what the driver itself writes."""

from contextlib import closing
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.sql_sink import UPSERT, Reporter, record

from klamm_connectors.sql.literals import literals
from klamm_plugins import logical
from klamm_plugins.schema import SchemaBuilder, Struct, Type

BESIDE_A_SERVER = settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
TEXTS = st.text(st.one_of(st.sampled_from("'\"\\%\0\n\r\x1a;-#`ü🎉 "), st.characters(exclude_categories=["Cs"])), max_size=12)  # fmt: skip
MOMENTS = st.datetimes(datetime(1000, 1, 1))  # noqa: DTZ001  columns have no zone
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.decimals(allow_nan=False, allow_infinity=False, places=6, min_value=-(10**20), max_value=10**20),
    st.integers(-(10**24), 10**24).map(
        lambda n: Decimal(n).scaleb(-30)
    ),  # which Python writes with an exponent
    TEXTS,
    st.binary(max_size=12),
    st.dates(date(1000, 1, 1)),
    MOMENTS,
    st.times(),
    st.timedeltas(timedelta(0), timedelta(hours=838)),  # of negative ones, the driver's literals are wrong
)


@pytest.mark.parametrize("backslashes", [True, False])
def test_literals_mean_what_the_driver_s_own_mean(mariadb, backslashes):
    with closing(mariadb.connect()) as connection, connection.cursor() as cursor:
        mode = "" if backslashes else "NO_BACKSLASH_ESCAPES"
        cursor.execute(f"SET SESSION sql_mode = '{mode}'")

        @BESIDE_A_SERVER
        @given(column=st.lists(VALUES, min_size=1, max_size=6))
        def same(column):
            ours = ", ".join(literals(column, backslashes=backslashes))
            theirs = ", ".join(map(connection.escape, column))
            cursor.execute(f"SELECT {ours}".encode())
            found = cursor.fetchall()
            cursor.execute(f"SELECT {theirs}".encode("utf-8", "surrogateescape"))
            assert [*map(str, found[0])] == [*map(str, cursor.fetchall()[0])]
            plain = [(v, there) for v, there in zip(column, found[0], strict=True) if type(v) in {str, bytes, int}]  # fmt: skip
            assert all(v == there for v, there in plain)

        same()


@given(value=st.timedeltas(timedelta(hours=-838), timedelta(hours=838)))
def test_durations_are_signed_as_a_whole(value):
    [text] = literals([value])
    hours, minutes, seconds = text.strip("'-").split(":")
    size = timedelta(hours=int(hours), minutes=int(minutes)) + timedelta(microseconds=int(Decimal(seconds) * 1_000_000))  # fmt: skip
    assert (-size if text.startswith("'-") else size) == value


def test_values_without_a_literal_are_refused():
    for value, error in ((float("nan"), ValueError), (float("inf"), ValueError), (Decimal("NaN"), ValueError), (object(), TypeError)):  # fmt: skip
        with pytest.raises(error):
            literals([1, value])


COLUMNS = {
    "mariadb": {
        "i": "INT", "b": "BIGINT UNSIGNED", "d": "DECIMAL(20,6)", "f": "DOUBLE", "r": "FLOAT", "v": "VARCHAR(60)",
        "x": "LONGTEXT", "y": "VARBINARY(60)", "z": "LONGBLOB", "dt": "DATETIME(6)", "da": "DATE", "ti": "TIME(6)",
        "bo": "BOOLEAN", "bi": "BIT(16)", "j": "JSON", "e": "ENUM('a','b')", "ye": "YEAR", "ts": "TIMESTAMP(6) NULL",
    },
    "postgresql": {
        "i": "INT", "b": "BIGINT", "d": "NUMERIC(20,6)", "n": "NUMERIC", "f": "DOUBLE PRECISION", "r": "REAL", "v": "VARCHAR(60)",
        "x": "TEXT", "z": "BYTEA", "dt": "TIMESTAMP", "tz": "TIMESTAMPTZ", "da": "DATE", "ti": "TIME", "bo": "BOOLEAN",
        "j": "JSON", "jb": "JSONB", "c": "CHAR(5)", "u": "UUID",
    },
}  # fmt: skip
LITTLE = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**31), 2**31 - 1), st.floats(width=32), TEXTS, st.binary(max_size=8),
    st.decimals(allow_nan=False, allow_infinity=False, places=6, min_value=-(10**12), max_value=10**12),
    st.sampled_from(["a", "12", "1.5", "{}", '"x"', "2024-02-29", "2024-02-29 12:00:00", "true", "0b0c8ee6-9d2b-4a1f-8f43-1f1d6f9a1a11"]),
    st.dates(date(1000, 1, 1)), MOMENTS, st.times(), st.just([1, {"a": "'"}]),
)  # fmt: skip


EACH_SERVER = pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.needs(name)) for name in COLUMNS])  # fmt: skip


@EACH_SERVER
@pytest.mark.parametrize("mode", ["upsert", "update"])
def test_many_rows_at_once_are_written_as_one_by_one(name, mode, request):
    """The same values go into every type of column, in one batch and each alone."""
    database = request.getfixturevalue("on_maria" if name == "mariadb" else "on_postgres")
    columns = ", ".join(f"{column} {kind}" for column, kind in COLUMNS[name].items())
    together, alone = Reporter(), Reporter()
    for table in ("together", "alone"):
        database.sql(f"CREATE TABLE {table} (id INT PRIMARY KEY, {columns})")
    tasks = [
        database.start(
            reporter, UPSERT | {"insert.mode": mode, "table.name.format": table, "batch.size": "10"}
        )
        for reporter, table in ((together, "together"), (alone, "alone"))
    ]

    @BESIDE_A_SERVER
    @given(column=st.sampled_from(list(COLUMNS[name])), values=st.lists(LITTLE, min_size=2, max_size=5))
    def same(column, values):
        for table in ("together", "alone"):
            database.sql(f"DELETE FROM {table}")
            if mode == "update":
                database.sql(f"INSERT INTO {table} (id) VALUES (0), (1), (2), (3)")
        together.reported.clear()
        alone.reported.clear()
        records = [record({column: value}, i, i) for i, value in enumerate(values)]
        tasks[0].put(records)
        for one in records:
            tasks[1].put([one])
        assert together.offsets == alone.offsets
        query = "SELECT id, {} FROM {} ORDER BY id"
        assert str(database.sql(query.format(column, "together"))) == str(database.sql(query.format(column, "alone")))  # fmt: skip

    same()


KEYS = {
    "i": st.integers(0, 5),
    "d": st.decimals("0", "2", places=1),
    "v": st.sampled_from(["a", "A", "a ", "ß", "ss", "it's", "\\", "%s", "ü🎉", ""]),
    "dt": st.datetimes(datetime(2024, 1, 1), datetime(2024, 1, 1, 0, 0, 0, 5)),  # noqa: DTZ001
    "da": st.dates(date(2024, 1, 1), date(2024, 1, 5)),
}  # fmt: skip


@EACH_SERVER
def test_many_keys_at_once_are_deleted_as_one_by_one(name, request):
    database = request.getfixturevalue("on_maria" if name == "mariadb" else "on_postgres")
    for column in KEYS:
        for table in ("together", "alone"):
            database.sql(f"CREATE TABLE {table}_{column} (k {COLUMNS[name][column]}, v INT)")
    props = UPSERT | {"insert.mode": "insert", "pk.fields": "k", "delete.enabled": "true"}
    task = database.start(props=props)

    @settings(BESIDE_A_SERVER, max_examples=20)
    @given(column=st.sampled_from(list(KEYS)), data=st.data())
    def same(column, data):
        there = data.draw(st.lists(KEYS[column], max_size=5))
        keys = data.draw(st.lists(KEYS[column], min_size=2, max_size=4))
        for table in (f"together_{column}", f"alone_{column}"):
            database.sql(f"DELETE FROM {table}")
            task.put([record({"v": i}, i, key, topic=table) for i, key in enumerate(there)])
            deletes = [record(None, i, key, topic=table) for i, key in enumerate(keys)]
            for some in [deletes] if table.startswith("together") else [[one] for one in deletes]:
                task.put(some)
        left = [database.sql(f"SELECT v FROM {table}_{column} ORDER BY v") for table in ("together", "alone")]
        assert left[0] == left[1]

    same()


ROW = (
    SchemaBuilder.struct("row")
    .field("d", logical.decimal_builder(10).optional().build())
    .field("day", logical.date_builder().optional().build())
    .field("at", logical.timestamp_builder().optional().build())
    .field("took", SchemaBuilder(Type.INT64).name("io.debezium.time.MicroTime").optional().build())
    .field("raw", SchemaBuilder(Type.BYTES).optional().build())
    .field("real", SchemaBuilder(Type.FLOAT32).optional().build())
    .field("yes", SchemaBuilder(Type.BOOLEAN).optional().build())
    .field("note", SchemaBuilder(Type.STRING).optional().build())
    .build()
)


@pytest.mark.parametrize("where", [pytest.param("on_maria", marks=pytest.mark.needs("mariadb")), pytest.param("on_postgres", marks=pytest.mark.needs("postgresql"))])  # fmt: skip
def test_values_of_all_schemas_come_back_from_tables_that_the_sink_made(where, request):
    database = request.getfixturevalue(where)
    value = {
        "d": Decimal("12345678901234567890.0123456789"),
        "day": date(2024, 2, 29),
        "at": datetime(2024, 2, 29, 12, 0, 0, 5000, tzinfo=UTC),
        "took": 3_600_000_001,
        "raw": b"\0\xff'\\",
        "real": 0.5,
        "yes": True,
        "note": "'\\%s\n🎉",
    }
    given = [Struct(ROW, **value), Struct(ROW), Struct(ROW, **value)]
    task = database.start(props=UPSERT)
    task.put([record(v, i, i, schema=ROW) for i, v in enumerate(given)])
    first, nulls, last = database.sql("SELECT d, day, at, took, raw, real_, yes, note FROM t ORDER BY id".replace("real_", "`real`" if where == "on_maria" else '"real"'))  # fmt: skip
    assert nulls == (None,) * 8
    assert first == last
    took = timedelta(hours=1, microseconds=1) if where == "on_maria" else 3_600_000_001
    assert first == (value["d"], value["day"], value["at"].replace(tzinfo=None), took, value["raw"], 0.5, True, value["note"])  # fmt: skip


def of_debezium(kind, name):
    return SchemaBuilder(kind).name(f"io.debezium.time.{name}").optional().build()


TIMES = (
    SchemaBuilder.struct("row")
    .field("nano", of_debezium(Type.INT64, "NanoTimestamp"))
    .field("took", of_debezium(Type.INT64, "NanoTime"))
    .field("day", of_debezium(Type.STRING, "IsoDate"))
    .field("clock", of_debezium(Type.STRING, "IsoTime"))
    .field("at", of_debezium(Type.STRING, "IsoTimestamp"))
    .build()
)


@pytest.mark.parametrize("where", [pytest.param("on_maria", marks=pytest.mark.needs("mariadb")), pytest.param("on_postgres", marks=pytest.mark.needs("postgresql"))])  # fmt: skip
def test_times_of_debeziums_other_modes_become_times(where, request):
    database = request.getfixturevalue(where)
    value = {"nano": 1_704_189_600_500_000_000, "took": 3_600_000_001_000, "day": "2024-02-29Z"}
    value |= {"clock": "10:00:00.5Z", "at": "2024-02-29T12:00:00.005Z"}
    task = database.start(props=UPSERT)
    task.put([record(v, i, i, schema=TIMES) for i, v in enumerate([Struct(TIMES, **value), Struct(TIMES)])])
    [first, nulls] = database.sql("SELECT nano, took, day, at, clock FROM t ORDER BY id")
    maria = where == "on_maria"
    moments = (datetime(2024, 1, 2, 10, 0, 0, 500_000), datetime(2024, 2, 29, 12, 0, 0, 5000))  # noqa: DTZ001
    took = timedelta(hours=1, microseconds=1) if maria else 3_600_000_001
    assert first[:4] == (moments[0], took, date(2024, 2, 29), moments[1])
    assert str(first[4]).startswith("10:00:00.5")
    assert nulls == (None,) * 5


SCALARS = {
    "i": 1,
    "f": 0.5,
    "s": "it's",
    "yes": True,
    "none": None,
    "deep": {"a": [1]},
}


@pytest.mark.parametrize("where", [pytest.param("on_maria", marks=pytest.mark.needs("mariadb")), pytest.param("on_postgres", marks=pytest.mark.needs("postgresql"))])  # fmt: skip
def test_many_rows_are_one_statement_of_the_server(where, request):
    database = request.getfixturevalue(where)
    task = database.put(SCALARS)
    records = [record({**SCALARS, "d": n / 7}, n, n) for n in range(300)]
    task.put(records)
    written = []
    sa.event.listen(task._engine, "before_cursor_execute", lambda *args: written.append(args[2]))
    count = "SHOW GLOBAL STATUS LIKE 'Com_insert'"  # which the driver alone sends
    begin = int(database.sql(count)[0][1]) if where == "on_maria" else 0
    structs = [record(Struct(ROW, d=Decimal("1.5000000000"), raw=b"\0", real=0.25, day=date(2024, 2, 29)), n, n, schema=ROW) for n in range(300)]  # fmt: skip
    task.put(records)
    task.put(structs)
    task.put(structs)
    inserts = sum("INSERT" in text for text in written)
    if where == "on_maria":
        inserts = int(database.sql(count)[0][1]) - begin
    assert inserts == 3


@pytest.mark.parametrize("where", [pytest.param("on_maria", marks=pytest.mark.needs("mariadb")), pytest.param("on_postgres", marks=pytest.mark.needs("postgresql"))])  # fmt: skip
def test_a_number_in_a_binary_column_is_no_heap_of_zeros(where, request):
    database, reporter = request.getfixturevalue(where), Reporter()
    database.sql(f"CREATE TABLE t (id INT PRIMARY KEY, z {'LONGBLOB' if where == 'on_maria' else 'BYTEA'})")
    database.put({"z": b"a"}, {"z": 10**15}, {"z": "text"}, {"z": None}, reporter=reporter)
    assert reporter.offsets == [1, 2]
    assert "int is no bytes" in reporter.reported[0][1]
    assert database.sql("SELECT z FROM t ORDER BY id") == [(b"a",), (None,)]


def test_the_last_of_several_upserts_of_one_key_is_there(on_postgres):
    task = on_postgres.start(props=UPSERT | {"delete.enabled": "true"})
    keys = ["a", "b", "a", "c", "b", "a"]
    task.put([record({"v": i}, i, key) for i, key in enumerate(keys)])
    task.put([record({"v": 10}, 10, "c"), record(None, 11, "c"), record({"v": 12}, 12, "d"), record({"v": 13}, 13, "d")])  # fmt: skip
    assert on_postgres.sql("SELECT id, v FROM t ORDER BY id") == [("a", 5), ("b", 4), ("d", 13)]


def test_keys_that_only_the_database_takes_for_equal_are_written_one_after_another(on_postgres):
    on_postgres.sql(
        "CREATE COLLATION blind (provider = icu, locale = 'und-u-ks-level2', deterministic = false)"
    )
    on_postgres.sql("CREATE TABLE t (id TEXT COLLATE blind PRIMARY KEY, v INT)")
    task = on_postgres.start(props=UPSERT)
    task.put([record({"v": i}, i, key) for i, key in enumerate(["a", "B", "A", "b", "a"])])
    assert on_postgres.sql("SELECT id, v FROM t ORDER BY id") == [("a", 4), ("B", 3)]


def test_big_rows_are_divided_among_statements(on_maria, on_postgres):
    values = [{"v": chr(97 + i) * 400_000} for i in range(8)] + [{"v": "z" * 3_000_000}]
    for database in (on_maria, on_postgres):
        database.put(*values)
        assert [n for (n,) in database.sql("SELECT LENGTH(v) FROM t ORDER BY id")] == [400_000] * 8 + [
            3_000_000
        ]


@pytest.mark.parametrize("where", [pytest.param("on_maria", marks=pytest.mark.needs("mariadb")), pytest.param("on_postgres", marks=pytest.mark.needs("postgresql"))])  # fmt: skip
def test_names_with_odd_signs_are_upserted(where, request):
    database = request.getfixturevalue(where)
    for _ in range(2):
        database.put({"a%b": 1, "c'\":d": 2, "%s": "%s"}, {"a%b": 3, "c'\":d": 4, "%s": "x"}, table__name__format="t%s")  # fmt: skip
    sign = "`" if where == "on_maria" else '"'
    assert database.sql(f"SELECT {sign}a%b{sign}, {sign}%s{sign} FROM {sign}t%s{sign} ORDER BY id") == [(1, "%s"), (3, "x")]  # fmt: skip


def test_an_error_of_a_statement_of_literals_does_not_show_its_rows(on_maria):
    task = on_maria.put({"v": "secret"})
    on_maria.sql("DROP TABLE t")
    with pytest.raises(Exception, match="doesn't exist") as found:
        task.put([record({"v": "secret"}, 1, 1), record({"v": "secret"}, 2, 2)])
    cause = found.value.__cause__
    assert isinstance(cause, sa.exc.ProgrammingError)
    assert "secret" not in str(cause)
    assert "2 rows" in str(cause)
