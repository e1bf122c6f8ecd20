"""The common part of the converters with a schema registry: Confluent's wire format, subjects, ids, and their
configuration.

A value is a zero byte, the id of its schema (4 bytes) and the data. At the first write of a schema, the converter
registers it under a subject (`auto.register.schemas`), looks it up there, or takes the subject's newest schema
(`use.latest.version`).
"""

from __future__ import annotations

import struct
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, ClassVar, Final, NamedTuple, Protocol

from klamm_base.configdef import ConfigDef, Importance, Type, between, invalid
from klamm_base.errors import ConfigError
from klamm_base.extras import how_to_install
from klamm_base.version import __version__
from klamm_plugins.converter import NULL, Columns, Converter, SchemaAndValue
from klamm_plugins.converters._common import converter_config
from klamm_plugins.converters.registry import RegisteredSchema, RegistryClient, client_config
from klamm_plugins.errors import DataError
from klamm_plugins.schema import Schema

_HEAD: Final = struct.Struct(">bI")
HEAD_BYTES: Final = _HEAD.size
_STRATEGIES: Final = ("TopicNameStrategy", "RecordNameStrategy", "TopicRecordNameStrategy")
_PACKAGE: Final = "io.confluent.kafka.serializers.subject."


class ValueWriter(Protocol):
    """Makes the bytes of values that are no null."""

    def __call__(self, value: Any) -> bytes:
        """Raises DataError for a value that does not fit."""
        ...

    def many(self, values: Sequence[Any]) -> Sequence[bytes]:
        """Raises DataError if one of the values does not fit."""
        ...


class ValueReader(Protocol):
    """Makes values of their bytes."""

    def __call__(self, data: bytes, start: int = 0) -> Any:
        """Gets a value with its head of `start` bytes. Raises DataError."""
        ...

    def many(self, data: Sequence[bytes], start: int) -> Sequence[Any]:
        """Gets values with heads of `start` bytes. Raises DataError if one of them is bad."""
        ...


class Writing(NamedTuple):
    """The way to write values of one schema to one topic: the first bytes, and the maker of the rest."""

    head: bytes
    encode: ValueWriter


class Reading(NamedTuple):
    """The way to read values of one schema id."""

    schema: Schema | None
    decode: ValueReader


@contextmanager
def needs(package: str, who: str) -> Iterator[None]:
    """Wraps the import of a package that is not always installed: its ConfigError names what to install."""
    try:
        yield
    except ImportError as e:
        raise ConfigError(f"{who} needs the package {package}: {how_to_install('schemas')} ({e})") from e


def _strategy(name: str, value: Any) -> None:
    if value.removeprefix(_PACKAGE) not in _STRATEGIES:
        raise invalid(
            name,
            value,
            f"Class {value} could not be found; there are {', '.join(_STRATEGIES)} in {_PACKAGE[:-1]}",
        )


def registry_config() -> ConfigDef:
    """Returns a new definition of the keys that all of them have, by Confluent's names."""
    config = client_config(converter_config())
    config.define(
        "auto.register.schemas",
        Type.BOOLEAN,
        default=True,
        documentation="Whether a new schema is registered; without it, it must be there.",
    )
    config.define(
        "use.latest.version",
        Type.BOOLEAN,
        default=False,
        importance=Importance.LOW,
        documentation="Whether values are written with the newest schema of their subject instead of their own; "
        "auto.register.schemas must be false.",
    )
    config.define(
        "normalize.schemas",
        Type.BOOLEAN,
        default=False,
        documentation="Whether the registry normalizes schemas before it compares them.",
    )
    for part in ("key", "value"):
        config.define(
            f"{part}.subject.name.strategy",
            Type.CLASS,
            _PACKAGE + "TopicNameStrategy",
            validator=_strategy,
            documentation=f"How the subject of a {part} is named: TopicNameStrategy (TOPIC-{part}), RecordNameStrategy "
            "(the schema's name) or TopicRecordNameStrategy (TOPIC-NAME).",
        )
    return config.define(
        "schemas.cache.config",
        Type.INT,
        1000,
        validator=between(1),
        importance=Importance.LOW,
        documentation="How many schemas the converter remembers, in each direction.",
    )


class RegistryConverter(Converter):
    """A converter with a schema registry (see the module). A subclass converts schemas and values."""

    kind: ClassVar[str]
    """AVRO, JSON or PROTOBUF."""

    @classmethod
    def version(cls) -> str:
        return __version__

    @classmethod
    def config(cls) -> ConfigDef:
        return registry_config()

    def configure(self, props: Mapping[str, Any], *, is_key: bool) -> None:
        part = "key" if is_key else "value"
        settings = self.config().parse({**props, "converter.type": part})
        self._is_key = is_key
        self._part = part
        self._client = RegistryClient.of(settings)
        self._registers: bool = settings["auto.register.schemas"]
        self._uses_latest: bool = settings["use.latest.version"]
        self._normalizes: bool = settings["normalize.schemas"]
        self._strategy: str = settings[f"{part}.subject.name.strategy"].removeprefix(_PACKAGE)
        self._cache_size: int = settings["schemas.cache.config"]
        self._writings: dict[tuple[str, Schema | None], Writing] = {}
        self._readings: dict[bytes, Reading] = {}
        self.set_up(settings)

    def set_up(self, settings: Mapping[str, Any]) -> None:
        """Takes settings of the subclass's own. Raises ConfigError."""

    @abstractmethod
    def schema_text(self, schema: Schema | None) -> str:
        """Returns a Connect schema in the registry's form. Raises DataError."""

    @abstractmethod
    def record_name(self, schema: Schema | None) -> str | None:
        """Returns the name that a subject may have; None when there is none."""

    @abstractmethod
    def writer(self, schema: Schema | None, registered: RegisteredSchema | None) -> ValueWriter:
        """Returns a writer of values. `registered` is the schema to write with, None for the value's own."""

    @abstractmethod
    def reading(self, registered: RegisteredSchema, references: Mapping[str, str], head: bytes) -> Reading:
        """Returns the way to read values of a registered schema that begin with `head`."""

    def head_of(self, value: bytes) -> bytes:
        """Returns the bytes that decide how a value is read: the zero byte, the id, and further parts of a format.

        Raises DataError.
        """
        return value[:HEAD_BYTES]

    def from_connect_data(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        if value is None:
            return None
        head, encode = self._writing(topic, schema)
        return head + encode(value)

    def from_connect_data_many(
        self, topic: str, schema: Schema | None, values: Sequence[Any]
    ) -> list[bytes | None]:
        if all(v is None for v in values):
            return [None] * len(values)
        head, encode = self._writing(topic, schema)
        if None not in values:
            return [head + data for data in encode.many(values)]
        written = iter(encode.many([v for v in values if v is not None]))
        return [None if v is None else head + next(written) for v in values]

    def to_connect_data(self, topic: str, value: bytes | None) -> SchemaAndValue:
        if value is None:
            return NULL
        head = self.head_of(value)
        schema, decode = self._readings.get(head) or self._new_reading(topic, head)
        return SchemaAndValue(schema, decode(value, len(head)))

    def to_connect_columns(self, topic: str, values: Sequence[bytes | None]) -> Columns:
        rows: dict[bytes | None, list[int]] = {}
        for row, value in enumerate(values):
            rows.setdefault(None if value is None else self.head_of(value), []).append(row)
        schemas: list[Schema | None] = [None] * len(values)
        made: list[Any] = [None] * len(values)
        for head, places in rows.items():
            if head is None:
                continue
            schema, decode = self._readings.get(head) or self._new_reading(topic, head)
            found = decode.many([values[row] for row in places], len(head))  # type: ignore[misc]  # none is null
            if len(places) == len(values):
                return [schema] * len(values), found
            for row, value in zip(places, found, strict=True):
                schemas[row], made[row] = schema, value
        return schemas, made

    def _writing(self, topic: str, schema: Schema | None) -> Writing:
        key = (topic, schema)
        found = self._writings.get(key)
        if found is None:
            found = self._new_writing(topic, schema)
            if len(self._writings) >= self._cache_size:
                del self._writings[next(iter(self._writings))]
            self._writings[key] = found
        return found

    def _new_writing(self, topic: str, schema: Schema | None) -> Writing:
        subject = self._subject(topic, schema)
        latest: RegisteredSchema | None = None
        if self._uses_latest and not self._registers:
            latest = self._client.latest(subject)
            id_ = latest.id
        else:
            ask = self._client.register if self._registers else self._client.lookup
            id_ = ask(subject, self.kind, self.schema_text(schema), normalize=self._normalizes)
        return Writing(_HEAD.pack(0, id_), self.writer(schema, latest))

    def _subject(self, topic: str, schema: Schema | None) -> str:
        if self._strategy == "TopicNameStrategy":
            return f"{topic}-{self._part}"
        name = self.record_name(schema)
        if name is None:
            raise DataError(f"{self._strategy} needs a schema with a name; this one has none: {schema!r}")
        return name if self._strategy == "RecordNameStrategy" else f"{topic}-{name}"

    def _new_reading(self, topic: str, head: bytes) -> Reading:
        if len(head) < HEAD_BYTES or head[0] != 0:
            raise DataError(
                f"Failed to deserialize data for topic {topic}: it does not begin with a zero byte and a schema id, so it "
                "was not written with a schema registry"
            )
        _, id_ = _HEAD.unpack_from(head)
        registered = self._client.by_id(id_)
        if self._strategy == "TopicNameStrategy":
            version = self._client.version_of(f"{topic}-{self._part}", registered)
            registered = replace(registered, version=version)
        if registered.kind != self.kind:
            raise DataError(f"schema {id_} of topic {topic} is {registered.kind}, not {self.kind}")
        found = self.reading(registered, self._client.resolved(registered), head)
        if len(self._readings) >= self._cache_size:
            del self._readings[next(iter(self._readings))]
        self._readings[head] = found
        return found
