"""Runs one source task: poll, convert in bulk, produce, commit the offsets of what is acknowledged.

One thread does all of it, so a plugin's methods are never called concurrently; delivery callbacks run inside
`producer.poll`. Invariants: an offset is committed only when the tracker says so; at most `IN_FLIGHT_MAX`
records are unacknowledged; a record that the broker refuses fails the task, and nothing after it is
committed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterator
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message

from klamm.connect.child.control import Control
from klamm.connect.child.offset_tracker import OffsetTracker, Run
from klamm.connect.child.offset_writer import OffsetWriter, Producer
from klamm.connect.child.origins import SourceOrigin
from klamm.connect.child.plugins import Converters
from klamm.connect.child.tolerance import Bad, Tolerance
from klamm.connect.model import TaskSpec
from klamm_plugins.connector import SourcePartition, SourceTask
from klamm_plugins.errors import ConnectError, DataError, RetriableError
from klamm_plugins.records import RecordMetadata, SourceRecord

log = logging.getLogger(__name__)

# Enough to keep the broker busy, few enough to drain within the time for a graceful stop.
IN_FLIGHT_MAX: Final = 50_000
# A run is what offsets advance by: small runs commit finer, large ones cost less.
RUN_RECORDS_MAX: Final = 500
_DRAIN_STEP_S: Final = 0.05
_RETRY_MIN_S: Final = 0.1
_RETRY_MAX_S: Final = 10.0
_LAG_INTERVAL_S: Final = 1.0
# A source that has nothing and does not wait itself must not spin.
_IDLE_POLL_S: Final = 0.02

Delivered = Callable[[KafkaError | None, Message], None]
_RawHeaders = list[tuple[str, bytes | None]]
_Ready = tuple[SourceRecord, bytes | None, bytes | None, _RawHeaders | None]


class SourceContext:
    """SourceTaskContext for the task: its config, and offsets read by the worker."""

    def __init__(self, control: Control, connector: str, configs: dict[str, str]) -> None:
        self._control = control
        self._connector = connector
        self.configs = configs
        self.stopping = control.stopping

    def offset(self, partition: SourcePartition) -> dict[str, Any] | None:
        return self.offsets([partition])[0]

    def offsets(self, partitions: Collection[SourcePartition]) -> list[dict[str, Any] | None]:
        wanted = [dict(p) for p in partitions]
        found: list[dict[str, Any] | None] = self._control.call(
            "read_offsets", {"connector": self._connector, "partitions": wanted}
        )
        return found


class SourceRunner:
    """One source task's main loop. `producer` may be a fake; `offset_producer` may be the same one."""

    def __init__(
        self,
        *,
        control: Control,
        spec: TaskSpec,
        task: SourceTask,
        converters: Converters,
        producer: Producer,
        offset_producer: Producer,
        commit_interval_s: float,
        commit_timeout_s: float,
    ) -> None:
        self._control = control
        self._vitals = control.vitals
        self._task = task
        self._converters = converters
        self._producer = producer
        self._offset_producer = offset_producer
        self._tolerance = Tolerance(
            spec.connector_config, control=control, task=spec.id, origin=SourceOrigin(converters)
        )
        self._tracker = OffsetTracker()
        self._offsets = OffsetWriter(
            offset_producer,
            self._tracker,
            connector=spec.id.connector,
            topic=spec.worker["offset.storage.topic"],
            timeout_s=commit_timeout_s,
        )
        self._commit_interval_s = commit_interval_s
        self._commit_due = time.monotonic() + commit_interval_s
        self._lag_due = 0.0
        self._acked = 0
        self._failure: ConnectError | None = None
        self._topics: set[str] = set()
        self._retry_s = _RETRY_MIN_S
        # A callback per record into the plugin only where the plugin wants it.
        self._tells_task = type(task).commit_record is not SourceTask.commit_record

    def run(self) -> None:
        """Until told to stop. What is acknowledged is committed on the way out, also after an error."""
        try:
            while not self._control.stopping.is_set():
                if self._control.paused:
                    self._stay_paused()
                else:
                    self._step()
        except _StoppedWaiting:
            log.warning("the broker took no more records in the time for a graceful stop")
        finally:
            self._drain(self._control.stop_remaining_s())
        if self._failure is not None:
            raise self._failure

    def _step(self) -> None:
        # Unacknowledged records of a source that has nothing more are waited for at the broker. (The producer's own
        # length counts its error events, too.)
        self._vitals.enter("broker" if self._tracker.pending else "input")
        records = self._poll()
        if records:
            self._vitals.moved()
            self._send(records)
            self._serve(0)
        else:
            # Acknowledgements of a burst's last records are worth a moment; so is not spinning.
            self._serve(_IDLE_POLL_S)

    def _poll(self) -> list[SourceRecord] | None:
        try:
            records = self._task.poll()
        except RetriableError as e:
            log.warning("poll failed, trying again in %.1f s: %s", self._retry_s, e)
            self._wait(self._retry_s)
            self._retry_s = min(self._retry_s * 2, _RETRY_MAX_S)
            return None
        self._retry_s = _RETRY_MIN_S
        return records

    def _wait(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not self._control.stopping.is_set() and (left := until - time.monotonic()) > 0:
            self._serve(min(left, 0.2))
            self._vitals.enter("input")

    def _serve(self, timeout_s: float) -> None:
        """Take acknowledgements for up to `timeout_s`, commit offsets when due. Raises a failed delivery."""
        self._producer.poll(timeout_s)
        if self._offset_producer is not self._producer:
            self._offset_producer.poll(0)
        self._vitals.acknowledged(self._acked)
        if self._offsets.finish():
            self._call_commit()
        now = time.monotonic()
        if now >= self._lag_due:
            self._lag_due = now + _LAG_INTERVAL_S
            self._ask_lag()
        if now >= self._commit_due and not self._offsets.busy:
            self._commit_due = now + self._commit_interval_s
            self._offsets.begin()
        if self._failure is not None:
            raise self._failure

    def _ask_lag(self) -> None:
        try:
            lag = self._task.lag()
            # What is on its way is behind as well, by an amount that the source's unit cannot tell.
            self._vitals.lag = None if lag == 0 and len(self._producer) else lag
        except Exception:
            log.exception("the task's lag() raised")
            self._vitals.lag = None

    def _call_commit(self) -> None:
        try:
            self._task.commit()
        except Exception:
            log.exception("the task's commit() raised")

    def _stay_paused(self) -> None:
        self._drain(self._control.stop_remaining_s())
        self._control.notify("state", state="PAUSED")
        while self._control.paused and not self._control.stopping.is_set():
            self._vitals.enter("paused")
            self._serve(0)
            self._control.wait_for_order(0.5)
        if not self._control.stopping.is_set():
            self._control.notify("state", state="RUNNING")

    def _send(self, records: list[SourceRecord]) -> None:
        for chunk in _chunks(records):
            self._send_chunk(chunk)

    def _send_chunk(self, chunk: list[SourceRecord]) -> None:
        """Records of one topic, source partition and pair of schemas."""
        last = chunk[-1]
        if last.topic not in self._topics:
            self._topics.add(last.topic)
            self._control.notify("topics", topics=sorted(self._topics))
        ready = self._convert(chunk)
        run = self._tracker.submit(last.source_partition, last.source_offset, len(ready))
        delivered = self._on_delivery(run)
        if self._tells_task:
            self._tell_skipped(chunk, ready)
        for record, key, value, headers in ready:
            callback = self._telling(delivered, record) if self._tells_task else delivered
            try:
                self._produce(record, key, value, headers, callback)
            except DataError as e:
                self._leave_out(record, run, e)

    def _leave_out(self, record: SourceRecord, run: Run, error: DataError) -> None:
        """A record that the client will not send, whatever becomes of others. What the broker refuses is another
        matter: it refuses whole batches, with good records in them.
        """
        if not self._tolerance.all:
            raise error
        bad = Bad(
            error=error,
            stage="KAFKA_PRODUCE",
            executing="org.apache.kafka.connect.runtime.WorkerSourceTask",
            where=_place(record),
            record=record,
        )
        self._tolerance.judge(bad)
        run.pending -= 1
        if self._tells_task:
            self._commit_record(record, None)

    def _produce(
        self,
        record: SourceRecord,
        key: bytes | None,
        value: bytes | None,
        headers: _RawHeaders | None,
        callback: Delivered,
    ) -> None:
        partition = -1 if record.partition is None else record.partition
        # 0 is librdkafka's "none": it takes the time of sending. The epoch itself cannot be said (differences.md).
        timestamp = record.timestamp or 0
        while True:
            try:
                self._producer.produce(
                    record.topic, value, key, partition, callback, callback, timestamp, headers
                )
            except BufferError:
                if self._control.stopping.is_set() and self._control.stop_remaining_s() <= 0:
                    raise _StoppedWaiting from None
                self._wait_for_broker()
            except KafkaException as e:
                raise _refused(e.args[0], record.topic, _about(record, key, value)) from e
            else:
                break
        if len(self._producer) > IN_FLIGHT_MAX:
            self._wait_for_broker()

    def _wait_for_broker(self) -> None:
        """Until there is room again, or the task must stop: then what is not sent comes again."""
        while True:
            self._vitals.enter("broker")
            # At least once: the queue may be full by bytes with few records in it.
            self._serve(_DRAIN_STEP_S)
            if len(self._producer) <= IN_FLIGHT_MAX // 2:
                break
            if self._control.stopping.is_set() and self._control.stop_remaining_s() <= 0:
                raise _StoppedWaiting
        self._vitals.enter("input")

    def _on_delivery(self, run: Run) -> Delivered:
        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is None:
                run.pending -= 1
                self._acked += 1
            elif self._failure is None:
                self._failure = _refused(error, message.topic())

        return delivered

    def _telling(self, delivered: Delivered, record: SourceRecord) -> Delivered:
        def tell(error: KafkaError | None, message: Message) -> None:
            delivered(error, message)
            if error is None:
                self._commit_record(record, _metadata(message))

        return tell

    def _tell_skipped(self, chunk: list[SourceRecord], ready: list[_Ready]) -> None:
        if len(ready) == len(chunk):
            return
        sent = {id(record) for record, *_ in ready}
        for record in chunk:
            if id(record) not in sent:
                self._commit_record(record, None)

    def _commit_record(self, record: SourceRecord, metadata: RecordMetadata | None) -> None:
        try:
            self._task.commit_record(record, metadata)
        except Exception:
            log.exception("the task's commit_record() raised")

    def _convert(self, chunk: list[SourceRecord]) -> list[_Ready]:
        """The records that can be sent, with the bytes of their keys, values and headers."""
        first = chunk[0]
        key, value = self._converters.key, self._converters.value
        try:
            keys = key.from_connect_data_many(first.topic, first.key_schema, [r.key for r in chunk])
            values = value.from_connect_data_many(first.topic, first.value_schema, [r.value for r in chunk])
            headers = [self._headers(r) if r.headers else None for r in chunk]
        except Exception:
            # Which record it was is found, and judged, one by one.
            return [ready for record in chunk if (ready := self._convert_one(record)) is not None]
        return list(zip(chunk, keys, values, headers, strict=True))

    def _convert_one(self, record: SourceRecord) -> _Ready | None:
        topic, stage = record.topic, "KEY_CONVERTER"
        try:
            key = self._converters.key.from_connect_data(topic, record.key_schema, record.key)
            stage = "VALUE_CONVERTER"
            value = self._converters.value.from_connect_data(topic, record.value_schema, record.value)
            stage = "HEADER_CONVERTER"
            headers = self._headers(record) if record.headers else None
        except Exception as e:
            bad = Bad(
                error=e,
                stage=stage,
                executing=self._converters.class_name(stage),
                where=_place(record),
                record=record,
            )
            self._tolerance.judge(bad)
            return None
        return record, key, value, headers

    def _headers(self, record: SourceRecord) -> _RawHeaders:
        convert = self._converters.header.from_connect_header
        return [(h.name, convert(record.topic, h.name, h.schema, h.value)) for h in record.headers]

    def _drain(self, within_s: float) -> None:
        """Wait for what is in flight, then commit; gives up after `within_s` and says what was left."""
        start = time.monotonic()
        # The last quarter is for the commit: what is acknowledged by then need not be sent again.
        self._pump(start + within_s * 0.75, lambda: len(self._producer) == 0 or self._failure is not None)
        self._pump(start + within_s, lambda: not self._offsets.busy)
        self._offsets.begin()
        self._pump(start + within_s, lambda: not self._offsets.busy)
        if self._tracker.pending:
            log.warning("%d records were not acknowledged; they will be sent again", self._tracker.pending)

    def _pump(self, until: float, done: Callable[[], bool]) -> None:
        while not done() and time.monotonic() < until:
            self._vitals.enter("broker")
            self._producer.poll(_DRAIN_STEP_S)
            if self._offset_producer is not self._producer:
                self._offset_producer.poll(_DRAIN_STEP_S)
            self._vitals.acknowledged(self._acked)
            if self._offsets.finish():
                self._call_commit()


class _StoppedWaiting(Exception):
    """The time for a graceful stop ended while the broker took nothing."""


def _chunks(records: list[SourceRecord]) -> Iterator[list[SourceRecord]]:
    """Cut into runs of consecutive records that can be converted and tracked together."""
    start = 0
    first = records[0]
    for i, record in enumerate(records):
        same = (
            record.topic == first.topic
            and record.source_partition == first.source_partition
            and record.value_schema is first.value_schema
            and record.key_schema is first.key_schema
        )
        if not same or i - start == RUN_RECORDS_MAX:
            yield records[start:i]
            start, first = i, record
    yield records[start:]


def _place(record: SourceRecord) -> str:
    return f"topic {record.topic}, source partition {record.source_partition}, source offset {record.source_offset}"


def _about(record: SourceRecord, key: bytes | None, value: bytes | None) -> str:
    """Where a record came from and how large it is: what a user needs to find it."""
    size = len(key or b"") + len(value or b"")
    return f" of {size} bytes, source partition {record.source_partition}, offset {record.source_offset},"


def _refused(error: KafkaError, topic: str | None, about: str = "") -> ConnectError:
    """The task's error for a record that cannot be delivered; `about` says which it is, where that is known."""
    text = f"A record{about} could not be sent to topic {topic}: {error.str()} ({error.name()})"
    if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
        text += "; larger ones need producer.override.max.request.size and the topic's max.message.bytes"
    if error.code() in {KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_MSG, KafkaError.INVALID_RECORD}:
        return DataError(text)
    return ConnectError(text)


def _metadata(message: Message) -> RecordMetadata:
    _, timestamp = message.timestamp()
    return RecordMetadata(
        message.topic() or "",
        message.partition() or 0,
        message.offset() or 0,
        timestamp if timestamp >= 0 else None,
    )
