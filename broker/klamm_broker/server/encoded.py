"""Entries of a JSON file that remember how they are written. Pure.

A file of many entries is written anew for each change. Only entries that changed are encoded for it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Mapping
from typing import Any, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class EncodedEntries(Generic[K, V]):
    """The entries of one file. `encode` makes an entry's text, one line of JSON; `copy` makes a value that nobody else changes."""

    def __init__(self, encode: Callable[[K, V], str], copy: Callable[[V], V]) -> None:
        self._encode = encode
        self._copy = copy
        self._known: dict[K, tuple[V, str]] = {}

    def lines(self, entries: Mapping[K, V]) -> list[str]:
        """Returns the text of each entry, in their order. Those that are not among these are forgotten."""
        known: dict[K, tuple[V, str]] = {}
        for key, value in entries.items():
            before = self._known.get(key)
            known[key] = (
                before
                if before is not None and before[0] == value
                else (self._copy(value), self._encode(key, value))
            )
        self._known = known
        return [text for _, text in known.values()]


def document(head: Mapping[str, Any], name: str, entries: str) -> bytes:
    """Returns a file: the members of `head`, and one more, whose value is JSON already."""
    return f"{json.dumps(head)[:-1]}, {json.dumps(name)}: {entries}}}\n".encode()
