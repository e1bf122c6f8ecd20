"""Keys and values through a schema registry: decoded with the converters of Connect, encoded as the REST proxy does. Blocks; for a
thread.
"""

from __future__ import annotations

import json
import struct
from typing import Any, Final

from klamm.console.errors import ConsoleError
from klamm.console.records.shown import Shown
from klamm.console.settings import Endpoint
from klamm.web.authentication import basic
from klamm_base.configdef import ConfigDef
from klamm_base.errors import ConfigError, KlammError
from klamm_plugins.errors import RetriableError

_CONVERTERS: Final = {
    "AVRO": ("klamm_plugins.converters.avro", "AvroConverter"),
    "JSON": ("klamm_plugins.converters.json_schema_registry", "JsonSchemaConverter"),
    "PROTOBUF": ("klamm_plugins.converters.protobuf", "ProtobufConverter"),
}


class Schemas:
    """The schemas of one registry, for one thread. `login`: an Authorization header (Basic), where no user is configured."""

    def __init__(self, endpoint: Endpoint, login: str | None = None) -> None:
        self._texts = _texts(endpoint, login)
        self._kinds: dict[int, str] = {}
        self._converters: dict[tuple[str, bool], Any] = {}
        self._client: Any = None
        self._json: Any = None

    def look(self, topic: str, data: bytes, is_key: bool) -> Shown | None:
        """Returns a value with its schema's number; None for bytes that begin with no number that the registry knows."""
        if len(data) < 5 or data[0] != 0:
            return None
        (number,) = struct.unpack_from(">i", data, 1)
        try:
            kind = self._kind(number)
            if kind is None:
                return None
            schema, value = self._converter(kind, is_key=is_key).to_connect_data(topic, data)
            text = self._json.from_connect_data(topic, schema, value)
            found = json.loads(text) if text else None
        except RetriableError as e:
            return Shown(f"schema {number}: {e}", data[5:].decode(errors="replace"))
        except (KlammError, ValueError, ImportError) as e:
            return Shown(f"schema {number} does not fit: {e}", data[5:].decode(errors="replace"))
        return Shown(
            f"{kind.lower()}, schema {number}", json.dumps(found, indent=2, ensure_ascii=False), found
        )

    def _kind(self, number: int) -> str | None:
        if number not in self._kinds:
            from klamm_plugins.converters.registry import RegistryError

            if self._client is None:
                self._client = _client(self._texts)
            try:
                self._kinds[number] = self._client.by_id(number).kind
            except RegistryError:
                self._kinds[number] = ""
        return self._kinds[number] or None

    def _converter(self, kind: str, *, is_key: bool) -> Any:
        import importlib

        if self._json is None:
            from klamm_plugins.converters.json import JsonConverter

            self._json = JsonConverter()
            self._json.configure({"schemas.enable": "false"}, is_key=False)
        if (kind, is_key) not in self._converters:
            if kind not in _CONVERTERS:
                raise ConfigError(f"a schema of kind {kind} is unknown here")
            module, name = _CONVERTERS[kind]
            made = getattr(importlib.import_module(module), name)()
            made.configure(self._texts, is_key=is_key)
            self._converters[kind, is_key] = made
        return self._converters[kind, is_key]


def encoded(
    endpoint: Endpoint, login: str | None, *, subject: str, version: int | None, text: str, where: str
) -> bytes:
    """Returns the bytes of a JSON text by a version of a subject, or its newest, with the schema's number in front. Raises ConsoleError.

    Avro's unions are written as in Avro's JSON: `{"string": "x"}`.
    """
    from klamm.restproxy.errors import ProxyError
    from klamm.restproxy.schemas import Schemas as Codecs

    try:
        value = json.loads(text)
    except ValueError as e:
        raise ConsoleError(f"{where}: that is not JSON: {e}") from None
    codecs = Codecs(_client(_texts(endpoint, login)))
    try:
        registered = codecs.latest(subject, version)
        return codecs.codec(codecs.format_of(registered.id), registered.id).encode(value)
    except ProxyError as e:
        raise ConsoleError(f"{where}: {subject}: {e}") from None


def _client(texts: dict[str, str]) -> Any:
    from klamm_plugins.converters.registry import RegistryClient, client_config

    return RegistryClient.of(client_config(ConfigDef()).parse(texts))


def _texts(end: Endpoint, caller: str | None) -> dict[str, str]:
    """Returns the registry's settings as a worker's file has them."""
    login = None if caller is None else basic(caller.removeprefix("Basic "))
    found = {"schema.registry.url": end.url}
    if end.user is not None:
        found["basic.auth.credentials.source"] = "USER_INFO"
        found["basic.auth.user.info"] = f"{end.user}:{end.password.value if end.password else ''}"
    elif login is not None and end.token is None:
        found["basic.auth.credentials.source"] = "USER_INFO"
        found["basic.auth.user.info"] = ":".join(login)
    if end.token is not None:
        found["bearer.auth.token"] = end.token.value
    if end.cacert is not None:
        found["schema.registry.ssl.truststore.location"] = end.cacert
    return found
