"""A state as the document of a YAML file, and back. Names the place of everything that is wrong."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NoReturn, TypeVar

from klamm.desired.state import KINDS, Entity, Reference, Schema, State, Topic, User
from klamm_base.errors import ConfigError
from klamm_broker.security.acl import Acl
from klamm_kafka.wire.acls import CLUSTER_NAME, AclOperation, AclPermissionType, PatternType, ResourceType

T = TypeVar("T")
_ENTITY: Final = {"user": "user", "client_id": "client-id", "ip": "ip"}
_MECHANISMS: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
_TYPES: Final = ("AVRO", "JSON", "PROTOBUF")
_LEVELS: Final = (
    "NONE", "BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE",
)  # fmt: skip
_NAME_OF: Final[dict[type, str]] = {dict: "a mapping", list: "a list", str: "text", int: "a whole number"}
DEFAULT_ITERATIONS: Final = 4096


def wrong(at: str, value: Any, right: str) -> NoReturn:
    """Raise ConfigError that names place, value and what would be right."""
    shown = json.dumps(value, ensure_ascii=False, default=str)
    raise ConfigError(f"{at}: {shown[:80]} must be {right}")


# ---- reading


def parse(document: Any, source: str) -> State:
    """Return the state of one document. Raises ConfigError."""
    if document is None:
        return State()
    sections = _typed(document, dict, source)
    _known(sections, KINDS, source)
    at = {kind: f"{source}: {kind}" for kind in KINDS}
    return State(
        given=frozenset(sections),
        topics=_each(sections.get("topics"), at["topics"], _topic),
        acls=frozenset(_acls(sections.get("acls"), at["acls"])),
        quotas=_quotas(sections.get("quotas"), at["quotas"]),
        users=_each(sections.get("users"), at["users"], _user),
        schemas=_each(sections.get("schemas"), at["schemas"], _schema),
        connectors=_each(sections.get("connectors"), at["connectors"], _connector),
    )


def merged(states: Iterable[tuple[str, State]]) -> State:
    """Return one state of several files. Raises ConfigError for a thing that two of them speak of."""
    given: set[str] = set()
    found: dict[str, dict[Any, Any]] = {kind: {} for kind in KINDS}
    acls: set[Acl] = set()
    for source, state in states:
        given |= state.given
        acls |= state.acls
        for kind in KINDS:
            things = getattr(state, kind) if kind != "acls" else {}
            for name, thing in things.items():
                if name in found[kind]:
                    raise ConfigError(f"{source}: {kind}: {_title(name)} is in another file, too")
                found[kind][name] = thing
    del found["acls"]
    return State(given=frozenset(given), acls=frozenset(acls), **found)


def _title(name: str | Entity) -> str:
    return name if isinstance(name, str) else entity_title(name)


def entity_title(entity: Entity) -> str:
    """Return an entity of quotas in words."""
    return ", ".join(f"{kind} {'(default)' if name is None else name}" for kind, name in entity)


def _typed(value: Any, kind: type, at: str) -> Any:
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        wrong(at, value, _NAME_OF[kind])
    return value


def _known(fields: Mapping[Any, Any], names: Iterable[str], at: str) -> None:
    known = list(names)
    for name in fields:
        if name not in known:
            wrong(at, name, f"one of {', '.join(known)}")


def _each(section: Any, at: str, parse_one: Callable[[Any, str], T]) -> dict[str, T]:
    things = _typed({} if section is None else section, dict, at)
    return {_name(n, at): parse_one(thing, f"{at}: {n}") for n, thing in things.items()}


def _name(name: Any, at: str) -> str:
    text = str(name) if isinstance(name, int) and not isinstance(name, bool) else name
    if not isinstance(text, str) or not text:
        wrong(at, name, "a name (text)")
    return text


def setting(value: Any, at: str) -> str:
    """Return a YAML scalar, or a list of them, as the text of a setting. Raises ConfigError."""
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case int() | float():
            return str(value)
        case list():
            return ",".join(setting(v, at) for v in value)
    wrong(at, value, "text, a number, true or false, or a list of them")


def _topic(value: Any, at: str) -> Topic:
    fields = _typed({} if value is None else value, dict, at)
    _known(fields, ("partitions", "replication_factor", "configs"), at)
    counts = {}
    for name in ("partitions", "replication_factor"):
        if name in fields:
            counts[name] = _typed(fields[name], int, f"{at}: {name}")
            if counts[name] < 1:
                wrong(f"{at}: {name}", counts[name], "1 or more")
    configs = _typed(fields.get("configs") or {}, dict, f"{at}: configs")
    return Topic(**counts, configs={str(k): setting(v, f"{at}: configs: {k}") for k, v in configs.items()})


def _acls(section: Any, at: str) -> Iterable[Acl]:
    for number, row in enumerate(_typed(section or [], list, at), 1):
        yield _acl(row, f"{at}: {number}")


def _acl(row: Any, at: str) -> Acl:
    fields = _typed(row, dict, at)
    _known(fields, ("principal", "host", "operation", "permission", "resource", "name", "pattern"), at)
    text = {k: _typed(v, str, f"{at}: {k}") for k, v in fields.items()}
    for needed in ("principal", "operation", "resource"):
        if needed not in text:
            raise ConfigError(f"{at}: {needed} is missing")
    if ":" not in text["principal"]:
        wrong(f"{at}: principal", text["principal"], "like User:NAME")
    resource = _member(ResourceType, text["resource"], f"{at}: resource")
    if "name" not in text and resource is not ResourceType.CLUSTER:
        raise ConfigError(f"{at}: name is missing")
    return Acl(
        resource_type=resource,
        resource_name=text.get("name", CLUSTER_NAME),
        pattern_type=_member(PatternType, text.get("pattern", "LITERAL"), f"{at}: pattern"),
        principal=text["principal"],
        host=text.get("host", "*"),
        operation=_member(AclOperation, text["operation"], f"{at}: operation"),
        permission=_member(AclPermissionType, text.get("permission", "ALLOW"), f"{at}: permission"),
    )


def _member(kind: Any, text: str, at: str) -> Any:
    name = text.upper().replace("-", "_")
    names = [m.name for m in kind if m.name not in {"UNKNOWN", "ANY", "MATCH"}]
    if name not in names:
        wrong(at, text, f"one of {', '.join(names)}")
    return kind[name]


def _quotas(section: Any, at: str) -> dict[Entity, dict[str, float]]:
    found: dict[Entity, dict[str, float]] = {}
    for number, row in enumerate(_typed(section or [], list, at), 1):
        place = f"{at}: {number}"
        fields = _typed(row, dict, place)
        _known(fields, (*_ENTITY, "limits"), place)
        entity = tuple(
            (kind, None if fields[n] is None else _name(fields[n], f"{place}: {n}"))
            for n, kind in _ENTITY.items()
            if n in fields
        )
        if not entity:
            raise ConfigError(f"{place}: name one of {', '.join(_ENTITY)}")
        if entity in found:
            raise ConfigError(f"{place}: {entity_title(entity)} has quotas above")
        limits = _typed(fields.get("limits"), dict, f"{place}: limits")
        for key, value in limits.items():
            if isinstance(value, bool) or not isinstance(value, int | float):
                wrong(f"{place}: limits: {key}", value, "a number")
        found[entity] = {str(k): float(v) for k, v in limits.items()}
    return found


def _user(value: Any, at: str) -> User:
    fields = _typed(value, dict, at)
    _known(fields, ("mechanisms", "password_env", "password_file"), at)
    mechanisms = _typed(
        fields.get("mechanisms") or {"SCRAM-SHA-512": DEFAULT_ITERATIONS}, dict, f"{at}: mechanisms"
    )
    _known(mechanisms, _MECHANISMS, f"{at}: mechanisms")
    for name, iterations in mechanisms.items():
        if not DEFAULT_ITERATIONS <= _typed(iterations, int, f"{at}: mechanisms: {name}") <= 16384:
            wrong(f"{at}: mechanisms: {name}", iterations, "4096 to 16384 iterations")
    places = {
        n: _typed(fields[n], str, f"{at}: {n}") for n in ("password_env", "password_file") if n in fields
    }
    if len(places) > 1:
        raise ConfigError(f"{at}: give password_env or password_file, not both")
    return User(mechanisms=dict(mechanisms), **places)


def _schema(value: Any, at: str) -> Schema:
    fields = _typed(value, dict, at)
    _known(fields, ("type", "schema", "references", "compatibility"), at)
    kind, level = fields.get("type", "AVRO"), fields.get("compatibility")
    if kind not in _TYPES:
        wrong(f"{at}: type", kind, f"one of {', '.join(_TYPES)}")
    if level is not None and level not in _LEVELS:
        wrong(f"{at}: compatibility", level, f"one of {', '.join(_LEVELS)}")
    text = fields.get("schema")
    if isinstance(text, dict | list) and kind != "PROTOBUF":
        text = json.dumps(text, ensure_ascii=False)
    references = [
        _reference(row, f"{at}: references: {n}")
        for n, row in enumerate(_typed(fields.get("references") or [], list, f"{at}: references"), 1)
    ]
    return Schema(
        type=kind,
        schema=_typed(text, str, f"{at}: schema"),
        references=tuple(references),
        compatibility=level,
    )


def _reference(row: Any, at: str) -> Reference:
    fields = _typed(row, dict, at)
    _known(fields, Reference._fields, at)
    for name in Reference._fields:
        if name not in fields:
            raise ConfigError(f"{at}: {name} is missing")
    version = _typed(fields["version"], int, at)
    if version < 1:  # the registry keeps a number for -1, so the file would never agree with it
        wrong(f"{at}: version", version, "a version from 1 on")
    return Reference(_typed(fields["name"], str, at), _typed(fields["subject"], str, at), version)


def _connector(value: Any, at: str) -> dict[str, str]:
    fields = _typed(value, dict, at)
    if "connector.class" not in fields:
        raise ConfigError(f"{at}: connector.class is missing")
    return {str(k): setting(v, f"{at}: {k}") for k, v in fields.items() if k != "name"}


# ---- writing


def as_document(state: State) -> dict[str, Any]:
    """Return the document of a state; sections that it does not speak of are left out."""
    entity_name = {kind: name for name, kind in _ENTITY.items()}
    sections: dict[str, Any] = {
        "topics": {name: _plain(topic) for name, topic in sorted(state.topics.items())},
        "acls": sorted((_acl_row(acl) for acl in state.acls), key=lambda row: list(row.values())),
        "quotas": [
            {**{entity_name[k]: n for k, n in entity}, "limits": dict(sorted(limits.items()))}
            for entity, limits in sorted(state.quotas.items(), key=lambda i: [(k, n or "") for k, n in i[0]])
        ],
        "users": {name: _plain(user) for name, user in sorted(state.users.items())},
        "schemas": {name: _plain(schema) for name, schema in sorted(state.schemas.items())},
        "connectors": {n: dict(sorted(config.items())) for n, config in sorted(state.connectors.items())},
    }
    return {kind: sections[kind] for kind in KINDS if kind in state.given}


def _plain(thing: Topic | User | Schema) -> dict[str, Any]:
    """Return the fields that say something."""
    fields = {name: getattr(thing, name) for name in thing.__dataclass_fields__}
    if "references" in fields:
        fields["references"] = [r._asdict() for r in fields["references"]]
    return {
        name: dict(sorted(value.items())) if isinstance(value, Mapping) else value
        for name, value in fields.items()
        if value not in (None, {}, [])
    }


def _acl_row(acl: Acl) -> dict[str, str]:
    return {
        "principal": acl.principal,
        "host": acl.host,
        "operation": acl.operation.name,
        "permission": acl.permission.name,
        "resource": acl.resource_type.name,
        "name": acl.resource_name,
        "pattern": acl.pattern_type.name,
    }
