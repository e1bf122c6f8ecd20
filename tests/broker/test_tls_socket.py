"""A TLS 1.3 peer that sends records without data, against our side of the connection: pure but for a pair of sockets."""

from __future__ import annotations

import contextlib
import itertools
import socket
import ssl
import struct
from collections import deque

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA384
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand
from support.secure_kafka import STORES

from klamm_broker.server import tls_connection, tls_socket
from klamm_broker.server.metrics import RequestMetrics
from klamm_broker.server.tls_connection import Handshakes
from klamm_broker.server.tls_socket import TlsSocket

HANDSHAKE, DATA = 22, 23
KEY_UPDATE = b"\x18\0\0\x01\0"


def expand(secret: bytes, label: bytes, size: int) -> bytes:
    full = b"tls13 " + label
    info = struct.pack(">HB", size, len(full)) + full + b"\0"
    return HKDFExpand(SHA384(), size, info).derive(secret)


class Peer:
    """A client that writes its own records after the handshake (RFC 8446, 5.2 and 7.2)."""

    def __init__(self, sock: socket.socket, secret: bytes) -> None:
        self.sock = sock
        self.take(secret)

    def take(self, secret: bytes) -> None:
        self.secret = secret
        self.cipher, self.iv = AESGCM(expand(secret, b"key", 32)), expand(secret, b"iv", 12)
        self.number = 0

    def record(self, kind: int, content: bytes) -> bytes:
        plain = content + bytes([kind])
        head = struct.pack(">BHH", DATA, 0x303, len(plain) + 16)
        nonce = (int.from_bytes(self.iv) ^ self.number).to_bytes(12)
        self.number += 1
        return head + self.cipher.encrypt(nonce, plain, head)

    def key_updates(self, count: int) -> bytes:
        made = []
        for _ in range(count):
            made.append(self.record(HANDSHAKE, KEY_UPDATE))
            self.take(expand(self.secret, b"traffic upd", 48))
        return b"".join(made)


@pytest.fixture
def pair(tmp_path):
    """Returns our side and the peer behind a handshake."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        theirs.settimeout(60)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(STORES / "server.pem")
        sock = TlsSocket(ours, context)
        client = ssl.create_default_context(cafile=STORES / "ca.pem")
        client.keylog_filename = str(tmp_path / "keys")
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        session = client.wrap_bio(incoming, outgoing, server_hostname="localhost")
        done = False
        while not done:
            with contextlib.suppress(ssl.SSLWantReadError):
                session.do_handshake()
            theirs.sendall(outgoing.read())
            done = sock.handshake()
            sock.flush()
            if not done:
                incoming.write(theirs.recv(1 << 16))
        with pytest.raises(BlockingIOError):
            sock.recv_into(memoryview(bytearray(1)))
        assert session.cipher()[0] == "TLS_AES_256_GCM_SHA384"
        lines = (tmp_path / "keys").read_text().splitlines()
        (secret,) = [line.split()[2] for line in lines if line.startswith("CLIENT_TRAFFIC_SECRET_0")]
        yield sock, Peer(theirs, bytes.fromhex(secret))


def read(sock: TlsSocket) -> bytes:
    """Returns what comes in a call, as a connection would get it."""
    view = memoryview(bytearray(256 * 1024))
    while True:
        try:
            return bytes(view[: sock.recv_into(view)])
        except BlockingIOError:
            if not sock.more:
                raise


def test_a_change_of_keys_between_data_is_fine(pair):
    sock, peer = pair
    for number in range(4):
        peer.sock.sendall(peer.key_updates(300) + peer.record(DATA, b"%d" % number))
        assert read(sock) == b"%d" % number


def test_a_peer_that_only_changes_keys_is_refused(pair):
    sock, peer = pair
    peer.sock.sendall(peer.key_updates(3000) + peer.record(DATA, b"x"))
    with pytest.raises(ssl.SSLError, match="bytes of records without any data"):
        read(sock)


def test_small_records_stop_after_a_turn_and_nothing_is_lost(pair, monkeypatch):
    sock, peer = pair
    now = itertools.count(0, tls_socket.TURN_S)  # time passes with each look
    monkeypatch.setattr(tls_socket, "perf_counter", lambda: next(now))
    sent = b"".join(peer.key_updates(500) + peer.record(DATA, bytes([n])) for n in range(5))
    peer.sock.sendall(sent)
    view, got, calls = memoryview(bytearray(1024)), b"", 0
    while len(got) < 5:
        calls += 1
        try:
            got += view[: sock.recv_into(view)]
        except BlockingIOError:
            assert sock.more
    assert got == bytes(range(5))
    assert calls >= len(sent) // tls_socket.PIECE_BYTES
    assert not sock.more


@pytest.mark.parametrize("room", [1, 1000, 16 * 1024, 256 * 1024])
def test_large_records_come_whole_into_any_room(pair, room):
    sock, peer = pair
    data = b"".join(bytes([n]) * 16_000 for n in range(12))
    peer.sock.sendall(
        b"".join(peer.record(DATA, data[at : at + 16_000]) for at in range(0, len(data), 16_000))
    )
    view, got = memoryview(bytearray(room)), bytearray()
    while len(got) < len(data):
        try:
            got += view[: sock.recv_into(view)]
        except BlockingIOError:
            assert sock.more
    assert got == data
    with pytest.raises(BlockingIOError):
        sock.recv_into(view)


class Loop:
    def __init__(self) -> None:
        self.calls: deque = deque()

    def call_soon(self, call) -> None:
        self.calls.append(call)


class Defect:
    def __init__(self, log: list) -> None:
        self.log = log

    def shake(self) -> None:
        self.log.append("defect")
        raise ZeroDivisionError


class Sound(Defect):
    def shake(self) -> None:
        self.log.append("sound")


def test_a_defect_in_one_handshake_leaves_the_others_their_turn(monkeypatch):
    monkeypatch.setattr(tls_connection, "perf_counter", lambda: 0.0)
    loop, log = Loop(), []
    handshakes = Handshakes(loop, RequestMetrics())
    for kind in (Defect, Sound, Defect, Sound):
        handshakes.go_on(kind(log))
    while loop.calls:
        with contextlib.suppress(ZeroDivisionError):
            loop.calls.popleft()()
    assert log == ["defect", "sound", "defect", "sound"]
    handshakes.go_on(Sound(log))
    assert loop.calls, "a later one gets a turn as well"
