"""A compacted topic that is read whole and written to: Kafka Connect's KafkaBasedLog on librdkafka.

One consumer thread reads every partition from the beginning (assigned, no group) and hands batches to the event
loop, where `on_record` gets them in order per partition. `read_to_end` is the barrier: when it returns, everything
that was acknowledged before the call has been handed over. Writes are idempotent with acks=all. The log waits for a
broker that goes away; librdkafka reconnects. The readers (`config_topic`, `offset_state`, …) know what a record means.

Thread rule: public methods are called in the event loop; `_read` is the only code of the consumer thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec, ResourceType

from klamm.connect.broker_outages import OUTAGES
from klamm.connect.errors import BadRequest
from klamm_base.errors import KlammError
from klamm_base.refused_logins import LOGINS

log = logging.getLogger(__name__)

ADMIN_TIMEOUT_S: Final = 30.0
POLL_S: Final = 0.2  # how long a stopping log may wait for its thread
POLL_RECORDS: Final = 1000
RETRY_S: Final = 0.1
# Errors of librdkafka itself (no connection, no leader known) are below zero.
_LOCAL_BELOW: Final = 0
_FETCH_MS: Final = 500  # librdkafka's default
_SHORT_FETCH_MS: Final = 50
_FETCH_RETRY_MS: Final = 50  # a new partition may have no leader yet
CLIENT_RECORD_MAX: Final = 1_000_000  # librdkafka's default of message.max.bytes
# The leader has changed (a broker that starts again has a new epoch) while the client still uses what it
# knew before. librdkafka calls none of these retriable, and does not look for the new leader by itself.
_OTHER_LEADER: Final = frozenset(
    {
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.NOT_LEADER_FOR_PARTITION,
    }
)
_WAIT_FOR: Final = _OTHER_LEADER | frozenset(
    {
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.KAFKA_STORAGE_ERROR,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.OFFSET_NOT_AVAILABLE,
    }
)
# Without this each client would log every failed attempt to connect; `broker_outages` and failing calls
# report an outage.
_QUIET: Final = {"log_level": 2}


class LogError(KlammError):
    """The topic cannot be used, read or written; the sentence names it and the reason."""


class NotInTime(LogError):
    """The broker did not take a record in time: it is away, or lacks replicas. The record may be there or come still."""


class RecordTooLarge(LogError, BadRequest):
    """The topic, or the client, does not take a record of this size; the sentence names the size and the
    limit.
    """


def make_admin(client_config: Mapping[str, Any]) -> AdminClient:
    """Returns an admin client. Each call that fails has a sentence; `poll` logs what the brokers said, a refused login for one."""

    def told(error: KafkaError) -> None:
        _log_client_error("asking the brokers", error, client_config)

    config: dict[str, Any] = {**client_config, "error_cb": told, **_QUIET}
    return AdminClient(config)


def record_limit(admin: AdminClient, topic: str, client_max: int) -> tuple[int, str]:
    """Returns the largest record of the topic (bytes), and its setting, if the broker tells in time. Blocks."""
    resource = ConfigResource(ResourceType.TOPIC, topic)
    client = client_max, "message.max.bytes of the worker's client"
    try:
        found = admin.describe_configs([resource])[resource].result(ADMIN_TIMEOUT_S)
        topic_max = int(found["max.message.bytes"].value)
    except (KafkaException, TimeoutError, KeyError, ValueError) as e:
        log.warning("max.message.bytes of topic %s is not known: %s", topic, e)
        return client
    return min(client, (topic_max, f"max.message.bytes of topic {topic}"))


class LogProducer:
    """Writes records to any topic, each acknowledged by all in-sync replicas; one per worker.

    `send` returns a future of the event loop. After a fatal error of the idempotent producer librdkafka
    refuses everything: what is in flight fails, and the next send uses a new producer.
    """

    def __init__(self, client_config: Mapping[str, Any]) -> None:
        # murmur2 so that keys land in the partitions where Java's workers put them.
        self._config = {
            "message.timeout.ms": 30_000,
            "linger.ms": 0,
            **client_config,
            "acks": "all",
            "enable.idempotence": True,
            "partitioner": "murmur2_random",
            "error_cb": self._on_error,
            **_QUIET,
        }
        self._loop = asyncio.get_running_loop()
        self._stopping = False
        self._producer = Producer(self._config)
        self._failed: list[Producer] = []  # whose last words are still to come: what was in flight has failed
        self._thread = threading.Thread(target=self._poll, name="log-producer", daemon=True)
        self._thread.start()

    def send(self, topic: str, key: str, value: bytes | None) -> asyncio.Future[None]:
        """Write one record; the future ends when it is acknowledged, or with LogError."""
        future: asyncio.Future[None] = self._loop.create_future()

        def delivered(error: KafkaError | None, _message: Message) -> None:
            self._loop.call_soon_threadsafe(_settle, future, topic, error)

        try:
            self._producer.produce(topic, key=key.encode(), value=value, on_delivery=delivered)
        except (KafkaException, BufferError) as e:
            _settle(future, topic, e.args[0])
        return future

    @property
    def record_max(self) -> int:
        """The largest record (in bytes, with some 100 around it) that this producer sends."""
        return int(self._config.get("message.max.bytes", CLIENT_RECORD_MAX))

    async def close(self) -> None:
        """Wait (up to 5 s) for records in flight, then stop."""
        left = await asyncio.to_thread(self._producer.flush, 5.0)
        if left:
            log.error("%d records of the internal topics were not acknowledged before the stop", left)
        self._stopping = True
        await asyncio.to_thread(self._thread.join)

    def _poll(self) -> None:
        while not self._stopping:
            try:
                self._producer.poll(POLL_S)
            except KafkaException as e:  # a fatal error, which `_on_error` has been told, too
                log.debug("the producer of the internal topics cannot be polled: %s", e)
                time.sleep(POLL_S)
            for failed in [*self._failed]:
                failed.poll(0)
                if not len(failed):
                    self._failed.remove(failed)

    def _on_error(self, error: KafkaError) -> None:
        if error.code() == KafkaError._FATAL:  # noqa: SLF001 - librdkafka's local error codes are spelled so
            log.error(
                "the producer of the internal topics failed for good, starting a new one: %s", error.str()
            )
            self._failed.append(self._producer)
            self._producer = Producer(self._config)
        else:
            _log_client_error("writing the internal topics", error, self._config)


def _settle(future: asyncio.Future[None], topic: str, error: object) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(None)
        return
    text = error.str() if isinstance(error, KafkaError) else str(error)
    if isinstance(error, KafkaError) and error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
        future.set_exception(RecordTooLarge(f"cannot write to topic {topic}: {text}"))
        return
    late = isinstance(error, KafkaError) and error.code() == KafkaError._MSG_TIMED_OUT  # noqa: SLF001
    future.set_exception((NotInTime if late else LogError)(f"cannot write to topic {topic}: {text}"))


OnRecord = Callable[[str, bytes | None, int], None]
"""Gets key, value and timestamp (epoch ms) of each record, in the event loop, in order per partition."""


class KafkaBasedLog:
    """One topic, read whole. `start` returns when all its records have been handed over.

    `transactions`: others write to it in transactions. After the last marker only a fetch that finds
    nothing shows the end, so such fetches must not wait long. `group`: a group that the client's user may describe.
    """

    def __init__(
        self,
        topic: str,
        client_config: Mapping[str, Any],
        on_record: OnRecord,
        *,
        transactions: bool = False,
        admin: AdminClient | None = None,
        group: str | None = None,
    ) -> None:
        self.topic = topic
        self._group = group or f"klamm-log-{topic}"
        self._client_config = dict(client_config)
        self._fetch_wait_ms = _SHORT_FETCH_MS if transactions else _FETCH_MS
        self._on_record = on_record
        self._reached: dict[int, int] = {}
        self.consumed = -1
        """Offset behind the last record of partition 0, as Kafka's workers count it (markers do not); -1: none yet."""
        self.caught_up = False
        """Whether everything that was there at the start has been handed over."""
        self._progress = asyncio.Condition()
        self._stopping = False
        self._thread: threading.Thread | None = None
        self._admin = admin or make_admin(client_config)
        self._consumer: Consumer | None = None

    async def start(self) -> None:
        """Assign all partitions from the beginning, and read to the end or to an open transaction. Raises
        LogError.

        The open transaction may be that of a killed task, which this worker is about to start again.
        """
        loop = asyncio.get_running_loop()
        partitions = await self._partitions()
        self._reached = dict.fromkeys(partitions, 0)
        self._consumer = await asyncio.to_thread(self._make_consumer, partitions)
        self._thread = threading.Thread(
            target=self._read, args=(loop, self._consumer), name=f"log-{self.topic}", daemon=True
        )
        self._thread.start()
        await self.read_to_end(past_open=False)
        self.caught_up = True

    @property
    def partition_count(self) -> int:
        return len(self._reached)

    async def stop(self) -> None:
        self._stopping = True
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)

    async def read_to_end(self, timeout_s: float = ADMIN_TIMEOUT_S, *, past_open: bool = True) -> None:
        """Wait until every record that was acknowledged before this call has been handed over.

        Committed records may follow an open transaction, so this waits for its end; `past_open=False` leaves
        them out. Raises LogError when that takes too long.
        """
        isolation = IsolationLevel.READ_UNCOMMITTED if past_open else IsolationLevel.READ_COMMITTED
        try:
            async with asyncio.timeout(timeout_s):
                ends = await self._ends(isolation)
                async with self._progress:
                    await self._progress.wait_for(lambda: self._has_reached(ends))
        except TimeoutError:
            raise LogError(f"topic {self.topic} could not be read to its end in {timeout_s:g} s") from None

    def _has_reached(self, ends: Mapping[int, int]) -> bool:
        return all(self._reached[p] >= end for p, end in ends.items())

    async def _partitions(self) -> list[int]:
        """Returns the topic's partitions. Waits while the brokers do not know a new topic yet."""
        deadline = time.monotonic() + ADMIN_TIMEOUT_S
        while True:
            try:
                found = await asyncio.to_thread(self._admin.list_topics, self.topic, timeout=ADMIN_TIMEOUT_S)
            except KafkaException as e:
                raise LogError(f"cannot read topic {self.topic}: {e.args[0].str()}") from None
            metadata = found.topics[self.topic]
            if metadata.error is None:
                return sorted(metadata.partitions)
            if not _passes(metadata.error) or time.monotonic() > deadline:
                raise LogError(f"cannot read topic {self.topic}: {metadata.error.str()}")
            await asyncio.sleep(RETRY_S)

    async def _ends(self, isolation: IsolationLevel) -> dict[int, int]:
        """Returns the end of each partition. Waits for a partition without a leader (just created, broker
        restarting).
        """
        while True:
            try:
                return await asyncio.to_thread(self._ask_for_ends, isolation)
            except KafkaException as e:
                error = e.args[0]
                if not _passes(error):
                    raise LogError(f"cannot read the end of topic {self.topic}: {error.str()}") from None
                await asyncio.sleep(RETRY_S)
                if error.code() in _OTHER_LEADER:
                    await asyncio.to_thread(self._look_for_leader)

    def _look_for_leader(self) -> None:
        try:
            self._admin.list_topics(self.topic, timeout=RETRY_S)
        except KafkaException as e:
            log.debug("topic %s: its leader is not known: %s", self.topic, e.args[0].str())

    def _ask_for_ends(self, isolation: IsolationLevel) -> dict[int, int]:
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        wanted = {TopicPartition(self.topic, p): latest for p in self._reached}
        futures = self._admin.list_offsets(wanted, isolation_level=isolation, request_timeout=ADMIN_TIMEOUT_S)
        return known_ends(futures, ADMIN_TIMEOUT_S)

    def _make_consumer(self, partitions: Sequence[int]) -> Consumer:
        consumer = Consumer(
            {
                **self._client_config,
                # librdkafka insists on a name, and asks for its coordinator; no group ever comes to be.
                "group.id": self._group,
                "enable.auto.commit": False,
                "enable.partition.eof": True,  # tells that trailing transaction markers were passed
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": self._fetch_wait_ms,
                "fetch.error.backoff.ms": _FETCH_RETRY_MS,
                "error_cb": self._on_error,
                **_QUIET,
            }
        )
        with contextlib.suppress(KafkaException):
            # A consumer that does not know the leaders yet looks again after half a second.
            consumer.list_topics(self.topic, timeout=ADMIN_TIMEOUT_S)
        # An offset needs no question to the broker, one for each partition; a log that begins later resets it.
        consumer.assign([TopicPartition(self.topic, p, 0) for p in partitions])
        return consumer

    def _read(self, loop: asyncio.AbstractEventLoop, consumer: Consumer) -> None:
        """Hand batches over to the loop until stopped: the code of the consumer thread."""
        try:
            while not self._stopping:
                # The first record at once, then all that is there: consume() alone would wait for a full batch.
                first = consumer.poll(POLL_S)
                if first is not None:
                    messages = [first, *consumer.consume(POLL_RECORDS, 0)]
                    loop.call_soon_threadsafe(self._hand_over, messages)
        except RuntimeError as e:
            # The loop is closed (the worker ends without stop()), so nobody takes the records.
            log.debug("topic %s is not read any more: %s", self.topic, e)
        finally:
            consumer.close()

    def _hand_over(self, messages: Sequence[Message]) -> None:
        for message in messages:
            error, partition, offset = message.error(), message.partition(), message.offset()
            if partition is None or offset is None:
                log.warning("reading topic %s: %s", self.topic, error.str() if error else "no partition")
            elif error is None:
                self._record(message, f"{self.topic}-{partition}@{offset}")
                self._reached[partition] = offset + 1
                if partition == 0:
                    self.consumed = offset + 1
            elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - spelled so by librdkafka
                self._reached[partition] = offset
            else:
                log.warning("reading topic %s: %s", self.topic, error.str())
        self._notifier = asyncio.ensure_future(self._notify())

    def _record(self, message: Message, where: str) -> None:
        key = message.key()
        try:
            if key is None:
                log.error("ignoring record %s: it has no key", where)
            else:
                self._on_record(key.decode(), message.value(), message.timestamp()[1])
        except Exception:
            # One unreadable record must not stop the log; the sentence says which one it is.
            log.exception("ignoring record %s", where)

    def _on_error(self, error: KafkaError) -> None:
        _log_client_error(f"reading topic {self.topic}", error, self._client_config)

    async def _notify(self) -> None:
        async with self._progress:
            self._progress.notify_all()


def known_ends(futures: Mapping[TopicPartition, Future[Any]], timeout_s: float) -> dict[int, int]:
    """Returns the ends from an admin client (librdkafka's -1001: the connection ended). Blocks. Raises KafkaException."""
    ends = {each.partition: f.result(timeout_s).offset for each, f in futures.items()}
    if any(end < 0 for end in ends.values()):
        raise KafkaException(KafkaError(KafkaError._TRANSPORT, "the connection ended before the answer"))  # noqa: SLF001
    return ends


def _passes(error: KafkaError) -> bool:
    """Returns whether waiting may help: a broker that restarts, a topic that was just created."""
    return error.retriable() or error.code() < _LOCAL_BELOW or error.code() in _WAIT_FOR


def _log_client_error(what: str, error: KafkaError, config: Mapping[str, Any]) -> None:
    said = error.str()
    if not LOGINS.take(said, config) and not OUTAGES.take(said, config.get("bootstrap.servers", "")):
        # `broker_outages` tells of an outage; that no broker is left is an error of its own, told once per outage.
        connection = error.code() in {KafkaError._TRANSPORT, KafkaError._RESOLVE}  # noqa: SLF001 - spelled so
        log.log(logging.DEBUG if connection else logging.WARNING, "%s: %s", what, said)
