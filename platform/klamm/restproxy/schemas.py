"""Formats with a schema: ids of a registry, and codecs for them. `Schemas` blocks, and is safe for threads."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar
from urllib.parse import quote

import orjson

from klamm.registry.avro import AvroError, parse
from klamm.restproxy import avro_json
from klamm.restproxy.errors import ProxyError, invalid_schema, kafka_error, not_convertible
from klamm.restproxy.formats import KINDS, Codec, Format, json_bytes
from klamm_base.extras import how_to_install
from klamm_plugins.converters.registry import RegisteredSchema, RegistryClient, RegistryError, schema_of
from klamm_plugins.errors import DataError, RetriableError

MAGIC: Final = b"\0"
HEAD_BYTES: Final = 5
THREADS: Final = 16
LATEST_S: Final = 5.0
"""The time for which a subject's newest version is believed."""
LATEST_MAX: Final = 10_000
_CODE_OF_FAILURE: Final = 40801  # Confluent's, for a registry that refuses or is not there
_CONFLICT: Final = 409
_INVALID: Final = frozenset({422, 42201})
T = TypeVar("T")
_FORMATS: Final = {kind: form for form, kind in KINDS.items()}


class Schemas:
    """The schemas of a registry. Without `client`, every use is refused."""

    def __init__(self, client: RegistryClient | None) -> None:
        self._client = client
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="registry")
        self._failed: tuple[float, str] = (0.0, "")
        """The last time that the registry was not there, and why."""
        self._latest: dict[tuple[str, int | None], tuple[float, RegisteredSchema]] = {}
        self._codecs: dict[int, tuple[Format, Codec]] = {}
        self._ids: dict[tuple[str, Format, str], int] = {}

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def asked(self, work: Callable[..., T], *args: Any) -> T:
        """Has one of the methods done that block, in threads of its own: a slow registry keeps nothing else waiting."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, work, *args)

    def known_id(self, subject: str, format: Format, text: str) -> int | None:
        """Returns the id of a schema that was registered before; asks nobody."""
        return self._ids.get((subject, format, text))

    def known_codec(self, format: Format, id: int) -> Codec | None:
        """Returns the codec of a schema that was used before; asks nobody."""
        found = self._codecs.get(id)
        return found[1] if found is not None and found[0] is format else None

    def register(self, subject: str, format: Format, text: str) -> int:
        """Returns the id of a schema, which becomes a version of the subject. Raises ProxyError."""
        known = self._ids.get((subject, format, text))
        if known is None:
            known = self._asked(lambda client: client.register(subject, KINDS[format], text))
            self._ids[subject, format, text] = known
        return known

    def known_latest(self, subject: str, version: int | None = None) -> RegisteredSchema | None:
        """Returns what `latest` found a moment ago; asks nobody."""
        until_s, found = self._latest.get((subject, version), (0.0, None))
        return found if time.monotonic() < until_s else None

    def latest(self, subject: str, version: int | None = None) -> RegisteredSchema:
        """Returns a version of a subject, or its newest. Raises ProxyError."""
        path = f"/subjects/{quote(subject, safe='')}/versions/{version or 'latest'}"
        answer = self._asked(lambda client: client.ask("GET", path))
        found = schema_of(int(answer["id"]), answer)
        if len(self._latest) >= LATEST_MAX:
            self._latest.clear()
        self._latest[subject, version] = (time.monotonic() + LATEST_S, found)
        return found

    def codec(self, format: Format, id: int) -> Codec:
        """Returns the codec of a schema, which must be of this format. Raises ProxyError."""
        found = self._codecs.get(id)
        if found is None:
            found = self._codecs[id] = self._made(id)
        if found[0] is not format:
            raise invalid_schema(f"schema {id} is of the format {found[0]}, not {format}")
        return found[1]

    def format_of(self, id: int) -> Format:
        """Returns the format of a schema. Raises ProxyError."""
        found = self._codecs.get(id)
        if found is None:
            found = self._codecs[id] = self._made(id)
        return found[0]

    def decode(self, data: bytes | None) -> tuple[Any, int | None]:
        """Returns the JSON of a record's bytes, whatever its schema's format, and the schema's id. Raises ProxyError."""
        if data is None:
            return None, None
        if data[:1] != MAGIC or len(data) < HEAD_BYTES:
            raise kafka_error("Error deserializing a record: Unknown magic byte!")
        number = int.from_bytes(data[1:HEAD_BYTES], "big")
        found = self._codecs.get(number)
        if found is None:
            found = self._codecs[number] = self._made(number)
        return found[1].decode(data), number

    def _made(self, id: int) -> tuple[Format, Codec]:
        def ask(client: RegistryClient) -> tuple[RegisteredSchema, dict[str, str]]:
            registered = client.by_id(id)
            return registered, client.resolved(registered)

        registered, references = self._asked(ask)
        form = _FORMATS.get(registered.kind)
        if form is None:
            raise invalid_schema(f"schema {id} is of the kind {registered.kind}, which is unknown here")
        try:
            return form, _MAKERS[form](registered, references)
        except (AvroError, DataError) as e:
            raise invalid_schema(str(e)) from None
        except ImportError:
            raise ProxyError(50002, f"{form} needs other libraries: {how_to_install('schemas')}") from None

    def _asked(self, ask: Any) -> Any:
        if self._client is None:
            raise ProxyError(
                _CODE_OF_FAILURE, "This proxy has no schema registry: schema.registry.url is not set"
            )
        began_s = time.monotonic()
        try:
            with self._lock:
                failed_s, why = self._failed
                if (
                    failed_s > began_s
                ):  # others waited for the same registry, and do not wait one after another
                    raise ProxyError(_CODE_OF_FAILURE, why)
                try:
                    return ask(self._client)
                except RetriableError as e:
                    self._failed = (time.monotonic(), str(e))
                    raise
        except RegistryError as e:
            if e.code in _INVALID:
                raise invalid_schema(str(e)) from None
            raise ProxyError(
                _CONFLICT if e.code == _CONFLICT else _CODE_OF_FAILURE,
                f"Error registering or reading a schema: {e}",
            ) from None
        except RetriableError as e:
            raise ProxyError(_CODE_OF_FAILURE, str(e)) from None


def encoded(codec: Codec, value: Any) -> bytes:
    """Returns a value's bytes. Raises ProxyError, also where a library fails: for a reference that leads nowhere, or a value that is too deep."""
    try:
        return codec.encode(value)
    except ProxyError:
        raise
    except Exception as e:
        raise not_convertible(f"{type(e).__name__}: {e}") from None


def _head(id: int) -> bytes:
    return MAGIC + id.to_bytes(4, "big")


class _Avro:
    def __init__(self, registered: RegisteredSchema, references: Mapping[str, str]) -> None:
        self._head = _head(registered.id)
        type_, _ = parse(registered.text, references.values())
        self._write, self._read = avro_json.writer(type_), avro_json.reader(type_)

    def encode(self, value: Any) -> bytes:
        out = bytearray(self._head)
        try:
            self._write(value, out)
        except (avro_json.AvroDataError, UnicodeEncodeError) as e:
            raise not_convertible(str(e)) from None
        return bytes(out)

    def decode(self, data: bytes) -> Any:
        try:
            return self._read(data, HEAD_BYTES)[0]
        except avro_json.AvroDataError as e:
            raise kafka_error(f"Error deserializing Avro message: {e}") from None


class _JsonSchema:
    def __init__(self, registered: RegisteredSchema, references: Mapping[str, str]) -> None:
        from jsonschema.exceptions import SchemaError
        from jsonschema.validators import validator_for
        from referencing import Registry, Resource

        self._head = _head(registered.id)
        schema = json.loads(registered.text)
        others = Registry().with_resources(
            (name, Resource.from_contents(json.loads(text), default_specification=_draft()))
            for name, text in references.items()
        )
        kind = validator_for(schema)
        try:
            kind.check_schema(schema)
        except SchemaError as e:
            raise DataError(e.message) from None
        self._validator = kind(schema, registry=others)

    def encode(self, value: Any) -> bytes:
        wrong = next(iter(self._validator.iter_errors(value)), None)
        if wrong is not None:
            raise not_convertible(f"{wrong.json_path}: {wrong.message}")
        return self._head + json_bytes(value, "a value")

    def decode(self, data: bytes) -> Any:
        try:
            return orjson.loads(data[HEAD_BYTES:])
        except orjson.JSONDecodeError as e:
            raise kafka_error(f"Error deserializing JSON message: {e}") from None


def _draft() -> Any:
    from referencing.jsonschema import DRAFT7

    return DRAFT7


class _Protobuf:
    """Messages as Protobuf's JSON. Values are written as the schema's first message."""

    def __init__(self, registered: RegisteredSchema, references: Mapping[str, str]) -> None:
        from klamm.records.protobuf_json import FirstMessage

        self._first = FirstMessage(registered.text, references)
        self._head = _head(registered.id)

    def encode(self, value: Any) -> bytes:
        try:
            return self._head + self._first.encode(value)
        except ValueError as e:
            raise not_convertible(str(e)) from None

    def decode(self, data: bytes) -> Any:
        from google.protobuf import json_format
        from google.protobuf.message import DecodeError

        from klamm_plugins.converters import protobuf_pool
        from klamm_plugins.converters.protobuf import from_place, place_end

        schema = self._first.schema
        try:
            end = place_end(data)
            message = protobuf_pool.message_class(schema.message(from_place(data[HEAD_BYTES:end])))()
            message.ParseFromString(data[end:])
            return json_format.MessageToDict(
                message, always_print_fields_with_no_presence=True, descriptor_pool=schema.file.pool
            )
        except (DataError, DecodeError, json_format.Error) as e:
            raise kafka_error(f"Error deserializing Protobuf message: {e}") from None


_MAKERS: Final[Mapping[Format, Callable[[RegisteredSchema, Mapping[str, str]], Codec]]] = {
    Format.AVRO: _Avro,
    Format.JSONSCHEMA: _JsonSchema,
    Format.PROTOBUF: _Protobuf,
}
