"""The value of `sasl.jaas.config`: one login module of Java's and its options, as Kafka's clients write it.

    org.apache.kafka.common.security.plain.PlainLoginModule required username="ann" password="secret";

Pure. Errors never repeat option values: they are passwords.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from klamm_base.errors import ConfigError

KEY: Final = "sasl.jaas.config"
_FLAGS: Final = frozenset({"REQUIRED", "REQUISITE", "SUFFICIENT", "OPTIONAL"})
_TOKEN: Final = re.compile(
    r"""\s+ | //[^\n]* | /\*.*?\*/
    | "(?P<double>(?:[^"\\\n]|\\.)*)" | '(?P<single>(?:[^'\\\n]|\\.)*)'
    | (?P<mark>[=;]) | (?P<word>[^\s=;"']+)""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE: Final = re.compile(r"\\([0-3]?[0-7]{1,2}|.)", re.DOTALL)
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "a": "\a", "v": "\v"}


@dataclass(frozen=True, slots=True)
class JaasEntry:
    """A login module with its options; `name` is the class without its package."""

    module: str
    options: Mapping[str, str] = field(repr=False)

    @property
    def name(self) -> str:
        return self.module.rpartition(".")[2]


def parse_jaas(text: str, key: str = KEY) -> JaasEntry:
    """Reads the only entry of a JAAS configuration. Raises ConfigError that names `key` and the fault."""
    tokens = [*_tokens(text, key)]
    entries: list[JaasEntry] = []
    while tokens:
        entry, tokens = _entry(tokens, key)
        entries.append(entry)
    if len(entries) != 1:
        raise ConfigError(f"{key} has {len(entries)} login modules; exactly one is needed", key=key)
    return entries[0]


def _entry(tokens: list[tuple[str, str]], key: str) -> tuple[JaasEntry, list[tuple[str, str]]]:
    if (";", ";") not in tokens:
        raise ConfigError(f"{key}: the entry does not end with a semicolon", key=key)
    end = tokens.index((";", ";"))
    words, rest = tokens[:end], tokens[end + 1 :]
    if len(words) < 2 or "=" in (words[0][0], words[1][0]):
        raise ConfigError(f'{key}: write MODULE required name="value" …;', key=key)
    module, flag = words[0][1], words[1][1]
    if flag.upper() not in _FLAGS:
        raise ConfigError(
            f"{key}: {module} is followed by a word that is none of {', '.join(sorted(_FLAGS)).lower()}",
            key=key,
        )
    options: dict[str, str] = {}
    for at in range(2, len(words), 3):
        part = words[at : at + 3]
        if len(part) < 3 or part[1][0] != "=" or part[0][0] == "=":
            after = f" after {list(options)[-1]}" if options else ""
            raise ConfigError(f'{key}: the options of {module}{after} are not name="value" pairs', key=key)
        options[part[0][1]] = part[2][1]
    return JaasEntry(module, options), rest


def _tokens(text: str, key: str) -> Iterator[tuple[str, str]]:
    """Yields (kind, text): kind is `=`, `;`, or `text` for a word or a quoted string."""
    pos = 0
    while pos < len(text):
        match = _TOKEN.match(text, pos)
        if match is None:
            raise ConfigError(f"{key}: a quotation mark at position {pos + 1} is not closed", key=key)
        pos = match.end()
        if match["mark"]:
            yield match["mark"], match["mark"]
        elif match["word"]:
            yield "text", match["word"]
        elif (quoted := match["double"] if match["double"] is not None else match["single"]) is not None:
            yield "text", _ESCAPE.sub(_unescape, quoted)


def _unescape(match: re.Match[str]) -> str:
    mark = match[1]
    return chr(int(mark, 8)) if mark[0] in "01234567" else _ESCAPES.get(mark, mark)
