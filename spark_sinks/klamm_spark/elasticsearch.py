"""`format("klamm-elasticsearch")`: rows to Elasticsearch by bulk requests, for batches and streams.

Options: `hosts` (URLs by commas), `index` (or a column `_index`), `id` (a column; by default the columns topic,
partition and offset make `topic-partition-offset`), `document` (a column that holds the document as JSON text;
otherwise all other columns are its fields), `user`, `password`, `api_key`, `ca_file`, `verify`, `batch.size` (documents),
`batch.bytes`, `timeout.ms`, `retry.timeout.ms`, `op` (index or create), and for documents that are refused: `dead_letter.topic` with
`dead_letter.kafka.*`, otherwise they fail the task with the reason.

With an id a batch that is run again writes the same documents: the index ends up as after one run. Without one (no
option and no such columns) that would be duplicates, so it is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final

import orjson
import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from klamm_base.errors import ConfigError, KlammError
from klamm_spark.bulk import BulkClient, Endpoint, Refused, endpoint
from klamm_spark.datasource.writer import send_records

_COORDINATES: Final = ("topic", "partition", "offset")
_KNOWN: Final = frozenset(
    {
        "hosts",
        "index",
        "id",
        "document",
        "user",
        "password",
        "api_key",
        "ca_file",
        "verify",
        "batch.size",
        "batch.bytes",
        "timeout.ms",
        "retry.timeout.ms",
        "op",
        "dead_letter.topic",
        "path",
        "checkpointlocation",
        "queryname",
    }
)


class BadDocumentError(KlammError):
    """Elasticsearch refused documents and there is no dead letter topic, or a row has no id."""


@dataclass(frozen=True, slots=True)
class Target:
    """What the options say. Pickled to the workers."""

    endpoint: Endpoint
    index: str | None
    id_columns: tuple[str, ...]
    document: str | None
    operation: str
    most_documents: int
    most_bytes: int
    dead_letter_topic: str | None
    dead_letter_client: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass
class Indexed(WriterCommitMessage):
    documents: int
    refused: int


def target(options: Mapping[str, str], columns: list[str]) -> Target:
    """Checked options for rows of these columns. Raises ConfigError."""
    given = {k.lower(): v for k, v in options.items()}
    for name in given:
        if name not in _KNOWN and not name.startswith("dead_letter.kafka."):
            known = ", ".join(sorted(_KNOWN - {"path", "checkpointlocation", "queryname"}))
            raise ConfigError(f"unknown option {name} of format elasticsearch: known are {known}", key=name)
    index = given.get("index") or None
    if index is None and "_index" not in columns:
        raise ConfigError("format elasticsearch needs an option index or a column _index", key="index")
    document = given.get("document") or None
    if document is not None and document not in columns:
        raise ConfigError(
            f"document={document}: there is no such column; there are {', '.join(columns)}", key="document"
        )
    operation = given.get("op", "index")
    if operation not in {"index", "create"}:
        raise ConfigError(f"op={operation}: use index or create", key="op")
    topic = given.get("dead_letter.topic") or None
    client = {
        k.removeprefix("dead_letter.kafka."): v
        for k, v in given.items()
        if k.startswith("dead_letter.kafka.")
    }
    if topic is not None and "bootstrap.servers" not in client:
        raise ConfigError(
            "dead_letter.topic needs dead_letter.kafka.bootstrap.servers",
            key="dead_letter.kafka.bootstrap.servers",
        )
    return Target(
        endpoint=endpoint(given),
        index=index,
        id_columns=_id_columns(given.get("id"), columns),
        document=document,
        operation=operation,
        most_documents=_number(given, "batch.size", 2000),
        most_bytes=_number(given, "batch.bytes", 5 << 20),
        dead_letter_topic=topic,
        dead_letter_client=client,
    )


def _id_columns(named: str | None, columns: list[str]) -> tuple[str, ...]:
    wanted = tuple(n.strip() for n in named.split(",")) if named else _COORDINATES
    if absent := [n for n in wanted if n not in columns]:
        raise ConfigError(
            f"no id for documents: there is no column {absent[0]}; name columns by the option id, or keep topic, partition "
            "and offset in the query, so that a batch that is run again does not write duplicates",
            key="id",
        )
    return wanted


def _number(options: Mapping[str, str], name: str, default: int) -> int:
    text = options.get(name, str(default))
    if not text.isdecimal() or int(text) < 1:
        raise ConfigError(f"{name}={text}: use a number, at least 1", key=name)
    return int(text)


def chunks(batch: pa.RecordBatch, what: Target) -> Iterator[list[tuple[bytes, bytes]]]:
    """(action line, document line) of rows, cut into requests of the configured size."""
    part: list[tuple[bytes, bytes]] = []
    size = 0
    for pair in lines(batch, what):
        length = len(pair[0]) + len(pair[1]) + 2
        if part and (len(part) >= what.most_documents or size + length > what.most_bytes):
            yield part
            part, size = [], 0
        part.append(pair)
        size += length
    if part:
        yield part


def lines(batch: pa.RecordBatch, what: Target) -> Iterator[tuple[bytes, bytes]]:
    """The two lines of a bulk request for every row."""
    names = batch.schema.names
    if absent := [c for c in what.id_columns if batch.column(c).null_count]:
        raise BadDocumentError(
            f"column {absent[0]} is null in a row: it is the document's id, and such rows would overwrite each other; leave "
            "them out in the query, or name other columns by the option id"
        )
    ids = list(zip(*(batch.column(c).to_pylist() for c in what.id_columns), strict=True))
    indexes = batch.column("_index").to_pylist() if "_index" in names else [what.index] * batch.num_rows
    if what.document is not None:
        documents = [
            (d or "{}").encode() if isinstance(d, str) else d or b"{}"
            for d in batch.column(what.document).to_pylist()
        ]
    else:
        hidden = {"_index", *(c for c in what.id_columns if c == "_id")}  # no fields: where the document goes
        body = batch.select([n for n in names if n not in hidden])
        documents = [orjson.dumps(row, _plain, orjson.OPT_NON_STR_KEYS) for row in body.to_pylist()]
    for parts, index, document in zip(ids, indexes, documents, strict=True):
        meta = {"_index": index or what.index, "_id": "-".join(map(str, parts))}
        yield orjson.dumps({what.operation: meta}), document


def _plain(value: Any) -> Any:
    """What JSON has no type for: bytes as text (base64 where they are none), decimals as numbers if these are exact."""
    if isinstance(value, Decimal):
        number = float(value)
        return number if Decimal(repr(number)) == value else str(value)
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            import base64

            return base64.b64encode(value).decode()
    return str(value)


class _Writing:
    def __init__(self, what: Target) -> None:
        self._target = what

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        what, count, refused = self._target, 0, 0
        with BulkClient(what.endpoint) as client:
            for batch in iterator:
                for part in chunks(batch, what):
                    bad = client.send(part)
                    count += len(part) - len(bad)
                    refused += len(bad)
                    if bad:
                        self._bad(bad)
        return Indexed(count, refused)

    def _bad(self, bad: list[Refused]) -> None:
        what = self._target
        if what.dead_letter_topic is None:
            raise BadDocumentError(
                f"{len(bad)} documents were refused, the first ({bad[0].id}) because: {bad[0].reason}; "
                "set dead_letter.topic to go on without such documents"
            )
        send_records(
            dict(what.dead_letter_client),
            [
                (
                    what.dead_letter_topic,
                    b.id.encode(),
                    b.document,
                    [("klamm.error", b.reason.encode()), ("klamm.index", b.index.encode())],
                )
                for b in bad
            ],
        )


class ElasticsearchBatchWriter(_Writing, DataSourceArrowWriter):
    """`df.write.format("klamm-elasticsearch")`."""


class ElasticsearchStreamWriter(_Writing, DataSourceStreamArrowWriter):
    """`df.writeStream.format("klamm-elasticsearch")`."""


class ElasticsearchDataSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "klamm-elasticsearch"

    def writer(self, schema: StructType, overwrite: bool) -> ElasticsearchBatchWriter:
        return ElasticsearchBatchWriter(target(self.options, schema.names))

    def streamWriter(self, schema: StructType, overwrite: bool) -> ElasticsearchStreamWriter:  # noqa: N802
        return ElasticsearchStreamWriter(target(self.options, schema.names))
