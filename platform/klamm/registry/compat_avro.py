"""Can a reader with one Avro schema read what was written with another? Schema resolution of Avro's specification. Pure.

Kinds of differences are those of Avro's Java library. A pair of types that is being compared already, in a schema that contains
itself, is taken as compatible: whatever is wrong with it is found once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from klamm.registry.avro import Avro, Field
from klamm.registry.difference import Difference

_PROMOTED: Final = {
    "int": {"long", "float", "double"},
    "long": {"float", "double"},
    "float": {"double"},
    "string": {"bytes"},
    "bytes": {"string"},
}
"""The types as which a reader may take a writer's type."""


def differences(reader: Avro, writer: Avro, new: str = "new", old: str = "old") -> list[Difference]:
    """Returns all that keeps the reader from reading; `new` and `old` name reader's and writer's schema in words."""
    return list(_Comparison(new, old).pair(reader, writer, ""))


class _Comparison:
    def __init__(self, new: str, old: str) -> None:
        self._new, self._old = new, old
        self._seen: set[tuple[int, int]] = set()

    def pair(self, reader: Avro, writer: Avro, path: str) -> Iterator[Difference]:
        if writer.kind == "union":
            yield from self._writers_union(reader, writer, path)
        elif reader.kind == "union":
            yield from self._readers_union(reader, writer, path)
        elif reader.kind == writer.kind:
            yield from self._same_kind(reader, writer, path)
        elif reader.kind not in _PROMOTED.get(writer.kind, set()):
            yield self._mismatch(reader, writer, path)

    def _mismatch(self, reader: Avro, writer: Avro, path: str) -> Difference:
        return Difference(
            kind="TYPE_MISMATCH",
            path=path or "/",
            words=f"The type (path '{path or '/'}') of a field in the {self._new} schema does not match with the {self._old} schema",
            info=f"reader type: {reader.kind.upper()} not compatible with writer type: {writer.kind.upper()}",
        )

    def _readers_union(self, reader: Avro, writer: Avro, path: str) -> Iterator[Difference]:
        if not any(self._can(each, writer) for each in reader.branches):
            yield self._lacking(writer, path)

    def _writers_union(self, reader: Avro, writer: Avro, path: str) -> Iterator[Difference]:
        if reader.kind != "union":
            for each in writer.branches:
                yield from self.pair(reader, each, path)
            return
        for number, each in enumerate(writer.branches):
            if not any(self._can(branch, each) for branch in reader.branches):
                yield self._lacking(each, f"{path}/{number}")

    def _can(self, reader: Avro, writer: Avro) -> bool:
        kept = set(self._seen)
        found = next(self.pair(reader, writer, ""), None)
        self._seen = kept
        return found is None

    def _lacking(self, writer: Avro, path: str) -> Difference:
        return Difference(
            kind="MISSING_UNION_BRANCH",
            path=path or "/",
            words=f"The {self._new} schema is missing a type inside a union field at path '{path or '/'}' in the {self._old} schema",
            info=f"reader union lacking writer type: {writer.kind.upper()}",
        )

    def _same_kind(self, reader: Avro, writer: Avro, path: str) -> Iterator[Difference]:
        if reader.items is not None and writer.items is not None:
            part = "items" if reader.kind == "array" else "values"
            yield from self.pair(reader.items, writer.items, f"{path}/{part}")
            return
        if not reader.named:
            return
        pair = (id(reader), id(writer))
        if pair in self._seen:
            return
        self._seen.add(pair)
        # As Avro's library compares them: names without namespaces, or one of the reader's aliases.
        if reader.name != writer.name and writer.fullname not in reader.aliases:
            yield Difference(
                kind="NAME_MISMATCH",
                path=f"{path}/name",
                words=f"The name of the schema has changed (path '{path}/name')",
                info=f"expected: {writer.fullname}",
            )
        match reader.kind:
            case "fixed" if reader.size != writer.size:
                yield Difference(
                    kind="FIXED_SIZE_MISMATCH",
                    path=f"{path}/size",
                    words=f"The size of FIXED type field at path '{path}/size' in the {self._new} schema does not match with the {self._old} schema",
                    info=f"expected: {writer.size}, found: {reader.size}",
                )
            case "enum":
                yield from self._symbols(reader, writer, path)
            case "record" | "error":
                for number, field in enumerate(reader.fields):
                    yield from self._field(field, number, writer, path)

    def _symbols(self, reader: Avro, writer: Avro, path: str) -> Iterator[Difference]:
        missing = [s for s in writer.symbols if s not in reader.symbols]
        if missing and reader.default is None:
            shown = f"[{', '.join(missing)}]"
            yield Difference(
                kind="MISSING_ENUM_SYMBOLS",
                path=f"{path}/symbols",
                words=f"The {self._new} schema is missing enum symbols '{shown}' at path '{path}/symbols' in the {self._old} schema",
                info=shown,
            )

    def _field(self, field: Field, number: int, writer: Avro, path: str) -> Iterator[Difference]:
        at = f"{path}/fields/{number}"
        by_name = {each.name: each for each in writer.fields}
        found = next((by_name[name] for name in (field.name, *field.aliases) if name in by_name), None)
        if found is not None:
            yield from self.pair(field.type, found.type, f"{at}/type")
        elif not field.has_default:
            yield Difference(
                kind="READER_FIELD_MISSING_DEFAULT_VALUE",
                path=at,
                words=f"The field '{field.name}' at path '{at}' in the {self._new} schema has no default value and is missing in the {self._old} schema",
                info=field.name,
            )
