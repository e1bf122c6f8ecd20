"""Byte for byte against kio, whose messages come from the same definitions by another road.

A message of ours is turned into kio's entity field by field (both keep the definitions' order), written by
kio, and must give our bytes. What kio does not have is listed here, and is compared with Apache Kafka itself in
test_wire_against_kafka.
"""

import dataclasses
import datetime as dt
import io
import typing
import uuid
from functools import cache
from importlib import import_module

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.serial import entity_writer
from support.wire_strategies import all_messages, expressible, filled, structs, versions_of

from klamm_kafka.wire.api_keys import ApiKey

NOT_IN_KIO = {
    "GroupMetadataKey",
    "GroupMetadataValue",
    "OffsetCommitKey",
    "OffsetCommitValue",
    "TransactionLogKey",
    "TransactionLogValue",
}
DATA_MODULES = {
    "ConsumerProtocolAssignment": "consumer_protocol_assignment",
    "ConsumerProtocolSubscription": "consumer_protocol_subscription",
    "EndTxnMarker": "end_txn_marker",
    "RequestHeader": "request_header",
    "ResponseHeader": "response_header",
}
MESSAGES = list(all_messages())
IN_KIO = [cls for cls in MESSAGES if cls.__name__ not in NOT_IN_KIO]
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
LATEST_MS = 1 << 40  # kio has times where the protocol has numbers, and Python's end in the year 9999


def kio_class(cls, version):
    if cls.KIND in {"request", "response"}:
        module, kind = ApiKey(cls.API_KEY).name.lower(), cls.KIND
    else:
        module, kind = DATA_MODULES[cls.__name__], cls.KIND
    return getattr(import_module(f"kio.schema.{module}.v{version}.{kind}"), cls.__name__)


def scalar(value, kio_type, optional):
    match kio_type:
        case "error_code":
            return KioErrorCode(value)
        case "uuid":
            return None if optional and value == bytes(16) else uuid.UUID(bytes=value)
        case "timedelta_i32" | "timedelta_i64":
            return dt.timedelta(milliseconds=value)
        case "datetime_i64":
            return None if optional and value == -1 else EPOCH + dt.timedelta(milliseconds=value)
    return value


def to_kio(struct, kio, version, flexible):
    """Returns the kio entity with the values of ours."""
    present = [s for s in struct.FIELDS if s.in_version(version) and (s.tag is None or flexible)]
    theirs = dataclasses.fields(kio)
    assert len(present) == len(theirs), f"{kio}: other fields than {[s.name for s in present]}"
    hints = hints_of(kio)
    content = {}
    for spec, field in zip(present, theirs, strict=True):
        value = getattr(struct, spec.name)
        optional = type(None) in typing.get_args(hints[field.name])
        if spec.struct:
            inner = nested_class(hints[field.name])
            if spec.array and value is not None:
                value = tuple(to_kio(item, inner, version, flexible) for item in value)
            elif value is not None:
                value = to_kio(value, inner, version, flexible)
        elif spec.array:
            value = (
                None
                if value is None
                else tuple(scalar(v, field.metadata["kafka_type"], False) for v in value)
            )
        else:
            value = scalar(value, field.metadata["kafka_type"], optional)
        content[field.name] = value
    return kio(**content)


hints_of = cache(typing.get_type_hints)


def nested_class(hint):
    if dataclasses.is_dataclass(hint):
        return hint
    return next(found for argument in typing.get_args(hint) if (found := nested_class(argument)))


def tame(struct, kio_types):
    """Bends values that only kio's Python types cannot hold: times beyond the year 9999."""
    for spec in struct.FIELDS:
        value = getattr(struct, spec.name)
        if spec.struct and value is not None:
            for item in value if spec.array else (value,):
                tame(item, kio_types)
        elif spec.name in kio_types and isinstance(value, int):
            setattr(struct, spec.name, -1 if value == -1 else abs(value) % LATEST_MS % (1 << 31))
    return struct


def timed_fields(cls):
    return {
        s.name for s in cls.FIELDS if s.type in {"int32", "int64"} and ("_ms" in s.name or "time" in s.name)
    }.union(*(timed_fields(s.struct) for s in cls.FIELDS if s.struct))


@pytest.mark.parametrize("cls", IN_KIO, ids=lambda cls: cls.__name__)
@settings(
    max_examples=3,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
    database=None,
    phases=[Phase.generate],
)
@given(data=st.data())
def test_kio_writes_the_same_bytes(cls, data):
    compare(cls, data.draw(structs(cls)))


def test_kio_writes_the_same_bytes_of_messages_with_every_field():
    for cls in IN_KIO:
        compare(cls, filled(cls, 0))


def compare(cls, value):
    value = tame(value, timed_fields(cls))
    for version in versions_of(cls):
        message = expressible(value, version, with_unknown_tags=False)
        kio = kio_class(cls, version)
        buffer = io.BytesIO()
        entity_writer(kio)(buffer, to_kio(message, kio, version, cls.is_flexible(version)))
        assert message.encode(version).hex() == buffer.getvalue().hex(), f"{cls.__name__} v{version}"


def test_what_kio_lacks_is_what_is_listed():
    missing = set()
    for cls in MESSAGES:
        try:
            for version in versions_of(cls):
                kio_class(cls, version)
        except (ImportError, KeyError):
            missing.add(cls.__name__)
    assert missing == NOT_IN_KIO
