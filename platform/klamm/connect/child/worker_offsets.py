"""Source offsets of a standalone worker's tasks: the worker gets them, and keeps them in its file.

It has the interface of a producer, so that code which commits offsets to a topic commits them here as well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from klamm.connect.child import clients
from klamm.connect.child.control import Control
from klamm.connect.child.offset_writer import Producer
from klamm.connect.model import STANDALONE, TaskSpec
from klamm_plugins.errors import ConnectError

Delivered = Callable[[KafkaError | None, Any], None]


class WorkerOffsets:
    """Sends the produced offsets with the next `poll` or `flush`; the worker answers when its file has them."""

    def __init__(self, control: Control) -> None:
        self._control = control
        self._waiting: list[tuple[list[str | None], Delivered | None]] = []

    def produce(self, topic: str, value: bytes | None, key: bytes | None, *args: Any, **named: Any) -> None:
        if key is None:
            raise KafkaException(KafkaError(KafkaError._KEY_SERIALIZATION, "an offset has no key"))  # noqa: SLF001
        delivered = named.get("on_delivery", args[1] if len(args) > 1 else None)
        self._waiting.append(([key.decode(), None if value is None else value.decode()], delivered))

    def poll(self, timeout: float) -> int:
        waiting, self._waiting = self._waiting, []
        if not waiting:
            return 0
        error = None
        try:
            self._control.call("write_offsets", {"records": [record for record, _ in waiting]})
        except ConnectError as e:
            error = KafkaError(KafkaError._FAIL, str(e))  # noqa: SLF001 - librdkafka's local codes are spelled so
        for _, delivered in waiting:
            if delivered is not None:
                delivered(error, None)
        return len(waiting)

    def flush(self, timeout: float) -> int:
        self.poll(timeout)
        return 0

    def __len__(self) -> int:
        return len(self._waiting)


def offset_producer(control: Control, spec: TaskSpec) -> Producer | None:
    """Returns the producer for source offsets, or None if the record producer serves."""
    if spec.worker.get(STANDALONE) == "true":
        return WorkerOffsets(control)
    config = clients.offset_producer_config(spec)
    return None if config is None else clients.make_producer(config)
