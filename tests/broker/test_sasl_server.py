"""Logins at a running broker: what is served before, the order of requests, sessions, delegation tokens, and real clients."""

from __future__ import annotations

import base64
import json
import re
import struct
import time
import warnings
from collections.abc import Iterator
from contextlib import closing

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from joserfc import jwk, jwt
from support.broker import new_name, wait_until
from support.raw import framed, request_frame
from support.secure_broker import LoginClient, SecureBroker
from support.secure_kafka import PASSWORD, STORES, USER

from klamm.testing import BrokerFailed, EmbeddedBroker
from klamm_broker.server.sasl_keys import HANDLER
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.api_versions import ApiVersionsRequest
from klamm_kafka.wire.messages.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
)
from klamm_kafka.wire.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from klamm_kafka.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest
from klamm_kafka.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from klamm_kafka.wire.messages.metadata import MetadataRequest
from klamm_kafka.wire.messages.renew_delegation_token import RenewDelegationTokenRequest
from klamm_kafka.wire.messages.sasl_authenticate import SaslAuthenticateRequest

with warnings.catch_warnings():  # it reads its tables through an old function
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka

SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
VERSIONS = ApiVersionsRequest(client_software_name="x", client_software_version="1")
METADATA = MetadataRequest(topics=[])
pytestmark = pytest.mark.usefixtures("processes")


@pytest.fixture(scope="module")
def secure(processes: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureBroker]:
    config = {
        "listener.name.sasl_plaintext.scram-sha-512.connections.max.reauth.ms": "1500",
        "connection.failed.authentication.delay.ms": "50",
    }
    with SecureBroker(tmp_path_factory.mktemp("secure"), config) as broker:
        broker.add_user()
        yield broker


@pytest.fixture
def client(secure: SecureBroker) -> Iterator[LoginClient]:
    with LoginClient(secure.sasl_port) as connected:
        yield connected


# ---- before the login


def test_only_the_requests_of_a_login_are_answered_before_it(secure, client):
    assert client.request(VERSIONS, 3).error_code == 0
    client.send(METADATA, 9)
    client.wait_closed()
    for frame in (
        request_frame(SaslAuthenticateRequest(auth_bytes=b"x"), 2),
        framed(b"\0"),
        framed(b"\0\x11"),
        struct.pack(">i", 600_000),
        framed(struct.pack(">hhi", 17, 99, 1)),
        framed(struct.pack(">hhih", 17, 1, 1, -1) + b"\x7f\xff"),
    ):
        with LoginClient(secure.sasl_port) as other:
            other.sock.sendall(frame)
            other.wait_closed()


def test_api_versions_may_come_once_and_a_refused_one_be_asked_again(client):
    assert client.request(ApiVersionsRequest(client_software_name="", client_software_version=""), 3).error_code == ErrorCode.INVALID_REQUEST  # fmt: skip
    assert client.request(VERSIONS, 3).error_code == 0
    client.send(VERSIONS, 3)
    client.wait_closed()


def test_a_mechanism_that_is_not_enabled(client):
    began = time.monotonic()
    answer = client.shake("GSSAPI")
    assert time.monotonic() - began >= 0.05
    assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert answer.mechanisms == ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
    client.wait_closed()


@pytest.mark.parametrize("user", [USER, "nobody"])
def test_a_wrong_login_is_answered_late_and_closed_and_what_was_sent_behind_it_is_not_read(client, user):
    client.shake("PLAIN")
    began = time.monotonic()
    client.send(SaslAuthenticateRequest(auth_bytes=f"\0{user}\0no".encode()), 2)
    client.send(METADATA, 9)
    answer = client.receive(SaslAuthenticateRequest, 2)[1]
    assert time.monotonic() - began >= 0.05
    assert (answer.error_code, answer.error_message) == (
        ErrorCode.SASL_AUTHENTICATION_FAILED,
        "Authentication failed: Invalid username or password",
    )
    client.wait_closed()


def test_requests_behind_a_right_login_are_served_in_order(client):
    client.shake("PLAIN")
    client.send(SaslAuthenticateRequest(auth_bytes=f"\0{USER}\0{PASSWORD}".encode()), 2)
    client.send(METADATA, 9, correlation_id=7)
    assert client.receive(SaslAuthenticateRequest, 2)[1].error_code == 0
    assert client.receive(MetadataRequest, 9)[0] == 7


@pytest.mark.parametrize("mechanism", SCRAM)
def test_scram_refuses_unknown_users_where_it_refuses_wrong_passwords(secure, mechanism):
    said = []
    for user, password in ((USER, "wrong"), ("nobody", PASSWORD)):
        with LoginClient(secure.sasl_port) as client:
            said.append(client.scram(user, password, mechanism=mechanism).error_message)
    general = "Authentication failed during authentication due to invalid credentials with SASL mechanism "
    assert said == [general + mechanism] * 2


def test_bare_tokens_behind_a_handshake_of_version_0(secure, client):
    client.shake("PLAIN", 0)
    client.sock.sendall(framed(f"\0{USER}\0{PASSWORD}".encode()))
    assert client.receive_frame() == b""
    assert client.request(METADATA, 9).brokers
    with LoginClient(secure.sasl_port) as other:
        other.shake("PLAIN", 0)
        other.sock.sendall(framed(b"\0ann\0wrong"))
        other.wait_closed()


def test_a_slow_login_ends(tmp_path):
    with (
        SecureBroker(tmp_path, {"klamm.login.timeout.ms": "200"}) as broker,
        LoginClient(broker.sasl_port) as client,
    ):
        client.shake("PLAIN")
        client.wait_closed()
        with LoginClient(broker.sasl_port) as other:
            assert other.plain().error_code == 0
            until = time.monotonic() + 0.3
            wait_until(lambda: time.monotonic() > until, "the time of logins")
            assert other.request(METADATA, 9).brokers


def test_after_a_login_without_end_another_is_refused(client):
    client.plain()
    assert client.shake("PLAIN").error_code == ErrorCode.ILLEGAL_SASL_STATE
    answer = client.say(b"x")
    assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert client.request(METADATA, 9).brokers


def test_the_listener_without_logins_refuses_them(secure):
    with LoginClient(secure.port) as client:
        assert client.shake("PLAIN").error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert client.request(METADATA, 9).brokers


# ---- sessions that end


def test_a_session_that_is_not_renewed_ends_at_the_next_request(client):
    answer = client.scram(mechanism="SCRAM-SHA-512")
    assert answer.session_lifetime_ms == 1500
    until = time.monotonic() + 1.6
    wait_until(lambda: time.monotonic() > until, "the end of the session")
    client.send(METADATA, 9)
    client.wait_closed()


def test_a_renewal_keeps_the_connection_but_not_with_another_mechanism_or_twice_at_once(secure, client):
    client.scram(mechanism="SCRAM-SHA-512")
    assert client.scram(mechanism="SCRAM-SHA-512").session_lifetime_ms == 1500
    assert client.request(METADATA, 9).brokers
    assert client.shake("SCRAM-SHA-512").error_code == ErrorCode.ILLEGAL_SASL_STATE  # within a second
    until = time.monotonic() + 1.1
    wait_until(lambda: time.monotonic() > until, "a second")
    assert client.shake("PLAIN").error_code == 0
    answer = client.say(f"\0{USER}\0{PASSWORD}".encode())
    assert answer.error_message == "SASL mechanism 'PLAIN' requested by client is not supported for re-authentication of mechanism 'SCRAM-SHA-512'"  # fmt: skip
    client.wait_closed()


def test_a_renewal_is_a_login_by_the_configuration_of_now(tmp_path):
    name = "listener.name.sasl_plaintext.plain"
    users = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_zoe="zoe-secret";'
    config = {f"{name}.connections.max.reauth.ms": "60000"}
    with (
        SecureBroker(tmp_path, config) as broker,
        LoginClient(broker.sasl_port) as client,
        LoginClient(broker.port) as admin,
    ):
        assert client.plain("bob", "bob-secret").session_lifetime_ms == 60_000
        change = AlterableConfig(name=f"{name}.sasl.jaas.config", config_operation=0, value=users)
        asked = AlterConfigsResource(resource_type=4, resource_name="1", configs=[change])
        (answer,) = admin.request(IncrementalAlterConfigsRequest(resources=[asked]), 1).responses
        assert answer.error_code == 0
        assert client.request(METADATA, 9).brokers, "the session goes on"
        assert client.plain("bob", "bob-secret").error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        client.wait_closed()


def librdkafka(secure: SecureBroker, mechanism: str, user: str = USER, password: str = PASSWORD) -> dict[str, object]:  # fmt: skip
    login = {"sasl.mechanism": mechanism, "sasl.username": user, "sasl.password": password}
    return {"bootstrap.servers": secure.sasl_bootstrap, "security.protocol": "SASL_PLAINTEXT", "log_level": 0, **login}  # fmt: skip


def test_librdkafka_renews_its_session_while_it_produces_and_loses_nothing(secure):
    topic, failed, before = new_name(), [], len(secure.log_text)
    producer = Producer(
        librdkafka(secure, "SCRAM-SHA-512") | {"linger.ms": 1, "enable.idempotence": True, "retries": 5}
    )
    deadline, sent = time.monotonic() + 5, 0
    while time.monotonic() < deadline:
        producer.produce(topic, str(sent).encode(), on_delivery=lambda e, m: failed.append(e) if e else None)
        sent += 1
        producer.poll(0.002)
    assert producer.flush(30) == 0
    assert not failed
    settings = {"group.id": new_name(), "auto.offset.reset": "earliest"}
    with closing(Consumer(librdkafka(secure, "SCRAM-SHA-512") | settings)) as consumer:
        consumer.subscribe([topic])
        seen: list[bytes] = []
        wait_until(lambda: seen.extend(m.value() for m in consumer.consume(1000, 0.2) if not m.error()) or len(seen) >= sent, "all records")  # fmt: skip
    assert sorted(map(int, seen)) == list(range(sent))
    assert '"event": "login renewed", "outcome": "ok"' in secure.log_text[before:]
    assert f"User:{USER} has ended" not in secure.log_text[before:]


# ---- clients


@pytest.mark.parametrize("mechanism", ["PLAIN", *SCRAM])
def test_confluents_client(secure, mechanism):
    assert AdminClient(librdkafka(secure, mechanism)).list_topics(timeout=20).brokers
    errors: list[object] = []
    refused = AdminClient(librdkafka(secure, mechanism, password="wrong") | {"error_cb": errors.append})
    with pytest.raises(KafkaException):
        refused.list_topics(timeout=0.5)
    refused.poll(0.1)
    assert any("Authentication failed" in str(error) for error in errors)


@pytest.mark.parametrize("mechanism", ["PLAIN", *SCRAM])
def test_confluents_client_over_tls(secure, mechanism):
    tls = {
        "bootstrap.servers": f"127.0.0.1:{secure.tls_port}",
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(STORES / "ca.pem"),
    }
    topic, value = new_name(), b"x" * 300_000
    producer = Producer(librdkafka(secure, mechanism) | tls)
    producer.produce(topic, value)
    assert producer.flush(30) == 0
    settings = {"group.id": new_name(), "auto.offset.reset": "earliest"}
    with closing(Consumer(librdkafka(secure, mechanism) | tls | settings)) as consumer:
        consumer.subscribe([topic])
        seen: list[bytes] = []
        wait_until(lambda: seen.extend(m.value() for m in consumer.consume(1, 0.5) if not m.error()) or seen, "the record")  # fmt: skip
    assert seen == [value]
    refused = AdminClient(librdkafka(secure, mechanism, password="wrong") | tls)
    with pytest.raises(KafkaException):
        refused.list_topics(timeout=0.5)


@pytest.mark.parametrize("mechanism", ["PLAIN", *SCRAM])
def test_kafka_python(secure, mechanism):
    def connect(password: str) -> kafka.KafkaAdminClient:
        return kafka.KafkaAdminClient(
            bootstrap_servers=secure.sasl_bootstrap, security_protocol="SASL_PLAINTEXT", sasl_mechanism=mechanism,
            sasl_plain_username=USER, sasl_plain_password=password, bootstrap_timeout_ms=3000,
        )  # fmt: skip

    with closing(connect(PASSWORD)) as admin:
        assert admin.describe_cluster()["brokers"]
    with pytest.raises(kafka.errors.KafkaError):
        connect("wrong")


def test_users_that_are_changed_take_effect_at_once(secure):
    for password in ("first", "second"):
        secure.add_user("eve", password)
        with LoginClient(secure.sasl_port) as client:
            assert client.scram("eve", password).error_code == 0
    with LoginClient(secure.sasl_port) as client:
        assert client.scram("eve", "first").error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


def test_users_of_plain_and_mechanisms_are_changed_while_it_runs(tmp_path):
    module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    prefix = "listener.name.sasl_plaintext"

    def change(admin: LoginClient, **values: str) -> tuple[int, str | None]:
        configs = [AlterableConfig(name=f"{prefix}.{n.replace('_', '.')}", config_operation=0, value=v) for n, v in values.items()]  # fmt: skip
        asked = AlterConfigsResource(resource_type=4, resource_name="1", configs=configs)
        (answer,) = admin.request(IncrementalAlterConfigsRequest(resources=[asked]), 1).responses
        return answer.error_code, answer.error_message

    def log_in(user: str, password: str) -> int:
        with LoginClient(broker.sasl_port) as client:
            return client.plain(user, password).error_code

    with SecureBroker(tmp_path) as broker, LoginClient(broker.port) as admin:
        assert log_in("bob", "bob-secret") == 0
        assert change(admin, plain_sasl_jaas_config=f'{module} user_zoe="zoe-secret";') == (0, None)
        assert (log_in("zoe", "zoe-secret"), log_in("bob", "bob-secret")) == (0, ErrorCode.SASL_AUTHENTICATION_FAILED)  # fmt: skip
        code, why = change(admin, plain_sasl_jaas_config=f'{module} user_eve="eve-secret"')
        assert code == ErrorCode.INVALID_REQUEST
        assert "does not end with a semicolon" in (why or "")
        assert "eve-secret" not in (why or "")
        assert change(admin, sasl_enabled_mechanisms="GSSAPI")[0] == ErrorCode.INVALID_REQUEST
        assert change(admin, sasl_enabled_mechanisms="SCRAM-SHA-256") == (0, None)
        with LoginClient(broker.sasl_port) as client:
            assert client.shake("PLAIN").error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert "zoe-secret" not in broker.log_text


def test_signed_tokens(tmp_path):
    key = jwk.ECKey.generate_key("P-256", {"kid": "k1", "use": "sig"})
    keys = tmp_path / "keys.json"
    keys.write_text(json.dumps({"keys": [key.as_dict(private=False)]}))
    config = {
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        f"oauthbearer.{HANDLER}": "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler",
        "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        "sasl.oauthbearer.expected.audience": "kafka",
    }

    def log_in(**more: object) -> tuple[int, int]:
        now = int(time.time())
        said = {"sub": "svc", "aud": "kafka", "iat": now, "exp": now + 60} | more
        token = jwt.encode({"alg": "ES256", "kid": "k1"}, said, key)
        with LoginClient(broker.sasl_port) as client:
            client.shake("OAUTHBEARER")
            answer = client.say(f"n,,\x01auth=Bearer {token}\x01\x01".encode())
            return len(answer.auth_bytes), answer.session_lifetime_ms

    with SecureBroker(tmp_path, config) as broker:
        wait_until(lambda: log_in()[0] == 0, "the key set")
        assert 55_000 < log_in()[1] <= 60_000
        assert log_in(aud="web") == (len('{"status":"invalid_token"}'), 0)


# ---- delegation tokens


def new_token(client: LoginClient, **more: object):
    return client.request(CreateDelegationTokenRequest(**{"renewers": [], "max_lifetime_ms": -1} | more), 3)


def test_a_token_is_made_used_renewed_told_and_expired(secure, client):
    client.scram()
    made = new_token(client, renewers=[CreatableRenewers(principal_type="User", principal_name="bob")])
    assert (made.error_code, made.principal_name, made.max_timestamp_ms - made.issue_timestamp_ms) == (0, USER, 604_800_000)  # fmt: skip
    assert made.expiry_timestamp_ms - made.issue_timestamp_ms == 86_400_000
    password = base64.b64encode(made.hmac).decode()

    with LoginClient(secure.sasl_port) as holder:
        answer = holder.scram(made.token_id, password, token=True)
        assert answer.error_code == 0
        assert 0 < answer.session_lifetime_ms <= 86_400_000
        assert new_token(holder).error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    admin = AdminClient(librdkafka(secure, "PLAIN"))
    assert admin.list_topics(timeout=20).brokers

    with LoginClient(secure.sasl_port) as bob:
        bob.plain("bob", "bob-secret")
        renewed = bob.request(RenewDelegationTokenRequest(hmac=made.hmac, renew_period_ms=1000), 2)
        assert renewed.error_code == 0
        assert renewed.expiry_timestamp_ms < made.expiry_timestamp_ms
        told = bob.request(DescribeDelegationTokenRequest(owners=None), 3).tokens
        assert [(t.token_id, t.hmac) for t in told] == [(made.token_id, made.hmac)]
        none = [DescribeDelegationTokenOwner(principal_type="User", principal_name="zoe")]
        assert bob.request(DescribeDelegationTokenRequest(owners=none), 3).tokens == []
        ended = bob.request(ExpireDelegationTokenRequest(hmac=made.hmac, expiry_time_period_ms=-1), 2)
        assert ended.error_code == 0
        again = bob.request(ExpireDelegationTokenRequest(hmac=made.hmac, expiry_time_period_ms=-1), 2)
        assert again.error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    with LoginClient(secure.sasl_port) as late:
        assert late.scram(made.token_id, password, token=True).error_code


def test_tokens_are_refused(secure, client):
    with LoginClient(secure.port) as nobody:
        assert new_token(nobody).error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    client.scram()
    group = [CreatableRenewers(principal_type="Group", principal_name="g")]
    assert new_token(client, renewers=group).error_code == ErrorCode.INVALID_PRINCIPAL_TYPE
    made = new_token(client, max_lifetime_ms=1)
    wait_until(lambda: client.request(RenewDelegationTokenRequest(hmac=made.hmac, renew_period_ms=5), 2).error_code == ErrorCode.DELEGATION_TOKEN_EXPIRED, "its end")  # fmt: skip
    with LoginClient(secure.sasl_port) as late:
        assert late.scram(made.token_id, base64.b64encode(made.hmac).decode(), token=True).error_code
    other = new_token(client)
    with LoginClient(secure.sasl_port) as bob:
        bob.plain("bob", "bob-secret")
        answer = bob.request(RenewDelegationTokenRequest(hmac=other.hmac, renew_period_ms=5), 2)
        assert answer.error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
        with LoginClient(secure.sasl_port) as stolen:
            assert stolen.scram(other.token_id, "guess", token=True).error_code
            # a user name is no token id, and a token id no user name


def test_tokens_and_decoys_outlive_a_restart(tmp_path):
    broker = SecureBroker(tmp_path)

    def salt() -> bytes:
        with LoginClient(broker.sasl_port) as client:
            client.shake("SCRAM-SHA-256")
            return client.say(b"n,,n=nobody,r=abc").auth_bytes.split(b",")[1]

    with broker:
        broker.add_user()
        before = salt()
        with LoginClient(broker.sasl_port) as client:
            client.plain()
            made = new_token(client)
    with broker:
        with LoginClient(broker.sasl_port) as client:
            assert client.scram(made.token_id, base64.b64encode(made.hmac).decode(), token=True).error_code == 0  # fmt: skip
        assert salt() == before
    for name in ("klamm-tokens.json", "klamm-users.json"):
        assert (tmp_path / "data" / name).stat().st_mode & 0o777 == 0o600


def test_a_token_has_a_hundred_renewers_at_most(secure, client):
    client.plain()

    def make(names: list[str]):
        renewers = [CreatableRenewers(principal_type="User", principal_name=name) for name in names]
        return client.request(CreateDelegationTokenRequest(renewers=renewers, max_lifetime_ms=-1), 3)

    assert make([f"u{i}" for i in range(10_000)]).error_code == ErrorCode.INVALID_REQUEST
    assert "10000 renewers, at most 100 can be" in secure.log_text
    assert make(["bob"] * 10_000).error_code == ErrorCode.NONE


def test_tokens_are_switched_off_without_a_key(tmp_path):
    with SecureBroker(tmp_path) as broker:
        pass
    del broker.config["delegation.token.secret.key"]
    with broker, LoginClient(broker.sasl_port) as client:
        client.plain()
        assert new_token(client).error_code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
        assert client.request(DescribeDelegationTokenRequest(owners=None), 3).error_code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED  # fmt: skip


# ---- configuration


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({}, "listener.name.sasl_plaintext.gssapi.sasl.jaas.config is missing: GSSAPI needs a login module.*GSSAPI is the default of sasl.enabled.mechanisms, .*PLAIN, SCRAM-SHA-256"),
        ({"sasl.enabled.mechanisms": "PLAIN", "listener.name.other.plain.sasl.jaas.config": "x"}, "listener.name.sasl_plaintext.plain.sasl.jaas.config is missing"),
        ({"sasl.enabled.mechanisms": "OAUTHBEARER"}, "sasl.oauthbearer.jwks.endpoint.url is missing"),
        ({"sasl.enabled.mechanisms": "OAUTHBEARER", "sasl.oauthbearer.jwks.endpoint.url": "ftp://x"}, "must begin with https: or file:"),
        ({"sasl.enabled.mechanisms": "PLAIN", f"plain.{HANDLER}": "com.example.Ldap"}, "classes of Java cannot be loaded"),
    ],
)  # fmt: skip
def test_a_listener_whose_logins_cannot_work_is_an_error_at_start(tmp_path, config, why):
    config |= {"listeners": "SASL_PLAINTEXT://127.0.0.1:0"}
    with pytest.raises(BrokerFailed) as failed:
        EmbeddedBroker(tmp_path / "data", config=config).start()
    assert re.search(why, str(failed.value)), failed.value
    assert "Traceback" not in str(failed.value)


def test_no_secret_is_in_the_log(secure, client):
    client.scram()
    made = new_token(client)
    secrets = [
        PASSWORD,
        "bob-secret",
        "token-secret-key",
        base64.b64encode(made.hmac).decode(),
        made.hmac.hex(),
    ]
    texts = [(secure.data_dir / "klamm-tokens.json").read_text(), secure.log_text]
    assert "login failed" in texts[1]
    for secret in secrets:
        assert not [text for text in texts if secret in text]
