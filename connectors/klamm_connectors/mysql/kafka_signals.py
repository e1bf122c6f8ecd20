"""Signals from a topic: partition 0, the connector's prefix as the key, JSON as the value. For one thread."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from typing import Any, Final

from confluent_kafka import OFFSET_STORED, Consumer, KafkaException, Message, TopicPartition

from klamm_base.clientconfig import translate
from klamm_connectors.mysql.incremental import Incremental
from klamm_connectors.mysql.keys.signals import KafkaSignals

log = logging.getLogger(__name__)

_POLL_MAX: Final = 100  # signals of one look


class SignalTopic:
    """Reads the topic now and then, and hands signals to the snapshots.

    The connector's offsets have the place behind the last signal beside what follows from it. The group's offset moves there
    once the connector's is committed (`kept` returns the place that it has), so no signal is lost. A signal may be taken
    twice; its tables are then read twice at most.
    """

    def __init__(
        self, settings: KafkaSignals, prefix: str, interval_s: float, kept: Callable[[], int]
    ) -> None:
        self._prefix = prefix
        self._topic = settings.topic
        self._interval_s = interval_s
        self._kept = kept
        self._next = 0.0
        own = {
            "group.id": settings.group,
            "enable.auto.commit": "false",
            "auto.offset.reset": "earliest",
            "metadata.max.age.ms": "5000",  # a topic that is made later is seen soon
        }
        self._consumer = Consumer(translate({**settings.consumer, **own}, "consumer", lenient=True).config)
        self._consumer.assign([TopicPartition(settings.topic, 0, kept() or OFFSET_STORED)])

    def close(self) -> None:
        self._consumer.close()

    def take(self, snapshots: Incremental) -> None:
        """Hands over the signals that have come since the last look, if a look is due."""
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + self._interval_s
        if snapshots.taken and snapshots.taken == self._kept():
            self._commit(snapshots)
        for message in self._consumer.consume(_POLL_MAX, timeout=0.05):
            try:
                self._take(message, snapshots)
            except BaseException:  # the server cannot be asked for its tables: from here on again
                self._consumer.seek(TopicPartition(self._topic, 0, message.offset() or 0))
                raise

    def _take(self, message: Message, snapshots: Incremental) -> None:
        error = message.error()
        if error is not None:
            log.warning("signals of topic %s: %s", self._topic, error.str())
            return
        key, offset = (message.key() or b"").decode("utf-8", "replace"), message.offset() or 0
        if key == self._prefix:
            self._signal(message.value(), snapshots, offset)
        else:
            log.info("signal %d of topic %s is for %r, not for %r", offset, self._topic, key, self._prefix)
        snapshots.took(offset + 1)

    def _commit(self, snapshots: Incremental) -> None:
        try:
            self._consumer.commit(
                offsets=[TopicPartition(self._topic, 0, snapshots.taken)], asynchronous=False
            )
        except KafkaException as e:
            log.warning("signals of topic %s: the group's offset was not committed: %s", self._topic, e)
        else:
            snapshots.took(0)

    def _signal(self, value: bytes | None, snapshots: Incremental, offset: int) -> None:
        try:
            found: Any = json.loads(value or b"")
            name, kind, data = found.get("id", str(offset)), found["type"], found.get("data")
        except (ValueError, KeyError, AttributeError, TypeError) as e:
            log.warning(
                'signal %s of topic %s is left out: it is not {"type": ..., "data": ...} (%s)',
                offset,
                self._topic,
                e,
            )
            return
        snapshots.signalled(str(name), str(kind), json.dumps(data) if isinstance(data, dict) else data)
