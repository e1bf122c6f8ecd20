"""Produce and Fetch by hand: the work of a broker for every batch, without an object per field.

The bytes are the same as the generated codecs' (tests compare them), with less work: record data stays a view of the
receive buffer, and a fetch response is a list of pieces that contains file ranges as they are, so that a server can send
headers from memory and records with sendfile. Fields that a single broker never sets (leader hints, diverging epochs)
are left out; use the generated messages for them.
"""

from __future__ import annotations

import struct
from collections.abc import Generator, Iterable, Sequence
from typing import Any, Final, NamedTuple, Protocol

from klamm_kafka.wire.errors import MalformedMessage, ProtocolError, UnsupportedVersion
from klamm_kafka.wire.varint import TAGS_MAX, UVARINT_SMALL, decode_uvarint, encode_uvarint

TopicKey = str | bytes
"""A topic's name, or its id (16 bytes) in versions that use ids: Produce and Fetch from 13 on."""

TOPIC_ID_VERSION: Final = 13
PRODUCE_FLEXIBLE: Final = 9
FETCH_FLEXIBLE: Final = 12

_ONE: Final = 2  # the length of a compact array of one element
_I16: Final = struct.Struct(">h")
_I32: Final = struct.Struct(">i")
_ACKS_TIMEOUT: Final = struct.Struct(">hi")
_ACKS_TIMEOUT_COUNT: Final = struct.Struct(">hii")
_INDEX_LENGTH: Final = struct.Struct(">ii")
_FRAME: Final = struct.Struct(">ii")  # length, correlation id

PRODUCE_VERSIONS: Final = (3, 13)
FETCH_VERSIONS: Final = (4, 18)


class ProduceData(NamedTuple):
    """A produce request. Records are views of the buffer from which it was read; null is None."""

    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: list[tuple[TopicKey, list[tuple[int, memoryview | None]]]]


PRODUCE_ELEMENTS_MAX: Final = 20_000
"""Topics and partitions of one request: each costs some microseconds, and 100 MB would hold ten million."""


class ManyElements(IndexError):
    """A produce request that names more topics and partitions than the caller wants to read at once."""


def parse_produce(
    buf: bytes | bytearray | memoryview, pos: int, version: int, *, most: int = PRODUCE_ELEMENTS_MAX
) -> ProduceData:
    """Returns the produce request whose body begins at `pos` and ends where `buf` ends. Copies nothing but names.

    Raises MalformedMessage with field and offset, as the generated decoder does; ManyElements if there are more than `most`
    topics and partitions, unless that is the limit of all requests.
    """
    if not 3 <= version <= 13:
        _check_version("ProduceRequest", version, PRODUCE_VERSIONS)
    view = buf if type(buf) is memoryview else memoryview(buf)
    try:
        return (_parse_flexible if version >= PRODUCE_FLEXIBLE else _parse_classic)(view, pos, version, most)
    except ManyElements:
        if most < PRODUCE_ELEMENTS_MAX:
            raise
        raise _explain(view, pos, version) from None
    except (struct.error, IndexError, ValueError):
        raise _explain(view, pos, version) from None


def _explain(view: memoryview, pos: int, version: int) -> ProtocolError:
    """Returns the generated decoder's error for the same bytes, as that names the field."""
    from klamm_kafka.wire.messages.produce import ProduceRequest

    try:
        ProduceRequest.decode(view, version, pos, PRODUCE_ELEMENTS_MAX)
    except ProtocolError as error:
        return error
    return MalformedMessage(f"ProduceRequest v{version}", "?", pos, "cannot be read")


def _parse_classic(view: memoryview, pos: int, version: int, most: int) -> ProduceData:
    end = len(view)
    transactional_id, pos = _string(view, pos, end)
    acks, timeout_ms, topic_count = _ACKS_TIMEOUT_COUNT.unpack_from(view, pos)
    pos += 10
    topics: list[tuple[TopicKey, list[tuple[int, memoryview | None]]]] = []
    left = most - topic_count
    for _ in range(_count(topic_count, end - pos, 6)):
        name, pos = _string(view, pos, end)
        if name is None:
            raise IndexError
        (partition_count,) = _I32.unpack_from(view, pos)
        pos += 4
        partitions: list[tuple[int, memoryview | None]] = []
        left -= partition_count
        if left < 0:
            raise ManyElements
        for _ in range(_count(partition_count, end - pos, 8)):
            index, size = _INDEX_LENGTH.unpack_from(view, pos)
            pos += 8
            if size < 0:
                partitions.append((index, None))
                continue
            stop = pos + size
            if stop > end:
                raise IndexError
            partitions.append((index, view[pos:stop]))
            pos = stop
        topics.append((name, partitions))
    return ProduceData(transactional_id, acks, timeout_ms, topics)


def _parse_flexible(view: memoryview, pos: int, version: int, most: int) -> ProduceData:
    end = len(view)
    transactional_id, pos = _compact_string(view, pos, end)
    acks, timeout_ms = _ACKS_TIMEOUT.unpack_from(view, pos)
    count, pos = decode_uvarint(view, pos + 6)
    topics: list[tuple[TopicKey, list[tuple[int, memoryview | None]]]] = []
    key: TopicKey | None
    left = most - count + 1
    for _ in range(_count(count - 1, end - pos, 3)):
        if version >= TOPIC_ID_VERSION:
            key = bytes(view[pos : pos + 16])
            pos += 16
        else:
            key, pos = _compact_string(view, pos, end)
            if key is None:
                raise IndexError
        partitions: list[tuple[int, memoryview | None]] = []
        pos = _parse_partitions(view, pos, end, partitions, left)
        left -= len(partitions)
        pos = pos + 1 if view[pos] == 0 else _skip_tags(view, pos, end)
        topics.append((key, partitions))
    if view[pos]:
        _skip_tags(view, pos, end)
    return ProduceData(transactional_id, acks, timeout_ms, topics)


def _parse_partitions(
    view: memoryview, pos: int, end: int, partitions: list[tuple[int, memoryview | None]], left: int
) -> int:
    count, pos = (view[pos], pos + 1) if view[pos] < 128 else decode_uvarint(view, pos)
    if count - 1 > left:
        raise ManyElements
    for _ in range(_count(count - 1, end - pos, 6)):
        (index,) = _I32.unpack_from(view, pos)
        size, pos = decode_uvarint(view, pos + 4)
        stop = pos + size - 1
        if size == 0:
            partitions.append((index, None))
            stop = pos
        elif stop > end:
            raise IndexError
        else:
            partitions.append((index, view[pos:stop]))
        pos = stop + 1 if view[stop] == 0 else _skip_tags(view, stop, end)
    return pos


def parse_single(view: memoryview, version: int) -> tuple[int, TopicKey, bytes, int, memoryview] | None:
    """Returns acks, topic, partition and records of the produce request that fills `view`, if it is the most common one.

    Behind the topic are the bytes that name it, for the answer. It has records for one partition, belongs to no transaction, and has no tagged fields. None for any other request, also
    for a malformed one: `parse_produce` reads all.
    """
    if not PRODUCE_FLEXIBLE <= version <= PRODUCE_VERSIONS[1]:
        return None
    try:
        if (
            view[0] or view[7] != _ONE or view[8] > 127
        ):  # no transactional id, one topic, a name of one byte's length
            return None
        acks = _I16.unpack_from(view, 1)[0]
        key: TopicKey
        if version >= TOPIC_ID_VERSION:
            pos = 24
            key = name = bytes(view[8:pos])
        else:
            pos = 8 + view[8]
            name = bytes(view[8:pos])
            key = str(name[1:], "utf-8")
        if view[pos] != _ONE:
            return None
        size, start = decode_uvarint(view, pos + 5)
        end = start + size - 1
        if size == 0 or len(view) != end + 3 or view[end] or view[end + 1] or view[end + 2]:
            return None
        return acks, key, name, _I32.unpack_from(view, pos + 1)[0], view[start:end]
    except (struct.error, IndexError, ValueError):
        return None


def _count(count: int, room: int, smallest: int) -> int:
    """Returns an array's length. Raises IndexError if it is null or cannot fit into the rest."""
    if count < 0 or count * smallest > room:
        raise IndexError
    return count


def _string(view: memoryview, pos: int, end: int) -> tuple[str | None, int]:
    (size,) = _I16.unpack_from(view, pos)
    pos += 2
    if size < 0:
        return None, pos
    stop = pos + size
    if stop > end:
        raise IndexError
    return str(view[pos:stop], "utf-8"), stop


def _compact_string(view: memoryview, pos: int, end: int) -> tuple[str | None, int]:
    size = view[pos]
    size, pos = (size, pos + 1) if size < 128 else decode_uvarint(view, pos)
    if size == 0:  # in more bytes than it needs, too
        return None, pos
    stop = pos + size - 1
    if stop > end or size > 32768:
        raise IndexError
    return str(view[pos:stop], "utf-8"), stop


def _skip_tags(view: memoryview, pos: int, end: int) -> int:
    count, pos = decode_uvarint(view, pos)
    if count > TAGS_MAX:
        raise IndexError
    for _ in range(count):
        _, pos = decode_uvarint(view, pos)
        size, pos = decode_uvarint(view, pos)
        pos += size
        if pos > end:
            raise IndexError
    return pos


class ProduceResult(NamedTuple):
    """The outcome for one partition's batch."""

    partition: int
    error_code: int
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    error_message: str | None = None
    record_errors: Sequence[tuple[int, str]] = ()  # index in the batch, why


_PRODUCE_3: Final = struct.Struct(">ihqq")
_PRODUCE_5: Final = struct.Struct(">ihqqq")
_PRODUCE_8: Final = struct.Struct(">ihqqqi")  # ... number of errors of single records
_PRODUCE_9: Final = struct.Struct(">ihqqqB")


def encode_produce_response(
    correlation_id: int,
    version: int,
    topics: Iterable[tuple[TopicKey, Sequence[ProduceResult]]],
    *,
    throttle_time_ms: int = 0,
) -> bytes:
    """Returns a whole response frame: length, header and body."""
    _check_version("ProduceResponse", version, PRODUCE_VERSIONS)
    flexible = version >= PRODUCE_FLEXIBLE
    body: list[bytes] = []
    count = 0
    for key, results in topics:
        count += 1
        body.append(_topic_key(key, flexible))
        body.append(_array_length(len(results), flexible))
        body += [_produce_result(result, version) for result in results]
        if flexible:
            body.append(b"\0")
    head = b"\0" if flexible else b""
    tail = _I32.pack(throttle_time_ms) + head
    content = b"".join((head, _array_length(count, flexible), *body, tail))
    return _FRAME.pack(len(content) + 4, correlation_id) + content


_PRODUCED_HEAD: Final = struct.Struct(">iiBB")  # length, correlation id, header's tags, one topic
_PRODUCED_TAIL: Final = struct.Struct(
    ">BihqqqBBBBiB"
)  # one partition: its result; then tags and the throttle time


def encode_produced(
    correlation_id: int, name: bytes, partition: int, *, base_offset: int, log_start_offset: int
) -> bytes:
    """Returns the answer to a request that `parse_single` has read and whose records were appended under CreateTime."""
    return b"".join(
        (
            _PRODUCED_HEAD.pack(len(name) + 46, correlation_id, 0, _ONE),
            name,
            _PRODUCED_TAIL.pack(_ONE, partition, 0, base_offset, -1, log_start_offset, 1, 0, 0, 0, 0, 0),
        )
    )


def _produce_result(result: ProduceResult, version: int) -> bytes:
    numbers, message = result[:5], result.error_message
    if result.record_errors and version >= 8:
        return _produce_result_with_records(result, version >= PRODUCE_FLEXIBLE)
    if version >= PRODUCE_FLEXIBLE:
        return _PRODUCE_9.pack(*numbers, 1) + _string_bytes(message, True) + b"\0"
    if version >= 8:
        return _PRODUCE_8.pack(*numbers, 0) + _string_bytes(message, False)
    if version >= 5:
        return _PRODUCE_5.pack(*numbers)
    return _PRODUCE_3.pack(*numbers[:4])


def _produce_result_with_records(result: ProduceResult, flexible: bool) -> bytes:
    tags = b"\0" if flexible else b""
    parts = [_PRODUCE_5.pack(*result[:5]), _array_length(len(result.record_errors), flexible)]
    parts += [_I32.pack(index) + _string_bytes(why, flexible) + tags for index, why in result.record_errors]
    return b"".join((*parts, _string_bytes(result.error_message, flexible), tags))


class FileRange(Protocol):
    """A range of a file; the encoder asks for its size only."""

    @property
    def size(self) -> int: ...


class FetchResult(NamedTuple):
    """One partition of a fetch response. `records` is bytes-like, a file range, or None for nothing.

    `aborted_transactions` are (producer id, first offset); None (null) where the reader did not ask for them.
    """

    partition: int
    error_code: int
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    aborted_transactions: Sequence[tuple[int, int]] | None = None
    records: bytes | bytearray | memoryview | FileRange | None = None
    preferred_read_replica: int = -1


_FETCH_4: Final = struct.Struct(">ihqq")
_FETCH_5: Final = struct.Struct(">ihqqq")
_FETCH_12: Final = struct.Struct(">ihqqqBi")  # ... no aborted transactions (0: null), preferred read replica
_ABORTED: Final = struct.Struct(">qq")
_ABORTED_TAGS: Final = struct.Struct(">qqB")
_RESPONSE_7: Final = struct.Struct(">ihi")  # throttle time, error code, session id


def encode_fetch_response(
    correlation_id: int,
    version: int,
    topics: Sequence[tuple[TopicKey, Sequence[FetchResult]]],
    *,
    throttle_time_ms: int = 0,
    error_code: int = 0,
    session_id: int = 0,
) -> list[Any]:
    """Returns a whole response frame in pieces: `bytes`, and between them each partition's `records` as given.

    Records without bytes (None, or of size 0) do not appear among the pieces. None is sent as empty records, not
    as null, as clients interpret null differently.
    """
    steps = fetch_response_steps(
        correlation_id,
        version,
        topics,
        throttle_time_ms=throttle_time_ms,
        error_code=error_code,
        session_id=session_id,
    )
    try:
        while True:
            next(steps)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


RESULTS_STEP: Final = 256


def fetch_response_steps(
    correlation_id: int,
    version: int,
    topics: Sequence[tuple[TopicKey, Sequence[FetchResult]]],
    *,
    throttle_time_ms: int = 0,
    error_code: int = 0,
    session_id: int = 0,
) -> Generator[None, None, list[Any]]:
    """Does what `encode_fetch_response` does, in steps: it stops after many partitions."""
    _check_version("FetchResponse", version, FETCH_VERSIONS)
    flexible = version >= FETCH_FLEXIBLE
    pieces: list[Any] = []
    text: list[bytes] = []  # collects the bytes between two records pieces
    size, left = 4, RESULTS_STEP
    if version >= 7:
        text.append((b"\0" if flexible else b"") + _RESPONSE_7.pack(throttle_time_ms, error_code, session_id))
    else:
        text.append(_I32.pack(throttle_time_ms))
    text.append(_array_length(len(topics), flexible))
    for key, results in topics:
        text.append(_topic_key(key, flexible))
        text.append(_array_length(len(results), flexible))
        for result in results:
            records = result.records
            length = 0 if records is None else getattr(records, "size", None)
            if length is None:
                length = len(records)  # type: ignore[arg-type]  # no size: bytes-like
            text.append(_fetch_result(result, version, flexible))
            if not length:
                text.append(b"\1" if flexible else b"\0\0\0\0")
            else:
                text.append(encode_uvarint(length + 1) if flexible else _I32.pack(length))
                piece = b"".join(text)
                pieces += (piece, records)
                size += len(piece) + length
                text = []
            if flexible:
                text.append(b"\0")
            left -= 1
            if not left:
                left = RESULTS_STEP
                yield
        if flexible:
            text.append(b"\0")
    if flexible:
        text.append(b"\0")
    if text:
        pieces.append(b"".join(text))
        size += len(pieces[-1])
    pieces[0] = _FRAME.pack(size, correlation_id) + pieces[0]
    return pieces


def _fetch_result(result: FetchResult, version: int, flexible: bool) -> bytes:
    aborted = result.aborted_transactions
    if flexible and not aborted:
        return _FETCH_12.pack(*result[:5], 0 if aborted is None else 1, result.preferred_read_replica)
    head = _FETCH_5.pack(*result[:5]) if version >= 5 else _FETCH_4.pack(*result[:4])
    if aborted is None:
        middle = b"\0" if flexible else b"\xff\xff\xff\xff"
    elif flexible:
        middle = encode_uvarint(len(aborted) + 1) + b"".join([_ABORTED_TAGS.pack(*row, 0) for row in aborted])
    else:
        middle = _I32.pack(len(aborted)) + b"".join([_ABORTED.pack(*row) for row in aborted])
    return head + middle + (_I32.pack(result.preferred_read_replica) if version >= 11 else b"")


def _topic_key(key: TopicKey, flexible: bool) -> bytes:
    if isinstance(key, bytes):
        if len(key) != 16:
            raise ValueError(f"a topic id is 16 bytes, not {len(key)}")
        return key
    return _string_bytes(key, flexible)


def _string_bytes(text: str | None, flexible: bool) -> bytes:
    if text is None:
        return b"\0" if flexible else b"\xff\xff"
    encoded = text.encode()
    if len(encoded) > 32767:
        raise ValueError(f"a string of {len(encoded)} bytes")
    return (encode_uvarint(len(encoded) + 1) if flexible else _I16.pack(len(encoded))) + encoded


def _array_length(count: int, flexible: bool) -> bytes:
    if not flexible:
        return _I32.pack(count)
    return UVARINT_SMALL[count + 1] if count < 127 else encode_uvarint(count + 1)


def _check_version(message: str, version: int, versions: tuple[int, int]) -> None:
    if not versions[0] <= version <= versions[1]:
        raise UnsupportedVersion(f"{message} has no version {version}: it has {versions[0]} to {versions[1]}")
