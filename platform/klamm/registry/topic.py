"""The registry's topic: made, read whole in a thread, written in transactions.

Records are taken over in the event loop, in their order. A reader sees committed records only. A writer's transactions are fenced:
once another registry has become the writer, nothing of an earlier one gets in.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from klamm_base.errors import ConfigError, KlammError
from klamm_base.refused_logins import LOGINS

log = logging.getLogger(__name__)

POLL_S: Final = 0.2
TAKEN_MAX: Final = 500
"""Records that are handed to the event loop at a time."""
_PASSING: Final = (
    "_TRANSPORT", "_ALL_BROKERS_DOWN", "_TIMED_OUT", "_TIMED_OUT_QUEUE", "_RESOLVE", "_AUTHENTICATION", "_SSL", "_WAIT_COORD",
    "LEADER_NOT_AVAILABLE", "NOT_LEADER_FOR_PARTITION", "REQUEST_TIMED_OUT", "REPLICA_NOT_AVAILABLE", "BROKER_NOT_AVAILABLE",
    "NETWORK_EXCEPTION", "COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR", "KAFKA_STORAGE_ERROR",
    "FENCED_LEADER_EPOCH", "UNKNOWN_LEADER_EPOCH", "OFFSET_NOT_AVAILABLE", "GROUP_AUTHORIZATION_FAILED",
)  # fmt: skip
PASSING: Final = frozenset(getattr(KafkaError, name) for name in _PASSING)
"""Errors of reading that librdkafka gets over by itself; the group's is of a coordinator that no reader needs."""
FENCED: Final = frozenset(getattr(KafkaError, name) for name in ("_FATAL", "FENCED_INSTANCE_ID"))
TRANSACTION_S: Final = 30.0
ATTEMPTS_S: Final = 60.0
ASK_S: Final = 15.0
LEADER_S: Final = 3.0
"""The longest time in which brokers tell who leads: a write waits for that."""
_AWAY: Final = frozenset(
    getattr(KafkaError, name) for name in ("_TRANSPORT", "_ALL_BROKERS_DOWN", "_TIMED_OUT")
)
WRITER_BYTES_MAX: Final = 8 << 20
BATCH_BYTES: Final = 1_000_000
GONE: Final = "none"
"""Stands for the id of a topic that is not there."""
NOOP: Final = b'{"keytype":"NOOP","magic":0}'

OnRecord = Callable[[int, bytes | None, bytes | None], None]
"""Gets offset, key and value of each record, in the event loop."""


class TopicError(KlammError):
    """The topic cannot be read or written now."""


async def ensure(admin: AdminClient, topic: str, replicas: int) -> None:
    """Makes the topic where it is not; refuses one that would lose schemas. Raises TopicError and ConfigError."""
    try:
        metadata = await asyncio.to_thread(admin.list_topics, timeout=ASK_S)
        if topic not in metadata.topics:
            factor = min(replicas, len(metadata.brokers))
            if factor < replicas:
                log.warning(
                    "topic %s gets %d replicas instead of %d: the cluster has no more brokers",
                    topic,
                    factor,
                    replicas,
                )
            new = NewTopic(topic, 1, factor, config={"cleanup.policy": "compact"})
            with contextlib.suppress(_Exists):
                await _made(admin, new)
    except KafkaException as e:
        raise TopicError(f"topic {topic}: {e.args[0].str()}") from e
    policy = await _config(admin, topic, "cleanup.policy")
    known = metadata.topics.get(topic)
    if known is not None and len(known.partitions) != 1:
        raise ConfigError(
            f"topic {topic} has {len(known.partitions)} partitions; a registry's topic has one",
            key="kafkastore.topic",
        )
    if policy != "compact":
        raise ConfigError(
            f"topic {topic} has cleanup.policy={policy}, by which schemas get lost; set it to compact",
            key="kafkastore.topic",
        )


async def record_bytes_max(admin: AdminClient, topic: str) -> int:
    """Returns the largest record that the topic and a writer take. Raises TopicError."""
    return min(int(await _config(admin, topic, "max.message.bytes")), WRITER_BYTES_MAX)


async def _config(admin: AdminClient, topic: str, key: str) -> str:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    try:
        asked = admin.describe_configs([resource], request_timeout=ASK_S)[resource]
        return str((await asyncio.wrap_future(asked))[key].value)
    except KafkaException as e:
        raise TopicError(f"topic {topic}: {e.args[0].str()}") from e


class _Exists(Exception):
    pass


async def _made(admin: AdminClient, topic: NewTopic) -> None:
    try:
        await asyncio.wrap_future(admin.create_topics([topic], request_timeout=ASK_S)[topic.topic])
    except KafkaException as e:
        if e.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
            raise _Exists from None
        raise


class TopicReader:
    """Reads the topic from its beginning, for ever. `reached` is the offset behind the last record that was taken over."""

    def __init__(self, topic: str, client: Mapping[str, Any], group: str, on_record: OnRecord) -> None:
        self._topic, self._group = topic, group
        self._on_record = on_record
        self._client = dict(client)
        self._loop = asyncio.get_running_loop()
        self._moved = asyncio.Condition()
        self._stopping = False
        self._said = ""
        self._away = False
        self._thread = threading.Thread(target=self._run, name="schemas-reader", daemon=True)
        self.at_end = asyncio.Event()
        self.reached = 0
        self.failure: Exception | None = None

    def start(self) -> None:
        self._thread.start()

    async def wait_for_end(self) -> None:
        """Waits until all records that were there at the start are taken over. Raises TopicError."""
        await self._wait(self.at_end.is_set)

    async def wait_for(self, offset: int) -> None:
        """Waits until the record at this offset was taken over. Raises TopicError."""
        await self._wait(lambda: self.reached > offset)

    async def _wait(self, done: Callable[[], bool]) -> None:
        async with self._moved:
            await self._moved.wait_for(lambda: done() or self.failure is not None)
        if self.failure is not None:
            raise TopicError(f"topic {self._topic} is not read any more: {self.failure}")

    async def stop(self) -> None:
        self._stopping = True
        if self._thread.is_alive():
            await asyncio.to_thread(self._thread.join)

    def answered(self) -> None:
        """Takes in that brokers answer, which is said if it was said that none does."""
        if self._away:
            self._away = False
            self._said = ""
            log.info("topic %s: brokers answer again", self._topic)

    def _note(self, error: KafkaError) -> None:
        """Says once that no broker answers: the consumer tells so at once, where requests wait for their time."""
        refused = LOGINS.take(error.str(), self._client)
        if error.code() == KafkaError._ALL_BROKERS_DOWN and not (refused or self._away):  # noqa: SLF001 - librdkafka's own codes are spelled so
            self._away = True
            log.warning("topic %s: no broker answers", self._topic)

    def _run(self) -> None:
        settings = _reading(self._client, self._group, "read_committed")
        consumer = Consumer({**settings, "error_cb": self._note})
        try:
            consumer.assign([TopicPartition(self._topic, 0, 0)])
            while not self._stopping:
                self._take(consumer)
        except Exception as e:
            log.exception("topic %s cannot be read", self._topic)
            self._loop.call_soon_threadsafe(self._fail, e)
        finally:
            consumer.close()

    def _take(self, consumer: Consumer) -> None:
        taken: list[tuple[int, bytes | None, bytes | None]] = []
        end = False
        message = consumer.poll(POLL_S)
        while message is not None:
            error = message.error()
            if error is None:
                offset = message.offset()
                assert offset is not None, "of a record"
                taken.append((offset, _bytes(message.key()), _bytes(message.value())))
            elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - librdkafka's own codes are spelled so
                end = True
            elif error.code() not in PASSING:
                raise KafkaException(error)
            elif not LOGINS.take(error.str(), self._client) and self._said != error.str():
                self._said = error.str()
                log.warning("topic %s: %s", self._topic, error.str())
            message = consumer.poll(0) if len(taken) < TAKEN_MAX else None
        if taken or end:
            self._loop.call_soon_threadsafe(self._over, taken, end)

    def _over(self, taken: Sequence[tuple[int, bytes | None, bytes | None]], end: bool) -> None:
        for offset, key, value in taken:
            self._on_record(offset, key, value)
            self.reached = offset + 1
        if end:
            self.at_end.set()
        if taken or end:
            self._wake()

    def _fail(self, error: Exception) -> None:
        self.failure = error
        self._wake()

    def _wake(self) -> None:
        async def notify() -> None:
            async with self._moved:
                self._moved.notify_all()

        task = self._loop.create_task(notify())
        task.add_done_callback(lambda done: done.exception() if not done.cancelled() else None)


class Attempts:
    """Reads all that was ever written to the topic, also in transactions that were aborted."""

    def __init__(self, topic: str, client: Mapping[str, Any], group: str) -> None:
        self._topic, self._group, self._client = topic, group, dict(client)
        self._next = 0

    async def read(self) -> list[tuple[bytes | None, bytes | None]]:
        """Returns keys and values since the last time. Raises TopicError."""
        try:
            return await asyncio.to_thread(self._read)
        except KafkaException as e:
            raise TopicError(f"topic {self._topic}: {e.args[0].str()}") from e

    def _read(self) -> list[tuple[bytes | None, bytes | None]]:
        found: list[tuple[bytes | None, bytes | None]] = []
        end = time.monotonic() + ATTEMPTS_S
        consumer = Consumer(_reading(self._client, self._group, "read_uncommitted"))
        try:
            consumer.assign([TopicPartition(self._topic, 0, self._next)])
            while time.monotonic() < end:
                message = consumer.poll(POLL_S)
                error = message.error() if message is not None else None
                if error is not None and error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - librdkafka's own codes are spelled so
                    return found
                if error is not None and error.code() not in PASSING:
                    raise KafkaException(error)
                if message is not None and error is None:
                    found.append((_bytes(message.key()), _bytes(message.value())))
                    self._next = (message.offset() or 0) + 1
        finally:
            consumer.close()
        raise TopicError(f"topic {self._topic} could not be read to its end within {ATTEMPTS_S:g} s")


def _reading(client: Mapping[str, Any], group: str, isolation: str) -> dict[str, Any]:
    """Returns the settings of a consumer that is no member of a group."""
    return {
        **client,
        "group.id": group,  # librdkafka asks for its coordinator, which needs a right; no member
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "error",
        "isolation.level": isolation,
        "fetch.wait.max.ms": 100,
    }


class TopicWriter:
    """Writes to the topic in transactions. `begin` fences every earlier writer with this id."""

    def __init__(
        self, topic: str, client: Mapping[str, Any], transactional_id: str, bytes_max: int = WRITER_BYTES_MAX
    ) -> None:
        self._topic = topic
        self._producer = Producer(
            {
                **client,
                "transactional.id": transactional_id,
                "linger.ms": 0,
                "acks": "all",
                "message.max.bytes": WRITER_BYTES_MAX,
                "batch.size": min(BATCH_BYTES, bytes_max),  # brokers measure batches
            }
        )

    async def begin(self) -> None:
        """Takes over the topic, after transactions of earlier writers have ended. Raises TopicError."""
        await self._do(self._producer.init_transactions, TRANSACTION_S)

    async def write(self, records: Sequence[tuple[bytes, bytes | None]]) -> int:
        """Writes all records or none; returns the offset of the last. Raises TopicError."""
        offsets: list[int] = []
        problems: list[KafkaError] = []

        def delivered(error: KafkaError | None, message: Any) -> None:
            if error is not None:
                problems.append(error)
            else:
                offsets.append(message.offset())

        def write() -> None:
            self._producer.begin_transaction()
            for key, value in records:
                self._producer.produce(self._topic, key=key, value=value, partition=0, on_delivery=delivered)
            self._producer.commit_transaction(TRANSACTION_S)

        try:
            await self._do(write)
        except TopicError as e:
            await self._abort()
            if problems:
                raise TopicError(f"cannot write to topic {self._topic}: {problems[0].str()}") from e
            raise
        return max(offsets)

    async def _abort(self) -> None:
        try:
            await self._do(self._producer.abort_transaction, TRANSACTION_S)
        except TopicError as e:
            log.debug("the transaction cannot be aborted, a fenced or lost one needs no abort: %s", e)

    async def _do(self, call: Callable[..., Any], *arguments: Any) -> None:
        try:
            await asyncio.to_thread(call, *arguments)
        except KafkaException as e:
            raise TopicError(f"cannot write to topic {self._topic}: {e.args[0].str()}") from e


class Election:
    """Chooses the registry that writes: the member of a consumer group that has the topic's only partition.

    Calls `changed` in the event loop, and `failed` when it can take no part any more. The member's client id is its address, by which the others find it.
    """

    def __init__(
        self,
        topic: str,
        client: Mapping[str, Any],
        group: str,
        url: str,
        *,
        changed: Callable[[bool], None],
        failed: Callable[[Exception], None],
    ) -> None:
        self._topic, self._group = topic, group
        self._loop = asyncio.get_running_loop()
        self._changed, self._failed = changed, failed
        self._stopping = False
        self._said = ""
        self._config = {
            **client,
            "group.id": group,
            "client.id": url,
            "group.instance.id": url,  # who comes again at its address takes its place without waiting
            "enable.auto.commit": False,
            "auto.offset.reset": "latest",
            "partition.assignment.strategy": "cooperative-sticky",  # who joins disturbs no leader
            "session.timeout.ms": 6_000,  # the least that brokers allow by default
            "heartbeat.interval.ms": 1_500,
        }
        self._thread = threading.Thread(target=self._run, name="schemas-election", daemon=True)

    def start(self) -> None:
        self._thread.start()

    async def stop(self) -> None:
        self._stopping = True
        if self._thread.is_alive():
            await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        consumer = Consumer(self._config)

        def assigned(_: Consumer, partitions: list[TopicPartition]) -> None:
            if partitions:
                consumer.incremental_assign(partitions)
                consumer.pause(partitions)
                self._tell(leads=True)

        def revoked(_: Consumer, partitions: list[TopicPartition]) -> None:
            if partitions:
                consumer.incremental_unassign(partitions)
                self._tell(leads=False)

        try:
            consumer.subscribe([self._topic], on_assign=assigned, on_revoke=revoked, on_lost=revoked)
            while not self._stopping:
                message = consumer.poll(POLL_S)
                if message is not None and (error := message.error()) is not None:
                    self._note(error)
        except KafkaException as e:
            self._tell(leads=False)
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._failed, e)
        finally:
            consumer.close()

    def _tell(self, *, leads: bool) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._changed, leads)

    def _note(self, error: KafkaError) -> None:
        if (
            error.fatal() or error.code() in FENCED
        ):  # librdkafka's errors of messages do not say that they are fatal
            raise KafkaException(error)
        if not LOGINS.take(error.str(), self._config) and self._said != error.str():
            self._said = error.str()
            log.warning("group %s: %s", self._group, error.str())


async def id_of(admin: AdminClient, topic: str) -> str:
    """Returns the id of a topic, by which one that was made anew is known. Raises TopicError."""
    try:
        asked = admin.describe_topics(TopicCollection([topic]), request_timeout=ASK_S)[topic]
        return str((await asyncio.wrap_future(asked)).topic_id)
    except KafkaException as e:
        error = e.args[0]
        if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return GONE
        raise TopicError(f"topic {topic}: {error.str()}") from e


async def leader_of(admin: AdminClient, group: str) -> str | None:
    """Returns the address of the registry that writes; None while there is none. Raises TopicError when no broker answers."""
    try:
        future = admin.describe_consumer_groups([group], request_timeout=LEADER_S)[group]
        described = await asyncio.wrap_future(future)
    except KafkaException as e:
        if e.args[0].code() in _AWAY:
            raise TopicError(f"group {group}: {e.args[0].str()}") from e
        log.warning("group %s cannot be described: %s", group, e.args[0].str())
        return None
    for member in described.members:
        if member.assignment is not None and member.assignment.topic_partitions:
            return str(member.client_id)
    return None


def _bytes(value: Any) -> bytes | None:
    return None if value is None else bytes(value)
