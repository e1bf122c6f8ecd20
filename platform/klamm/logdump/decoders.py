"""Keys and values of records as text: plain ones, and the records of Kafka's internal topics. Pure.

A decoder takes a record and returns the texts of its key and its value; None for a part that is not shown.
"""

from __future__ import annotations

import base64
import importlib
import struct
from collections.abc import Callable, Mapping
from typing import Any, Final

from klamm.logdump.errors import DumpError
from klamm.logdump.json_text import camel, compact, to_json
from klamm_kafka.wire.batch import Record
from klamm_kafka.wire.errors import ProtocolError
from klamm_kafka.wire.messages import group_records, transaction_records
from klamm_kafka.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from klamm_kafka.wire.struct import Message

Decoder = Callable[[Record], tuple[str | None, str | None]]
Types = Mapping[int, tuple[type[Message], type[Message]]]
_VERSION: Final = struct.Struct(">h")
_API: Final = "org.apache.kafka.tools.api."


ABSENT: Final = {
    "cluster-metadata-decoder": "there is no decoder for the records of __cluster_metadata, which Klamm does not have",
    "remote-log-metadata-decoder": "there is no decoder for tiered storage's records, which Klamm does not have",
}
"""Kafka's decoders for what Klamm does not have, and why."""

# ---- plain


def _string(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _integer(data: bytes) -> str:
    return str(struct.unpack(">i", data)[0])


def _long(data: bytes) -> str:
    return str(struct.unpack(">q", data)[0])


_PLAIN: Final[Mapping[str, Callable[[bytes], str]]] = {
    "StringDecoder": _string,
    "IntegerDecoder": _integer,
    "LongDecoder": _long,
    "DefaultDecoder": bytes.hex,
}
"""Kafka's decoders by the last part of their names. DefaultDecoder gives bytes, which are shown as hexadecimal digits."""


def plain(key_class: str, value_class: str) -> Decoder:
    """Return the decoder for `--key-decoder-class` and `--value-decoder-class`.

    Raises DumpError for a class that is not Kafka's.
    """
    key, value = _plain_one("key", key_class), _plain_one("value", value_class)

    def decode(record: Record) -> tuple[str | None, str | None]:
        try:
            return (
                None if record.key is None else key(record.key),
                None if record.value is None else value(record.value),
            )
        except struct.error as e:
            raise DumpError(f"the record at offset {record.offset} does not fit the decoder: {e}") from None

    return decode


def _plain_one(part: str, name: str) -> Callable[[bytes], str]:
    found = _PLAIN.get(name.removeprefix(_API))
    if found is None:
        known = ", ".join(_API + n for n in _PLAIN)
        raise DumpError(
            f"--{part}-decoder-class {name}: a Java class cannot be loaded here; there are {known}"
        )
    return found


# ---- internal topics


def offsets() -> Decoder:
    """Return the decoder for records of `__consumer_offsets`."""
    return _coordinator(_offset_types(), _group_value)


def transaction_log() -> Decoder:
    """Return the decoder for records of `__transaction_state`."""
    types = {0: (transaction_records.TransactionLogKey, transaction_records.TransactionLogValue)}
    return _coordinator(types, to_json)


def share_group_state() -> Decoder:
    """Return the decoder for records of `__share_group_state`."""
    records = importlib.import_module("klamm_kafka.wire.messages.share_state_records")
    types = {
        0: (records.ShareSnapshotKey, records.ShareSnapshotValue),
        1: (records.ShareUpdateKey, records.ShareUpdateValue),
    }
    return _coordinator(types, to_json)


def _offset_types() -> Types:
    types: dict[int, tuple[type[Message], type[Message]]] = {}
    others = (
        importlib.import_module(f"klamm_kafka.wire.messages.{kind}_group_records")
        for kind in ("consumer", "share")
    )
    for module in (group_records, *others):
        keys = {
            m.API_KEY: m
            for m in vars(module).values()
            if isinstance(m, type) and issubclass(m, Message) and m is not Message and m.KIND == "key"
        }
        for m in vars(module).values():
            if isinstance(m, type) and issubclass(m, Message) and m is not Message and m.KIND == "value":
                types[m.API_KEY] = (keys[m.API_KEY], m)
    types[0] = types[1]  # the same fields; commits of clients from before Kafka 0.9
    return types


class _UnknownType(Exception):
    pass


def _coordinator(types: Types, show: Callable[[Message, int], dict[str, Any]]) -> Decoder:
    def decode(record: Record) -> tuple[str | None, str | None]:
        if record.key is None:
            raise DumpError(
                f"Failed to decode message at offset {record.offset} using the specified decoder (message had a missing key)"
            )
        try:
            return _key_and_value(record.key, record.value, types, show)
        except _UnknownType as e:
            return f"Unknown record type {e} at offset {record.offset}, skipping.", None
        except (ProtocolError, struct.error) as e:
            return f"Error at offset {record.offset}, skipping. {e}", None

    return decode


def _key_and_value(
    key: bytes, value: bytes | None, types: Types, show: Callable[[Message, int], dict[str, Any]]
) -> tuple[str, str]:
    (kind,) = _VERSION.unpack_from(key)
    if kind not in types:
        raise _UnknownType(kind)
    key_type, value_type = types[kind]
    shown = compact({"type": str(kind), "data": to_json(key_type.decode(key, 0, 2)[0], 0)})
    if value is None:
        return shown, "<DELETE>"
    (version,) = _VERSION.unpack_from(value)
    message = value_type.decode(value, version, 2)[0]
    return shown, compact({"version": str(version), "data": show(message, version)})


def _group_value(message: Message, version: int) -> dict[str, Any]:
    """Return a value of `__consumer_offsets`; in a consumers' group with the members' subscriptions and assignments
    decoded.
    """
    data = to_json(message, version)
    if isinstance(message, group_records.GroupMetadataValue) and message.protocol_type == "consumer":
        for member in data["members"]:
            _open(member, "subscription", ConsumerProtocolSubscription)
            _open(member, "assignment", ConsumerProtocolAssignment)
    return data


def _open(member: dict[str, Any], name: str, type_: type[Message]) -> None:
    """Replace bytes by what they say; they stay where they say nothing that is known."""
    raw = base64.b64decode(member[name])
    try:
        (version,) = _VERSION.unpack_from(raw)
        member[camel(name)] = to_json(type_.decode(raw, version, 2)[0], version)
    except (ProtocolError, struct.error):
        return
