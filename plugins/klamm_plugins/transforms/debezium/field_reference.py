"""References to metadata of a change event (`op`, `source.ts_ms:when`), as add.fields and add.headers list them.

A name alone is a field of `source`, but for those of the envelope itself and of the transaction. Of a name that is not
there, the envelope's own field of this name is taken, which another transform may have added; otherwise nothing is added.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from klamm_base.configdef import invalid
from klamm_plugins.errors import DataError
from klamm_plugins.schema import Schema, SchemaBuilder, Struct, Type
from klamm_plugins.transforms._parts import like

_OF_ENVELOPE: Final = frozenset({"op", "ts_ms", "ts_us", "ts_ns"})
_OF_TRANSACTION: Final = frozenset({"id", "data_collection_order", "total_order"})
_SOURCE: Final = "source"
_TRANSACTION: Final = "transaction"

Read = Callable[[list[Any]], Any]
"""A function from the values of an envelope to a field's value."""


@dataclass(frozen=True, slots=True)
class FieldReference:
    """A field of the envelope (`block` None) or of one of its blocks, and its new name."""

    block: str | None
    field: str
    name: str
    text: str
    """The reference as it was written, for messages."""

    def found(self, envelope: Schema) -> tuple[Schema, Read] | None:
        """Returns the schema of the added field, and the way to its value; None where the envelope has no such field."""
        if self.block is not None:
            outer = envelope.field(self.block)
            inner = None if outer is None else _field(outer.schema, self.field)
            if outer is not None and inner is not None:
                return _optional(inner.schema), _nested(outer.index, inner.index)
        field = envelope.field(self.field)
        return None if field is None else (_optional(field.schema), _top(field.index))

    def found_in(self, event: Mapping[str, Any]) -> tuple[bool, Any]:
        """Returns whether a change event without a schema has the field, and its value."""
        if self.block is not None and self.block in event:
            block = event[self.block]
            if block is None:
                return True, None
            if isinstance(block, dict) and self.field in block:
                return True, block[self.field]
        return self.field in event, event.get(self.field)


def references(key: str, listed: Sequence[str], prefix: str) -> list[FieldReference]:
    """Reads a list of references. Raises ConfigError for one that nobody can read."""
    return [_reference(key, text.strip(), prefix) for text in listed]


def _reference(key: str, text: str, prefix: str) -> FieldReference:
    path, *renamed = text.split(":")
    block, *rest = path.split(".")
    if not path or len(renamed) > 1 or len(rest) > 1:
        raise invalid(key, text, "write FIELD or BLOCK.FIELD, and :NAME behind it for another name")
    name = f"{block}_{rest[0]}" if rest else block
    field = rest[0] if rest else block
    return FieldReference(
        block if rest else _block_of(field), field, prefix + (renamed[0] if renamed else name), path
    )


def _block_of(field: str) -> str | None:
    if field in _OF_ENVELOPE:
        return None
    return _TRANSACTION if field in _OF_TRANSACTION else _SOURCE


def _field(schema: Schema, name: str) -> Any:
    return schema.field(name) if schema.type is Type.STRUCT else None


def _optional(schema: Schema) -> Schema:
    """Returns the schema without its default, optional."""
    builder: SchemaBuilder = like(schema)
    for field in schema.fields:
        builder.field(field.name, field.schema)
    return builder.optional().build()


def _top(index: int) -> Read:
    return lambda values: values[index]


def _nested(outer: int, inner: int) -> Read:
    def read(values: list[Any]) -> Any:
        block = values[outer]
        if block is None:
            return None
        if not isinstance(block, Struct):
            raise DataError(
                f"a block of a change event is a {type(block).__name__}, which should be a Struct"
            )
        return block.values[inner]

    return read
