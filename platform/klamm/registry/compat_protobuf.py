"""Can a reader with one Protobuf schema read what was written with another? Compares file descriptors. Pure.

Messages are found by name, fields by number, as the wire has them. Kinds of differences are those of Confluent's registry. Names
of types are resolved: they begin with a dot.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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
_TEXTS: Final = {_F.TYPE_STRING, _F.TYPE_BYTES, _F.TYPE_MESSAGE}
_WORDS: Final = {
    "PACKAGE_CHANGED": "the package is another one",
    "MESSAGE_REMOVED": "the new schema lacks a message of the old one",
    "FIELD_KIND_CHANGED": "the kind of a field (scalar, message, map) is another one",
    "FIELD_SCALAR_KIND_CHANGED": "the type of a field has another form on the wire",
    "FIELD_NAMED_TYPE_CHANGED": "a field has another message or enum as its type",
    "FIELD_NUMERIC_LABEL_CHANGED": "a number is repeated in one schema only",
    "REQUIRED_FIELD_ADDED": "the new schema requires a field that the old one lacks",
    "REQUIRED_FIELD_REMOVED": "the new schema lacks a field that the old one requires",
    "ONEOF_FIELD_REMOVED": "the new schema lacks a field of a oneof",
    "MULTIPLE_FIELDS_MOVED_TO_ONEOF": "several fields of the old schema are in one oneof of the new one",
    "FIELD_MOVED_TO_EXISTING_ONEOF": "a field of the old schema is in a oneof that was there before",
}  # fmt: skip


def differences(new: Any, old: Any) -> list[Difference]:
    """Returns all that keeps a reader with the new file from reading what was written with the old one."""
    return list(_files(old, new))


def _said(kind: str, path: str) -> Difference:
    return Difference(kind=kind, path=path, words=f"At path '{path}': {_WORDS[kind]}")


def _files(old: Any, new: Any) -> Iterator[Difference]:
    if old.package != new.package:
        yield _said("PACKAGE_CHANGED", "#/")
    packages = (f".{old.package}" if old.package else "", f".{new.package}" if new.package else "")
    yield from _messages(old.message_type, new.message_type, packages, "#/")


def _messages(old: Any, new: Any, scopes: tuple[str, str], path: str) -> Iterator[Difference]:
    after = {each.name: each for each in new}
    for message in old:
        if message.options.map_entry:  # compared with its field
            continue
        at = f"{path}{message.name}"
        if message.name in after:
            yield from _message(message, after[message.name], scopes, at)
        else:
            yield _said("MESSAGE_REMOVED", at)


def _message(old: Any, new: Any, scopes: tuple[str, str], path: str) -> Iterator[Difference]:
    inner = (f"{scopes[0]}.{old.name}", f"{scopes[1]}.{new.name}")
    yield from _messages(old.nested_type, new.nested_type, inner, f"{path}/")
    before = {field.number: field for field in old.field}
    after = {field.number: field for field in new.field}
    for number, field in sorted(before.items()):
        at = f"{path}/{number}"
        if number in after:
            yield from _field(field, after[number], (scopes, (old, new)), at)
        elif field.label == _F.LABEL_REQUIRED:
            yield _said("REQUIRED_FIELD_REMOVED", at)
        elif (oneof := _oneof(field, old)) is not None and _goes_on(oneof, old, new):
            yield _said("ONEOF_FIELD_REMOVED", f"{path}/{oneof}/{number}")
    for number, field in sorted(after.items()):
        if number not in before and field.label == _F.LABEL_REQUIRED:
            yield _said("REQUIRED_FIELD_ADDED", f"{path}/{number}")
    yield from _moved(old, new, before, path)


def _goes_on(oneof: str, old: Any, new: Any) -> bool:
    """Returns whether a oneof is still there, under its name or with one of its fields."""
    members = {field.number for field in old.field if _oneof(field, old) == oneof}
    return any(o.name == oneof for o in new.oneof_decl) or any(
        field.number in members and _oneof(field, new) is not None for field in new.field
    )


def _moved(old: Any, new: Any, before: Mapping[int, Any], path: str) -> Iterator[Difference]:
    """Yields the fields that went into oneofs. One field may go into a new oneof: it means the same there.

    A oneof under a new name is the one that most of its fields come from.
    """
    known = {_oneof(field, old) for field in old.field}
    origins: dict[str, dict[int, str | None]] = {}
    for field in new.field:
        oneof = _oneof(field, new)
        if oneof is not None and field.number in before:
            origins.setdefault(oneof, {})[field.number] = _oneof(before[field.number], old)
    for oneof, found in origins.items():
        former = [origin for origin in found.values() if origin is not None]
        if oneof not in known and not former:
            if len(found) > 1:
                yield _said("MULTIPLE_FIELDS_MOVED_TO_ONEOF", f"{path}/{oneof}")
            continue
        same = oneof if oneof in known else max(former, key=former.count)
        for number, origin in found.items():
            if origin != same:
                yield _said("FIELD_MOVED_TO_EXISTING_ONEOF", f"{path}/{oneof}/{number}")


def _oneof(field: Any, message: Any) -> str | None:
    """Returns the oneof of a field; None for one that only says `optional`."""
    if not field.HasField("oneof_index") or field.proto3_optional:
        return None
    return str(message.oneof_decl[field.oneof_index].name)


def _field(
    old: Any, new: Any, owners: tuple[tuple[str, str], tuple[Any, Any]], path: str
) -> Iterator[Difference]:
    scopes, messages = owners
    entries = [_entry(field, message) for field, message in zip((old, new), messages, strict=True)]
    if (entries[0] is None) != (entries[1] is None):
        yield _said("FIELD_KIND_CHANGED", path)
        return
    if entries[0] is not None and entries[1] is not None:
        for part, name in ((0, "key"), (1, "value")):
            pair = entries[0].field[part], entries[1].field[part]
            yield from _types(*pair, scopes, f"{path}/{name}")
        return
    yield from _types(old, new, scopes, path)
    repeated = [field.label == _F.LABEL_REPEATED for field in (old, new)]
    if repeated[0] != repeated[1] and not {old.type, new.type} <= _TEXTS:
        yield _said("FIELD_NUMERIC_LABEL_CHANGED", path)


def _entry(field: Any, message: Any) -> Any:
    """Returns the entry of a map's field; None for a field that is no map."""
    if field.type != _F.TYPE_MESSAGE or field.label != _F.LABEL_REPEATED:
        return None
    name = field.type_name.rpartition(".")[2]
    return next((each for each in message.nested_type if each.options.map_entry and each.name == name), None)


def _types(old: Any, new: Any, scopes: tuple[str, str], path: str) -> Iterator[Difference]:
    composite = {_F.TYPE_MESSAGE, _F.TYPE_GROUP}
    if old.type in composite and new.type in composite:
        # A changed package is told once; names below it are compared without it.
        names = [field.type_name.removeprefix(scope) for field, scope in zip((old, new), scopes, strict=True)]
        if names[0] != names[1]:
            yield _said("FIELD_NAMED_TYPE_CHANGED", path)
    elif old.type in composite or new.type in composite:
        yield _said("FIELD_KIND_CHANGED", path)
    elif old.type != new.type and not any({old.type, new.type} <= group for group in _GROUPS):
        yield _said("FIELD_SCALAR_KIND_CHANGED", path)
