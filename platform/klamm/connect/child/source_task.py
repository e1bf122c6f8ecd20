"""A source task that delivers at least once: it commits the offsets of acknowledged records at an interval.

Invariants: an offset is committed only when the tracker allows it, and when the dead letters before it are
kept; at most IN_FLIGHT_MAX records are unacknowledged; a record that the broker refuses fails the task, and
nothing after it is committed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

from confluent_kafka import KafkaException

from klamm.connect.child.offset_tracker import OffsetTracker
from klamm.connect.child.offset_writer import OffsetCopy, OffsetWriter, Producer, RecordProducer
from klamm.connect.child.source_loop import DRAIN_STEP_S, SourceLoop
from klamm.connect.child.source_records import CHUNK_RECORDS_MAX, dropped
from klamm.connect.model import TaskSpec
from klamm_plugins.records import SourceRecord

log = logging.getLogger(__name__)

RUN_RECORDS_MAX = CHUNK_RECORDS_MAX


class SourceRunner(SourceLoop):
    """The at-least-once source loop.

    `offset_producer` may be the producer of the records; `copy` takes the offsets to a second topic.
    """

    def __init__(
        self,
        *,
        spec: TaskSpec,
        producer: RecordProducer,
        offset_producer: Producer,
        commit_interval_s: float,
        commit_timeout_s: float,
        offsets_topic: str | None = None,
        copy: OffsetCopy | None = None,
        **common: Any,
    ) -> None:
        super().__init__(spec=spec, producer=producer, **common)
        self._offset_producer = offset_producer
        self._tracker = OffsetTracker()
        self._offsets = OffsetWriter(
            offset_producer,
            self._tracker,
            connector=spec.id.connector,
            topic=spec.worker["offset.storage.topic"] if offsets_topic is None else offsets_topic,
            timeout_s=commit_timeout_s,
            copy=copy,
        )
        self._copy = copy
        self._commit_interval_s = commit_interval_s
        self._commit_timeout_s = commit_timeout_s
        self._commit_due = time.monotonic() + commit_interval_s
        self._submitted = 0

    @property
    def _acknowledged(self) -> int:
        return self._sender.acked

    @property
    def _pending(self) -> bool:
        return self._sender.settled < self._submitted  # cheaper than counting in the tracker

    def _begin(self) -> None:
        pass

    def _dispatch(self, records: Sequence[SourceRecord]) -> None:
        for chunk in self._records.chunks(records):
            if chunk.values:
                self._use(chunk.topic)
            run = self._tracker.submit(chunk.source_partition, chunk.source_offset, len(chunk.values))
            if self._tells_task:
                for record in dropped(chunk):
                    self._commit_record(record, None)
            self._submitted += len(chunk.values)
            self._send_chunk(chunk, run, self._told)
            self._limit_in_flight()

    def _polled_nothing(self) -> None:
        pass

    def _commit_if_due(self) -> None:
        self._serve_offsets(0)
        now = time.monotonic()
        if now < self._commit_due or self._offsets.busy:
            return
        self._commit_due = now + self._commit_interval_s
        if self._tolerance.settle(self._commit_timeout_s):
            self._offsets.begin()
        else:
            log.error("offsets are not committed: dead letters are not acknowledged")

    def _serve_offsets(self, timeout_s: float) -> None:
        if self._offset_producer is not self._producer:
            self._offset_producer.poll(timeout_s)
        if self._offsets.finish():
            self._figures.committed()
            self._call_commit()

    def _rest(self) -> None:
        self._drain(self._control.stop_remaining_s())

    def _end(self, *, failed: bool) -> None:
        self._drain(self._control.stop_remaining_s())
        if self._copy is not None:
            self._copy.close()
        if not failed and self._sender.failure is not None:
            raise self._sender.failure

    def _drain(self, within_s: float) -> None:
        """Waits for records in flight, then commits; gives up after `within_s` and logs how many were left."""
        start = time.monotonic()
        # The last quarter of the time is for the commit: records acknowledged by then need not be sent again.
        until = start + within_s * 0.75
        self._pump(until, lambda: len(self._producer) == 0 or self._sender.failure is not None)
        kept = self._tolerance.settle(max(0.0, until - time.monotonic()))
        self._pump(start + within_s, lambda: not self._offsets.busy)
        if kept:
            self._offsets.begin()
        self._pump(start + within_s, lambda: not self._offsets.busy)
        if self._tracker.pending:
            log.warning("%d records were not acknowledged; they will be sent again", self._tracker.pending)

    def _pump(self, until: float, done: Callable[[], bool]) -> None:
        while not done() and time.monotonic() < until:
            self._vitals.enter("broker")
            try:
                self._producer.poll(DRAIN_STEP_S)
            except KafkaException as e:  # the producer has failed for good: nothing more will come
                log.error("the producer failed: %s", e.args[0].str())  # noqa: TRY400 - it has been raised before
                return
            self._show()
            self._serve_offsets(DRAIN_STEP_S)
