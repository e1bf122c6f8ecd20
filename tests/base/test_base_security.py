"""JAAS lines, key stores of every format, TLS contexts and SASL settings of Java's properties."""

from __future__ import annotations

import base64
import http.server
import ssl
import string
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.secure_kafka import KEY_PASSWORD, PASSWORD, STORE_PASSWORD, STORES, jaas, key, quoted, trust

from klamm_base.errors import ConfigError
from klamm_base.jaas import parse_jaas
from klamm_base.keystores import Store, read_identity, read_trusted
from klamm_base.oauth import TokenRefused, TokenSource, initial_response, oauth_settings
from klamm_base.security import ClientSecurity, sasl_settings
from klamm_base.tls import TlsSettings, cipher_names

NAME = st.text(string.ascii_letters + string.digits + "_", min_size=1, max_size=10)
VALUE = st.text(st.characters(codec="utf-8", exclude_characters="\n\r"), max_size=20)


@given(st.dictionaries(NAME, VALUE, max_size=4))
def test_what_a_jaas_line_holds_comes_out(options):
    text = "a.b.Module  required\n" + "".join(f" {k} = {quoted(v)}\n" for k, v in options.items()) + ";"
    entry = parse_jaas(text)
    assert (entry.module, entry.name, entry.options) == ("a.b.Module", "Module", options)


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("M required a=b c='d e';", {"a": "b", "c": "d e"}),
        ("M optional /* who */ a=1 // why\n;", {"a": "1"}),
        ('M REQUIRED a="tab\\tnl\\n\\101";', {"a": "tab\tnl\nA"}),
        ("M required\n  path=/etc/x.keytab debug=true;", {"path": "/etc/x.keytab", "debug": "true"}),
    ],
)
def test_jaas_as_java_reads_it(text, options):
    assert parse_jaas(text).options == options


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('M required a="s3cret"', "semicolon"),
        ("", "0 login modules"),
        ("M required; N required;", "2 login modules"),
        ("M wanted a=s3cret;", "followed by a word"),
        ('M required a="s3cret', "not closed"),
        ('M required a="b" s3cret;', "after a are not"),
        ("M;", "MODULE required"),
    ],
)
def test_a_jaas_line_that_cannot_be_read_is_explained_without_its_values(text, said):
    with pytest.raises(ConfigError, match=said) as e:
        parse_jaas(text)
    assert "s3cret" not in str(e.value)


@pytest.mark.parametrize("kind", ["jks", "p12", "pem", "encrypted"])
def test_keys_of_every_store_are_the_same(kind):
    found = TlsSettings.from_properties({**key("client", kind), **trust("pem")})
    assert found.identity is not None
    chains = found.identity.chain.split("-----BEGIN")
    assert len(chains) == 4
    assert chains[1] in (STORES / "client.pem").read_text()
    if kind != "encrypted":
        assert _key_bytes(found.identity.key) == _key_bytes((STORES / "client.pem").read_text())
    found.client_context()
    found.server_context()
    assert found.identity.key not in repr(found)


def _key_bytes(pem):
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        load_pem_private_key,
    )

    loaded = load_pem_private_key(pem.encode(), None)
    return loaded.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())


@pytest.mark.parametrize("kind", ["jks", "p12", "pem"])
def test_trust_stores_of_every_format_hold_the_same(kind):
    text = TlsSettings.from_properties(trust(kind)).trusted
    assert ssl.PEM_cert_to_DER_cert(text) == ssl.PEM_cert_to_DER_cert((STORES / "ca.pem").read_text())


def test_pem_in_the_properties_themselves():
    pem = (STORES / "client-encrypted.pem").read_text()
    props = {
        "ssl.keystore.key": pem[: pem.index("-----BEGIN CERT")].replace("\n", " "),
        "ssl.keystore.certificate.chain": pem,
        "ssl.key.password": KEY_PASSWORD,
        "ssl.truststore.certificates": (STORES / "ca.pem").read_text(),
    }
    settings = TlsSettings.from_properties(props)
    (authority,) = settings.client_context().get_ca_certs(binary_form=True)
    assert authority == ssl.PEM_cert_to_DER_cert((STORES / "ca.pem").read_text())
    assert settings.identity is not None


@pytest.mark.parametrize(
    ("file", "password", "said"),
    [
        ("trust.jks", "wrong", "password of the store is wrong"),
        ("trust.p12", "wrong", "the password is wrong"),
        ("trust.p12", None, "the password is missing"),
        ("secret.jceks", STORE_PASSWORD, "JCEKS stores cannot be read; convert it with keytool"),
        ("absent.jks", None, "cannot be read: No such file"),
        ("make.sh", None, "neither PEM nor PKCS12 nor JKS"),
    ],
)
def test_a_trust_store_that_cannot_be_read_is_named(file, password, said):
    store = Store(name="ssl.truststore.location", path=str(STORES / file), password=password)
    with pytest.raises(ConfigError, match=said) as e:
        read_trusted(store)
    assert str(e.value).startswith(f"ssl.truststore.location={STORES / file}: ")
    assert e.value.key == "ssl.truststore.location"


def test_a_store_without_a_key_and_a_wrong_key_password():
    def store(file):
        return Store(name="ssl.keystore.location", path=str(STORES / file), password=STORE_PASSWORD)

    with pytest.raises(ConfigError, match="has no private key"):
        read_identity(store("trust.jks"), None)
    with pytest.raises(ConfigError, match="the password of the key client is wrong"):
        read_identity(store("client.jks"), "nope")


@given(st.integers(0, 1200), st.integers(0, 255))
def test_a_damaged_java_store_is_an_error_and_nothing_else(at, value):
    """Without the password its seal is not checked, so every byte may lie."""
    from klamm_base.jks import BadStore, parse_jks

    data = bytearray((STORES / "client.jks").read_bytes())
    data[at % len(data)] = value
    try:
        for entry in parse_jks(bytes(data), None).keys:
            entry.unlock(KEY_PASSWORD)
    except BadStore:
        pass


@pytest.mark.parametrize(
    ("props", "said"),
    [
        ({"ssl.enabled.protocols": "SSLv3"}, "SSLv3 is none of"),
        ({"ssl.endpoint.identification.algorithm": "ldaps"}, "use https, or leave it empty"),
        ({"ssl.client.auth": "maybe"}, "use none, requested or required"),
        ({"ssl.keystore.key": "x"}, "ssl.keystore.certificate.chain is missing"),
        ({"ssl.truststore.certificates": "x"}, "has no certificates"),
    ],
)
def test_tls_settings_that_cannot_be_used(props, said):
    with pytest.raises(ConfigError, match=said):
        TlsSettings.from_properties(props)


def test_tls_versions_and_ciphers_are_openssls():
    settings = TlsSettings.from_properties(
        {"ssl.enabled.protocols": "TLSv1.2", "ssl.cipher.suites": "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"}
    )
    context = settings.client_context()
    assert context.maximum_version == ssl.TLSVersion.TLSv1_2
    assert context.check_hostname
    old = [c["name"] for c in context.get_ciphers() if c["protocol"] != "TLSv1.3"]
    assert old == ["ECDHE-RSA-AES256-GCM-SHA384"]
    with pytest.raises(ConfigError, match="OpenSSL has none of"):
        TlsSettings(ciphers=("NO-SUCH-CIPHER",)).client_context()


@pytest.mark.parametrize(
    ("java", "openssl"),
    [
        ("TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256", ("ECDHE-ECDSA-AES128-SHA256",)),
        ("TLS_RSA_WITH_AES_256_CBC_SHA", ("AES256-SHA",)),
        ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", ("ECDHE-RSA-CHACHA20-POLY1305",)),
        ("TLS_AES_128_GCM_SHA256", ()),
        ("DHE-RSA-AES256-GCM-SHA384", ("DHE-RSA-AES256-GCM-SHA384",)),
    ],
)
def test_cipher_names(java, openssl):
    assert cipher_names(java) == openssl


def test_a_suite_that_openssl_does_not_have_is_named(caplog):
    one = TlsSettings.from_properties(
        {"ssl.cipher.suites": "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,TLS_TYPO,!aNULL"}
    )
    one.client_context()
    assert [r.getMessage() for r in caplog.records] == [
        "ssl.cipher.suites: OpenSSL has no TLS_TYPO, which is left out"
    ]
    with pytest.raises(ConfigError, match="OpenSSL has none of TLS_TYPO"):
        TlsSettings.from_properties({"ssl.cipher.suites": "TLS_TYPO"}).client_context()


def test_a_host_is_checked_unless_told_otherwise():
    loose = TlsSettings.from_properties({"ssl.endpoint.identification.algorithm": ""}).client_context()
    assert not loose.check_hostname
    assert loose.verify_mode is ssl.CERT_REQUIRED


def test_protocols_and_mechanisms():
    props = {"security.protocol": "sasl_ssl", "sasl.mechanism": "PLAIN", "sasl.jaas.config": jaas("PLAIN")}
    security = ClientSecurity.from_properties({**props, **trust("pem")})
    assert security.protocol == "SASL_SSL"
    assert ClientSecurity.from_properties({}).protocol == "PLAINTEXT"
    assert PASSWORD not in repr(security.sasl)
    with pytest.raises(ConfigError, match="needs ScramLoginModule"):
        sasl_settings(props | {"sasl.mechanism": "SCRAM-SHA-256"})


def test_oauth_settings_and_tokens(tmp_path):
    with pytest.raises(ConfigError, match=r"token\.endpoint\.url is missing"):
        oauth_settings({}, {})
    with pytest.raises(ConfigError, match=r"client\.id and"):
        oauth_settings({}, {"sasl.oauthbearer.token.endpoint.url": "https://x/"})
    unsecured = oauth_settings({"unsecuredLoginStringClaim_sub": "ann", "extension_a": "b"}, {})
    token = TokenSource(unsecured).token()
    assert token.endswith(".")
    assert initial_response("T", {"a": "b"}) == b"n,,\x01auth=Bearer T\x01a=b\x01\x01"
    file = tmp_path / "token"
    file.write_text(token + "\n")
    source = TokenSource(oauth_settings({}, {"sasl.oauthbearer.token.endpoint.url": file.as_uri()}))
    assert source.token() == token
    file.unlink()
    assert source.token() == token  # it is good for most of an hour
    with pytest.raises(TokenRefused, match="cannot be read"):
        TokenSource(oauth_settings({}, {"sasl.oauthbearer.token.endpoint.url": file.as_uri()})).token()


class TokenEndpoint(http.server.BaseHTTPRequestHandler):
    """A token endpoint; `answers` are what it says one after the other, `asked` what it was told."""

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.asked.append((self.headers["Authorization"], body))
        status, text = self.answers.pop(0)
        self.send_response(status)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_):
        pass


@pytest.fixture
def endpoint():
    class Fresh(TokenEndpoint):
        answers, asked = [], []

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Fresh) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield Fresh, f"http://127.0.0.1:{server.server_port}/token"
        finally:
            server.shutdown()
            thread.join()


def source(url):
    options = {"clientId": "me", "clientSecret": "s3cret", "scope": "kafka"}
    return TokenSource(oauth_settings(options, {"sasl.oauthbearer.token.endpoint.url": url}))


def test_tokens_from_an_endpoint_are_kept_until_they_are_old(endpoint):
    handler, url = endpoint
    handler.answers += [
        (200, '{"access_token": "one", "expires_in": 3600}'),
        (200, '{"access_token": "two", "expires_in": 0}'),
        (200, '{"access_token": "three", "expires_in": 60}'),
    ]
    tokens = source(url)
    assert [tokens.token(), tokens.token()] == ["one", "one"]
    others = source(url)
    assert [others.token(), others.token()] == ["two", "three"]
    assert len(handler.asked) == 3
    assert handler.asked[0] == (
        "Basic " + base64.b64encode(b"me:s3cret").decode(),
        "grant_type=client_credentials&scope=kafka",
    )


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ((401, "no"), "gives no token: HTTP 401"),
        ((200, "<html>"), "gives no token"),
        ((200, "{}"), "its answer has no access_token"),
        ((200, "[]"), "its answer has no access_token"),
    ],
)
def test_an_endpoint_that_gives_no_token_is_named_without_the_secret(endpoint, answer, said):
    handler, url = endpoint
    handler.answers.append(answer)
    with pytest.raises(TokenRefused, match=said) as e:
        source(url).token()
    assert url in str(e.value)
    assert "s3cret" not in str(e.value)
