"""A transform: hides fields of a struct or a map, all but their last characters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from klamm_base.configdef import ConfigDef, Importance, Type, between
from klamm_example.release import release
from klamm_plugins.errors import DataError
from klamm_plugins.records import SinkRecord, SourceRecord
from klamm_plugins.schema import Struct
from klamm_plugins.transform import Transformation

Record = TypeVar("Record", SourceRecord, SinkRecord)


class HideFields(Transformation):
    """`transforms.hide.type=HideFields`, `transforms.hide.fields=customer`."""

    def __init__(self) -> None:
        self._fields: list[str] = []
        self._keep = 0

    @classmethod
    def version(cls) -> str:
        return release()

    @classmethod
    def config(cls) -> ConfigDef:
        return (
            ConfigDef()
            .define("fields", Type.LIST, importance=Importance.HIGH, documentation="The fields to hide.")
            .define(
                "keep",
                Type.INT,
                0,
                validator=between(0),
                documentation="How many characters at the end stay.",
            )
        )

    def configure(self, props: Mapping[str, Any]) -> None:
        self._fields, self._keep = props["fields"], props["keep"]

    def apply(self, record: Record) -> Record:
        value = record.value
        if value is None:
            return record  # a tombstone has nothing to hide
        if not isinstance(value, Struct | dict):
            raise DataError(f"HideFields takes structs and maps, not {type(value).__name__}")
        hidden = record.copy()
        hidden.value = self._hide(value)
        return hidden

    def _hide(self, value: Struct | dict[str, Any]) -> Any:
        if isinstance(value, Struct):
            changed = {name: self._text(value[name], name) for name in self._fields}
            kept = {
                field.name: value[field.name] for field in value.schema.fields if field.name not in changed
            }
            return Struct(value.schema, **kept, **changed)
        return {**value, **{name: self._text(value[name], name) for name in self._fields if name in value}}

    def _text(self, text: Any, name: str) -> Any:
        if text is None:
            return None
        if not isinstance(text, str):
            raise DataError(f"field {name} is {type(text).__name__}, not a string")
        shown = text[len(text) - self._keep :] if self._keep else ""
        return "*" * (len(text) - len(shown)) + shown
