"""Patterns of topics: Java's regular expressions, which clients send, as the POSIX ones of librdkafka. Pure.

Java's consumer wants the whole name to match; librdkafka looks for a match anywhere.
"""

from __future__ import annotations

import re
from typing import Final

from klamm.restproxy.errors import ProxyError, unprocessable

_CLASSES: Final = {"d": "0-9", "w": "A-Za-z0-9_", "s": " "}
_PART: Final = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\(\?.?|[*+?}][?+]|.", re.DOTALL)
_IN_BRACKETS: Final = re.compile(r"\\.|.", re.DOTALL)


def posix(pattern: str) -> str:
    """Returns the pattern for librdkafka, which matches whole names. Raises ProxyError for what POSIX does not have."""
    try:
        re.compile(pattern)
    except re.error as e:
        raise unprocessable(f"topic_pattern is no regular expression: {e}") from None
    return f"^({''.join(map(_translated, _PART.findall(pattern)))})$"


def _translated(part: str) -> str:
    kind = part[0]
    if kind == "\\":
        return _escaped(part)
    if kind == "[" and len(part) > 1:
        return _bracketed(part)
    if part == "(?:":
        return "("
    if len(part) > 1:
        raise _unknown(part)
    return part


def _escaped(part: str) -> str:
    letter = part[1]
    if letter in _CLASSES:
        return f"[{_CLASSES[letter]}]"
    if letter.lower() in _CLASSES:
        return f"[^{_CLASSES[letter.lower()]}]"
    if letter.isalnum():
        raise _unknown(part)
    return part


def _bracketed(part: str) -> str:
    """Returns a set of characters; in POSIX's, a backslash is one of them, and a minus stands last."""
    inner = part[1:-1]
    negated = inner.startswith("^")
    found = minus = ""
    for each in _IN_BRACKETS.findall(inner[negated:]):
        if each == "\\-":
            minus = "-"
        elif len(each) == 1:
            found += each
        elif each[1] in _CLASSES:
            found += _CLASSES[each[1]]
        elif each[1] in "]^[" or each[1].isalnum():
            raise _unknown(each)
        else:
            found += each[1]
    return f"[{'^' if negated else ''}{found}{minus}]"


def _unknown(part: str) -> ProxyError:
    return unprocessable(f"topic_pattern cannot have {part}")
