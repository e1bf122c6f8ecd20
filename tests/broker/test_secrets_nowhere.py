"""Secrets appear nowhere: a broker that tells all it can (DEBUG) is driven through logins, tokens, users and configurations.

Then its log, its metrics and its answers are searched for every secret, in each form that it may have.
"""

from __future__ import annotations

import base64
import hashlib
import http.client
import json
import ssl
from pathlib import Path

import pytest
from support.raw import framed, request_frame
from support.secret_watch import places, secrets_of
from support.secure_broker import LoginClient, SecureBroker
from support.secure_kafka import KEY_PASSWORD, PASSWORD, PLAIN, STORE_PASSWORD, STORES, USER, key, quoted

from klamm.testing import BrokerFailed
from klamm_broker.api.config_changes import Operation
from klamm_broker.api.topic_configs import ResourceType
from klamm_kafka.client.scram import ScramClient
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from klamm_kafka.wire.messages.create_delegation_token import CreateDelegationTokenRequest
from klamm_kafka.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from klamm_kafka.wire.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from klamm_kafka.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest
from klamm_kafka.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from klamm_kafka.wire.messages.renew_delegation_token import RenewDelegationTokenRequest
from klamm_kafka.wire.messages.sasl_authenticate import SaslAuthenticateRequest

pytestmark = pytest.mark.usefixtures("processes")

MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
GUESS = "Guess-Pl4inly-Wr0ng"
"""A wrong password: it may be right elsewhere."""
ZOE, LATE_STORE, UNKNOWN, MISSPELT = (
    "Zoe-Pl4in-Passw0rd",
    "Late-St0re-Passw0rd",
    "Unkn0wn-Key-Passw0rd",
    "M1sspelt-Passw0rd",
)
SALTED = b"salted-password-of-32-bytes-long"
METRICS = "Metr1cs-Bearer-T0ken"
SECRET_KEY = "token-secret-key"
CONFIGURED = (
    PASSWORD,
    "bob-secret",
    ZOE,
    STORE_PASSWORD,
    KEY_PASSWORD,
    LATE_STORE,
    UNKNOWN,
    MISSPELT,
    SECRET_KEY,
    GUESS,
    METRICS,
)


class Listener(LoginClient):
    """A client that keeps what it is told. Only `aloud`: some answers are there to tell a secret to its owner."""

    def __init__(self, port: int, heard: list[bytes]) -> None:
        super().__init__(port)
        self.aloud, self._heard = True, heard

    def receive_frame(self) -> bytes:
        frame = super().receive_frame()
        if self.aloud:
            self._heard.append(frame)
        return frame


class Story:
    """The chapters of what a broker goes through, one method each. `heard` are its answers, `made` the secrets it made."""

    def __init__(self, broker: SecureBroker) -> None:
        self.broker, self.heard, self.made = broker, list[bytes](), list[bytes]()

    def client(self, *, login: bool = True) -> Listener:
        return Listener(self.broker.sasl_port if login else self.broker.port, self.heard)

    def alter(self, kind: ResourceType, name: str, /, **values: str) -> list[int]:
        configs = [
            AlterableConfig(name=n, config_operation=Operation.SET, value=v) for n, v in values.items()
        ]
        asked = AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
        with self.client(login=False) as admin:
            return [
                r.error_code
                for r in admin.request(IncrementalAlterConfigsRequest(resources=[asked]), 1).responses
            ]

    def tell_everything(self) -> None:
        assert self.alter(ResourceType.BROKER_LOGGER, "1", root="TRACE") == [0]

    def log_in(self) -> None:
        right_and_wrong = [(USER, PASSWORD, 0), (USER, GUESS, 58), ("nobody", GUESS, 58), (GUESS, GUESS, 58)]
        for user, password, code in right_and_wrong:
            with self.client() as client:
                assert client.plain(user, password).error_code == code
            for mechanism in MECHANISMS:
                with self.client() as client:
                    assert client.scram(user, password, mechanism=mechanism).error_code == code
        for message in (
            f"\0{USER}\0{GUESS}\0",
            f"{GUESS}",
            f"bob\0{USER}\0{PASSWORD}",
            f"\0\0{GUESS}",
            f"\0{GUESS}\0",
        ):
            with self.client() as client:  # in the wrong place
                client.shake("PLAIN")
                assert client.say(message.encode()).error_code == 58
        with self.client() as client:
            client.shake("PLAIN", 0)
            client.sock.sendall(framed(f"\0{USER}\0{GUESS}".encode()))
            client.wait_closed()

    def send_out_of_order(self) -> None:
        message = SaslAuthenticateRequest(auth_bytes=f"\0{USER}\0{PASSWORD}".encode())
        for frame in (
            request_frame(message, 2),  # before its handshake
            framed(request_frame(message, 2)[4:-3]),  # cut
            framed(f"\0{USER}\0{PASSWORD}".encode()),
            framed(b"\0\x12\0\x63" + PASSWORD.encode()),
        ):
            with self.client() as client:
                client.sock.sendall(frame)
                client.sock.shutdown(1)
                while client.sock.recv(1000):
                    pass

    def show_bearer_tokens(self) -> None:
        for claims in ({"sub": "svc", "exp": 4_000_000_000}, {"sub": "svc", "exp": 1}, {"exp": "x"}):
            parts = [
                base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=")
                for part in ({"alg": "none"}, claims)
            ]
            token = b".".join([*parts, b""])
            self.made.append(token)
            with self.client() as client:
                client.shake("OAUTHBEARER")
                client.say(b"n,,\x01auth=Bearer " + token + b"\x01\x01")

    def alter_users(self) -> None:
        def upsert(**more: object) -> int:
            wanted = ScramCredentialUpsertion(
                **{
                    "name": "eve",
                    "mechanism": 1,
                    "iterations": 4096,
                    "salt": b"pepper",
                    "salted_password": SALTED,
                }
                | more
            )
            with self.client(login=False) as admin:
                return (
                    admin.request(AlterUserScramCredentialsRequest(upsertions=[wanted]), 0)
                    .results[0]
                    .error_code
                )

        assert [upsert(), upsert(iterations=1), upsert(mechanism=9), upsert(name="")].count(0) == 1
        with self.client(login=False) as admin:
            admin.request(DescribeUserScramCredentialsRequest(users=None), 0)

    def make_tokens(self) -> None:
        with self.client() as owner:
            owner.scram()
            owner.aloud = False
            made = owner.request(CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=-1), 3)
            owner.aloud = True
            self.made.append(made.hmac)
            password = base64.b64encode(made.hmac).decode()
            for said in (password, GUESS):
                with self.client() as holder:
                    assert holder.scram(made.token_id, said, token=True).error_code == (
                        0 if said == password else 58
                    )
            with self.client() as wrong:  # the token's password as another's
                wrong.plain(USER, password)
            owner.request(RenewDelegationTokenRequest(hmac=made.hmac, renew_period_ms=1000), 2)
            owner.request(RenewDelegationTokenRequest(hmac=SALTED, renew_period_ms=1000), 2)
            with self.client(login=False) as nobody:
                nobody.request(ExpireDelegationTokenRequest(hmac=made.hmac, expiry_time_period_ms=-1), 2)
            owner.request(ExpireDelegationTokenRequest(hmac=made.hmac, expiry_time_period_ms=-1), 2)

    def change_configs(self) -> None:
        def broker(**values: str) -> int:
            return self.alter(ResourceType.BROKER, "1", **values)[0]

        users = {
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{PLAIN} required user_{USER}="{ZOE}";'
        }
        assert broker(**users) == 0
        assert broker(**{name: text[:-1] for name, text in users.items()}) == ErrorCode.INVALID_REQUEST
        with self.client() as client:
            assert client.plain(USER, ZOE).error_code == 0
        stores = {f"listener.name.sasl_ssl.{name}": text for name, text in key("server", "p12").items()}
        assert broker(**stores) == 0
        name = "listener.name.sasl_ssl.ssl.keystore.password"
        assert broker(**{name: LATE_STORE}) == ErrorCode.INVALID_REQUEST
        assert broker(**{"ssl.keystore.password": LATE_STORE}) == ErrorCode.INVALID_REQUEST
        assert broker(**{"ssl.keystore.key": LATE_STORE}) == ErrorCode.INVALID_REQUEST
        self.alter(ResourceType.BROKER, "1", **{"my.sink.password": UNKNOWN})
        self.alter(ResourceType.TOPIC, "none", **{"sasl.jaas.config": UNKNOWN})
        resources = [
            DescribeConfigsResource(resource_type=ResourceType.BROKER, resource_name=n) for n in ("1", "")
        ]
        with self.client(login=False) as admin:
            for version in (1, 4):
                answer = admin.request(DescribeConfigsRequest(resources=resources, include_synonyms=True, include_documentation=version > 2), version)  # fmt: skip
                secret = {c.name: c.value for r in answer.results for c in r.configs if c.is_sensitive}
                assert name in secret
                assert set(secret.values()) == {None}

    def scrape(self) -> bytes:
        host, port = self.broker.metrics_url.split("/")[2].split(":")
        context = ssl.create_default_context(cafile=STORES / "ca.pem")
        texts = []
        for token in (METRICS, GUESS):
            connection = http.client.HTTPSConnection(host, int(port), context=context, timeout=30)
            connection.request("GET", f"/metrics?token={token}", headers={"Authorization": f"Bearer {token}"})
            answer = connection.getresponse()
            assert answer.status == (200 if token == METRICS else 401)
            texts.append(answer.read())
            connection.close()
        return b"\n".join(texts)


def test_no_secret_is_in_log_answer_or_metric(tmp_path: Path) -> None:
    config = {
        "klamm.metrics.port": "0", "klamm.metrics.listener.name": "SASL_SSL",
        "klamm.metrics.tokens.sha256": hashlib.sha256(METRICS.encode()).hexdigest(),
        "connection.failed.authentication.delay.ms": "0",
        "my.plugin.password": UNKNOWN, "listener.name.sasl_ssl.ssl.keystore.pasword": MISSPELT,
    }  # fmt: skip
    with SecureBroker(tmp_path, config) as broker:
        broker.add_user()
        story = Story(broker)
        story.tell_everything()
        story.log_in()
        story.send_out_of_order()
        story.show_bearer_tokens()
        story.alter_users()
        story.make_tokens()
        story.change_configs()
        metrics = story.scrape()
    broker.config["ssl.keystore.password"] = GUESS
    del broker.config["listener.name.sasl_ssl.ssl.keystore.pasword"]
    with pytest.raises(BrokerFailed) as failed:
        broker.start()
    log = broker.log_text.encode()
    assert log.count(b"login failed") > 10
    assert b" DEBUG " in log
    texts = {
        "log": log,
        "answers": b"\n".join(story.heard),
        "metrics": metrics,
        "error": str(failed.value).encode(),
    }
    assert len(story.heard) > 60
    assert places(b"User:ann", texts)  # the search sees the log
    for secret in (*(text.encode() for text in CONFIGURED), SALTED, *story.made):
        assert places(secret, texts) == []


@pytest.mark.parametrize("written", ["{}", "a={}", "{!r}", "\0ann\0{}"])
def test_the_search_finds_what_is_there(written: str) -> None:
    for secret in (PASSWORD, GUESS, SECRET_KEY):
        text = written.format(secret).encode()
        for told in (text, base64.b64encode(text), text.hex().encode()):
            assert places(secret.encode(), {"here": b"xx " + told + b" yy"})


def test_the_client_s_own_messages_hold_no_password() -> None:
    """SCRAM never sends it; what is searched above would prove nothing if the client did not log in by it."""
    client = ScramClient("SCRAM-SHA-256", USER, PASSWORD)
    assert not places(PASSWORD.encode(), {"first": client.first()})


def test_the_passwords_of_a_configuration() -> None:
    config = {
        "listener.name.x.plain.sasl.jaas.config": f'{PLAIN} required user_ann={quoted(PASSWORD)} user_bob="bob-secret";',
        "ssl.keystore.password": STORE_PASSWORD, "ssl.keystore.location": "/etc/password", "delegation.token.secret.key": SECRET_KEY,
    }  # fmt: skip
    assert secrets_of(config) == {PASSWORD, "bob-secret", STORE_PASSWORD, SECRET_KEY}
