"""Tombstones for rows that a snapshot no longer found: keys that their topic knew before it, and not since.

The topic itself is the list of known keys. `marks` notes its end before the snapshot's first record. When all records of the
snapshot are there, `Sweep` reads each partition twice: from the mark on, for the keys that the snapshot wrote, and up to the mark,
for keys with a value that it did not write. Each of these gets a record without a value, with the very bytes of its key, in
its partition. Converters and transforms have no part in it. Nothing of the binlog is handed over before that, so no tombstone
comes after a row that was inserted again.

A key that was not written proves nothing if a row may have been left out on its way: by a filter, a dead letter topic, a failure mode.
So a topic gets tombstones only if it got as many keys as the snapshot read rows of its table.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from klamm_base.clientconfig import translate
from klamm_connectors.mysql.key_set import KeySet
from klamm_connectors.mysql.keys.tombstones import Tombstones
from klamm_connectors.mysql.position import Position
from klamm_plugins.errors import RetriableError

log = logging.getLogger(__name__)

_ANSWER_S: Final = 20.0
_STEP_S: Final = 0.5
_ASK_S: Final = 1.0  # between questions for the committed offset
_MANY: Final = 5000
_SILENCE_S: Final = 30.0


def consumer_of(settings: Tombstones, isolation: str) -> Consumer:
    """Returns a consumer that reads the partitions that it is told."""
    own = {
        "group.id": "klamm-vanished-rows",  # required; nothing is ever committed to it
        "enable.auto.commit": "false",
        "auto.offset.reset": "error",
        "isolation.level": isolation,
    }
    found = translate({**settings.consumer, **own}, "consumer", lenient=True).config
    return Consumer({**found, "enable.partition.eof": "true"})


def marks(settings: Tombstones, topics: Collection[str]) -> str:
    """Returns the present ends of topics, as a text for the offset.

    Topics that do not exist have no marks, and the log names one. Raises RetriableError when the cluster does not answer.
    """
    consumer = consumer_of(settings, "read_committed")
    try:
        known = consumer.list_topics(timeout=_ANSWER_S).topics
        missing = sorted(topic for topic in topics if topic not in known)
        if missing:
            log.warning(
                "there is no topic %s (%d such topics): if a transform has renamed it, rows of its table that have vanished keep "
                "their last records",
                missing[0], len(missing),
            )  # fmt: skip
        found = {
            topic: {"ends": _ends(consumer, topic, list(known[topic].partitions))}
            for topic in topics
            if topic in known
        }
    except KafkaException as e:
        raise RetriableError(f"the topics' ends before the snapshot, for {settings.what}: {e.args[0]}") from e
    finally:
        consumer.close()
    return json.dumps({topic: one for topic, one in found.items() if one["ends"]}) if found else ""


def counted(text: str, rows: Mapping[str, int]) -> str:
    """Returns the marks with the number of rows that the snapshot read for each topic."""
    topics = json.loads(text)
    return json.dumps({topic: {**one, "rows": rows.get(topic, 0)} for topic, one in topics.items()})


def _ends(consumer: Consumer, topic: str, partitions: list[int]) -> dict[str, int]:
    """Returns the end of each partition; nothing for a topic without records."""
    places = [TopicPartition(topic, number) for number in partitions]
    found = [consumer.get_watermark_offsets(place, timeout=_ANSWER_S) for place in places]
    if all(low == high for low, high in found):
        return {}
    return {str(place.partition): high for place, (_, high) in zip(places, found, strict=True)}


class Sweep:
    """Writes the tombstones of one snapshot, step by step. For one thread."""

    def __init__(self, settings: Tombstones, text: str) -> None:
        self._settings = settings
        self._topics: dict[str, Any] = json.loads(text)
        # Another writer's open transaction must not hide rows that the snapshot wrote.
        self._fresh = consumer_of(settings, "read_uncommitted")
        self._known = consumer_of(settings, "read_committed")
        self._producer = Producer(
            translate({**settings.producer, "enable.idempotence": "true"}, "producer", lenient=True).config
        )
        self._refused: list[KafkaError] = []
        self.written = 0
        self._work = self._all()

    def close(self) -> None:
        self._fresh.close()
        self._known.close()

    def step(self, seconds: float) -> bool:
        """Works for about so long. Returns True when all is done. Raises RetriableError."""
        end = time.monotonic() + seconds
        try:
            return all(time.monotonic() <= end for _ in self._work)
        except KafkaException as e:
            raise RetriableError(f"{self._settings.what}: {e.args[0]}") from e

    def _all(self) -> Iterator[None]:
        for topic, one in self._topics.items():
            partitions = self._fresh.list_topics(topic, timeout=_ANSWER_S).topics[topic].partitions
            ends = {number: one["ends"].get(str(number), 0) for number in partitions}
            fresh = KeySet()  # of all partitions: their number may have grown, and keys have moved
            for number, mark in ends.items():
                for message in self._messages(self._fresh, topic, number, mark, None):
                    if message is None:
                        yield
                    elif (key := message.key()) is not None:
                        fresh.add(key)
            if len(fresh) != one.get("rows"):
                log.warning(
                    "topic %s got %d keys for the %s rows of its table: a transform may have renamed the topic or dropped rows, "
                    "rows may be in a dead letter topic, or share a key. Rows that have vanished keep their last records",
                    topic, len(fresh), one.get("rows", "uncounted"),
                )  # fmt: skip
                continue
            for number, mark in ends.items():
                yield from self._bury(topic, number, mark, fresh)
        self._flush()
        log.info("%d rows have vanished since an earlier snapshot: their keys have tombstones", self.written)

    def _bury(self, topic: str, number: int, mark: int, fresh: KeySet) -> Iterator[None]:
        gone: dict[bytes, None] = {}
        for message in self._messages(self._known, topic, number, None, mark):
            if message is None:
                yield
                continue
            key = message.key()
            if key is None or key in fresh:
                continue
            if message.value() is None:
                gone.pop(key, None)
            else:
                gone[key] = None
        for key in gone:
            self._write(topic, number, key)
            yield
        self._flush()

    def _messages(
        self, consumer: Consumer, topic: str, number: int, begin: int | None, end: int | None
    ) -> Iterator[Message | None]:
        """Yields the records of a range, and None after each read. Without `end`, all that are there by now."""
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=_ANSWER_S)
        stop = high if end is None else min(end, high)
        place = low if begin is None else max(low, begin)
        if place >= stop:
            return
        consumer.assign([TopicPartition(topic, number, place if place > low else OFFSET_BEGINNING)])
        heard = time.monotonic()
        while True:
            for message in consumer.consume(_MANY, timeout=0.5):
                heard = time.monotonic()
                error = message.error()
                if error is not None and error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001  its public name
                    return
                if error is not None:
                    raise KafkaException(error)
                if (message.offset() or 0) >= stop:
                    return
                yield message
            if time.monotonic() - heard > _SILENCE_S:
                raise RetriableError(
                    f"{self._settings.what}: {topic}-{number} was not readable for {_SILENCE_S:.0f} s"
                )
            yield None

    def _write(self, topic: str, number: int, key: bytes) -> None:
        while True:
            try:
                self._producer.produce(topic, None, key, number, on_delivery=self._delivered)
                break
            except BufferError:
                self._producer.poll(0.5)
        self._producer.poll(0)
        self.written += 1

    def _delivered(self, error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            self._refused.append(error)

    def _flush(self) -> None:
        left = self._producer.flush(_ANSWER_S)
        if self._refused:
            raise KafkaException(self._refused[0])
        if left:
            raise RetriableError(f"{self._settings.what}: {left} tombstones were not acknowledged in time")


class VanishedRows:
    """The tombstones after the repeated snapshots of one task. For one thread."""

    def __init__(self, settings: Tombstones | None, committed: Callable[[], dict[str, Any] | None]) -> None:
        self._settings = settings
        self._committed = committed
        self._sweep: Sweep | None = None
        self._asked_at = 0.0
        self.handed_over = True
        """False while the last snapshot has brought no record, which would carry its end."""

    def before(self, topics: Collection[str]) -> str:
        """Returns the marks before a repeated snapshot of these topics' tables; empty where there can be no tombstones."""
        self.handed_over = False
        if self._settings is None:
            log.warning(
                "the tables are read again: rows that vanished since keep their last records in the topics. "
                "snapshot.tombstones writes tombstones for them, unless tombstones.on.delete is false or skipped.operations has "
                "d; it needs signal.kafka.bootstrap.servers or schema.history.internal.kafka.bootstrap.servers"
            )
            return ""
        return marks(self._settings, topics)

    def step(self, position: Position) -> bool:
        """Goes on with the tombstones, once all records of the snapshot that ends at `position` are there. True: done."""
        if self._settings is None:
            log.warning("snapshot.tombstones is off now: rows that vanished keep their last records")
            return True
        if self._sweep is None:
            if not self._has_arrived(position):
                return False
            self._sweep = Sweep(self._settings, position.sweep)
        try:
            done = self._sweep.step(_STEP_S)
        except BaseException:
            self.close()
            raise
        if done:
            self.close()
        return done

    def close(self) -> None:
        """Ends a comparison under way; the next step begins it again."""
        if self._sweep is not None:
            self._sweep.close()
            self._sweep = None

    def _has_arrived(self, position: Position) -> bool:
        """Returns True when the offset of the snapshot's last record is committed, so all of its records are in their topics."""
        if not self.handed_over:
            return True  # all tables are empty
        now = time.monotonic()
        if now - self._asked_at < _ASK_S:
            return False
        self._asked_at = now
        return self._committed() == position.to_offset()
