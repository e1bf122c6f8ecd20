"""Target tables: finds, creates and extends them, and makes their statements for each dialect."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.schema import CreateColumn

from klamm_connectors.sql.config import Settings
from klamm_connectors.sql.rows import ColumnType, Kind, Layout
from klamm_connectors.sql.statement import Statement
from klamm_plugins.errors import ConfigError, ConnectError

log = logging.getLogger(__name__)

_MYSQL: Final = frozenset({"mysql", "mariadb"})
_STATEMENTS: Final = 2000  # that are remembered
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
    """Returns the type of a new column."""
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
    """Returns a collation that keeps keys apart which differ only in case or in trailing spaces. The default would
    merge them.
    """
    return "utf8mb4_nopad_bin" if getattr(dialect, "is_mariadb", False) else "utf8mb4_0900_bin"


class Target:
    """The tables that a task has used, with their statements."""

    def __init__(self, engine: sa.Engine, settings: Settings) -> None:
        self._engine = engine
        self._create, self._evolve = settings.auto_create, settings.auto_evolve
        self._mode = settings.insert_mode
        self._tables: dict[str, sa.Table] = {}
        self._statements: dict[tuple[str, bool, tuple[str, ...], tuple[str, ...]], Statement] = {}

    def ensure(self, name: str, types: Mapping[str, ColumnType | None], key: Sequence[str]) -> bool:
        """Makes sure that a table with these columns exists; creates what may be created. Raises ConfigError for what
        is missing.

        Without columns it creates nothing and returns False when there is no table: then there is nothing to delete
        either.
        """
        table = self._tables.get(name)
        for _ in range(2):  # a table that somebody else makes now may lack columns
            if table is not None and not _missing(table, types):
                break
            table = self._reflect(name)
            if table is None:
                if not types and self._create:
                    return False
                self._make(name, types, key)
            else:
                self._add_columns(table, _missing(table, types))
            table = self._reflect(name)
        if table is None or _missing(table, types):
            raise ConnectError(f"table {name} lacks the columns that were just made: {', '.join(types)}")
        if self._tables.get(name) is not table:
            self._tables[name] = table
            self._statements = {k: s for k, s in self._statements.items() if k[0] != name}
        return True

    def forget(self) -> None:
        """Forgets the tables, because the connection was lost or somebody has changed them."""
        self._tables.clear()
        self._statements.clear()

    def statement(self, name: str, layout: Layout) -> Statement:
        """Returns INSERT, upsert, UPDATE or DELETE for rows of this layout; the same object for the same columns."""
        place = (name, layout.deletes, layout.columns, layout.key)
        found = self._statements.get(place)
        if found is None:
            if len(self._statements) >= _STATEMENTS:
                self._statements.clear()
            table = self._tables[name]
            # Null values without a column are left out.
            present = {c: sa.bindparam(f"_klamm_{i}", type_=table.c[c].type) for i, c in enumerate(layout.columns) if c in table.c}  # fmt: skip
            made = self._make_statement(table, present, layout.key, deletes=layout.deletes)
            found = self._statements[place] = Statement(made, present.values(), self._engine.dialect)
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
            raise ConnectError(f"table {name}: its columns are not known yet, because all values are null")
        columns = [self._column(column, kind, in_key=column in key) for column, kind in known.items()]
        options: Any = {"mysql_charset": "utf8mb4", "mariadb_charset": "utf8mb4"}
        table = sa.Table(name, sa.MetaData(), *columns, **options)
        log.info("making table %s (%s)", name, ", ".join(known))
        try:
            table.create(self._engine, checkfirst=True)
        except sa.exc.DBAPIError:
            if self._reflect(name) is None:
                raise
            log.info("table %s was created by somebody else meanwhile", name)

    def _add_columns(self, table: sa.Table, known: Mapping[str, ColumnType]) -> None:
        if known and not self._evolve:
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
            try:
                with self._engine.begin() as connection:
                    connection.exec_driver_sql(f"ALTER TABLE {quoted} ADD COLUMN {made}")
            except sa.exc.DBAPIError:
                now = self._reflect(str(table.name))
                if now is None or column not in now.c:
                    raise
                log.info("column %s of table %s was added by somebody else meanwhile", column, table.name)

    def _column(self, name: str, kind: ColumnType, *, in_key: bool) -> sa.Column[Any]:
        type_ = column_type(kind, self._engine.dialect, in_key=in_key)
        return sa.Column(name, type_, primary_key=in_key, nullable=not in_key, autoincrement=False)

    def _make_statement(
        self, table: sa.Table, binds: dict[str, Any], key: tuple[str, ...], *, deletes: bool
    ) -> Any:
        if absent := [name for name in key if name not in binds]:
            raise ConnectError(
                f"table {table.name} has no column {', '.join(absent)}, which is in the primary key"
            )
        by_key = sa.and_(sa.true(), *(table.c[name] == binds[name] for name in key))
        if deletes:
            return sa.delete(table).where(by_key)
        if self._mode == "update":
            rest = [name for name in binds if name not in key] or key
            return sa.update(table).where(by_key).values({name: binds[name] for name in rest})
        if self._mode == "insert":
            return sa.insert(table).values(binds)
        return _upsert(table, binds, key, self._engine.dialect.name)


def _missing(table: sa.Table, types: Mapping[str, ColumnType | None]) -> dict[str, ColumnType]:
    return {name: kind for name, kind in types.items() if kind is not None and name not in table.c}


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
