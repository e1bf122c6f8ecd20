"""A parser of the Protobuf language (proto2 and proto3). It makes a FileDescriptorProto as protoc does, but skips
the parts that do not concern data: services, source positions and options of users.

Names of types stay as they were written; `protobuf_pool` resolves them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from google.protobuf import descriptor_pb2

from klamm_plugins.converters.protobuf_lexer import Kind, Token, tokens
from klamm_plugins.converters.protobuf_words import DEPTH_MAX, Words, decoded, default_text, set_option
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


@dataclass(slots=True)
class ProtoFile:
    """A file. `params` are those of Confluent's `field_meta`, by the full name of the field; `entries` are the full
    names of the messages that the parser adds for entries of maps.
    """

    proto: Any
    params: dict[str, dict[str, str]] = field(default_factory=dict)
    entries: set[str] = field(default_factory=set)


def parse(text: str, name: str) -> ProtoFile:
    """Parses a .proto file; others import it by `name`. Raises DataError with the line of the fault."""
    return _Parser(tokens(text), name).file()


class _Parser(Words):
    def __init__(self, words: list[Token], name: str) -> None:
        super().__init__(words)
        self._file = ProtoFile(descriptor_pb2.FileDescriptorProto(name=name))
        self._proto3 = False
        self._scope: list[str] = []

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
            raise DataError(f"the Protobuf schema uses {word} {version}; Klamm reads proto2 and proto3")
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
        """Parses a message or an enum, if one comes next."""
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
        if len(self._scope) > DEPTH_MAX:
            raise DataError(f"the Protobuf schema nests messages more than {DEPTH_MAX} deep")
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
        """Adds a oneof for each `optional` field of proto3. These oneofs come last."""
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
        """Parses `reserved` and `extensions`. In the descriptors of messages a range ends beyond its last number."""
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
        if oneof is None and self._is(*_LABELS):
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
        self._file.entries.add(".".join([*self._scope, entry.name]))
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
                made.default_value = default_text(made, value)
            elif made is not None and name == "json_name":
                made.json_name = decoded(value)
            elif made is not None and name.replace("(.", "(").startswith(f"({FIELD_META})"):
                self._meta(made, name.rpartition(")")[2], value)
            else:
                set_option(options, name, value)

        self._options(put)

    def _meta(self, made: Any, inner: str, value: Any) -> None:
        """Reads Confluent's field_meta: `{params: [{key: …, value: …}]}`, or `.params = {…}`."""
        if inner:
            value = {inner.lstrip("."): value if isinstance(value, list) else [value]}
        pairs = value.get("params", []) if isinstance(value, dict) else []
        params = {
            decoded(pair["key"][-1]): decoded(pair.get("value", [b""])[-1])
            for pair in pairs
            if isinstance(pair, dict) and "key" in pair
        }
        if params:
            full = ".".join([*self._scope, made.name])
            self._file.params.setdefault(full, {}).update(params)


def entry_name(name: str) -> str:
    """Returns protoc's name for the entries of a map field."""
    return "".join(part[:1].upper() + part[1:] for part in name.split("_")) + "Entry"
