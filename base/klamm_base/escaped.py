r"""Patterns that find a value in a text in every form: as it is, or escaped by the program that printed it.

A pattern works character by character, so forms may be mixed and nested: backslash escapes of any depth (Python's
repr() of text and of bytes, ascii(), JSON, shells, regular expressions), percent-encoding (URLs, forms), entities
(XML, HTML). No form changes letters, digits and the underscore. Pure.
"""

from __future__ import annotations

import re
from html.entities import codepoint2name
from itertools import groupby
from typing import Final

_LETTERS: Final = {"\n": "n", "\r": "r", "\t": "t", "\b": "b", "\f": "f", "\v": "v", "\0": "0", "\a": "a"}
_XML: Final = {"'": ("apos",)}
# The start of an escape: any number of backslashes, since each layer of quoting doubles them.
_SLASHES: Final = r"\\++"


def any_form(value: str) -> str:
    """Returns a regular expression that matches `value` in all its forms.

    It never backtracks far: quantifiers are possessive where they can be, and no two of them meet.
    """
    parts: list[str] = []
    after_slashes = False
    for is_slash, run in groupby(value, lambda char: char == "\\"):
        chars = list(run)
        if is_slash:
            parts.append(_backslashes(len(chars)))
            after_slashes = True
            continue
        for char in chars:
            parts.append(_char(char, after_slashes=after_slashes))
            after_slashes = False
    return "".join(parts)


def _backslashes(count: int) -> str:
    """Returns the pattern of a run of backslashes. Some forms double them, others encode them; backslashes that escape
    the next character belong to the run.
    """
    entities = "|".join(_entities("\\"))
    return rf"(?:\\{{{count},}}+|(?:{_percent(chr(92))}|{entities}){{{count}}})"


def _char(char: str, *, after_slashes: bool) -> str:
    if char == "_" or (char.isascii() and char.isalnum()):
        return char
    # The run of backslashes before this character has already taken those of its escape.
    some, any_ = ("", "") if after_slashes else (_SLASHES, r"\\*+")
    code = ord(char)
    forms: list[str] = []
    if char in _LETTERS:
        forms.append(some + _LETTERS[char])
    utf8 = char.encode("utf-8", "surrogatepass")
    utf16 = char.encode("utf-16-be", "surrogatepass")
    units = [utf16[i : i + 2].hex() for i in range(0, len(utf16), 2)]
    hexes = [_escapes(some, "u", units), _escapes(some, "x", [f"{byte:02x}" for byte in utf8])]
    hexes.append(rf"{some}U{code:08x}")
    if code < 256:
        hexes.append(rf"{some}x{code:02x}")
    forms.append(f"(?i:{'|'.join([*hexes, _percent(char)])})")
    forms += _entities(char)
    if char == " ":
        forms.append(r"\+")
    forms.append(any_ + re.escape(char) if char.isascii() else re.escape(char))
    return f"(?:{'|'.join(forms)})"


def _escapes(slashes: str, letter: str, units: list[str]) -> str:
    first, *others = [f"{letter}{unit}" for unit in units]
    return slashes + first + "".join(_SLASHES + other for other in others)


def _percent(char: str) -> str:
    """Returns the percent-encoded form of each byte, encoded any number of times (%25 is the percent sign)."""
    if char == "%":
        return "%(?:25)+"  # gives back what the value itself has behind it
    return "(?i:" + "".join(f"%(?:25)*+{byte:02x}" for byte in char.encode("utf-8", "surrogatepass")) + ")"


def _entities(char: str) -> list[str]:
    code = ord(char)
    names = [*_XML.get(char, ()), *([codepoint2name[code]] if code in codepoint2name else [])]
    if char == "&":
        return ["&(?:amp;)+", "&(?:amp;)*+#0*+38;", "(?i:&(?:amp;)*+#x0*+26;)"]
    named = [f"&(?:amp;)*+{name};" for name in names]
    return [*named, rf"&(?:amp;)*+#0*+{code};", rf"(?i:&(?:amp;)*+#x0*+{code:x};)"]
