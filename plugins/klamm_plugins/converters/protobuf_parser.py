"""Reads the Protobuf language (proto2 and proto3) as a FileDescriptorProto, as protoc makes it but for what has no
bearing on data: services, source positions and options of somebody's own are passed over.

Names of types are left as they were written, for `protobuf_pool` to resolve.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from google.protobuf import descriptor_pb2
from google.protobuf.text_encoding import CEscape

from klamm_plugins.converters.protobuf_lexer import Kind, Token, integer, tokens
from klamm_plugins.errors import DataError

FIELD_META: Final = "confluent.field_meta"
_FIELD: Final = descriptor_pb2.FieldDescriptorProto
_LABELS: Final = {
    "optional": _FIELD.LABEL_OPTIONAL,
    "required": _FIELD.LABEL_REQUIRED,
    "repeated": _FIELD.LABEL_REPEATED,
}
SCALARS: Final[dict[str, int]] = {
    name.removeprefix("TYPE_").lower(): number
    for name, number in _FIELD.Type.items()
    if name not in {"TYPE_GROUP", "TYPE_MESSAGE", "TYPE_ENUM"}
}
_TAG_MAX: Final = 536_870_911
_ENUM_MAX: Final = 2**31 - 1
_DEPTH_MAX: Final = 50
_OPEN: Final = {"{": "}", "[": "]", "<": ">"}


class Name(str):
    """A word without quotes in an option: `true`, `SPEED`, `inf`."""

    __slots__ = ()


@dataclass(slots=True)
class ProtoFile:
    """A file. `params` are those of Confluent's `field_meta`, by the full name of the field."""

    proto: Any
    params: dict[str, dict[str, str]] = field(default_factory=dict)


def parse(text: str, name: str) -> ProtoFile:
    """A .proto file; `name` is what others import it by. DataError with the line of what is wrong."""
    return _Parser(tokens(text), name).file()


class _Parser:
    def __init__(self, words: list[Token], name: str) -> None:
        self._words = words
        self._at = 0
        self._file = ProtoFile(descriptor_pb2.FileDescriptorProto(name=name))
        self._proto3 = False
        self._scope: list[str] = []

    # Words

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
        """Once for each statement between braces."""
        self._sign("{")
        while not self._if("}"):
            if not self._if(";"):
                yield

    def _skip_block(self) -> None:
        """Over what is not needed, up to its semicolon or the end of its braces."""
        depth = 0
        while True:
            found = self._take()
            if found.kind is Kind.END:
                raise self._wrong(found, "}")
            if found.kind is Kind.SIGN:
                depth += (found.text == "{") - (found.text == "}")
                if depth == 0 and found.text in {";", "}"}:
                    return

    # Statements

    def file(self) -> ProtoFile:
        proto = self._file.proto
        while self._next.kind is not Kind.END:
            if self._if(";"):
                continue
            if self._is("syntax", "edition"):
                self._syntax()
            elif self._if("package"):
                proto.package = self._dotted()
                self._scope = [proto.package]
                self._sign(";")
            elif self._if("import"):
                self._import()
            elif self._if("option"):
                self._option_statement(proto.options)
            elif self._is("service"):
                self._skip_block()
            elif not self._type(proto.message_type, proto.enum_type) and not self._extend(
                proto.extension, proto.message_type
            ):
                raise self._wrong(self._next, "a message or an enum")
        return self._file

    def _syntax(self) -> None:
        word = self._name()
        self._sign("=")
        version = self._text()
        if word == "edition" or version not in {"proto2", "proto3"}:
            raise DataError(f"the Protobuf schema is of {word} {version}; Klamm reads proto2 and proto3")
        self._sign(";")
        self._proto3 = version == "proto3"
        if self._proto3:
            self._file.proto.syntax = version

    def _import(self) -> None:
        proto = self._file.proto
        public = self._if("public")
        weak = not public and self._if("weak")
        if public:
            proto.public_dependency.append(len(proto.dependency))
        if weak:
            proto.weak_dependency.append(len(proto.dependency))
        proto.dependency.append(self._text())
        self._sign(";")

    def _type(self, messages: Any, enums: Any) -> bool:
        """A message or an enum, if one comes next."""
        if self._ahead(2) != "{" or not self._is("message", "enum"):
            return False
        kind = self._name()
        name = self._name()
        if kind == "enum":
            self._enum(enums.add(name=name))
        else:
            self._message(messages.add(name=name))
        return True

    def _extend(self, extensions: Any, types: Any) -> bool:
        if not self._is("extend"):
            return False
        self._at += 1
        extendee = self._dotted()
        for _ in self._body():
            made = self._field(extensions, types)
            made.extendee = extendee
        return True

    def _message(self, message: Any) -> None:
        self._scope.append(message.name)
        if len(self._scope) > _DEPTH_MAX:
            raise DataError(f"the Protobuf schema has more than {_DEPTH_MAX} messages within each other")
        optional: list[Any] = []
        for _ in self._body():
            if self._type(message.nested_type, message.enum_type):
                continue
            if self._is("oneof") and self._ahead(2) == "{":
                self._oneof(message)
            elif self._is("extend") and self._ahead(1) != "=":
                self._extend(message.extension, message.nested_type)
            elif self._is("option"):
                self._at += 1
                self._option_statement(message.options)
            elif self._is("reserved"):
                self._reserved(message.reserved_range, message.reserved_name, _TAG_MAX, 1)
            elif self._is("extensions"):
                self._reserved(message.extension_range, None, _TAG_MAX, 1)
            else:
                made = self._field(message.field, message.nested_type)
                if made.proto3_optional:
                    optional.append(made)
        self._synthetic_oneofs(message, optional)
        self._scope.pop()

    def _synthetic_oneofs(self, message: Any, optional: list[Any]) -> None:
        """Each `optional` field of proto3 is a oneof of its own; they come last."""
        taken = {f.name for f in message.field} | {o.name for o in message.oneof_decl}
        for made in optional:
            name = made.name if made.name.startswith("_") else f"_{made.name}"
            while name in taken:
                name = "X" + name
            taken.add(name)
            made.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add(name=name)

    def _oneof(self, message: Any) -> None:
        self._name()
        index = len(message.oneof_decl)
        message.oneof_decl.add(name=self._name())
        for _ in self._body():
            if self._is("option"):
                self._at += 1
                self._option_statement(message.oneof_decl[index].options)
            else:
                self._field(message.field, message.nested_type, oneof=index)

    def _enum(self, enum: Any) -> None:
        for _ in self._body():
            if self._is("option") and self._ahead(1) != "=":
                self._at += 1
                self._option_statement(enum.options)
            elif self._is("reserved") and self._ahead(1) != "=":
                self._reserved(enum.reserved_range, enum.reserved_name, _ENUM_MAX, 0)
            else:
                value = enum.value.add(name=self._name())
                self._sign("=")
                value.number = self._checked(self._int(), -(2**31), _ENUM_MAX)
                self._field_options(value.options)
                self._sign(";")

    def _checked(self, number: int, low: int, high: int) -> int:
        if not low <= number <= high:
            raise self._wrong(self._words[self._at - 1], f"a number of {low} to {high}")
        return number

    def _reserved(self, ranges: Any, names: Any, high: int, beyond: int) -> None:
        """`reserved` and `extensions`; messages have the number beyond the last one in their descriptors."""
        self._at += 1
        while True:
            if names is not None and self._next.kind is Kind.TEXT:
                names.append(self._text())
            else:
                made = ranges.add(start=self._checked(self._int(), -(2**31), high))
                made.end = made.start + beyond
                if self._if("to"):
                    last = high if self._if("max") else self._checked(self._int(), -(2**31), high)
                    made.end = last + beyond
            if not self._if(","):
                break
        if self._is("["):
            self._options(lambda *_: None)
        self._sign(";")

    # Fields

    def _field(self, fields: Any, types: Any, oneof: int | None = None) -> Any:
        made = fields.add(label=_FIELD.LABEL_OPTIONAL)
        labelled = False
        if oneof is None and self._is(*_LABELS) and self._ahead(1) not in {"=", "."}:
            label = self._name()
            made.label = _LABELS[label]
            labelled = True
            if self._proto3 and label == "optional":
                made.proto3_optional = True
        if oneof is not None:
            made.oneof_index = oneof
        if self._is("map") and self._ahead(1) == "<":
            if labelled or oneof is not None:
                raise self._wrong(self._next, "a map without a label")
            self._map(made, types)
        elif self._is("group") and self._ahead(2) == "=":
            self._group(made, types)
            return made
        else:
            self._set_type(made, self._dotted())
            made.name = self._name()
        self._sign("=")
        made.number = self._checked(self._int(), 1, _TAG_MAX)
        self._field_options(made.options, made)
        self._sign(";")
        return made

    def _set_type(self, made: Any, name: str) -> None:
        if name in SCALARS:
            made.type = SCALARS[name]
        else:
            made.type_name = name

    def _map(self, made: Any, types: Any) -> None:
        self._at += 2
        entry = types.add()
        for number, part in ((1, "key"), (2, "value")):
            inner = entry.field.add(name=part, number=number, label=_FIELD.LABEL_OPTIONAL)
            self._set_type(inner, self._dotted())
            self._sign("," if number == 1 else ">")
        entry.options.map_entry = True
        made.label = _FIELD.LABEL_REPEATED
        made.name = self._name()
        entry.name = entry_name(made.name)
        made.type_name = entry.name

    def _group(self, made: Any, types: Any) -> None:
        self._at += 1
        message = types.add(name=self._name())
        made.name = message.name.lower()
        made.type = _FIELD.TYPE_GROUP
        made.type_name = message.name
        self._sign("=")
        made.number = self._checked(self._int(), 1, _TAG_MAX)
        self._field_options(made.options, made)
        self._message(message)

    # Options

    def _option_statement(self, options: Any) -> None:
        name = self._option_name()
        self._sign("=")
        set_option(options, name, self._value(0))
        self._sign(";")

    def _field_options(self, options: Any, made: Any = None) -> None:
        if not self._is("["):
            return

        def put(name: str, value: Any) -> None:
            if made is not None and name == "default":
                made.default_value = _default_text(made, value)
            elif made is not None and name == "json_name":
                made.json_name = _decoded(value)
            elif made is not None and name.replace("(.", "(").startswith(f"({FIELD_META})"):
                self._meta(made, name.rpartition(")")[2], value)
            else:
                set_option(options, name, value)

        self._options(put)

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
        """Bytes of a text, a number, a Name, a dict of lists (an aggregate) or a list."""
        token = self._next
        if depth > _DEPTH_MAX:
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

    def _meta(self, made: Any, inner: str, value: Any) -> None:
        """Confluent's field_meta: `{params: [{key: …, value: …}]}`, or `.params = {…}`."""
        if inner:
            value = {inner.lstrip("."): value if isinstance(value, list) else [value]}
        pairs = value.get("params", []) if isinstance(value, dict) else []
        params = {
            _decoded(pair["key"][-1]): _decoded(pair.get("value", [b""])[-1])
            for pair in pairs
            if isinstance(pair, dict) and "key" in pair
        }
        if params:
            full = ".".join([*self._scope, made.name])
            self._file.params.setdefault(full, {}).update(params)


def entry_name(name: str) -> str:
    """What protoc calls the entries of a map field."""
    return "".join(part[:1].upper() + part[1:] for part in name.split("_")) + "Entry"


def set_option(options: Any, name: str, value: Any) -> None:
    """An option that descriptors have a place for; others are somebody's own, and none of them says what data mean."""
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
        made = _decoded(value)
    if known.is_repeated:
        getattr(options, name).append(made)
    else:
        setattr(options, name, made)


def _decoded(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _default_text(made: Any, value: Any) -> str:
    """A default as descriptors hold it."""
    if isinstance(value, bytes):
        return CEscape(value, as_utf8=False) if made.type == _FIELD.TYPE_BYTES else _decoded(value)
    if isinstance(value, int) and made.type in {_FIELD.TYPE_FLOAT, _FIELD.TYPE_DOUBLE}:
        value = float(value)
    if isinstance(value, float):
        text = repr(value)
        return text.removesuffix(".0")
    return str(value)
