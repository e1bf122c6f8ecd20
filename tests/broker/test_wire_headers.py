"""Headers, varints, error codes and the table of API keys."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klamm_kafka.wire import varint
from klamm_kafka.wire.api_keys import ApiKey, message_types
from klamm_kafka.wire.errors import ErrorCode, MalformedMessage, ProtocolError, TruncatedMessage
from klamm_kafka.wire.headers import (
    RequestHeader,
    decode_request_header,
    decode_response_header,
    encode_request_header,
    encode_response_header,
    frame_request,
    frame_response,
    request_header_version,
    response_header_version,
)
from klamm_kafka.wire.messages import header as tables
from klamm_kafka.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

SETTINGS = settings(max_examples=60, deadline=None, derandomize=True, database=None)
client_ids = st.none() | st.text(max_size=8)


@SETTINGS
@given(key=st.sampled_from(ApiKey), client_id=client_ids, correlation_id=st.integers(-(2**31), 2**31 - 1))
def test_request_header_is_that_of_the_table(key, client_id, correlation_id):
    request, response = message_types(key)
    for version in range(request.MIN_VERSION, request.MAX_VERSION + 1):
        header = RequestHeader(key, version, correlation_id, client_id)
        table = tables.RequestHeader(
            request_api_key=key,
            request_api_version=version,
            correlation_id=correlation_id,
            client_id=client_id,
        )
        encoded = encode_request_header(header)
        assert encoded == table.encode(2 if request.is_flexible(version) else 1)
        assert decode_request_header(b"size" + encoded + b"body", 4) == (header, 4 + len(encoded))
        answer = encode_response_header(correlation_id, key, version)
        expected = 0 if key is ApiKey.API_VERSIONS else int(response.is_flexible(version))
        assert answer == tables.ResponseHeader(correlation_id=correlation_id).encode(expected)
        assert decode_response_header(answer + b"body", key, version) == (correlation_id, len(answer))


def test_golden_headers():
    # Metadata 9 (flexible), correlation 7: the client id keeps its two-byte length, then no tagged fields.
    encoded = bytes.fromhex("0003 0009 00000007 0002 6162 00")
    assert encode_request_header(RequestHeader(3, 9, 7, "ab")) == encoded
    assert decode_request_header(encoded) == (RequestHeader(3, 9, 7, "ab"), len(encoded))
    assert encode_response_header(7, ApiKey.METADATA, 9).hex() == "0000000700"
    assert encode_response_header(7, ApiKey.API_VERSIONS, 4).hex() == "00000007"


def test_tags_of_newer_headers_are_passed_over():
    encoded = bytes.fromhex("0003 0009 00000007 ffff 02 00 01 61 05 02 6262") + b"body"
    assert decode_request_header(encoded) == (RequestHeader(3, 9, 7, None), len(encoded) - 4)
    assert decode_response_header(bytes.fromhex("00000007 01 00 01 61") + b"body", 3, 9) == (7, 8)


def test_unknown_apis_and_versions_can_still_be_answered():
    """A newer ApiVersions request must be understood far enough to be told which versions there are."""
    header, _ = decode_request_header(bytes.fromhex("0012 0063 00000001 0001 61 00"))
    assert header == RequestHeader(18, 99, 1, "a")
    assert decode_request_header(bytes.fromhex("03e7 0000 00000001 0001 61"))[0].api_key == 999
    assert request_header_version(999, 0) == 1
    assert response_header_version(ApiKey.API_VERSIONS, 99) == 0


@pytest.mark.parametrize(
    "text", ["0003 0009 00000007 0002 6162 01 05 03 616161", "0003 0001 00000007 0002 6162"]
)
def test_request_header_cut_anywhere(text):
    encoded = bytes.fromhex(text)
    for size in range(len(encoded)):
        with pytest.raises(TruncatedMessage):
            decode_request_header(encoded[:size])
        with pytest.raises(TruncatedMessage):
            decode_request_header(encoded, 0, size)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("0003 0009 00000007 fffe", "length -2"),
        ("0003 0009 00000007 0001 ff 00", "UTF-8"),
        ("0003 0009 00000007 ffff ffffffffffff", "varint"),
    ],
)
def test_request_header_of_garbage(text, reason):
    with pytest.raises(MalformedMessage, match=reason):
        decode_request_header(bytes.fromhex(text))


@SETTINGS
@given(st.binary(max_size=40))
def test_request_header_parses_or_is_malformed(garbage):
    try:
        _, end = decode_request_header(garbage)
    except MalformedMessage:
        return
    assert end <= len(garbage)


def test_frames():
    request = ApiVersionsRequest(client_software_name="k", client_software_version="1")
    frame = frame_request(RequestHeader(18, 3, 5, "c"), request)
    assert frame.hex(" ", -4) == bytes.fromhex("00000011 0012 0003 00000005 0001 63 00 02 6b 02 31 00").hex(
        " ", -4
    )
    response = ApiVersionsResponse(error_code=35)
    assert frame_response(5, 18, 0, response) == bytes.fromhex("0000000a 00000005 0023 00000000")


def test_every_api_key_has_its_messages():
    for key in ApiKey:
        request, response = message_types(key)
        assert (key, "request") == (request.API_KEY, request.KIND)
        assert (key, "response") == (response.API_KEY, response.KIND)
        assert response.MAX_VERSION == request.MAX_VERSION
    with pytest.raises(ValueError, match="999"):
        message_types(999)


@SETTINGS
@given(st.integers(0, 2**35 - 1), st.integers(-(2**63), 2**63 - 1))
def test_varints(unsigned, signed):
    encoded = varint.encode_uvarint(unsigned)
    assert varint.decode_uvarint(b"#" + encoded + b"#", 1) == (unsigned, 1 + len(encoded))
    assert varint.size_of_uvarint(unsigned) == len(encoded)
    encoded = varint.encode_varint(signed)
    assert varint.decode_varint(encoded, 0) == (signed, len(encoded))
    assert varint.size_of_varint(signed) == len(encoded)
    for size in range(len(encoded)):
        with pytest.raises(IndexError):
            varint.decode_varint(encoded[:size], 0)


@pytest.mark.parametrize(
    ("value", "text"), [(0, "00"), (-1, "01"), (1, "02"), (63, "7e"), (-64, "7f"), (64, "8001"), (-(2**63), "ff" * 9 + "01")]
)  # fmt: skip
def test_zigzag_by_hand(value, text):
    assert varint.encode_varint(value).hex() == text


def test_varints_that_are_none():
    with pytest.raises(varint.VarintTooLong):
        varint.decode_uvarint(b"\xff" * 6, 0)
    with pytest.raises(ValueError, match="-1"):
        varint.encode_uvarint(-1)


def test_error_codes():
    assert len(ErrorCode) == 135
    assert [int(code) for code in ErrorCode] == list(range(-1, 134))
    assert all(code.message for code in ErrorCode)
    assert len({code.message for code in ErrorCode}) == len(ErrorCode)
    assert ErrorCode.NOT_LEADER_OR_FOLLOWER.retriable
    assert not ErrorCode.MESSAGE_TOO_LARGE.retriable
    assert issubclass(TruncatedMessage, ProtocolError)
    assert TruncatedMessage("m", "f", 3, "r").code is ErrorCode.INVALID_REQUEST
