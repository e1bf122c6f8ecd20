"""Inputs that every target takes as they are: where mutation begins."""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Iterator

import google_crc32c
from fuzz.targets import RIGHT_PLAIN, RIGHT_SCRAM
from support.raw import batch, produce_request
from support.wire_strategies import expressible, filled, versions_of

from klamm_kafka.wire.api_keys import ApiKey, message_types
from klamm_kafka.wire.batch import Record, encode_batch, encode_end_txn_marker
from klamm_kafka.wire.compression import Compression, compress
from klamm_kafka.wire.messages import consumer_protocol, group_records, transaction_records
from klamm_kafka.wire.struct import Message


def _messages(kind: int) -> Iterator[tuple[int, int, bytes]]:
    for index, key in enumerate(sorted(ApiKey)):
        cls = message_types(key)[kind]
        for version in {cls.MIN_VERSION, cls.MAX_VERSION}:
            yield index, version - cls.MIN_VERSION, expressible(filled(cls, 1), version).encode(version)


def request() -> Iterator[bytes]:
    for index, version, body in _messages(0):
        yield bytes([0, index, 0, version]) + struct.pack(">ih", 7, -1) + body
        yield bytes([0, index, 0, version]) + struct.pack(">ihb", 7, -1, 0) + body


def answer() -> Iterator[bytes]:
    for index, version, body in _messages(1):
        yield bytes([index, version]) + body


def produce() -> Iterator[bytes]:
    for version in (3, 9, 12):
        yield bytes([version - 3]) + produce_request("t", batch(b"a")).encode(version)


def batches() -> Iterator[bytes]:
    for codec in Compression:
        yield batch(b"a", b"bb", compression=codec, producer_id=3, producer_epoch=0, base_sequence=1)
    record = Record(timestamp=1, key=None, value=b"v", headers=[("h", None), ("i", b"x")])
    yield bytes(encode_batch([record]))
    yield bytes(encode_end_txn_marker(committed=True, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp=1))  # fmt: skip


def compressed() -> Iterator[bytes]:
    codecs = [codec for codec in Compression if codec is not Compression.NONE]
    for index, codec in enumerate(codecs):
        yield bytes([index]) + bytes(compress(codec, b"abc" * 100))


def _stored(module: object) -> Iterator[bytes]:
    """Yields pairs of key and value as the targets cut them, for every record that a coordinator writes."""
    classes = {n: c for n, c in vars(module).items() if isinstance(c, type) and issubclass(c, Message)}
    for name, key_class in classes.items():
        value_class = classes.get(name.removesuffix("Key") + "Value")
        if not name.endswith("Key") or value_class is None:
            continue
        for kind in range(20):
            for version in versions_of(value_class):
                key = struct.pack(">h", kind) + expressible(filled(key_class, 1), 0).encode(0)
                value = struct.pack(">h", version) + expressible(filled(value_class, 2), version).encode(
                    version
                )
                if len(key) < 256 and len(value) < 255:
                    yield bytes([len(key), len(value)]) + key + value


def group_log() -> Iterator[bytes]:
    return _stored(group_records)


def transaction_log() -> Iterator[bytes]:
    name = transaction_records.TransactionLogKey(transactional_id="t").encode(0)
    for status in range(8):
        for version in versions_of(transaction_records.TransactionLogValue):
            value = expressible(filled(transaction_records.TransactionLogValue, 2), version)
            value.transaction_status = status
            stored = struct.pack(">h", version) + value.encode(version)
            if len(stored) < 255:
                yield bytes([len(name) + 2, len(stored)]) + struct.pack(">h", 0) + name + stored


def _consumer(cls: type[Message]) -> Iterator[bytes]:
    for version in versions_of(cls):
        yield struct.pack(">h", version) + expressible(filled(cls, 1), version).encode(version)


def subscription() -> Iterator[bytes]:
    return _consumer(consumer_protocol.ConsumerProtocolSubscription)


def assignment() -> Iterator[bytes]:
    return _consumer(consumer_protocol.ConsumerProtocolAssignment)


def snapshot() -> Iterator[bytes]:
    body = struct.pack(">i", 1) + struct.pack(">qhiqiqiq", 1, 0, 5, 9, 2, 1_700_000_000_000, 0, -1)
    yield struct.pack(">hI", 1, google_crc32c.value(body)) + body


def login() -> Iterator[bytes]:
    """Yields whole logins of every mechanism."""
    claims = base64.urlsafe_b64encode(b'{"sub": "ann", "exp": 1800000060}').rstrip(b"=")
    token = b"n,,\x01auth=Bearer eyJhbGciOiJub25lIn0." + claims + b".\x01\x01"
    for kind, messages in enumerate(([RIGHT_PLAIN], RIGHT_SCRAM, [token, b"\x01"])):
        for version in (0, 1):
            yield bytes([kind + 3 * version]) + b"".join(bytes([len(said)]) + said for said in messages)


def texts(*parts: bytes) -> Callable[[], Iterator[bytes]]:
    return lambda: iter(parts)


SEEDS: dict[str, Callable[[], Iterator[bytes]]] = {
    "request": request,
    "produce": produce,
    "answer": answer,
    "batch": batches,
    "compressed": compressed,
    "group_log": group_log,
    "transaction_log": transaction_log,
    "subscription": subscription,
    "consumer_metadata": subscription,
    "consumer_assignment": assignment,
    "snapshot": snapshot,
    "checkpoint": texts(b"0\n1\nt 0 5\n"),
    "epochs": texts(b"0\n2\n0 0\n3 17\n"),
    "txn_index": texts(struct.pack(">hqqqq", 0, 1, 2, 3, 4)),
    "topics": texts(
        b'{"version": 1, "starts": 3, "deleted": [], "topics": {"t": {"id": "AAAAAAAAAAAAAAAAAAAAAA", '
        b'"partitions": 1, "configs": {"a": "b"}, "firstStart": 0}}}'
    ),
    "cluster_config": texts(
        b'{"version": 1, "epoch": 2, "features": {"x": 1}, "configs": {"GROUP": {"g": {"k": "v"}}}}'
    ),
    "login": login,
    "scram_users": texts(
        b'{"version": 1, "users": {"u": {"SHA256": {"salt": "AAAA", "storedKey": "AAAA", '
        b'"serverKey": "AAAA", "iterations": 4096}}}}'
    ),
}
