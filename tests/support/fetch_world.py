"""A broker's fetch sessions without a broker: topics whose logs are numbers, a loop without a clock, the handler itself."""

from __future__ import annotations

import types
from typing import Any
from unittest import mock

from klamm_broker.server.fetch_sessions import FetchSessions
from klamm_broker.server.topics import Partition, Topic, TopicTable
from klamm_broker.server.waiting import WaitingRoom
from klamm_kafka.wire.messages.fetch import FetchRequest, FetchResponse

RECORD = 10  # bytes
EPOCH = 3
PARTITIONS = 3


class FakeLog:
    """A log as far as a fetch asks for it: records of ten bytes, each a batch of its own."""

    def __init__(self) -> None:
        self.log_start_offset = self.high_watermark = self.last_stable_offset = 0
        self.leader_epoch = EPOCH
        self.offline = False
        self.reads = 0

    @property
    def log_end_offset(self) -> int:
        return self.high_watermark

    def read(self, offset: int, max_bytes: int, *, up_to: int, min_one_batch: bool) -> Any:
        self.reads += 1
        count = min(up_to - offset, max(max_bytes // RECORD, 1 if min_one_batch else 0))
        return types.SimpleNamespace(size=count * RECORD) if count else None

    def aborted_in(self, offset: int, piece: Any, up_to: int) -> list[Any]:
        return []


class FakeLoop:
    def __init__(self) -> None:
        self.now_s = 1000.0
        self.soon: list[Any] = []

    def time(self) -> float:
        return self.now_s

    def call_soon(self, work: Any) -> None:
        self.soon.append(work)

    def call_later(self, _delay_s: float, work: Any) -> Any:
        return types.SimpleNamespace(cancel=lambda: None, work=work)


class World:
    """Topics, sessions and a loop without a clock: what a fetch needs of a broker."""

    def __init__(self, slots: int = 10) -> None:
        self.loop = FakeLoop()
        self.config = {"fetch.max.bytes": 1 << 30}
        self.topics = TopicTable()
        self.waiting = WaitingRoom(self.loop)  # type: ignore[arg-type]
        self.fetch_sessions = FetchSessions(slots)
        self._ids = 0

    def create(self, name: str, partitions: int = PARTITIONS) -> Topic:
        self._ids += 1
        topic = Topic(name=name, id=self._ids.to_bytes(16), entry=None)  # type: ignore[arg-type]
        topic.partitions = [Partition(topic, n, FakeLog()) for n in range(partitions)]  # type: ignore[arg-type]
        self.topics.add(topic)
        return topic

    def delete(self, name: str) -> None:
        topic = self.topics.by_name[name]
        self.topics.remove(topic)
        for partition in topic.partitions:
            partition.deleted = True
        for partition in topic.partitions:
            self.waiting.gone(partition)

    def append(self, name: str, index: int, count: int = 1, *, stable: bool = True) -> None:
        partition = self.topics.by_name[name].partitions[index]
        partition.log.high_watermark += count
        if stable:
            partition.log.last_stable_offset = partition.log.high_watermark
        self.waiting.advanced(partition, count * RECORD)

    def fetch(self, request: FetchRequest, version: int) -> FetchResponse:
        """Its answer, as the handler gives it."""
        from klamm_broker.api.api_01_fetch import fetch

        conn = types.SimpleNamespace(broker=self, access=None, charge=None, park=lambda: self.slot)
        self.slot = Slot(self.waiting)
        with mock.patch("klamm_broker.server.heavy.LARGE_BYTES", 1 << 30):  # there is no loop for slices
            reply = fetch(conn, memoryview(request.encode(version)), version, 1)  # type: ignore[arg-type]
        return decoded(self.slot.reply if reply is None else reply, version)


class Slot:
    closed = False
    abandoned: Any = None
    reply: Any = None

    def __init__(self, room: WaitingRoom) -> None:
        self.waiting_room = room

    def resolve(self, reply: Any) -> None:
        self.reply = reply

    def fail(self, why: str) -> None:
        raise AssertionError(why)


def decoded(reply: Any, version: int) -> Any:
    if reply is None:
        return None
    frame = b"".join(p if isinstance(p, bytes) else bytes(p.size) for p in reply)
    pos = 9 if version >= 12 else 8
    answer, end = FetchResponse.decode(frame, version, pos)
    assert end == len(frame)
    return answer
