"""Target tables: finds, creates and extends them, and makes their statements for each dialect."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects import mssql, mysql, oracle, postgresql, sqlite
from sqlalchemy.schema import CreateColumn

from klamm_connectors.sql.config import Settings
from klamm_connectors.sql.errors import sql_state
from klamm_connectors.sql.json_rows import JsonStatement, rows_of_json
from klamm_connectors.sql.kinds import ColumnType, Kind
from klamm_connectors.sql.literal_statement import LiteralStatement, deleting, inserting
from klamm_connectors.sql.names import TableName, columns_of, new_columns, unquoted
from klamm_connectors.sql.rows import Layout, Rows
from klamm_connectors.sql.statement import Binds, Statement
from klamm_plugins.errors import ConfigError, ConnectError

log = logging.getLogger(__name__)

_MYSQL: Final = frozenset({"mysql", "mariadb"})
_STATEMENTS: Final = 2000  # that are remembered
_NO_OPERATOR: Final = "42883"  # PostgreSQL: undefined_function
_MAY_LACK_EQUALITY: Final = (sa.JSON, sa.types.NullType, postgresql.DOMAIN)  # NullType: xml, point
_CHECKS: Final = sa.text(
    "SELECT check_clause FROM information_schema.check_constraints"
    " WHERE constraint_schema = COALESCE(:schema, DATABASE()) AND table_name = :name"
)
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
    if (other := _other(kind, dialect.name, in_key=in_key)) is not None:
        return other
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


def _other(kind: Kind, dialect: str, *, in_key: bool) -> sa.types.TypeEngine[Any] | None:
    """Returns the type where SQLAlchemy's own would lose something, or cannot be a key."""
    if dialect == "mssql":
        if kind is Kind.STRING:
            return mssql.NVARCHAR(_KEY_LENGTH if in_key else None)  # VARCHAR has one code page
        return mssql.DATETIME2(6) if kind is Kind.TIMESTAMP else None  # type: ignore[no-untyped-call]
    if dialect == "oracle" and kind is Kind.STRING and in_key:
        return oracle.VARCHAR2(_KEY_LENGTH)  # a CLOB is no key
    if dialect == "oracle" and kind is Kind.TIMESTAMP:
        return oracle.TIMESTAMP()  # a DATE has whole seconds
    return None


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
        self._tables: dict[TableName, sa.Table] = {}
        self._statements: dict[tuple[TableName, Layout], Statement] = {}
        self._types = settings.table_types
        self._generated: set[tuple[str, str]] = set()
        self._takes_literals = engine.dialect.name in _MYSQL and engine.dialect.driver == "pymysql"
        self._spelt = str if settings.quoted else unquoted(engine.dialect.name)

    def ensure(self, name: TableName, parts: Sequence[Rows]) -> bool:
        """Makes sure that a table with the columns of these rows exists; creates what may be created. Raises ConfigError
        for what is missing.

        For deletes alone it creates nothing and returns False when there is no table: then there is nothing to delete
        either.
        """
        written = [rows for rows in parts if not rows.layout.deletes]
        table = self._tables.get(name)
        for _ in range(2):  # a table that somebody else makes now may lack columns
            if table is not None and not self._missing(table, written):
                break
            table = self._reflect(name)
            if table is None:
                if not written and self._create:
                    return False
                self._make(name, written)
            else:
                self._add_columns(table, self._missing(table, written))
            table = self._reflect(name)
        if table is None or (missing := self._missing(table, written)):
            raise ConnectError(
                f"table {name} lacks the columns that were just made: {', '.join(missing or ())}"
            )
        if self._tables.get(name) is not table:
            self._tables[name] = table
            self._statements = {k: s for k, s in self._statements.items() if k[0] != name}
        return True

    def forget(self) -> None:
        """Forgets the tables, because the connection was lost or somebody has changed them."""
        self._tables.clear()
        self._statements.clear()

    def rows_are_apart(self, name: TableName) -> bool:
        """Returns False for a table that refers to itself."""
        table = self._tables[name]
        return not any(key.target_fullname.startswith(f"{table.fullname}.") for key in table.foreign_keys)

    def statement(self, name: TableName, layout: Layout) -> Statement:
        """Returns INSERT, upsert, UPDATE or DELETE for rows of this layout."""
        found = self._statements.get((name, layout))
        if found is None:
            if len(self._statements) >= _STATEMENTS:
                self._statements.clear()
            found = self._statements[name, layout] = self._compiled(self._tables[name], layout)
        return found

    def _compiled(self, table: sa.Table, layout: Layout) -> Statement:
        columns = columns_of(layout.columns, table.c.keys())  # fields of nulls without a column are left out
        if absent := [name for name in layout.key if name not in columns]:
            raise ConnectError(
                f"table {table.name} has no column {', '.join(absent)}, which is in the primary key"
            )
        key = [columns[name] for name in layout.key]
        if layout.deletes or self._mode != "insert":
            self._check_comparable(table, key)
        binds = {columns[field]: sa.bindparam(f"_klamm_{i}", type_=table.c[columns[field]].type) for i, field in enumerate(layout.columns) if field in columns}  # fmt: skip
        if layout.deletes:
            return self._deleting(table, {name: binds[name] for name in key})
        binds = self._without_generated(table, binds, key)
        if self._mode == "update":
            return self._updating(table, binds, key)
        return self._inserting(table, {c.name: binds[c.name] for c in table.c if c.name in binds}, key)

    def _without_generated(
        self, table: sa.Table, binds: dict[str, Any], key: Sequence[str]
    ) -> dict[str, Any]:
        """Leaves out the columns whose values the database itself makes, and warns of them once."""
        generated = [name for name in binds if table.c[name].computed is not None and name not in key]
        if fresh := [name for name in generated if (table.fullname, name) not in self._generated]:
            self._generated.update((table.fullname, name) for name in fresh)
            log.warning(
                "table %s: %s is generated by the database, so the field's values are left out; leave the field out with "
                "fields.whitelist or a transform",
                table.fullname, ", ".join(fresh),
            )  # fmt: skip
        return {name: bind for name, bind in binds.items() if name not in generated}

    def _check_comparable(self, table: sa.Table, key: Sequence[str]) -> None:
        """Raises ConfigError for a column by whose values PostgreSQL finds no row: json, xml, point. It says itself which."""
        odd = [name for name in key if isinstance(table.c[name].type, _MAY_LACK_EQUALITY)]
        if self._engine.dialect.name != "postgresql" or not odd:
            return
        for column in (table.c[name] for name in odd):
            itself: sa.ColumnElement[Any] = sa.literal_column(
                self._engine.dialect.identifier_preparer.format_column(column)
            )
            try:
                with self._engine.connect() as connection:
                    connection.execute(sa.select(column == itself).limit(0))
            except sa.exc.ProgrammingError as e:
                if sql_state(e) != _NO_OPERATOR:
                    raise
                said = str(e.orig).partition("\n")[0]
                raise ConfigError(
                    f"table {table.name}: column {column.name} is in the primary key (pk.mode, pk.fields), and PostgreSQL cannot "
                    f"compare its values ({said}): upserts, updates and deletes need that. Give the column another type "
                    "(jsonb for json), or name other columns",
                    key="pk.fields",
                ) from None

    def _deleting(self, table: sa.Table, binds: Binds) -> Statement:
        dialect = self._engine.dialect
        made = sa.delete(table).where(_equal(table, binds, binds))
        if self._takes_literals:
            return deleting(made, table, binds, dialect)
        if dialect.name != "postgresql":
            return Statement(made, binds, dialect)
        rows = rows_of_json(table, binds, dialect)
        bulk = sa.delete(table).where(_equal(table, rows.c, binds))
        return JsonStatement(made, binds, dialect, bulk=bulk, once=())

    def _updating(self, table: sa.Table, binds: Binds, key: Sequence[str]) -> Statement:
        dialect = self._engine.dialect
        changed = [name for name in binds if name not in key] or key
        made = sa.update(table).where(_equal(table, binds, key)).values({n: binds[n] for n in changed})
        if self._takes_literals:
            return LiteralStatement(made, binds, dialect)
        if dialect.name != "postgresql":
            return Statement(made, binds, dialect)
        rows = rows_of_json(table, binds, dialect)
        bulk = sa.update(table).where(_equal(table, rows.c, key)).values({n: rows.c[n] for n in changed})
        return JsonStatement(made, binds, dialect, bulk=bulk, once=key)

    def _inserting(self, table: sa.Table, binds: Binds, key: Sequence[str]) -> Statement:
        dialect, names = self._engine.dialect, list(binds)
        upserts = self._mode == "upsert"
        updated = [name for name in names if name not in key]
        if self._takes_literals:
            return inserting(table, binds, dialect, (updated or key) if upserts else None)
        if dialect.name == "postgresql":
            made: Any = postgresql.insert(table).values(dict(binds))
            rows = rows_of_json(table, names, dialect)
            bulk: Any = postgresql.insert(table).from_select(names, sa.select(*[rows.c[n] for n in names]))
            if upserts:
                made, bulk = _on_conflict(made, updated, key), _on_conflict(bulk, updated, key)
            return JsonStatement(made, binds, dialect, bulk=bulk, once=key if upserts else ())
        made = _upsert(table, binds, key, dialect.name) if upserts else sa.insert(table).values(dict(binds))
        return Statement(made, binds, dialect)

    def _missing(self, table: sa.Table, parts: Iterable[Rows]) -> dict[str, ColumnType]:
        return new_columns(table.c.keys(), parts, self._spelt)

    def _reflect(self, name: TableName) -> sa.Table | None:
        schema, table = self._place(name)
        try:
            found = sa.Table(
                table, sa.MetaData(), schema=schema, autoload_with=self._engine, resolve_fks=False
            )
        except sa.exc.NoSuchTableError:
            return None
        if getattr(self._engine.dialect, "is_mariadb", False):
            self._mark_json(found)
        is_view = table in sa.inspect(self._engine).get_view_names(schema)
        if not self._types & ({"VIEW"} if is_view else {"TABLE", "PARTITIONED TABLE"}):
            kind = "VIEW" if is_view else "TABLE"
            raise ConfigError(f"{name} is a {kind.lower()}: add {kind} to table.types", key="table.types")
        return found

    def _mark_json(self, table: sa.Table) -> None:
        """Gives columns of MariaDB's JSON their type: there it is another name of LONGTEXT with a check."""
        texts = [column for column in table.c if isinstance(column.type, mysql.LONGTEXT)]
        if not texts:
            return
        with self._engine.connect() as connection:
            checks = connection.execute(_CHECKS, {"schema": table.schema, "name": table.name}).scalars().all()
        for column in texts:
            quoted = str(column.name).replace("`", "``")
            if f"json_valid(`{quoted}`)" in checks:
                column.type = mysql.JSON()

    def _place(self, name: TableName) -> TableName:
        return TableName(name.schema and self._spelt(name.schema), self._spelt(name.name))

    def _make(self, name: TableName, parts: Sequence[Rows]) -> None:
        if not self._create:
            raise ConfigError(
                f"table {name} does not exist; make it, or set auto.create=true", key="auto.create"
            )
        known = new_columns([], parts, self._spelt)
        if not known:
            raise ConnectError(f"table {name}: its columns are not known yet, because all values are null")
        key = columns_of(parts[0].layout.key, known).values()
        columns = [self._column(column, kind, in_key=column in key) for column, kind in known.items()]
        options: Any = {"mysql_charset": "utf8mb4", "mariadb_charset": "utf8mb4"}
        schema, table_name = self._place(name)
        table = sa.Table(table_name, sa.MetaData(), *columns, schema=schema, **options)
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
                now = self._reflect(TableName(table.schema, str(table.name)))
                if now is None or column not in now.c:
                    raise
                log.info("column %s of table %s was added by somebody else meanwhile", column, table.name)

    def _column(self, name: str, kind: ColumnType, *, in_key: bool) -> sa.Column[Any]:
        type_ = column_type(kind, self._engine.dialect, in_key=in_key)
        return sa.Column(name, type_, primary_key=in_key, nullable=not in_key, autoincrement=False)


def _equal(table: sa.Table, values: Any, names: Iterable[str]) -> Any:
    """Returns the condition that a row has these values, of parameters or of another table, in the columns of these names."""
    return sa.and_(sa.true(), *(table.c[name] == values[name] for name in names))


def _upsert(table: sa.Table, binds: Binds, key: Sequence[str], dialect: str) -> Any:
    updated = [name for name in binds if name not in key]
    if dialect in _MYSQL:
        made = mysql.insert(table).values(dict(binds))
        return made.on_duplicate_key_update({n: made.inserted[n] for n in updated or key})
    return _on_conflict(sqlite.insert(table).values(dict(binds)), updated, key)


def _on_conflict(made: Any, updated: Sequence[str], key: Sequence[str]) -> Any:
    if not updated:
        return made.on_conflict_do_nothing(index_elements=list(key))
    return made.on_conflict_do_update(index_elements=list(key), set_={n: made.excluded[n] for n in updated})
