"""The syntax of conditions: a text becomes a tree of nodes. What Groovy and JavaScript share, and a few words of each.

A condition is one expression: members, comparisons, logic, choice, sums, lists, and calls of methods. Everything else of
these languages (statements, assignments, functions, constructors, interpolated texts) is refused by name, with its place.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from klamm_base.errors import ConfigError

_CHARS_MAX: Final = 10_000
_DEPTH_MAX: Final = 50  # of expressions in each other: the parser and what it makes recurse

_TOKEN: Final = re.compile(
    r"""\s+|//[^\n]*|/\*.*?\*/
    |(?P<number>\d+(?:\.\d+)?(?:[eE][+-]?\d+)?[lLgG]?(?![\w]))
    |(?P<name>[A-Za-z_][A-Za-z_0-9]*)
    |(?P<text>'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*")
    |(?P<mark>===|!==|==~|==|!=|<=|>=|&&|\|\||\?\.|\?:|\?\?|[-+*%<>!?:.,()\[\]])""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_ESCAPES: Final = {
    "n": "\n",
    "t": "\t",
    "r": "\r",
    "b": "\b",
    "f": "\f",
    "\\": "\\",
    "'": "'",
    '"': '"',
    "$": "$",
}
_SUFFIXES: Final = "lLgG"  # of Groovy's long and exact numbers
_LEVELS: Final = (
    ("||", "??"),
    ("&&",),
    ("==", "!=", "===", "!==", "==~"),
    ("<", "<=", ">", ">=", "in"),
    ("+", "-"),
    ("*", "%"),
)
_CONSTANTS: Final = {"true": True, "false": False, "null": None}
_WORDS: Final = frozenset({
    "as", "assert", "async", "await", "case", "catch", "class", "const", "def", "delete", "do", "else", "final", "for", "function",
    "if", "import", "instanceof", "it", "let", "new", "return", "static", "super", "switch", "this", "throw", "try", "typeof", "var",
    "void", "while", "yield",
})  # fmt: skip
_ONLY: Final = (
    "a condition has members, ==, <, &&, ||, !, ?:, +, lists, texts, numbers and methods of texts, and nothing else of "
    "the language"
)


@dataclass(frozen=True, slots=True)
class Node:
    """A part of an expression, and its text for errors."""

    kind: str
    """constant, name, member, call, list, not, minus, choice, elvis, or an operator of two sides."""
    text: str
    value: Any = None
    """A constant's value, or the name of a name, member or method."""
    parts: tuple[Node, ...] = ()
    safe: bool = False
    """True: a member of null is null (`?.`)."""


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    start: int


def parse(text: str, *, groovy: bool) -> Node:
    """Returns the tree. Groovy has texts as members, numbers with an L, and `$` in double quotes, which is refused. Raises
    ConfigError for what is no condition.
    """
    if len(text) > _CHARS_MAX:
        raise ConfigError(f"it has {len(text)} characters, and {_CHARS_MAX} are the most")
    return _Parser(text, _tokens(text, groovy=groovy), groovy=groovy).whole()


def _tokens(text: str, *, groovy: bool) -> list[_Token]:
    found = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            found.append(_Token("other", text[at], at))
            at += 1
            continue
        kind = match.lastgroup
        if kind == "text" and match[0][0] == '"' and groovy and re.search(r"(?<!\\)(?:\\\\)*\$", match[0]):
            raise ConfigError(
                f"the text at character {at + 1} has a $, for a value to be put in: join texts with +"
            )
        if kind == "number" and not groovy and match[0][-1] in _SUFFIXES:
            raise _refused(match[0], at)
        if kind is not None:
            found.append(_Token(kind, match[0], at))
        at = match.end()
    return [*found, _Token("end", "", len(text))]


def _refused(text: str, at: int) -> ConfigError:
    return ConfigError(f"{text or 'its end'} at character {at + 1} is not understood: {_ONLY}")


class _Parser:
    """Reads tokens from left to right, one level of operators in each other."""

    def __init__(self, text: str, tokens: list[_Token], *, groovy: bool) -> None:
        self._text = text
        self._groovy = groovy
        self._tokens = tokens
        self._at = 0
        self._depth = 0

    def whole(self) -> Node:
        found = self._choice()
        if self._next.kind != "end":
            raise _refused(self._next.text, self._next.start)
        return found

    @property
    def _next(self) -> _Token:
        return self._tokens[self._at]

    def _take(self) -> _Token:
        token = self._next
        self._at += 1
        return token

    def _takes(self, *marks: str) -> str | None:
        """Returns the next token's text, if it is one of these, and goes on."""
        token = self._next
        return self._take().text if token.kind in {"mark", "name"} and token.text in marks else None

    def _expect(self, mark: str) -> None:
        if self._takes(mark) is None:
            raise _refused(self._next.text, self._next.start)

    def _node(
        self, start: int, kind: str, value: Any = None, parts: tuple[Node, ...] = (), *, safe: bool = False
    ) -> Node:
        last = self._tokens[self._at - 1]
        return Node(kind, self._text[start : last.start + len(last.text)], value, parts, safe)

    def _deeper(self, read: Callable[[], Node]) -> Node:
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            raise ConfigError(f"it has more than {_DEPTH_MAX} expressions in each other")
        found = read()
        self._depth -= 1
        return found

    def _choice(self) -> Node:
        start = self._next.start
        first = self._binary(0)
        if self._takes("?:"):
            return self._node(start, "elvis", parts=(first, self._deeper(self._choice)))
        if self._takes("?") is None:
            return first
        yes = self._deeper(self._choice)
        self._expect(":")
        return self._node(start, "choice", parts=(first, yes, self._deeper(self._choice)))

    def _binary(self, level: int) -> Node:
        if level == len(_LEVELS):
            return self._unary()
        start = self._next.start
        found = self._binary(level + 1)
        while (operator := self._takes(*_LEVELS[level])) is not None:
            found = self._node_of(start, operator, found, self._binary(level + 1))
        return found

    def _node_of(self, start: int, operator: str, *parts: Node) -> Node:
        return self._node(start, operator, parts=parts)

    def _unary(self) -> Node:
        start = self._next.start
        if self._takes("!"):
            return self._node_of(start, "not", self._deeper(self._unary))
        if self._takes("-"):
            return self._node_of(start, "minus", self._deeper(self._unary))
        return self._members(start, self._operand())

    def _members(self, start: int, found: Node) -> Node:
        while True:
            if (mark := self._takes(".", "?.")) is not None:
                found = self._member(start, found, safe=mark == "?.")
            elif self._takes("["):
                key = self._deeper(self._choice)
                self._expect("]")
                if (
                    key.kind != "constant"
                    or not isinstance(key.value, str | int)
                    or isinstance(key.value, bool)
                ):
                    raise ConfigError(
                        f"[{key.text}] is not understood: a name in quotes or a number can stand there"
                    )
                found = self._node(start, "member", key.value, (found,))
            else:
                return found

    def _member(self, start: int, of: Node, *, safe: bool) -> Node:
        name = self._take()
        if name.kind == "text" and self._groovy:
            return self._node(start, "member", _unquoted(name.text), (of,), safe=safe)
        if name.kind != "name":
            raise _refused(name.text, name.start)
        if self._takes("(") is None:
            return self._node(start, "member", name.text, (of,), safe=safe)
        given = self._items(")")
        return self._node(start, "call", name.text, (of, *given), safe=safe)

    def _operand(self) -> Node:
        token = self._take()
        match token.kind:
            case "number":
                return self._node(token.start, "constant", _number(token.text))
            case "text":
                return self._node(token.start, "constant", _unquoted(token.text))
            case "name" if token.text in _CONSTANTS:
                return self._node(token.start, "constant", _CONSTANTS[token.text])
            case "name" if token.text not in _WORDS:
                return self._node(token.start, "name", token.text)
            case "mark" if token.text == "(":
                found = self._deeper(self._choice)
                self._expect(")")
                return found
            case "mark" if token.text == "[":
                items = self._items("]")
                return self._node(token.start, "list", parts=items)
        raise _refused(token.text, token.start)

    def _items(self, end: str) -> tuple[Node, ...]:
        items: list[Node] = []
        while self._takes(end) is None:
            if items:
                self._expect(",")
            items.append(self._deeper(self._choice))
        return tuple(items)


def _number(text: str) -> int | float:
    digits = text.rstrip(_SUFFIXES)
    return int(digits) if digits.isdigit() else float(digits)


def _unquoted(text: str) -> str:
    return _ESCAPE.sub(lambda m: chr(int(m[1], 16)) if m[1] else _ESCAPES.get(m[2], m[2]), text[1:-1])
