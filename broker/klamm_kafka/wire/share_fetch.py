"""The answer to ShareFetch, written by hand: records are pieces of their own, which leave uncopied.

Versions 1 and 2 have the same form.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from struct import Struct
from typing import Any, Final, NamedTuple

from klamm_kafka.wire.varint import encode_uvarint

_STEP: Final = 256
"""Partitions in one step of a large answer."""
_HEAD: Final = Struct(">iBih")  # correlation id, no tags, throttle time, error code
_SIZE: Final = Struct(">i")
_INDEX: Final = Struct(">ih")
_ERROR: Final = Struct(">h")
_LEADER: Final = Struct(">iiB")
_ACQUIRED: Final = Struct(">qqhB")


class SharedRecords(NamedTuple):
    """A partition of the answer. `records` are anything with a `size`, or None; `acquired` have first, last and count."""

    partition: int
    error_code: int
    error_message: str | None
    ack_error: int = 0
    ack_message: str | None = None
    records: Any = None
    acquired: Sequence[Any] = ()


def encode_share_fetch_response(
    correlation_id: int,
    topics: Sequence[tuple[bytes, Sequence[SharedRecords]]],
    *,
    throttle_time_ms: int = 0,
    error_code: int = 0,
    error_message: str | None = None,
    lock_ms: int = 0,
) -> list[Any]:
    """Returns a whole frame in pieces; between pieces of bytes stand each partition's `records` as they were given."""
    steps = share_fetch_response_steps(
        correlation_id,
        topics,
        throttle_time_ms=throttle_time_ms,
        error_code=error_code,
        error_message=error_message,
        lock_ms=lock_ms,
    )
    try:
        while True:
            next(steps)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


def share_fetch_response_steps(
    correlation_id: int,
    topics: Sequence[tuple[bytes, Sequence[SharedRecords]]],
    *,
    throttle_time_ms: int = 0,
    error_code: int = 0,
    error_message: str | None = None,
    lock_ms: int = 0,
) -> Generator[None, None, list[Any]]:
    """Does what `encode_share_fetch_response` does, in steps."""
    pieces: list[Any] = []
    text = [
        _HEAD.pack(correlation_id, 0, throttle_time_ms, error_code),
        _string(error_message),
        _SIZE.pack(lock_ms),
        encode_uvarint(len(topics) + 1),
    ]
    size, left = 0, _STEP
    for topic_id, partitions in topics:
        text += [topic_id, encode_uvarint(len(partitions) + 1)]
        for it in partitions:
            left -= 1
            if not left:
                left = _STEP
                yield
            length = 0 if it.records is None else it.records.size
            text += [
                _INDEX.pack(it.partition, it.error_code), _string(it.error_message), _ERROR.pack(it.ack_error),
                _string(it.ack_message), _LEADER.pack(0, 0, 0), encode_uvarint(length + 1),
            ]  # fmt: skip
            if length:
                piece = b"".join(text)
                pieces += (piece, it.records)
                size += len(piece) + length
                text = []
            text.append(encode_uvarint(len(it.acquired) + 1))
            text += [_ACQUIRED.pack(*item, 0) for item in it.acquired]
            text.append(b"\0")
        text.append(b"\0")
    text += [b"\1", b"\0"]  # no endpoints of other leaders, no tags
    pieces.append(b"".join(text))
    size += len(pieces[-1])
    pieces[0] = _SIZE.pack(size) + pieces[0]
    return pieces


def _string(text: str | None) -> bytes:
    if text is None:
        return b"\0"
    encoded = text.encode()
    return encode_uvarint(len(encoded) + 1) + encoded
