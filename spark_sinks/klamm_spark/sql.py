"""`format("klamm-sql")`: rows into a table by SQLAlchemy, inserted or updated by their keys, for batches and
streams.

Options: `url` (SQLAlchemy's: sqlite:///file.db, mysql+pymysql://…), `table`, `keys` (columns, by commas),
`create` (true: make the table when it is missing), `batch.size`. Each task writes in one transaction. With
the same keys, a batch that runs again leaves the same rows. We know such a statement for SQLite and
MySQL/MariaDB.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
import sqlalchemy as sa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegralType,
    StructType,
    TimestampNTZType,
    TimestampType,
)
from sqlalchemy.dialects import mysql, sqlite

from klamm_base.errors import ConfigError, KlammError
from klamm_spark import figures
from klamm_spark.datasource.worker import settle
from klamm_spark.sql_options import checked, key_columns

_TYPES: Final[tuple[tuple[type[DataType], Any], ...]] = (
    (IntegralType, sa.BigInteger()),
    (DoubleType, sa.Double()),
    (FloatType, sa.Float()),
    (BooleanType, sa.Boolean()),
    (BinaryType, sa.LargeBinary()),
    (DateType, sa.Date()),
    (TimestampType, sa.DateTime().with_variant(mysql.DATETIME(fsp=6), "mysql", "mariadb")),
    (TimestampNTZType, sa.DateTime().with_variant(mysql.DATETIME(fsp=6), "mysql", "mariadb")),
)


class SqlError(KlammError):
    """The database refuses. The sentence names table and reason, never the URL's password."""


@dataclass(frozen=True, slots=True)
class SqlTarget:
    url: str = field(repr=False)
    table: str
    keys: tuple[str, ...]
    rows: int
    figures: str | None = None

    def waiting(self) -> AbstractContextManager[None]:
        """Wraps whatever waits for the database."""
        place = figures.base(self.figures)
        return figures.while_waiting(place, f"table {self.table}: the database has not answered yet")

    def engine(self) -> sa.Engine:
        """Returns an engine for one task: workers are forked and share nothing."""
        options: dict[str, Any] = {"poolclass": sa.pool.NullPool}
        if sa.make_url(self.url).get_backend_name() == "sqlite":
            options["connect_args"] = {"timeout": 60}  # other tasks write, too
        return sa.create_engine(self.url, hide_parameters=True, **options)


@dataclass
class Stored(WriterCommitMessage):
    rows: int


def sql_target(options: Mapping[str, str], columns: list[str]) -> tuple[SqlTarget, bool]:
    """Checks the options. Returns them, and whether to create the table. Raises ConfigError."""
    given = checked(options)
    try:
        sa.make_url(given["url"])
    except sa.exc.ArgumentError:
        raise ConfigError("url is no SQLAlchemy URL, such as sqlite:///file.db", key="url") from None
    keys = key_columns(given)
    if absent := [k for k in keys if k not in columns]:
        raise ConfigError(f"keys: there is no column {absent[0]}; there are {', '.join(columns)}", key="keys")
    rows = int(given.get("batch.size", "1000"))
    target = SqlTarget(given["url"], given["table"], keys, rows, given.get(figures.OPTION))
    return target, given.get("create", "false").lower() == "true"


def table_of(schema: StructType, target: SqlTarget) -> sa.Table:
    """Returns a table for the rows. Texts that are keys get a length, which MySQL's keys need."""
    columns = [
        sa.Column(
            f.name,
            _type(f.dataType, key=f.name in target.keys),
            primary_key=f.name in target.keys,
            autoincrement=False,
        )
        for f in schema.fields
    ]
    return sa.Table(target.table, sa.MetaData(), *columns)


def _type(kind: DataType, *, key: bool) -> Any:
    if isinstance(kind, DecimalType):
        return sa.Numeric(kind.precision, kind.scale)
    return next((t for known, t in _TYPES if isinstance(kind, known)), sa.String(255) if key else sa.Text())


def upsert(table: sa.Table, keys: tuple[str, ...], dialect: str) -> Any:
    """Returns the statement that inserts a row or updates the row with the same keys."""
    others = [c.name for c in table.columns if c.name not in keys]
    if dialect == "sqlite":
        statement = sqlite.insert(table)
        if not others:
            return statement.on_conflict_do_nothing(index_elements=list(keys))
        return statement.on_conflict_do_update(
            index_elements=list(keys), set_={name: statement.excluded[name] for name in others}
        )
    mine = mysql.insert(table)
    return mine.on_duplicate_key_update({name: mine.inserted[name] for name in others or keys})


def check_keys(inspector: sa.Inspector, target: SqlTarget) -> None:
    """Raises ConfigError unless these are keys of the table: otherwise MySQL would silently insert a row twice."""
    unique = [tuple(inspector.get_pk_constraint(target.table)["constrained_columns"])]
    unique += [tuple(c["column_names"]) for c in inspector.get_unique_constraints(target.table)]
    unique += [
        tuple(str(c) for c in i["column_names"]) for i in inspector.get_indexes(target.table) if i["unique"]
    ]
    if not any(set(found) == set(target.keys) for found in unique):
        there = "; ".join(sorted({", ".join(found) for found in unique if found})) or "none"
        raise ConfigError(
            f"keys={','.join(target.keys)}: table {target.table} has no primary key and no unique index of these columns (it "
            f"has {there}), so a batch that is run again would write its rows twice",
            key="keys",
        )


class _Writing:
    def __init__(self, target: SqlTarget, schema: StructType) -> None:
        self._target = target
        self._schema = schema

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        settle()
        target, count = self._target, 0
        table = table_of(self._schema, target)
        engine = target.engine()
        statement = upsert(table, target.keys, engine.dialect.name)
        try:
            with target.waiting():
                connection = engine.connect()
            with connection:  # what is not committed at its end is rolled back
                for batch in iterator:
                    rows = [_row(r) for r in batch.to_pylist()]
                    for at in range(0, len(rows), target.rows):
                        with target.waiting():
                            connection.execute(statement, rows[at : at + target.rows])
                    count += batch.num_rows
                with target.waiting():
                    connection.commit()
        except sa.exc.SQLAlchemyError as e:
            raise SqlError(f"table {target.table}: {_reason(e)}") from None
        finally:
            engine.dispose()
        return Stored(count)


def _row(row: dict[str, Any]) -> dict[str, Any]:
    """Converts times to UTC without a zone: databases have no time zones here."""
    return {
        k: v.replace(tzinfo=None) if getattr(v, "tzinfo", None) is not None else v for k, v in row.items()
    }


def _reason(error: sa.exc.SQLAlchemyError) -> str:
    inner = getattr(error, "orig", None) or error
    return str(inner).splitlines()[0]


class SqlBatchWriter(_Writing, DataSourceArrowWriter):
    """The writer of `df.write.format("klamm-sql")`."""


class SqlStreamWriter(_Writing, DataSourceStreamArrowWriter):
    """The writer of `df.writeStream.format("klamm-sql")`."""


class SqlDataSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "klamm-sql"

    def writer(self, schema: StructType, overwrite: bool) -> SqlBatchWriter:
        if overwrite:
            raise ConfigError(
                'format klamm-sql has no mode "overwrite": rows are replaced by their keys, others stay; use append',
                key="mode",
            )
        return SqlBatchWriter(self._prepared(schema), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> SqlStreamWriter:  # noqa: N802
        return SqlStreamWriter(self._prepared(schema), schema)

    def _prepared(self, schema: StructType) -> SqlTarget:
        target, create = sql_target(self.options, schema.names)
        engine = target.engine()
        try:
            with target.waiting():
                if create:
                    table_of(schema, target).create(engine, checkfirst=True)
                check_keys(sa.inspect(engine), target)
        except sa.exc.NoSuchTableError:
            raise ConfigError(
                f"table={target.table}: there is no such table, and create is not true", key="table"
            ) from None
        except sa.exc.SQLAlchemyError as e:
            raise SqlError(f"table {target.table} cannot be prepared: {_reason(e)}") from None
        finally:
            engine.dispose()
        return target
