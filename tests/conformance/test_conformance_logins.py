"""Logins and delegation tokens: the same dialogs with our broker and with Apache Kafka."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support import kafka_oracle
from support.broker import wait_until
from support.kafka_tools import ToolResult
from support.raw import framed
from support.secure_broker import LoginClient, SecureBroker
from support.secure_kafka import (
    MECHANISMS,
    PASSWORD,
    PLAIN,
    SCRAM,
    USER,
    SecureKafka,
    jaas,
    property_,
    quoted,
    trust,
)

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
from klamm_kafka.wire.messages.metadata import MetadataRequest
from klamm_kafka.wire.messages.renew_delegation_token import RenewDelegationTokenRequest

pytestmark = pytest.mark.usefixtures("apache_kafka")
VERSIONS = ApiVersionsRequest(client_software_name="x", client_software_version="1")
USERS = f'{PLAIN} required user_{USER}={quoted(PASSWORD)} user_bob="bob-secret";'
CONFIG = {
    "delegation.token.secret.key": "token-secret-key",
    "listener.name.sasl_plaintext.scram-sha-512.connections.max.reauth.ms": "3000",
}
RIGHT = f"\0{USER}\0{PASSWORD}".encode()
Ports = dict[str, int]
Dialog = Callable[[LoginClient], list[Any]]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureBroker]:
    """Yields ours, for Apache's tools as well."""
    kafka_oracle.require()
    with SecureBroker(tmp_path_factory.mktemp("ours"), CONFIG) as ours:
        ours.add_user()
        yield ours


@pytest.fixture(scope="module")
def ports(both: SecureBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ports]:
    """Yields the SASL_PLAINTEXT ports of both."""
    work = tmp_path_factory.mktemp("logins")
    escaped = property_(USERS)
    theirs = CONFIG | {"listener.name.sasl_plaintext.plain.sasl.jaas.config": escaped}
    with SecureKafka(work, theirs) as kafka:
        yield {"ours": both.sasl_port, "kafka": kafka.ports["SASL_PLAINTEXT"]}


def told(answer: Any) -> list[Any]:
    """Returns what of an answer does not depend on the moment."""
    said: list[Any] = [ErrorCode(answer.error_code).name]
    if hasattr(answer, "error_message"):
        said += [answer.error_message, answer.auth_bytes if answer.auth_bytes[:1] == b"{" else bool(answer.auth_bytes)]  # fmt: skip
        said.append(-(-answer.session_lifetime_ms // 10_000))
    return said


def run(port: int, dialog: Dialog) -> list[Any]:
    with LoginClient(port) as client:
        said = dialog(client)
        try:
            return [*said, "goes on" if client.request(MetadataRequest(topics=[]), 9).brokers else "closed"]
        except (ConnectionError, TimeoutError):
            return [*said, "closed"]


def plain(message: bytes) -> Dialog:
    return lambda client: [told(client.shake("PLAIN")), told(client.say(message))]


def bare(mechanism: str, *messages: bytes) -> Dialog:
    def dialog(client: LoginClient) -> list[Any]:
        said: list[Any] = [told(client.shake(mechanism, 0))]
        for message in messages:
            client.sock.sendall(framed(message))
            try:
                said.append(client.receive_frame())
            except ConnectionError:
                return [*said, "closed"]
        return said

    return dialog


def dialog_of(*steps: tuple[str, Any]) -> Dialog:
    """Returns the dialog of steps ("shake", mechanism), ("say", bytes), ("versions", request); it ends where the broker closes."""

    def dialog(client: LoginClient) -> list[Any]:
        said: list[Any] = []
        try:
            for what, value in steps:
                match what:
                    case "shake":
                        said.append(told(client.shake(value)))
                    case "say":
                        said.append(told(client.say(value)))
                    case "versions":
                        said.append(ErrorCode(client.request(value, 3).error_code).name)
        except ConnectionError:
            said.append("closed")
        return said

    return dialog


def token(**claims: object) -> bytes:
    now = int(time.time())
    said = {"sub": USER, "iat": now - 1, "exp": now + 3600} | claims
    parts = [{"alg": "none"}, {name: value for name, value in said.items() if value is not None}]
    texts = [base64.urlsafe_b64encode(json.dumps(p).encode()).rstrip(b"=").decode() for p in parts]
    return f"n,,\x01auth=Bearer {'.'.join(texts)}.\x01\x01".encode()


DIALOGS: dict[str, Dialog] = {
    "a mechanism that is not enabled": dialog_of(("shake", "GSSAPI")),
    "no mechanism": dialog_of(("shake", "")),
    "plain": plain(RIGHT),
    "plain with authorization id": plain(USER.encode() + RIGHT),
    "plain, wrong password": plain(f"\0{USER}\0wrong".encode()),
    "plain, unknown user": plain(b"\0nobody\0wrong"),
    "plain, two parts": plain(b"ann\0pw"),
    "plain, four parts": plain(b"a\0b\0c\0d"),
    "plain, no user": plain(b"\0\0pw"),
    "plain, no password": plain(b"\0ann\0"),
    "plain, other authorization id": plain(b"root" + RIGHT),
    "plain, nothing": plain(b""),
    "scram 256": lambda client: [told(client.scram())],
    "scram 512": lambda client: [told(client.scram(mechanism="SCRAM-SHA-512"))],
    "scram, wrong password": lambda client: [told(client.scram(password="wrong"))],
    "scram, rubbish": dialog_of(("shake", "SCRAM-SHA-256"), ("say", b"rubbish")),
    "scram, other authorization id": dialog_of(("shake", "SCRAM-SHA-256"), ("say", b"n,a=root,n=ann,r=abc")),
    "scram, channel binding": dialog_of(("shake", "SCRAM-SHA-256"), ("say", b"p=tls-unique,,n=ann,r=abc")),
    "scram, rubbish at the end": dialog_of(("shake", "SCRAM-SHA-256"), ("say", b"n,,n=ann,r=abc"), ("say", b"rubbish")),
    "scram, unknown token": lambda client: [told(client.scram("nothing", "x", token=True))[:2]],
    "oauth": dialog_of(("shake", "OAUTHBEARER"), ("say", token())),
    "oauth, expired": dialog_of(("shake", "OAUTHBEARER"), ("say", token(iat=1, exp=2)), ("say", b"\x01")),
    "oauth, no user": dialog_of(("shake", "OAUTHBEARER"), ("say", token(sub=None)), ("say", b"\x01")),
    "oauth, rubbish": dialog_of(("shake", "OAUTHBEARER"), ("say", b"rubbish")),
    "bare, right": bare("PLAIN", RIGHT),
    "bare, wrong": bare("PLAIN", b"\0ann\0wrong"),
    "nothing at all": dialog_of(),
    "versions only": dialog_of(("versions", VERSIONS)),
    "versions twice": dialog_of(("versions", VERSIONS), ("versions", VERSIONS)),
    "refused versions, then better ones": dialog_of(("versions", ApiVersionsRequest(client_software_name="")), ("versions", VERSIONS), ("shake", "PLAIN")),
    "versions after the handshake": dialog_of(("shake", "PLAIN"), ("versions", VERSIONS)),
    "a login without handshake": dialog_of(("say", RIGHT)),
    "two handshakes": dialog_of(("shake", "PLAIN"), ("shake", "PLAIN")),
    "only a handshake": dialog_of(("shake", "PLAIN")),
    "a handshake after the login": dialog_of(("shake", "PLAIN"), ("say", RIGHT), ("shake", "PLAIN")),
    "a login after the login": dialog_of(("shake", "PLAIN"), ("say", RIGHT), ("say", RIGHT)),
}  # fmt: skip


@pytest.mark.parametrize("name", DIALOGS)
def test_a_dialog_goes_as_with_kafka(ports, name):
    ours, kafka = (run(ports[who], DIALOGS[name]) for who in ("ours", "kafka"))
    assert ours == kafka


def test_an_unknown_user_of_scram_is_told_one_message_earlier_by_kafka(ports):
    """Intended: Kafka tells who exists."""
    dialog = dialog_of(("shake", "SCRAM-SHA-256"), ("say", b"n,,n=nobody,r=abc"))
    assert run(ports["kafka"], dialog)[1][0] == "SASL_AUTHENTICATION_FAILED"
    assert run(ports["ours"], dialog)[1][0] == "NONE"


def test_failures_that_kafka_does_not_answer_are_answered(ports):
    """Intended: Kafka closes the connection without a word."""
    dialog = dialog_of(("shake", "OAUTHBEARER"), ("say", b"n,,\x01auth=Basic abc\x01\x01"))
    assert run(ports["kafka"], dialog) == [["NONE"], "closed", "closed"]
    assert run(ports["ours"], dialog)[1][0] == "SASL_AUTHENTICATION_FAILED"


@pytest.mark.parametrize("change", ["none", "user", "soon"])
def test_a_renewal_goes_as_with_kafka(ports, change):
    def dialog(client: LoginClient) -> list[Any]:
        said = [told(client.scram(mechanism="SCRAM-SHA-512"))]
        until = time.monotonic() + (0 if change == "soon" else 1.2)
        wait_until(lambda: time.monotonic() > until, "a second, before which nothing is renewed")
        match change:
            case "soon":
                said += [told(client.shake("SCRAM-SHA-512"))]
            case "user":
                said += [told(client.shake("SCRAM-SHA-512")), told(client.say(b"n,a=eve,n=ann,r=abc"))]
            case _:
                said.append(told(client.scram(mechanism="SCRAM-SHA-512")))
        return said

    results = {}
    for who in ("ours", "kafka"):
        try:
            results[who] = run(ports[who], dialog)
        except ConnectionError:
            results[who] = ["closed"]
    assert results["ours"] == results["kafka"]


def of_tokens(port: int) -> list[Any]:
    """Returns how one life of a token goes."""
    said: list[Any] = []

    def note(what: str, answer: Any, *fields: str) -> Any:
        said.append((what, ErrorCode(answer.error_code).name, *(getattr(answer, f) for f in fields)))
        return answer

    with LoginClient(port) as ann, LoginClient(port) as bob, LoginClient(port) as holder:
        ann.plain()
        bob.plain("bob", "bob-secret")
        renewers = [CreatableRenewers(principal_type="User", principal_name="bob")]
        asked = CreateDelegationTokenRequest(renewers=renewers, max_lifetime_ms=100_000_000)
        made = note("made", ann.request(asked, 3), "principal_type", "principal_name", "token_requester_principal_name")  # fmt: skip
        said.append((made.max_timestamp_ms - made.issue_timestamp_ms, made.expiry_timestamp_ms - made.issue_timestamp_ms, len(made.hmac), len(made.token_id)))  # fmt: skip
        group = [CreatableRenewers(principal_type="Group", principal_name="g")]
        note("group", ann.request(CreateDelegationTokenRequest(renewers=group, max_lifetime_ms=-1), 3), "expiry_timestamp_ms")  # fmt: skip
        described = DescribeDelegationTokenRequest(owners=None)
        wait_until(lambda: bob.request(described, 3).tokens, "the token to be known")
        for who, client in (("ann", ann), ("bob", bob)):
            (token,) = note(who, client.request(described, 3)).tokens
            said.append((token.principal_name, token.hmac == made.hmac, [r.principal_name for r in token.renewers]))  # fmt: skip
        for owners in ([], ["ann"], ["bob"], ["zoe"]):
            named = [DescribeDelegationTokenOwner(principal_type="User", principal_name=o) for o in owners]
            said.append((owners, len(ann.request(DescribeDelegationTokenRequest(owners=named), 3).tokens)))
        password = base64.b64encode(made.hmac).decode()
        said.append(told(holder.scram(made.token_id, password, token=True))[:2])
        note("by token", holder.request(asked, 3), "principal_name", "expiry_timestamp_ms")
        note("describe by token", holder.request(described, 3))
        note("renew by token", holder.request(RenewDelegationTokenRequest(hmac=made.hmac, renew_period_ms=5), 2), "expiry_timestamp_ms")  # fmt: skip
        note("unknown", ann.request(RenewDelegationTokenRequest(hmac=b"x" * 64, renew_period_ms=5), 2), "expiry_timestamp_ms")  # fmt: skip
        note("renew", bob.request(RenewDelegationTokenRequest(hmac=made.hmac, renew_period_ms=5000), 2))
        own = note("own", ann.request(CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=-1), 3))
        for stranger in (RenewDelegationTokenRequest(hmac=own.hmac, renew_period_ms=5), ExpireDelegationTokenRequest(hmac=own.hmac, expiry_time_period_ms=-1)):  # fmt: skip
            answers = wait_until(lambda stranger=stranger: [a for a in [bob.request(stranger, 2)] if a.error_code != ErrorCode.DELEGATION_TOKEN_NOT_FOUND], "it to be known")  # fmt: skip
            note("stranger", answers[0], "expiry_timestamp_ms")
        note("expire", bob.request(ExpireDelegationTokenRequest(hmac=made.hmac, expiry_time_period_ms=-1), 2))
        wait_until(lambda: made.token_id not in {t.token_id for t in bob.request(described, 3).tokens}, "the token to be gone")  # fmt: skip
        note("gone", bob.request(ExpireDelegationTokenRequest(hmac=made.hmac, expiry_time_period_ms=-1), 2), "expiry_timestamp_ms")  # fmt: skip
    return said


def test_the_life_of_a_token_goes_as_with_kafka(ports):
    assert of_tokens(ports["ours"]) == of_tokens(ports["kafka"])


def test_tokens_of_others_are_told_by_kafka_without_an_authorizer_and_not_by_ours(ports):
    """Intended: whoever is told of a token can log in with it."""
    seen = {}
    for who, port in ports.items():
        with LoginClient(port) as ann, LoginClient(port) as bob:
            ann.plain()
            bob.plain("bob", "bob-secret")
            made = ann.request(CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=-1), 3)
            asked = DescribeDelegationTokenRequest(owners=None)

            def ids(client: LoginClient, asked: DescribeDelegationTokenRequest = asked) -> set[str]:
                return {t.token_id for t in client.request(asked, 3).tokens}

            wait_until(lambda made=made, ann=ann, ids=ids: made.token_id in ids(ann), "the token to be known")
            seen[who] = made.token_id in ids(bob)
    assert seen == {"ours": False, "kafka": True}


@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_apaches_tools_log_in(both, kafka_tools, tmp_path, protocol, mechanism):
    port = both.sasl_port if protocol == "SASL_PLAINTEXT" else both.tls_port

    def ask(password: str) -> ToolResult:
        settings = {"security.protocol": protocol, "sasl.mechanism": mechanism}
        settings["sasl.jaas.config"] = jaas(mechanism, password=password)
        if protocol == "SASL_SSL":
            settings |= trust()
        file = tmp_path / "client.properties"
        file.write_text("".join(f"{name}={property_(text)}\n" for name, text in settings.items()))
        words = ("--bootstrap-server", f"localhost:{port}", "--command-config", str(file), "--list")
        return kafka_tools.run("kafka-topics", *words)

    assert ask(PASSWORD).ok()
    if mechanism != "OAUTHBEARER":
        failed = ask("wrong")
        assert failed.code == 1
        assert "Authentication failed" in failed.out + failed.err


def test_apaches_tool_for_tokens_makes_one_that_its_clients_log_in_with(both, kafka_tools, tmp_path):
    file = tmp_path / "ann.properties"
    settings = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-256", "sasl.jaas.config": jaas("SCRAM-SHA-256")}  # fmt: skip
    file.write_text("".join(f"{name}={property_(text)}\n" for name, text in settings.items()))
    place = ("--bootstrap-server", f"localhost:{both.sasl_port}", "--command-config", str(file))
    made = kafka_tools.run("kafka-delegation-tokens", *place, "--create", "--max-life-time-period", "-1", "--renewer-principal", "User:bob").out  # fmt: skip
    line = next(line for line in made.splitlines() if "User:ann" in line).split()
    token_id, password = line[0], line[1]
    login = f'{SCRAM} required username="{token_id}" password="{password}" tokenauth="true";'
    file.write_text("".join(f"{name}={property_(text)}\n" for name, text in (settings | {"sasl.jaas.config": login}).items()))  # fmt: skip
    assert kafka_tools.run("kafka-topics", *place, "--list").ok()
