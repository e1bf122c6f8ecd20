"""Schemas, and the versions of subjects that use them: all that the registry keeps. Pure values."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

AVRO: Final = "AVRO"
JSON: Final = "JSON"
PROTOBUF: Final = "PROTOBUF"
KINDS: Final = (JSON, PROTOBUF, AVRO)
"""The kinds of schemas, in the order in which Confluent's registry lists them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """A name in a schema that stands for a version of a subject."""

    name: str
    subject: str
    version: int

    def shown(self) -> dict[str, Any]:
        return {"name": self.name, "subject": self.subject, "version": self.version}


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """A schema as it was registered. `metadata` and `rules` are JSON, which the registry keeps and compares."""

    kind: str
    text: str
    references: tuple[Reference, ...] = ()
    metadata: Mapping[str, Any] | None = field(default=None, hash=False)
    rules: Mapping[str, Any] | None = field(default=None, hash=False)

    @property
    def identity(self) -> str:
        """The text by which two schemas are the same one, with the same id."""
        more = [[r.name, r.subject, r.version] for r in self.references], self.metadata, self.rules
        return f"{self.kind}\0{self.text}\0{json.dumps(more, sort_keys=True)}"

    @property
    def guid(self) -> str:
        """The name of the schema in every registry, which Confluent's serializers can put into headers: a digest of its text."""
        digest = hashlib.md5(self.text.encode(), usedforsecurity=False)
        for each in self.references:
            digest.update(
                each.name.encode() + each.subject.encode() + each.version.to_bytes(4, "big", signed=True)
            )
        if self.metadata or self.rules:
            digest.update(json.dumps([self.metadata, self.rules], sort_keys=True).encode())
        return str(uuid.UUID(bytes=digest.digest()))

    def answered(self) -> dict[str, Any]:
        """Returns the fields of an answer over REST."""
        return {"guid": self.guid, **self.shown()}

    def shown(self) -> dict[str, Any]:
        """Returns the fields of a record; Avro is the kind that is not named."""
        found: dict[str, Any] = {}
        if self.kind != AVRO:
            found["schemaType"] = self.kind
        if self.references:
            found["references"] = [each.shown() for each in self.references]
        if self.metadata:
            found["metadata"] = self.metadata
        if self.rules:
            found["ruleSet"] = self.rules
        found["schema"] = self.text
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """A version of a subject."""

    subject: str
    version: int
    id: int
    schema: Schema
    deleted: bool = False

    def shown(self) -> dict[str, Any]:
        return {"subject": self.subject, "version": self.version, "id": self.id, **self.schema.answered()}
