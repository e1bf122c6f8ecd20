"""A topic's records of now, for the commands that read all of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from klamm.cli.cluster import Cluster, kafka_error
from klamm.cli.times import parse_time
from klamm_base.errors import KlammError

IDLE_S: Final = 30.0
ANSWER_S: Final = 10.0


@dataclass(slots=True)
class Records:
    """The records of a topic, by partition from `starts` to `ends`. `unread`: where partitions ended before that."""

    consumer: Any
    topic: str
    cluster_id: str | None
    starts: dict[int, int] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)
    unread: dict[int, int] = field(default_factory=dict)
    check: Callable[[], None] = lambda: None
    """Raises what ends the reading between two records."""

    def __iter__(self) -> Iterator[Any]:
        """Yield the records. Raises KlammError."""
        from confluent_kafka import KafkaException, TopicPartition

        try:
            self.consumer.assign([TopicPartition(self.topic, p, at) for p, at in self.starts.items()])
            yield from self._until_ends()
        except KafkaException as e:
            raise kafka_error(e, f"cannot read {self.topic}") from None

    def _until_ends(self) -> Iterator[Any]:
        at, open_ = dict(self.starts), dict(self.ends)
        heard = time.monotonic()
        while open_:
            found = self.consumer.consume(1000, 0.5)
            self.check()
            for m in found:
                p = m.partition()
                if m.error() is not None:
                    if self._is_end(m) and p in open_:
                        self._close(open_, p, m.offset())
                    continue
                if p not in open_:
                    continue
                if m.offset() < at[p]:
                    raise KlammError(f"cannot read {self.topic}-{p}: it was cut or made anew meanwhile")
                at[p] = m.offset() + 1
                if m.offset() < open_[p]:
                    yield m
                if at[p] >= open_[p]:
                    self._close(open_, p, at[p])
            if found:
                heard = time.monotonic()  # whoever takes the records may have been slow
            elif time.monotonic() - heard > IDLE_S:
                raise KlammError(f"cannot read {self.topic}: nothing came for {IDLE_S:g} s")

    def _close(self, open_: dict[int, int], partition: int, at: int) -> None:
        """Read no more of a partition, which ended there."""
        from confluent_kafka import TopicPartition

        if at < open_.pop(partition):
            self.unread[partition] = at
        self.consumer.incremental_unassign([TopicPartition(self.topic, partition)])

    def _is_end(self, message: Any) -> bool:
        """Tell whether a partition came to its end. Raises KlammError for what is an error."""
        from confluent_kafka import KafkaError

        error = message.error()
        if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name
            return True
        if error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
            return False  # no group is used, although librdkafka looks for its coordinator
        raise KlammError(f"cannot read {self.topic}: {error.str()}")


@contextmanager
def records_of(
    cluster: Cluster, topic: str, from_: str | None, last: int | None, *, committed: bool = False
) -> Iterator[Records]:
    """Open a topic's records of now, from a time on or the last of each partition. Raises KlammError."""
    from confluent_kafka import Consumer, KafkaException

    if from_ is not None and last is not None:
        raise KlammError("--from and --last: give one of them")
    at_ms = None if from_ is None else parse_time(from_)
    common = cluster.config("consumer") | {
        "group.id": "klamm-topic",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "earliest",  # where first records were deleted meanwhile
    }
    level = "read_committed" if committed else "read_uncommitted"
    consumer = cluster.open(Consumer, common | {"isolation.level": level})
    try:
        found = cluster.metadata(consumer)
        if topic not in found.topics:
            raise KlammError(f"no topic {topic} at {cluster.bootstrap}")
        records = Records(consumer, topic, found.cluster_id)
        # librdkafka would call the first open transaction the end of a partition
        asking = cluster.open(Consumer, common | {"isolation.level": "read_uncommitted"})
        try:
            for p in sorted(found.topics[topic].partitions):
                start, end = _range(asking, topic, p, at_ms, last)
                if start < end:
                    records.starts[p], records.ends[p] = start, end
        finally:
            asking.close()
        yield records
    except KafkaException as e:
        raise kafka_error(e, f"cannot read {topic}") from None
    finally:
        consumer.close()


def _range(consumer: Any, topic: str, partition: int, at_ms: int | None, last: int | None) -> tuple[int, int]:
    from confluent_kafka import TopicPartition

    place = TopicPartition(topic, partition)
    low, high = consumer.get_watermark_offsets(place, ANSWER_S)
    if at_ms is None:
        return low if last is None else max(low, high - last), high
    (found,) = consumer.offsets_for_times([TopicPartition(topic, partition, at_ms)], ANSWER_S)
    if found.error is not None:
        raise KlammError(f"cannot read {topic}-{partition}: {found.error.str()}")
    return found.offset if found.offset >= 0 else high, high
