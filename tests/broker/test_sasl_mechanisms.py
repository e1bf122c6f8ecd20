"""The server's side of SASL mechanisms, without a socket: right and wrong logins, mutated messages, decoys, timing."""

from __future__ import annotations

import base64
import json
import secrets
import statistics
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from joserfc import jwk, jwt

from klamm_broker.security.sasl.credentials import Credential, Decoys, Mechanism, of_password
from klamm_broker.security.sasl.exchange import Exchange, Offer, OutOfOrder, State
from klamm_broker.security.sasl.jwt import JwtValidator, KeysInvalid, read_keys
from klamm_broker.security.sasl.mechanism import Identity, LoginRefused
from klamm_broker.security.sasl.oauthbearer import (
    ClaimRules,
    OAuthServer,
    TokenInvalid,
    UnsecuredValidator,
    parse_initial,
)
from klamm_broker.security.sasl.plain import PlainServer, PlainUsers
from klamm_broker.security.sasl.scram import Account, ScramServer
from klamm_broker.server.scram_users import ScramUsers
from klamm_kafka.client.scram import HASHES, ScramClient
from klamm_kafka.wire.messages.sasl_authenticate import SaslAuthenticateResponse
from klamm_kafka.wire.messages.sasl_handshake import SaslHandshakeResponse

NOW_MS = 1_800_000_000_000
PASSWORD = "a,n=s€cret"
GENERAL = "Authentication failed during authentication due to invalid credentials with SASL mechanism "
NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=20)


@pytest.fixture(scope="module")
def users(tmp_path_factory: pytest.TempPathFactory) -> ScramUsers:
    """Returns users a0 to a9 with PASSWORD, salted as Java's clients do."""
    found = ScramUsers(tmp_path_factory.mktemp("users") / "klamm-users.json")
    salts = [bytes(secrets.choice(b"0123456789abcdefghijklmnopqrstuvwxyz") for _ in range(26)) for _ in range(10)]  # fmt: skip
    found.replace(
        {
            f"a{n}": {m: of_password(m, PASSWORD, salt=salt, iterations=4096) for m in Mechanism}
            for n, salt in enumerate(salts)
        }
    )
    return found


def scram(users: ScramUsers, mechanism: Mechanism = Mechanism.SHA256) -> ScramServer:
    return ScramServer(mechanism, lambda name, tokens: users.account(mechanism, name))


def log_in(server: ScramServer, client: ScramClient) -> None:
    client.verify(server.step(client.final(server.step(client.first(), NOW_MS)), NOW_MS))


# ---- SCRAM


@pytest.mark.parametrize("mechanism", [*Mechanism])
def test_a_client_with_the_password_gets_in_and_learns_that_the_server_knows_it(users, mechanism):
    server = scram(users, mechanism)
    log_in(server, ScramClient(mechanism.sasl_name, "a3", PASSWORD))
    assert server.identity == Identity(name="a3")
    assert set(HASHES) == {m.sasl_name for m in Mechanism}


@settings(max_examples=30, deadline=None)
@given(name=NAMES, password=st.text(st.characters(exclude_categories=["Cs"]), max_size=20))
def test_any_name_and_password_work(name, password):
    credential = of_password(Mechanism.SHA256, password, salt=b"s" * 16, iterations=4096)
    server = ScramServer(
        Mechanism.SHA256, lambda n, t: Account(credential=credential, identity=Identity(name=n))
    )
    log_in(server, ScramClient("SCRAM-SHA-256", name, password))
    assert server.identity == Identity(name=name)


def test_the_exchange_of_rfc_7677():
    credential = of_password(
        Mechanism.SHA256, "pencil", salt=base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ=="), iterations=4096
    )
    nonce = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    server = ScramServer(
        Mechanism.SHA256, lambda n, t: Account(credential=credential, identity=Identity(name=n)), nonce=nonce
    )
    first = server.step(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO", NOW_MS)
    assert first == b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    final = b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    assert server.step(final, NOW_MS) == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


@pytest.mark.parametrize(("name", "password"), [("a3", "wrong"), ("nobody", PASSWORD), ("a3", "")])
def test_wrong_password_and_unknown_user_fail_at_the_proof_alike(users, name, password):
    server = scram(users)
    client = ScramClient("SCRAM-SHA-256", name, password)
    with pytest.raises(LoginRefused) as refused:
        log_in(server, client)
    assert (refused.value.told, server.identity) == (None, None)
    assert (
        str(refused.value)
        == f"Invalid client credentials ({'user ' + repr(name) if name == 'a3' else 'no such user'})"
    )
    assert password not in str(refused.value) or not password


def test_a_decoy_stays_the_same_and_looks_like_the_stored(users):
    again = ScramUsers.load(users._path)
    for mechanism in Mechanism:
        decoy = users.account(mechanism, "nobody").credential
        assert decoy == again.account(mechanism, "nobody").credential != users.account(mechanism, "nil").credential  # fmt: skip
        real = users.account(mechanism, "a0").credential
        for part in ("salt", "stored_key", "server_key"):
            assert len(getattr(decoy, part)) == len(getattr(real, part))
        assert decoy.iterations == real.iterations
        assert decoy.salt.isalnum()
        assert decoy.salt.islower()
    binary = Credential(salt=bytes(range(64)), stored_key=b"", server_key=b"", iterations=8192)
    made = Decoys(b"secret", Mechanism.SHA256, [binary]).make("x")
    assert (len(made.salt), made.iterations) == (64, 8192)


def test_unknown_user_and_wrong_password_take_the_same_time(users):
    def seconds(name: str) -> float:
        server, client = scram(users), ScramClient("SCRAM-SHA-256", name, "wrong")
        said = server.step(client.first(), NOW_MS)
        proof = client.final(said)
        server, began = scram(users), time.perf_counter()
        again = server.step(client.first(), NOW_MS)
        took = time.perf_counter() - began
        proof = proof.replace(said.split(b",")[0], again.split(b",")[0])
        began = time.perf_counter()
        with pytest.raises(LoginRefused):
            server.step(proof, NOW_MS)
        return took + time.perf_counter() - began

    known, unknown = zip(*[(seconds("a3"), seconds("b3")) for _ in range(150)], strict=True)
    ratio = statistics.median(known) / statistics.median(unknown)
    assert 0.8 < ratio < 1.25, f"{ratio:.3f}"


def test_a_proof_cannot_be_used_again(users):
    server, client = scram(users), ScramClient("SCRAM-SHA-256", "a3", PASSWORD)
    proof = client.final(server.step(client.first(), NOW_MS))
    server.step(proof, NOW_MS)
    other = scram(users)
    other.step(client.first(), NOW_MS)
    with pytest.raises(LoginRefused, match="nonce"):
        other.step(proof, NOW_MS)


def test_channel_binding_and_authorization_id_are_checked(users):
    with pytest.raises(LoginRefused, match="first message"):
        scram(users).step(b"p=tls-unique,,n=a3,r=abc", NOW_MS)
    with pytest.raises(LoginRefused, match="different from username") as refused:
        scram(users).step(b"n,a=root,n=a3,r=abc", NOW_MS)
    assert refused.value.told
    server, client = scram(users), ScramClient("SCRAM-SHA-256", "a3", PASSWORD)
    proof = client.final(server.step(client.first(), NOW_MS))
    with pytest.raises(LoginRefused, match="channel binding"):
        server.step(proof.replace(b"c=biws", b"c=eSws"), NOW_MS)


# ---- PLAIN


def plain(secret: bytes = b"k") -> PlainServer:
    return PlainServer(
        PlainUsers.of_options({"user_ann": "pé", "user_bob": "", "username": "x", "password": "y"}, secret)
    )


def test_plain():
    server = plain()
    assert server.step("ann\0ann\0pé".encode(), NOW_MS) == b""
    assert server.identity == Identity(name="ann")
    assert "pé" not in repr(vars(PlainUsers({"ann": "pé"}, b"k")))


@pytest.mark.parametrize(
    ("message", "told"),
    [
        (b"\0ann\0wrong", "Authentication failed: Invalid username or password"),
        (b"\0nobody\0wrong", "Authentication failed: Invalid username or password"),
        (b"\0x\0y", "Authentication failed: Invalid username or password"),
        (b"\0\0p", "Authentication failed: username not specified"),
        (b"\0bob\0", "Authentication failed: password not specified"),
        (b"ann\0pw", "Invalid SASL/PLAIN response: expected 3 tokens, got 2"),
        (
            "eve\0ann\0pé".encode(),
            "Authentication failed: Client requested an authorization id that is different from username",
        ),
        (b"\xff\0ann\0x", None),
    ],
)
def test_plain_refuses_in_kafkas_words(message, told):
    server = plain()
    with pytest.raises(LoginRefused) as refused:
        server.step(message, NOW_MS)
    assert (refused.value.told, server.identity) == (told, None)
    assert "wrong" not in str(refused.value)
    assert "nobody" not in str(refused.value)


# ---- OAUTHBEARER


def claims(**more: object) -> dict[str, object]:
    return {"sub": "ann", "iat": NOW_MS / 1000 - 5, "exp": NOW_MS / 1000 + 60} | more


def unsecured(said: dict[str, object]) -> str:
    parts = [base64.urlsafe_b64encode(json.dumps(p).encode()).rstrip(b"=").decode() for p in ({"alg": "none"}, said)]  # fmt: skip
    return ".".join(parts) + "."


def initial(token: str, authzid: str = "") -> bytes:
    return f"n,{authzid and f'a={authzid}'},\x01auth=Bearer {token}\x01\x01".encode()


def test_an_unsecured_token():
    server = OAuthServer(UnsecuredValidator(ClaimRules()))
    assert server.step(initial(unsecured(claims())), NOW_MS) == b""
    assert server.identity == Identity(name="ann", expires_ms=NOW_MS + 60_000)


def test_a_token_that_is_invalid_fails_at_the_clients_next_byte():
    server = OAuthServer(UnsecuredValidator(ClaimRules()))
    told = server.step(initial(unsecured(claims(exp=1))), NOW_MS)
    assert told == b'{"status":"invalid_token"}'
    with pytest.raises(LoginRefused, match="expired") as refused:
        server.step(b"\x01", NOW_MS)
    assert refused.value.told == told.decode()
    lacking = OAuthServer(UnsecuredValidator(ClaimRules(required_scopes=("read",))))
    assert lacking.step(initial(unsecured(claims(scope=["write"]))), NOW_MS) == b'{"status":"insufficient_scope", "scope":"read"}'  # fmt: skip


@pytest.mark.parametrize(
    ("rules", "said", "why"),
    [
        ({}, {"exp": None}, "no claim exp"),
        ({}, {"exp": "soon"}, "exp is not a time"),
        ({}, {"iat": NOW_MS / 1000 + 5}, "iat .* in the future"),
        ({}, {"nbf": NOW_MS / 1000 + 5}, "nbf .* in the future"),
        ({}, {"iat": NOW_MS / 1000 - 9, "exp": NOW_MS / 1000}, "expired"),
        ({"issued_at_needed": True}, {"iat": None}, "no claim iat"),
        ({"issuer": "https://i"}, {"iss": "https://j"}, "iss is not"),
        ({"audience": ("kafka",)}, {"aud": ["web"]}, "aud has none of kafka"),
        ({"audience": ("kafka",)}, {}, "aud has none of kafka"),
        ({}, {"sub": " "}, "no text in its claim sub"),
        ({"sub": "client_id"}, {}, "no text in its claim client_id"),
        ({}, {"scope": [1]}, "neither a text nor a list"),
    ],
)
def test_claims_that_do_not_fit(rules, said, why):
    with pytest.raises(TokenInvalid, match=why):
        ClaimRules(**rules).check(claims(**said), NOW_MS)


def test_claims_that_fit_with_skew_issuer_and_audience():
    rules = ClaimRules(issuer="i", audience=("k", "l"), skew_s=30, issued_at_needed=True, sub="cid")
    said = claims(iss="i", aud=["x", "l"], cid="svc", iat=NOW_MS / 1000 + 20, exp=NOW_MS / 1000 + 25)
    assert rules.check(said, NOW_MS).name == "svc"


@pytest.fixture(scope="module")
def key() -> jwk.RSAKey:
    return jwk.RSAKey.generate_key(2048, {"kid": "one", "use": "sig"})


def jwks(*keys: jwk.Key, **more: object) -> bytes:
    return json.dumps({"keys": [key.as_dict(private=False) | more for key in keys]}).encode()


def test_a_signed_token(key):
    unknown: list[str] = []
    keys = read_keys(jwks(key))
    validator = JwtValidator(ClaimRules(), lambda: keys, unknown.append)
    token = jwt.encode({"alg": "RS256", "kid": "one"}, claims(), key)
    assert validator.check(token, NOW_MS).name == "ann"

    head, body, signature = token.split(".")
    forged = base64.urlsafe_b64encode(json.dumps(claims(sub="root")).encode()).rstrip(b"=").decode()
    for wrong in (f"{head}.{forged}.{signature}", f"{head}.{body}.", unsecured(claims()), "a.b.c", "."):
        with pytest.raises(TokenInvalid):
            validator.check(wrong, NOW_MS)
    other = jwk.RSAKey.generate_key(2048, {"kid": "two"})
    with pytest.raises(TokenInvalid, match="'two' is not in the key set"):
        validator.check(jwt.encode({"alg": "RS256", "kid": "two"}, claims(), other), NOW_MS)
    assert unknown == ["two"]
    with pytest.raises(TokenInvalid):
        validator.check(jwt.encode({"alg": "RS256", "kid": "one"}, claims(), other), NOW_MS)
    with pytest.raises(TokenInvalid, match="no keys yet"):
        JwtValidator(ClaimRules(), lambda: None, unknown.append).check(token, NOW_MS)


def test_a_public_key_is_no_shared_secret(key):
    """The old attack: a token with HS256, signed with the text of the public key."""
    validator = JwtValidator(ClaimRules(), lambda: read_keys(jwks(key)), lambda _: None)
    secret = jwk.OctKey.import_key(key.as_pem(private=False).hex())
    token = jwt.encode({"alg": "HS256", "kid": "one"}, claims(), secret)
    with pytest.raises(TokenInvalid):
        validator.check(token, NOW_MS)


def test_documents_that_are_no_key_set():
    octets = json.dumps({"keys": [{"kty": "oct", "k": "c2VjcmV0c2VjcmV0"}]}).encode()
    for document in (b"", b"[]", b"{}", b'{"keys": 3}', b'{"keys": [3]}', b'{"keys": []}', octets, b"\xff"):
        with pytest.raises(KeysInvalid):
            read_keys(document)


# ---- the order of messages


def exchange(users: ScramUsers, **more: object) -> Exchange:
    offers = {
        "PLAIN": Offer(make=plain, session_ms=1000),
        "SCRAM-SHA-256": Offer(make=lambda: scram(users)),
        "OAUTHBEARER": Offer(make=lambda: OAuthServer(UnsecuredValidator(ClaimRules())), session_ms=90_000),
    }
    return Exchange(offers, **more)  # type: ignore[arg-type]


GOOD = "\0ann\0pé".encode()


def test_the_usual_order(users):
    login = exchange(users)
    login.versions(valid=False)
    login.versions(valid=True)
    shaken = login.handshake("PLAIN", 1).message
    assert isinstance(shaken, SaslHandshakeResponse)
    assert not shaken.error_code
    answer = login.authenticate(GOOD, NOW_MS).message
    assert isinstance(answer, SaslAuthenticateResponse)
    assert (answer.error_code, answer.session_lifetime_ms) == (0, 1000)
    assert login.session is not None
    assert login.session.expires_ms == NOW_MS + 1000


def test_a_session_ends_with_its_token_or_its_limit(users):
    for seconds, expected in ((60, 60_000), (120, 90_000)):
        login = exchange(users)
        login.handshake("OAUTHBEARER", 1)
        said = initial(unsecured(claims(exp=NOW_MS / 1000 + seconds)))
        answer = login.authenticate(said, NOW_MS).message
        assert isinstance(answer, SaslAuthenticateResponse)
        assert answer.session_lifetime_ms == expected
    login = exchange(users)
    login.handshake("SCRAM-SHA-256", 1)
    client = ScramClient("SCRAM-SHA-256", "a1", PASSWORD)
    said = login.authenticate(client.first(), NOW_MS).message.auth_bytes
    assert login.authenticate(client.final(said), NOW_MS).message.session_lifetime_ms == 0
    assert login.session.expires_ms is None


def test_failures_have_kafkas_sentences(users):
    login = exchange(users)
    assert login.handshake("GSSAPI", 1).message.mechanisms == ["PLAIN", "SCRAM-SHA-256", "OAUTHBEARER"]
    assert login.state is State.NOTHING
    login = exchange(users)
    login.handshake("SCRAM-SHA-256", 1)
    answer = login.authenticate(b"rubbish", NOW_MS)
    assert answer.failed == "Invalid SCRAM client first message format"
    assert answer.message.error_message == GENERAL + "SCRAM-SHA-256"
    with pytest.raises(OutOfOrder):
        login.authenticate(GOOD, NOW_MS)


def test_bare_tokens_after_a_handshake_of_version_0(users):
    login = exchange(users)
    login.handshake("PLAIN", 0)
    with pytest.raises(OutOfOrder):
        login.authenticate(GOOD, NOW_MS)
    assert login.token(GOOD, NOW_MS).message == b""
    assert login.session is not None
    login = exchange(users)
    login.handshake("PLAIN", 0)
    answer = login.token(b"\0ann\0no", NOW_MS)
    assert (answer.message, bool(answer.failed), login.session) == (None, True, None)


def test_a_renewal_keeps_mechanism_and_user(users):
    first = exchange(users)
    first.handshake("PLAIN", 1)
    first.authenticate(GOOD, NOW_MS)
    again = exchange(users, renewed=first.session)
    with pytest.raises(OutOfOrder):
        again.versions(valid=True)
    again.handshake("PLAIN", 1)
    assert again.authenticate(GOOD, NOW_MS).failed is None
    assert again.session is not None
    other = exchange(users, renewed=first.session)
    other.handshake("OAUTHBEARER", 1)
    answer = other.authenticate(initial(unsecured(claims())), NOW_MS)
    assert "re-authentication of mechanism 'PLAIN'" in answer.message.error_message
    two = {"PLAIN": Offer(make=lambda: PlainServer(PlainUsers({"bob": "b"}, b"")))}
    changed = Exchange(two, renewed=first.session)
    changed.handshake("PLAIN", 1)
    answer = changed.authenticate(b"\0bob\0b", NOW_MS)
    assert answer.message.error_message == "Cannot change principals during re-authentication from User.ann: User.bob"  # fmt: skip
    assert changed.session is None


# ---- what nobody sends

SEEDS = [
    b"n,,n=a3,r=abc", b"n,a=a3,n=a3,r=abc,tokenauth=true", b"c=biws,r=abc,p=AAAA", GOOD, b"\x01",
    initial(unsecured({"sub": "ann", "exp": 1_800_000_060})), b"n,,\x01auth=Bearer a.b.c\x01x=y\x01\x01",
]  # fmt: skip


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    data = bytearray(draw(st.sampled_from(SEEDS)))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data)))
        match draw(st.integers(0, 2)):
            case 0:
                data[at:at] = draw(st.binary(max_size=6))
            case 1:
                del data[at : at + draw(st.integers(1, 8))]
            case _:
                data[at : at + 1] = bytes([draw(st.integers(0, 255))])
    return bytes(data)


@settings(max_examples=400, deadline=None)
@given(mechanism=st.sampled_from(["PLAIN", "SCRAM-SHA-256", "OAUTHBEARER"]), said=st.lists(mutated(), max_size=4), version=st.integers(0, 1))  # fmt: skip
def test_mutated_messages_let_nobody_in_and_raise_nothing_else(users, mechanism, said, version):
    login = exchange(users)
    login.handshake(mechanism, version)
    for data in said:
        if data == GOOD or b".eyJzdWIi" in data:
            continue  # a right login
        try:
            answer = login.authenticate(data, NOW_MS) if version else login.token(data, NOW_MS)
        except OutOfOrder:
            assert login.state is State.NOTHING
            continue
        assert login.session is None, data
        if answer.failed:
            assert login.state is State.NOTHING


def test_no_representation_shows_a_secret(users):
    for thing in (users, users.account(Mechanism.SHA256, "a0"), plain(), parse_initial):
        assert "salt" not in repr(thing)
        assert PASSWORD not in repr(thing)
