"""TLS from Java's `ssl.*` properties, for our clients and servers, which use OpenSSL.

`TlsSettings.from_properties` reads the stores (PEM, PKCS12, JKS, or PEM text in the properties) and checks them;
`client_context` and `server_context` make contexts of the standard library. librdkafka's own names
(`ssl.ca.location` and the like) are understood too, because some files mix both. Errors never show a secret.
"""

from __future__ import annotations

import logging
import os
import ssl
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from klamm_base.errors import ConfigError
from klamm_base.keystores import Identity, Store, certificates_in, private_key_in, read_identity, read_trusted

log = logging.getLogger(__name__)

DEFAULT_VERSIONS: Final = ("TLSv1.2", "TLSv1.3")
_VERSIONS: Final = {
    "TLSv1": ssl.TLSVersion.TLSv1,
    "TLSv1.1": ssl.TLSVersion.TLSv1_1,
    "TLSv1.2": ssl.TLSVersion.TLSv1_2,
    "TLSv1.3": ssl.TLSVersion.TLSv1_3,
}
_CLIENT_AUTH: Final = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}
_ALWAYS: Final = frozenset(
    f"TLS_{name}"
    for name in (
        "AES_128_GCM_SHA256",
        "AES_256_GCM_SHA384",
        "CHACHA20_POLY1305_SHA256",
        "AES_128_CCM_SHA256",
        "AES_128_CCM_8_SHA256",
    )
)
"""The suites of TLS 1.3."""
_SERVED: Final = "ECDHE+AESGCM:ECDHE+CHACHA20:DHE+AESGCM:DHE+CHACHA20"
"""The suites of our listeners in TLS 1.2, unless `ssl.cipher.suites` says otherwise: no suite without forward secrecy, none of CBC."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """Checked settings. `trusted` is PEM; None means the system's authorities. `versions` are the lowest and highest
    allowed.
    """

    trusted: str | None = field(default=None, repr=False)
    identity: Identity | None = None
    check_host: bool = True
    verify: bool = True
    versions: tuple[str, ...] = DEFAULT_VERSIONS
    ciphers: tuple[str, ...] = ()
    client_auth: str = "none"

    @classmethod
    def from_properties(cls, props: Mapping[str, str]) -> TlsSettings:
        """Reads the properties and their stores. Raises ConfigError naming the property."""
        algorithm = props.get("ssl.endpoint.identification.algorithm", "https").strip().lower()
        if algorithm not in {"https", "", "none"}:
            raise ConfigError(
                f"ssl.endpoint.identification.algorithm={algorithm}: use https, or leave it empty",
                key="ssl.endpoint.identification.algorithm",
            )
        return cls(
            trusted=trusted_of(props),
            identity=identity_of(props),
            check_host=algorithm == "https",
            verify=props.get("enable.ssl.certificate.verification", "true").strip().lower() != "false",
            versions=_versions(props),
            ciphers=cipher_names(props.get("ssl.cipher.suites", "")),
            client_auth=_client_auth(props),
        )

    def client_context(self) -> ssl.SSLContext:
        """Returns the context for connections that we open. Raises ConfigError when OpenSSL refuses the certificates or the
        key.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._common(context)
        context.check_hostname = self.check_host and self.verify
        context.verify_mode = ssl.CERT_REQUIRED if self.verify else ssl.CERT_NONE
        if self.trusted is None:
            context.load_default_certs(ssl.Purpose.SERVER_AUTH)
        return context

    def server_context(self) -> ssl.SSLContext:
        """Returns the context for connections that we accept; `ssl.client.auth` decides whether clients show a certificate."""
        if self.identity is None:
            raise ConfigError("a TLS listener needs ssl.keystore.location", key="ssl.keystore.location")
        if self.client_auth != "none" and self.trusted is None:
            raise ConfigError(
                f"ssl.client.auth={self.client_auth} needs ssl.truststore.location",
                key="ssl.truststore.location",
            )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.set_ciphers(_SERVED)
        self._common(context)
        context.verify_mode = _CLIENT_AUTH[self.client_auth]
        context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
        return context

    def _common(self, context: ssl.SSLContext) -> None:
        order = [_VERSIONS[v] for v in self.versions]
        context.minimum_version, context.maximum_version = min(order), max(order)
        if self.ciphers:
            _tell_unknown(self.ciphers)
            try:
                context.set_ciphers(":".join(self.ciphers))
            except ssl.SSLError:
                names = ", ".join(self.ciphers)
                raise ConfigError(
                    f"ssl.cipher.suites: OpenSSL has none of {names}", key="ssl.cipher.suites"
                ) from None
        if self.trusted is not None:
            try:
                context.load_verify_locations(cadata=self.trusted)
            except ssl.SSLError as e:
                raise ConfigError(
                    f"the trust store's certificates cannot be used: {reason(e)}",
                    key="ssl.truststore.location",
                ) from None
        if self.identity is not None:
            _load_identity(context, self.identity)


def _tell_unknown(ciphers: Sequence[str]) -> None:
    """Warns of suites that OpenSSL does not know: it leaves them out of a list without a word."""
    for name in ciphers:
        if name[0].isalpha():  # others change the list, such as !aNULL
            try:
                ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).set_ciphers(name)
            except ssl.SSLError:
                log.warning("ssl.cipher.suites: OpenSSL has no %s, which is left out", name)


def reason(error: ssl.SSLError) -> str:
    """Returns OpenSSL's own words, without the place in its source."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate verify failed: {error.verify_message}"
    return (error.reason or str(error)).replace("_", " ").lower()


def trusted_of(props: Mapping[str, str]) -> str | None:
    """Returns the certificates to trust in PEM, from whichever property has them; None means the system's."""
    for name in ("ssl.truststore.certificates", "ssl.ca.pem"):
        if props.get(name):
            return certificates_in(props[name], _inline(name))
    for name in ("ssl.truststore.location", "ssl.ca.location"):
        if props.get(name):
            return read_trusted(
                Store(name=name, path=props[name], password=_password(props, "ssl.truststore"))
            )
    return None


def identity_of(props: Mapping[str, str]) -> Identity | None:
    """Returns our own key and certificates, from whichever properties have them."""
    key_password = props.get("ssl.key.password") or None
    for key, chain in (
        ("ssl.keystore.key", "ssl.keystore.certificate.chain"),
        ("ssl.key.pem", "ssl.certificate.pem"),
    ):
        if props.get(key) or props.get(chain):
            _both(props, key, chain)
            return Identity(
                key=private_key_in(props[key], _inline(key)),
                chain=certificates_in(props[chain], _inline(chain)),
                password=key_password,
            )
    if props.get("ssl.key.location") or props.get("ssl.certificate.location"):
        return _from_files(props, key_password)
    location = props.get("ssl.keystore.location")
    if not location:
        return None
    store = Store(name="ssl.keystore.location", path=location, password=_password(props, "ssl.keystore"))
    return read_identity(store, key_password)


def _from_files(props: Mapping[str, str], key_password: str | None) -> Identity:
    key, chain = "ssl.key.location", "ssl.certificate.location"
    _both(props, key, chain)
    files = [Store(name=name, path=props[name]) for name in (key, chain)]
    texts = [f.read().decode("utf-8", "replace") for f in files]
    return Identity(
        key=private_key_in(texts[0], files[0]),
        chain=certificates_in(texts[1], files[1]),
        password=key_password,
    )


def _both(props: Mapping[str, str], *names: str) -> None:
    absent = [n for n in names if not props.get(n)]
    if absent:
        raise ConfigError(f"{absent[0]} is missing: {' and '.join(names)} go together", key=absent[0])


def _inline(name: str) -> Store:
    return Store(name=name, path="(the text)")


def _password(props: Mapping[str, str], prefix: str) -> str | None:
    return props.get(f"{prefix}.password") or None


def _versions(props: Mapping[str, str]) -> tuple[str, ...]:
    given = props.get("ssl.enabled.protocols", "")
    names = [n.strip() for n in given.split(",") if n.strip()] or list(DEFAULT_VERSIONS)
    for name in names:
        if name not in _VERSIONS:
            raise ConfigError(
                f"ssl.enabled.protocols={given}: {name} is none of {', '.join(_VERSIONS)}",
                key="ssl.enabled.protocols",
            )
    return tuple(names)


def _client_auth(props: Mapping[str, str]) -> str:
    given = props.get("ssl.client.auth", "none").strip().lower()
    if given not in _CLIENT_AUTH:
        raise ConfigError(f"ssl.client.auth={given}: use none, requested or required", key="ssl.client.auth")
    return given


def cipher_names(text: str) -> tuple[str, ...]:
    """Translates Java's names of cipher suites (those of the IANA) to OpenSSL's; OpenSSL's own names pass.

    Suites of TLS 1.3 are left out: OpenSSL has them on always, and a list of the others does not touch them.
    """
    names = [n.strip() for n in text.replace(":", ",").split(",") if n.strip()]
    return tuple(_openssl_cipher(n) for n in names if n not in _ALWAYS)


def _openssl_cipher(name: str) -> str:
    if "_WITH_" not in name:
        return name
    exchange, _, cipher = name.removeprefix("TLS_").removeprefix("SSL_").partition("_WITH_")
    exchange = "" if exchange == "RSA" else exchange.replace("_", "-") + "-"
    cipher = cipher.replace("AES_128", "AES128").replace("AES_256", "AES256").replace("_CBC", "")
    cipher = cipher.replace("CHACHA20_POLY1305_SHA256", "CHACHA20-POLY1305")
    return exchange + cipher.replace("_", "-")


def _load_identity(context: ssl.SSLContext, identity: Identity) -> None:
    # The standard library takes a key from a file only. This file has no name by which another process could open it.
    with _unnamed_file(identity.key + identity.chain) as path:
        try:
            context.load_cert_chain(path, password=identity.password or _no_password)
        except ssl.SSLError as e:
            raise ConfigError(
                f"the private key cannot be used: {reason(e)}; is ssl.key.password right?",
                key="ssl.keystore.location",
            ) from None


def _no_password() -> str:
    raise ConfigError("the private key is encrypted: ssl.key.password is missing", key="ssl.key.password")


@contextmanager
def _unnamed_file(text: str) -> Iterator[str]:
    if hasattr(os, "memfd_create"):
        with os.fdopen(os.memfd_create("identity"), "w") as file:
            file.write(text)
            file.flush()
            yield f"/proc/self/fd/{file.fileno()}"
    else:
        with tempfile.NamedTemporaryFile("w", suffix=".pem") as named:  # readable by its owner alone
            named.write(text)
            named.flush()
            yield named.name
