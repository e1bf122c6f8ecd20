r"""Java's regular expressions and replacement strings in Python's syntax, for configurations that come from Kafka.

Most is the same in both. What differs is translated: named groups, `\Q…\E`, `\z`, `\Z`, `\h`, `\R`, `\e`,
`\p{Alpha}` and its kin, `$1` and `${name}`. What has no counterpart (intersections of character classes, Unicode
properties) is refused with `re.error`. No I/O.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

_POSIX: Final = {
    "Lower": "a-z",
    "Upper": "A-Z",
    "ASCII": "\\x00-\\x7f",
    "Alpha": "a-zA-Z",
    "Digit": "0-9",
    "Alnum": "a-zA-Z0-9",
    "Punct": "!-/:-@\\[-`{-~",
    "Graph": "!-~",
    "Print": " -~",
    "Blank": " \\t",
    "Cntrl": "\\x00-\\x1f\\x7f",
    "XDigit": "0-9a-fA-F",
    "Space": " \\t\\n\\x0b\\f\\r",
}
_BLANK: Final = " \\t\\xa0\\u1680\\u180e\\u2000-\\u200a\\u202f\\u205f\\u3000"
_SIMPLE: Final = {
    "z": "\\Z",
    "Z": "(?=\\n?\\Z)",
    "R": "(?:\\r\\n|[\\n-\\r\\x85\\u2028\\u2029])",
    "e": "\\x1b",
}
_PROPERTY: Final = re.compile(r"[pP]\{(?:Is)?(\w+)\}")
_GROUP: Final = re.compile(r"\(\?<([A-Za-z][A-Za-z0-9]*)>")


def compile_java(pattern: str) -> re.Pattern[str]:
    """The pattern, compiled. `re.error` for what is wrong, or cannot be said in Python."""
    return re.compile(_Translation(pattern).python(), re.ASCII)


def java_replacement(text: str, pattern: re.Pattern[str]) -> Callable[[re.Match[str]], str]:
    """What Java's `replaceFirst` puts in the place of a match. `re.error` for a group that is not there."""
    parts: list[str | int] = []
    at = 0
    while at < len(text):
        char = text[at]
        at += 1
        if char == "\\":
            if at == len(text):
                raise re.error("character to be escaped is missing")
            parts.append(text[at])
            at += 1
        elif char == "$":
            group, at = _reference(text, at, pattern)
            parts.append(group)
        else:
            parts.append(char)
    return lambda m: "".join(p if isinstance(p, str) else m[p] or "" for p in parts)


def _reference(text: str, at: int, pattern: re.Pattern[str]) -> tuple[int, int]:
    """The group that `$…` means, and where the text goes on."""
    if at < len(text) and text[at] == "{":
        end = text.find("}", at)
        name = text[at + 1 : end] if end > 0 else ""
        if name not in pattern.groupindex:
            raise re.error(f"No group with name {{{name}}}")
        return pattern.groupindex[name], end + 1
    if at == len(text) or text[at] not in "0123456789":
        raise re.error("Illegal group reference")
    group = int(text[at])
    if group > pattern.groups:
        raise re.error(f"No group {group}")
    at += 1
    # As many digits as still name a group, as in Java.
    while at < len(text) and text[at] in "0123456789" and group * 10 + int(text[at]) <= pattern.groups:
        group = group * 10 + int(text[at])
        at += 1
    return group, at


class _Translation:
    def __init__(self, pattern: str) -> None:
        self._text = pattern
        self._at = 0
        self._out: list[str] = []
        self._in_class = 0

    def python(self) -> str:
        while self._at < len(self._text):
            self._step()
        return "".join(self._out)

    def _step(self) -> None:
        text, at = self._text, self._at
        char = text[at]
        if char == "\\":
            self._escape()
            return
        if char == "[":
            if self._in_class:
                raise re.error("a character class within another cannot be used here", text, at)
            self._in_class += 1
            self._at += 1
            self._out.append("[")
            self._first_of_class()
            return
        if self._in_class:
            if text.startswith("&&", at):
                raise re.error("intersections of character classes (&&) cannot be used here", text, at)
            self._in_class -= char == "]"
        elif (group := _GROUP.match(text, at)) is not None:
            self._out.append(f"(?P<{group[1]}>")
            self._at = group.end()
            return
        self._out.append(char)
        self._at += 1

    def _first_of_class(self) -> None:
        if self._text.startswith("^", self._at):
            self._out.append("^")
            self._at += 1

    def _escape(self) -> None:
        rest = self._text[self._at + 1 :]
        if not rest:
            raise re.error("Unexpected internal error: a backslash ends the pattern", self._text, self._at)
        if rest[0] == "Q":
            quoted, _, _ = rest[1:].partition("\\E")
            self._out.append(re.escape(quoted))
            self._at += 2 + len(quoted) + (2 if "\\E" in rest[1:] else 0)
            return
        if (found := _PROPERTY.match(rest)) is not None:
            self._property(rest[0] == "P", found[1])
            self._at += 1 + found.end()
            return
        if rest[0] == "h":
            self._out.append(_BLANK if self._in_class else f"[{_BLANK}]")
        elif rest[0] in _SIMPLE and not self._in_class:
            self._out.append(_SIMPLE[rest[0]])
        elif rest[0] == "k" and rest[1:2] == "<":
            name = rest[2 : rest.find(">")]
            self._out.append(f"(?P={name})")
            self._at += 4 + len(name)
            return
        else:
            self._out.append("\\" + rest[0])
        self._at += 2

    def _property(self, negated: bool, name: str) -> None:
        members = _POSIX.get(name)
        if members is None or (negated and self._in_class):
            raise re.error(f"the character property {name} cannot be used here", self._text, self._at)
        if self._in_class:
            self._out.append(members)
        else:
            self._out.append(f"[{'^' if negated else ''}{members}]")
