"""Reading a dead letter topic up to its present end, with librdkafka. Blocks."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, TopicPartition

from klamm.dlq.letters import Letter
from klamm_base.errors import KlammError

_BATCH: Final = 500
_STEP_S: Final = 0.5
_ANSWER_S: Final = 10.0
# A broker that sends nothing for so long while we read is gone.
_SILENCE_STEPS: Final = 60


def ranges(consumer: Consumer, topic: str) -> dict[int, tuple[int, int]]:
    """Return partitions, each with its first offset and its end. Raises KlammError when there is no such topic."""
    found = consumer.list_topics(timeout=_ANSWER_S).topics.get(topic)  # all: to ask for one might create it
    if found is None:
        raise KlammError(f"there is no topic {topic}")
    return {
        partition: consumer.get_watermark_offsets(TopicPartition(topic, partition), _ANSWER_S)
        for partition in sorted(found.partitions)
    }


def committed(consumer: Consumer, topic: str, partitions: Mapping[int, tuple[int, int]]) -> dict[int, int]:
    """Return the group's offset in each partition; the partition's beginning where the group has committed nothing."""
    asked = [TopicPartition(topic, p) for p in partitions]
    return {
        p.partition: max(p.offset, partitions[p.partition][0])
        for p in consumer.committed(asked, timeout=_ANSWER_S)
    }


def letters(
    consumer: Consumer,
    topic: str,
    starts: Mapping[int, int],
    ends: Mapping[int, int],
    stop: threading.Event | None = None,
) -> Iterator[list[Letter]]:
    """Yield the dead letters from `starts` to before `ends`, in batches. The consumer must report ends of partitions
    (`enable.partition.eof`): markers of transactions are offsets without records. `stop` ends it early.
    """
    left = {p for p, end in ends.items() if starts[p] < end}
    consumer.assign([TopicPartition(topic, p, starts[p]) for p in left])
    silent = 0
    while left and not (stop is not None and stop.is_set()):
        messages = _what_there_is(consumer)
        silent = 0 if messages else silent + 1
        if silent > _SILENCE_STEPS:
            raise KlammError(f"the broker has stopped answering while {topic} was read")
        batch = []
        for message in messages:
            partition, offset = message.partition() or 0, message.offset() or 0
            if _is_end(message):
                left.discard(partition)
                continue
            if partition in left and offset < ends[partition]:
                batch.append(_letter(message))
            if offset >= ends[partition] - 1:
                left.discard(partition)
        if batch:
            yield batch


def _what_there_is(consumer: Consumer) -> list[Any]:
    """Return the messages that are there already: `consume` alone would wait for a full batch."""
    first = consumer.poll(_STEP_S)
    return [] if first is None else [first, *consumer.consume(_BATCH - 1, 0)]


def _is_end(message: Any) -> bool:
    error = message.error()
    if error is None:
        return False
    if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name
        return True
    raise KlammError(f"cannot read {message.topic()}: {error.str()}")


def _letter(message: Any) -> Letter:
    kind, timestamp = message.timestamp()
    place = (message.topic(), message.partition(), message.offset())
    return Letter.of(
        place, timestamp if kind else None, message.key(), message.value(), message.headers() or []
    )
