"""One-shot calls: a child answers one question that the worker has about a plugin, and ends.

The answer is the event `result`. An exception leaves the child as in every other role. The caller sets the
time limit.
"""

from __future__ import annotations

import inspect
import logging
import sys
import traceback
from collections.abc import Sequence
from typing import Any

from klamm.connect.child.control import Control
from klamm.connect.child.dry_run import dry_run
from klamm.connect.child.plugins import connector_class
from klamm.connect.child.setup import keep_secret, secret_values
from klamm.connect.child.stage_keys import further_keys, stage_answers
from klamm.connect.child.warm import plugins_of
from klamm.connect.children.channel import Message
from klamm.environments.inspect_site import row
from klamm_base.configdef import ConfigDef, ConfigKey, ConfigValue, Type, to_string
from klamm_plugins.connector import Connector, SourceConnector
from klamm_plugins.discovery import PluginManager
from klamm_plugins.errors import DataError
from klamm_plugins.original_keys import taken
from klamm_plugins.records import TopicPartition

log = logging.getLogger(__name__)


def run_call(control: Control, order: Message, secrets: list[str]) -> None:
    """Runs a one-shot child from its order to its answer."""
    params = order["params"]
    secrets += secret_values(None, params.get("config", {}), params.get("worker", {}))
    if order["method"] == "list_plugins":
        control.notify("result", result=list_plugins(params.get("entry_points")))
        return
    plugins = plugins_of(order["entry_points"])
    result: Any
    match order["method"]:
        case "plugin_config":
            result = [definition(key) for key in plugins.find_plugin(params["plugin"]).cls.config()]
        case "validate":
            cls = connector_class(plugins, params["config"])
            secrets += secret_values(cls, params["config"])
            keep_secret(control, secrets)
            result = _validate(plugins, cls, params["config"])
        case "dry_run":
            result = dry_run(plugins, params)
        case "alter_offsets":
            result = _alter_offsets(plugins, params["config"], params["offsets"])
        case method:
            raise ValueError(f"there is no call {method!r}")
    control.notify("result", result=result)


def list_plugins(only: Sequence[Sequence[str]] | None) -> dict[str, Any]:
    """Returns all plugins, or those of the given entry points, with the broken ones and the source files
    imported for them.
    """
    before = set(sys.modules)
    plugins = PluginManager.load(only)
    rows = [row(d) for d in plugins.plugins()]
    tops = {d.module.partition(".")[0].partition(":")[0] for d in plugins.plugins()}
    tops |= {d.cls.__module__.partition(".")[0] for d in plugins.plugins()}
    modules = [sys.modules[name] for name in set(sys.modules) - before if name.partition(".")[0] in tops]
    files = sorted(
        {file for m in modules if isinstance(file := getattr(m, "__file__", None), str)}
        | {file for error in plugins.errors.values() for file in _files_of(error)}
    )
    return {"plugins": rows, "broken": [tuple(b) for b in plugins.broken], "files": files}


def _files_of(error: BaseException) -> set[str]:
    """Returns the source files that an error came through: who mends it changes one of them."""
    own = {error.filename} if isinstance(error, SyntaxError) and error.filename else set()
    frames = {frame.filename for frame in traceback.extract_tb(error.__traceback__)}
    return {file for file in own | frames if not file.startswith("<")}


def _validate(plugins: PluginManager, cls: type[Any], config: dict[str, str]) -> dict[str, Any]:
    """Validates the connector's own keys. The worker adds the keys of every connector and those of
    converters.
    """
    keys = cls.config()
    values = cls.validate(config)
    rows = [
        {"definition": definition(keys[v.name]), "value": _value(keys, v)} for v in values if v.name in keys
    ]
    desc = plugins.find_plugin(config["connector.class"])
    of_stages = further_keys(plugins, config)
    return {
        "name": desc.class_name,
        "kind": desc.type.value,
        "version": desc.version,
        "groups": keys.groups,
        "values": rows + [_undefined(v) for v in values if v.name not in keys],
        "exactly_once": _exactly_once(cls, config),
        "stages": stage_answers(plugins, config),
        "warnings": {**of_stages.warnings, **cls.warnings(config)},
        "taken": [*of_stages.taken, *_taken(cls, config)],
        "names": [*keys.names, *(cls.original_keys.names if cls.original_keys is not None else ())],
    }


def _taken(cls: type[Connector], config: dict[str, str]) -> list[str]:
    """Returns the keys that the connector takes although its definition cannot list them."""
    return [
        *taken(cls.original_keys, config),
        *(name for name in config if name.startswith(cls.key_prefixes)),
    ]


def _exactly_once(cls: type[Any], config: dict[str, str]) -> dict[str, Any]:
    """Returns what a source says about exactly once with this config. An error of the source is worded as
    Kafka words it.
    """
    if not issubclass(cls, SourceConnector):
        return {}
    try:
        return {
            "support": cls.exactly_once_support(config),
            "boundaries": cls.can_define_transaction_boundaries(config),
        }
    except Exception as e:
        log.exception("the connector did not say whether it can write exactly once")
        return {"error": f"An unexpected error occurred during validation: {e}"}


def definition(key: ConfigKey) -> dict[str, Any]:
    """Returns a config key in the form of Kafka's ConfigKeyInfo."""
    return {
        "name": key.name,
        "type": key.type.value,
        "required": key.required,
        "default_value": None if key.required else to_string(key.default, key.type),
        "importance": key.importance.value,
        "documentation": inspect.cleandoc(key.documentation),
        "group": key.group,
        "order_in_group": key.order_in_group,
        "width": key.width.value,
        "display_name": key.display_name or key.name,
        "dependents": list(key.dependents),
    }


def _value(keys: ConfigDef, value: ConfigValue) -> dict[str, Any]:
    kind = keys[value.name].type
    return {
        "name": value.name,
        "value": to_string(value.value, kind),
        "recommended_values": [to_string(v, kind) for v in value.recommended_values],
        "errors": list(value.errors),
        "visible": value.visible,
    }


def _undefined(value: ConfigValue) -> dict[str, Any]:
    """Returns a value for which the connector's `validate` answered although no definition has its key."""
    return {"definition": None, "value": _value(ConfigDef().define(value.name, Type.STRING), value)}


def _alter_offsets(plugins: PluginManager, config: dict[str, str], offsets: list[list[Any]]) -> bool:
    cls = connector_class(plugins, config)
    if issubclass(cls, SourceConnector):
        if any(partition is None and offset is not None for partition, offset in offsets):
            raise DataError(
                "Partition objects cannot be null, unless their offset is null, too: it is removed"
            )
        # No plugin writes a null partition, so the plugin is not asked about it; it may be removed.
        judged = [(partition, offset) for partition, offset in offsets if partition is not None]
        return cls.alter_offsets(config, judged)
    changes = {}
    for partition, offset in offsets:
        place = TopicPartition(partition["kafka_topic"], _partition_number(partition["kafka_partition"]))
        changes[place] = None if offset is None else int(offset["kafka_offset"])
    return cls.alter_offsets(config, changes)


def _partition_number(value: Any) -> int:
    try:
        return int(value)
    except (TypeError, ValueError):
        raise DataError(f"kafka_partition must be a number, not {value!r}") from None
