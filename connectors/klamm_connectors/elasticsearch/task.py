"""The sink task: builds documents, hands them to the sender, and says which offsets may be committed.

`put` takes records and returns while requests are under way. When more than `max.buffered.records` are
open, `put` waits a moment for a working server. If that does not help, the task pauses its partitions and
stays in its group for as long as it takes. A temporary error of the server never fails the task.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from klamm_connectors.elasticsearch.answers import where
from klamm_connectors.elasticsearch.buffer import Run
from klamm_connectors.elasticsearch.client import Client
from klamm_connectors.elasticsearch.config import parse
from klamm_connectors.elasticsearch.lines import LineBuilder
from klamm_connectors.elasticsearch.mapping import mapping_of
from klamm_connectors.elasticsearch.sender import MakeClient, Sender
from klamm_plugins.batch import SinkBatch, batches_of
from klamm_plugins.connector import SinkTask
from klamm_plugins.errors import ConnectError, DataError
from klamm_plugins.records import SinkRecord, TopicPartition
from klamm_plugins.schema import Type

log = logging.getLogger(__name__)

_ROOM_S: Final = 0.5
_COMMIT_S: Final = 1.0
_COMMIT_ALL_S: Final = 10.0
_CLOSE_S: Final = 3.0


class ElasticsearchSinkTask(SinkTask):
    """The task. Tests replace `make_client` to stand in for the server."""

    kafka_name = "io.confluent.connect.elasticsearch.ElasticsearchSinkTask"
    make_client: MakeClient = Client

    def __init__(self) -> None:
        self._sender: Sender | None = None
        self._paused = False
        self._error: Exception | None = None

    def start(self, props: Mapping[str, str]) -> None:
        self._settings = parse(props)
        self._builder = LineBuilder(self._settings)
        self.raw_formats = self._builder.formats
        self._sender = Sender(self._settings, type(self).make_client(self._settings))

    def open(self, partitions: Collection[TopicPartition]) -> None:
        if self._paused:
            self.context.pause(*partitions)

    def put(self, records: list[SinkRecord]) -> None:
        self.put_batches(batches_of(records))

    def put_batches(self, batches: Sequence[SinkBatch]) -> None:
        sender = self._running()
        self._settle_bad(sender)
        self._check(sender)
        if batches:
            self._add(sender, batches)
        self._keep_room(sender)

    def pre_commit(self, offsets: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        """Returns the end of the contiguous prefix that is written."""
        sender = self._running()
        sender.wait(0, self._patience_s(sender))
        try:
            self._settle_bad(sender)
        except Exception as e:  # for `put`: here it would only stop the commit of what is written
            self._error = self._error or e
        for worrying, sentence in sender.take_conflicts(offsets):
            log.log(logging.WARNING if worrying else logging.INFO, "%s", sentence)
        return sender.committable(offsets)

    def _patience_s(self, sender: Sender) -> float:
        """Returns how long a commit waits for documents under way. Meanwhile none follow them, and the server runs dry.

        So it waits only where the rest would come again elsewhere, or is less than a request.
        """
        if self._settings.flush_synchronously and not self.context.stopping.is_set():
            return _COMMIT_ALL_S
        return _COMMIT_S if self.context.leaving or sender.open < self._settings.batch_size else 0.0

    def close(self, partitions: Collection[TopicPartition]) -> None:
        # An update has no version, so an update under way must not arrive after those of the partition's next task.
        if (
            not self._running().drop(partitions, _CLOSE_S if self._settings.upsert else 0.0)
            and self._settings.upsert
        ):
            log.warning("updates are still under way, they may overwrite those of the partitions' next task")

    def stop(self) -> None:
        if self._sender is not None:
            self._sender.close()
            self._sender = None

    def _running(self) -> Sender:
        assert self._sender is not None, "started"
        return self._sender

    def _check(self, sender: Sender) -> None:
        if self._error is not None:
            raise self._error
        if sender.failure is not None:
            raise ConnectError(f"Elasticsearch: {sender.failure}")

    def _add(self, sender: Sender, batches: Sequence[SinkBatch]) -> None:
        chunks = sender.begin({batch.origin: batch.offsets[-1] + 1 for batch in batches})
        runs: list[Run] = []
        for batch in batches:
            lines = self._builder.lines(batch, self._invalid)
            if not lines.lines:
                continue
            index, chunk = self._builder.target(batch.topic), chunks[batch.origin]
            runs.append(Run(lines.lines, lines.ids, index, chunk, batch, lines.rows, lines.rebuild))
            if lines.indexed and not sender.knows(index):  # a tombstone has no schema
                sender.announce(index, self._mapping(batch))
        sender.add(runs, chunks.values())

    def _mapping(self, batch: SinkBatch) -> dict[str, object] | None:
        """Returns the mapping for a new index, from the first records for it."""
        schema = batch.value_schema
        if schema is None or schema.type is not Type.STRUCT or self._settings.ignores_schema(batch.topic):
            return None
        return mapping_of(schema, compact_maps=self._settings.compact_maps)

    def _invalid(self, record: SinkRecord, error: DataError) -> None:
        """Reports or drops a record that cannot become a document."""
        named = DataError(f"{record.where}: {error}")
        reporter = self.context.errant_record_reporter
        if self._settings.drop_invalid:
            log.warning("left out (drop.invalid.message): %s", named)
            if reporter is not None:
                reporter.report(record, named)
        elif reporter is not None:
            reporter.report(record, named)
        else:
            raise named

    def _settle_bad(self, sender: Sender) -> None:
        """Decides about each document that the server refused. Looks at all of them before one fails the task."""
        reporter = self.context.errant_record_reporter
        policy, failed = self._settings.malformed, None
        for document, reason in sender.take_bad():
            error = DataError(f"{where(document)} was refused by Elasticsearch: {reason}")
            if reporter is not None:
                reporter.report(document.record, error)
            if policy == "FAIL" and (reporter is None or self._settings.malformed_given):
                failed = failed or error
                continue  # stays open, so nothing beyond it is committed
            if policy == "IGNORE":
                log.debug("%s", error)
            elif reporter is None or policy == "WARN":
                log.warning("%s", error)
            sender.settle(document.chunk)
        if failed is not None:
            raise failed

    def _keep_room(self, sender: Sender) -> None:
        limit = self._settings.buffered
        if not self._paused:
            if not sender.wait(limit, _ROOM_S):
                self._paused = True
                self.context.pause(*self.context.assignment)
                log.info("partitions are paused, %d records wait: %s", sender.open, sender.trouble or "slow")
        elif sender.wait(limit // 2, _ROOM_S, patient=True):
            self._paused = False
            self.context.resume(*self.context.assignment)
            log.info("partitions are resumed")
        self._check(sender)
