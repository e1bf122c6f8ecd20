"""Secrets in the command line of a unit: what stands behind options such as `--password`, and in KEY=VALUE. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Final

from klamm_base.redaction import is_secret_name, secret_values

_WORD: Final = re.compile(r'"((?:[^"\\]|\\.)*)"|(\S+)')
_LOGIN_OPTIONS: Final = ("--user", "-u")


def secrets_in(unit: str) -> list[str]:
    """Returns the values to hide of the text of a unit, as it holds them and as the server gets them."""
    found: list[str] = []
    for line in unit.splitlines():
        if line.startswith("ExecStart="):
            written = [m[1] if m[1] is not None else m[2] for m in _WORD.finditer(line.partition("=")[2])]
            found += _of_words(written)
            found += _of_words([_read(word) for word in written])
    return list(dict.fromkeys(found))


def _of_words(words: Sequence[str]) -> Iterator[str]:
    for word, following in zip_longest(words, words[1:], fillvalue=""):
        yield from _of_word(word)
        if word in _LOGIN_OPTIONS:
            yield following.partition(":")[2]
        elif word.startswith("--") and "=" not in word and is_secret_name(_key(word)):
            yield following


def _of_word(word: str) -> Iterator[str]:
    """Yields the secrets of a word: `--password=x`, `ssl.key.password=x`, `--override=ssl.key.password=x`, an address with a login."""
    name, equals, value = word.partition("=")
    if name in _LOGIN_OPTIONS and equals:
        yield value.partition(":")[2]
    yield from secret_values({_key(name): value or word})
    if value and not is_secret_name(_key(name)):
        yield from _of_word(value)


def _key(option: str) -> str:
    return option.lstrip("-").replace("-", ".")


def _read(word: str) -> str:
    """Returns a word as systemd reads it: the inverse of `klamm.service.unit.quoted`."""
    return re.sub(r"\\(.)", r"\1", word).replace("$$", "$").replace("%%", "%")
