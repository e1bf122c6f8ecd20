"""The keys of a connector's transforms and predicates (`transforms.NAME.…`, `predicates.NAME.…`), as Kafka
validates them.

A child (`child/stage_keys.py`) defines and checks each transform's own keys, because it has the classes.
This module adds the keys that all of them have (type and version) and the rules that span keys. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from klamm.connect.model import PluginInfo
from klamm.connect.plugins.catalog import PREDICATE, TRANSFORMATION, PluginRegistry
from klamm.environments.versions import BadVersion
from klamm_base.configdef import ConfigDef, ConfigKey, ConfigValue, Importance, Type, Width, invalid
from klamm_base.errors import ConfigError
from klamm_base.properties import suggestion

TRANSFORMS: Final = "transforms"
PREDICATES: Final = "predicates"

# Keys of the runtime that every transform has. The transform itself does not get them.
STAGE_CONFIG: Final = (
    ConfigDef()
    .define(
        "predicate",
        Type.STRING,
        None,
        documentation="Name of the predicate that says which records the transform is for; without it, all.",
    )
    .define(
        "negate",
        Type.BOOLEAN,
        default=False,
        documentation="Whether the transform is for the records that the predicate does not choose.",
    )
)

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class StageKind:
    """A kind of stage, transforms or predicates: the key that lists their names, Kafka's words, the kind of
    plugin.
    """

    key: str
    word: str
    plugin: str

    @property
    def group(self) -> str:
        return self.key.capitalize()


KINDS: Final = (
    StageKind(TRANSFORMS, "Transformation", TRANSFORMATION),
    StageKind(PREDICATES, "Predicate", PREDICATE),
)


@dataclass(frozen=True, slots=True)
class Stage:
    """One transform or predicate of a config: its name, and the prefix and group of its keys."""

    kind: StageKind
    alias: str

    @property
    def prefix(self) -> str:
        return f"{self.kind.key}.{self.alias}."

    @property
    def group(self) -> str:
        return f"{self.kind.group}: {self.alias}"


def aliases(key: str, config: Mapping[str, str]) -> list[str]:
    """Returns the names in `transforms` or `predicates`, each once, in order."""
    names = (name.strip() for name in config.get(key, "").split(","))
    return list(dict.fromkeys(name for name in names if name))


def stages(config: Mapping[str, str]) -> Iterator[Stage]:
    """Yields transforms, then predicates, in the order of the lists that name them."""
    for kind in KINDS:
        for alias in aliases(kind.key, config):
            yield Stage(kind, alias)


def embedded(stage: Stage, keys: Sequence[ConfigKey]) -> ConfigDef:
    """Returns the keys of a transform or predicate within the connector's, in Kafka's order (ConfigDef.embed)."""
    ranks = list(Importance)
    groups = list(dict.fromkeys(key.group for key in keys))

    def rank(key: ConfigKey) -> tuple[Any, ...]:
        group = (key.group is not None, groups.index(key.group))
        return (*group, key.order_in_group, not key.required, ranks.index(key.importance), key.name)

    made = []
    for order, key in enumerate(sorted(keys, key=rank), start=2):
        made.append(
            replace(
                key,
                name=stage.prefix + key.name,
                validator=_unprefixed(stage.prefix, key),
                group=stage.group + (f": {key.group}" if key.group else ""),
                order_in_group=order,
                display_name=key.display_name or key.name,
                dependents=[stage.prefix + name for name in key.dependents],
                recommended=None,
            )
        )
    return ConfigDef(made)


def _unprefixed(prefix: str, key: ConfigKey) -> Callable[[str, Any], None] | None:
    """Returns the key's validator, wrapped: the validator gets the key's own name, its errors name the key with
    the prefix.
    """
    validator = key.validator
    if validator is None:
        return None

    def check(name: str, value: Any) -> None:
        own = name.removeprefix(prefix)
        try:
            validator(own, value)
        except ConfigError as e:
            said, short = str(e), f" for configuration {own}"
            full = (
                said.replace(short, f" for configuration {name}", 1) if short in said else f"{name}: {said}"
            )
            raise ConfigError(full, key=name) from e

    return check


def stage_rows(
    config: Mapping[str, str],
    registry: PluginRegistry,
    answers: Mapping[str, Mapping[str, Any]],
    row: Callable[[ConfigKey, ConfigValue], Row],
) -> list[Row]:
    """Returns the rows of all transforms and predicates. `answers` has the child's `rows` and `errors` by prefix."""
    rows: list[Row] = []
    for stage in stages(config):
        answer = answers.get(stage.prefix, {})
        head = _head(stage, config, registry)
        values = head.validate({**config, **_full_name(stage, config, registry)})
        values[0].errors += answer.get("errors", [])
        _check_version(stage, config, registry, values)
        rows += [row(key, value) for key, value in zip(head, values, strict=True)]
        rows += answer.get("rows", [])
    return rows


def _full_name(stage: Stage, config: Mapping[str, str], registry: PluginRegistry) -> dict[str, str]:
    """Returns the type by its full name, which answers show also when the config has a short name."""
    name = stage.prefix + "type"
    found = registry.plugin(config.get(name, "").strip(), stage.kind.plugin)
    return {} if found is None else {name: found.plugin_class}


def _head(stage: Stage, config: Mapping[str, str], registry: PluginRegistry) -> ConfigDef:
    name, given = stage.prefix + "type", config.get(stage.prefix + "type", "").strip()
    found = registry.plugin(given, stage.kind.plugin) if given else None
    known = list(dict.fromkeys(p.plugin_class for p in registry.of_type(stage.kind.plugin)))
    versions = registry.versions(given, stage.kind.plugin) if given else []
    return ConfigDef(
        [
            ConfigKey(
                name=name,
                type=Type.CLASS,
                validator=lambda _, value: _check_type(stage, config, value, found, registry),
                importance=Importance.HIGH,
                documentation=f"Class for the '{stage.alias}' {stage.kind.word.lower()}.",
                group=stage.group,
                order_in_group=0,
                width=Width.LONG,
                display_name=f"{stage.kind.word} type for {stage.alias}",
                recommended=lambda _: known,
            ),
            ConfigKey(
                name=stage.prefix + "plugin.version",
                type=Type.STRING,
                default=versions[-1] if versions else None,
                importance=Importance.HIGH,
                documentation=f"Version of the '{stage.alias}' {stage.kind.word.lower()}.",
                group=stage.group,
                order_in_group=1,
                width=Width.LONG,
                display_name=f"{stage.kind.word} version for {stage.alias}",
                recommended=lambda _: versions,
            ),
        ]
    )


def _check_type(
    stage: Stage,
    config: Mapping[str, str],
    value: str | None,
    found: PluginInfo | None,
    registry: PluginRegistry,
) -> None:
    if not value or found is not None:
        return
    name = stage.prefix + "type"
    known = registry.of_type(stage.kind.plugin)
    parts = sorted(p.plugin_class for p in known if p.plugin_class.startswith(f"{value}$"))
    if parts:
        # The config has Cast where it needs Cast$Value.
        raise ConfigError(
            f"This class is abstract and cannot be created. Did you mean {', '.join(parts)}?", key=name
        )
    if any(value in (p.plugin_class, *p.names) for p in registry.all):
        raise ConfigError(f"Class {value} does not implement the {stage.kind.word} interface", key=name)
    raise invalid(name, value, registry.not_found(value, stage.kind.plugin))


def unknown_keys(config: Mapping[str, Any], known: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yields the keys below `transforms.` and `predicates.` that have no effect, each with a sentence: keys of
    names that the list does not have, and settings that the transform or predicate does not have. `known`
    are the keys with an effect.
    """
    texts = {key: str(value) for key, value in config.items() if value is not None}
    for kind in KINDS:
        listed = aliases(kind.key, texts)
        for name in config:
            if name in known or not name.startswith(f"{kind.key}."):
                continue
            # An alias may have dots itself.
            alias = next((a for a in listed if name.startswith(f"{kind.key}.{a}.")), None)
            if alias is None:
                given = name.removeprefix(f"{kind.key}.").partition(".")[0]
                yield (
                    name,
                    f"{name} has no effect: {kind.key} does not list {given}{suggestion(given, listed)}",
                )
            else:
                unset = {k for k in known if k.startswith(f"{kind.key}.{alias}.")} - texts.keys()
                yield name, f"{name} is not a setting of this {kind.word.lower()}{suggestion(name, unset)}"


def _check_version(
    stage: Stage, config: Mapping[str, str], registry: PluginRegistry, values: Sequence[ConfigValue]
) -> None:
    """Adds the error of a version that is not installed to both keys, as Kafka does."""
    kind, version = values[:2]
    given = config.get(version.name)
    try:
        why = registry.version_error(str(kind.value or ""), (stage.kind.plugin,), given)
    except BadVersion as e:
        version.errors.append(str(invalid(version.name, given, str(e))))
    else:
        if why is not None:
            kind.errors.append(why)
            version.errors.append(why)


def check_predicates(config: Mapping[str, str], alias: str) -> None:
    """Checks the rules that span the keys of one transform. Raises ConfigError.

    Kafka finds a missing predicate only when the task starts.
    """
    prefix = f"{TRANSFORMS}.{alias}."
    predicate = config.get(f"{prefix}predicate")
    if predicate is None:
        if f"{prefix}negate" in config:
            raise ConfigError(
                f"Config '{prefix}negate' was provided but there is no config '{prefix}predicate' defining a predicate to "
                "be negated.",
                key=f"{prefix}type",
            )
    elif predicate.strip() not in aliases(PREDICATES, config):
        raise invalid(f"{prefix}predicate", predicate, f"there is no predicate of this name in {PREDICATES}")
