"""The operations of the registry on its state: what a request answers, and which changes it makes. Pure: no topic, no HTTP, no clock.

Reads are functions of a Store. A write returns the changes and the answer; its caller writes the changes to the topic and applies
them. Words and codes of errors are Confluent's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from klamm.registry import contracts, errors
from klamm.registry.compatibility import LEVELS, Earlier, reasons
from klamm.registry.model import Reference, Schema, Version
from klamm.registry.records import (
    Change,
    ConfigRecord,
    ContextRecord,
    ModeRecord,
    SchemaRecord,
)
from klamm.registry.schemas import Parsed, read
from klamm.registry.store import Store
from klamm.registry.subjects import DEFAULT, GLOBAL, context_of, is_context, qualified, split

MODES: Final = ("READWRITE", "READONLY", "READONLY_OVERRIDE", "IMPORT", "FORWARD")
VERSION_MAX: Final = 2**31 - 1
LATEST: Final = -1
"""Stands for the newest version that is not deleted."""
ID_MAX: Final = 2**31 - 1
"""Ids have four bytes before each value."""
_KINDS: Final = {str: "a text", bool: "true or false", dict: "an object"}
CONFIG_KEYS: Final[dict[str, type]] = {
    "alias": str, "aliasForDeks": str, "normalize": bool, "validateFields": bool, "validateNewSchemas": bool, "validateRules": bool,
    "compatibilityPolicy": str, "compatibilityGroup": str, **dict.fromkeys(contracts.SETTINGS, dict),
}  # fmt: skip
"""The settings of a configuration beside the level. Those of fields, rules, policy and DEKs have no effect."""


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
    """Returns the configuration in force for a subject: its own, its context's, or that of all contexts."""
    found: dict[str, Any] = {"compatibilityLevel": store.level}
    for place in _places(subject):
        found |= {k: v for k, v in (store.configs.get(place) or {}).items() if v is not None}
    return found


def mode_of(store: Store, subject: str | None) -> str:
    """Returns the mode in force for a subject. READONLY_OVERRIDE without a subject beats every other."""
    if "READONLY_OVERRIDE" in {store.modes.get(None), store.modes.get(GLOBAL)}:
        return "READONLY_OVERRIDE"
    found = "READWRITE"
    for place in _places(subject):
        found = store.modes.get(place, found)
    return found


def _places(subject: str | None) -> list[str | None]:
    """Returns where a setting of a subject may be, the strongest last. Without a subject it is that of the default context."""
    context = context_of(subject)
    places: list[str | None] = [GLOBAL, None if context == DEFAULT else f":{context}:"]
    return places if subject in places else [*places, subject]


def aliased(store: Store, subject: str) -> str:
    """Returns the subject for which a name stands: in its own context, unless the alias names another."""
    alias = (store.configs.get(subject) or {}).get("alias")
    return qualified(str(alias), subject) if alias else subject


def put_config(store: Store, subject: str | None, given: Mapping[str, Any]) -> Written:
    """Sets levels and more of a subject, a context, or all."""
    level = given.get("compatibility", given.get("compatibilityLevel"))
    if level is not None and level not in LEVELS:
        raise errors.invalid_level(", ".join(LEVELS))
    demand_writable(store, subject)
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
    demand_writable(store, subject)
    return Written(
        answer=dict(old or config_of(store, None)), changes=[ConfigRecord(subject=subject, value=None)]
    )


def put_mode(store: Store, subject: str | None, mode: str, *, force: bool) -> Written:
    """Sets the mode of a subject, a context, or all."""
    if mode not in MODES or (mode == "READONLY_OVERRIDE" and subject not in {None, GLOBAL}):
        raise errors.invalid_mode(", ".join(MODES))
    if mode == "IMPORT" and not force and mode_of(store, subject) != "IMPORT":
        if subject in {None, GLOBAL}:
            there = next(store.listed("", deleted=True), None)
        elif is_context(subject):
            there = next(store.listed(subject, deleted=True), None)
        else:
            there = subject if store.versions(subject) else None
        if there is not None:
            raise errors.not_permitted("Cannot import since found existing subjects")
    return Written(answer={"mode": mode}, changes=[ModeRecord(subject=subject, mode=mode)])


def delete_mode(store: Store, subject: str | None) -> Written:
    """Takes away the mode of a subject or a context; answers what it was."""
    old = store.modes.get(subject)
    if old is None:
        if subject is not None:
            raise errors.subject_not_found(subject)
        old = "READWRITE"
    return Written(answer={"mode": old}, changes=[ModeRecord(subject=subject, mode=None)])


def demand_writable(store: Store, subject: str | None) -> None:
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


def numbers_of(
    store: Store, subject: str, *, deleted: bool = False, only: bool = False, negative: bool = False
) -> list[int]:
    """Returns the numbers of a subject's versions. `only`: of softly deleted ones; `negative`: of all, below 0 for those. Raises
    RegistryError 40401.
    """
    found = versions_of(store, subject, deleted=deleted or only)
    if negative:
        every = versions_of(store, subject, deleted=True)
        return [-each.version if each.deleted else each.version for each in every]
    return [each.version for each in found if each.deleted or not only]


def version_of(store: Store, subject: str, wanted: str, *, deleted: bool = False) -> Version:
    """Returns a version by its number, `latest` or -1. Raises RegistryError 40401, 40402, 42202."""
    number = number_of(wanted)
    found = versions_of(store, subject, deleted=deleted)
    if number is None:
        return found[-1]
    for each in found:
        if each.version == number:
            return each
    raise errors.version_not_found(wanted)


def number_of(wanted: str) -> int | None:
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
    """Returns the version of a subject that has this schema, which may lack the metadata and rules that versions hand on. Raises
    RegistryError 40401, 40403.
    """
    subject = aliased(store, subject)
    there = versions_of(store, subject, deleted=deleted)
    tried = [given.schema]
    if live := store.versions(subject):
        tried.append(contracts.completed(given.schema, live[-1].schema, config_of(store, subject)))
    for each in tried:
        schema, _ = parsed(store, each, subject, normalize=given.normalize)
        found = _same(store, there, schema, given)
        if found is not None:
            return found
    raise errors.schema_not_found()


def latest_with(store: Store, subject: str, properties: Mapping[str, str], *, deleted: bool) -> Version:
    """Returns the newest version of a subject whose metadata have these properties. Raises RegistryError 40401, 40403."""
    for each in reversed(versions_of(store, subject, deleted=deleted)):
        there = (each.schema.metadata or {}).get("properties") or {}
        if all(there.get(key) == value for key, value in properties.items()):
            return each
    raise errors.schema_not_found()


def _same(store: Store, there: Sequence[Version], schema: Schema, given: Registration) -> Version | None:
    """Returns the newest version with the same schema. With `normalize`, versions that were registered without it count, too."""
    for each in reversed(there):
        if each.schema.identity == schema.identity:
            return each
    wanted = contracts.identity(schema)
    for each in reversed(there):
        if each.schema.kind == schema.kind:
            normal = each.schema
            if given.normalize:
                normal, _ = parsed(store, each.schema, each.subject, normalize=True)
            if contracts.identity(normal) == wanted:
                return each
    return None


# ---- schemas


def parsed(
    store: Store, schema: Schema, subject: str, *, normalize: bool = False, strict: bool = False
) -> tuple[Schema, Parsed]:
    """Reads a schema with all that it refers to; a new one strictly. Its references name the versions that they mean. Raises
    RegistryError 42201.
    """
    found = _gathered(store, schema, subject)
    texts = tuple((name, version.schema.text) for name, version in found.items())
    references = tuple(
        replace(each, version=_target(store, each, subject).version) for each in schema.references
    )
    return read(replace(schema, references=references), texts, normalize=normalize, strict=strict)


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
        version = _target(store, reference, subject)
        _gather(store, version.schema, version.subject, found, (*above, reference))
        found[reference.name] = version


def _target(store: Store, reference: Reference, subject: str) -> Version:
    """Returns the version that a reference of a subject's schema means: -1 stands for the newest. Raises RegistryError 42201."""
    where = qualified(reference.subject, subject)
    if reference.version == LATEST:
        version = next(reversed(store.versions(where)), None)
    else:
        version = store.subjects.get(where, {}).get(reference.version)
    if version is None:
        raise errors.invalid_schema(
            f"Invalid schema: no schema reference found for subject {where!r} and version {reference.version}"
        )
    return version


def incompatibilities(
    store: Store, subject: str, given: Registration, against: Sequence[Version]
) -> list[str]:
    """Returns why a schema would break the level of its subject beside these versions; an empty list: it would not."""
    schema, tree = parsed(store, given.schema, subject, normalize=given.normalize, strict=True)
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
    config = config_of(store, subject)
    normalize = given.normalize or bool(config.get("normalize"))
    given = replace(given, normalize=normalize)
    there = store.versions(subject)
    if not any(config.get(key) for key in contracts.SETTINGS) and (
        same := _there(store, subject, there, given)
    ):
        return _found(same)
    context, mode = context_of(subject), mode_of(store, subject)
    if mode.startswith("READONLY"):
        raise errors.not_permitted(f"Subject {subject} in context {context} is in read-only mode")
    if given.id is not None:
        if mode != "IMPORT":
            raise errors.not_permitted(f"Subject {subject} in context {context} is not in import mode")
        return _imported(store, subject, given)
    if mode != "READWRITE":
        raise errors.not_permitted(f"Subject {subject} in context {context} is not in read-write mode")
    given = replace(
        given, schema=contracts.completed(given.schema, there[-1].schema if there else None, config)
    )
    if same := _there(store, subject, there, given):
        return _found(same)
    schema, tree = parsed(store, given.schema, subject, normalize=normalize, strict=True)
    if why := _reasons(store, subject, schema, tree, there):
        raise errors.incompatible(
            f'Schema being registered is incompatible with an earlier schema for subject "{subject}", details: '
            f"[{', '.join(why)}]"
        )
    return _added(store, subject, schema, given.version)


def _there(store: Store, subject: str, there: Sequence[Version], given: Registration) -> Version | None:
    """Returns the version that has a schema already, and the id and number with which it is imported."""
    if not given.schema.text.strip():
        return None
    schema, _ = parsed(store, given.schema, subject, normalize=given.normalize)
    if given.id is None:
        return _same(store, there, schema, given)
    for each in there:
        if (
            each.id == given.id
            and given.version in {None, each.version}
            and _same(store, [each], schema, given)
        ):
            return each
    return None


def _found(version: Version) -> Written:
    return Written(answer={"id": version.id, "guid": version.schema.guid})


def _added(store: Store, subject: str, schema: Schema, wanted: int | None) -> Written:
    number = max((v.version for v in store.versions(subject, deleted=True)), default=0) + 1
    if wanted not in {None, number}:
        raise errors.invalid_schema(f"Version {wanted} is not one more than previous version {number - 1}")
    schema = contracts.numbered(schema, number)
    name = context_of(subject)
    context = store.context(name)
    found = context.ids.get(schema.identity) or max(context.id_max, store.attempted.get(name, 0)) + 1
    if found > ID_MAX:
        raise errors.not_permitted(f"The ids of context {name} are used up: {found - 1} is one")
    return _put(store, Version(subject=subject, version=number, id=found, schema=schema))


def _imported(store: Store, subject: str, given: Registration) -> Written:
    assert given.id is not None, "the caller looked"
    schema, _ = parsed(store, given.schema, subject, normalize=given.normalize)
    context = store.context(context_of(subject))
    if context.places.get(given.id) and context.schemas[given.id].identity != schema.identity:
        raise errors.not_permitted(
            f"Overwrite new schema with id {given.id} in context {context_of(subject)} is not permitted."
        )
    numbers = [v.version for v in store.versions(subject, deleted=True)]
    number = given.version if given.version is not None else max(numbers, default=0) + 1
    return _put(store, Version(subject=subject, version=number, id=given.id, schema=schema))


def _put(store: Store, version: Version) -> Written:
    changes: list[Change] = [SchemaRecord(subject=version.subject, version=version.version, value=version)]
    context = context_of(version.subject)
    if context not in store.contexts:
        changes.insert(0, ContextRecord(context=context))
    return Written(answer={"id": version.id, "guid": version.schema.guid}, changes=changes)
