"""A source task that writes exactly once (KIP-618): records and their offsets in one transaction.

A reader of committed records sees each record once, whichever process is killed. The offsets of a transaction
are committed with its records or not at all, and the next task reads the last committed offsets. Invariants:
the producer of the records also writes their offsets, last, in the same transaction; a task sends nothing
before its producer has fenced its predecessor and the worker has confirmed its configuration; any failure
aborts, and nothing is sent after it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Any

import orjson
from confluent_kafka import KafkaError, KafkaException

from klamm.connect.child.offset_writer import OffsetCopy, encode_key, encode_offset
from klamm.connect.child.retry import Stopped
from klamm.connect.child.source_loop import SourceLoop
from klamm.connect.child.source_records import Chunk, dropped
from klamm.connect.child.source_send import refusal, refused
from klamm.connect.child.transactions import Boundaries, End, Transactions
from klamm.connect.model import TaskSpec
from klamm_plugins.errors import ConnectError
from klamm_plugins.records import RecordMetadata, SourceRecord

log = logging.getLogger(__name__)


class ExactlyOnceRunner(SourceLoop):
    """The exactly-once source loop. `offsets_topic` is on the cluster that the records go to."""

    def __init__(
        self,
        *,
        spec: TaskSpec,
        transactions: Transactions,
        boundaries: Boundaries,
        offsets_topic: str,
        commit_interval_s: float,
        commit_timeout_s: float,
        copy: OffsetCopy | None = None,
        **common: Any,
    ) -> None:
        super().__init__(spec=spec, **common)
        self._connector = spec.id.connector
        self._transactions = transactions
        self._boundaries = boundaries
        self._offsets_topic = offsets_topic
        self._commit_interval_s = commit_interval_s
        self._commit_timeout_s = commit_timeout_s
        self._copy = copy
        # State of the records dispatched and not committed: the last offset by partition, their number, and
        # what to tell the task.
        self._offsets: dict[bytes, tuple[dict[str, Any], dict[str, Any]]] = {}
        self._sent = 0
        self._tell: list[tuple[SourceRecord, RecordMetadata | None]] = []
        self._committed = 0
        self._offsets_due = time.monotonic() + commit_interval_s

    @property
    def _acknowledged(self) -> int:
        return self._committed

    @property
    def _pending(self) -> bool:
        return self._sent > 0

    def _begin(self) -> None:
        self._boundaries.begin(time.monotonic())

    def _dispatch(self, records: Sequence[SourceRecord]) -> None:
        for part, end in self._boundaries.parts(records):
            for chunk in self._records.chunks(part):
                self._send(chunk)
            self._finish(end)
        self._after_poll()

    def _polled_nothing(self) -> None:
        self._after_poll()

    def _after_poll(self) -> None:
        self._finish(self._boundaries.after_batch(time.monotonic()))

    def _send(self, chunk: Chunk) -> None:
        if chunk.values:
            if chunk.topic == self._offsets_topic:
                # Reading its offsets would wait for the end of the task's own transaction.
                raise ConnectError(
                    "Source tasks may not produce to their own offsets topics when exactly-once support is enabled"
                )
            self._use(chunk.topic)
            self._transactions.begin()
            self._send_chunk(chunk, None, self._remember if self._tells_task else None)
            self._sent += len(chunk.values)
        if self._tells_task:
            self._tell += [(record, None) for record in dropped(chunk)]
        key = orjson.dumps(chunk.source_partition, option=orjson.OPT_SORT_KEYS)
        # Copies: a task that goes on counting in its dict must not change the committed offsets.
        self._offsets[key] = dict(chunk.source_partition), dict(chunk.source_offset)
        self._limit_in_flight()

    def _why(self, error: ConnectError) -> ConnectError:
        if refusal(error) == KafkaError._STATE:  # noqa: SLF001 - spelled so by librdkafka
            return self._transactions.why() or error
        return super()._why(error)

    def _producer_failed(self, error: KafkaError) -> ConnectError:
        return self._transactions.refused("continued", error)

    def _remember(self, record: SourceRecord, metadata: RecordMetadata | None) -> None:
        self._tell.append((record, metadata))

    def _commit_if_due(self) -> None:
        """Does nothing: transactions end at their boundaries only."""

    def _finish(self, end: End | None) -> None:
        if end is None:
            return
        if end is End.ABORT:
            self._abort()
        if self._sent == 0 and not self._transactions.open and not self._worth_committing(end):
            return
        self._commit()

    def _worth_committing(self, end: End) -> bool:
        """Tells whether to commit offsets without records. This saves reading after a restart, so it is done
        only now and then.
        """
        return bool(self._offsets) and (end is End.ABORT or time.monotonic() >= self._offsets_due)

    def _abort(self) -> None:
        """Drops the records so far, as the connector asked; their offsets are committed nevertheless."""
        if not self._transactions.open:
            log.warning("Ignoring request by task to abort transaction as the current transaction is empty")
            return
        log.info("Aborting transaction of %d records as requested by connector", self._sent)
        self._transactions.abort()
        self._sent = 0

    def _commit(self) -> None:
        if not self._tolerance.settle(self._commit_timeout_s):
            raise ConnectError(
                "Dead letters were not acknowledged in time for the transaction that passes them"
            )
        self._transactions.begin()
        encoded = [
            (encode_key(self._connector, partition), encode_offset(offset))
            for partition, offset in self._offsets.values()
        ]
        for key, value in encoded:
            self._produce_offset(key, value)
        self._transactions.commit()
        self._figures.committed()
        self._figures.transaction(self._sent)
        self._committed += self._sent
        self._sent = 0
        self._offsets.clear()
        self._offsets_due = time.monotonic() + self._commit_interval_s
        self._show()
        if self._copy is not None:
            self._copy.send(encoded)
        told, self._tell = self._tell, []
        for record, metadata in told:
            self._commit_record(record, metadata)
        self._call_commit()

    def _produce_offset(self, key: bytes, value: bytes) -> None:
        while True:
            try:
                self._producer.produce(self._offsets_topic, value, key, -1)
            except BufferError:
                self._wait_for_broker()
            except KafkaException as e:
                raise refused(e.args[0], self._offsets_topic) from e
            else:
                return

    def _rest(self) -> None:
        """Ends the transaction before a pause, so that it does not stay open until it expires."""
        end = self._boundaries.at_rest()
        if end is not None:
            self._offsets_due = 0.0
            self._finish(end)
        elif self._transactions.open:
            # The connector has not ended its transaction. Its records would be delivered again only after a
            # restart, so it stays open until its time-out (as with Kafka).
            log.warning("the task is paused within a transaction of %d records", self._sent)

    def _end(self, *, failed: bool) -> None:
        try:
            if not failed:
                self._rest()
        except Stopped:
            log.warning("the last transaction could not be committed in time; its records will be sent again")
        finally:
            self._transactions.give_up(self._control.stop_remaining_s())
            if self._copy is not None:
                self._copy.close()
