"""Tables of the target: found, made and extended; their statements for each dialect."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.schema import CreateColumn

from klamm_connectors.sql.rows import ColumnType, Kind
from klamm_plugins.errors import ConfigError, ConnectError

log = logging.getLogger(__name__)

_MYSQL: Final = frozenset({"mysql", "mariadb"})
_KEY_LENGTH: Final = 255  # characters of a text in a primary key: MySQL indexes no longer one in full
_SIMPLE: Final[Mapping[Kind, type[sa.types.TypeEngine[Any]]]] = {
    Kind.BOOLEAN: sa.Boolean,
    Kind.INT16: sa.SmallInteger,
    Kind.INT32: sa.Integer,
    Kind.INT64: sa.BigInteger,
    Kind.FLOAT32: sa.REAL,
    Kind.FLOAT64: sa.Double,
    Kind.STRING: sa.Text,
    Kind.BYTES: sa.LargeBinary,
    Kind.DATE: sa.Date,
    Kind.TIME: sa.Time,
    Kind.TIMESTAMP: sa.DateTime,
    Kind.DURATION: sa.BigInteger,  # microseconds, where there is no type for it
}


def column_type(wanted: ColumnType, dialect: sa.Dialect, *, in_key: bool) -> sa.types.TypeEngine[Any]:
    """The type of a new column."""
    is_mysql = dialect.name in _MYSQL
    kind = wanted.kind
    if kind is Kind.DECIMAL:
        if dialect.name == "sqlite":
            return sa.Text()  # its NUMERIC keeps 15 digits
        return sa.Numeric(wanted.precision or (65 if is_mysql else None), wanted.scale)
    if is_mysql:
        if kind is Kind.STRING and in_key:
            return mysql.VARCHAR(_KEY_LENGTH, charset="utf8mb4", collation=_exact_collation(dialect))
        if kind is Kind.BYTES and in_key:
            return mysql.VARBINARY(_KEY_LENGTH)
        found: dict[Kind, sa.types.TypeEngine[Any]] = {
            Kind.STRING: mysql.LONGTEXT(charset="utf8mb4"),
            Kind.BYTES: mysql.LONGBLOB(),
            Kind.FLOAT32: mysql.FLOAT(),
            Kind.FLOAT64: mysql.DOUBLE(),
            Kind.TIME: mysql.TIME(fsp=6),
            Kind.DURATION: mysql.TIME(fsp=6),
            Kind.TIMESTAMP: mysql.DATETIME(fsp=6),
        }
        if kind in found:
            return found[kind]
    return _SIMPLE[kind]()


def _exact_collation(dialect: sa.Dialect) -> str:
    """Under the default collation, keys that differ in case or in spaces at the end would be the same row."""
    return "utf8mb4_nopad_bin" if getattr(dialect, "is_mariadb", False) else "utf8mb4_0900_bin"


class Target:
    """The tables that a task has met, with their statements."""

    def __init__(self, engine: sa.Engine, settings: Mapping[str, Any]) -> None:
        self._engine = engine
        self._create, self._evolve = settings["auto.create"], settings["auto.evolve"]
        self._mode = settings["insert.mode"]
        self._tables: dict[str, sa.Table] = {}
        self._statements: dict[tuple[str, bool, tuple[str, ...], tuple[str, ...]], Any] = {}

    def ensure(self, name: str, types: Mapping[str, ColumnType | None], key: Sequence[str]) -> None:
        """Have a table with these columns; make what may be made. ConfigError says what is missing."""
        table = self._tables.get(name)
        if table is not None and all(column in table.c for column in types):
            return
        table = self._reflect(name)
        if table is None:
            self._make(name, types, key)
        else:
            self._add_columns(table, {c: t for c, t in types.items() if c not in table.c})
        found = self._reflect(name)
        assert found is not None, "made just now"
        self._tables[name] = found
        self._statements = {k: s for k, s in self._statements.items() if k[0] != name}

    def forget(self) -> None:
        """Look at the tables again: the connection was lost, or somebody has changed them."""
        self._tables.clear()
        self._statements.clear()

    def fitted(self, name: str, row: Mapping[str, Any]) -> dict[str, Any]:
        """The row as the table's columns take it; nulls without a column are left out."""
        columns = self._tables[name].c
        return {n: None if v is None else _fit(v, columns[n].type) for n, v in row.items() if n in columns}

    def statement(self, name: str, columns: tuple[str, ...], key: tuple[str, ...], *, deletes: bool) -> Any:
        """INSERT, upsert, UPDATE or DELETE for rows of these columns, to be run with many of them."""
        place = (name, deletes, columns, key)
        found = self._statements.get(place)
        if found is None:
            found = self._statements[place] = self._make_statement(
                self._tables[name], columns, key, deletes=deletes
            )
        return found

    def _reflect(self, name: str) -> sa.Table | None:
        try:
            return sa.Table(name, sa.MetaData(), autoload_with=self._engine)
        except sa.exc.NoSuchTableError:
            return None

    def _make(self, name: str, types: Mapping[str, ColumnType | None], key: Sequence[str]) -> None:
        if not self._create:
            raise ConfigError(
                f"table {name} does not exist; make it, or set auto.create=true", key="auto.create"
            )
        known = {column: kind for column, kind in types.items() if kind is not None}
        if not known:
            raise ConnectError(f"table {name}: nothing is known of its columns yet, all values are null")
        columns = [self._column(column, kind, in_key=column in key) for column, kind in known.items()]
        options: Any = {"mysql_charset": "utf8mb4", "mariadb_charset": "utf8mb4"}
        table = sa.Table(name, sa.MetaData(), *columns, **options)
        log.info("making table %s (%s)", name, ", ".join(known))
        table.create(self._engine, checkfirst=True)

    def _add_columns(self, table: sa.Table, missing: Mapping[str, ColumnType | None]) -> None:
        known = {column: kind for column, kind in missing.items() if kind is not None}
        if not known:
            return
        if not self._evolve:
            raise ConfigError(
                f"table {table.name} has no column {', '.join(known)}; add it, set auto.evolve=true, or leave the field out "
                "with fields.whitelist",
                key="auto.evolve",
            )
        quoted = self._engine.dialect.identifier_preparer.format_table(table)
        for column, kind in known.items():
            made = CreateColumn(self._column(column, kind, in_key=False)).compile(
                dialect=self._engine.dialect
            )
            log.info("adding column %s to table %s", column, table.name)
            with self._engine.begin() as connection:
                connection.exec_driver_sql(f"ALTER TABLE {quoted} ADD COLUMN {made}".replace("%", "%%"))

    def _column(self, name: str, kind: ColumnType, *, in_key: bool) -> sa.Column[Any]:
        type_ = column_type(kind, self._engine.dialect, in_key=in_key)
        return sa.Column(name, type_, primary_key=in_key, nullable=not in_key, autoincrement=False)

    def _make_statement(
        self, table: sa.Table, columns: tuple[str, ...], key: tuple[str, ...], *, deletes: bool
    ) -> Any:
        parts = [
            table.c[name] == sa.bindparam(f"_k{i}", type_=table.c[name].type) for i, name in enumerate(key)
        ]
        by_key = sa.and_(sa.true(), *parts)
        if deletes:
            return sa.delete(table).where(by_key)
        if self._mode == "update":
            rest = {name: sa.bindparam(name, type_=table.c[name].type) for name in columns if name not in key}
            return sa.update(table).where(by_key).values(rest)
        values = {name: sa.bindparam(name, type_=table.c[name].type) for name in columns}
        if self._mode == "insert":
            return sa.insert(table).values(values)
        return _upsert(table, values, key, self._engine.dialect.name)


def _upsert(table: sa.Table, values: dict[str, Any], key: Sequence[str], dialect: str) -> Any:
    rest = [name for name in values if name not in key]
    if dialect in _MYSQL:
        statement = mysql.insert(table).values(values)
        return statement.on_duplicate_key_update({n: statement.inserted[n] for n in rest or key})
    if dialect not in {"sqlite", "postgresql"}:
        raise ConfigError(
            f"insert.mode=upsert is not known for {dialect}; use insert or update", key="insert.mode"
        )
    made: Any = sqlite.insert(table) if dialect == "sqlite" else postgresql.insert(table)
    made = made.values(values)
    if not rest:
        return made.on_conflict_do_nothing(index_elements=list(key))
    return made.on_conflict_do_update(index_elements=list(key), set_={n: made.excluded[n] for n in rest})


def _fit(value: Any, type_: sa.types.TypeEngine[Any]) -> Any:
    """A value for a column of this type where Python's type is another than the driver takes."""
    match value:
        case str() | int() | float():
            return value
        case Decimal():
            return format(value, "f") if isinstance(type_, sa.String) else value
        case timedelta():
            if isinstance(type_, (mysql.TIME, sa.Interval)):
                return value
            if isinstance(type_, sa.Time):
                return (datetime.min + value).time()  # noqa: DTZ901  a time of day has no zone
            return str(value) if isinstance(type_, sa.String) else value // timedelta(microseconds=1)
        case date() | time():
            return value.isoformat() if isinstance(type_, sa.String) else value
        case bytearray() | memoryview():
            return bytes(value)
        case _:
            return value
