"""The main loop of a source task: poll, hand over, serve acknowledgements, pause, stop.

One thread does all of it, so a plugin's methods are never called concurrently; delivery callbacks run inside
`producer.poll`. The subclasses implement the delivery guarantees: `source_task` (at least once) and
`exactly_once`.
"""

from __future__ import annotations

import logging
import queue
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException

from klamm.connect.child.control import Control
from klamm.connect.child.dead_letters import DeadLetters
from klamm.connect.child.failure import notice
from klamm.connect.child.offset_tracker import Run
from klamm.connect.child.offset_writer import RecordProducer
from klamm.connect.child.origins import SourceOrigin
from klamm.connect.child.plugins import Converters
from klamm.connect.child.retry import Stopped
from klamm.connect.child.source_figures import SourceFigures
from klamm.connect.child.source_records import Chunk, SourceRecords
from klamm.connect.child.source_send import MESSAGE_MAX, Sender, Told, refusal, refused
from klamm.connect.child.tolerance import Tolerance
from klamm.connect.child.transform_chain import TransformChain
from klamm.connect.model import TaskSpec
from klamm_plugins.connector import SourcePartition, SourceTask, TransactionContext
from klamm_plugins.errors import ConnectError, RetriableError
from klamm_plugins.records import RecordMetadata, SourceRecord

log = logging.getLogger(__name__)

# Enough to keep the broker busy, few enough to drain within the time for a graceful stop.
IN_FLIGHT_MAX: Final = 50_000
DRAIN_STEP_S: Final = 0.05
_RETRY_MIN_S: Final = 0.1
_RETRY_MAX_S: Final = 10.0
_LAG_INTERVAL_S: Final = 1.0
# Keeps a source that has nothing and does not wait itself from spinning.
_IDLE_POLL_S: Final = 0.02
# The longest wait for the event that explains why the producer failed.
_REASON_S: Final = 0.5

ReadOffsets = Callable[[list[dict[str, Any]]], list[dict[str, Any] | None]]


class SourceContext:
    """The task's SourceTaskContext: its config, its committed offsets, and how it ends transactions."""

    def __init__(
        self,
        control: Control,
        configs: dict[str, str],
        read_offsets: ReadOffsets,
        transactions: TransactionContext | None = None,
    ) -> None:
        self._read = read_offsets
        self.configs = configs
        self.stopping = control.stopping
        self.transaction_context = transactions

    def offset(self, partition: SourcePartition) -> dict[str, Any] | None:
        return self.offsets([partition])[0]

    def offsets(self, partitions: Collection[SourcePartition]) -> list[dict[str, Any] | None]:
        return self._read([dict(p) for p in partitions])


class SourceLoop(ABC):
    """The loop that both delivery guarantees share. `producer` may be a fake."""

    def __init__(
        self,
        *,
        control: Control,
        spec: TaskSpec,
        task: SourceTask,
        converters: Converters,
        producer: RecordProducer,
        chain: TransformChain | None = None,
        dead_letters: DeadLetters | None = None,
        ensure_topics: Callable[[Callable[[], None]], Callable[[str], None]] | None = None,
        sticky: bool = True,
        message_max: int | None = None,
    ) -> None:
        self._control = control
        self._vitals = control.vitals
        self._task = task
        self._producer = producer
        # Only a plugin that overrides it is called back for each record.
        self._tells_task = type(task).commit_record is not SourceTask.commit_record
        if type(task).signal is not SourceTask.signal:
            control.signals = queue.SimpleQueue()
            control.judge_signal = self._judge_signal
        self._tolerance = Tolerance(
            spec.connector_config,
            control=control,
            task=spec.id,
            dead_letters=dead_letters,
            origin=SourceOrigin(converters),
        )
        self._tolerance.retry.wait = self._wait_for_retry
        self._records = SourceRecords(
            converters=converters,
            chain=chain or TransformChain(),
            tolerance=self._tolerance,
            records=self._tells_task,
        )
        self._sender = Sender(
            producer,
            tolerance=self._tolerance,
            wait=self._wait_for_broker,
            ensure_topic=ensure_topics(self._wait_for_broker) if ensure_topics else lambda _topic: None,
            sticky=sticky,
            message_max=message_max or MESSAGE_MAX,
        )
        self._figures = SourceFigures(control.vitals.figures)
        self._lag_due = 0.0
        self._topics: set[str] = set()
        self._retry_s = _RETRY_MIN_S

    def run(self) -> None:
        """Runs until told to stop; raises what fails the task. Commits on the way out what can be committed."""
        try:
            self._begin()
            while not self._control.stopping.is_set():
                if self._control.paused:
                    self._stay_paused()
                else:
                    self._step()
        except Stopped:
            log.warning("the task had to stop before the broker had all records; the rest will be sent again")
            self._end(failed=True)
        except BaseException:
            self._end_failed()
            raise
        else:
            self._end(failed=False)

    def _end_failed(self) -> None:
        """Ends after an error. An error of the end is only logged: the task fails with the first one."""
        try:
            self._end(failed=True)
        except Exception:
            log.exception("records sent before an error could not be committed")

    # The parts of a delivery guarantee

    @abstractmethod
    def _begin(self) -> None:
        """Called before the first poll, and after a pause."""

    @abstractmethod
    def _dispatch(self, records: Sequence[SourceRecord]) -> None:
        """Sends the records of one poll."""

    @abstractmethod
    def _polled_nothing(self) -> None:
        """Called after a poll that returned nothing."""

    @abstractmethod
    def _commit_if_due(self) -> None:
        """Commits if it is time to. Called often."""

    @abstractmethod
    def _rest(self) -> None:
        """Commits what there is. Called before a pause."""

    @abstractmethod
    def _end(self, *, failed: bool) -> None:
        """Called after the last poll. `failed`: the task ends with an error, or its time to stop was over."""

    @property
    @abstractmethod
    def _acknowledged(self) -> int:
        """The number of records acknowledged so far."""

    @property
    @abstractmethod
    def _pending(self) -> bool:
        """True while records are under way."""

    # The loop

    def _step(self) -> None:
        # A source that has nothing more waits for the broker while records are unacknowledged. (The
        # producer's own length counts its error events, too.)
        self._vitals.enter("broker" if self._pending else "input")
        records = self._poll()
        if records:
            self._vitals.moved()
            self._dispatch(records)
            self._serve(0)
        else:
            self._polled_nothing()
            # The wait takes the acknowledgements of a burst's last records, and prevents spinning.
            self._serve(_IDLE_POLL_S)

    def _judge_signal(self, signal: Mapping[str, Any]) -> dict[str, Any] | None:
        """Returns the error of a signal that the task refuses. Called from the control thread."""
        try:
            self._task.check_signal(signal["type"], signal["data"])
        except Exception as e:
            return notice(e)
        return None

    def _hand_over_signals(self) -> None:
        while self._control.signals is not None and not self._control.signals.empty():
            signal = self._control.signals.get()
            try:
                self._task.signal(signal["id"], signal["type"], signal["data"])
            except Exception:
                log.exception("the task's signal() raised for %s", signal["id"])

    def _poll(self) -> Sequence[SourceRecord] | None:
        self._hand_over_signals()
        began = time.monotonic()
        try:
            records = self._task.poll()
        except RetriableError as e:
            self._vitals.errors.tries_again("poll", e)
            log.warning("poll failed, trying again in %.1f s: %s", self._retry_s, e)
            self._wait(self._retry_s)
            self._retry_s = min(self._retry_s * 2, _RETRY_MAX_S)
            return None
        self._retry_s = _RETRY_MIN_S
        self._vitals.errors.tries_no_more("poll")
        if records:
            self._figures.polled(len(records), time.monotonic() - began)
        return records

    def _wait(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not self._control.stopping.is_set() and (left := until - time.monotonic()) > 0:
            self._serve(min(left, 0.2))
            self._vitals.enter("input")

    def _wait_for_retry(self, seconds: float) -> None:
        self._serve(seconds)
        self._vitals.beat()

    def _serve(self, timeout_s: float) -> None:
        """Takes acknowledgements for up to `timeout_s`, commits what is due. Raises a failed delivery."""
        self._take(timeout_s)
        self._tolerance.serve()
        self._show()
        now = time.monotonic()
        if now >= self._lag_due:
            self._lag_due = now + _LAG_INTERVAL_S
            self._ask_lag()
        self._commit_if_due()

    def _take(self, timeout_s: float) -> None:
        """Runs delivery callbacks. Raises the error of a record that was refused."""
        fatal: KafkaException | None = None
        try:
            self._producer.poll(timeout_s)
        except KafkaException as e:
            fatal = e
        if self._sender.failure is not None:
            raise self._sender.failure
        if fatal is not None:
            raise self._producer_failed(fatal.args[0]) from fatal

    def _send_chunk(self, chunk: Chunk, run: Run | None, told: Told | None) -> None:
        try:
            self._sender.send(chunk, run, told)
        except ConnectError as e:
            raise self._why(e) from e

    def _why(self, error: ConnectError) -> ConnectError:
        """Returns the reason behind a producer's refusal to take records, which is in its next event."""
        if refusal(error) == KafkaError._FATAL:  # noqa: SLF001 - spelled so by librdkafka
            try:
                self._take(_REASON_S)
            except ConnectError as reason:
                return reason
        return error

    def _producer_failed(self, error: KafkaError) -> ConnectError:
        """Returns the task's error for a producer that has failed for good."""
        return refused(error, ", ".join(sorted(self._topics)))

    def _show(self) -> None:
        acknowledged = self._acknowledged
        self._vitals.acknowledged(acknowledged)
        self._vitals.details = {"bytes": self._sender.bytes}
        self._figures.written(acknowledged, len(self._producer))

    def _ask_lag(self) -> None:
        try:
            lag = self._task.lag()
            # Records under way count as lag, too, but their number need not be in the source's unit.
            self._vitals.lag = None if lag == 0 and self._pending else lag
        except Exception:
            log.exception("the task's lag() raised")
            self._vitals.lag = None

    def _stay_paused(self) -> None:
        self._rest()
        self._control.notify("state", state="PAUSED")
        while self._control.paused and not self._control.stopping.is_set():
            self._vitals.enter("paused")
            self._serve(0)
            self._control.wait_for_order(0.5)
        if not self._control.stopping.is_set():
            self._begin()
            self._control.notify("state", state="RUNNING")

    def _must_stop_now(self) -> bool:
        """Tells whether the time for a graceful stop is over."""
        return self._control.stopping.is_set() and self._control.stop_remaining_s() <= 0

    def _wait_for_broker(self) -> None:
        """Waits a moment for room in the producer.

        Raises Stopped when the task must stop; records that are not sent are delivered again.
        """
        self._vitals.enter("broker")
        self._serve(DRAIN_STEP_S)
        if self._must_stop_now():
            raise Stopped
        self._vitals.enter("input")

    def _limit_in_flight(self) -> None:
        if len(self._producer) > IN_FLIGHT_MAX:
            while len(self._producer) > IN_FLIGHT_MAX // 2:
                self._wait_for_broker()

    def _use(self, topic: str) -> None:
        if topic not in self._topics:
            self._topics.add(topic)
            self._control.notify("topics", topics=sorted(self._topics))

    # Callbacks of the task

    @property
    def _told(self) -> Told | None:
        return self._commit_record if self._tells_task else None

    def _commit_record(self, record: SourceRecord, metadata: RecordMetadata | None) -> None:
        try:
            self._task.commit_record(record, metadata)
        except Exception:
            log.exception("the task's commit_record() raised")

    def _call_commit(self) -> None:
        try:
            self._task.commit()
        except Exception:
            log.exception("the task's commit() raised")
