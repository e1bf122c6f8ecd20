"""StringConverter: the text of a value, in one encoding; back, a string.

A value that is no string is written as Java's `toString` writes it. Bytes are written as they are.
"""

from __future__ import annotations

import codecs
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from klamm_base.configdef import ConfigDef, Importance, Type, Width, invalid
from klamm_base.version import __version__
from klamm_plugins.batch import TEXT, RawValues, raw_texts
from klamm_plugins.converter import Columns, Converter, HeaderConverter, SchemaAndValue
from klamm_plugins.converters._common import converter_config
from klamm_plugins.errors import DataError
from klamm_plugins.schema import OPTIONAL_STRING, Schema
from klamm_plugins.text import text_of

_NULL = SchemaAndValue(OPTIONAL_STRING, None)


def _known_encoding(name: str, value: Any) -> None:
    try:
        normalized = codecs.lookup(value).name
    except (LookupError, TypeError):
        raise invalid(name, value, "Unknown encoding; UTF-8 or ISO-8859-1, for example") from None
    if normalized in {"utf-16", "utf-32"}:
        # Java writes these big-endian, Python in the machine's order. The names here leave no doubt.
        raise invalid(name, value, f"Say which byte order: {value}BE or {value}LE")


class StringConverter(Converter, HeaderConverter):
    kafka_name = "org.apache.kafka.connect.storage.StringConverter"

    def __init__(self) -> None:
        self._encoding = "utf-8"

    @classmethod
    def version(cls) -> str:
        return __version__

    @classmethod
    def config(cls) -> ConfigDef:
        return converter_config().define(
            "converter.encoding",
            Type.STRING,
            "UTF-8",
            validator=_known_encoding,
            importance=Importance.HIGH,
            width=Width.MEDIUM,
            display_name="Encoding",
            documentation=(
                "The character encoding of the bytes. When reading, bytes that are not valid in it become U+FFFD."
            ),
        )

    def configure(self, props: Mapping[str, Any], *, is_key: bool) -> None:
        self._configure(props, "key" if is_key else "value")

    def configure_header(self, props: Mapping[str, Any]) -> None:
        self._configure(props, "header")

    def _configure(self, props: Mapping[str, Any], kind: str) -> None:
        parsed = self.config().parse({**props, "converter.type": kind})
        self._encoding = codecs.lookup(parsed["converter.encoding"]).name

    def from_connect_data(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        if value is None:
            return None
        if isinstance(value, (bytes, bytearray, memoryview)):
            return bytes(value)
        try:
            return text_of(value, schema).encode(self._encoding)
        except UnicodeEncodeError as e:
            raise DataError(f"value cannot be written as {self._encoding}: {e}") from e

    def to_connect_data(self, topic: str, value: bytes | None) -> SchemaAndValue:
        if value is None:
            return _NULL
        return SchemaAndValue(OPTIONAL_STRING, value.decode(self._encoding, "replace"))

    def from_connect_data_many(
        self, topic: str, schema: Schema | None, values: Sequence[Any]
    ) -> list[bytes | None]:
        if self._encoding == "utf-8":
            try:
                return list(map(str.encode, values))
            except (TypeError, UnicodeEncodeError):
                pass  # not all are strings (or not all are valid): one by one, which says what is wrong
        return super().from_connect_data_many(topic, schema, values)

    def to_connect_data_many(self, topic: str, values: Sequence[bytes | None]) -> list[SchemaAndValue]:
        encoding, schema, new = self._encoding, OPTIONAL_STRING, SchemaAndValue
        return [_NULL if v is None else new(schema, v.decode(encoding, "replace")) for v in values]

    def to_connect_columns(self, topic: str, values: Sequence[bytes | None]) -> Columns:
        if self._encoding == "utf-8":
            try:
                return [OPTIONAL_STRING] * len(values), list(map(bytes.decode, values))  # type: ignore[arg-type]
            except (TypeError, UnicodeDecodeError):
                pass  # nulls, or bytes that are no text: one by one
        return super().to_connect_columns(topic, values)

    def raw_values(
        self, topic: str, values: Sequence[bytes | None], formats: Collection[str]
    ) -> tuple[Schema | None, RawValues] | None:
        if self._encoding != "utf-8" or TEXT not in formats:
            return None
        raw = raw_texts(values)
        return None if raw is None else (OPTIONAL_STRING, raw)  # other bytes become U+FFFD

    def from_raw_values(
        self, topic: str, schema: Schema | None, raw: RawValues
    ) -> Sequence[bytes | None] | None:
        return raw.data if self._encoding == "utf-8" and raw.format == TEXT else None

    def from_connect_header(self, topic: str, name: str, schema: Schema | None, value: Any) -> bytes | None:
        return self.from_connect_data(topic, schema, value)

    def to_connect_header(self, topic: str, name: str, value: bytes | None) -> SchemaAndValue:
        return self.to_connect_data(topic, value)
