"""Every decoder that reads bytes of others, as a function of bytes: it takes them, or refuses them with our own error.

Anything else that comes out of one (IndexError, MemoryError, a hang) is a defect. `python tests/fuzz/run.py TARGET`
drives them with atheris where that is installed; the tests beside this file drive them with Hypothesis.
"""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from klamm_base.errors import KlammError
from klamm_broker.coordinator import loading as group_loading
from klamm_broker.coordinator.consumer import consumer_protocol
from klamm_broker.coordinator.consumer.topics import NoTopics
from klamm_broker.coordinator.effects import KeyValue
from klamm_broker.coordinator.subscription import MalformedSubscription, subscribed_topics
from klamm_broker.coordinator.transactions import loading as transaction_loading
from klamm_broker.log import producer_snapshot
from klamm_broker.log.checkpoints import parse_lines
from klamm_broker.log.leader_epoch import LeaderEpochCache
from klamm_broker.log.topic_registry import TopicRegistry
from klamm_broker.log.txn_index import TxnIndex
from klamm_broker.security.sasl.credentials import Mechanism, of_password
from klamm_broker.security.sasl.exchange import Exchange, Offer, OutOfOrder
from klamm_broker.security.sasl.mechanism import Identity, LoginRefused
from klamm_broker.security.sasl.oauthbearer import ClaimRules, OAuthServer, UnsecuredValidator
from klamm_broker.security.sasl.plain import PlainServer, PlainUsers
from klamm_broker.security.sasl.scram import Account, ScramServer
from klamm_broker.server.cluster_config import ClusterConfig
from klamm_broker.server.scram_users import ScramUsers
from klamm_kafka.client.scram import ScramClient
from klamm_kafka.wire.api_keys import ApiKey, message_types
from klamm_kafka.wire.batch import check_crc, decode_records, iter_headers, read_end_txn_marker
from klamm_kafka.wire.compression import Compression, decompress
from klamm_kafka.wire.errors import ProtocolError
from klamm_kafka.wire.headers import decode_request_header
from klamm_kafka.wire.hot import parse_produce

REFUSED: Final = (ProtocolError, KlammError, MalformedSubscription, OutOfOrder)
LIMIT: Final = 4 << 20
_KEYS: Final = sorted(ApiKey)
_WHERE: Final = Path(tempfile.gettempdir()) / "klamm-fuzz-file"


def request(data: bytes) -> None:
    """Takes a frame: header and message."""
    if len(data) < 4:
        return
    key = _KEYS[data[1] % len(_KEYS)]
    kind = message_types(key)[0]
    version = kind.MIN_VERSION + data[3] % (kind.MAX_VERSION - kind.MIN_VERSION + 1)
    frame = bytes([0, key, 0, version]) + data[4:]
    _, body = decode_request_header(memoryview(frame), 0, len(frame))
    message, _ = kind.decode(frame[body:], version)
    message.encode(version)


def produce(data: bytes) -> None:
    """Produce's own parser, by hand."""
    if data:
        parse_produce(memoryview(data), 1, 3 + data[0] % 11)


def answer(data: bytes) -> None:
    """Takes an answer, as our own client and the mirror read it."""
    if len(data) >= 2:
        kind = message_types(_KEYS[data[0] % len(_KEYS)])[1]
        version = kind.MIN_VERSION + data[1] % (kind.MAX_VERSION - kind.MIN_VERSION + 1)
        kind.decode(data, version, 2)


def batch(data: bytes) -> None:
    """Record batches, back to back; their checksums do not stop us."""
    for position, header in iter_headers(data):
        for record in decode_records(data, position, limit=LIMIT):
            if header.is_control:
                read_end_txn_marker(record)
        check_crc(data, position, header)


def compressed(data: bytes) -> None:
    """Takes bytes that claim to be compressed."""
    if data:
        kinds = [kind for kind in Compression if kind is not Compression.NONE]
        decompress(kinds[data[0] % len(kinds)], data[1:], limit=LIMIT)


def _pairs(data: bytes) -> list[KeyValue]:
    """Keys and values, cut out of the bytes by their length bytes; a value of 255 is a tombstone."""
    found, position = [], 0
    while position + 2 <= len(data):
        key_size, value_size = data[position], data[position + 1]
        key = data[position + 2 : position + 2 + key_size]
        position += 2 + key_size
        value = None if value_size == 255 else data[position : position + value_size]
        position += 0 if value is None else value_size
        found.append(KeyValue(key, value))
    return found


def group_log(data: bytes) -> None:
    """Takes records of `__consumer_offsets`: those that cannot be read are logged, the others count."""
    loader = group_loading.Loader()
    pairs = _pairs(data)
    loader.replay(pairs[::2])
    loader.replay(pairs[1::2], producer_id=3)
    loader.complete(3, committed=bool(len(data) % 2))
    loader.groups(0)
    list(loader.in_transactions())


def transaction_log(data: bytes) -> None:
    """Takes records of `__transaction_state`."""
    loader = transaction_loading.Loader()
    loader.replay(_pairs(data))
    transaction_loading.largest_producer_id(loader.transactions(0))


def subscription(data: bytes) -> None:
    """Takes the bytes in which a member of a group describes itself."""
    subscribed_topics(data)


def consumer_metadata(data: bytes) -> None:
    """Takes a classic member's subscription and assignment, as a group of the new protocol takes them over."""
    consumer_protocol.read_subscription(data, NoTopics())


def consumer_assignment(data: bytes) -> None:
    consumer_protocol.read_assignment(data, NoTopics())


def snapshot(data: bytes) -> None:
    """Takes a `.snapshot` file."""
    producer_snapshot.decode(data, _WHERE)


def checkpoint(data: bytes) -> None:
    """Takes a checkpoint file."""
    parse_lines(data.decode("utf-8", "replace"), _WHERE)


def _file(data: bytes) -> Path:
    path = _WHERE.with_name(f"{_WHERE.name}-{os.getpid()}")
    path.write_bytes(data)
    return path


def epochs(data: bytes) -> None:
    """Takes `leader-epoch-checkpoint`."""
    LeaderEpochCache.load(_file(data))


def txn_index(data: bytes) -> None:
    """Takes a `.txnindex` file."""
    TxnIndex(_file(data)).check(0)


def topics(data: bytes) -> None:
    """Takes `klamm-topics.json`."""
    TopicRegistry.load(_file(data))


def cluster_config(data: bytes) -> None:
    """Takes `klamm-cluster.json`."""
    ClusterConfig.load(_file(data))


def scram_users(data: bytes) -> None:
    """Takes `klamm-users.json`."""
    ScramUsers.load(_file(data))


LOGIN_NOW_MS: Final = 1_800_000_000_000
LOGIN_PASSWORD: Final = "right-password"
_ANN: Final = Account(
    credential=of_password(Mechanism.SHA256, LOGIN_PASSWORD, salt=b"salt", iterations=4096),
    identity=Identity(name="ann"),
)


def _scram() -> ScramServer:
    """Returns a server whose nonce is always the same, so that a proof that is right can be mutated."""
    return ScramServer(Mechanism.SHA256, lambda name, tokens: _ANN, nonce="server-nonce")


def _right_scram() -> tuple[bytes, bytes]:
    client = ScramClient("SCRAM-SHA-256", "ann", LOGIN_PASSWORD, nonce="client-nonce")
    return client.first(), client.final(_scram().step(client.first(), LOGIN_NOW_MS))


RIGHT_PLAIN: Final = f"\0ann\0{LOGIN_PASSWORD}".encode()
RIGHT_SCRAM: Final = _right_scram()
_OFFERS: Final = {
    "PLAIN": Offer(make=lambda: PlainServer(PlainUsers({"ann": LOGIN_PASSWORD}, b"key"))),
    "SCRAM-SHA-256": Offer(make=_scram),
    "OAUTHBEARER": Offer(make=lambda: OAuthServer(UnsecuredValidator(ClaimRules()))),
}  # fmt: skip


def login(data: bytes) -> None:
    """Takes the messages of a login, each behind its length byte. The first byte chooses mechanism and version.

    Nobody gets in but by the right messages. The proof of SCRAM may end in other bits that base64 does not count.
    """
    if not data:
        return
    exchange = Exchange(_OFFERS)
    mechanism, version = list(_OFFERS)[data[0] % len(_OFFERS)], data[0] // len(_OFFERS) % 2
    exchange.handshake(mechanism, version)
    said, rest = [], data[1:]
    while rest and exchange.session is None:
        said.append(rest[1 : 1 + rest[0]])
        rest = rest[1 + rest[0] :]
        answer = (exchange.authenticate if version else exchange.token)(said[-1], LOGIN_NOW_MS)
        assert LOGIN_PASSWORD not in f"{answer.failed} {answer.message}"
        if answer.failed is not None:
            assert exchange.session is None
            raise LoginRefused(answer.failed)
    if exchange.session is not None and mechanism == "PLAIN":
        assert said[0] in {RIGHT_PLAIN, b"ann" + RIGHT_PLAIN}
    if exchange.session is not None and mechanism == "SCRAM-SHA-256":
        assert [text.partition(b",p=")[0] for text in said] == [
            text.partition(b",p=")[0] for text in RIGHT_SCRAM
        ]


TARGETS: Final[dict[str, Callable[[bytes], None]]] = {
    f.__name__: f
    for f in (
        request, produce, answer, batch, compressed, group_log, transaction_log, subscription, consumer_metadata,
        consumer_assignment, snapshot, checkpoint, epochs, txn_index, topics, cluster_config,
        scram_users, login,
    )
}  # fmt: skip


def judge(target: str, data: bytes) -> None:
    """Raises whatever is not a refusal."""
    logging.disable(logging.ERROR)
    try:
        TARGETS[target](data)
    except REFUSED:
        return
    finally:
        logging.disable(logging.NOTSET)
