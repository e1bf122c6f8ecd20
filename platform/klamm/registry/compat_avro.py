"""Can a reader with one Avro schema read what was written with another? Schema resolution of Avro's specification. Pure.

Kinds of differences are those of Avro's Java library. A pair of types that is being compared already, in a schema that contains
itself, is taken as compatible: whatever is wrong with it is found once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from klamm.registry.avro import Avro, Field
from klamm.registry.difference import Difference, Steps

_PROMOTED: Final = {
    "int": {"long", "float", "double"},
    "long": {"float", "double"},
    "float": {"double"},
    "string": {"bytes"},
    "bytes": {"string"},
}
"""The types as which a reader may take a writer's type."""

_Pair = tuple[int, int]


def differences(reader: Avro, writer: Avro, new: str = "new", old: str = "old") -> list[Difference]:
    """Returns all that keeps the reader from reading; `new` and `old` name reader's and writer's schema in words."""
    return list(_Comparison(new, old).pair(reader, writer, ""))


class _Comparison:
    def __init__(self, new: str, old: str) -> None:
        self._new, self._old = new, old
        self._steps = Steps()
        self._seen: set[_Pair] = set()
        self._fits: set[_Pair] = set()
        """Pairs that are compatible, if those that are being compared are."""
        self._unfit: set[_Pair] = set()
        self._assumed: list[tuple[set[_Pair], _Pair]] = []
        """What was added to the first two sets, in order."""

    def pair(self, reader: Avro, writer: Avro, path: str) -> Iterator[Difference]:
        self._steps.take()
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
        if not self._any(reader, writer):
            yield self._lacking(writer, path)

    def _writers_union(self, reader: Avro, writer: Avro, path: str) -> Iterator[Difference]:
        if reader.kind != "union":
            for each in writer.branches:
                yield from self.pair(reader, each, path)
            return
        for number, each in enumerate(writer.branches):
            if not self._any(reader, each):
                yield self._lacking(each, f"{path}/{number}")

    def _any(self, reader: Avro, writer: Avro) -> bool:
        """Returns whether a branch of the reader's union can read a type: most likely the one of the same name."""
        same = [each for each in reader.branches if each.label == writer.label]
        return any(self._can(each, writer) for each in (*same, *reader.branches))

    def _can(self, reader: Avro, writer: Avro) -> bool:
        """Returns whether there is no difference. What follows from a pair that turns out to differ is forgotten."""
        pair = id(reader), id(writer)
        if pair in self._unfit:
            return False
        if pair in self._fits:
            return True
        known = len(self._assumed)
        if next(self.pair(reader, writer, ""), None) is None:
            self._assume(self._fits, pair)
            return True
        for found, each in self._assumed[known:]:
            found.discard(each)
        del self._assumed[known:]
        self._unfit.add(pair)
        return False

    def _assume(self, found: set[_Pair], pair: _Pair) -> None:
        found.add(pair)
        self._assumed.append((found, pair))

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
        self._assume(self._seen, pair)
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
                by_name = {each.name: each for each in writer.fields}
                for number, field in enumerate(reader.fields):
                    yield from self._field(field, by_name, f"{path}/fields/{number}")

    def _symbols(self, reader: Avro, writer: Avro, path: str) -> Iterator[Difference]:
        known = set(reader.symbols)
        missing = [s for s in writer.symbols if s not in known]
        if missing and reader.default is None:
            shown = f"[{', '.join(missing)}]"
            yield Difference(
                kind="MISSING_ENUM_SYMBOLS",
                path=f"{path}/symbols",
                words=f"The {self._new} schema is missing enum symbols '{shown}' at path '{path}/symbols' in the {self._old} schema",
                info=shown,
            )

    def _field(self, field: Field, by_name: Mapping[str, Field], at: str) -> Iterator[Difference]:
        """Compares a field of the reader with the one among the writer's that has its name, or one of its aliases."""
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
