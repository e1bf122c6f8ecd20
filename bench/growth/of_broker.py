"""Partitions, connections and consumer groups of a broker."""

from __future__ import annotations

import socket
import struct
import threading
import time
from pathlib import Path

from bench.growth.units import Unit
from bench.servers import Klamm
from confluent_kafka.admin import AdminClient, NewTopic

from klamm_kafka.wire.api_keys import message_types
from klamm_kafka.wire.headers import RequestHeader, decode_response_header, frame_request
from klamm_kafka.wire.messages.api_versions import ApiVersionsRequest
from klamm_kafka.wire.messages.heartbeat import HeartbeatRequest
from klamm_kafka.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from klamm_kafka.wire.messages.metadata import MetadataRequest
from klamm_kafka.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from klamm_kafka.wire.struct import Message

TOPIC_PARTITIONS = 1000
HEARTBEAT_S = 3.0


class OfBroker(Unit):
    """Units that a broker holds."""

    holder = "broker"

    def __init__(self, work: Path) -> None:
        super().__init__(work)
        self.server = Klamm(work / "broker")

    def start(self) -> None:
        self.server.start()

    def pid(self) -> int:
        assert self.server.process is not None
        return self.server.process.pid

    def stop(self) -> None:
        self.server.stop()


class Partitions(OfBroker):
    """Partitions with one record each."""

    name = "partitions"
    counts = (10, 100, 1000, 10_000)

    def grow(self, count: int) -> None:
        from confluent_kafka import Producer

        admin = AdminClient({"bootstrap.servers": self.server.bootstrap})
        sizes = {
            f"growth-{n}": min(TOPIC_PARTITIONS, count - n * TOPIC_PARTITIONS)
            for n in range(-(-count // TOPIC_PARTITIONS))
        }
        for name, size in sizes.items():
            admin.create_topics([NewTopic(name, size, 1)], request_timeout=300)[name].result(300)
        producer = Producer({"bootstrap.servers": self.server.bootstrap, "linger.ms": 50})
        for name, size in sizes.items():
            for partition in range(size):
                producer.produce(name, b"record", partition=partition)
            producer.flush(300)

    def again(self) -> float:
        assert self.server.process is not None
        self.server.process.terminate()
        self.server.process.wait(60)
        return self.server.start()


class Peer:
    """A connection of a client, on a plain socket."""

    def __init__(self, port: int) -> None:
        self._sock = socket.create_connection(("127.0.0.1", port), 60)

    def ask(self, message: Message, version: int) -> object:
        """Sends a request and returns the answer. Raises OSError when the connection ends."""
        self._sock.sendall(frame_request(RequestHeader(message.API_KEY, version, 1, "growth"), message))
        (size,) = struct.unpack(">i", self._read(4))
        frame = self._read(size)
        _, pos = decode_response_header(frame, message.API_KEY, version)
        return message_types(message.API_KEY)[1].decode(frame, version, pos)[0]

    def close(self) -> None:
        self._sock.close()

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = self._sock.recv(size - len(data))
            if not part:
                raise OSError("the broker closed the connection")
            data += part
        return data


class Connections(OfBroker):
    """Open connections that have asked ApiVersions and Metadata, as every client does, and now wait."""

    name = "connections"
    counts = (10, 100, 1000, 5000)

    def __init__(self, work: Path) -> None:
        super().__init__(work)
        self._peers: list[Peer] = []

    def grow(self, count: int) -> None:
        for _ in range(count):
            peer = Peer(self.server.port)
            peer.ask(ApiVersionsRequest(), 0)
            peer.ask(MetadataRequest(topics=[]), 4)
            self._peers.append(peer)

    def stop(self) -> None:
        for peer in self._peers:
            peer.close()
        super().stop()


class Groups(OfBroker):
    """Classic consumer groups of one member each, which sends heartbeats every three seconds, as librdkafka's."""

    name = "consumer groups"
    counts = (10, 100, 1000)

    def __init__(self, work: Path) -> None:
        super().__init__(work)
        self._stopping = threading.Event()
        self._beating: threading.Thread | None = None

    def grow(self, count: int) -> None:
        peer = Peer(self.server.port)
        members = [self._join(peer, f"growth-{n}") for n in range(count)]
        self._beating = threading.Thread(target=self._beat, args=(peer, members), daemon=True)
        self._beating.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._beating is not None:
            self._beating.join(60)
        super().stop()

    def _join(self, peer: Peer, group: str) -> HeartbeatRequest:
        """Returns the heartbeat of a member that has joined and knows its share."""
        for _ in range(600):
            joined = peer.ask(
                JoinGroupRequest(
                    group_id=group, session_timeout_ms=45_000, rebalance_timeout_ms=45_000, member_id="",
                    protocol_type="consumer", protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
                ),
                3,
            )  # fmt: skip
            if joined.error_code == 0:  # type: ignore[attr-defined]
                break
            time.sleep(0.1)  # the coordinator loads
        else:
            raise TimeoutError(f"group {group}: error {joined.error_code} for 60 s")  # type: ignore[attr-defined]
        ids = {"group_id": group, "generation_id": joined.generation_id, "member_id": joined.member_id}  # type: ignore[attr-defined]
        mine = SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"")  # type: ignore[attr-defined]
        peer.ask(SyncGroupRequest(**ids, assignments=[mine]), 2)
        return HeartbeatRequest(**ids)

    def _beat(self, peer: Peer, members: list[HeartbeatRequest]) -> None:
        pause_s = HEARTBEAT_S / len(members)
        while True:
            for member in members:
                if self._stopping.wait(pause_s):
                    return
                answer = peer.ask(member, 2)
                if answer.error_code:  # type: ignore[attr-defined]
                    raise RuntimeError(f"{member.group_id}: error {answer.error_code}")  # type: ignore[attr-defined]
