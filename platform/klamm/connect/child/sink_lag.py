"""The number of records that a sink task is behind, from watermarks that its consumer has anyway.

The last offsets of a partition may hold nothing that a consumer gets: markers of transactions, and records
that were aborted or compacted away. So a partition counts as read to its end where the consumer reports its
end (`reached`).
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import Final

from confluent_kafka import Consumer, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition

from klamm.connect.child.sink_places import kafka, named
from klamm_plugins.records import TopicPartition

log = logging.getLogger(__name__)

_COMMITTED_S: Final = 1.0


class Lag:
    """The lag of a task's partitions. For a partition without a read record it asks once for the committed
    offset.
    """

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._committed: dict[TopicPartition, int] = {}
        self._reached: dict[TopicPartition, int] = {}

    def forget(self, place: TopicPartition) -> None:
        """Forgets a partition that another task has now."""
        self._committed.pop(place, None)
        self._reached.pop(place, None)

    def reached(self, place: TopicPartition, offset: int) -> None:
        """Records that the consumer has read all before `offset`, where the partition ended."""
        self._reached[place] = offset

    def moved(self, place: TopicPartition) -> None:
        """Records that the consumer goes to another offset, and will reach the end again later."""
        self._reached.pop(place, None)

    def of(
        self,
        assigned: Collection[TopicPartition],
        positions: Mapping[TopicPartition, int],
        held: Collection[TopicPartition] = (),
    ) -> int | None:
        """Returns the records behind, given the next offset of partitions that were read; None while that is
        unknown.

        Partitions in `held` have consumed records that are still to be put.
        """
        if not assigned or not self._ask([p for p in assigned if p not in positions]):
            return None
        total = 0
        for place in assigned:
            offset = positions.get(place, self._committed.get(place, -1))
            marks = self._consumer.get_watermark_offsets(
                KafkaPartition(place.topic, place.partition), cached=True
            )
            if marks is None or marks[1] < 0:
                return None
            offset = marks[0] if offset < 0 else offset
            reached = self._reached.get(place, 0)
            if (
                place not in held and offset < reached <= marks[1]
            ):  # beyond the end: the topic was created anew
                offset = reached
            total += max(0, marks[1] - offset)
        return total

    def _ask(self, unread: list[TopicPartition]) -> bool:
        asked = [p for p in unread if p not in self._committed]
        if asked:
            try:
                answer = self._consumer.committed(kafka(asked), timeout=_COMMITTED_S)
            except KafkaException as e:
                log.debug("committed offsets are not known: %s", e)
                return False
            self._committed |= {named(p): p.offset for p in answer}
        return True
