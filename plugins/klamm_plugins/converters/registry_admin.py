"""The administrator's side of a schema registry: subjects, versions, ids, compatibility levels and modes.

Speaks Confluent's REST API through `RegistryClient`, and like it blocks and serves one thread. Nothing is cached. A name that
the registry does not know is None, all other refusals are RegistryError, and a registry that is away is RetriableError.

A subject of another context than the default one has a name such as `:.CONTEXT:orders-value`, as the registry lists it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote

from klamm_plugins.converters.references import Reference
from klamm_plugins.converters.registry import (
    RegisteredSchema,
    RegistryClient,
    RegistryError,
    schema_of,
)

NOT_FOUND: Final = frozenset({404, 405, 40401, 40402, 40403, 40408, 40409})
"""Codes of a subject, version, schema, level or mode that is not there, and of registries that have no modes."""
NOT_US: Final = frozenset({401, 403, 408, 40101, 40301})
"""Codes of refusals that concern the user, not the schema: they may be cured without a change of it."""
IMPORT: Final = "IMPORT"
READONLY: Final = "READONLY"
READWRITE: Final = "READWRITE"
_CONTRACT: Final = ("metadata", "ruleSet")


@dataclass(frozen=True, slots=True)
class SubjectVersion:
    """A version of a subject. `contract` has its metadata and rules, as the registry gives them; most schemas have none."""

    subject: str
    version: int
    schema: RegisteredSchema
    contract: Mapping[str, Any] = field(default_factory=dict)
    guid: str | None = None


class RegistryAdmin:
    """See the module."""

    def __init__(self, client: RegistryClient) -> None:
        self._client = client

    @property
    def url(self) -> str:
        """The registry's first address, for messages: without a user."""
        return self._client.shown_url

    def subjects(self) -> list[str]:
        """Returns the subjects of all contexts, without deleted ones."""
        return sorted(self._client.ask("GET", "/subjects") or ())

    def versions(self, subject: str) -> list[int]:
        """Returns the numbers of a subject's versions, ascending; none for a subject that is not there."""
        return sorted(self._found("GET", f"/subjects/{_name(subject)}/versions") or ())

    def version(self, subject: str, number: int, *, deleted: bool = False) -> SubjectVersion | None:
        """Returns a version. `deleted`: also a deleted one."""
        path = f"/subjects/{_name(subject)}/versions/{number}"
        return _version(subject, self._found("GET", path + _also(deleted)))

    def by_id(self, id: int) -> RegisteredSchema | None:
        """Returns the schema with an id of the default context."""
        answer = self._found("GET", f"/schemas/ids/{id}")
        return None if answer is None else schema_of(id, answer)

    def places_of(self, id: int, *, deleted: bool = False) -> list[tuple[str, int]]:
        """Returns the subjects and versions that are the schema with an id of the default context. `deleted`: also deleted ones."""
        found = self._found("GET", f"/schemas/ids/{id}/versions{_also(deleted)}") or ()
        return [(place["subject"], int(place["version"])) for place in found]

    def ids_of_guid(self, guid: str) -> list[int]:
        """Returns the ids that a schema has, by its GUID."""
        found = self._found("GET", f"/schemas/guids/{guid}/ids") or ()
        return [int(place["id"]) for place in found]

    def find(
        self, subject: str, schema: RegisteredSchema, contract: Mapping[str, Any], *, deleted: bool = False
    ) -> SubjectVersion | None:
        """Returns the version of a subject that is this schema. `deleted`: also a deleted one."""
        path = f"/subjects/{_name(subject)}{_also(deleted)}"
        return _version(subject, self._found("POST", path, _body(schema, contract)))

    def register(self, subject: str, schema: RegisteredSchema, contract: Mapping[str, Any]) -> int:
        """Makes a schema the newest version of a subject, unless it is one. Returns the id that the registry gave it."""
        return self._register(subject, _body(schema, contract))

    def import_version(
        self, subject: str, number: int, schema: RegisteredSchema, contract: Mapping[str, Any]
    ) -> int:
        """Makes a schema the version `number` of a subject, under the schema's id. Needs the mode IMPORT. Returns the id
        that the registry gave it: registries that know no such mode ignore both numbers.
        """
        return self._register(subject, {**_body(schema, contract), "id": schema.id, "version": number})

    def delete_version(self, subject: str, number: int) -> None:
        """Deletes a version. Its schema stays known by its id."""
        self._found("DELETE", f"/subjects/{_name(subject)}/versions/{number}")

    def _register(self, subject: str, body: Mapping[str, Any]) -> int:
        return int(self._client.ask("POST", f"/subjects/{_name(subject)}/versions", body)["id"])

    def level(self, subject: str | None = None) -> str | None:
        """Returns the compatibility level that is set for a subject itself, or that of the registry."""
        path = "/config" if subject is None else f"/config/{_name(subject)}?defaultToGlobal=false"
        answer = self._found("GET", path) or {}
        level = answer.get("compatibilityLevel") or answer.get("compatibility")
        return str(level) if level else None

    def set_level(self, subject: str, level: str | None) -> None:
        """Sets the compatibility level of a subject; None removes it."""
        if level is None:
            self._found("DELETE", f"/config/{_name(subject)}")
            return
        self._client.ask("PUT", f"/config/{_name(subject)}", {"compatibility": level})

    def mode(self, subject: str | None = None) -> str | None:
        """Returns the mode that is set for a subject itself, or that of the registry."""
        path = "/mode" if subject is None else f"/mode/{_name(subject)}?defaultToGlobal=false"
        answer = self._found("GET", path, optional=True)
        return None if answer is None else str(answer["mode"])

    def mode_in_force(self, subject: str) -> str:
        """Returns the mode that holds for a subject, whoever set it. A registry without modes reads and writes."""
        answer = self._found("GET", f"/mode/{_name(subject)}?defaultToGlobal=true", optional=True)
        return str(answer["mode"]) if answer is not None else self.mode() or READWRITE

    def set_mode(self, subject: str, mode: str | None) -> None:
        """Sets the mode of a subject; None removes it. IMPORT is set also for a subject that has versions."""
        if mode is None:
            self._found("DELETE", f"/mode/{_name(subject)}", optional=True)
            return
        self._client.ask("PUT", f"/mode/{_name(subject)}?force=true", {"mode": mode}, optional=True)

    def _found(self, method: str, path: str, body: Any = None, *, optional: bool = False) -> Any:
        try:
            return self._client.ask(method, path, body, optional=optional)
        except RegistryError as e:
            if e.code in NOT_FOUND:
                return None
            raise


def _name(subject: str) -> str:
    return quote(subject, safe=":")


def _also(deleted: bool) -> str:
    return "?deleted=true" if deleted else ""


def _body(schema: RegisteredSchema, contract: Mapping[str, Any]) -> dict[str, Any]:
    body: dict[str, Any] = {"schema": schema.text, **contract}
    if schema.kind != "AVRO":  # Avro is the default, and old registries know no other kind.
        body["schemaType"] = schema.kind
    if schema.references:
        body["references"] = [_reference(r) for r in schema.references]
    return body


def _reference(reference: Reference) -> dict[str, Any]:
    return {"name": reference.name, "subject": reference.subject, "version": reference.version}


def _version(subject: str, answer: Mapping[str, Any] | None) -> SubjectVersion | None:
    if answer is None:
        return None
    contract = {key: answer[key] for key in _CONTRACT if answer.get(key)}
    schema = schema_of(int(answer["id"]), answer)
    return SubjectVersion(subject, int(answer["version"]), schema, contract, answer.get("guid"))
