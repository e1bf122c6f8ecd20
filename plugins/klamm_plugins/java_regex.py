r"""Java's regular expressions and replacement strings in Python's syntax, for configurations that come from Kafka.

Most is the same in both. The differences are translated: named groups, flags amid a pattern, `\Q…\E`, `\z`, `\Z`,
`\h`, `\v`, `\R`, `\e`, `\0nn`, `\p{Alpha}` and the like, `$1` and `${name}`. Syntax without a counterpart
(classes within classes and their intersections) is refused with `re.error`, and so is syntax that only Python
knows. Most expressions are for names of topics, which are ASCII: Unicode properties stand for their ASCII part,
and flags about Unicode have no effect. No I/O.
"""

from __future__ import annotations

import re
import sys
import warnings
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
_LETTERS, _PUNCTUATION, _SYMBOLS = "a-zA-Z", "!-#%-*,-/:;?@\\[-\\]_{}", "$+<->\\^`|~"
# The ASCII part of Unicode's categories, scripts and binary properties, and of java.lang.Character's methods.
_UNICODE: Final = {
    **dict.fromkeys(("L", "LC", "Alphabetic", "Letter", "Latin", "javaLetter", "javaAlphabetic"), _LETTERS),
    **dict.fromkeys(("Lu", "Uppercase", "javaUpperCase"), "A-Z"),
    **dict.fromkeys(("Ll", "Lowercase", "javaLowerCase"), "a-z"),
    **dict.fromkeys(("N", "Nd", "javaDigit"), "0-9"),
    **dict.fromkeys(("javaLetterOrDigit",), "a-zA-Z0-9"),
    **dict.fromkeys(("P", "Punctuation"), _PUNCTUATION),
    **dict.fromkeys(("S",), _SYMBOLS),
    **dict.fromkeys(("White_Space", "javaWhitespace"), " \\t\\n\\x0b\\f\\r"),
}
_PROPERTY: Final = re.compile(r"[pP](?:\{(?:Is)?(\w+)\}|([A-Z]))")
_CODE: Final = re.compile(r"0([0-3][0-7]{2}|[0-7]{1,2})|x\{([0-9a-fA-F]{1,6})\}|c([\x00-\x7f])", re.DOTALL)
_FLAGS: Final = re.compile(r"\(\?([a-zA-Z]*)(?:-([a-zA-Z]*))?([:)])")
_NO_FLAGS: Final = frozenset("uUd")  # about Unicode and ends of lines: names of topics have neither
_SAME_FLAGS: Final = frozenset("imsx")
_REPETITION: Final = re.compile(r"\{\d+(?:,\d*)?\}")
_LOOKS: Final = ("(?=", "(?!", "(?>", "(?<=", "(?<!")
_LINES: Final = "\\n-\\r\\x85\\u2028\\u2029"
_GROUP: Final = re.compile(r"\(\?<([A-Za-z][A-Za-z0-9]*)>")


def compile_java(pattern: str, *, any_case: bool = False, ascii_only: bool = True) -> re.Pattern[str]:
    """Compiles the pattern. Raises `re.error` for a wrong pattern, and for one without a form in Python.

    `any_case` is Java's CASE_INSENSITIVE, which is about letters of ASCII. Without `ascii_only`, texts may have other characters:
    then properties of Unicode are refused, because only their ASCII part is known here.
    """
    try:
        with warnings.catch_warnings():
            # Python may one day read [a--b] as a difference of sets. Today it reads it as Java does.
            warnings.simplefilter("ignore", FutureWarning)
            flags = re.ASCII | (re.IGNORECASE if any_case else re.NOFLAG)
            return re.compile(_Translation(pattern, ascii_only=ascii_only).python(), flags)
    except (
        ValueError,
        OverflowError,
        RecursionError,
    ) as e:  # a{99999999999}, a thousand groups in each other
        raise re.error(str(e), pattern) from e


def java_replacement(text: str, pattern: re.Pattern[str]) -> Callable[[re.Match[str]], str]:
    """Returns a function that makes the replacement of Java's `replaceFirst`. Raises `re.error` for a missing group."""
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
    """Returns the group that `$…` means, and the place where the text goes on."""
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
    # Take as many digits as still name a group, as Java does.
    while at < len(text) and text[at] in "0123456789" and group * 10 + int(text[at]) <= pattern.groups:
        group = group * 10 + int(text[at])
        at += 1
    return group, at


class _Translation:
    def __init__(self, pattern: str, *, ascii_only: bool = True) -> None:
        self._text = pattern
        self._properties = _POSIX | _UNICODE if ascii_only else _POSIX
        self._at = 0
        self._out: list[str] = []
        self._in_class = 0
        self._levels: list[list[str]] = [[]]  # flags set amid each open group: "(?i:", closed with it

    def python(self) -> str:
        while self._at < len(self._text):
            self._step()
        return "".join(self._out) + ")" * len(self._levels[0])

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
            self._member(char)
        elif char == "(":
            self._group()
        elif char == "|":
            flags = self._levels[-1]
            self._add(")" * len(flags) + "|" + "".join(flags), 1)
        elif char == ")":
            flags = self._levels.pop() if len(self._levels) > 1 else []
            self._add(")" * len(flags) + ")", 1)
        elif char == "{" and _REPETITION.match(text, at) is None:
            raise re.error("Illegal repetition", text, at)
        else:
            self._add(char, 1)

    def _add(self, python: str, length: int) -> None:
        """Adds the Python form of so many of Java's characters."""
        self._out.append(python)
        self._at += length

    def _member(self, char: str) -> None:
        """Adds a character of a class that is no escape."""
        if self._text.startswith("&&", self._at):
            raise re.error(
                "intersections of character classes (&&) cannot be used here", self._text, self._at
            )
        self._in_class -= char == "]"
        self._add(
            f"\\{char}" if char in "&|~" else char, 1
        )  # doubled they may mean something in Python one day

    def _group(self) -> None:
        text, at = self._text, self._at
        if not text.startswith("(?", at):
            self._levels.append([])
            self._add("(", 1)
        elif (group := _GROUP.match(text, at)) is not None:
            self._levels.append([])
            self._add(f"(?P<{group[1]}>", len(group[0]))
        elif text.startswith(_LOOKS, at):
            self._levels.append([])
            self._add("(?", 2)
        elif (flags := _FLAGS.match(text, at)) is not None:
            self._flags(flags[1], flags[2] or "", scoped=flags[3] == ":")
            self._at = flags.end()
        else:
            raise re.error("Unknown inline modifier", text, at)

    def _flags(self, on: str, off: str, *, scoped: bool) -> None:
        """Handles `(?i-s:…)`, or `(?i-s)`, which holds until the end of its group."""
        unknown = {*on, *off} - _SAME_FLAGS - _NO_FLAGS
        if unknown:
            raise re.error(f"Unknown inline modifier {min(unknown)}", self._text, self._at)
        on, off = ("".join(dict.fromkeys(f for f in flags if f in _SAME_FLAGS)) for flags in (on, off))
        on = "".join(f for f in on if f not in off)
        opened = f"(?{on}{'-' if off else ''}{off}:"
        if scoped:
            self._levels.append([])
            self._out.append(opened)
        elif not self._out and on and not off:
            self._out.append(f"(?{on})")
        elif "x" in on + off:
            raise re.error("the flag x can be set at the beginning only", self._text, self._at)
        elif on or off:
            self._levels[-1].append(opened)
            self._out.append(opened)

    def _first_of_class(self) -> None:
        if self._text.startswith("^", self._at):
            self._add("^", 1)
        if self._text.startswith("--", self._at):  # the first one is a member; two may mean something one day
            self._add("\\-", 1)

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
            self._property(rest[0] == "P", found[1] or found[2])
            self._at += 1 + found.end()
            self._after_class()
            return
        if (code := _CODE.match(rest)) is not None:
            self._add(re.escape(_character(code)), 1 + code.end())
            return
        if rest[0] in "hHvV":
            self._set(_BLANK if rest[0] in "hH" else _LINES, negated=rest[0] in "HV")
        elif rest[0] in "bB" and self._in_class:
            raise re.error(f"Illegal/unsupported escape sequence \\{rest[0]}", self._text, self._at)
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
        if rest[0] in "dDwWsShHvV":
            self._after_class()

    def _after_class(self) -> None:
        r"""Handles a hyphen after a class of characters, as in `[\w-.]`: Java takes it as a hyphen, Python as an error."""
        if self._in_class and self._text.startswith("-", self._at):
            self._add("\\-", 1)

    def _set(self, members: str, *, negated: bool) -> None:
        if negated and self._in_class:
            raise re.error("this negated class cannot be used in another", self._text, self._at)
        self._out.append(members if self._in_class else f"[{'^' if negated else ''}{members}]")

    def _property(self, negated: bool, name: str) -> None:
        members = self._properties.get(name)
        if members is None or (negated and self._in_class):
            raise re.error(f"the character property {name} cannot be used here", self._text, self._at)
        self._set(members, negated=negated)


def _character(code: re.Match[str]) -> str:
    r"""Returns the character that `\0141`, `\x{61}` or `\cA` stands for."""
    if code[3] is not None:
        return chr(ord(code[3]) ^ 64)
    number = int(code[1], 8) if code[1] else int(code[2], 16)
    if number > sys.maxunicode:
        raise re.error("Hexadecimal codepoint is too big")
    return chr(number)
