"""A producer and a control that a test drives by hand, for the task loops without a broker."""

from __future__ import annotations

import os
import socket
from types import SimpleNamespace
from typing import Any

from confluent_kafka import KafkaError

from klamm.connect.child.control import Control
from klamm.connect.child.plugins import Converters
from klamm.connect.children.channel import BlockingChannel, Decoder
from klamm_plugins.converters.simple_header import SimpleHeaderConverter
from klamm_plugins.converters.string import StringConverter


class RecordingControl(Control):
    """A Control whose notices can be read; its thread does not run."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        super().__init__(BlockingChannel(theirs))
        self._theirs = theirs
        self._ours = ours
        self._decoder = Decoder()

    def notices(self, event: str) -> list[dict[str, Any]]:
        """Returns those of a kind since the last call."""
        self._ours.setblocking(False)
        found = []
        try:
            while data := self._ours.recv(65536):
                found += self._decoder.feed(data)
        except BlockingIOError:
            pass
        return [m for m in found if m["event"] == event]

    def close(self) -> None:
        self._ours.close()
        self._theirs.close()
        os.close(self._signals_r)
        os.close(self.signals_fd)


class FakeMessage:
    def __init__(self, topic: str) -> None:
        self._topic = topic

    def topic(self) -> str:
        return self._topic

    def partition(self) -> int:
        return 3

    def offset(self) -> int:
        return 17

    def timestamp(self) -> tuple[int, int]:
        return 1, 1234


class Sent:
    """One produced record, with what decides its fate."""

    def __init__(self, topic: str, value: bytes | None, key: bytes | None, rest: tuple[Any, ...]) -> None:
        self.topic, self.value, self.key = topic, value, key
        self.partition = rest[0]
        self.callback = rest[1]
        self.timestamp, self.headers = (*rest[3:], *(0, None)[len(rest[3:]) :])


class FakeProducer:
    """Holds records until `ack` or `fail`; callbacks run in `poll`, as librdkafka's do. `auto` acknowledges."""

    def __init__(self, auto: bool = False) -> None:
        self.auto = auto
        self.held: list[Sent] = []
        self.all: list[Sent] = []
        self._ready: list[tuple[Sent, KafkaError | None]] = []
        self.on_poll = lambda: None
        self.partitions = 1

    def produce(self, topic: str, value: bytes | None, key: bytes | None, *rest: Any) -> None:
        sent = Sent(topic, value, key, rest)
        self.all.append(sent)
        self.held.append(sent)

    def list_topics(self, topic: str, timeout: float) -> Any:
        partitions = {n: SimpleNamespace(id=n, leader=1) for n in range(self.partitions)}
        return SimpleNamespace(topics={topic: SimpleNamespace(partitions=partitions)})

    def ack(self, sent: Sent) -> None:
        self.held.remove(sent)
        self._ready.append((sent, None))

    def fail(self, sent: Sent, code: int) -> None:
        self.held.remove(sent)
        self._ready.append((sent, KafkaError(code)))

    def poll(self, timeout: float) -> int:
        self.on_poll()
        if self.auto:
            for sent in self.held[:]:
                self.ack(sent)
        ready, self._ready = self._ready, []
        for sent, error in ready:
            if sent.callback is not None:
                sent.callback(error, FakeMessage(sent.topic))
        return len(ready)

    def flush(self, timeout: float) -> int:
        self.poll(timeout)
        return len(self.held)

    def __len__(self) -> int:
        return len(self.held) + len(self._ready)

    def to(self, topic: str) -> list[Sent]:
        return [s for s in self.all if s.topic == topic]


def string_converters() -> Converters:
    key, value, header = StringConverter(), StringConverter(), SimpleHeaderConverter()
    key.configure({}, is_key=True)
    value.configure({}, is_key=False)
    header.configure_header({})
    return Converters(key, value, header)
