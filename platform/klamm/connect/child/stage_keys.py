"""The keys of the transforms and predicates of a connector config, and a test that they can be made of it.

This is part of the one-shot call `validate`; the answer is for `stage_validation`. It needs no record: each
transform and predicate is made, configured and closed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from klamm.connect.child.transform_chain import make_plugin
from klamm.connect.validation.connector import key_info, value_info
from klamm.connect.validation.stages import (
    STAGE_CONFIG,
    TRANSFORMS,
    Stage,
    check_predicates,
    embedded,
    stages,
)
from klamm_base.configdef import ConfigValue
from klamm_base.errors import ConfigError
from klamm_plugins.connector import Plugin
from klamm_plugins.discovery import PluginManager
from klamm_plugins.errors import PluginNotFoundError
from klamm_plugins.original_keys import OriginalKeys, refusals, taken, without_effect
from klamm_plugins.transform import Transformation


def stage_answers(plugins: PluginManager, config: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Returns, by prefix, the `rows` of keys and values, and the `errors` of the whole, which are shown
    beside its type.
    """
    return {stage.prefix: _answer(plugins, stage, config) for stage in stages(config)}


def _answer(plugins: PluginManager, stage: Stage, config: Mapping[str, str]) -> dict[str, Any]:
    cls = _class(plugins, stage, config)
    spanning = [*_spanning(stage, config), *_refused(cls, stage, config)]
    if cls is None:
        return {"rows": [], "errors": [str(e) for e in spanning]}
    own = list(cls.config())
    if stage.kind.key == TRANSFORMS:
        # A transform's own key with the same name as one of these cannot be set.
        own = [key for key in own if key.name not in STAGE_CONFIG] + list(STAGE_CONFIG)
    keys = embedded(stage, own)
    values = keys.validate(config)
    errors = _placed(spanning, values)
    if not errors and not any(value.errors for value in values):
        errors = _placed(_made(plugins, stage, config), values)
    rows = [
        {"definition": key_info(key), "value": value_info(value, key.type)}
        for key, value in zip(keys, values, strict=True)
    ]
    return {"rows": rows, "errors": errors}


@dataclass(slots=True)
class StageKeys:
    """The keys of all stages that their own definitions do not have: a sentence for each that has no effect, and those that
    are fine as they are, or errors.
    """

    warnings: dict[str, str] = field(default_factory=dict)
    taken: list[str] = field(default_factory=list)


def further_keys(plugins: PluginManager, config: Mapping[str, str]) -> StageKeys:
    """Judges the keys of transforms whose names stand for another's."""
    found = StageKeys()
    for stage in stages(config):
        rules, own = _original(_class(plugins, stage, config)), _below(stage, config)
        for key, sentence in without_effect(rules, own).items():
            found.warnings[f"{stage.prefix}{key}"] = f"{stage.prefix}{sentence}"
        found.taken += [f"{stage.prefix}{key}" for key in (*taken(rules, own), *refusals(rules, own))]
    return found


def _original(cls: type[Plugin] | None) -> OriginalKeys | None:
    return cls.original_keys if cls is not None and issubclass(cls, Transformation) else None


def _below(stage: Stage, config: Mapping[str, str]) -> dict[str, str]:
    """Returns the stage's own settings, prefix removed."""
    own = {k.removeprefix(stage.prefix): v for k, v in config.items() if k.startswith(stage.prefix)}
    return {k: v for k, v in own.items() if k != "type" and k not in STAGE_CONFIG}


def _refused(cls: type[Plugin] | None, stage: Stage, config: Mapping[str, str]) -> list[ConfigError]:
    said = refusals(_original(cls), _below(stage, config))
    return [
        ConfigError(f"{stage.prefix}{sentence}", key=stage.prefix + key) for key, sentence in said.items()
    ]


def _spanning(stage: Stage, config: Mapping[str, str]) -> list[ConfigError]:
    if stage.kind.key == TRANSFORMS:
        try:
            check_predicates(config, stage.alias)
        except ConfigError as e:
            return [e]
    return []


def _placed(errors: Sequence[Exception], values: Sequence[ConfigValue]) -> list[str]:
    """Puts errors beside the keys that they name, and returns the others."""
    by_name = {value.name: value for value in values}
    others = []
    for error in errors:
        said = str(error) or type(error).__name__
        if isinstance(error, ConfigError) and error.key in by_name:
            by_name[error.key].errors.append(said)
        else:
            others.append(said)
    return others


def _class(plugins: PluginManager, stage: Stage, config: Mapping[str, str]) -> type[Plugin] | None:
    """Returns the class; None where the worker itself reports what is wrong with the type."""
    name = config.get(stage.prefix + "type", "").strip()
    find = plugins.find_transformation if stage.kind.key == TRANSFORMS else plugins.find_predicate
    try:
        return find(name) if name else None
    except PluginNotFoundError:
        return None


def _made(plugins: PluginManager, stage: Stage, config: Mapping[str, str]) -> list[Exception]:
    """Returns the errors that only making it shows; Kafka finds them when the task starts."""
    try:
        make_plugin(plugins, stage, config).close()
    except Exception as e:
        return [e]
    return []
