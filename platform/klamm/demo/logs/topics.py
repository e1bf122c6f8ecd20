"""The broker as a client sees it: the demonstration's topics, their end offsets and the groups' offsets."""

from __future__ import annotations

from typing import Any, Final

from klamm.demo.platform import NoAnswer
from klamm_base.errors import KlammError

ANSWER_S: Final = 15.0


class Topics:
    """Makes topics and asks for end offsets. Close it."""

    def __init__(self, bootstrap: str) -> None:
        from confluent_kafka import Consumer

        settings = {"bootstrap.servers": bootstrap, "group.id": "klamm-demo-logs-progress", "log_level": 2}
        self._consumer: Any = Consumer(settings)
        self._bootstrap = bootstrap

    def create(self, names: list[str], partitions: int) -> None:
        """Makes the topics. Raises KlammError."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient, NewTopic

        admin = AdminClient({"bootstrap.servers": self._bootstrap, "log_level": 2})
        for name, future in admin.create_topics([NewTopic(n, partitions, 1) for n in names]).items():
            try:
                future.result(ANSWER_S)
            except KafkaException as e:
                raise KlammError(f"topic {name} cannot be made: {e.args[0].str()}") from None

    def ends(self, names: list[str], partitions: int) -> int:
        """Returns the sum of the end offsets. Raises NoAnswer."""
        from confluent_kafka import KafkaException, TopicPartition

        try:
            return sum(
                int(self._consumer.get_watermark_offsets(TopicPartition(name, number), ANSWER_S)[1])
                for name in names
                for number in range(partitions)
            )
        except KafkaException as e:
            raise NoAnswer(f"the broker does not say where topics end: {e.args[0].str()}") from None

    def committed(self, group: str, names: list[str], partitions: int) -> int:
        """Returns the sum of a group's committed offsets; 0 for partitions without one. Raises NoAnswer."""
        from confluent_kafka import Consumer, KafkaException, TopicPartition

        wanted = [TopicPartition(name, number) for name in names for number in range(partitions)]
        consumer = Consumer({"bootstrap.servers": self._bootstrap, "group.id": group, "log_level": 2})
        try:
            found = consumer.committed(wanted, timeout=ANSWER_S)
        except KafkaException as e:
            raise NoAnswer(
                f"the broker does not say what group {group} committed: {e.args[0].str()}"
            ) from None
        finally:
            consumer.close()
        return sum(max(0, int(p.offset)) for p in found)

    def close(self) -> None:
        self._consumer.close()
