"""The keys of the transforms and predicates of a connector config, and a test that they can be made of it.

This is part of the one-shot call `validate`; the answer is for `stage_validation`. It needs no record: each
transform and predicate is made, configured and closed.
"""

from __future__ import annotations

from collections.abc import Mapping
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
from klamm_base.errors import ConfigError
from klamm_plugins.connector import Plugin
from klamm_plugins.discovery import PluginManager
from klamm_plugins.errors import PluginNotFoundError


def stage_answers(plugins: PluginManager, config: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Returns, by prefix, the `rows` of keys and values, and the `errors` of the whole, which are shown
    beside its type.
    """
    return {stage.prefix: _answer(plugins, stage, config) for stage in stages(config)}


def _answer(plugins: PluginManager, stage: Stage, config: Mapping[str, str]) -> dict[str, Any]:
    spanning = _spanning(stage, config)
    cls = _class(plugins, stage, config)
    if cls is None:
        return {"rows": [], "errors": [str(e) for e in spanning]}
    own = list(cls.config())
    if stage.kind.key == TRANSFORMS:
        # A transform's own key with the same name as one of these cannot be set.
        own = [key for key in own if key.name not in STAGE_CONFIG] + list(STAGE_CONFIG)
    keys = embedded(stage, own)
    values = keys.validate(config)
    by_name = {value.name: value for value in values}
    errors = [str(e) for e in spanning if e.key not in by_name]
    for error in spanning:
        if error.key in by_name:
            by_name[error.key].errors.append(str(error))
    if not errors and not any(value.errors for value in values):
        errors += _made(plugins, stage, config)
    rows = [
        {"definition": key_info(key), "value": value_info(value, key.type)}
        for key, value in zip(keys, values, strict=True)
    ]
    return {"rows": rows, "errors": errors}


def _spanning(stage: Stage, config: Mapping[str, str]) -> list[ConfigError]:
    if stage.kind.key == TRANSFORMS:
        try:
            check_predicates(config, stage.alias)
        except ConfigError as e:
            return [e]
    return []


def _class(plugins: PluginManager, stage: Stage, config: Mapping[str, str]) -> type[Plugin] | None:
    """Returns the class; None where the worker itself reports what is wrong with the type."""
    name = config.get(stage.prefix + "type", "").strip()
    find = plugins.find_transformation if stage.kind.key == TRANSFORMS else plugins.find_predicate
    try:
        return find(name) if name else None
    except PluginNotFoundError:
        return None


def _made(plugins: PluginManager, stage: Stage, config: Mapping[str, str]) -> list[str]:
    """Returns the errors that only making it shows; Kafka finds them when the task starts."""
    try:
        make_plugin(plugins, stage, config).close()
    except Exception as e:
        return [str(e) or type(e).__name__]
    return []
