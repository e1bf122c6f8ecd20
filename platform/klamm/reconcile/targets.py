"""The target side: all documents of Elasticsearch indices, or all rows of a SQLite table."""

from __future__ import annotations

import logging
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from klamm.reconcile.compare import Document
from klamm_base.errors import ConfigError, KlammError
from klamm_base.extras import how_to_install

PAGE: Final = 5000
KEEP_ALIVE: Final = "2m"
Row = dict[str, Any]


def elasticsearch_client(url: str) -> Any:
    """Return a client for a server's URL, which may hold user and password. Raises ConfigError without the extra."""
    try:
        from elasticsearch import Elasticsearch
    except ModuleNotFoundError:
        raise ConfigError(
            f"reading Elasticsearch needs an extra: {how_to_install('elasticsearch')}"
        ) from None
    # The client logs every request; failures are raised as errors, too
    logging.getLogger("elastic_transport").setLevel(logging.ERROR)
    try:
        return Elasticsearch(url, request_timeout=60, retry_on_timeout=True, max_retries=3)
    except ValueError as e:
        raise ConfigError(f"not a URL of Elasticsearch: {e}", key="elasticsearch") from None


def elasticsearch_documents(
    client: Any, index: str, fields: list[str], *, page: int = PAGE
) -> Iterator[tuple[str, Row]]:
    """Yield (`_index/_id`, the asked fields, `_id` among them if it is asked for) of every document of the indices.

    Reads a point in time with `search_after`: documents that are written meanwhile do not appear. An index that does
    not exist has no documents.
    """
    from elasticsearch import ApiError, TransportError

    with_id = "_id" in fields
    try:
        client.indices.refresh(index=index, ignore_unavailable=True, allow_no_indices=True)
        if not client.indices.get(index=index, ignore_unavailable=True, allow_no_indices=True).body:
            return
        pit = client.open_point_in_time(index=index, keep_alive=KEEP_ALIVE, ignore_unavailable=True)["id"]
        try:
            after = None
            while True:
                answer = client.search(
                    pit={"id": pit, "keep_alive": KEEP_ALIVE}, size=page, sort=["_shard_doc"], search_after=after,
                    source_includes=fields, track_total_hits=False,
                )  # fmt: skip
                pit, hits = answer["pit_id"], answer["hits"]["hits"]
                for hit in hits:
                    yield (
                        f"{hit['_index']}/{hit['_id']}",
                        hit["_source"] | ({"_id": hit["_id"]} if with_id else {}),
                    )
                if len(hits) < page:
                    return
                after = hits[-1]["sort"]
        finally:
            client.close_point_in_time(id=pit)
    except ApiError as e:
        raise KlammError(f"Elasticsearch, index {index!r}: {e.message} (HTTP {e.meta.status})") from None
    except TransportError as e:
        raise KlammError(f"Elasticsearch does not answer: {e.message}") from None


def sqlite_rows(file: Path, table: str, fields: list[str]) -> Iterator[tuple[str, Row]]:
    """Yield (`table/rowid`, the asked columns) of every row. Raises KlammError when the table cannot be read."""
    if not file.is_file():
        raise KlammError(f"no such SQLite file: {file}")
    columns = ", ".join(_quoted(f) for f in fields)
    try:
        with closing(sqlite3.connect(f"file:{quote(str(file.absolute()))}?mode=ro", uri=True)) as connection:
            for rowid, *values in connection.execute(f"SELECT rowid, {columns} FROM {_quoted(table)}"):  # noqa: S608
                yield f"{table}/{rowid}", dict(zip(fields, values, strict=True))
    except sqlite3.Error as e:
        raise KlammError(f"cannot read table {table!r} of {file}: {e}") from None


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def field_id(name: str) -> Callable[[Row], str]:
    """Return a function that finds the id in a field; `a.b` is field b of object a, or a field of that name. "" where
    it is absent.
    """

    def get(row: Row) -> str:
        value: Any = row.get(name)
        if value is None and "." in name:
            value = row
            for part in name.split("."):
                value = value.get(part) if isinstance(value, dict) else None
        return "" if value is None else str(value)

    return get


def pattern_id(name: str, pattern: re.Pattern[bytes]) -> Callable[[Row], str]:
    """Return a function that finds the id by an expression in a field that holds the raw line."""
    get = field_id(name)

    def search(row: Row) -> str:
        found = pattern.search(get(row).encode("utf-8", "surrogatepass"))
        return found[1].decode("utf-8", "replace") if found else ""

    return search


def documents(
    rows: Iterator[tuple[str, Row]], id_: Callable[[Row], str], *, parsed: bool = True
) -> Iterator[Document]:
    """Yield rows as documents to compare."""
    for key, row in rows:
        yield Document(id_(row), key, parsed)
