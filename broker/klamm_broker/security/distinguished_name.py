"""The subject of a certificate as text by RFC 2253, character for character as Java's `X500Principal.getName()` prints it.

Kafka's principal of a TLS client is this text, so that ACLs name it. Pure: bytes of DER in, text out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

_KEYWORDS: Final = {
    "2.5.4.3": "CN", "2.5.4.6": "C", "2.5.4.7": "L", "2.5.4.8": "ST", "2.5.4.10": "O", "2.5.4.11": "OU", "2.5.4.9": "STREET",
    "0.9.2342.19200300.100.1.25": "DC", "0.9.2342.19200300.100.1.1": "UID",
}  # fmt: skip
"""The attributes that RFC 2253 gives a name. Others are told as number and hex, like `1.2.840.113549.1.9.1=#1603...`."""
_TEXTS: Final = frozenset({0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1C, 0x1E})
"""Tags of strings: UTF8, Printable, T61, IA5, General, Universal, BMP."""
_ESCAPED: Final = frozenset(',=+<>#;"\\')
_VERSION: Final = 0xA0
_DEPTH_OF_SUBJECT: Final = 4
"""Fields of a certificate before its subject: serial number, algorithm, issuer, validity."""

Node = tuple[int, bytes, bytes]
"""One value of DER: its tag, its content, and all of its bytes."""


class BadCertificate(ValueError):
    """Bytes that are not a certificate in DER."""


def subject_of(certificate: bytes) -> str:
    """Returns the subject of a certificate in DER; empty if it has none. Raises BadCertificate."""
    try:
        body = next(_nodes(next(_nodes(certificate))[1]))[1]
        fields = [node for node in _nodes(body) if node[0] != _VERSION]
        names = [list(_nodes(rdn)) for _, rdn, _ in _nodes(fields[_DEPTH_OF_SUBJECT][1])]
        return ",".join("+".join(_attribute(content) for _, content, _ in rdn) for rdn in reversed(names))
    except (IndexError, StopIteration, ValueError) as e:
        raise BadCertificate(f"the certificate is not DER: {e}") from None


def _nodes(data: bytes) -> Iterator[Node]:
    """Yields the values that lie one behind the other in `data`."""
    at = 0
    while at < len(data):
        length, start = data[at + 1], at + 2
        if length & 0x80:
            count = length & 0x7F
            length, start = int.from_bytes(data[start : start + count], "big"), start + count
        end = start + length
        if end > len(data):
            raise ValueError(f"a value of {length} bytes ends behind the last byte")
        yield data[at], data[start:end], data[at:end]
        at = end


def _attribute(content: bytes) -> str:
    (_, oid, _), (tag, value, whole) = _nodes(content)
    number = _dotted(oid)
    keyword = _KEYWORDS.get(number)
    if keyword is None or tag not in _TEXTS:
        return f"{keyword or number}=#{whole.hex()}"
    return f"{keyword}={_escaped(value.decode('utf-8', 'replace'))}"


def _dotted(oid: bytes) -> str:
    arcs, value = [], 0
    for byte in oid:
        value = value << 7 | byte & 0x7F
        if not byte & 0x80:
            arcs.append(value)
            value = 0
    first = min(arcs[0] // 40, 2)
    return ".".join(str(arc) for arc in (first, arcs[0] - 40 * first, *arcs[1:]))


def _escaped(text: str) -> str:
    chars = ["\\00" if c == "\0" else f"\\{c}" if c in _ESCAPED else c for c in text]
    joined = "".join(chars)
    inner = joined.strip(" \r")
    if not inner:
        return "".join(f"\\{c}" for c in joined)
    lead = len(joined) - len(joined.lstrip(" \r"))
    trail = len(joined) - len(joined.rstrip(" \r"))
    ends = joined[:lead], joined[len(joined) - trail :]
    return "".join(f"\\{c}" for c in ends[0]) + inner + "".join(f"\\{c}" for c in ends[1])
