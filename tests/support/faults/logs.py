"""The content of a broker's logs in the end, read as a consumer does, but whole: with markers and aborted records."""

from __future__ import annotations

import time
from collections.abc import Iterator

from support.history import Log, LogRecord
from support.raw import RawClient, fetch_request

from klamm_kafka.wire.batch import (
    HEADER_BYTES,
    BatchHeader,
    check_crc,
    decode_records,
    read_end_txn_marker,
    read_header,
)
from klamm_kafka.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)

EARLIEST, LATEST = -2, -1
VERSION = 11


def offset_of(client: RawClient, topic: str, partition: int, which: int, *, committed: bool = False) -> int:
    """Returns the first or the next offset; with `committed` the last stable one for the latter."""
    asked = ListOffsetsTopic(
        name=topic, partitions=[ListOffsetsPartition(partition_index=partition, timestamp=which)]
    )
    request = ListOffsetsRequest(replica_id=-1, isolation_level=int(committed), topics=[asked])
    (answer,) = client.request(request, 5).topics[0].partitions
    assert answer.error_code == 0, f"{topic}-{partition}: error {answer.error_code}"
    return int(answer.offset)


def read_log(port: int, topic: str, partition: int, *, compacted: bool = False) -> Log:
    """Reads the whole partition. Checks every CRC. Raises AssertionError when it cannot be read to its end."""
    with RawClient(port, timeout_s=60) as client:
        start = offset_of(client, topic, partition, EARLIEST)
        end = offset_of(client, topic, partition, LATEST)
        stable = offset_of(client, topic, partition, LATEST, committed=True)
        records: list[LogRecord] = []
        position = start
        while position < end:
            request = fetch_request(topic, position, partition=partition, max_bytes=1 << 22)
            answer = client.request(request, VERSION).responses[0].partitions[0]
            assert answer.error_code == 0, f"{topic}-{partition}@{position}: error {answer.error_code}"
            following, found = batches_of(bytes(answer.records or b""), position)
            assert following > position, f"{topic}-{partition}: nothing at {position}, and the end is {end}"
            records += found
            position = following
        return Log(topic=topic, partition=partition, start=start, end=end, stable=stable, records=tuple(records), compacted=compacted)  # fmt: skip


def batches_of(data: bytes, position: int) -> tuple[int, list[LogRecord]]:
    """Returns (next offset, records from `position` on) of an answer's batches, whose CRCs are checked."""
    found: list[LogRecord] = []
    following = position
    for at, header in _whole_batches(data):
        check_crc(data, at, header)
        following = header.next_offset
        rows = decode_records(data, at) if header.record_count else []
        for record in rows:
            if record.offset < position:
                continue
            control = ""
            if header.is_control:
                marker = read_end_txn_marker(record)
                control = "other" if marker is None else "commit" if marker.committed else "abort"
            sequence = header.base_sequence
            if sequence >= 0:
                sequence = (sequence + record.offset - header.base_offset) & 0x7FFFFFFF
            found.append(
                LogRecord(
                    record.offset, record.value, record.key, header.producer_id, header.producer_epoch, sequence,
                    header.is_transactional, control,
                )
            )  # fmt: skip
    return following, found


def _whole_batches(data: bytes) -> Iterator[tuple[int, BatchHeader]]:
    """Kafka cuts an answer at its limit, in the middle of a batch if need be."""
    position = 0
    while len(data) - position >= HEADER_BYTES:
        header = read_header(data, position)
        if position + header.size > len(data):
            return
        yield position, header
        position += header.size


def wait_for_markers(port: int, places: list[tuple[str, int]], timeout_s: float = 60) -> None:
    """Waits until every transaction's markers are written. A marker may come after its producer was answered.

    Does not judge: the checker does.
    """
    deadline = time.monotonic() + timeout_s
    with RawClient(port) as client:
        while time.monotonic() < deadline:
            if all(
                offset_of(client, t, p, LATEST, committed=True) == offset_of(client, t, p, LATEST)
                for t, p in places
            ):
                return
            time.sleep(0.05)
