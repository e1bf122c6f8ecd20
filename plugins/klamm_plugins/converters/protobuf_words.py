"""Words, braces and options of the Protobuf language, for the grammar in protobuf_parser."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from google.protobuf import descriptor_pb2
from google.protobuf.text_encoding import CEscape

from klamm_plugins.converters.protobuf_lexer import Kind, Token, integer
from klamm_plugins.errors import DataError

_FIELD: Final = descriptor_pb2.FieldDescriptorProto
DEPTH_MAX: Final = 50
_OPEN: Final = {"{": "}", "[": "]", "<": ">"}


class Name(str):
    """A word without quotes in an option: `true`, `SPEED`, `inf`."""

    __slots__ = ()


class Words:
    """The words of a file, taken one after the other. Raises DataError with the line of a word in a wrong place."""

    def __init__(self, words: list[Token]) -> None:
        self._words = words
        self._at = 0

    @property
    def _next(self) -> Token:
        return self._words[self._at]

    def _ahead(self, count: int) -> str:
        return self._words[min(self._at + count, len(self._words) - 1)].text

    def _take(self) -> Token:
        found = self._words[self._at]
        if found.kind is not Kind.END:
            self._at += 1
        return found

    def _wrong(self, token: Token, wanted: str) -> DataError:
        return DataError(
            f"the Protobuf schema cannot be read: line {token.line}: {token.text} where {wanted} belongs"
        )

    def _sign(self, sign: str) -> None:
        found = self._take()
        if found.text != sign or found.kind is Kind.TEXT:
            raise self._wrong(found, sign)

    def _is(self, *words: str) -> bool:
        return self._next.kind in {Kind.NAME, Kind.SIGN} and self._next.text in words

    def _if(self, word: str) -> bool:
        """Takes the word when it comes next."""
        if not self._is(word):
            return False
        self._at += 1
        return True

    def _name(self) -> str:
        found = self._take()
        if found.kind is not Kind.NAME:
            raise self._wrong(found, "a name")
        return found.text

    def _dotted(self) -> str:
        parts = ["."] if self._if(".") else []
        parts.append(self._name())
        while self._if("."):
            parts.append("." + self._name())
        return "".join(parts)

    def _int(self) -> int:
        sign = -1 if self._if("-") else 1
        found = self._take()
        if found.kind is not Kind.INT:
            raise self._wrong(found, "a number")
        try:
            return sign * integer(found.text)
        except ValueError:
            raise self._wrong(found, "a number") from None

    def _bytes(self) -> bytes:
        parts = []
        while self._next.kind is Kind.TEXT:
            parts.append(self._take().data)
        if not parts:
            raise self._wrong(self._next, "a text")
        return b"".join(parts)

    def _text(self) -> str:
        token = self._next
        try:
            return self._bytes().decode()
        except UnicodeDecodeError:
            raise self._wrong(token, "a text in UTF-8") from None

    def _body(self) -> Iterator[None]:
        """Yields once for each statement between braces."""
        self._sign("{")
        while not self._if("}"):
            if not self._if(";"):
                yield

    def _skip_block(self) -> None:
        """Skips a part that is not needed, up to its semicolon or the end of its braces."""
        depth = 0
        while True:
            found = self._take()
            if found.kind is Kind.END:
                raise self._wrong(found, "}")
            if found.kind is Kind.SIGN:
                depth += (found.text == "{") - (found.text == "}")
                if depth == 0 and found.text in {";", "}"}:
                    return

    def _options(self, put: Callable[[str, Any], None]) -> None:
        self._sign("[")
        while True:
            name = self._option_name()
            self._sign("=")
            put(name, self._value(0))
            if not self._if(","):
                break
        self._sign("]")

    def _option_name(self) -> str:
        parts = []
        while True:
            if self._if("("):
                parts.append(f"({self._dotted()})")
                self._sign(")")
            else:
                parts.append(self._name())
            if not self._if("."):
                return ".".join(parts)

    def _value(self, depth: int) -> Any:
        """Returns the bytes of a text, a number, a Name, a dict of lists (an aggregate) or a list."""
        token = self._next
        if depth > DEPTH_MAX:
            raise self._wrong(token, "less depth")
        if token.kind is Kind.TEXT:
            return self._bytes()
        if self._is("{", "<"):
            return self._aggregate(depth)
        if self._if("["):
            found = []
            while not self._if("]"):
                found.append(self._value(depth + 1))
                self._if(",")
            return found
        sign = self._take().text if self._is("-", "+") else ""
        token = self._take()
        if token.kind is Kind.INT:
            return int(sign + "1") * integer(token.text) if sign else integer(token.text)
        if token.kind is Kind.FLOAT:
            return float(sign + token.text.rstrip("fF"))
        if token.kind is Kind.NAME:
            return Name(sign + token.text)
        raise self._wrong(token, "a value")

    def _aggregate(self, depth: int) -> dict[str, list[Any]]:
        close = _OPEN[self._take().text]
        found: dict[str, list[Any]] = {}
        while not self._if(close):
            if self._if("["):  # an extension, or a URL of Any
                while not self._if("]"):
                    if self._take().kind is Kind.END:
                        raise self._wrong(self._next, "]")
                name = "[]"
            else:
                name = self._name()
            if not self._if(":") and not self._is("{", "<"):
                raise self._wrong(self._next, ":")
            value = self._value(depth + 1)
            found.setdefault(name, []).extend(value if isinstance(value, list) else [value])
            if not self._if(","):
                self._if(";")
        return found


def set_option(options: Any, name: str, value: Any) -> None:
    """Sets an option that descriptors have a place for. Others are options of users, which never change the meaning of
    data.
    """
    known = options.DESCRIPTOR.fields_by_name.get(name)
    if known is None or isinstance(value, (dict, list)) or known.type == _FIELD.TYPE_MESSAGE:
        return
    if known.type == _FIELD.TYPE_BOOL:
        made: Any = value == "true"
    elif known.type == _FIELD.TYPE_ENUM:
        symbol = known.enum_type.values_by_name.get(value)
        if symbol is None:
            return
        made = symbol.number
    else:
        made = decoded(value)
    if known.is_repeated:
        getattr(options, name).append(made)
    else:
        setattr(options, name, made)


def decoded(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def default_text(made: Any, value: Any) -> str:
    """Returns a default in the form of descriptors."""
    if isinstance(value, bytes):
        return CEscape(value, as_utf8=False) if made.type == _FIELD.TYPE_BYTES else decoded(value)
    if isinstance(value, int) and made.type in {_FIELD.TYPE_FLOAT, _FIELD.TYPE_DOUBLE}:
        value = float(value)
    if isinstance(value, float):
        text = repr(value)
        return text.removesuffix(".0")
    return str(value)
