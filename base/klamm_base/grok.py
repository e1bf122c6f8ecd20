"""Grok: named patterns, put together to one regular expression for Python's `re` and for Java's (Spark).

`%{NAME}`, `%{NAME:field}`, `%{NAME:field:int}` are those of Logstash; a field is dotted (`source.ip`) or
`[source][ip]`; `(?<field>…)` captures without a named pattern. Pure: this module expands patterns and does not
match. Groups are named g0, g1, …, since neither language allows dots in a group's name. The same field may be
captured in several places, of which one matches.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Final, Literal

from klamm_base.errors import KlammError
from klamm_base.grok_patterns import TEXT

Dialect = Literal["python", "java"]

TYPES: Final = ("string", "int", "long", "float", "double", "boolean")
_LONGEST: Final = 200_000  # characters of an expanded pattern: definitions that multiply each other end here
_DEEPEST: Final = 50
_NAME: Final = re.compile(r"[A-Za-z0-9_]+")
_REFERENCE: Final = re.compile(r"%\{(?P<name>[^:}]*)(?::(?P<field>[^:}]*))?(?::(?P<type>[^}]*))?\}")
_FIELD: Final = re.compile(r"@?[A-Za-z_][A-Za-z0-9_@-]*(?:\.[A-Za-z0-9_@-]+)*")
_BRACKETS: Final = re.compile(r"(?:\[[^\[\]]+\])+")
_BACKWARDS: Final = re.compile(r"\(\?P=|\\k<")
_CAPTURE: Final = re.compile(r"(?<!\\)\(\?P?<(?P<field>[^=!>][^>]*)>")
_POSIX: Final = {
    "alnum": "0-9A-Za-z", "alpha": "A-Za-z", "blank": r" \t", "cntrl": r"\x00-\x1f\x7f", "digit": "0-9",
    "graph": "!-~", "lower": "a-z", "print": " -~", "punct": r"!-/:-@\[-`{-~", "space": r"\s", "upper": "A-Z",
    "word": r"\w", "xdigit": "0-9A-Fa-f",
}  # fmt: skip


class GrokError(KlammError):
    """An error for a pattern that cannot be used. The sentence says which pattern and why."""


@dataclass(frozen=True, slots=True)
class Field:
    """A capture: its group in the expression, the document's field (dotted), and the type that the text is converted to."""

    group: str
    name: str
    type: str


@dataclass(frozen=True, slots=True)
class Expanded:
    """One regular expression and the fields of its groups. Search with it: it need not match a whole text."""

    regex: str
    fields: tuple[Field, ...]
    numbers: tuple[int, ...] = field(default=(), compare=False)
    """The numbers of the fields' groups: Java finds a group by its number in less time than by its name."""


@cache
def patterns() -> Mapping[str, str]:
    """Returns the usual patterns by name."""
    return parse_definitions(TEXT, "grok's own patterns")


def parse_definitions(text: str, source: str) -> dict[str, str]:
    """Reads definitions, `NAME expression` per line. Skips empty lines and those with `#`. Raises GrokError."""
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, _, pattern = line.partition(" ")
        if not _NAME.fullmatch(name) or not pattern.strip():
            raise GrokError(f"{source}:{number}: {line[:60]!r} is not NAME and an expression")
        found[name] = pattern.strip()
    return found


def expand(
    pattern: str,
    definitions: Mapping[str, str] | None = None,
    *,
    dialect: Dialect = "python",
    references: bool = True,
) -> Expanded:
    r"""Expands `pattern` to one expression; `definitions` override the usual ones. Raises GrokError.

    The expression must compile in Python; syntax that only Java has (`\p{Alpha}`) is refused for both. Without
    `references` only groups with names are fields, and `%{` stands for itself.
    """
    work = _Expansion({**patterns(), **(definitions or {})}, dialect)
    regex = work.expand(pattern, ()) if references else work.captures(pattern)
    python = regex if dialect == "python" else regex.replace("(?<g", "(?P<g").replace(r"\z", r"\Z")
    try:
        groups = re.compile(python).groupindex
    except re.error as e:
        raise GrokError(f"pattern {_short(pattern)}: not a regular expression: {e}") from None
    return Expanded(regex, tuple(work.fields), tuple(groups[f.group] for f in work.fields))


class _Expansion:
    """The state of one expansion: fields in the order of their groups."""

    def __init__(self, definitions: Mapping[str, str], dialect: Dialect) -> None:
        self._definitions, self._dialect = definitions, dialect
        self._length = 0
        self.fields: list[Field] = []

    def expand(self, pattern: str, above: tuple[str, ...]) -> str:
        parts, at = [], 0
        for match in _REFERENCE.finditer(pattern):
            parts += [self.captures(pattern[at : match.start()]), self._reference(match, above)]
            at = match.end()
        if (broken := pattern.find("%{", at)) >= 0:
            raise GrokError(
                f"pattern {_short(pattern)}: {pattern[broken : broken + 20]!r} has no closing brace"
            )
        found = "".join([*parts, self.captures(pattern[at:])])
        self._length += len(found)
        if self._length > _LONGEST:
            raise GrokError(f"pattern {_short(pattern)}: more than {_LONGEST} characters when expanded")
        return found

    def _reference(self, match: re.Match[str], above: tuple[str, ...]) -> str:
        name, field, kind = match["name"], match["field"], match["type"]
        inner = self._definitions.get(name)
        if inner is None:
            raise GrokError(f"pattern {match[0]}: no pattern {name!r} is known")
        if name in above or len(above) >= _DEEPEST:
            raise GrokError(f"pattern {name} refers to itself: {' → '.join((*above, name))}")
        group = self._group(field, kind or "string", match[0]) if field else "(?:"
        return f"{group}{self.expand(inner, (*above, name))})"

    def captures(self, text: str) -> str:
        """Rewrites text without references: `(?<field>` becomes a group of ours, classes get a form that both languages read
        alike.
        """
        if back := _BACKWARDS.search(text):
            raise GrokError(
                f"pattern {_short(text)}: {back[0]!r} refers to a group, which gets another name here"
            )
        text = _classes(text)
        if self._dialect == "python":
            text = text.replace(r"\z", r"\Z")
        return _CAPTURE.sub(lambda m: self._group(m["field"], "string", m[0]), text)

    def _group(self, field: str, kind: str, shown: str) -> str:
        if _BRACKETS.fullmatch(field):
            field = field[1:-1].replace("][", ".")
        field, _, suffix = field.partition(":")
        kind = suffix or kind
        if not _FIELD.fullmatch(field):
            raise GrokError(f"pattern {shown}: {field!r} is not a field such as source.ip")
        if kind not in TYPES:
            raise GrokError(f"pattern {shown}: {kind!r} is not one of {', '.join(TYPES)}")
        group = f"g{len(self.fields)}"
        self.fields.append(Field(group, field, kind))
        return f"(?P<{group}>" if self._dialect == "python" else f"(?<{group}>"


def _classes(text: str) -> str:
    """Rewrites character classes that the two languages read differently: `[[:alpha:]]`, a bare `[`, `&&`, `--`."""
    found, at, inside = [], 0, False
    while at < len(text):
        char = text[at]
        if char == "\\":
            found.append(r"[0-9A-Fa-f]" if text[at : at + 2] == r"\h" and not inside else text[at : at + 2])
            at += 2
            continue
        if not inside and char == "[":
            inside = True
            first = "[^" if text.startswith("[^", at) else "["
            at += len(first)
            if text.startswith("]", at):  # the first one is an ordinary character
                first, at = first + r"\]", at + 1
            found.append(first)
            continue
        if inside and (posix := re.match(r"\[:(\w+):\]", text[at:])) and posix[1] in _POSIX:
            found.append(_POSIX[posix[1]])
            at += len(posix[0])
            continue
        if inside and (char == "[" or (char in "&|~-" and text[at : at + 2] == char * 2)):
            char = f"\\{char}"
        inside = inside and char != "]"
        found.append(char)
        at += 1
    return "".join(found)


def _short(pattern: str) -> str:
    return repr(pattern if len(pattern) <= 80 else pattern[:77] + "…")
