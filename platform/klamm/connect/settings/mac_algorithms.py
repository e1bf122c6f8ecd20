"""The algorithms that sign requests between workers (KIP-507), under Java's names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

ALGORITHMS: Final[Mapping[str, tuple[str, int]]] = {
    "HmacMD5": ("md5", 512),
    "HmacSHA1": ("sha1", 512),
    "HmacSHA224": ("sha224", 224),
    "HmacSHA256": ("sha256", 256),
    "HmacSHA384": ("sha384", 384),
    "HmacSHA512": ("sha512", 512),
}
"""Python's name of each digest, and the bits of a key from Java's key generator."""
_BY_LOWER: Final = {name.lower(): name for name in ALGORITHMS}


def algorithm(name: str) -> str | None:
    """Returns Java's spelling of an algorithm, which ignores case; None for an unknown algorithm."""
    return _BY_LOWER.get(name.lower())
