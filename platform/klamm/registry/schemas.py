"""Schemas read and written: Avro, JSON Schema and Protobuf, each in the one text under which the registry keeps it. Pure.

`read` refuses what is no schema. Its result is remembered, since each registration is compared with all versions of its subject.
"""

from __future__ import annotations

import base64
import binascii
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from klamm.registry import avro, json_text
from klamm.registry.difference import Difference
from klamm.registry.errors import invalid_schema
from klamm.registry.model import AVRO, JSON, KINDS, PROTOBUF, Schema

if TYPE_CHECKING:
    from klamm_plugins.converters.protobuf_pool import ProtoSchema

log = logging.getLogger(__name__)

REMEMBERED: Final = 2_000
"""Schemas whose trees are kept: some kilobytes each."""

References = tuple[tuple[str, str], ...]
"""Names and texts of all schemas that a schema refers to, also through others; the innermost come first."""


@dataclass(frozen=True, slots=True)
class Parsed:
    """A schema that was read: its text as it is kept, and its tree."""

    kind: str
    text: str
    tree: Any = field(repr=False)
    references: Mapping[str, str] = field(default_factory=dict, repr=False)
    imports: tuple[Any, ...] = field(default=(), repr=False)
    """The files that a Protobuf schema imports, also through others."""


def read(
    schema: Schema, references: References = (), *, normalize: bool = False, strict: bool = True
) -> tuple[Schema, Parsed]:
    """Returns a schema with its text as it is kept, and its tree. Not `strict` is for schemas that are there, which another
    registry may have taken although they break a rule. Raises RegistryError 42201.
    """
    if schema.kind not in KINDS:
        raise invalid_schema(f"Invalid schema type {schema.kind}; there are {', '.join(KINDS)}")
    parsed = _read(schema.kind, schema.text, references, normalize, strict)
    return replace(schema, text=parsed.text), parsed


def differences(new: Parsed, old: Parsed, words: tuple[str, str]) -> list[Difference]:
    """Returns all that keeps a reader with the new schema from reading what was written with the old one. `words` name both.
    Raises RegistryError 42201 for schemas that cannot be compared.
    """
    try:
        return _differences(new, old, words)
    except RecursionError:
        raise invalid_schema(f"Invalid schema of type {new.kind}: it is nested too deeply") from None
    except (AttributeError, LookupError, TypeError, ValueError) as e:
        log.warning("a schema cannot be compared", exc_info=e)
        raise invalid_schema(f"Invalid schema of type {new.kind}: it cannot be compared: {e!r}") from e


def _differences(new: Parsed, old: Parsed, words: tuple[str, str]) -> list[Difference]:
    if new.kind != old.kind:
        text = f"The {words[0]} schema is {new.kind}, the {words[1]} one {old.kind}"
        return [Difference(kind="TYPE_MISMATCH", path="/", words=text)]
    match new.kind:
        case "AVRO":
            from klamm.registry.compat_avro import differences as of_avro

            return of_avro(new.tree, old.tree, *words)
        case "JSON":
            from klamm.registry.compat_json import differences as of_json

            return of_json(new.tree, old.tree, _Resolver(new), _Resolver(old))
        case _:
            from klamm.registry.compat_protobuf import differences as of_protobuf

            return of_protobuf(new.tree, old.tree, new.imports, old.imports)


def serialized(parsed: Parsed) -> str:
    """Returns a Protobuf schema as a descriptor in base64, which Python's clients ask for."""
    return base64.b64encode(parsed.tree.SerializeToString()).decode()


def resolved(parsed: Parsed) -> str:
    """Returns an Avro schema with the definitions of its references in it."""
    return avro.Writer().text(parsed.tree)


@lru_cache(maxsize=REMEMBERED)
def _read(kind: str, text: str, references: References, normalize: bool, strict: bool) -> Parsed:
    if not text.strip():
        raise invalid_schema("Empty schema")
    try:
        match kind:
            case "AVRO":
                parsed = _avro(text, references, normalize=normalize, strict=strict)
            case "JSON":
                parsed = _json(text, references, normalize=normalize, strict=strict)
            case _:
                parsed = _protobuf(text, references, normalize=normalize)
        parsed.text.encode()  # raises ValueError for half a character
        return parsed
    except ValueError as e:
        words = str(e) or type(e).__name__
        raise invalid_schema(
            f"Invalid schema of type {kind}: {words}" if kind != AVRO else f"Invalid schema: {words}"
        ) from None
    except RecursionError:
        raise invalid_schema(f"Invalid schema of type {kind}: it is nested too deeply") from None


def _avro(text: str, references: References, *, normalize: bool, strict: bool) -> Parsed:
    tree, foreign = avro.parse(text, [each for _, each in references], strict=strict)
    return Parsed(AVRO, avro.Writer(foreign, normal=normalize).text(tree), tree)


def _json(text: str, references: References, *, normalize: bool, strict: bool) -> Parsed:
    tree = json_text.loads(text)
    if not isinstance(tree, dict | bool):
        raise ValueError("a JSON Schema is an object or a boolean")  # noqa: TRY004 - the text is wrong, not the code
    kept = json.dumps(tree, separators=(",", ":"), ensure_ascii=False, sort_keys=normalize)
    parsed = Parsed(JSON, kept, tree, dict(references))
    if strict:
        _check_draft(tree)
        _check_references(tree, _Resolver(parsed))
    return parsed


def _check_draft(tree: Any) -> None:
    """Raises ValueError for a schema that breaks the rules of its draft."""
    from jsonschema.exceptions import SchemaError
    from jsonschema.validators import Draft7Validator, validator_for

    if isinstance(tree, dict) and not isinstance(tree.get("$schema", ""), str):
        raise ValueError("$schema must be a text")  # noqa: TRY004 - the text is wrong, not the code
    try:
        validator_for(tree, default=Draft7Validator).check_schema(tree)
    except SchemaError as e:
        raise ValueError(f"{e.message} at {e.json_path}") from None


def _check_references(value: Any, resolve: _Resolver) -> None:
    """Raises ValueError for a `$ref` that leads nowhere."""
    match value:
        case dict():
            if isinstance(ref := value.get("$ref"), str):
                resolve(ref)
            for key, each in value.items():
                if key not in {"const", "default", "enum", "examples"}:
                    _check_references(each, resolve)
        case list():
            for each in value:
                _check_references(each, resolve)


class _Resolver:
    """Finds what `$ref` means: a place in the same document, or in a reference's. Raises ValueError."""

    def __init__(self, parsed: Parsed) -> None:
        self._root = parsed.tree
        self._texts = parsed.references
        self._documents: dict[str, Any] = {}

    def __call__(self, ref: str) -> Any:
        name, _, pointer = ref.partition("#")
        document = self._root if not name or name == self._id() else self._document(name)
        found = document
        if pointer and not pointer.startswith("/"):
            return self._anchor(document, pointer)
        for part in pointer.split("/")[1:]:
            key = part.replace("~1", "/").replace("~0", "~")
            try:
                found = found[int(key)] if isinstance(found, list) else found[key]
            except (KeyError, IndexError, ValueError, TypeError):
                raise ValueError(f"$ref {ref} leads nowhere") from None
        return found

    def _id(self) -> str | None:
        return self._root.get("$id") if isinstance(self._root, dict) else None

    def _document(self, name: str) -> Any:
        if name in self._documents:
            return self._documents[name]
        text = self._texts.get(name) or next(
            (t for n, t in self._texts.items() if name.endswith(f"/{n}")), None
        )
        if text is None:
            if name.startswith(("http://json-schema.org/", "https://json-schema.org/")):
                return True
            raise ValueError(f"$ref {name} is none of the references")
        return self._documents.setdefault(name, json.loads(text))

    def _anchor(self, document: Any, anchor: str) -> Any:
        waiting = [document]
        while waiting:
            found = waiting.pop()
            if isinstance(found, dict):
                if anchor in {found.get("$anchor"), str(found.get("$id", "")).removeprefix("#")}:
                    return found
                waiting.extend(found.values())
            elif isinstance(found, list):
                waiting.extend(found)
        raise ValueError(f"$ref #{anchor} leads nowhere")


def _protobuf(text: str, references: References, *, normalize: bool) -> Parsed:
    from klamm_plugins.converters import protobuf_pool
    from klamm_plugins.converters.protobuf_parser import parse
    from klamm_plugins.converters.protobuf_print import text_of
    from klamm_plugins.errors import DataError

    try:
        if (descriptor := _descriptor(text)) is not None:
            text = text_of(descriptor, {})
        texts = {name: _plain_text(each) for name, each in references}
        schema = protobuf_pool.read(text, texts)
        if normalize:
            parsed = parse(text, "normal")
            text = text_of(parsed.proto, parsed.params)
    except DataError as e:
        raise ValueError(str(e)) from None
    return Parsed(PROTOBUF, text, _tree(schema.file, schema), imports=_imports(schema))


def _tree(file: Any, schema: ProtoSchema) -> Any:
    """Returns the descriptor of a file, in which entries of maps are marked."""
    from google.protobuf import descriptor_pb2

    proto = descriptor_pb2.FileDescriptorProto()
    file.CopyToProto(proto)
    proto.name = ""
    _mark_entries(proto.message_type, proto.package, schema)
    return proto


def _imports(schema: ProtoSchema) -> tuple[Any, ...]:
    found: dict[str, Any] = {}
    waiting = list(schema.file.dependencies)
    while waiting:
        file = waiting.pop()
        if file.name not in found:
            found[file.name] = _tree(file, schema)
            waiting.extend(file.dependencies)
    return tuple(found.values())


def _plain_text(text: str) -> str:
    from klamm_plugins.converters.protobuf_print import text_of

    descriptor = _descriptor(text)
    return text if descriptor is None else text_of(descriptor, {})


def _descriptor(text: str) -> Any:
    """Returns the descriptor that a text in base64 is; None for a schema in the Protobuf language."""
    from google.protobuf import descriptor_pb2
    from google.protobuf.message import DecodeError

    try:
        return descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (binascii.Error, DecodeError, ValueError):
        return None


def _mark_entries(messages: Any, scope: str, schema: ProtoSchema) -> None:
    for message in messages:
        full = f"{scope}.{message.name}" if scope else message.name
        if full in schema.entries:
            message.options.map_entry = True
        _mark_entries(message.nested_type, full, schema)
