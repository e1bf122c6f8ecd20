"""Records written with schemas of a registry: Avro, JSON Schema and Protobuf from JSON text."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Callable
from typing import Any, Final, Protocol
from urllib.parse import quote

from klamm_base.errors import ConfigError, KlammError
from klamm_base.extras import how_to_install
from klamm_plugins.converters.references import Reference, Referred, references_in, referred_texts

_TYPES: Final = {"avro": "AVRO", "jsonschema": "JSON", "protobuf": "PROTOBUF"}


class Api(Protocol):
    """A registry's REST API: `call` returns the decoded answer, None for 404. Raises KlammError."""

    def call(self, method: str, path: str, body: Any = None) -> Any: ...


def encoder(name: str, registry: Api, subject: str, schema: str | None) -> Callable[[bytes], bytes]:
    """Return the function that encodes JSON text by the subject's newest schema, or by one that it registers first.

    Raises ConfigError, KlammError.
    """
    if name not in _TYPES:
        raise ConfigError(f"format {name} can be read, not written: use {' or '.join(_TYPES)}")
    path = f"/subjects/{quote(subject, safe='')}/versions"
    if schema is not None:
        made = registry.call("POST", path, {"schema": schema, "schemaType": _TYPES[name]})
        if made is None:
            raise KlammError(f"the registry refused the schema of {subject}")
    found = registry.call("GET", f"{path}/latest") if schema is None else {"schema": schema} | made
    if found is None:
        raise KlammError(
            f"the registry has no subject {subject}: give its schema by --key-schema or --value-schema"
        )
    kind = found.get("schemaType", _TYPES[name] if schema is not None else "AVRO")
    if kind != _TYPES[name]:
        raise KlammError(f"{subject} has a schema of {kind}, not {_TYPES[name]}")
    if found.get("references") and name != "protobuf":
        raise KlammError(f"{subject} has references to other schemas, which cannot be written here")
    head = b"\0" + struct.pack(">I", found["id"])
    match name:
        case "avro":
            write = _avro(found["schema"])
        case "jsonschema":
            write = _json(found["schema"])
        case _:
            write = _protobuf(found["schema"], _imported(registry, found))
    return lambda text: head + write(text)


def _imported(registry: Api, found: Any) -> dict[str, str]:
    """Return the texts of referenced schemas by the names that they are imported by, theirs too. Raises KlammError."""

    def ask(reference: Reference) -> Referred:
        path = f"/subjects/{quote(reference.subject, safe='')}/versions/{reference.version}"
        answer = registry.call("GET", path)
        if answer is None:
            raise KlammError(
                f"the registry has no version {reference.version} of {reference.subject}, which is referenced"
            )
        return answer["schema"], references_in(answer)

    return referred_texts(references_in(found), ask)


def _avro(schema: str) -> Callable[[bytes], bytes]:
    try:
        import fastavro
    except ImportError as e:
        raise ConfigError(f"format avro needs more packages: {how_to_install('schemas')} ({e})") from None
    parsed = fastavro.parse_schema(json.loads(schema))

    def write(text: bytes) -> bytes:
        out = io.BytesIO()
        try:
            fastavro.schemaless_writer(out, parsed, json.loads(text), strict_allow_default=True)
        except (TypeError, AttributeError, KeyError) as e:
            raise ValueError(f"does not fit the schema: {e}") from None
        return out.getvalue()

    return write


def _json(schema: str) -> Callable[[bytes], bytes]:
    try:
        import jsonschema
    except ImportError as e:
        raise ConfigError(
            f"format jsonschema needs more packages: {how_to_install('schemas')} ({e})"
        ) from None
    document = json.loads(schema)
    validator = jsonschema.validators.validator_for(document)(document)

    def write(text: bytes) -> bytes:
        value = json.loads(text)
        for error in validator.iter_errors(value):
            raise ValueError(f"does not fit the schema: {error.json_path}: {error.message}")
        return json.dumps(value, ensure_ascii=False).encode()

    return write


def _protobuf(schema: str, references: dict[str, str]) -> Callable[[bytes], bytes]:
    """Return the writer of the schema's first message, from Protobuf's JSON."""
    try:
        from klamm.records.protobuf_json import FirstMessage
    except ImportError as e:
        raise ConfigError(f"format protobuf needs more packages: {how_to_install('schemas')} ({e})") from None
    first = FirstMessage(schema, references)

    def write(text: bytes) -> bytes:
        value = json.loads(text)
        try:
            return first.encode(value)
        except ValueError as e:
            raise ValueError(f"does not fit the schema: {e}") from None

    return write
