"""SCRAM as RFC 5802 and RFC 7677 have it, and what a false server may not do."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm_base.security import SaslSettings
from klamm_kafka.client.errors import AuthenticationFailed
from klamm_kafka.client.sasl import Authenticator
from klamm_kafka.client.scram import ScramClient, ScramError
from klamm_kafka.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from klamm_kafka.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

# The example of RFC 7677.
NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
CLIENT_FINAL = b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def client(**more):
    return ScramClient("SCRAM-SHA-256", "user", "pencil", nonce=NONCE, **more)


def test_the_example_of_the_rfc():
    scram = client()
    assert scram.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert scram.final(SERVER_FIRST) == CLIENT_FINAL
    scram.verify(SERVER_FINAL)


@pytest.mark.parametrize(
    ("first", "said"),
    [
        (SERVER_FIRST.replace(b"r=rO", b"r=xO"), "nonce does not go on"),
        (b"r=" + NONCE.encode() + b",s=W22Z,i=4096", "nonce does not go on"),
        (SERVER_FIRST.replace(b"i=4096", b"i=1"), "asks for 1 iterations"),
        (SERVER_FIRST.replace(b"i=4096", b"i=99999999"), "iterations, not 4096 to"),
        (SERVER_FIRST.replace(b"s=W22Z", b"s=!!!!"), "not base64"),
        (b"\xff", "not UTF-8"),
        (b"e=unknown-user", "nonce"),
    ],
)
def test_a_false_first_message_is_refused(first, said):
    scram = client()
    scram.first()
    with pytest.raises(ScramError, match=said):
        scram.final(first)


@pytest.mark.parametrize("last", [b"v=AAAA", b"v=", b"", b"e=invalid-proof", b"v=!"])
def test_a_server_that_does_not_know_the_password_is_refused(last):
    scram = client()
    scram.first()
    scram.final(SERVER_FIRST)
    with pytest.raises(ScramError):
        scram.verify(last)


def test_names_and_delegation_tokens():
    assert ScramClient("SCRAM-SHA-512", "a=b,c", "x", token_auth=True, nonce="N").first() == (
        b"n,,n=a=3Db=2Cc,r=N,tokenauth=true"
    )


@given(st.binary(max_size=200))
def test_any_answer_is_used_or_refused(data):
    scram = client()
    scram.first()
    try:
        scram.final(data)
    except ScramError:
        return
    assert data.startswith(b"r=") or b",r=" in data


class Broker:
    """The broker's side of PLAIN, and what was said to it."""

    def __init__(self, *, handshake=0, code=0, lifetime=0):
        self.said = []
        self.handshake, self.code, self.lifetime = handshake, code, lifetime

    async def ask(self, message):
        if isinstance(message, SaslHandshakeRequest):
            return SaslHandshakeResponse(error_code=self.handshake, mechanisms=["PLAIN"])
        assert isinstance(message, SaslAuthenticateRequest)
        self.said.append(message.auth_bytes)
        return SaslAuthenticateResponse(
            error_code=self.code,
            error_message="no such user" if self.code else None,
            session_lifetime_ms=self.lifetime,
        )


def authenticator(mechanism="PLAIN"):
    return Authenticator(SaslSettings(mechanism=mechanism, username="ann", password="hünter2"))


async def test_plain():
    broker = Broker(lifetime=5000)
    assert await authenticator().run(broker.ask, "b:1") == 5000
    assert broker.said == ["\0ann\0hünter2".encode()]


@pytest.mark.parametrize(
    ("broker", "said"),
    [
        (Broker(handshake=33), "b:1: the broker does not take sasl.mechanism=PLAIN; it has PLAIN"),
        (Broker(handshake=34), "the listener does no SASL; look at security.protocol"),
        (Broker(code=58), "b:1: PLAIN as 'ann': no such user"),
    ],
)
async def test_refusals_are_told_without_the_password(broker, said):
    with pytest.raises(AuthenticationFailed) as e:
        await authenticator().run(broker.ask, "b:1")
    assert said in str(e.value)
    assert "nter2" not in str(e.value)
    assert not e.value.retriable


async def test_a_server_without_the_password_is_not_believed():
    class Impostor(Broker):
        async def ask(self, message):
            answer = await super().ask(message)
            if not self.said:
                return answer
            if len(self.said) == 1:
                nonce = self.said[0].decode().rpartition("r=")[2]
                salt = base64.b64encode(b"salt").decode()
                answer.auth_bytes = f"r={nonce}more,s={salt},i=4096".encode()
            else:
                answer.auth_bytes = b"v=" + base64.b64encode(b"x" * 32)
            return answer

    with pytest.raises(AuthenticationFailed, match="does not prove that it knows the password"):
        await authenticator("SCRAM-SHA-256").run(Impostor().ask, "b:1")
