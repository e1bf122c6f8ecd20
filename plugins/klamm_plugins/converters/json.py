"""JsonConverter: JSON with its schema beside it, or plain JSON.

With `schemas.enable` a value travels as `{"schema": …, "payload": …}`. Schemas repeat from record to record, so
both directions remember them: writing keeps the envelope's beginning per schema, reading keeps the schema
for the bytes it was read from and then parses only the payload.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, Final, TypeVar

import orjson

from klamm_base.configdef import ConfigDef, Importance, Type, Width, between, invalid
from klamm_base.errors import ConfigError
from klamm_base.version import __version__
from klamm_plugins.batch import JSON, RawValues
from klamm_plugins.converter import NULL, Columns, Converter, HeaderConverter, SchemaAndValue
from klamm_plugins.converters._common import converter_config
from klamm_plugins.converters.json_decode import holds_decimals
from klamm_plugins.converters.json_read import JsonReader, loads
from klamm_plugins.converters.json_schema import schema_from_json, schema_to_json
from klamm_plugins.converters.json_text import dumps
from klamm_plugins.converters.json_write import JsonWriter
from klamm_plugins.errors import DataError
from klamm_plugins.schema import STRING, Schema

K = TypeVar("K")
V = TypeVar("V")
_Encoder = tuple[bytes, Callable[[Sequence[Any]], list[bytes]]]
_Decoder = tuple[Schema, Callable[[bytes], Any]]  # the schema, and the reader of the payload's text

_PAYLOAD: Final = re.compile(rb'"payload"\s*:')
_PAYLOADS_MAX: Final = 8  # occurrences of the word in a schema

_ENVELOPE: Final = (
    'JsonConverter with schemas.enable requires "schema" and "payload" fields and may not contain additional '
    "fields. If you are trying to deserialize plain JSON data, set schemas.enable=false in your converter "
    "configuration."
)


def _decimal_format(name: str, value: Any) -> None:
    if str(value).upper() not in {"BASE64", "NUMERIC"}:
        raise invalid(name, value, "String must be one of (case insensitive): BASE64, NUMERIC")


def _config() -> ConfigDef:
    return (
        converter_config()
        .define(
            "schemas.enable",
            Type.BOOLEAN,
            default=True,
            importance=Importance.HIGH,
            group="Schemas",
            order_in_group=0,
            width=Width.MEDIUM,
            display_name="Enable Schemas",
            documentation="Whether each key and value carries its schema with it.",
        )
        .define(
            "schemas.cache.size",
            Type.INT,
            1000,
            validator=between(0),
            importance=Importance.HIGH,
            group="Schemas",
            order_in_group=1,
            width=Width.MEDIUM,
            display_name="Schema Cache Size",
            documentation="How many schemas the converter remembers, in each direction.",
        )
        .define(
            "schema.content",
            Type.STRING,
            None,
            importance=Importance.HIGH,
            group="Schemas",
            order_in_group=2,
            width=Width.MEDIUM,
            display_name="Schema Content",
            documentation=(
                "A schema, as JSON, for every record that a sink reads: records are then plain JSON without an "
                "envelope. Used only with schemas.enable=true."
            ),
        )
        .define(
            "decimal.format",
            Type.STRING,
            "BASE64",
            validator=_decimal_format,
            importance=Importance.LOW,
            group="Serialization",
            order_in_group=0,
            width=Width.MEDIUM,
            display_name="Decimal Format",
            documentation=(
                "How decimals are written: BASE64 (their unscaled bytes) or NUMERIC (a JSON number). Both are read."
            ),
        )
        .define(
            "replace.null.with.default",
            Type.BOOLEAN,
            default=True,
            importance=Importance.LOW,
            group="Serialization",
            order_in_group=1,
            width=Width.MEDIUM,
            display_name="Replace null with default",
            documentation="Whether a field that is null takes its schema's default value, if there is one.",
        )
    )


class JsonConverter(Converter, HeaderConverter):
    kafka_name = "org.apache.kafka.connect.json.JsonConverter"

    def __init__(self) -> None:
        self._apply(_config().parse({"converter.type": "value"}))

    @classmethod
    def version(cls) -> str:
        return __version__

    @classmethod
    def config(cls) -> ConfigDef:
        return _config()

    def configure(self, props: Mapping[str, Any], *, is_key: bool) -> None:
        self._apply(_config().parse({**props, "converter.type": "key" if is_key else "value"}))

    def configure_header(self, props: Mapping[str, Any]) -> None:
        self._apply(_config().parse({**props, "converter.type": "header"}))

    def _apply(self, settings: Mapping[str, Any]) -> None:
        self._with_schemas: bool = settings["schemas.enable"]
        self._cache_size: int = settings["schemas.cache.size"]
        self._writer = JsonWriter(
            numeric_decimals=settings["decimal.format"].upper() == "NUMERIC",
            replace_null_with_default=settings["replace.null.with.default"],
        )
        self._reader = JsonReader(replace_null_with_default=settings["replace.null.with.default"])
        self._encoders: dict[Schema | None, _Encoder] = {}
        self._decoders: dict[bytes, _Decoder] = {}
        # No envelope begins with a line feed, so nothing matches before the first read.
        self._last_head = b"\n"
        self._last_decoder: _Decoder = (STRING, self._reader.parser(STRING))
        self._fixed = self._fixed_decoder(settings["schema.content"])

    def _fixed_decoder(self, content: str | None) -> _Decoder | None:
        if not content or not self._with_schemas:
            return None
        try:
            return self._decoder(loads(content.encode()))
        except DataError as e:
            raise ConfigError(
                f"Invalid value {content} for configuration schema.content: {e}", key="schema.content"
            ) from e

    def from_connect_data(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        if schema is None and value is None:
            return None
        return self._written(schema, [value])[0]

    def from_connect_data_many(
        self, topic: str, schema: Schema | None, values: Sequence[Any]
    ) -> list[bytes | None]:
        if schema is not None or None not in values:
            return list[bytes | None](self._written(schema, values))
        written = iter(self._written(schema, [value for value in values if value is not None]))
        return [None if value is None else next(written) for value in values]

    def _written(self, schema: Schema | None, values: Sequence[Any]) -> list[bytes]:
        head, texts = self._encoder(schema)
        payloads = texts(values)
        return [head + payload + b"}" for payload in payloads] if self._with_schemas else payloads

    def to_connect_data(self, topic: str, value: bytes | None) -> SchemaAndValue:
        if value is None:
            return NULL
        if self._fixed is not None:
            schema, parse = self._fixed
            return SchemaAndValue(schema, parse(value))
        if not self._with_schemas:
            return SchemaAndValue(None, loads(value)) if value else NULL
        if value.startswith(self._last_head) and value.endswith(b"}"):
            schema, parse = self._last_decoder
            with suppress(DataError):  # of which the other way says what is wrong with the whole
                return SchemaAndValue(schema, parse(value[len(self._last_head) : -1]))
        return self._read_envelope(value)

    def to_connect_columns(self, topic: str, values: Sequence[bytes | None]) -> Columns:
        if self._with_schemas and self._fixed is None:
            return self._envelopes(topic, values)
        if self._fixed is None:
            return [None] * len(values), [loads(v) if v else None for v in values]
        schema, parse = self._fixed
        made = [None if v is None else parse(v) for v in values]
        return [None if v is None else schema for v in values], made

    def _envelopes(self, topic: str, values: Sequence[bytes | None]) -> Columns:
        schemas: list[Schema | None] = []
        made: list[Any] = []
        head, (schema, parse) = self._last_head, self._last_decoder
        for value in values:
            if value is not None and value.startswith(head) and value.endswith(b"}"):
                with suppress(DataError):
                    made.append(parse(value[len(head) : -1]))
                    schemas.append(schema)
                    continue
            other, found = self.to_connect_data(topic, value)
            head, (schema, parse) = self._last_head, self._last_decoder
            schemas.append(other)
            made.append(found)
        return schemas, made

    def raw_values(
        self, topic: str, values: Sequence[bytes | None], formats: Collection[str]
    ) -> tuple[Schema | None, RawValues] | None:
        if self._with_schemas or JSON not in formats:
            return None
        data = values if all(values) else [v or None for v in values]
        try:
            deque(
                map(orjson.loads, filter(None, data)), maxlen=0
            )  # a value that is dropped costs half of one that is kept
        except orjson.JSONDecodeError:
            return None  # `to_connect_columns` says what is wrong
        return None, RawValues(JSON, data, _plain)

    def _read_envelope(self, value: bytes) -> SchemaAndValue:
        envelope = loads(value) if value else None
        if not isinstance(envelope, dict) or envelope.keys() != {"schema", "payload"}:
            raise DataError(_ENVELOPE)
        if envelope["schema"] is None:
            payload = envelope["payload"]
            return NULL if payload is None else SchemaAndValue(None, payload)
        text = orjson.dumps(envelope["schema"])
        decoder = self._decoders.get(text)
        if decoder is None:
            decoder = self._decoder(envelope["schema"])
            _remember(self._decoders, text, decoder, self._cache_size)
        head = _head_of(value, envelope["schema"])
        if head is not None:
            self._last_head, self._last_decoder = head, decoder
            with suppress(DataError):
                return SchemaAndValue(decoder[0], decoder[1](value[len(head) : value.rindex(b"}")]))
        exact = holds_decimals(decoder[0])
        payload = loads(value, exact=True)["payload"] if exact else envelope["payload"]
        return SchemaAndValue(decoder[0], self._reader.from_json(decoder[0], payload))

    def _decoder(self, data: Any) -> _Decoder:
        schema = schema_from_json(data, self._reader.from_json)
        if schema is None:
            raise DataError("schema: null where a schema is needed")
        return schema, self._reader.parser(schema)

    def _encoder(self, schema: Schema | None) -> _Encoder:
        """Returns the envelope up to its payload (nothing without schemas), and the function that writes payloads."""
        encoder = self._encoders.get(schema)
        if encoder is None:
            head = b""
            if self._with_schemas:
                written = schema_to_json(schema, self._writer.checked)
                head = b'{"schema":' + dumps(written) + b',"payload":'
            encoder = (head, self._writer.texts(schema))
            _remember(self._encoders, schema, encoder, self._cache_size)
        return encoder

    def from_connect_header(self, topic: str, name: str, schema: Schema | None, value: Any) -> bytes | None:
        return self.from_connect_data(topic, schema, value)

    def to_connect_header(self, topic: str, name: str, value: bytes | None) -> SchemaAndValue:
        return self.to_connect_data(topic, value)


def _head_of(value: bytes, schema: Any) -> bytes | None:
    """Returns the beginning of an envelope up to its payload; None if the payload does not come last.

    Whatever begins with it, and goes on with one JSON text and a brace, is an envelope with this schema.
    """
    for match in islice(_PAYLOAD.finditer(value), _PAYLOADS_MAX):
        head = value[: match.end()]
        with suppress(orjson.JSONDecodeError):
            if orjson.loads(head + b"null}") == {"schema": schema, "payload": None}:
                return head
    return None


def _plain(data: Sequence[bytes | None]) -> list[Any]:
    return [orjson.loads(v) if v else None for v in data]


def _remember(cache: dict[K, V], key: K, value: V, size: int) -> None:
    """Keeps `value`, and drops the oldest entry when the cache is full."""
    if size <= 0:
        return
    if len(cache) >= size:
        del cache[next(iter(cache))]
    cache[key] = value
