"""The records of the registry's topic, as Confluent's registry writes them, so that each can take over the other's topic. Pure.

A key is JSON whose fields stand in a fixed order, because compaction compares bytes. `decode` takes every record that theirs has
written since version 1, and leaves out what it does not know.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from klamm.registry.model import AVRO, Reference, Schema, Version


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaRecord:
    """A version; `value` None: it is gone."""

    subject: str
    version: int
    value: Version | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigRecord:
    """The configuration of a subject, of a context, or (None) of all; `value` None: none of its own."""

    subject: str | None
    value: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeRecord:
    """The mode of a subject, of a context, or (None) of all; `mode` None: none of its own."""

    subject: str | None
    mode: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteSubject:
    """All versions up to this one are softly deleted."""

    subject: str
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClearSubject:
    """All softly deleted versions of a subject are gone."""

    subject: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextRecord:
    """A context exists."""

    context: str


Change = SchemaRecord | ConfigRecord | ModeRecord | DeleteSubject | ClearSubject | ContextRecord


def encode(change: Change) -> tuple[bytes, bytes | None]:
    """Returns key and value of a change's record."""
    match change:
        case SchemaRecord():
            key = {"keytype": "SCHEMA", "subject": change.subject, "version": change.version, "magic": 1}
            return _json(key), None if change.value is None else _json(_value_of(change.value))
        case ConfigRecord():
            key = {"keytype": "CONFIG", "subject": change.subject, "magic": 0}
            return _json(key), None if change.value is None else _json(dict(change.value))
        case ModeRecord():
            key = {"keytype": "MODE", "subject": change.subject, "magic": 0}
            return _json(key), None if change.mode is None else _json({"mode": change.mode})
        case DeleteSubject():
            key = {"keytype": "DELETE_SUBJECT", "subject": change.subject, "magic": 0}
            return _json(key), _json({"subject": change.subject, "version": change.version})
        case ClearSubject():
            key = {"keytype": "CLEAR_SUBJECT", "subject": change.subject, "magic": 0}
            return _json(key), _json({"subject": change.subject})
        case ContextRecord():
            key = {"keytype": "CONTEXT", "tenant": "default", "context": change.context, "magic": 0}
            return _json(key), _json({"tenant": "default", "context": change.context})


def decode(key: bytes | None, value: bytes | None) -> Change | None:
    """Returns the change of a record; None for a NOOP. Raises ValueError for a record that is none of a registry."""
    try:
        found = orjson.loads(key or b"")
        content = orjson.loads(value) if value is not None else None
        kind, subject = found["keytype"], found.get("subject")
        match kind:
            case "SCHEMA":
                version = int(found["version"])
                made = None if content is None else _version(subject, version, content)
                return SchemaRecord(subject=subject, version=version, value=made)
            case "CONFIG":
                return ConfigRecord(subject=subject, value=None if content is None else _config(content))
            case "MODE":
                return ModeRecord(subject=subject, mode=None if content is None else content["mode"])
            case "DELETE_SUBJECT":
                return None if content is None else DeleteSubject(subject=subject, version=content["version"])
            case "CLEAR_SUBJECT":
                return None if content is None else ClearSubject(subject=subject)
            case "CONTEXT":
                return None if content is None else ContextRecord(context=found["context"])
            case "NOOP":
                return None
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError) as e:
        raise ValueError(f"it is no record of a schema registry: {e!r}") from None
    raise ValueError(f"its keytype {kind!r} is unknown")


def _json(value: Any) -> bytes:
    return orjson.dumps(value)


def _value_of(version: Version) -> dict[str, Any]:
    schema = version.schema
    found: dict[str, Any] = {"subject": version.subject, "version": version.version, "id": version.id}
    return {**found, **schema.shown(), "deleted": version.deleted}


def _config(content: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a configuration without what newer registries of Confluent add: the subject, and nulls."""
    return {key: each for key, each in content.items() if key != "subject" and each is not None}


def _version(subject: str, version: int, value: Mapping[str, Any]) -> Version:
    references = tuple(
        Reference(name=each["name"], subject=each["subject"], version=int(each["version"]))
        for each in value.get("references") or ()
    )
    schema = Schema(
        kind=value.get("schemaType") or AVRO,
        text=value["schema"],
        references=references,
        metadata=value.get("metadata"),
        rules=value.get("ruleSet"),
    )
    deleted = bool(value.get("deleted", False))
    return Version(subject=subject, version=version, id=int(value["id"]), schema=schema, deleted=deleted)
