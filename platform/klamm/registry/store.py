"""The registry's state, made of the records of its topic in their order. Pure; one thread.

An id means one schema in a context, for ever: a version that is gone leaves its schema and its id, since data may have been
written with it, until the topic is read again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from klamm.registry.model import Schema, Version
from klamm.registry.records import (
    Change,
    ClearSubject,
    ConfigRecord,
    ContextRecord,
    DeleteSubject,
    ModeRecord,
    SchemaRecord,
)
from klamm.registry.subjects import DEFAULT, context_of, qualified


@dataclass(slots=True)
class Context:
    """The schemas of a context by their ids, and the ids by the schemas' identities."""

    schemas: dict[int, Schema] = field(default_factory=dict)
    ids: dict[str, int] = field(default_factory=dict)
    places: dict[int, set[tuple[str, int]]] = field(default_factory=dict)
    """The versions that use an id, softly deleted ones included."""
    id_max: int = 0
    guids: dict[str, int] = field(default_factory=dict)


class Store:
    """The state. Readers must not change what they get."""

    def __init__(self, level: str = "BACKWARD") -> None:
        self.level = level
        """The compatibility level where none is set."""
        self.contexts: dict[str, Context] = {DEFAULT: Context()}
        self.attempted: dict[str, int] = {}
        """The highest id of each context that was ever written, also in an aborted transaction; a writer knows them."""
        self.subjects: dict[str, dict[int, Version]] = {}
        self.configs: dict[str | None, Mapping[str, Any]] = {}
        self.modes: dict[str | None, str] = {}
        self.referrers: dict[tuple[str, int], set[tuple[str, int]]] = {}
        """Versions whose schemas refer to a version, softly deleted ones included."""

    def copy(self) -> Store:
        """Returns a state of its own with the same content."""
        made = Store(self.level)
        for name, each in self.contexts.items():
            places = {number: set(found) for number, found in each.places.items()}
            made.contexts[name] = Context(
                dict(each.schemas), dict(each.ids), places, each.id_max, dict(each.guids)
            )
        made.subjects = {subject: dict(versions) for subject, versions in self.subjects.items()}
        made.configs, made.modes = dict(self.configs), dict(self.modes)
        made.referrers = {place: set(by) for place, by in self.referrers.items()}
        return made

    def context(self, name: str) -> Context:
        return self.contexts.get(name) or Context()

    def versions(self, subject: str, *, deleted: bool = False) -> list[Version]:
        """Returns a subject's versions in ascending order."""
        found = self.subjects.get(subject, {})
        return [found[v] for v in sorted(found) if deleted or not found[v].deleted]

    def listed(self, prefix: str, *, deleted: bool = False) -> Iterator[str]:
        """Yields the subjects with a prefix that have versions, sorted."""
        for subject in sorted(self.subjects):
            if subject.startswith(prefix) and self.versions(subject, deleted=deleted):
                yield subject

    def apply(self, change: Change) -> None:
        """Takes over a record. The same record may come again."""
        match change:
            case SchemaRecord(value=None):
                self._forget(change.subject, change.version)
            case SchemaRecord(value=Version() as version):
                self._put(version)
            case ConfigRecord():
                _set(self.configs, change.subject, change.value)
            case ModeRecord():
                _set(self.modes, change.subject, change.mode)
            case DeleteSubject():
                for version in self.versions(change.subject):
                    if version.version <= change.version:
                        self._put(_deleted(version))
            case ClearSubject():
                for version in self.versions(change.subject, deleted=True):
                    if version.deleted:
                        self._forget(change.subject, version.version)
            case ContextRecord():
                self.contexts.setdefault(change.context, Context())

    def _put(self, version: Version) -> None:
        context = self.contexts.setdefault(context_of(version.subject), Context())
        place = (version.subject, version.version)
        old = self.subjects.get(version.subject, {}).get(version.version)
        if old is not None and (old.id, old.schema) != (version.id, version.schema):
            self._forget(*place)
        if not context.places.get(version.id):
            context.schemas[version.id] = version.schema
            context.ids[version.schema.identity] = version.id
            context.guids[version.schema.guid] = version.id
        context.id_max = max(context.id_max, version.id)
        context.places.setdefault(version.id, set()).add(place)
        self.subjects.setdefault(version.subject, {})[version.version] = version
        for target in _targets(version):
            self.referrers.setdefault(target, set()).add(place)

    def _forget(self, subject: str, number: int) -> None:
        versions = self.subjects.get(subject, {})
        version = versions.pop(number, None)
        if version is None:
            return
        if not versions:
            del self.subjects[subject]
        places = self.context(context_of(subject)).places
        places.get(version.id, set()).discard((subject, number))
        for target in _targets(version):
            self.referrers.get(target, set()).discard((subject, number))

    def referring(self, version: Version, *, deleted: bool = False) -> list[Version]:
        """Returns the versions that refer to one, by their names and numbers."""
        places = self.referrers.get((version.subject, version.version), set())
        found = [self.subjects[subject][number] for subject, number in sorted(places)]
        return [each for each in found if deleted or not each.deleted]


def _targets(version: Version) -> list[tuple[str, int]]:
    """Returns the versions to which a version's schema refers."""
    return [(qualified(each.subject, version.subject), each.version) for each in version.schema.references]


def _deleted(version: Version) -> Version:
    return Version(
        subject=version.subject, version=version.version, id=version.id, schema=version.schema, deleted=True
    )


def _set(values: dict[str | None, Any], subject: str | None, value: Any) -> None:
    if value is None:
        values.pop(subject, None)
    else:
        values[subject] = value
