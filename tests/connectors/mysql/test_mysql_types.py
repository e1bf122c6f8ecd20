"""Every column type of MariaDB, in snapshot and binlog: as Debezium's connector answers it, and through SQL sinks and back.

`tests/connectors/fixtures/debezium_types.json` and `debezium_names.json` have the answers of Debezium 3.5.0. Where we differ on purpose, `DIFFERENCES` says
why, and what is ours.
"""

import base64
import json
from datetime import timedelta

import pytest
from support import mysql_types
from support.mysql_types import CHANGES, GENERATED, KNOWN, MODES, TYPES
from support.sql_sink import UPSERT, Sinks

from klamm_plugins.converters.json import JsonConverter
from klamm_plugins.records import SinkRecord

pytestmark = pytest.mark.usefixtures("mariadb_server")

TIMESTAMPS = {"timestamp", "timestamp3", "timestamp6"}
SHAPES = {"geometry", "point", "polygon", "multipoint"}


def bare(name):
    return name.removesuffix("_nn")


def without_default(column):
    """Schemas have no defaults of the columns."""
    return {
        "schema": {k: v for k, v in column["schema"].items() if k != "default"},
        "values": column["values"],
    }


def of_floats(column, _mode):
    """FLOAT(M,D) is a float, as it is stored; Debezium makes it a double."""
    return {"schema": column["schema"] | {"type": "float"}, "values": column["values"]}


def of_the_snapshot(column, _mode):
    """The binlog's values are those of the snapshot; Debezium's are broken there."""
    first, second, third, *_ = column["values"]
    rows = [first, second, third]
    again = [first, second]
    not_null = not column["schema"]["optional"]
    after = [*rows, first, second, second, second if not_null else None, third]
    return {"schema": column["schema"], "values": [*rows, *after]} if again else column


def of_six_digits(column, _mode):
    """A TIMESTAMP has the digits of its column, in the snapshot as in the binlog; Debezium's snapshot leaves zeros out."""
    binlog = column["values"][3:]
    return {"schema": column["schema"], "values": [*binlog[:3], *binlog]}


def of_shapes(column, mode):
    """A shape is SRID and WKB as bytes, which databases take as they are; Debezium's is a struct."""
    kind = mode.partition(" ")[2] if mode.startswith("binary") else ""

    def packed(value):
        if value is None:
            return None
        data = (value["srid"] or 0).to_bytes(4, "little") + base64.b64decode(value["wkb"])
        return {"hex": data.hex(), "base64-url-safe": base64.urlsafe_b64encode(data).decode()}.get(
            kind
        ) or base64.b64encode(data).decode()

    # One that is NOT NULL is so here; Debezium's are all optional.
    optional = None in column["values"]
    schema = {"type": "string" if kind else "bytes", "optional": optional}
    return {"schema": schema, "values": [packed(value) for value in column["values"]]}


DIFFERENCES = {
    "float_m": of_floats,
    "cp932": of_the_snapshot,
    "uuid": of_the_snapshot,
    **dict.fromkeys(TIMESTAMPS, of_six_digits),
    **dict.fromkeys(SHAPES, of_shapes),
}


def expected(mode):
    """Returns what we answer in this mode: Debezium's answers, and our own where they differ on purpose."""
    found = {}
    for name, column in mysql_types.recorded()[mode].items():
        ours = DIFFERENCES.get(bare(name), lambda column, _: column)
        found[name] = without_default(ours(column, mode))
    return found


@pytest.fixture
def table(source):
    def make(types=TYPES):
        for statement in (mysql_types.ddl("t", types), *mysql_types.inserts("t", 1, types)):
            source.sql(statement)

    return make


@pytest.mark.parametrize("mode", MODES)
def test_every_type_is_as_debezium_has_it(source, table, mode):
    table(KNOWN)
    task = source(tombstones__on__delete="false", **MODES[mode])
    records = task.read(3)
    for statement in mysql_types.changes("t", KNOWN):
        source.sql(statement)
    records += task.read(CHANGES)
    converter = JsonConverter()
    converter.configure({}, is_key=False)
    envelopes = [json.loads(converter.from_connect_data("t", r.value_schema, r.value)) for r in records]
    found, wanted = mysql_types.answers(envelopes), expected(mode)
    assert found.keys() == wanted.keys()
    assert {n: c for n, c in found.items() if c != wanted[n]} == {
        n: c for n, c in wanted.items() if c != found[n]
    }


def test_a_mode_changes_what_its_documentation_says():
    modes = mysql_types.recorded()
    touched = {m: {bare(n) for n, c in modes[m].items() if c != modes["default"][n]} for m in MODES}
    texts = {"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"}
    decimals = {"decimal", "numeric", "decimal_u"}
    times = {"date", "time", "time3", "time6", "datetime", "datetime3", "datetime6"}
    assert touched == {
        "default": set(), "decimal string": decimals, "decimal double": decimals, "time connect": times, "time isostring": times,
        "time microseconds": {"datetime", "datetime3"}, "time nanoseconds": times - {"date"},
        "bigint precise": {"bigint_u"}, "binary base64": texts, "binary base64-url-safe": texts, "binary hex": texts,
    }  # fmt: skip
    assert len(TYPES) + len(GENERATED) >= 48


@pytest.fixture
def names(mariadb):
    drop = f"DROP DATABASE IF EXISTS `{mysql_types.NAMES_DATABASE}`"
    for statement in (drop, *mysql_types.names_statements()):
        mariadb.sql(statement)
    yield
    mariadb.sql(drop)


@pytest.mark.usefixtures("names")
@pytest.mark.parametrize("mode", mysql_types.NAMES_MODES)
def test_names_are_adjusted_as_debezium_does(source, mode):
    keys = {"topic.prefix": mysql_types.NAMES_PREFIX, "database.include.list": mysql_types.NAMES_DATABASE}
    (record,) = source(**keys, **mysql_types.NAMES_MODES[mode]).read(1)
    converter = JsonConverter()
    converter.configure({}, is_key=False)
    key, value = (
        json.loads(converter.from_connect_data("t", schema, data))
        for schema, data in ((record.key_schema, record.key), (record.value_schema, record.value))
    )
    assert {"topic": record.topic, **mysql_types.names_of(key, value)} == mysql_types.recorded_names()[mode]


def copied(sinks, task, source, **more):
    """Carries snapshot and changes to the table `copy`, as the runtime does."""
    records = task.read(3)
    for statement in mysql_types.changes("t"):
        source.sql(statement)
    records += task.read(CHANGES)
    sink = sinks.start(props=UPSERT | {"table.name.format": "copy", "delete.enabled": "true"} | more)
    sink.put(
        [
            SinkRecord("t", 0, r.key_schema, r.key, r.value_schema, r.value, offset)
            for offset, r in enumerate(records)
        ]
    )


def rows(sql, table, columns="*"):
    return sql(f"SELECT {columns} FROM {table} ORDER BY id")


def differences(names, was, now, left, right):
    """Returns the values of the first row that differ, by column; `left` and `right` bring both sides into one form."""
    assert len(was) == len(now) == 5
    pairs = [zip(names, *both, strict=True) for both in zip(was, now, strict=True)]
    return {
        name: (a, b) for row in pairs for name, a, b in row if left(bare(name), a) != right(bare(name), b)
    }


@pytest.mark.filterwarnings("ignore:Did not recognize type")  # SQLAlchemy's, of shapes
@pytest.mark.parametrize("auto", ["true", "false"])
def test_rows_come_back_as_they_were_in_mariadb(source, mariadb, table, auto):
    table()
    if auto == "false":
        source.sql("CREATE TABLE copy LIKE t")
        for name, kind in GENERATED.items():
            source.sql(f"ALTER TABLE copy DROP `{name}`, ADD `{name}_` INT")
            source.sql(f"ALTER TABLE copy CHANGE `{name}_` `{name}` {kind.partition(' AS ')[0]}")
    sinks = Sinks({"connection.url": f"mysql://root@127.0.0.1:{mariadb.port}/{source.database}"}, source.sql)
    try:
        copied(sinks, source(event__format="row"), source, **{"auto.create": auto, "auto.evolve": "false"})
    finally:
        sinks.stop()
    names = ["id", *TYPES, *(f"{n}_nn" for n in TYPES), *GENERATED]
    was, now = (rows(source.sql, t, ", ".join(f"`{n}`" for n in names)) for t in ("t", "copy"))
    form = same_form if auto == "true" else lambda _, value: value
    different = differences(names, was, now, form, form)
    assert not different, different


def same_form(name, value):
    """Returns a value of a column as the one of the other type that the sink chose for it: BIT(1) is a Boolean, and FLOAT
    shows six digits.
    """
    if value is not None and name == "bit1":
        return value in (1, b"\1")
    return round(value, 2) if value is not None and name == "float_m" else value


def test_rows_are_the_same_in_postgresql(source, table, postgresql, postgresql_database):
    table()
    url = postgresql.url(postgresql_database)
    sinks = Sinks(
        {"connection.url": url, "connection.user": "klamm"},
        lambda statement: postgresql.sql(statement, postgresql_database),
    )
    names = ["id", *TYPES, *(f"{n}_nn" for n in TYPES), *GENERATED]
    try:
        copied(sinks, source(event__format="row"), source)
        now = rows(sinks.sql, "copy", ", ".join(f'"{n}"' for n in names))
    finally:
        sinks.stop()
    was = rows(source.sql, "t", ", ".join(f"`{n}`" for n in names))
    different = differences(names, was, now, in_postgresql, same_form)
    assert not different, different


def in_postgresql(name, value):
    """Returns a value of MariaDB as the sink's table in PostgreSQL has it: a TIME, which may be no time of day, is microseconds."""
    if isinstance(value, timedelta):
        return value // timedelta(microseconds=1)
    return same_form(name, value)
