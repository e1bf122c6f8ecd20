"""The operations of the registry on its state: what a request answers, and which changes it makes. Pure: no topic, no HTTP, no clock.

Reads are functions of a Store. A write returns the changes and the answer; its caller writes the changes to the topic and applies
them. Words and codes of errors are Confluent's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from klamm.registry import errors
from klamm.registry.compatibility import LEVELS, Earlier, reasons
from klamm.registry.model import Reference, Schema, Version
from klamm.registry.records import (
    Change,
    ConfigRecord,
    ContextRecord,
    DeleteSubject,
    ModeRecord,
    SchemaRecord,
)
from klamm.registry.schemas import Parsed, read
from klamm.registry.store import Store
from klamm.registry.subjects import DEFAULT, context_of, is_context, qualified, split

MODES: Final = ("READWRITE", "READONLY", "READONLY_OVERRIDE", "IMPORT", "FORWARD")
VERSION_MAX: Final = 2**31 - 1
_KINDS: Final = {str: "a text", bool: "true or false", dict: "an object"}
CONFIG_KEYS: Final[dict[str, type]] = {
    "alias": str, "normalize": bool, "validateFields": bool, "validateRules": bool, "compatibilityPolicy": str,
    "compatibilityGroup": str, "defaultMetadata": dict, "overrideMetadata": dict, "defaultRuleSet": dict, "overrideRuleSet": dict,
}  # fmt: skip
"""The settings of a configuration beside the level. `alias`, `normalize` and `compatibilityGroup` have an effect."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """The answer of a write, and the changes that must be in the topic before it is given."""

    answer: Any
    changes: Sequence[Change] = field(default=())


Write = Callable[[Store], Written]


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """A schema that somebody sends, with an id and a version where it is imported."""

    schema: Schema
    id: int | None = None
    version: int | None = None
    normalize: bool = False


# ---- levels and modes


def config_of(store: Store, subject: str | None) -> Mapping[str, Any]:
    """Returns the configuration in force for a subject: its own, its context's, or that of all."""
    found: dict[str, Any] = {"compatibilityLevel": store.level}
    for place in _places(subject):
        found |= {k: v for k, v in (store.configs.get(place) or {}).items() if v is not None}
    return found


def mode_of(store: Store, subject: str | None) -> str:
    """Returns the mode in force for a subject. READONLY_OVERRIDE of all beats every other."""
    if store.modes.get(None) == "READONLY_OVERRIDE":
        return "READONLY_OVERRIDE"
    found = "READWRITE"
    for place in _places(subject):
        found = store.modes.get(place, found)
    return found


def _places(subject: str | None) -> list[str | None]:
    """Returns where a setting of a subject may be, the strongest last."""
    context = context_of(subject)
    places: list[str | None] = [None]
    if context != DEFAULT:
        places.append(f":{context}:")
    return places if subject is None else [*places, subject]


def aliased(store: Store, subject: str) -> str:
    """Returns the subject for which a name stands."""
    alias = (store.configs.get(subject) or {}).get("alias")
    return str(alias) if alias else subject


def put_config(store: Store, subject: str | None, given: Mapping[str, Any]) -> Written:
    """Sets levels and more of a subject, a context, or all."""
    level = given.get("compatibility", given.get("compatibilityLevel"))
    if level is not None and level not in LEVELS:
        raise errors.invalid_level(", ".join(LEVELS))
    _demand_writable(store, subject)
    value = dict(store.configs.get(subject) or {})
    if level is not None:
        value["compatibilityLevel"] = level
    for key, kind in CONFIG_KEYS.items():
        if key in given:
            if given[key] is not None and not isinstance(given[key], kind):
                raise errors.RegistryError(422, f"{key} must be {_KINDS[kind]}, not {given[key]!r}")
            value[key] = given[key]
    value = {key: each for key, each in value.items() if each is not None}
    shown = {
        key: each
        for key, each in given.items()
        if each is not None and key in {"compatibility", *CONFIG_KEYS}
    }
    return Written(answer=shown, changes=[ConfigRecord(subject=subject, value=value)])


def delete_config(store: Store, subject: str | None) -> Written:
    """Takes away the configuration of a subject, a context, or all; answers what it was."""
    old = store.configs.get(subject)
    if old is None and subject is not None:
        raise errors.subject_not_found(subject)
    _demand_writable(store, subject)
    return Written(
        answer=dict(old or config_of(store, None)), changes=[ConfigRecord(subject=subject, value=None)]
    )


def put_mode(store: Store, subject: str | None, mode: str, *, force: bool) -> Written:
    """Sets the mode of a subject, a context, or all."""
    if mode not in MODES or (mode == "READONLY_OVERRIDE" and subject is not None):
        raise errors.invalid_mode(", ".join(MODES))
    if mode == "IMPORT" and not force and mode_of(store, subject) != "IMPORT":
        if subject is None:
            there = next(store.listed("", deleted=True), None)
        elif is_context(subject):
            there = next(store.listed(subject, deleted=True), None)
        else:
            there = subject if store.versions(subject) else None
        if there is not None:
            raise errors.not_permitted("Cannot import since found existing subjects")
    return Written(answer={"mode": mode}, changes=[ModeRecord(subject=subject, mode=mode)])


def delete_mode(store: Store, subject: str) -> Written:
    """Takes away the mode of a subject or a context; answers what it was."""
    old = store.modes.get(subject)
    if old is None:
        raise errors.subject_not_found(subject)
    return Written(answer={"mode": old}, changes=[ModeRecord(subject=subject, mode=None)])


def _demand_writable(store: Store, subject: str | None) -> None:
    mode = mode_of(store, subject)
    if mode.startswith("READONLY"):
        what = f"Subject {subject}" if subject is not None else "The registry"
        raise errors.not_permitted(f"{what} is in read-only mode")


# ---- reads


def versions_of(store: Store, subject: str, *, deleted: bool = False) -> list[Version]:
    """Returns a subject's versions. Raises RegistryError 40401."""
    found = store.versions(aliased(store, subject), deleted=deleted)
    if not found:
        raise errors.subject_not_found(subject)
    return found


def version_of(store: Store, subject: str, wanted: str, *, deleted: bool = False) -> Version:
    """Returns a version by its number, `latest` or -1. Raises RegistryError 40401, 40402, 42202."""
    number = _number(wanted)
    found = versions_of(store, subject, deleted=deleted)
    if number is None:
        return found[-1]
    for each in found:
        if each.version == number:
            return each
    raise errors.version_not_found(wanted)


def _number(wanted: str) -> int | None:
    """Returns the number of a version; None: the newest."""
    if wanted in {"latest", "-1"}:
        return None
    if not wanted.isascii() or not wanted.isdigit() or not 1 <= int(wanted) <= VERSION_MAX:
        raise errors.invalid_version(wanted)
    return int(wanted)


def schema_by_id(store: Store, id: int, subject: str | None) -> Schema:
    """Returns the schema of an id, in the context that `context_of_id` finds. Raises RegistryError 40403."""
    return store.context(context_of_id(store, id, subject)).schemas[id]


def context_of_id(store: Store, id: int, subject: str | None) -> str:
    """Returns the context in which an id is meant: a subject's own, else the default one. A subject without a context may also
    be in another, if that one's subject of this name has the id, and the default one's has not. Raises RegistryError 40403.
    """
    own = context_of(subject)
    if subject and own == DEFAULT:
        plain = split(subject)[1]
        for name in (DEFAULT, *sorted(c for c in store.contexts if c != DEFAULT)):
            there = plain if name == DEFAULT else f":{name}:{plain}"
            if plain and any(place[0] == there for place in store.context(name).places.get(id, ())):
                return name
    if not store.context(own).places.get(id):
        raise errors.schema_not_found(id)
    return own


def ids_of_guid(store: Store, guid: str) -> list[tuple[str, int]]:
    """Returns the contexts that have a schema, each with its id. Raises RegistryError 40403."""
    found = [
        (name, number)
        for name, context in sorted(store.contexts.items())
        if (number := context.guids.get(guid.lower())) is not None and context.places.get(number)
    ]
    if not found:
        raise errors.schema_not_found(guid)
    return found


def places_of(store: Store, id: int, subject: str | None, *, deleted: bool) -> list[Version]:
    """Returns the versions with an id. Raises RegistryError 40403."""
    places = store.context(context_of_id(store, id, subject)).places[id]
    found = [store.subjects[name][number] for name, number in sorted(places)]
    return [each for each in found if deleted or not each.deleted]


def lookup(store: Store, subject: str, given: Registration, *, deleted: bool) -> Version:
    """Returns the version of a subject that has this schema. Raises RegistryError 40401, 40403."""
    subject = aliased(store, subject)
    there = versions_of(store, subject, deleted=deleted)
    schema, _ = parsed(store, given.schema, subject, normalize=given.normalize)
    found = _same(store, there, schema, given)
    if found is None:
        raise errors.schema_not_found()
    return found


def _same(store: Store, there: Sequence[Version], schema: Schema, given: Registration) -> Version | None:
    """Returns the newest version with the same schema. With `normalize`, versions that were registered without it count, too."""
    for each in reversed(there):
        if each.schema.identity == schema.identity:
            return each
    if given.normalize:
        for each in reversed(there):
            if each.schema.kind == schema.kind:
                normal, _ = parsed(store, each.schema, each.subject, normalize=True)
                if normal.identity == schema.identity:
                    return each
    return None


# ---- schemas


def parsed(store: Store, schema: Schema, subject: str, *, normalize: bool = False) -> tuple[Schema, Parsed]:
    """Reads a schema with all that it refers to. Raises RegistryError 42201."""
    found = _gathered(store, schema, subject)
    texts = tuple((name, version.schema.text) for name, version in found.items())
    return read(schema, texts, normalize=normalize)


def referred(store: Store, schema: Schema, subject: str) -> set[str]:
    """Returns the subjects to which a schema refers, also through others. Raises RegistryError 42201."""
    return {version.subject for version in _gathered(store, schema, subject).values()}


def _gathered(store: Store, schema: Schema, subject: str) -> dict[str, Version]:
    """Returns all that a schema refers to, by the names it uses, inner ones first. Raises RegistryError 42201."""
    found: dict[str, Version] = {}
    _gather(store, schema, subject, found, ())
    return found


def _gather(
    store: Store, schema: Schema, subject: str, found: dict[str, Version], above: tuple[Reference, ...]
) -> None:
    for reference in schema.references:
        if reference in above:
            raise errors.invalid_schema(f"Invalid schema: reference {reference.name} leads back to itself")
        if reference.name in found:
            continue
        where = qualified(reference.subject, subject)
        version = store.subjects.get(where, {}).get(reference.version)
        if version is None:
            raise errors.invalid_schema(
                f"Invalid schema: no schema reference found for subject {where!r} and version {reference.version}"
            )
        _gather(store, version.schema, where, found, (*above, reference))
        found[reference.name] = version


def incompatibilities(
    store: Store, subject: str, given: Registration, against: Sequence[Version]
) -> list[str]:
    """Returns why a schema would break the level of its subject beside these versions; an empty list: it would not."""
    schema, tree = parsed(store, given.schema, subject, normalize=given.normalize)
    return _reasons(store, subject, schema, tree, against)


def _reasons(
    store: Store, subject: str, schema: Schema, tree: Parsed, against: Sequence[Version]
) -> list[str]:
    config = config_of(store, subject)
    if config["compatibilityLevel"] == "NONE":
        return []
    group = config.get("compatibilityGroup")
    if group:
        mine = _property(schema, group)
        against = [each for each in against if _property(each.schema, group) == mine]
    earlier = [
        Earlier(version=v.version, text=v.schema.text, parsed=parsed(store, v.schema, v.subject)[1])
        for v in (against if config["compatibilityLevel"].endswith("_TRANSITIVE") else against[-1:])
    ]
    return reasons(tree, earlier, config["compatibilityLevel"])


def _property(schema: Schema, name: str) -> Any:
    return ((schema.metadata or {}).get("properties") or {}).get(name)


def register(store: Store, subject: str, given: Registration) -> Written:
    """Registers a schema, or finds it. Raises RegistryError 409, 42201, 42205."""
    subject = aliased(store, subject)
    normalize = given.normalize or bool(config_of(store, subject).get("normalize"))
    given = replace(given, normalize=normalize)
    schema, tree = parsed(store, given.schema, subject, normalize=normalize)
    there = store.versions(subject)
    if given.id is None and (same := _same(store, there, schema, given)) is not None:
        return Written(answer={"id": same.id, "guid": same.schema.guid})
    context = context_of(subject)
    mode = mode_of(store, subject)
    if given.id is not None:
        if mode != "IMPORT":
            raise errors.not_permitted(f"Subject {subject} in context {context} is not in import mode")
        return _imported(store, subject, schema, given)
    if mode != "READWRITE":
        raise errors.not_permitted(f"Subject {subject} in context {context} is not in read-write mode")
    if why := _reasons(store, subject, schema, tree, there):
        raise errors.incompatible(
            f"Schema being registered is incompatible with an earlier schema for subject {subject!r}, details: "
            f"[{', '.join(why)}]"
        )
    found = store.context(context)
    number = found.ids.get(schema.identity) or found.id_max + 1
    return _added(store, subject, schema, number, given.version)


def _added(store: Store, subject: str, schema: Schema, id: int, wanted: int | None) -> Written:
    numbers = [v.version for v in store.versions(subject, deleted=True)]
    number = wanted if wanted is not None and wanted > 0 else max(numbers, default=0) + 1
    if wanted is not None and wanted > 0 and wanted != max(numbers, default=0) + 1:
        raise errors.not_permitted(
            f"Version {wanted} is not one more than previous version {max(numbers, default=0)}"
        )
    version = Version(subject=subject, version=number, id=id, schema=schema)
    changes: list[Change] = [SchemaRecord(subject=subject, version=number, value=version)]
    context = context_of(subject)
    if context not in store.contexts:
        changes.insert(0, ContextRecord(context=context))
    return Written(answer={"id": id, "guid": schema.guid}, changes=changes)


def _imported(store: Store, subject: str, schema: Schema, given: Registration) -> Written:
    assert given.id is not None, "the caller looked"
    context = store.context(context_of(subject))
    if context.places.get(given.id) and context.schemas[given.id].identity != schema.identity:
        raise errors.not_permitted(
            f"Overwrite new schema with id {given.id} in context {context_of(subject)} is not permitted."
        )
    numbers = [v.version for v in store.versions(subject, deleted=True)]
    number = given.version if given.version is not None and given.version > 0 else max(numbers, default=0) + 1
    version = Version(subject=subject, version=number, id=given.id, schema=schema)
    changes: list[Change] = [SchemaRecord(subject=subject, version=number, value=version)]
    if context_of(subject) not in store.contexts:
        changes.insert(0, ContextRecord(context=context_of(subject)))
    return Written(answer={"id": given.id, "guid": schema.guid}, changes=changes)


# ---- deletion


def delete_subject(store: Store, subject: str, *, permanent: bool) -> Written:
    """Deletes all versions of a subject; answers their numbers."""
    subject = aliased(store, subject)
    _demand_writable(store, subject)
    every = versions_of(store, subject, deleted=True)
    live = [v for v in every if not v.deleted]
    if permanent:
        if live:
            raise errors.not_soft_deleted(subject)
        for each in every:
            _demand_unreferenced(store, each)
        gone = [SchemaRecord(subject=subject, version=v.version, value=None) for v in every]
        return Written(answer=[v.version for v in every], changes=gone)
    if not live:
        raise errors.soft_deleted(subject)
    for each in live:
        _demand_unreferenced(store, each)
    changes: list[Change] = [DeleteSubject(subject=subject, version=live[-1].version)]
    if store.configs.get(subject) is not None:
        changes.append(ConfigRecord(subject=subject, value=None))
    if subject in store.modes:
        changes.append(ModeRecord(subject=subject, mode=None))
    return Written(answer=[v.version for v in live], changes=changes)


def delete_version(store: Store, subject: str, wanted: str, *, permanent: bool) -> Written:
    """Deletes a version; answers its number."""
    subject = aliased(store, subject)
    _demand_writable(store, subject)
    number = _number(wanted)
    if number is None and not permanent:
        version = version_of(store, subject, wanted)
    else:
        version = version_of(store, subject, wanted, deleted=True)
    if permanent:
        if not version.deleted:
            raise errors.version_not_soft_deleted(subject, version.version)
        _demand_unreferenced(store, version)
        change = SchemaRecord(subject=subject, version=version.version, value=None)
    else:
        if version.deleted:
            raise errors.version_soft_deleted(subject, version.version)
        _demand_unreferenced(store, version)
        change = SchemaRecord(subject=subject, version=version.version, value=replace(version, deleted=True))
    return Written(answer=version.version, changes=[change])


def _demand_unreferenced(store: Store, version: Version) -> None:
    by = store.referrers.get((version.subject, version.version))
    if by:
        shown = ", ".join(f"{subject} version {number}" for subject, number in sorted(by))
        raise errors.reference_exists(version.subject, version.version, shown)


def referrers_of(store: Store, version: Version) -> list[int]:
    """Returns the ids of the schemas that refer to a version."""
    by = store.referrers.get((version.subject, version.version), set())
    return sorted({store.subjects[subject][number].id for subject, number in by})
