"""Strangers at a listener with logins: every API but the three of a login is refused, frames are bounded, over TLS as well."""

from __future__ import annotations

import ssl
import struct
from collections.abc import Iterator

import pytest
from support.broker import wait_until
from support.raw import framed, request_frame
from support.secure_broker import LoginClient, SecureBroker
from support.secure_kafka import STORES, USER
from support.wire_strategies import expressible, filled

from klamm_kafka.wire.api_keys import ApiKey, message_types
from klamm_kafka.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from klamm_kafka.wire.messages.sasl_handshake import SaslHandshakeRequest

pytestmark = pytest.mark.usefixtures("processes")

LOGIN = {ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE}
MOST = 524_288
UNKNOWN_KEYS = (-1, 92, 1000, 32_767)


@pytest.fixture(scope="module")
def secure(processes: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureBroker]:
    with SecureBroker(
        tmp_path_factory.mktemp("strangers"), {"connection.failed.authentication.delay.ms": "0"}
    ) as broker:
        yield broker


def connect(broker: SecureBroker, *, tls: bool) -> LoginClient:
    client = LoginClient(broker.tls_port if tls else broker.sasl_port)
    if tls:
        context = ssl.create_default_context(cafile=STORES / "ca.pem")
        client.sock = context.wrap_socket(client.sock, server_hostname="localhost")
    return client


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("shaken", [False, True])
def test_no_other_api_is_answered(secure, tls, shaken):
    told = secure.log_text.count("before login")
    for key in sorted(set(ApiKey) - LOGIN):
        kind = message_types(key)[0]
        frame = request_frame(expressible(filled(kind, 1), kind.MAX_VERSION), kind.MAX_VERSION)
        refused(secure, frame, tls=tls, shaken=shaken)
    for number in UNKNOWN_KEYS:
        refused(secure, framed(struct.pack(">hhih", number, 0, 1, -1)), tls=tls, shaken=shaken)
    assert secure.log_text.count("before login") - told < len(ApiKey) - len(LOGIN)  # few are told
    assert "before login" in secure.log_text


def refused(broker: SecureBroker, frame: bytes, *, tls: bool, shaken: bool) -> None:
    """Sends a frame to a new connection, perhaps behind a handshake: it must end without an answer."""
    with connect(broker, tls=tls) as client:
        if shaken:
            client.shake("PLAIN")
        client.sock.sendall(frame)
        client.wait_closed()


def login_frame(size: int) -> bytes:
    """Returns a login with a wrong password, as a frame of that size."""
    short = request_frame(SaslAuthenticateRequest(auth_bytes=b"x" * 300_000), 2)
    said = f"\0{USER}\0".encode()
    message = said + b"x" * (300_000 - len(said) + size - (len(short) - 4))
    frame = request_frame(SaslAuthenticateRequest(auth_bytes=message), 2)
    assert len(frame) == size + 4
    return frame


@pytest.fixture
def own(tmp_path) -> Iterator[SecureBroker]:
    """A broker that has refused nobody yet: after some refusals further ones are only counted."""
    with SecureBroker(tmp_path) as broker:
        yield broker


@pytest.mark.parametrize("tls", [False, True])
def test_a_frame_may_have_512_kib_and_no_byte_more(own, tls):
    with connect(own, tls=tls) as client:
        client.shake("PLAIN")
        client.sock.sendall(login_frame(MOST))
        assert client.receive(SaslAuthenticateRequest, 2)[1].error_code == 58
    before = own.log_text.count(f"request size {MOST + 1} exceeds sasl.server.max.receive.size={MOST}")
    refused(own, struct.pack(">i", MOST + 1), tls=tls, shaken=True)  # at its size: nothing is read for it
    refused(own, struct.pack(">i", MOST + 1), tls=tls, shaken=False)
    said = own.log_text.count(f"request size {MOST + 1} exceeds sasl.server.max.receive.size={MOST}")
    assert said == before + 2


def test_a_login_that_trickles_in_ends_in_time(tmp_path):
    """Bytes that come keep no login alive: the time counts from its begin."""
    with (
        SecureBroker(tmp_path, {"klamm.login.timeout.ms": "500"}) as broker,
        connect(broker, tls=False) as client,
    ):
        client.shake("PLAIN")
        client.sock.settimeout(0.02)
        sent = 0
        for byte in login_frame(MOST):
            try:
                client.sock.sendall(bytes([byte]))
                sent += 1
                if client.sock.recv(1) == b"":
                    break
            except TimeoutError:
                continue
            except (ConnectionResetError, BrokenPipeError):
                break
        assert 1 < sent < 1000
        assert "no login within klamm.login.timeout.ms=500" in broker.log_text


def test_what_a_client_makes_up_is_cut_in_the_audit_log(own):
    with connect(own, tls=False) as client:
        client.send(SaslHandshakeRequest(mechanism="X" * 30_000), 1)
        client.receive(SaslHandshakeRequest, 1)
    wait_until(lambda: "login failed" in own.log_text, "a line")
    said = [line for line in own.log_text.splitlines() if "XXX" in line]
    assert len(said) == 2, "the audit log's and the broker's"
    assert all(len(line) < 1000 for line in said)
