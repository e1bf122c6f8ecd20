"""Can a reader with one Protobuf schema read what was written with another? Compares file descriptors. Pure.

Messages are found by name, fields by number, as the wire has them. Kinds of differences are those of Confluent's registry. Names
of types are resolved: they begin with a dot. A message that is imported is compared where a field has it as its type, by its
name without the package of its file, so that an import may move to another package.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf import descriptor_pb2

from klamm.registry.difference import Difference

_F: Final = descriptor_pb2.FieldDescriptorProto
_GROUPS: Final = (
    {_F.TYPE_INT32, _F.TYPE_UINT32, _F.TYPE_INT64, _F.TYPE_UINT64, _F.TYPE_BOOL, _F.TYPE_ENUM},
    {_F.TYPE_SINT32, _F.TYPE_SINT64},
    {_F.TYPE_STRING, _F.TYPE_BYTES},
    {_F.TYPE_FIXED32, _F.TYPE_SFIXED32},
    {_F.TYPE_FIXED64, _F.TYPE_SFIXED64},
)
"""Scalar types with one form on the wire."""
_TEXTS: Final = {_F.TYPE_STRING, _F.TYPE_BYTES}
_COMPOSITE: Final = {_F.TYPE_MESSAGE, _F.TYPE_GROUP}
_WORDS: Final = {
    "PACKAGE_CHANGED": "the package is another one",
    "MESSAGE_REMOVED": "the new schema lacks a message of the old one",
    "FIELD_KIND_CHANGED": "the kind of a field (scalar, message, map) is another one",
    "FIELD_SCALAR_KIND_CHANGED": "the type of a field has another form on the wire",
    "FIELD_NAMED_TYPE_CHANGED": "a field has another message or enum as its type",
    "FIELD_NUMERIC_LABEL_CHANGED": "a number is repeated, or required, in one schema only",
    "REQUIRED_FIELD_ADDED": "the new schema requires a field that the old one lacks",
    "REQUIRED_FIELD_REMOVED": "the new schema lacks a field that the old one requires",
    "ONEOF_FIELD_REMOVED": "the new schema lacks a field of a oneof",
    "MULTIPLE_FIELDS_MOVED_TO_ONEOF": "several fields of the old schema are in one oneof of the new one",
    "FIELD_MOVED_TO_EXISTING_ONEOF": "fields that could be set together in the old schema are in one oneof of the new one",
}  # fmt: skip


def differences(
    new: Any, old: Any, new_imports: Sequence[Any] = (), old_imports: Sequence[Any] = ()
) -> list[Difference]:
    """Returns all that keeps a reader with the new file from reading what was written with the old one. The imports are the files
    that each needs, also through others.
    """
    return list(_Comparison(_Side(old, old_imports), _Side(new, new_imports)).files())


@dataclass(frozen=True, slots=True)
class _Known:
    """A message: the file that has it, and its name there, without the package."""

    file: Any
    local: str
    message: Any


class _Side:
    """One of both schemas: its file, and all messages by their full names."""

    def __init__(self, file: Any, imports: Sequence[Any]) -> None:
        self.file = file
        self.messages: dict[str, _Known] = {}
        for each in (*imports, file):
            self._take(each, each.message_type, "")

    def _take(self, file: Any, messages: Any, outer: str) -> None:
        prefix = f".{file.package}." if file.package else "."
        for message in messages:
            local = f"{outer}{message.name}"
            self.messages[prefix + local] = _Known(file, local, message)
            self._take(file, message.nested_type, f"{local}.")

    def message(self, type_name: str) -> _Known:
        return self.messages[type_name]

    def entry(self, field: Any) -> Any:
        """Returns the entry of a map's field; None for a field that is no map."""
        if field.type != _F.TYPE_MESSAGE or field.label != _F.LABEL_REPEATED:
            return None
        found = self.message(field.type_name).message
        return found if found.options.map_entry else None


class _Comparison:
    def __init__(self, old: _Side, new: _Side) -> None:
        self._old, self._new = old, new
        self._imported: dict[tuple[str, str], list[Difference]] = {}
        """The differences of imported messages that were compared, or are being compared, by both full names."""

    def files(self) -> Iterator[Difference]:
        old, new = self._old.file, self._new.file
        if old.package != new.package:
            yield _said("PACKAGE_CHANGED", "#/")
        yield from self._messages(old.message_type, new.message_type, "#/")

    def _messages(self, old: Any, new: Any, path: str) -> Iterator[Difference]:
        after = {each.name: each for each in new}
        for message in old:
            if message.options.map_entry:  # compared with its field
                continue
            at = f"{path}{message.name}"
            if message.name in after:
                yield from self._message(message, after[message.name], at)
            else:
                yield _said("MESSAGE_REMOVED", at)

    def _message(self, old: Any, new: Any, path: str) -> Iterator[Difference]:
        yield from self._messages(old.nested_type, new.nested_type, f"{path}/")
        before = {field.number: field for field in old.field}
        after = {field.number: field for field in new.field}
        for number, field in sorted(before.items()):
            if number in after:
                now = _oneof(after[number], new)
                yield from self._field(
                    field, after[number], f"{path}/{number}" if now is None else f"{path}/{now}/{number}"
                )
            elif field.label == _F.LABEL_REQUIRED:
                yield _said("REQUIRED_FIELD_REMOVED", f"{path}/{number}")
            elif (oneof := _oneof(field, old)) is not None and _goes_on(oneof, old, new):
                yield _said("ONEOF_FIELD_REMOVED", f"{path}/{oneof}/{number}")
        for number, field in sorted(after.items()):
            if number not in before and field.label == _F.LABEL_REQUIRED:
                yield _said("REQUIRED_FIELD_ADDED", f"{path}/{number}")
        yield from _joined(old, new, path)

    def _field(self, old: Any, new: Any, path: str) -> Iterator[Difference]:
        entries = self._old.entry(old), self._new.entry(new)
        if (entries[0] is None) != (entries[1] is None):
            yield _said("FIELD_KIND_CHANGED", path)
        elif entries[0] is not None and entries[1] is not None:
            for part in (0, 1):
                yield from self._types(entries[0].field[part], entries[1].field[part], path)
        else:
            found = list(self._types(old, new, path))
            yield from found
            if not found and old.label != new.label and not {old.type, new.type} & (_TEXTS | _COMPOSITE):
                yield _said("FIELD_NUMERIC_LABEL_CHANGED", path)

    def _types(self, old: Any, new: Any, path: str) -> Iterator[Difference]:
        if old.type in _COMPOSITE and new.type in _COMPOSITE:
            yield from self._message_types(old.type_name, new.type_name, path)
        elif old.type in _COMPOSITE or new.type in _COMPOSITE:
            yield _said("FIELD_KIND_CHANGED", path)
        elif old.type != new.type and not any({old.type, new.type} <= group for group in _GROUPS):
            yield _said("FIELD_SCALAR_KIND_CHANGED", path)

    def _message_types(self, old_name: str, new_name: str, path: str) -> Iterator[Difference]:
        """Compares the messages of a field by their names, and imported ones also by their content."""
        old, new = self._old.message(old_name), self._new.message(new_name)
        if old.local != new.local:
            yield _said("FIELD_NAMED_TYPE_CHANGED", path)
            return
        if old.file is self._old.file and new.file is self._new.file:
            return  # compared with their files
        pair = old_name, new_name
        if pair not in self._imported:
            self._imported[pair] = []
            at = f"#/{old.local.replace('.', '/')}"
            self._imported[pair] = list(self._message(old.message, new.message, at))
        if found := self._imported[pair]:
            yield from found
            yield _said("FIELD_NAMED_TYPE_CHANGED", path)


def _said(kind: str, path: str) -> Difference:
    return Difference(kind=kind, path=path, words=f"At path '{path}': {_WORDS[kind]}")


def _goes_on(oneof: str, old: Any, new: Any) -> bool:
    """Returns whether a oneof is still there, under its name or with one of its fields."""
    members = {field.number for field in old.field if _oneof(field, old) == oneof}
    return any(o.name == oneof for o in new.oneof_decl) or any(f.number in members for f in new.field)


def _joined(old: Any, new: Any, path: str) -> Iterator[Difference]:
    """Yields the oneofs whose fields could be set together before: fields of several oneofs, or of none."""
    before = {field.number: field for field in old.field}
    origins: dict[str, list[str | int]] = {}
    for field in new.field:
        oneof = _oneof(field, new)
        if oneof is not None and field.number in before:
            origins.setdefault(oneof, []).append(_oneof(before[field.number], old) or field.number)
    for oneof, found in origins.items():
        if len(set(found)) > 1:
            several = sum(isinstance(origin, int) for origin in found) > 1
            yield _said(
                "MULTIPLE_FIELDS_MOVED_TO_ONEOF" if several else "FIELD_MOVED_TO_EXISTING_ONEOF",
                f"{path}/{oneof}",
            )


def _oneof(field: Any, message: Any) -> str | None:
    """Returns the oneof of a field; None for one that only says `optional`."""
    if not field.HasField("oneof_index") or field.proto3_optional:
        return None
    return str(message.oneof_decl[field.oneof_index].name)
