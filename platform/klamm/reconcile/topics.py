"""A topic as target: every record that it holds at the beginning of the reading, without aborted transactions."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import orjson

from klamm.reconcile.compare import Document
from klamm_base.errors import KlammError

QUIET_S: Final = 30.0
"""The time without any record before the end, after which we give up: the broker does not serve the partition."""
BATCH: Final = 10_000
ANSWER_S: Final = 10.0


def topic_documents(
    settings: Mapping[str, Any],
    topic: str,
    id_: Callable[[dict[str, Any]], tuple[str, bool]],
    of_text: Callable[[bytes], str],
) -> Iterator[Document]:
    """Yield records with a value, under `topic-partition-offset`.

    `id_` finds the id in a value that is a JSON object; where it finds none, `of_text` looks in the value as it is.
    Raises KlammError when the topic cannot be read.
    """
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    # No member of a group: it commits nothing
    config = {
        **settings, "group.id": "klamm-reconcile", "enable.auto.commit": False, "auto.offset.reset": "error",
        "isolation.level": "read_committed", "enable.partition.eof": True,
    }  # fmt: skip
    consumer = Consumer(config)
    try:
        found = consumer.list_topics(topic, timeout=ANSWER_S).topics[topic]
        if found.error is not None:
            raise KlammError(f"topic {topic} cannot be read: {found.error.str()}")
        left = _ends(settings, [TopicPartition(topic, number) for number in found.partitions])
        places = []
        for number, end in list(left.items()):
            first = consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=ANSWER_S)[0]
            if end > first:
                places.append(TopicPartition(topic, number, first))
            else:
                del left[number]
        consumer.assign(places)
        yield from _records(consumer, topic, left, id_, of_text)
    except KafkaException as e:
        raise KlammError(f"topic {topic} cannot be read: {e.args[0].str()}") from None
    finally:
        consumer.close()


def _ends(settings: Mapping[str, Any], places: list[Any]) -> dict[int, int]:
    """Return each partition's end for a reader of committed records: the first open transaction, or the end of the log."""
    from confluent_kafka import IsolationLevel
    from confluent_kafka.admin import AdminClient, OffsetSpec

    admin = AdminClient(dict(settings))  # held: its answers go with it
    latest: Any = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    asked = admin.list_offsets(
        dict.fromkeys(places, latest),
        isolation_level=IsolationLevel.READ_COMMITTED,
        request_timeout=ANSWER_S,
    )
    return {place.partition: int(future.result(ANSWER_S).offset) for place, future in asked.items()}


def _records(
    consumer: Any,
    topic: str,
    left: dict[int, int],
    id_: Callable[[dict[str, Any]], tuple[str, bool]],
    of_text: Callable[[bytes], str],
) -> Iterator[Document]:
    """Yield records up to the offsets in `left`.

    A partition may end in records that nobody sees (markers, aborted records).
    """
    from confluent_kafka import KafkaError

    heard = time.monotonic()
    while left:
        for message in consumer.consume(BATCH, 1.0):
            heard = time.monotonic()
            number, error = message.partition(), message.error()
            if error is not None:
                if error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name
                    raise KlammError(f"topic {topic} cannot be read: {error.str()}")
                if message.offset() >= left.get(number, 0):
                    left.pop(number, None)
                continue
            if message.offset() >= left.get(number, 0):
                left.pop(number, None)
                continue
            value = message.value()
            if value is not None:
                found, parsed = _id(value, id_, of_text)
                yield Document(found, f"{topic}-{number}-{message.offset()}", parsed)
            if message.offset() + 1 >= left[number]:
                del left[number]
        if time.monotonic() - heard > QUIET_S:
            raise KlammError(f"topic {topic}: partition {min(left)} is not served to its end")


def _id(
    value: bytes, id_: Callable[[dict[str, Any]], tuple[str, bool]], of_text: Callable[[bytes], str]
) -> tuple[str, bool]:
    try:
        row = orjson.loads(value)
    except orjson.JSONDecodeError:
        return of_text(value), True
    if isinstance(row, dict):
        found, parsed = id_(row)
        if found:
            return found, parsed
    return of_text(value), True
