"""Logins by Kerberos: the messages (RFC 4752), users' names, and what is told of a wrong configuration."""

from __future__ import annotations

import pytest

from klamm_base.errors import ConfigError
from klamm_base.jaas import parse_jaas
from klamm_broker.security.kerberos_names import KerberosNames, NoRule
from klamm_broker.security.sasl.gssapi import ContextRefused, GssapiServer
from klamm_broker.security.sasl.mechanism import LoginRefused
from klamm_broker.server.gssapi_context import KeyTable

CLIENT = "ann@EXAMPLE.ORG"


class Context:
    """A context that is established after `answers`; wrapping adds a letter."""

    def __init__(self, *answers: bytes) -> None:
        self._answers = list(answers)

    @property
    def complete(self) -> bool:
        return not self._answers

    def step(self, token):
        if token == b"bad":
            raise ContextRefused("token was invalid")
        return self._answers.pop(0)

    def client(self):
        return CLIENT

    def wrap(self, data):
        return b"w" + data

    def unwrap(self, data):
        if data[:1] != b"w":
            raise ContextRefused("no checksum")
        return data[1:]


def server(*answers: bytes) -> GssapiServer:
    return GssapiServer(lambda: Context(*answers), KerberosNames(["DEFAULT"], "EXAMPLE.ORG"))


OFFER = b"w\x01\x00\x00\x00"


def test_a_login_with_an_answer_at_its_end():
    login = server(b"one", b"two")
    assert [login.step(b"x", 0), login.step(b"y", 0), login.step(b"", 0)] == [b"one", b"two", OFFER]
    assert login.step(OFFER, 0) == b""
    assert login.identity is not None
    assert login.identity.name == "ann"


def test_a_login_without_one():
    login = server(b"")
    assert login.step(b"x", 0) == OFFER
    assert login.step(OFFER + CLIENT.encode(), 0) == b""
    assert login.identity is not None


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (b"x\x01\x00\x00\x00", "no checksum"),
        (b"w\x02\x00\x00\x00", "a layer that was not offered"),
        (b"w\x01\x00\x00", "a layer that was not offered"),
        (OFFER + b"bob@EXAMPLE.ORG", "may not log in as another principal"),
        (OFFER + b"\xff", "is not UTF-8"),
    ],
)
def test_a_wrong_choice(message, why):
    login = server(b"")
    login.step(b"x", 0)
    with pytest.raises(LoginRefused, match=why) as caught:
        login.step(message, 0)
    assert caught.value.told is None
    assert login.identity is None


def test_a_wrong_token():
    with pytest.raises(LoginRefused, match="GSSAPI: token was invalid"):
        server(b"").step(b"bad", 0)


def test_a_principal_of_another_realm_is_nobody_here():
    login = GssapiServer(lambda: Context(b""), KerberosNames(["DEFAULT"], "OTHER"))
    login.step(b"x", 0)
    with pytest.raises(LoginRefused, match=r"no rule of .* fits ann@EXAMPLE.ORG"):
        login.step(OFFER, 0)


RULES = [
    "RULE:[1:$1@$0](App\\..*)s/App\\.(.*)/$1/g/L",
    "RULE:[2:$1](johndoe)s/^.*$/guest/",
    "RULE:[2:$1;$2](^.*;admin$)s/;admin$//",
    "RULE:[2:$2](root)",
    "DEFAULT",
]


@pytest.mark.parametrize(
    ("principal", "name"),
    [
        ("johndoe/host@FOO.COM", "guest"),
        ("clark/admin@FOO.COM", "clark"),
        ("kent/root@FOO.COM", "root"),
        ("App.Big.Service@FOO.COM", "big.service@foo.com"),
        ("joe@REALM.COM", "joe"),
        ("joe/any@REALM.COM", "joe"),
        ("joe@OTHER.COM", None),
        ("plain", "plain"),
        ("a@b@c", None),
    ],
)
def test_rules(principal, name):
    names = KerberosNames(RULES, "REALM.COM")
    if name is None or "@" in name:
        with pytest.raises(NoRule):
            names.short(principal)
    else:
        assert names.short(principal) == name


@pytest.mark.parametrize(
    "rule", ["", "default", "RULE:[1:$1](a", "RULE:[x:$1]", "RULE:[1:$1](()s/(a)/$2/", "RULE:[1:$1](a))"]
)
def test_a_rule_that_is_none_is_named(rule):
    with pytest.raises(ConfigError, match=r"sasl\.kerberos\.principal\.to\.local\.rules"):
        KerberosNames([rule], "R")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('a.PlainLoginModule required keyTab="x";', "the login module of GSSAPI is Krb5LoginModule"),
        ('a.Krb5LoginModule required keyTab="x" principal="kafka/h";', "with the realm"),
        ('a.Krb5LoginModule required principal="kafka/h@R";', "needs keyTab"),
    ],
)
def test_a_login_module_that_cannot_be_used(text, why):
    with pytest.raises(ConfigError, match=why):
        KeyTable.of_module(parse_jaas(text), "gssapi.sasl.jaas.config")
