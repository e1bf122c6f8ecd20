"""A reader of Java's own key store format (JKS): takes certificates and private keys out of its bytes. Pure.

Layout: magic, version, entries, SHA-1 over password and content. Private keys are hidden by a stream of SHA-1
digests of the password (Java's KeyProtector); unlocked keys are PKCS #8 in DER.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass, field
from typing import Final

MAGIC: Final = b"\xfe\xed\xfe\xed"
_WHITENER: Final = b"Mighty Aphrodite"  # Java's: what is hashed between password and content
_DIGEST: Final = 20
_KEY, _CERTIFICATE = 1, 2


class BadStore(ValueError):
    """An error: the bytes are no JKS store, or are damaged, or the password is wrong."""


@dataclass(frozen=True, slots=True)
class KeyEntry:
    """A private key, still protected, and its certificates (DER), its own first."""

    alias: str
    protected: bytes = field(repr=False)
    chain: tuple[bytes, ...]

    def unlock(self, password: str) -> bytes:
        """Returns the key as PKCS #8 DER. Raises BadStore for a wrong password."""
        hidden = _octets(self.protected)
        if len(hidden) < 2 * _DIGEST:
            raise BadStore(f"the key {self.alias} is cut short")
        secret = password.encode("utf-16-be")
        digest, data, check = hidden[:_DIGEST], hidden[_DIGEST:-_DIGEST], hidden[-_DIGEST:]
        stream = bytearray()
        while len(stream) < len(data):
            digest = hashlib.sha1(secret + digest).digest()  # noqa: S324 - the format's
            stream += digest
        plain = bytes(a ^ b for a, b in zip(data, stream, strict=False))
        if hashlib.sha1(secret + plain).digest() != check:  # noqa: S324
            raise BadStore(f"the password of the key {self.alias} is wrong")
        return plain


@dataclass(frozen=True, slots=True)
class JavaKeyStore:
    """All entries of a store, in its order; certificates are DER."""

    keys: tuple[KeyEntry, ...]
    certificates: tuple[tuple[str, bytes], ...]


def parse_jks(data: bytes, password: str | None) -> JavaKeyStore:
    """Reads a store. With a password its integrity is checked, as in Java. Raises BadStore."""
    if data[:4] != MAGIC or len(data) < 12 + _DIGEST:
        raise BadStore("not a JKS store")
    content, seal = data[:-_DIGEST], data[-_DIGEST:]
    if password is not None:
        sealed = hashlib.sha1(password.encode("utf-16-be") + _WHITENER + content).digest()  # noqa: S324
        if sealed != seal:
            raise BadStore("the password of the store is wrong, or the store was tampered with")
    try:
        return _entries(content)
    except (struct.error, UnicodeDecodeError) as e:
        raise BadStore(f"the store is damaged ({e})") from None


class _Reader:
    def __init__(self, data: bytes, pos: int) -> None:
        self._data, self._pos = data, pos

    def number(self) -> int:
        (value,) = struct.unpack_from(">I", self._data, self._pos)
        self._pos += 4
        return int(value)

    def text(self) -> str:
        (size,) = struct.unpack_from(">H", self._data, self._pos)
        self._pos += 2
        return self._take(size).decode()

    def blob(self) -> bytes:
        return self._take(self.number())

    def skip(self, size: int) -> None:
        self._take(size)

    def _take(self, size: int) -> bytes:
        found = self._data[self._pos : self._pos + size]
        if len(found) < size:
            raise BadStore("the store is cut short")
        self._pos += size
        return found


def _entries(content: bytes) -> JavaKeyStore:
    reader = _Reader(content, 4)
    version = reader.number()
    if version not in {1, 2}:
        raise BadStore(f"version {version} of the JKS format is not known")

    def certificate() -> bytes:
        if version == 2:
            kind = reader.text()
            if kind != "X.509":
                raise BadStore(f"a certificate is {kind}, not X.509")
        return reader.blob()

    keys: list[KeyEntry] = []
    certificates: list[tuple[str, bytes]] = []
    for _ in range(reader.number()):
        tag, alias = reader.number(), reader.text()
        reader.skip(8)  # when it was made
        if tag == _KEY:
            protected = reader.blob()
            keys.append(KeyEntry(alias, protected, tuple(certificate() for _ in range(reader.number()))))
        elif tag == _CERTIFICATE:
            certificates.append((alias, certificate()))
        else:
            raise BadStore(f"the entry {alias} is of unknown kind {tag}")
    return JavaKeyStore(tuple(keys), tuple(certificates))


def _octets(der: bytes) -> bytes:
    """Returns the octet string of an EncryptedPrivateKeyInfo, which is a sequence of algorithm and octets."""
    _, start, _ = _der(der, 0, 0x30)
    _, _, after = _der(der, start, 0x30)
    _, start, end = _der(der, after, 0x04)
    return der[start:end]


def _der(data: bytes, pos: int, tag: int) -> tuple[int, int, int]:
    """Returns (tag, start of the content, its end) of the DER value at `pos`."""
    if pos + 2 > len(data) or data[pos] != tag:
        raise BadStore("a protected key is damaged")
    size, start = data[pos + 1], pos + 2
    if size & 0x80:
        count = size & 0x7F
        size, start = int.from_bytes(data[start : start + count]), start + count
    if start + size > len(data):
        raise BadStore("a protected key is cut short")
    return tag, start, start + size
