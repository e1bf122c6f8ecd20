"""Request and response headers, and the frame around a message.

A frame is a length, a header and a body. The header version of a request follows from its API key and version, so
reading a header needs both first. Kafka makes two exceptions: the client id keeps its old length prefix in every
version, and the answer to ApiVersions always has the oldest header, because the client may not know the server's
versions yet.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from klamm_kafka.wire.api_keys import ApiKey, message_types
from klamm_kafka.wire.errors import MalformedMessage, TruncatedMessage
from klamm_kafka.wire.varint import TAGS_MAX, Buffer, VarintTooLong, decode_uvarint

_FIXED: Final = struct.Struct(">hhih")  # api key, api version, correlation id, length of the client id
_RESPONSE: Final = struct.Struct(">ii")
_SIZE: Final = struct.Struct(">i")
_TITLE: Final = "RequestHeader"


class RequestHeader(NamedTuple):
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def request_header_version(api_key: int, api_version: int) -> int:
    """Returns 1, or 2 for flexible versions. For an unknown API it returns 1."""
    try:
        request, _ = message_types(api_key)
    except ValueError:
        return 1
    return 2 if request.is_flexible(api_version) else 1


def response_header_version(api_key: int, api_version: int) -> int:
    """Returns 0, or 1 for flexible versions; always 0 for ApiVersions."""
    if api_key == ApiKey.API_VERSIONS:
        return 0
    _, response = message_types(api_key)
    return 1 if response.is_flexible(api_version) else 0


def decode_request_header(buf: Buffer, pos: int = 0, end: int | None = None) -> tuple[RequestHeader, int]:
    """Returns (header, position of the body). Raises MalformedMessage, but not for an API or version that nobody serves.

    In a version above the highest of its API, the tagged fields are read as in the highest.
    """
    end = len(buf) if end is None else end
    if end - pos < _FIXED.size:
        raise TruncatedMessage(_TITLE, "client_id", pos, f"needs more than the {end - pos} bytes left")
    api_key, api_version, correlation_id, size = _FIXED.unpack_from(buf, pos)
    pos += _FIXED.size
    client_id = None
    if size >= 0:
        if pos + size > end:
            raise TruncatedMessage(_TITLE, "client_id", pos, f"needs {size} bytes, {end - pos} are left")
        try:
            client_id = str(memoryview(buf)[pos : pos + size], "utf-8")
        except UnicodeDecodeError:
            raise MalformedMessage(_TITLE, "client_id", pos, "not UTF-8") from None
        pos += size
    elif size != -1:
        raise MalformedMessage(_TITLE, "client_id", pos - 2, f"length {size}")
    if request_header_version(api_key, api_version) == 2:
        pos = _skip_tags(buf, pos, end)
    return RequestHeader(api_key, api_version, correlation_id, client_id), pos


def _skip_tags(buf: Buffer, pos: int, end: int) -> int:
    """Returns the position behind the tagged fields. Headers have none yet; those of a newer client are skipped."""
    try:
        count, pos = decode_uvarint(buf, pos)
        if count > TAGS_MAX:
            raise MalformedMessage(
                _TITLE, "tags", pos, f"{count} tagged fields, at most {TAGS_MAX} are taken"
            )
        for _ in range(count):
            _, pos = decode_uvarint(buf, pos)
            size, pos = decode_uvarint(buf, pos)
            pos += size
            if pos > end:
                break
    except IndexError:
        pos = end + 1
    except VarintTooLong as error:
        raise MalformedMessage(_TITLE, "tags", pos, str(error)) from None
    if pos > end:
        raise TruncatedMessage(_TITLE, "tags", end, "its tagged fields are cut")
    return pos


def encode_request_header(header: RequestHeader) -> bytes:
    client_id = None if header.client_id is None else header.client_id.encode()
    size = -1 if client_id is None else len(client_id)
    fixed = _FIXED.pack(header.api_key, header.api_version, header.correlation_id, size)
    tags = b"\0" if request_header_version(header.api_key, header.api_version) == 2 else b""
    return fixed + (client_id or b"") + tags


def decode_response_header(buf: Buffer, api_key: int, api_version: int, pos: int = 0) -> tuple[int, int]:
    """Returns (correlation id, position of the body)."""
    if len(buf) - pos < 4:
        raise TruncatedMessage("ResponseHeader", "correlation_id", pos, "needs 4 bytes")
    (correlation_id,) = _SIZE.unpack_from(buf, pos)
    pos += 4
    if response_header_version(api_key, api_version) == 1:
        pos = _skip_tags(buf, pos, len(buf))
    return correlation_id, pos


def encode_response_header(correlation_id: int, api_key: int, api_version: int) -> bytes:
    return _SIZE.pack(correlation_id) + b"\0" * response_header_version(api_key, api_version)


def frame_request(header: RequestHeader, body: Any) -> bytes:
    """Returns length, header and body (a request message) as they go on the wire."""
    head = encode_request_header(header)
    parts = body.encode_parts(header.api_version)
    return b"".join((_SIZE.pack(len(head) + sum(map(len, parts))), head, *parts))


def frame_pieces(
    correlation_id: int, api_key: int, api_version: int, pieces: Sequence[bytes]
) -> Sequence[bytes]:
    """Returns an encoded body with its length and header. They are copied into the first piece only."""
    tags = b"\0" * response_header_version(api_key, api_version)
    size = 4 + len(tags) + sum(map(len, pieces))
    first = b"".join((_RESPONSE.pack(size, correlation_id), tags, pieces[0]))
    return (first, *pieces[1:])


def frame_response(correlation_id: int, api_key: int, api_version: int, body: Any) -> bytes:
    """Returns length, header and body (a response message) as they go on the wire."""
    parts = body.encode_parts(api_version)
    size = sum(map(len, parts)) + 4
    if response_header_version(api_key, api_version) == 0:
        return b"".join((_RESPONSE.pack(size, correlation_id), *parts))
    return b"".join((_RESPONSE.pack(size + 1, correlation_id), b"\0", *parts))
