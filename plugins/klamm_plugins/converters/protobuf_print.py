"""A printer of FileDescriptorProtos in the Protobuf language, in the form of Confluent's registry (its canonical
string).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from google.protobuf import descriptor_pb2

from klamm_plugins.converters.protobuf_parser import FIELD_META, SCALARS

_FIELD: Final = descriptor_pb2.FieldDescriptorProto
_SCALAR_NAMES: Final = {number: name for name, number in SCALARS.items()}
_LABELS: Final = {
    _FIELD.LABEL_OPTIONAL: "optional ",
    _FIELD.LABEL_REQUIRED: "required ",
    _FIELD.LABEL_REPEATED: "repeated ",
}
# In Confluent's order.
_FILE_OPTIONS: Final = [
    "java_package",
    "java_outer_classname",
    "java_multiple_files",
    "java_generate_equals_and_hash",
    "java_string_check_utf8",
    "optimize_for",
    "go_package",
    "cc_generic_services",
    "java_generic_services",
    "py_generic_services",
    "deprecated",
    "cc_enable_arenas",
    "objc_class_prefix",
    "csharp_namespace",
    "swift_prefix",
    "php_class_prefix",
    "php_namespace",
    "php_metadata_namespace",
    "ruby_package",
]
_FIELD_OPTIONS: Final = ["ctype", "packed", "jstype", "deprecated", "debug_redact"]
_MESSAGE_OPTIONS: Final = ["no_standard_descriptor_accessor", "deprecated", "map_entry"]
_ENUM_OPTIONS: Final = ["allow_alias", "deprecated"]
_TAG_MAX: Final = 536_870_911
_ESCAPES: Final = {
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
} | {char: f"\\{char}" for char in "\\'\""}
_VALUE_FIRST: Final = ("precision", "scale")  # as Confluent's registry had them once

Params = Mapping[str, Mapping[str, str]]


def text_of(proto: Any, params: Params) -> str:
    """Prints a descriptor. `params` are Confluent's, by the full names of the fields."""
    printer = _Printer(params, proto3=proto.syntax == "proto3")
    return "".join(f"{line}\n" for line in printer.file(proto))


class _Printer:
    def __init__(self, params: Params, *, proto3: bool) -> None:
        self._params = params
        self._proto3 = proto3

    def file(self, proto: Any) -> Iterable[str]:
        if proto.syntax:
            yield f'syntax = "{proto.syntax}";'
        if proto.package:
            yield f"package {proto.package};"
        if proto.dependency:
            yield ""
            public = set(proto.public_dependency)
            yield from (f'import "{name}";' for i, name in enumerate(proto.dependency) if i not in public)
            yield from (f'import public "{name}";' for i, name in enumerate(proto.dependency) if i in public)
        options = list(_options(proto.options, _FILE_OPTIONS))
        if options:
            yield ""
            yield from (f"option {o};" for o in options)
        if proto.message_type or proto.enum_type:
            yield ""
        for message in proto.message_type:
            yield from self._message(message, [*filter(None, [proto.package]), message.name])
        for enum in proto.enum_type:
            yield from self._enum(enum)

    def _message(self, message: Any, scope: list[str]) -> list[str]:
        oneofs: dict[int, list[Any]] = {}
        plain = []
        for field in message.field:
            if field.HasField("oneof_index") and not field.proto3_optional:
                oneofs.setdefault(field.oneof_index, []).append(field)
            else:
                plain.append(field)
        entries = {each.name: each for each in message.nested_type if each.options.map_entry}
        blocks = [
            _reserved(message, 1),
            [f"option {o};" for o in _options(message.options, _MESSAGE_OPTIONS)],
            [line for f in plain for line in self._field(f, scope, entries=entries)],
            [line for i in sorted(oneofs) for line in self._oneof(message.oneof_decl[i], oneofs[i], scope)],
            [
                *(
                    line
                    for m in message.nested_type
                    if m.name not in entries
                    for line in self._message(m, [*scope, m.name])
                ),
                *(line for e in message.enum_type for line in self._enum(e)),
            ],
        ]
        lines = [line for block in blocks if block for line in ("", *(f"  {b}" for b in block))]
        return _braces(f"message {message.name}", lines)

    def _oneof(self, oneof: Any, fields: list[Any], scope: list[str]) -> list[str]:
        inner = [line for f in fields for line in self._field(f, scope, oneof=True)]
        return _braces(f"oneof {oneof.name}", ["", *(f"  {line}" for line in inner)])

    def _enum(self, enum: Any) -> list[str]:
        lines = [*_reserved(enum, 0), *(f"option {o};" for o in _options(enum.options, _ENUM_OPTIONS))]
        lines += [f"{value.name} = {value.number};" for value in enum.value]
        return _braces(f"enum {enum.name}", ["", *(f"  {line}" for line in lines)] if lines else [])

    def _field(
        self, field: Any, scope: list[str], *, oneof: bool = False, entries: Mapping[str, Any] | None = None
    ) -> list[str]:
        label = "" if oneof or self._bare(field) else _LABELS[field.label]
        type_ = _type(field)
        if entry := (entries or {}).get(type_.rpartition(".")[2]):
            key, value = map(_type, entry.field)
            label, type_ = "", f"map<{key}, {value}>"
        options = [[option] for option in _options(field.options, _FIELD_OPTIONS)]
        params = self._params.get(".".join([*scope, field.name]))
        if params:
            options.append(_meta(params))
        if field.default_value and not self._proto3:
            quote = '"' if field.type in {_FIELD.TYPE_STRING, _FIELD.TYPE_BYTES} else ""
            value = _escaped(field.default_value) if field.type == _FIELD.TYPE_STRING else field.default_value
            options.append([f"default = {quote}{value}{quote}"])
        if field.json_name:
            options.append([f'json_name = "{_escaped(field.json_name)}"'])
        return _bracketed(f"{label}{type_} {field.name} = {field.number}", options)

    def _bare(self, field: Any) -> bool:
        return self._proto3 and field.label != _FIELD.LABEL_REPEATED and not field.proto3_optional


def _type(field: Any) -> str:
    return str(field.type_name or _SCALAR_NAMES[field.type])


def _braces(head: str, lines: list[str]) -> list[str]:
    """Puts lines between braces. `lines` begin with an empty line, where the brace stands."""
    return [f"{head} {{", *lines[1:], "}"] if lines else [f"{head} {{}}"]


def _bracketed(head: str, options: list[list[str]]) -> list[str]:
    if not options:
        return [f"{head};"]
    if len(options) == 1:
        only = options[0]
        lines = [f"{head} [{only[0]}", *only[1:]]
        return [*lines[:-1], f"{lines[-1]}];"]
    lines = [f"{head} ["]
    for index, option in enumerate(options):
        comma = "," if index < len(options) - 1 else ""
        lines += [f"  {line}" for line in option[:-1]] + [f"  {option[-1]}{comma}"]
    return [*lines, "];"]


def _meta(params: Mapping[str, str]) -> list[str]:
    lines = [f"({FIELD_META}) = {{", "  params: ["]
    for index, (key, value) in enumerate(params.items()):
        pair = [f'key: "{_escaped(key)}"', f'value: "{_escaped(value)}"']
        if key in _VALUE_FIRST:
            pair.reverse()
        comma = "," if index < len(params) - 1 else ""
        lines += ["    {", f"      {pair[0]},", f"      {pair[1]}", f"    }}{comma}"]
    return [*lines, "  ]", "}"]


def _options(options: Any, names: Iterable[str]) -> Iterable[str]:
    for name in names:
        if not options.HasField(name):
            continue
        value, field = getattr(options, name), options.DESCRIPTOR.fields_by_name[name]
        if field.enum_type is not None:
            text = field.enum_type.values_by_number[value].name
        elif isinstance(value, bool):
            text = "true" if value else "false"
        else:
            text = f'"{_escaped(value)}"'
        yield f"{name} = {text}"


def _reserved(holder: Any, beyond: int) -> list[str]:
    """Prints reserved ranges. `beyond` is the distance from a range's last number to its end in the descriptor."""
    lines = []
    for made in holder.reserved_range:
        last = made.end - beyond
        span = "max" if last >= _TAG_MAX else str(last)
        lines.append(f"reserved {made.start};" if last == made.start else f"reserved {made.start} to {span};")
    return [*lines, *(f'reserved "{name}";' for name in holder.reserved_name)]


def _escaped(text: str) -> str:
    return "".join(_ESCAPES.get(char, char) for char in text)
