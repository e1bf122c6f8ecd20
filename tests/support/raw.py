"""Frames on a plain blocking socket: for what a well-behaved client would never send."""

from __future__ import annotations

import socket
import struct
from typing import Any

from klamm_kafka.wire.api_keys import message_types
from klamm_kafka.wire.batch import Record, encode_batch
from klamm_kafka.wire.compression import Compression
from klamm_kafka.wire.headers import RequestHeader, decode_response_header, frame_request
from klamm_kafka.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from klamm_kafka.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from klamm_kafka.wire.struct import Message


class RawClient:
    """One connection. `send` and `receive` are separate, so that requests can be pipelined, cut and reordered."""

    def __init__(
        self, port: int, *, timeout_s: float = 60, receive_buffer: int | None = None, client_id: str = "raw"
    ) -> None:
        self.client_id = client_id
        self.sock = socket.socket()
        if receive_buffer is not None:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.sock.settimeout(timeout_s)
        try:
            self.sock.connect(("127.0.0.1", port))
        except OSError:
            self.sock.close()
            raise

    def __enter__(self) -> RawClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()

    def send(self, message: Message, version: int, correlation_id: int = 1) -> None:
        self.sock.sendall(request_frame(message, version, correlation_id, self.client_id))

    def receive_frame(self) -> bytes:
        """Returns the next answer without its size. Raises ConnectionError when the broker has closed."""
        return self._exactly(int.from_bytes(self._exactly(4)))

    def receive(self, request_type: type[Message], version: int) -> tuple[int, Any]:
        """Returns (correlation id, answer)."""
        frame = self.receive_frame()
        correlation_id, pos = decode_response_header(frame, request_type.API_KEY, version)
        answer, end = message_types(request_type.API_KEY)[1].decode(frame, version, pos)
        assert end == len(frame), f"{len(frame) - end} bytes behind the answer's last field"
        return correlation_id, answer

    def request(self, message: Message, version: int) -> Any:
        self.send(message, version)
        return self.receive(type(message), version)[1]

    def wait_closed(self) -> None:
        """Return when the broker has closed the connection; an answer instead is an error."""
        try:
            data = self.sock.recv(100)
        except ConnectionResetError:
            return
        assert data == b"", f"an answer instead of an end: {data!r}"

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = self.sock.recv(min(size - len(data), 1 << 20))
            if not part:
                raise ConnectionError(f"closed after {len(data)} of {size} bytes")
            data += part
        return bytes(data)


def request_frame(
    message: Message, version: int, correlation_id: int = 1, client_id: str | None = "raw"
) -> bytes:
    return frame_request(RequestHeader(message.API_KEY, version, correlation_id, client_id), message)


def framed(content: bytes) -> bytes:
    return struct.pack(">i", len(content)) + content


def batch(
    *values: bytes,
    compression: Compression = Compression.NONE,
    timestamp: int = 1_700_000_000_000,
    **more: Any,
) -> bytes:
    records = [Record(timestamp=timestamp, key=None, value=value) for value in values]
    return bytes(encode_batch(records, compression=compression, **more))


def produce_request(
    topic: str | bytes,
    records: bytes | None,
    *,
    partition: int = 0,
    acks: int = 1,
    transactional_id: str | None = None,
) -> ProduceRequest:
    """Returns a request. `topic` is a name, or an id for version 13 and later."""
    where = {"topic_id": topic} if isinstance(topic, bytes) else {"name": topic}
    data = TopicProduceData(**where, partition_data=[PartitionProduceData(index=partition, records=records)])
    return ProduceRequest(transactional_id=transactional_id, acks=acks, timeout_ms=5000, topic_data=[data])


def fetch_request(
    topic: str | bytes, offset: int = 0, *, partition: int = 0, max_wait_ms: int = 0, min_bytes: int = 1,
    max_bytes: int = 1 << 26, **more: Any,
) -> FetchRequest:  # fmt: skip
    where = {"topic_id": topic} if isinstance(topic, bytes) else {"topic": topic}
    asked = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes)
    for name in ("current_leader_epoch", "last_fetched_epoch"):
        if name in more:
            setattr(asked, name, more.pop(name))
    topics = [FetchTopic(**where, partitions=[asked])]
    return FetchRequest(
        max_wait_ms=max_wait_ms, min_bytes=min_bytes, max_bytes=max_bytes, topics=topics, **more
    )
