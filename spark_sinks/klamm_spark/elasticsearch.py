"""`format("klamm-elasticsearch")`: rows to Elasticsearch by bulk requests, for batches and streams.

Options: `hosts` (URLs by commas), `index` (or a column `_index`), or `data_stream` (then documents are
created, not overwritten, and need an `@timestamp`), `id` (columns; by default topic, partition and offset
make `topic-partition-offset`), `document` (a column that holds the document as JSON text; otherwise all
other columns are its fields), `op` (index or create), `template` (see `elasticsearch_template`), `user`,
`password`, `api_key`, `ca_file`, `verify`, `batch.size` (documents), `batch.bytes`, `max.in.flight`
(requests that a task has under way), `refresh` (true: a batch's documents can be searched when it ends),
`timeout.ms`, `retry.timeout.ms`, and for refused documents `dead_letter.topic` with `dead_letter.kafka.*`; without
it they fail the task with the reason.

With an id, a batch that runs again writes the same documents: the index ends up as after one run. Without
an id (no option and no such columns) the documents would be duplicated, so that is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from klamm_base.errors import ConfigError
from klamm_spark import figures
from klamm_spark.bulk import BulkSender, Figures, Limits, Refused
from klamm_spark.bulk_lines import BadDocumentError, Layout, block, indexes
from klamm_spark.datasource.option_values import flag
from klamm_spark.datasource.worker import settle
from klamm_spark.datasource.writer import send_records
from klamm_spark.elasticsearch_http import Endpoint, endpoint, refresh
from klamm_spark.elasticsearch_options import checked, dead_letter_client, number, operation
from klamm_spark.elasticsearch_template import Template, install, template

_COORDINATES: Final = ("topic", "partition", "offset")
TIMESTAMP: Final = "@timestamp"


@dataclass(frozen=True, slots=True)
class Target:
    """The target that the options describe. It is pickled to the workers."""

    endpoint: Endpoint
    layout: Layout
    limits: Limits
    template: Template | None
    dead_letter_topic: str | None
    dead_letter_client: Mapping[str, str] = field(default_factory=dict, repr=False)
    figures: str | None = None
    refresh: bool = False


@dataclass
class Indexed(WriterCommitMessage):
    """A task's figures, and the indices that the batch is to refresh."""

    figures: Figures
    refresh: frozenset[str] = frozenset()


def target(options: Mapping[str, str], columns: list[str]) -> Target:
    """Checks options for rows of these columns. Raises ConfigError."""
    given = checked(options)
    layout = _layout(given, columns)
    return Target(
        endpoint=endpoint(given),
        layout=layout,
        limits=Limits(
            number(given, "batch.size", 2000),
            number(given, "batch.bytes", 5 << 20),
            number(given, "max.in.flight", 2),
        ),
        template=template(given, layout.index),
        dead_letter_topic=given.get("dead_letter.topic") or None,
        dead_letter_client=dead_letter_client(given),
        figures=given.get(figures.OPTION),
        refresh=flag(given, "refresh", default=False),
    )


def _layout(given: Mapping[str, str], columns: list[str]) -> Layout:
    stream = given.get("data_stream") or None
    index = given.get("index") or None
    if stream is None and index is None and "_index" not in columns:
        raise ConfigError(
            "format elasticsearch needs an option index or data_stream, or a column _index", key="index"
        )
    document = given.get("document") or None
    if document is not None and document not in columns:
        raise ConfigError(
            f"document={document}: there is no such column; there are {', '.join(columns)}", key="document"
        )
    if stream is not None and document is None and TIMESTAMP not in columns:
        raise ConfigError(
            f"data_stream={stream}: documents need a column {TIMESTAMP}; there are {', '.join(columns)}",
            key="data_stream",
        )
    return Layout(operation(given), _id_columns(given.get("id"), columns), stream or index, document)


def _id_columns(named: str | None, columns: list[str]) -> tuple[str, ...]:
    wanted = tuple(n.strip() for n in named.split(",")) if named else _COORDINATES
    if absent := [n for n in wanted if n not in columns]:
        raise ConfigError(
            f"no id for documents: there is no column {absent[0]}; name columns by the option id, or keep topic, partition "
            "and offset in the query, so that a batch that is run again does not write duplicates",
            key="id",
        )
    return wanted


class _Writing:
    def __init__(self, what: Target) -> None:
        self._target = what

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        settle()
        what = self._target
        written: set[str] = set()
        with BulkSender(what.endpoint, what.limits, self._bad, self._wait) as sender:
            for batch in iterator:
                if not batch.num_rows:
                    continue
                sender.send(block(batch, what.layout))
                if what.refresh:
                    written |= indexes(batch, what.layout)
            return Indexed(sender.finish(), frozenset(written))

    def _wait(self, why: str | None) -> None:
        figures.wait(figures.base(self._target.figures), why)

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

    def _finish(self, messages: list[Any], place: str | None, batch: int | None) -> None:
        """Ends a batch: refreshes what it wrote to, and leaves its figures."""
        settle()
        total, written = Figures(), set[str]()
        for message in messages:
            if isinstance(message, Indexed):
                total.add(message.figures)
                written |= message.refresh
        if written:
            refresh(self._target.endpoint, written)
        if batch is not None:
            figures.leave(place, batch, total)


class ElasticsearchBatchWriter(_Writing, DataSourceArrowWriter):
    """The writer of `df.write.format("klamm-elasticsearch")`."""

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Ends the batch. In a stream's foreachBatch the option ends in the batch's number."""
        place, _, number = (self._target.figures or "").rpartition("-")
        self._finish(messages, place, int(number) if place and number.isdecimal() else None)


class ElasticsearchStreamWriter(_Writing, DataSourceStreamArrowWriter):
    """The writer of `df.writeStream.format("klamm-elasticsearch")`."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        self._finish(messages, self._target.figures, batchId)


class ElasticsearchDataSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "klamm-elasticsearch"

    def writer(self, schema: StructType, overwrite: bool) -> ElasticsearchBatchWriter:
        if overwrite:
            raise ConfigError(
                'format klamm-elasticsearch has no mode "overwrite": documents are replaced by id, others stay; use append',
                key="mode",
            )
        return ElasticsearchBatchWriter(self._prepared(schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> ElasticsearchStreamWriter:  # noqa: N802
        return ElasticsearchStreamWriter(self._prepared(schema))

    def _prepared(self, schema: StructType) -> Target:
        what = target(self.options, schema.names)
        if what.template is not None:
            place = figures.base(what.figures)
            install(what.template, what.endpoint, lambda why: figures.wait(place, why))
        return what
