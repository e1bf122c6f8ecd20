"""A table of any database that SQLAlchemy knows, and a folder of Parquet files, as targets."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from klamm.reconcile.targets import Row
from klamm_base.errors import ConfigError, KlammError
from klamm_base.extras import how_to_install

ROWS: Final = 5000
_SPARKS_LOG: Final = "_spark_metadata"


def sql_rows(url: str, table: str, fields: list[str]) -> Iterator[tuple[str, Row]]:
    """Yield (`table/primary key`, the asked columns) of every row, in one transaction. Raises KlammError."""
    try:
        import sqlalchemy as sa
    except ModuleNotFoundError:
        raise ConfigError(f"reading a database needs an extra: {how_to_install('sql')}") from None
    try:
        engine = sa.create_engine(url, hide_parameters=True)
    except (sa.exc.ArgumentError, sa.exc.NoSuchModuleError, ImportError) as e:
        raise ConfigError(f"--sql: {e}", key="sql") from None
    schema, _, name = table.rpartition(".")
    try:
        found = sa.Table(name, sa.MetaData(), schema=schema or None, autoload_with=engine)
        if absent := [f for f in fields if f not in found.columns]:
            raise ConfigError(f"table {table} has no column {absent[0]}", key="id-field")
        keys = list(found.primary_key.columns) or [found.columns[fields[0]]]
        asked = sa.select(
            *(k.label(f"key {n}") for n, k in enumerate(keys)), *(found.columns[f] for f in fields)
        )
        with engine.connect() as connection:
            for row in connection.execution_options(yield_per=ROWS).execute(asked):
                key, values = row[: len(keys)], row[len(keys) :]
                yield f"{table}/{'-'.join(map(str, key))}", dict(zip(fields, values, strict=True))
    except sa.exc.NoSuchTableError:
        raise KlammError(f"there is no table {table}") from None
    except sa.exc.SQLAlchemyError as e:
        cause = getattr(e, "orig", None) or e
        raise KlammError(f"table {table} cannot be read: {cause}") from None
    finally:
        engine.dispose()


def parquet_rows(folder: Path, fields: list[str]) -> Iterator[tuple[str, Row]]:
    """Yield (`file:row`, the asked columns) of every row of the Parquet files in a folder and below it.

    Where Spark logs the commits of its streaming query (`_spark_metadata`), reads only the logged files: a killed
    batch leaves files that do not count. Raises KlammError.
    """
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ModuleNotFoundError:
        raise ConfigError(f"reading Parquet files needs an extra: {how_to_install('spark')}") from None
    for path in _parquet_files(folder):
        try:
            with pq.ParquetFile(path) as file:
                there = {c.name for c in file.schema_arrow}
                columns = dict.fromkeys(f if f in there else f.partition(".")[0] for f in fields)
                known = [c for c in columns if c in there]
                if not known:
                    raise KlammError(f"{path} has no column {fields[0]}")
                row = 0
                for batch in file.iter_batches(ROWS, columns=known):
                    for values in batch.to_pylist():
                        yield f"{path}:{row}", values
                        row += 1
        except (OSError, pa.ArrowException) as e:
            raise KlammError(f"{path} cannot be read: {e}") from None


def _parquet_files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise KlammError(f"no such folder: {folder}")
    if (folder / _SPARKS_LOG).is_dir():
        return _committed(folder / _SPARKS_LOG)
    return sorted(
        p
        for p in folder.rglob("*.parquet")
        if not any(part.startswith(("_", ".")) for part in p.relative_to(folder).parts)
    )


def _committed(log: Path) -> list[Path]:
    """Return files of Spark's log: of the last compaction and of the batches after it, in the order of batches."""
    batches = {
        int(p.name.partition(".")[0]): p for p in log.iterdir() if p.name.partition(".")[0].isdecimal()
    }
    first = max((n for n, p in batches.items() if p.suffix == ".compact"), default=0)
    found: dict[Path, None] = {}
    for number in sorted(n for n in batches if n >= first):
        version, *entries = batches[number].read_text(encoding="utf-8").splitlines()
        if version != "v1":
            raise KlammError(
                f"{batches[number]} is of a version of Spark's log that is not known: {version[:20]!r}"
            )
        for entry in map(json.loads, entries):
            path = Path(unquote(urlsplit(entry["path"]).path))
            if entry.get("action", "add") == "add":
                found[path] = None
            else:
                found.pop(path, None)
    return list(found)
