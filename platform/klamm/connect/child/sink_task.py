"""Runs one sink task: consume, convert in bulk, put, commit what the task has safely written.

One thread does all of it; rebalance callbacks run inside `consumer.poll`. Invariants: an offset is committed
only after `pre_commit` returned it, and never beyond what `put` has taken. A batch that `put` could not take
(RetriableError) is held and handed in again before anything else is delivered; meanwhile polling goes on, so
that the task stays in its group.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as KafkaPartition

from klamm.connect.child.clients import is_away
from klamm.connect.child.control import Control
from klamm.connect.child.dead_letters import DeadLetters
from klamm.connect.child.origins import SinkOrigin
from klamm.connect.child.plugins import Converters
from klamm.connect.child.retry import Stopped
from klamm.connect.child.sink_context import SinkContext
from klamm.connect.child.sink_figures import SinkFigures
from klamm.connect.child.sink_lag import Lag
from klamm.connect.child.sink_places import kafka, named, place_of
from klamm.connect.child.sink_records import Consumed, RecordConverter, Reporter
from klamm.connect.child.sink_topics import Matching, Subscription
from klamm.connect.child.tolerance import Tolerance
from klamm.connect.child.transform_chain import TransformChain
from klamm.connect.model import TaskSpec
from klamm_plugins.batch import SinkBatch
from klamm_plugins.connector import SinkTask
from klamm_plugins.errors import ConnectError, RetriableError
from klamm_plugins.overriding import is_newest
from klamm_plugins.records import TopicPartition

log = logging.getLogger(__name__)

# Larger batches convert and write cheaper; so many 1 KB records still take only a moment.
BATCH_RECORDS_MAX: Final = 2_000
_POLL_S: Final = 0.5
# A task that had no record for so long waits longer: it takes an order up to a second later.
_IDLE_AFTER_S: Final = 10.0
_IDLE_POLL_S: Final = 1.0
_RETRY_POLL_S: Final = 0.1
_RETRY_MIN_S: Final = 0.5
_RETRY_MAX_S: Final = 30.0
_LAG_INTERVAL_S: Final = 1.0
# The longest that a commit waits for dead letters; a stop may leave less.
_SETTLE_S: Final = 5.0
_IGNORED: Final = frozenset(
    {KafkaError._PARTITION_EOF, KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._MAX_POLL_EXCEEDED}  # noqa: SLF001
)
# Errors of a seek to a partition that is assigned but that librdkafka does not fetch from yet.
_NOT_YET: Final = frozenset({KafkaError._STATE, KafkaError._UNKNOWN_PARTITION})  # noqa: SLF001


class SinkRunner:
    """One sink task's main loop. `consumer` may be a fake."""

    def __init__(
        self,
        *,
        control: Control,
        spec: TaskSpec,
        task: SinkTask,
        converters: Converters,
        consumer: Consumer,
        topics: list[str] | Matching,
        commit_interval_s: float,
        cooperative: bool = True,
        dead_letters: DeadLetters | None = None,
        chain: TransformChain | None = None,
        batch_max: int = BATCH_RECORDS_MAX,
    ) -> None:
        self.context = SinkContext(control, spec.task_config)
        self._control = control
        self._vitals = control.vitals
        self._task = task
        tolerance = Tolerance(
            spec.connector_config,
            control=control,
            task=spec.id,
            dead_letters=dead_letters,
            origin=SinkOrigin(converters),
        )
        self._tolerance = tolerance
        tolerance.retry.wait = self._wait_in_group
        self._chain = chain or TransformChain()
        cls = type(task)
        self._in_columns = cls.put_batches is not SinkTask.put_batches and is_newest(
            cls, "put_batches", "put"
        )
        self._records = RecordConverter(
            converters, tolerance, chain=self._chain, keep=dead_letters is not None
        )
        self._figures = SinkFigures(control.vitals.figures)
        self._behind = Lag(consumer)
        if dead_letters is not None or tolerance.logs:
            self.context.errant_record_reporter = Reporter(tolerance)
        self._consumer = consumer
        self._assign = consumer.incremental_assign if cooperative else consumer.assign
        callbacks = {"on_assign": self._on_assign, "on_revoke": self._on_revoke, "on_lost": self._on_lost}
        self._subscription = Subscription(consumer, topics, callbacks)
        self._batch_max = batch_max
        self._commit_interval_s = commit_interval_s
        self._commit_due = time.monotonic() + commit_interval_s
        self._delivered: dict[TopicPartition, int] = {}  # next offset after what put has taken
        self._safe: dict[TopicPartition, int] = {}  # the offset to return to after a failed flush
        self._batch: list[SinkBatch] = []
        self._after_batch: dict[TopicPartition, int] = {}
        self._seeks: dict[
            TopicPartition, int
        ] = {}  # seeks that came too early; these partitions deliver nothing yet
        self._parked: set[TopicPartition] = set()  # paused by the loop, not by the task
        self._retry_at: float | None = None
        self._retry_s = _RETRY_MIN_S
        self._shown_paused = False
        self._taken = 0
        self._bytes = self._batch_bytes = 0  # of values, as they were in their topics
        self._lag_due = 0.0
        self._idle_poll_s = min(_IDLE_POLL_S, control.quiet_s)
        self._record_s = time.monotonic()  # when there was one, or the start
        self._topics: set[str] = set()

    def run(self) -> None:
        """Runs until told to stop. Commits on the way out what was delivered, also after an error."""
        if self._in_columns:
            self._records.raw_formats = self._task.raw_formats
        try:
            self._subscription.begin()
            while not self._control.stopping.is_set():
                self._step()
        except Stopped:
            log.info("stopped while a record was being retried; its batch will be delivered again")
        except BaseException:
            # An error of the clean-up is only logged: the task ends with the first error.
            try:
                self._finish()
            except Exception:
                log.exception("the task could not end in good order after an error")
            raise
        self._finish()

    def _finish(self) -> None:
        try:
            self._give_up(list(self.context.assigned), commit=True)
            self._tolerance.settle(self._settle_s())  # also those whose offsets are not committed
        finally:
            self._chain.close()
            self._leave_group()

    def _leave_group(self) -> None:
        """Leaves the group, so that others take over at once.

        Waits no longer than the stop may take: during a rebalance `close` would wait for its end, and the
        process ends anyway.
        """
        closing = threading.Thread(target=self._consumer.close, name="close", daemon=True)
        closing.start()
        closing.join(max(0.5, self._control.stop_remaining_s()))

    def _step(self) -> None:
        self._follow_pause()
        if self._held or self._shown_paused:
            self._stay_in_group()
        else:
            self._vitals.enter(self._waits_for())
            messages = self._consume()
            if messages:
                self._vitals.moved()
            self._take(messages)
            self._deliver()
        self._apply_context()
        self._tolerance.serve()
        now = time.monotonic()
        self._subscription.follow(now)
        if now >= self._commit_due or self.context.take_commit_request():
            self._commit_due = now + self._commit_interval_s
            self._commit(list(self._delivered), rewind=True)
        if now >= self._lag_due:
            self._lag_due = now + _LAG_INTERVAL_S
            self._vitals.lag = self._lag()

    def _waits_for(self) -> str:
        """Returns what the next poll waits for. A task that has paused all its partitions waits for its target."""
        if not self.context.assigned:
            return "assignment"
        return "target" if self.context.assigned <= self.context.paused else "input"

    @property
    def _held(self) -> bool:
        """True while a batch waits to be handed in again; nothing else is consumed then."""
        return self._retry_at is not None

    def _consume(self) -> list[Message]:
        """Returns the messages there are; waits for the first one only."""
        idle = time.monotonic() - self._record_s > _IDLE_AFTER_S
        # Unlike `poll`, `consume` does not wake up five times a second to look for signals.
        messages = self._consumer.consume(1, self._idle_poll_s if idle else _POLL_S)
        if messages:
            self._record_s = time.monotonic()
            messages += self._consumer.consume(self._batch_max - 1, 0)
        return messages

    def _take(self, messages: list[Message]) -> None:
        """Converts messages into the batch, without those of partitions that another task has now."""
        if not messages:
            return
        if any(map(Message.error, messages)):
            messages = [m for m in messages if self._usable(m)]
        consumed = Consumed.of(messages)
        if not consumed.places() <= self.context.assigned - self._seeks.keys():
            consumed = Consumed.of([m for m in messages if self._usable(m)])
        if not consumed.messages:
            return
        # Offsets past records that will be left out count, too: these records are dealt with.
        ends = self._after_batch = consumed.ends()
        if not ends.keys() <= self._safe.keys():
            self._safe = consumed.starts() | self._safe
        self._figures.read(len(consumed.messages))
        self._batch_bytes = sum(map(len, consumed.messages))
        self._tell_topics({place.topic for place in ends})
        self._batch = self._records.convert(consumed)
        if self._parked and not self._held:  # a retry has parked them
            self._resume()
        if len(self._after_batch) < len(consumed.ends()):
            self._batch = [b for b in self._batch if b.origin in self._after_batch]

    def _tell_topics(self, topics: set[str]) -> None:
        if not topics <= self._topics:
            self._topics |= topics
            self._control.notify("topics", topics=sorted(self._topics))

    def _usable(self, message: Message) -> bool:
        error = message.error()
        if error is None:
            return place_of(message) in self.context.assigned and place_of(message) not in self._seeks
        passes = error.code() in _IGNORED or is_away(error)
        if error.fatal() or not passes:
            raise ConnectError(f"The consumer failed: {error.str()} ({error.name()})")
        if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001
            if place_of(message) in self.context.assigned - self._seeks.keys():
                self._behind.reached(place_of(message), message.offset() or 0)
        else:
            log.warning("%s", error.str())
        return False

    def _wait_in_group(self, seconds: float) -> None:
        """Waits between two tries of a record. As with a held batch, nothing else is fetched meanwhile."""
        self._vitals.enter("retry")
        self._park()
        self._poll_parked(seconds)
        self._tolerance.serve()

    def _deliver(self) -> None:
        before = self._vitals.place()
        self._vitals.enter("target")
        records = sum(map(len, self._batch))
        try:
            began = time.monotonic()
            # A list of its own: if the task empties it and then fails, everything is still here to retry.
            if self._in_columns:
                self._task.put_batches(list(self._batch))
            else:
                self._task.put([record for batch in self._batch for record in batch])
        except RetriableError as e:
            self._vitals.errors.failures += 1
            self._hold(e)
            return
        self._figures.put(records, time.monotonic() - began)
        if not records:
            self._vitals.go_back(before)
        self._taken += records
        if self._batch_bytes:
            self._bytes += self._batch_bytes
            self._batch_bytes = 0
            self._vitals.details = {"bytes": self._bytes}
        self._vitals.acknowledged(self._taken)
        self._delivered |= self._after_batch
        self._batch, self._after_batch = [], {}
        if self._held:
            self._vitals.errors.retries += 1
            self._vitals.errors.tries_no_more("put")
            self._retry_at = None
            self._retry_s = _RETRY_MIN_S
            self._resume()

    def _hold(self, error: RetriableError) -> None:
        """Keeps the batch, stops fetching, and sets the time of the next try."""
        asked_s = self.context.take_timeout_s()
        wait_s = self._retry_s if asked_s is None else asked_s
        self._retry_s = min(self._retry_s * 2, _RETRY_MAX_S)
        self._vitals.errors.tries_again("put", error)
        log.warning("put failed, %d records again in %.1f s: %s", sum(map(len, self._batch)), wait_s, error)
        self._park()
        self._retry_at = time.monotonic() + wait_s

    def _stay_in_group(self) -> None:
        """Polls while nothing may be delivered (a batch is held, or the task is paused)."""
        self._vitals.enter("paused" if self._shown_paused else "target")
        self._poll_parked(_RETRY_POLL_S)
        if self._held and not self._shown_paused and time.monotonic() >= (self._retry_at or 0):
            self._deliver()

    def _poll_parked(self, seconds: float) -> None:
        stray = self._consumer.poll(seconds)
        self._park()  # partitions that a rebalance has assigned meanwhile
        if stray is not None and self._usable(stray):
            # Fetched between assignment and pause: seek back, so that it comes again when its partition is
            # resumed.
            self._try_seek(place_of(stray), stray.offset() or 0)

    def _park(self) -> None:
        """Stops fetching from all partitions that the task has now."""
        new = self.context.assigned - self._parked
        if new:
            self._consumer.pause(kafka(new))
            self._parked |= new

    def _follow_pause(self) -> None:
        if self._control.paused == self._shown_paused:
            return
        self._shown_paused = self._control.paused
        if self._shown_paused:
            self._commit(list(self._delivered), rewind=True)
            self._park()
            self._control.notify("state", state="PAUSED")
        else:
            self._resume()
            self._control.notify("state", state="RUNNING")

    def _resume(self) -> None:
        """Fetches again, except from partitions that the task itself has paused."""
        if self._held or self._shown_paused:
            return
        self._parked.clear()
        self._consumer.resume(kafka(self.context.assigned - self.context.paused))

    def _apply_context(self) -> None:
        """Carries out the task's requests of its last call, and those left over from earlier calls."""
        self._apply(*self.context.take_changes())
        for place, offset in list(self._seeks.items()):
            self._try_seek(place, offset)

    def _apply(
        self,
        pauses: set[TopicPartition],
        resumes: set[TopicPartition],
        rewinds: Mapping[TopicPartition, int],
    ) -> None:
        if pauses:
            self._consumer.pause(kafka(pauses))
        if resumes - self._parked:
            self._consumer.resume(kafka(resumes - self._parked))
        self._seek(rewinds)

    def _seek(self, offsets: Mapping[TopicPartition, int]) -> None:
        for place, offset in offsets.items():
            if place not in self.context.assigned:
                raise ConnectError(f"Cannot rewind {place}: it is not assigned to this task")
            self._delivered.pop(place, None)
            self._safe[place] = offset
            self._try_seek(place, offset)

    def _try_seek(self, place: TopicPartition, offset: int) -> None:
        """Seeks now, or notes the offset until the partition is ready for it."""
        self._behind.moved(place)
        try:
            self._consumer.seek(KafkaPartition(place.topic, place.partition, offset))
        except KafkaException as e:
            if e.args[0].code() not in _NOT_YET:
                raise ConnectError(f"Cannot go to offset {offset} of {place}: {e.args[0].str()}") from e
            if place not in self._seeks:
                log.info(
                    "cannot seek in %s before fetching has begun; it will start at offset %d", place, offset
                )
            self._seeks[place] = offset
        else:
            self._seeks.pop(place, None)

    def _commit(self, places: list[TopicPartition], *, rewind: bool) -> None:
        """Flushes, and commits synchronously. With `rewind`, a failed flush goes back to the last safe offsets."""
        delivered = {p: self._delivered[p] for p in places if p in self._delivered}
        if not delivered:
            return
        self._vitals.enter("target")
        try:
            wanted = self._task.pre_commit(dict(delivered))
        except Exception as e:
            self._figures.committed("failures")
            self._vitals.errors.tries_no_more("put")
            self._vitals.errors.tries_again("flush", e)
            log.exception("flush failed, nothing is committed%s", "; rewinding" if rewind else "")
            if rewind:
                # This gives up a held batch, too, also for partitions that have delivered nothing yet.
                back = {p: self._safe[p] for p in delivered.keys() | self._after_batch.keys()}
                self._batch, self._after_batch, self._retry_at = [], {}, None
                self._seek(back)
                self._resume()
            return
        self._vitals.errors.tries_no_more("flush")
        offsets = {p: o for p, o in wanted.items() if self._committable(p, o, delivered)}
        if not offsets:
            return
        if not self._tolerance.settle(self._settle_s()):
            self._figures.committed("skip")
            log.warning(
                "dead letters are not acknowledged yet, nothing is committed; the next commit covers it"
            )
            return
        self._vitals.enter("broker")
        try:
            self._consumer.commit(offsets=kafka(offsets), asynchronous=False)
        except KafkaException as e:
            # The group rebalances, or the broker is away: the next commit covers these offsets.
            self._figures.committed("failures")
            log.warning("offsets could not be committed: %s", e.args[0].str())
        else:
            self._figures.committed("completion")
            self._safe |= offsets

    def _settle_s(self) -> float:
        remaining_s = self._control.stop_remaining_s()
        return remaining_s if self._control.stopping.is_set() else min(_SETTLE_S, remaining_s)

    def _committable(
        self, place: TopicPartition, offset: int, delivered: Mapping[TopicPartition, int]
    ) -> bool:
        if offset > delivered.get(place, -1):
            log.error("pre_commit returned offset %d of %s, which was not delivered; ignored", offset, place)
            return False
        return offset != self._safe.get(place)

    def _on_assign(self, _: object, partitions: list[KafkaPartition]) -> None:
        places = [named(p) for p in partitions]
        self.context.assigned |= set(places)
        self._figures.assigned(len(self.context.assigned))
        self._task.open(places)
        pauses, resumes, rewinds = self.context.take_changes()
        # The client refuses to seek or pause these partitions before they are assigned, and afterwards it
        # already fetches. So the assignment itself says where the task wants to begin.
        begins = {place: rewinds.pop(place) for place in places if place in rewinds}
        self._assign(
            [KafkaPartition(p.topic, p.partition, begins.get(named(p), p.offset)) for p in partitions]
        )
        self._consumer.resume(kafka(places))  # those that left while they were paused are paused still
        self._safe |= begins
        self._apply(pauses, resumes, rewinds)

    def _on_revoke(self, _: object, partitions: list[KafkaPartition]) -> None:
        self._give_up([named(p) for p in partitions], commit=True)

    def _on_lost(self, _: object, partitions: list[KafkaPartition]) -> None:
        self._give_up([named(p) for p in partitions], commit=False)

    def _give_up(self, places: list[TopicPartition], *, commit: bool) -> None:
        """Commits and forgets those of these partitions that the task still has."""
        places = [p for p in places if p in self.context.assigned]
        gone = frozenset(places)
        if commit:
            self.context.leaving = gone
            self._commit(places, rewind=False)
            self.context.leaving = frozenset()
        self.context.assigned -= gone
        self._figures.assigned(len(self.context.assigned))
        self.context.paused -= gone
        self._parked -= gone
        self._batch = [b for b in self._batch if b.origin not in gone]
        for place in gone:
            for known in (self._delivered, self._safe, self._after_batch, self._seeks):
                known.pop(place, None)
            self._behind.forget(place)
        if places:
            self._task.close(places)

    def _lag(self) -> int | None:
        return self._behind.of(self.context.assigned, self._safe | self._delivered, held=self._after_batch)
