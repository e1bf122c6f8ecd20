"""Connect's answer to "is this connector config valid?": the plugin's own keys and those every connector has.

The plugin's part comes from a child as rows of {"definition", "value"}; this module adds the common keys
(`definitions`), the converters' keys, and the rules that span keys, in Kafka's order. Pure: the service
asks the child.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from klamm.connect.model import PluginInfo
from klamm.connect.plugins.catalog import CONNECTOR_TYPES, CONVERTER, HEADER_CONVERTER, PluginRegistry
from klamm.connect.settings.connector_keys import CONNECTOR_CLASS, CONVERTERS
from klamm.connect.settings.limits import CONNECTOR_KEYS
from klamm.connect.settings.override_policy import override_rows
from klamm.connect.validation import definitions
from klamm.connect.validation.definitions import DEAD_LETTERS, TOPICS, TOPICS_REGEX
from klamm.connect.validation.source import check_exactly_once, topic_rules
from klamm.connect.validation.stages import stage_rows
from klamm.connect.validation.warnings import Judged, config_warnings
from klamm.environments.versions import BadVersion
from klamm_base.configdef import (
    NO_DEFAULT,
    ConfigDef,
    ConfigKey,
    ConfigValue,
    Importance,
    Type,
    Width,
    invalid,
    parse_type,
    to_string,
    with_prefix,
)
from klamm_plugins.java_regex import compile_java

WARNINGS: Final = "warnings"
"""The field of an answer that has warnings, beside Kafka's fields."""
Row = dict[str, Any]
"""One key of the answer: {"definition": {...}, "value": {...}} as REST shows it."""

_NULL_VALUE: Final = "Null value can not be supplied as the configuration value."
_NO_TOPICS: Final = "Must configure one of topics or topics.regex"
_BOTH_TOPICS: Final = "topics and topics.regex are mutually exclusive options, but both are set."


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginAnswer:
    """A child's answer about a connector config: its plugin, and the plugin's own keys."""

    plugin: PluginInfo
    groups: Sequence[str]
    rows: Sequence[Row]
    exactly_once: Mapping[str, Any] = field(default_factory=dict)
    stages: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """The stages (transforms and predicates), by the prefix of their keys."""
    judged: Judged = field(default_factory=Judged)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> PluginAnswer:
        plugin = PluginInfo(data["name"], data["kind"], data["version"])
        return cls(
            plugin=plugin,
            groups=data["groups"],
            rows=data["values"],
            exactly_once=data.get("exactly_once", {}),
            stages=data.get("stages", {}),
            judged=Judged(warnings=data["warnings"], taken=data["taken"], names=data["names"]),
        )


def common_keys(
    plugin: PluginInfo, config: Mapping[str, Any], worker: Mapping[str, str], registry: PluginRegistry
) -> ConfigDef:
    """Returns the keys of every connector of this kind, with this worker's defaults and choices."""
    base = definitions.SINK if plugin.type == "sink" else definitions.SOURCE
    if plugin.type != "sink" and any(key in config for key in definitions.SOURCE_DEAD_LETTERS.names):
        base = base.merged(definitions.SOURCE_DEAD_LETTERS)
    base = base.merged(ConfigDef([key for key in CONNECTOR_KEYS if key.name in config]))
    versions = registry.versions(plugin.plugin_class, *CONNECTOR_TYPES) or [plugin.version]
    changed: dict[str, dict[str, Any]] = {
        "connector.plugin.version": {"default": versions[-1], "recommended": _choices(versions)}
    }
    for name in CONVERTERS:
        kind = HEADER_CONVERTER if name == "header.converter" else CONVERTER
        choices = list(dict.fromkeys(p.plugin_class for p in registry.of_type(kind)))
        versions = registry.versions(str(config.get(name) or worker.get(name)), kind)
        changed[name] = {"default": worker.get(name), "recommended": _choices(choices)}
        changed[f"{name}.plugin.version"] = {
            "default": versions[-1] if versions else None,
            "recommended": _choices(versions),
        }
    return ConfigDef([replace(key, **changed.get(key.name, {})) for key in base])


def _choices(values: Sequence[Any]) -> Any:
    return lambda _config: values


def config_infos(
    *,
    config: Mapping[str, str | None],
    answer: PluginAnswer,
    worker: Mapping[str, str],
    registry: PluginRegistry,
    converter_keys: Mapping[str, Sequence[Mapping[str, Any]]],
) -> dict[str, Any]:
    """Returns the whole validate answer.

    `converter_keys` holds, for each of `key.converter`, `value.converter` and `header.converter` that the
    config sets, the definitions of that converter.
    """
    given = {k: v for k, v in config.items() if v is not None}
    common = common_keys(answer.plugin, given, worker, registry)
    values = {value.name: value for value in common.validate(given)}
    _check_converters(values, given, registry)
    if answer.plugin.type == "sink":
        _check_topics(values)
    else:
        check_exactly_once(values, answer.exactly_once, worker)
    rows = [_row(key, values[key.name]) for key in common]
    if answer.plugin.type != "sink":
        rows += map(_row, *topic_rules(given))
    of_stages = stage_rows(given, registry, answer.stages, _row)
    rows = _with_plugin_rows(rows + of_stages, answer.rows)
    for name in CONVERTERS:
        if name in converter_keys:
            rows += _converter_rows(name, converter_keys[name], given)
    rows += override_rows(given, worker)
    _check_nulls(rows, config)
    stage_groups = [row["definition"]["group"] for row in of_stages]
    groups = list(dict.fromkeys([*common.groups, *stage_groups, *answer.groups]))
    return {
        "name": config[CONNECTOR_CLASS],
        "error_count": count_errors(rows),
        "groups": groups,
        "configs": rows,
    }


def with_warnings(
    infos: dict[str, Any],
    config: Mapping[str, str | None],
    answer: PluginAnswer,
    *,
    worker: Mapping[str, str],
    worker_keys: Collection[str],
) -> dict[str, Any]:
    """Adds `warnings`, which Kafka does not have, to a validate answer, if there are any."""
    found = config_warnings(
        {k: v for k, v in config.items() if v is not None},
        {row["value"]["name"] for row in infos["configs"]},
        answer.judged,
        kind="sink" if answer.plugin.type == "sink" else "source",
        worker=worker,
        worker_keys=worker_keys,
    )
    return infos | {WARNINGS: found} if found else infos


def _with_plugin_rows(rows: list[Row], of_plugin: Sequence[Row]) -> list[Row]:
    """Adds the plugin's rows to the common rows. The plugin's errors about a common key go to the common row."""
    by_name = {row["value"]["name"]: row["value"] for row in rows}
    for row in of_plugin:
        known = by_name.get(row["value"]["name"])
        if known is not None:
            known["errors"] += [e for e in row["value"]["errors"] if e not in known["errors"]]
    return rows + [row for row in of_plugin if row["value"]["name"] not in by_name]


def count_errors(rows: Iterable[Row]) -> int:
    """Returns the number of errors in the rows of an answer."""
    return sum(len(row["value"]["errors"]) for row in rows)


def add_error(row: Row, error: str) -> None:
    """Adds an error to a row of the answer, unless it is there."""
    if error not in row["value"]["errors"]:
        row["value"]["errors"].append(error)


def errors_of(infos: Mapping[str, Any]) -> list[str]:
    """Returns every error of a validate answer, in its order."""
    return [error for row in infos["configs"] for error in row["value"]["errors"]]


def plugin_keys(
    own: Iterable[Mapping[str, Any]], plugin: PluginInfo | None, registry: PluginRegistry
) -> list[dict[str, Any]]:
    """Returns the answer of GET /connector-plugins/{p}/config: the plugin's keys, and for a connector the
    common keys.

    Keys that the worker fills in (converters) have no default here, as with Kafka.
    """
    rows = [dict(row) for row in own]
    if plugin is None:
        return rows
    names = {row["name"] for row in rows}
    common = common_keys(plugin, {}, {}, registry)
    return rows + [key_info(key) for key in common if key.name not in names]


def key_info(key: ConfigKey) -> dict[str, Any]:
    """Returns a config key as REST shows it (Kafka: ConfigKeyInfo)."""
    return {
        "name": key.name,
        "type": key.type,
        "required": key.required,
        "default_value": None if key.required else to_string(key.default, key.type),
        "importance": key.importance,
        "documentation": key.documentation,
        "group": key.group,
        "order_in_group": key.order_in_group,
        "width": key.width,
        "display_name": key.display_name or key.name,
        "dependents": list(key.dependents),
    }


def _row(key: ConfigKey, value: ConfigValue) -> Row:
    return {"definition": key_info(key), "value": value_info(value, key.type)}


def value_info(value: ConfigValue, type: Type) -> dict[str, Any]:
    """Returns the validation of one key, as REST shows it (Kafka: ConfigValueInfo)."""
    return {
        "name": value.name,
        "value": to_string(value.value, type),
        "recommended_values": [to_string(v, type) for v in value.recommended_values],
        "errors": list(value.errors),
        "visible": value.visible,
    }


def _add_error(value: ConfigValue, why: str, type: Type = Type.STRING) -> None:
    value.errors.append(str(invalid(value.name, to_string(value.value, type), why)))


def _check_converters(
    values: Mapping[str, ConfigValue], config: Mapping[str, str], registry: PluginRegistry
) -> None:
    for name in CONVERTERS:
        kind = HEADER_CONVERTER if name == "header.converter" else CONVERTER
        value, version = values[name], values[f"{name}.plugin.version"]
        if name not in config:
            continue  # the worker's, in the worker's version
        if registry.plugin(str(value.value), kind) is None:
            _add_error(value, registry.not_found(str(value.value), kind))
            continue
        try:
            why = registry.version_error(str(value.value), (kind,), config.get(version.name))
        except BadVersion as e:
            _add_error(version, str(e))
        else:
            if why is not None:  # beside both keys, as Kafka does
                value.errors.append(why)
                version.errors.append(why)


def no_such_version(
    why: str,
    *,
    config: Mapping[str, str | None],
    plugin: PluginInfo,
    worker: Mapping[str, str],
    registry: PluginRegistry,
) -> dict[str, Any]:
    """Returns the validate answer for a connector that is not installed in this version: its own keys are unknown."""
    given = {k: v for k, v in config.items() if v is not None}
    common = common_keys(plugin, given, worker, registry)
    values = {value.name: value for value in common.validate(given)}
    for name in (CONNECTOR_CLASS, "connector.plugin.version"):
        values[name].errors.append(why)
    rows = [_row(key, values[key.name]) for key in common]
    _check_nulls(rows, config)
    return {
        "name": config[CONNECTOR_CLASS],
        "error_count": count_errors(rows),
        "groups": list(common.groups),
        "configs": rows,
    }


def _check_topics(values: Mapping[str, ConfigValue]) -> None:
    topics, regex = values[TOPICS], values[TOPICS_REGEX]
    has_topics = any(t.strip() for t in topics.value or ())
    has_regex = bool((regex.value or "").strip())
    if has_topics == has_regex:
        for value in (topics, regex):
            value.errors.append(_BOTH_TOPICS if has_topics else _NO_TOPICS)
    if has_regex:
        try:
            compile_java(regex.value)
        except re.error as e:
            _add_error(regex, f"Invalid regular expression ({e})")
    _check_dead_letters(values)


def _check_dead_letters(values: Mapping[str, ConfigValue]) -> None:
    """Adds an error to a sink that reads its own dead letters, because it would never finish."""
    topic = (values[DEAD_LETTERS].value or "").strip()
    topics, regex = values[TOPICS], values[TOPICS_REGEX]
    if not topic:
        return
    read = f"The dead letter topic {topic} must not be among the topics that the connector reads"
    if topic in (t.strip() for t in topics.value or ()):
        _add_error(topics, read)
    if regex.value and not regex.errors and compile_java(regex.value).fullmatch(topic):
        _add_error(regex, read)


def _check_nulls(rows: list[Row], config: Mapping[str, str | None]) -> None:
    by_name = {row["value"]["name"]: row for row in rows}
    for name in (k for k, v in config.items() if v is None):
        row = by_name.get(name)
        if row is None:
            empty = ConfigValue(name=name)
            row = {"definition": None, "value": value_info(empty, Type.STRING)}
            rows.append(row)
        row["value"]["errors"].append(_NULL_VALUE)


def _converter_rows(prefix: str, keys: Sequence[Mapping[str, Any]], config: Mapping[str, str]) -> list[Row]:
    """Returns the rows of the converter's own settings under its prefix, typed by the definitions from the child."""
    below = f"{prefix}."
    given = with_prefix(config, below)
    # Connect itself tells the converter its type, so that no config needs the key.
    given.setdefault("converter.type", prefix.removesuffix(".converter"))
    definition = ConfigDef([_key_from_info(info) for info in keys])
    rows = []
    for info, value in zip(keys, definition.validate(given), strict=True):
        shown = value_info(value, Type(info["type"])) | {"name": below + info["name"]}
        rows.append({"definition": dict(info) | {"name": below + info["name"]}, "value": shown})
    return rows


def _key_from_info(info: Mapping[str, Any]) -> ConfigKey:
    """Returns the definition behind a ConfigKeyInfo, without the validator, which stays with the plugin."""
    kind = Type(info["type"])
    default = parse_type(info["name"], info["default_value"], kind)
    return ConfigKey(
        name=info["name"],
        type=kind,
        default=NO_DEFAULT if info["required"] else default,
        importance=Importance(info["importance"]),
        width=Width(info["width"]),
    )
