"""The changes that lead from the state of a cluster to a wanted one.

What a file does not speak of stays as it is, unless its kind is pruned: then what the file's section leaves out goes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, TypeVar

from klamm.desired.document import entity_title
from klamm.desired.state import KINDS, Schema, State, Topic, User
from klamm_base.errors import KlammError
from klamm_base.redaction import HIDDEN, has_hidden_login, is_secret_name, without_logins

T = TypeVar("T")


class Action(StrEnum):
    CREATE = "create"
    CHANGE = "change"
    DELETE = "delete"
    UNCHANGED = "unchanged"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The work with one thing. `put` and `delete` are its settings; `wanted` is the thing itself."""

    action: Action
    kind: str
    name: Any
    said: str = ""
    put: Mapping[str, Any] = field(default_factory=dict)
    delete: tuple[str, ...] = ()
    partitions: int | None = None
    """The number that a topic gets; None: as many as it has."""
    wanted: Any = None

    @property
    def title(self) -> str:
        """The name of the thing in words."""
        return entity_title(self.name) if isinstance(self.name, tuple) else str(self.name)


def plan(current: State, wanted: State, *, prune: Collection[str] = ()) -> list[Change]:
    """Return a change for each thing that the file speaks of, and for each that is pruned, in the order to be done.

    Raises KlammError with all things that cannot become as they are wanted.
    """
    problems: list[str] = []
    found: list[Change] = []
    for kind in KINDS:
        if kind not in wanted.given:
            continue
        try:
            found += _FIND[kind](current, wanted, kind in prune)
        except KlammError as e:
            problems.append(str(e))
    if problems:
        raise KlammError("; ".join(problems))
    deletions = [c for c in found if c.action is Action.DELETE]
    return [c for c in found if c.action is not Action.DELETE] + deletions[::-1]


def _things(
    kind: str,
    current: Mapping[Any, T],
    wanted: Mapping[Any, T],
    compare: Callable[[Any, T | None, T], Change],
    *,
    prune: bool,
    order: Callable[[Mapping[Any, T]], list[Any]] = lambda things: sorted(things, key=str),
) -> Iterator[Change]:
    for name in order(wanted):
        yield compare(name, current.get(name), wanted[name])
    if prune:
        for name in order({n: thing for n, thing in current.items() if n not in wanted}):
            yield Change(action=Action.DELETE, kind=kind, name=name, wanted=current[name])


def _settings(
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    *,
    prune: bool,
    shown: Callable[[str, Any], str] = lambda _, v: str(v),
) -> tuple[dict[str, Any], tuple[str, ...], list[str]]:
    """Return what is set, what is deleted, and both in words."""
    put = {k: v for k, v in after.items() if before.get(k) != v}
    delete = tuple(sorted(before.keys() - after.keys())) if prune else ()
    said = [
        f"{k}: {shown(k, before[k])} -> {shown(k, v)}" if k in before else f"{k}={shown(k, v)}"
        for k, v in sorted(put.items())
    ]
    return put, delete, said + [f"{k}: {shown(k, before[k])} -> (default)" for k in delete]


# ---- topics


def _topics(current: State, wanted: State, prune: bool) -> list[Change]:
    problems: list[str] = []

    def compare(name: str, before: Topic | None, after: Topic) -> Change:
        if before is None:
            said = [f"partitions={after.partitions}"] if after.partitions else []
            said += [f"replication_factor={after.replication_factor}"] if after.replication_factor else []
            said += [f"{k}={v}" for k, v in sorted(after.configs.items())]
            return Change(action=Action.CREATE, kind="topics", name=name, said=", ".join(said), wanted=after)
        problems.extend(_impossible(name, before, after))
        put, delete, said = _settings(before.configs, after.configs, prune=prune)
        more = after.partitions if after.partitions != before.partitions else None
        if more is not None:
            said.insert(0, f"partitions: {before.partitions} -> {after.partitions}")
        action = Action.CHANGE if said else Action.UNCHANGED
        return Change(
            action=action,
            kind="topics",
            name=name,
            said=", ".join(said),
            put=put,
            delete=delete,
            partitions=more,
            wanted=after,
        )

    found = list(_things("topics", current.topics, wanted.topics, compare, prune=prune))
    if problems:
        raise KlammError("; ".join(problems))
    return found


def _impossible(name: str, before: Topic, after: Topic) -> Iterator[str]:
    if (
        after.partitions is not None
        and before.partitions is not None
        and after.partitions < before.partitions
    ):
        yield f"topic {name} has {before.partitions} partitions and cannot have {after.partitions}: partitions are never removed"
    if after.replication_factor not in (None, before.replication_factor):
        yield (
            f"topic {name} has {before.replication_factor} replicas, not {after.replication_factor}:"
            " `klamm kafka-reassign-partitions` moves replicas"
        )


# ---- what brokers keep beside topics


def _acls(current: State, wanted: State, prune: bool) -> list[Change]:
    there, to_be = ({acl: acl for acl in state.acls} for state in (current, wanted))

    def compare(acl: Any, before: Any, after: Any) -> Change:
        action = Action.CREATE if before is None else Action.UNCHANGED
        return Change(action=action, kind="acls", name=acl, wanted=acl)

    return list(_things("acls", there, to_be, compare, prune=prune))


def _quotas(current: State, wanted: State, prune: bool) -> list[Change]:
    def compare(entity: Any, before: Mapping[str, float] | None, after: Mapping[str, float]) -> Change:
        put, delete, said = _settings(before or {}, after, prune=prune, shown=lambda _, v: f"{v:.15g}")
        action = Action.UNCHANGED if not said else Action.CREATE if before is None else Action.CHANGE
        return Change(
            action=action,
            kind="quotas",
            name=entity,
            said=", ".join(said),
            put=put,
            delete=delete,
            wanted=after,
        )

    return list(_things("quotas", current.quotas, wanted.quotas, compare, prune=prune))


def _users(current: State, wanted: State, prune: bool) -> list[Change]:
    def compare(name: str, before: User | None, after: User) -> Change:
        there = before.mechanisms if before else {}
        put, delete, said = _settings(there, after.mechanisms, prune=prune)
        if put and after.password_env is None and after.password_file is None:
            raise KlammError(
                f"user {name} needs a password for {', '.join(sorted(put))}: password_env or password_file"
            )
        action = Action.UNCHANGED if not said else Action.CREATE if before is None else Action.CHANGE
        return Change(
            action=action, kind="users", name=name, said=", ".join(said), put=put, delete=delete, wanted=after
        )

    return list(_things("users", current.users, wanted.users, compare, prune=prune))


# ---- schemas and connectors


def same_schema(a: Schema, b: Schema) -> bool:
    """Return whether two schemas say the same; JSON may be written differently."""
    return (a.type, _meaning(a), a.references) == (b.type, _meaning(b), b.references)


def _meaning(schema: Schema) -> Any:
    if schema.type == "PROTOBUF":
        return schema.schema.split()
    try:
        return json.loads(schema.schema)
    except ValueError:
        return schema.schema


def _schemas(current: State, wanted: State, prune: bool) -> list[Change]:
    def compare(subject: str, before: Schema | None, after: Schema) -> Change:
        put: dict[str, Any] = {}
        said = []
        if before is None or not same_schema(before, after):
            put["schema"] = after
            said.append(f"{after.type} schema" if before is None else "a new version")
        level = before.compatibility if before else None
        if after.compatibility not in (None, level):
            put["compatibility"] = after.compatibility
            said.append(f"compatibility: {level or '(global)'} -> {after.compatibility}")
        action = Action.UNCHANGED if not put else Action.CREATE if before is None else Action.CHANGE
        return Change(
            action=action, kind="schemas", name=subject, said=", ".join(said), put=put, wanted=after
        )

    return list(
        _things("schemas", current.schemas, wanted.schemas, compare, prune=prune, order=_referenced_first)
    )


def _referenced_first(schemas: Mapping[str, Schema]) -> list[str]:
    """Return subjects by name, but each behind those that it refers to: a registry wants these first."""
    ordered: dict[str, None] = {}

    def add(subject: str, above: frozenset[str]) -> None:
        for reference in sorted(schemas[subject].references):
            if reference.subject in schemas and reference.subject not in above | ordered.keys():
                add(reference.subject, above | {reference.subject})
        ordered[subject] = None

    for subject in sorted(schemas):
        if subject not in ordered:
            add(subject, frozenset({subject}))
    return list(ordered)


def _connectors(current: State, wanted: State, prune: bool) -> list[Change]:
    def compare(name: str, before: Mapping[str, str] | None, after: Mapping[str, str]) -> Change:
        there = {k: v for k, v in (before or {}).items() if k != "name"}
        told = {k: after[k] if k in after and hides(v, after[k]) else v for k, v in there.items()}
        _, _, said = _settings(told, after, prune=True, shown=shown)
        if before is None:
            hidden = sorted(k for k, v in after.items() if v == HIDDEN or has_hidden_login(v))
            if hidden:
                raise KlammError(
                    f"connector {name}: {', '.join(hidden)} is {HIDDEN}, which stands for a secret in an export: give the"
                    " secret, or a reference to it such as ${file:/etc/secrets.properties:password}"
                )
            return Change(
                action=Action.CREATE,
                kind="connectors",
                name=name,
                said=after["connector.class"],
                wanted=after,
            )
        action = Action.CHANGE if said else Action.UNCHANGED
        return Change(action=action, kind="connectors", name=name, said=", ".join(said), wanted=after)

    return list(_things("connectors", current.connectors, wanted.connectors, compare, prune=prune))


def hides(told: str, wanted: str) -> bool:
    """Return whether a worker hides a value, so that nobody can tell whether it differs from the wanted one."""
    return told == HIDDEN or (has_hidden_login(told) and told == without_logins(wanted))


def shown(key: str, value: str) -> str:
    """Return a value to print; of a secret only a reference to it, such as `${file:…}`."""
    return HIDDEN if is_secret_name(key) and "${" not in value else without_logins(value)


_FIND: Final[dict[str, Callable[[State, State, bool], list[Change]]]] = {
    "topics": _topics,
    "acls": _acls,
    "quotas": _quotas,
    "users": _users,
    "schemas": _schemas,
    "connectors": _connectors,
}
