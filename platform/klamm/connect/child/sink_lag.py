"""How many records a sink task is behind, from watermarks that its consumer has anyway.

The end of a partition may be behind what no consumer is given: markers of transactions, records that were aborted or
compacted away. So what counts there is where the consumer itself came to the end (its event, `reached`).
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
    """Asks for the committed offsets of partitions that nothing was read from yet, once."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._committed: dict[TopicPartition, int] = {}
        self._reached: dict[TopicPartition, int] = {}

    def forget(self, place: TopicPartition) -> None:
        """It is another task's now."""
        self._committed.pop(place, None)
        self._reached.pop(place, None)

    def reached(self, place: TopicPartition, offset: int) -> None:
        """All before `offset` was consumed: the partition ended there."""
        self._reached[place] = offset

    def moved(self, place: TopicPartition) -> None:
        """The consumer goes to another offset: it will come to the end anew."""
        self._reached.pop(place, None)

    def of(
        self,
        assigned: Collection[TopicPartition],
        positions: Mapping[TopicPartition, int],
        held: Collection[TopicPartition] = (),
    ) -> int | None:
        """Records behind, given the next offset of partitions that were read; None while that is not known.

        Of partitions in `held` something that was consumed is still to be put.
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
            ):  # beyond the end: a topic that was made anew
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
