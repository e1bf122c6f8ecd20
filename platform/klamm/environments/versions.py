"""The order of versions, and version ranges as KIP-891 writes them (`[1.0,2.0)`). Pure.

Kafka uses Maven's rules; plugins here carry Python's versions. The order below is Maven's, which agrees with Python's
for what both know (1.0a1 < 1.0rc1 < 1.0 < 1.0.post1 < 1.10), with Python's `dev` before everything of its release.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from klamm_base.errors import KlammError

LATEST: Final = "latest"

_QUALIFIERS: Final = {
    name: rank
    for rank, names in enumerate(
        (("dev",), ("alpha", "a"), ("beta", "b"), ("milestone", "m"), ("rc", "cr", "c"), ("snapshot",)),
        start=-6,
    )
    for name in names
}
_RELEASE: Final = ("", "final", "ga", "release")
_TOKEN: Final = re.compile(r"\d+|[a-z]+")
_RANGE: Final = re.compile(r"([\[(])([^\[\]()]*)([\])])\s*(?:,\s*|$)")

_ZERO: Final = (1, 0, "")
_END: Final = (
    0,
    0,
    "",
)  # a number may follow, or a word for what comes after a release: 1.0-rc < 1.0 < 1.0.1

_Key = tuple[tuple[int, int, str], ...]


class BadVersion(KlammError):
    """A version or range that cannot be read."""


def version_key(version: str) -> _Key:
    """Returns the key by which versions are sorted. Any text has a key; equal keys are the same version (1.0
    and 1).
    """
    public, _, local = version.strip().lower().removeprefix("v").partition("+")
    key = _tokens(public)
    if local:
        key += [(0, 1, "+"), *_tokens(local)]
    return (*key, _END)


def _tokens(text: str) -> list[tuple[int, int, str]]:
    key: list[tuple[int, int, str]] = []
    for token in map(_token, _TOKEN.findall(text)):
        if token[0] == 0:
            _drop_empty(key)
        key.append(token)
    _drop_empty(key)
    return key


def _drop_empty(key: list[tuple[int, int, str]]) -> None:
    """Drop zeros at the end of a series of numbers, and words for "this is the release", as they say nothing."""
    while key and key[-1] in {_ZERO, _END}:
        key.pop()


def _token(text: str) -> tuple[int, int, str]:
    """Returns rank, number and word of a token. Numbers rank after words, and words before a release rank
    after it.
    """
    if text.isdigit():
        return (1, int(text), "")
    if text in _QUALIFIERS:
        return (0, _QUALIFIERS[text], "")
    if text in _RELEASE:
        return (0, 0, "")
    return (0, 2, text)


@dataclass(frozen=True, slots=True)
class _Restriction:
    low: str | None
    low_inclusive: bool
    high: str | None
    high_inclusive: bool

    def __str__(self) -> str:
        opening, closing = "[" if self.low_inclusive else "(", "]" if self.high_inclusive else ")"
        return f"{opening}{self.low or ''},{self.high or ''}{closing}"

    def __contains__(self, version: str) -> bool:
        key = version_key(version)
        if self.low is not None:
            low = version_key(self.low)
            if key < low or (key == low and not self.low_inclusive):
                return False
        if self.high is not None:
            high = version_key(self.high)
            if key > high or (key == high and not self.high_inclusive):
                return False
        return True


@dataclass(frozen=True, slots=True)
class VersionRange:
    """One or several ranges; prints as Maven's does, which stands in Kafka's errors: `[1.0,1.0]` for 1.0."""

    restrictions: tuple[_Restriction, ...]

    def __contains__(self, version: str) -> bool:
        return any(version in each for each in self.restrictions)

    def __str__(self) -> str:
        return ",".join(map(str, self.restrictions))


def version_range(text: str | None) -> VersionRange | None:
    """Returns the range that a `*.plugin.version` asks for; None for nothing and for `latest`. A bare version
    means that version only.

    Raises BadVersion.
    """
    if text is None or text.strip() in {"", LATEST}:
        return None
    given = text.strip()
    if given[0] not in "[(":
        if any(c in given for c in "[](),"):
            raise BadVersion(f"{given!r} is no version range; write it like 1.2, [1.0,2.0) or latest")
        return VersionRange((_Restriction(given, True, given, True),))
    found, at = [], 0
    while at < len(given):
        match = _RANGE.match(given, at)
        if match is None:
            raise BadVersion(f"{given!r} is no version range; write it like 1.2, [1.0,2.0) or latest")
        found.append(_restriction(given, *match.groups()))
        at = match.end()
    return VersionRange(tuple(found))


def _restriction(given: str, opening: str, inner: str, closing: str) -> _Restriction:
    low, comma, high = (part.strip() for part in inner.partition(","))
    if not comma:
        if not low or opening != "[" or closing != "]":
            raise BadVersion(f"{given!r}: a single version must be enclosed by [ and ]")
        return _Restriction(low, True, low, True)
    if low and high and version_key(low) > version_key(high):
        raise BadVersion(f"{given!r}: the range begins after its end")
    return _Restriction(low or None, opening == "[", high or None, closing == "]")


def sort_key(version: str) -> tuple[_Key, str]:
    """Returns a key for sorting: the order above, and by text between versions that are the same."""
    return version_key(version), version


def newest(versions: Iterable[str]) -> str | None:
    return max(versions, key=sort_key, default=None)
