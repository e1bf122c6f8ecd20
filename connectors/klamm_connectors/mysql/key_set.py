"""A set of keys in little memory: six bytes for each. Pure: no I/O.

It keeps digests of 64 bits, so it may take a key for another one, about once in 10^12 keys of a set of ten million.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

_HEAD: Final = 2
_TAIL: Final = 6


class KeySet:
    """Keys to be added and asked for; none is taken out."""

    def __init__(self) -> None:
        self._tails: dict[bytes, bytearray] = {}

    def add(self, key: bytes) -> None:
        if key not in self:
            digest = blake2b(key, digest_size=_HEAD + _TAIL).digest()
            self._tails.setdefault(digest[:_HEAD], bytearray()).extend(digest[_HEAD:])

    def __contains__(self, key: bytes) -> bool:
        digest = blake2b(key, digest_size=_HEAD + _TAIL).digest()
        tails, wanted, at = self._tails.get(digest[:_HEAD], b""), digest[_HEAD:], -1
        while (at := tails.find(wanted, at + 1)) >= 0:
            if at % _TAIL == 0:
                return True
        return False

    def __len__(self) -> int:
        return sum(map(len, self._tails.values())) // _TAIL
