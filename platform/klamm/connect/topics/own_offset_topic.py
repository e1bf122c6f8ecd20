"""A connector's own topic of source offsets (`offsets.storage.topic`): found or created, and read to its
end, blocking.

A task uses it for itself, the worker for its REST API. Only committed records are read, up to the high
watermark. Committed offsets may follow an open transaction, so the reader waits for its end, as Kafka
does.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec

from klamm.connect.topics.compacted_topics import TopicSettings, ensure_compacted_topics
from klamm.connect.topics.kafka_log import known_ends
from klamm.connect.topics.offset_state import OffsetState
from klamm_plugins.errors import ConnectError

log = logging.getLogger(__name__)

KEY: Final = "offsets.storage.topic"
_ASK_S: Final = 10.0
_STEP_S: Final = 0.02
_RETRY_S: Final = 0.2
# Errors of librdkafka itself (no connection, no leader known) are below zero.
_LOCAL_BELOW: Final = 0

T = TypeVar("T")


def storage_settings(worker: Mapping[str, str], topic: str) -> TopicSettings:
    """Returns the settings with which the worker creates its own offset topic, too."""
    return TopicSettings(
        name=topic,
        key=KEY,
        partitions=int(worker.get("offset.storage.partitions", "25")),
        replication_factor=int(worker.get("offset.storage.replication.factor", "3")),
    )


class OffsetTopic:
    """One topic. `wait` is called again and again during each wait; its exceptions end the wait."""

    def __init__(
        self,
        topic: TopicSettings,
        *,
        admin: AdminClient,
        make_consumer: Callable[[Mapping[str, Any]], Consumer],
        wait: Callable[[], None] = lambda: None,
    ) -> None:
        self._settings = topic
        self._topic = topic.name
        self._admin = admin
        self._make_consumer = make_consumer
        self._wait = wait
        self._reached: dict[int, int] = {}
        self._state = OffsetState()

    def ensure(self) -> None:
        """Create the topic if it is missing. Raises ConfigError for a topic that is not compacted, LogError."""
        ensure_compacted_topics(self._admin, [self._settings])

    def read_to_end(self, timeout_s: float = float("inf")) -> OffsetState:
        """Returns the present state of the topic. Raises ConnectError when it cannot be read (in time).

        Each call reads it anew: tasks ask once, when they start, while a kept consumer would go on asking the
        broker.
        """
        deadline = time.monotonic() + timeout_s
        self._state = OffsetState()
        consumer = self._open(deadline)
        try:
            ends = self._patiently(self._ends, deadline)
            while not all(self._reached[p] >= end for p, end in ends.items()):
                for message in consumer.consume(1000, _STEP_S):
                    self._take(message)
                self._go_on(deadline, "an open transaction in it may not have ended")
        finally:
            consumer.close()
        return self._state

    def _open(self, deadline: float) -> Consumer:
        partitions = self._patiently(self._partitions, deadline)
        consumer = self._make_consumer(
            {
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "enable.partition.eof": True,  # tells that trailing transaction markers were passed
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                # Only a fetch that finds nothing shows the end of a partition, so it must not take half a second.
                "fetch.wait.max.ms": 10,
            }
        )
        self._reached = dict.fromkeys(partitions, 0)
        # A consumer that does not know the leaders yet looks again after half a second.
        self._patiently(lambda: consumer.list_topics(self._topic, timeout=_ASK_S), deadline)
        consumer.assign([TopicPartition(self._topic, p, OFFSET_BEGINNING) for p in partitions])
        return consumer

    def _partitions(self) -> list[int]:
        metadata = self._admin.list_topics(self._topic, timeout=_ASK_S).topics[self._topic]
        if metadata.error is not None:
            raise KafkaException(metadata.error)
        return sorted(metadata.partitions)

    def _ends(self) -> dict[int, int]:
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        wanted = {TopicPartition(self._topic, p): latest for p in self._reached}
        found = self._admin.list_offsets(
            wanted, isolation_level=IsolationLevel.READ_UNCOMMITTED, request_timeout=_ASK_S
        )
        return known_ends(found, _ASK_S)

    def _patiently(self, ask: Callable[[], T], deadline: float) -> T:
        while True:
            try:
                return ask()
            except KafkaException as e:
                error: KafkaError = e.args[0]
                passes = error.retriable() or error.code() < _LOCAL_BELOW
                if not passes and error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise ConnectError(
                        f"The offsets topic {self._topic} cannot be read: {error.str()}"
                    ) from e
                self._go_on(deadline, error.str())
                time.sleep(_RETRY_S)

    def _go_on(self, deadline: float, why: str) -> None:
        self._wait()
        if time.monotonic() > deadline:
            raise ConnectError(f"The offsets topic {self._topic} could not be read to its end in time: {why}")

    def _take(self, message: Message) -> None:
        error, partition, offset = message.error(), message.partition(), message.offset()
        if partition is None or offset is None:
            log.warning("reading topic %s: %s", self._topic, error.str() if error else "no partition")
        elif error is None:
            self._reached[partition] = offset + 1
            key = message.key()
            if key is None:
                log.error("ignoring record %s-%d@%d: it has no key", self._topic, partition, offset)
            else:
                self._state.apply(key.decode(), message.value(), message.timestamp()[1])
        elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - spelled so by librdkafka
            self._reached[partition] = offset
        else:
            log.warning("reading topic %s: %s", self._topic, error.str())
