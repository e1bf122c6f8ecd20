"""Copies subjects from one registry to another: versions with their references, ids, compatibility levels and modes.

Nothing is deleted at the target, and no version there is overwritten. With ids kept, a version has the id and the number of
its source: the subject is in the mode IMPORT while it is written. With ids translated, the target's registry gives
both. A schema that cannot be copied so is a `ConflictError`; the other ones go on.

Blocks; serves one thread. Raises RegistryError, RetriableError (a registry is away).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

from klamm_mirror.schemas.config import IDS, KEEP, TRANSLATE
from klamm_mirror.schemas.names import SubjectNames
from klamm_plugins.converters.references import Reference
from klamm_plugins.converters.registry import RegisteredSchema, RegistryError
from klamm_plugins.converters.registry_admin import (
    IMPORT,
    READONLY,
    READWRITE,
    RegistryAdmin,
    SubjectVersion,
)
from klamm_plugins.errors import RetriableError

log = logging.getLogger(__name__)

NONE: Final = "NONE"
"""The compatibility level that accepts all schemas."""
INCOMPATIBLE: Final = 409
DEPTH_MAX: Final = 20
"""References of references: more is a circle."""


class ConflictError(Exception):
    """A schema that the target's registry cannot have as the flow wants it."""


@dataclass(frozen=True, slots=True)
class Copied:
    """A version of a subject at the source, and the same schema at the target."""

    source: SubjectVersion
    target: SubjectVersion


@dataclass(frozen=True, slots=True)
class Missing:
    """A version that the target lacks. `schema` is the one to register: its references are those of the target."""

    source: SubjectVersion
    remote: str
    schema: RegisteredSchema


class SchemaCopier:
    """Copies one flow's schemas. `copied` are those that are known to be at the target, by subject and version."""

    def __init__(self, source: RegistryAdmin, target: RegistryAdmin, names: SubjectNames, ids: str) -> None:
        self.copied: dict[tuple[str, int], Copied] = {}
        self.registered = 0
        """The number of versions that were registered at the target."""
        self._source = source
        self._target = target
        self._names = names
        self._keep = ids == KEEP
        self._no_import: str | None = None
        """The reason why the target's registry cannot import ids, once it has shown that."""

    def subjects(self) -> list[str]:
        """Returns the source's subjects that the flow copies."""
        return [subject for subject in self._source.subjects() if self._names.selects(subject)]

    def copy(self, subject: str) -> int:
        """Copies what the target lacks of a subject. Returns how many versions were registered.

        Raises ConflictError for the first version that cannot be copied, after the other ones.
        """
        before, conflict = self.registered, None
        for number in self._source.versions(subject):
            try:
                self._copy_version(subject, number)
            except ConflictError as e:
                conflict = conflict or e
        if conflict is not None:
            raise conflict
        return self.registered - before

    def copy_deleted(self, subject: str, number: int) -> None:
        """Copies a version that the source has deleted, for records that still have it, and deletes the copy: its schema stays
        known by its id. Raises ConflictError.
        """
        if (subject, number) in self.copied:
            return
        source = self._source.version(subject, number, deleted=True)
        if source is None:
            return
        for reference in source.schema.references:
            self._copy_version(reference.subject, reference.version)
        missing = self._missing(source)
        there = self._target.find(missing.remote, missing.schema, source.contract, deleted=True)
        if there is None:
            before = self._target.versions(missing.remote)
            there = self._write(missing)
            if there.version not in before:
                self._target.delete_version(missing.remote, there.version)
        self.copied[subject, number] = Copied(source, there)

    def missing(self, subject: str) -> list[Missing]:
        """Returns the versions that `copy` would register, references first, and writes nothing. Raises ConflictError."""
        found: dict[tuple[str, int], Missing] = {}
        seen = set[tuple[str, int]]()

        def look(place: tuple[str, int]) -> bool:
            if place not in seen:
                seen.add(place)
                item = self._compare(*place, lambda r: not look((r.subject, r.version)))
                if isinstance(item, Missing):
                    found[place] = item
            return place in found

        for number in self._source.versions(subject):
            look((subject, number))
        return list(found.values())

    def sync_settings(self, subject: str) -> bool:
        """Gives the remote subject the compatibility level and the mode of its source. Returns True for a change.

        A subject without a level of its own has its registry's. Where the registries differ in that, the remote subject
        gets the source's: what was compatible stays so.
        """
        remote = self._names.remote(subject)
        wanted = self._source.level(subject)
        if wanted is None and self._source.level() != self._target.level():
            wanted = self._source.level()
        changed = self._sync_level(remote, wanted)
        return self._sync_mode(remote, self._source.mode(subject)) or changed

    def _sync_level(self, remote: str, wanted: str | None) -> bool:
        there = self._target.level(remote)
        if wanted == there or (wanted is None and there != NONE):
            return False  # only NONE is taken away: a mirror that was killed may have left it
        self._target.set_level(remote, wanted)
        return True

    def _sync_mode(self, remote: str, wanted: str | None) -> bool:
        there = self._target.mode(remote)
        if wanted == there or (wanted is None and there != IMPORT):
            return False  # only IMPORT is taken away: a mirror that was killed may have left it
        self._target.set_mode(remote, wanted)
        return True

    # ---- one version

    def _copy_version(self, subject: str, number: int, depth: int = 0) -> None:
        """Copies a version and all that it refers to."""
        if depth > DEPTH_MAX:
            raise ConflictError(
                f"{subject} version {number}: its references are nested too deeply, or form a circle"
            )

        def first(reference: Reference) -> bool:
            self._copy_version(reference.subject, reference.version, depth + 1)
            return True

        found = self._compare(subject, number, first)
        if isinstance(found, Missing):
            self.copied[subject, number] = Copied(found.source, self._write(found))
            self.registered += 1

    def _compare(
        self, subject: str, number: int, first: Callable[[Reference], bool]
    ) -> Missing | Copied | None:
        """Returns a version as it is at both sides, or what is missing at the target; None for a version that is gone.

        `first` is called with each reference before the version itself is looked at, and returns True when it is at the
        target. Raises ConflictError.
        """
        known = self.copied.get((subject, number))
        if known is not None:
            return known
        source = self._source.version(subject, number)
        if source is None:
            return None
        ready = [first(reference) for reference in source.schema.references]
        missing = self._missing(source)
        there = self._at_target(missing) if all(ready) else None
        if there is None:
            return missing
        copied = self.copied[subject, number] = Copied(source, there)
        return copied

    def _missing(self, source: SubjectVersion) -> Missing:
        """Returns a version as the target should have it. Its references must have been looked at."""
        references = tuple(self._moved(r) for r in source.schema.references)
        schema = replace(source.schema, references=references, version=None)
        return Missing(source, self._names.remote(source.subject), schema)

    def _moved(self, reference: Reference) -> Reference:
        """Returns a reference to the copy of what it refers to."""
        copied = self.copied.get((reference.subject, reference.version))
        version = reference.version if copied is None else copied.target.version
        return Reference(reference.name, self._names.remote(reference.subject), version)

    def _at_target(self, missing: Missing) -> SubjectVersion | None:
        """Returns the version of the remote subject that is this schema. Raises ConflictError."""
        source, remote, schema = missing.source, missing.remote, missing.schema
        if not self._keep:
            return self._target.find(remote, schema, source.contract)
        there = self._target.version(remote, source.version)
        if there is not None:
            if _same(there.schema, schema) and there.schema.id == schema.id:
                return there
            raise ConflictError(
                f"{remote} version {source.version} is at {self._target.url} already, as another schema or under another id: "
                f"id {there.schema.id}, the source's has id {schema.id}"
            )
        taken = self._target.by_id(schema.id) if _in_default_context(remote) else None
        if taken is not None and not _same(taken, schema):
            raise ConflictError(
                f"{source.subject} version {source.version}: id {schema.id} is another schema at {self._target.url}. "
                f"Ids cannot be kept there: translate them ({IDS}={TRANSLATE}), or use a registry without schemas of its own"
            )
        return None

    def _write(self, missing: Missing) -> SubjectVersion:
        with self._writable(missing.remote):
            write = self._import if self._keep else self._register
            return write(missing)

    def _import(self, missing: Missing) -> SubjectVersion:
        source, schema = missing.source, missing.schema
        if self._no_import is not None:
            raise ConflictError(self._no_import)
        given = self._target.import_version(missing.remote, source.version, schema, source.contract)
        there = self._target.version(missing.remote, source.version)
        if given != schema.id or there is None or there.schema.id != schema.id:
            self._no_import = (
                f"{self._target.url} gave {missing.remote} version {source.version} the id {given} instead of {schema.id}: it "
                f"cannot import ids. Translate them: {IDS}={TRANSLATE}"
            )
            raise ConflictError(self._no_import)
        return there

    def _register(self, missing: Missing) -> SubjectVersion:
        remote, schema, contract = missing.remote, missing.schema, missing.source.contract
        try:
            self._target.register(remote, schema, contract)
        except RegistryError as e:
            if e.code != INCOMPATIBLE:
                raise
            self._register_unchecked(remote, schema, contract)  # the source has accepted it
        found = self._target.find(remote, schema, contract)
        if found is None:
            raise ConflictError(
                f"{self._target.url} does not find the schema that it has just registered as {remote}"
            )
        return found

    def _register_unchecked(self, remote: str, schema: RegisteredSchema, contract: Mapping[str, Any]) -> None:
        """Registers a schema whatever the subject's level. Other tasks may do so at the same time."""
        own = self._target.level(remote)
        if own != NONE:  # where another task has just loosened it, that one puts it back
            self._target.set_level(remote, NONE)
        try:
            self._target.register(remote, schema, contract)
        except RegistryError as e:
            if e.code != INCOMPATIBLE or self._target.level(remote) == NONE:
                raise
            raise RetriableError(f"{remote}: its compatibility level was changed meanwhile. {e}") from e
        finally:
            if own != NONE:
                self._target.set_level(remote, own)

    @contextmanager
    def _writable(self, remote: str) -> Iterator[None]:
        """Puts a subject into the mode that writing needs, and back."""
        in_force = self._target.mode_in_force(remote)
        needed = IMPORT if self._keep else READWRITE
        if in_force == needed or (not self._keep and in_force != READONLY):
            yield
            return
        own = self._target.mode(remote)
        if in_force == READONLY and own is None:
            raise ConflictError(f"{self._target.url} is READONLY: {remote} cannot be written")
        self._target.set_mode(remote, needed)
        try:
            yield
        finally:
            self._target.set_mode(remote, own)


def _in_default_context(subject: str) -> bool:
    return not subject.startswith(":.")


def _same(one: RegisteredSchema, other: RegisteredSchema) -> bool:
    """Returns True for one schema. Registries may lay out JSON and Protobuf anew."""
    return (one.kind, one.references) == (other.kind, other.references) and _plain(one) == _plain(other)


def _plain(schema: RegisteredSchema) -> Any:
    if schema.kind == "PROTOBUF":
        return schema.text.split()
    try:
        return json.loads(schema.text)
    except ValueError:
        return schema.text
