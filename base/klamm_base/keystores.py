"""Key stores and trust stores of Java's clients (PEM, PKCS12, JKS), converted to PEM text, which OpenSSL takes.

The content decides the format, not the file's name, as Java does for JKS and PKCS12. This module reads files.
Errors name the property and the file, never a password. `cryptography` is imported only for PKCS12, JKS and what a certificate says.
"""

from __future__ import annotations

import base64
import datetime as dt
import re
import ssl
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from klamm_base.errors import ConfigError
from klamm_base.jks import MAGIC, BadStore, JavaKeyStore, parse_jks

if TYPE_CHECKING:
    from cryptography import x509

BYTES_MAX: Final = 1 << 24
"""Bytes of a store. All authorities of a system take a quarter of a megabyte."""
Format = Literal["PEM", "PKCS12", "JKS"]
_JCEKS: Final = b"\xce\xce\xce\xce"
_BLOCK: Final = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Names:
    """The distinguished name of a certificate's subject (RFC 4514), and its alternative names."""

    subject: str
    alternatives: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """A private key and its certificate chain in PEM. `password` opens the key when it is encrypted."""

    key: str = field(repr=False)
    chain: str = field(repr=False)
    password: str | None = field(default=None, repr=False)

    def ends(self) -> dt.datetime:
        """Returns the last moment at which the first certificate of the chain is valid."""
        return self._first().not_valid_after_utc

    def names(self) -> Names:
        """Returns whom the first certificate of the chain is for."""
        from cryptography import x509

        first = self._first()
        try:
            found = first.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        except x509.ExtensionNotFound:
            found = x509.SubjectAlternativeName([])
        return Names(first.subject.rfc4514_string(), frozenset(str(name.value) for name in found))

    def _first(self) -> x509.Certificate:
        from cryptography import x509

        return x509.load_pem_x509_certificate(self.chain.encode())


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """A store's file. `name` is the property that named it, for errors."""

    name: str
    path: str
    password: str | None = field(default=None, repr=False)

    def read(self) -> bytes:
        try:
            with Path(self.path).open("rb") as file:
                data = file.read(BYTES_MAX + 1)
        except OSError as e:
            from klamm_base.unreadable import why_unreadable

            raise self.error(why_unreadable(Path(self.path), e)) from None
        if len(data) > BYTES_MAX:
            raise self.error(f"is larger than {BYTES_MAX} bytes")
        return data

    def format(self, data: bytes) -> Format:
        if data.startswith(MAGIC):
            return "JKS"
        if data.startswith(_JCEKS):
            raise self.error(
                "JCEKS stores cannot be read; convert it with keytool -importkeystore -deststoretype PKCS12"
            )
        if b"-----BEGIN " in data:
            return "PEM"
        if data[:1] == b"\x30":
            return "PKCS12"
        raise self.error("is neither PEM nor PKCS12 nor JKS")

    def error(self, why: str) -> ConfigError:
        return ConfigError(f"{self.name}={self.path}: {why}", key=self.name)


def read_trusted(store: Store) -> str:
    """Returns all certificates of a trust store as PEM. Raises ConfigError; an empty store is an error."""
    data = store.read()
    match store.format(data):
        case "PEM":
            return certificates_in(_text(store, data), store)
        case "JKS":
            found = _parse_jks(store, data)
            der = [c for _, c in found.certificates]
            der += [entry.chain[0] for entry in found.keys if entry.chain]
        case "PKCS12":
            _key, own, others = _load_pkcs12(store, data)
            der = [*others, *([own] if own else [])]
    if not der:
        raise store.error("has no certificates" + ("" if store.password else "; is its password missing?"))
    return "".join(map(ssl.DER_cert_to_PEM_cert, der))


def read_identity(store: Store, key_password: str | None) -> Identity:
    """Returns the first private key of a key store with its chain. Raises ConfigError."""
    data = store.read()
    match store.format(data):
        case "PEM":
            text = _text(store, data)
            return Identity(
                key=private_key_in(text, store), chain=certificates_in(text, store), password=key_password
            )
        case "JKS":
            keys = _parse_jks(store, data).keys
            if not keys or not keys[0].chain:
                raise store.error("has no private key with a certificate")
            password = key_password or store.password
            if password is None:
                raise store.error("its password is missing")
            try:
                key = keys[0].unlock(password)
            except BadStore as e:
                raise store.error(str(e)) from None
            return Identity(key=_key_pem(key), chain="".join(map(ssl.DER_cert_to_PEM_cert, keys[0].chain)))
        case "PKCS12":
            found, own, others = _load_pkcs12(store, data)
            if found is None or own is None:
                raise store.error("has no private key with a certificate")
            chain = "".join(map(ssl.DER_cert_to_PEM_cert, (own, *others)))
            return Identity(key=_key_pem(found), chain=chain)


def certificates_in(text: str, store: Store) -> str:
    """Returns the certificates of a PEM text, without the text between them."""
    found = _blocks(text, lambda label: label == "CERTIFICATE")
    if not found:
        raise store.error("has no certificates")
    return "".join(found)


def private_key_in(text: str, store: Store) -> str:
    """Returns the private key of a PEM text."""
    found = _blocks(text, lambda label: label.endswith("PRIVATE KEY"))
    if len(found) != 1:
        raise store.error(f"has {len(found)} private keys; one is needed")
    return found[0]


def _blocks(text: str, wanted: Callable[[str], bool]) -> list[str]:
    return [_block(m[1], m[2]) for m in _BLOCK.finditer(text) if wanted(m[1])]


def _block(label: str, body: str) -> str:
    """Returns a block as OpenSSL reads it. In properties a block may be on one line: Java ignores line ends."""
    if ":" not in body:  # else it has headers, which are lines
        body = "\n" + textwrap.fill("".join(body.split()), 64) + "\n"
    return f"-----BEGIN {label}-----{body}-----END {label}-----\n"


def _text(store: Store, data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise store.error("is no PEM text") from None


def _parse_jks(store: Store, data: bytes) -> JavaKeyStore:
    try:
        return parse_jks(data, store.password)
    except BadStore as e:
        raise store.error(str(e)) from None


def _load_pkcs12(store: Store, data: bytes) -> tuple[bytes | None, bytes | None, list[bytes]]:
    """Returns the private key (PKCS #8 DER), its certificate, and the other certificates (DER)."""
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
    from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12

    password = None if store.password is None else store.password.encode()
    try:
        found = load_pkcs12(data, password)
    except ValueError as e:
        why = "the password is wrong" if store.password else "the password is missing"
        raise store.error(f"PKCS12 that cannot be opened: {why} or it is damaged ({e})") from None
    key = own = None
    if found.key is not None:
        key = found.key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
    if found.cert is not None:
        own = found.cert.certificate.public_bytes(Encoding.DER)
    return key, own, [c.certificate.public_bytes(Encoding.DER) for c in found.additional_certs]


def _key_pem(der: bytes) -> str:
    lines = textwrap.fill(base64.b64encode(der).decode(), 64)
    return f"-----BEGIN PRIVATE KEY-----\n{lines}\n-----END PRIVATE KEY-----\n"
