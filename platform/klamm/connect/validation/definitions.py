"""The configuration keys that every connector has, whatever its plugin: Kafka's keys, order, groups and
defaults.

Source and sink connectors share the first part. Documentation is our own. A key that Klamm does not
support says so, and `validation` refuses every value but its default. No I/O.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from klamm.connect.settings.connector_keys import CONNECTOR_CLASS, NAME
from klamm.connect.validation.source import one_of_any_case, unique_groups
from klamm_base.configdef import (
    ConfigDef,
    ConfigKey,
    Importance,
    Type,
    Width,
    between,
    invalid,
    one_of,
    parse_key,
)

TOPICS: Final = "topics"
TOPICS_REGEX: Final = "topics.regex"
DEAD_LETTERS: Final = "errors.deadletterqueue.topic.name"
REPLICATION: Final = "errors.deadletterqueue.topic.replication.factor"

COMMON: Final = "Common"
ERRORS: Final = "Error Handling"
EXACTLY_ONCE: Final = "Exactly Once Support"


def _name(name: str, value: Any) -> None:
    """Checks a name (Kafka: NonEmptyStringWithoutControlChars). Raises ConfigError."""
    if value is None:
        return
    if not value:
        raise invalid(name, value, "String may not be empty")
    control = [str(ord(c)) for c in value if ord(c) < 32 or 127 <= ord(c) < 160]
    if control:
        why = f"String may not contain control sequences but had the following ASCII chars: {', '.join(control)}"
        raise invalid(name, value, why)


def _key(name: str, type: Type, default: Any, **rest: Any) -> ConfigKey:
    return ConfigKey(name=name, type=type, default=default, **rest)


def _required(name: str, type: Type, **rest: Any) -> ConfigKey:
    return ConfigKey(name=name, type=type, **rest)


_TASKS_MAX: Final = _key(
    "tasks.max",
    Type.INT,
    1,
    validator=between(1),
    importance=Importance.HIGH,
    group=COMMON,
    width=Width.SHORT,
    display_name="Tasks max",
    documentation="The most tasks into which the connector may divide its work. It may use fewer.",
)
_TASKS_MAX_ENFORCE: Final = _key(
    "tasks.max.enforce",
    Type.BOOLEAN,
    True,
    importance=Importance.LOW,
    group=COMMON,
    width=Width.SHORT,
    display_name="Enforce tasks max",
    documentation="Whether a connector that makes more task configs than tasks.max fails (true) or runs them "
    "with a warning in the log (false).",
)


def tasks_max(config: Mapping[str, str]) -> int:
    """Returns the number of tasks that a validated connector config allows."""
    return int(parse_key(_TASKS_MAX, config))


def enforce_tasks_max(config: Mapping[str, str]) -> bool:
    return bool(parse_key(_TASKS_MAX_ENFORCE, config))


def _head() -> list[ConfigKey]:
    return [
        _required(
            NAME,
            Type.STRING,
            validator=_name,
            importance=Importance.HIGH,
            group=COMMON,
            width=Width.MEDIUM,
            display_name="Connector name",
            documentation="The connector's name, unique among all connectors of these workers. A sink's "
            "consumer group is called connect-NAME, a source's offsets are stored under this name.",
        ),
        _required(
            CONNECTOR_CLASS,
            Type.STRING,
            importance=Importance.HIGH,
            group=COMMON,
            width=Width.LONG,
            display_name="Connector class",
            documentation="The connector plugin, by its full name, or its last part with or without "
            '"Connector". org.apache.kafka.connect.file.FileStreamSinkConnector may be written as '
            "FileStreamSinkConnector or FileStreamSink.",
        ),
        _key(
            "connector.plugin.version",
            Type.STRING,
            None,
            group=COMMON,
            width=Width.MEDIUM,
            display_name="Connector version",
            documentation="The version of the connector plugin, or a range such as [1.0,2.0). Without it, or with latest, the "
            "newest installed version.",
        ),
        _TASKS_MAX,
        _TASKS_MAX_ENFORCE,
    ]


def _converters() -> list[ConfigKey]:
    """Returns `X.converter` and `X.converter.plugin.version`; validation adds the worker's defaults."""
    kinds = (
        ("key", "Key", "keys", "It reads and writes the keys of records in topics."),
        ("value", "Value", "values", "It reads and writes the values of records in topics."),
        ("header", "Header", "header values", "It reads and writes the headers of records."),
    )
    keys = []
    for prefix, label, what, use in kinds:
        keys += [
            _key(
                f"{prefix}.converter",
                Type.CLASS,
                None,
                importance=Importance.LOW,
                group=COMMON,
                width=Width.SHORT,
                display_name=f"{label} converter class",
                documentation=f"The converter between the bytes in a topic and the {what} that connectors see. "
                f"{use} Settings of the converter follow as {prefix}.converter.SETTING. Without it the "
                "worker's converter and settings apply.",
            ),
            _key(
                f"{prefix}.converter.plugin.version",
                Type.STRING,
                None,
                importance=Importance.LOW,
                group=COMMON,
                width=Width.SHORT,
                display_name=f"{label} converter version",
                documentation=f"The version of the {prefix} converter, or a range such as [1.0,2.0). Without it the version in "
                "the connector's package, if that has the converter, otherwise the newest.",
            ),
        ]
    return keys


def _unique(name: str, value: Any) -> None:
    """Checks that aliases of transforms or predicates are unique, as Kafka does. Raises ConfigError."""
    if value is None:
        raise invalid(name, None, "entry must be non null")
    if len(set(value)) < len(value):
        raise invalid(name, f"[{', '.join(value)}]", "Duplicate alias provided.")


def _transforms() -> list[ConfigKey]:
    return [
        _key(
            "transforms",
            Type.LIST,
            [],
            importance=Importance.LOW,
            group="Transforms",
            width=Width.LONG,
            display_name="Transforms",
            validator=_unique,
            documentation="Names of the transforms that records pass, in order. The settings of a transform "
            "are transforms.NAME.SETTING: type (its class), predicate and negate (the records that it takes), and its own.",
        ),
        _key(
            "predicates",
            Type.LIST,
            [],
            importance=Importance.LOW,
            group="Predicates",
            width=Width.LONG,
            display_name="Predicates",
            validator=_unique,
            documentation="Names of the predicates that transforms may refer to. The settings of a predicate are "
            "predicates.NAME.SETTING.",
        ),
        _key(
            "config.action.reload",
            Type.STRING,
            "restart",
            validator=one_of("none", "restart"),
            importance=Importance.LOW,
            group=COMMON,
            width=Width.MEDIUM,
            display_name="Reload Action",
            documentation="restart: restart the connector when a value from a config provider has changed. none: do "
            "nothing.",
        ),
    ]


def _errors() -> list[ConfigKey]:
    return [
        _key(
            "errors.retry.timeout",
            Type.LONG,
            0,
            group=ERRORS,
            order_in_group=1,
            width=Width.MEDIUM,
            display_name="Retry Timeout for Errors",
            documentation="The time in ms during which a failed conversion or transform is repeated, if its error may pass "
            "(RetriableError); -1 means for ever, 0 never. The wait begins at 300 ms and doubles.",
        ),
        _key(
            "errors.retry.delay.max.ms",
            Type.LONG,
            60_000,
            group=ERRORS,
            order_in_group=2,
            width=Width.MEDIUM,
            display_name="Maximum Delay Between Retries for Errors",
            documentation="The longest wait in ms between two such tries.",
        ),
        _key(
            "errors.tolerance",
            Type.STRING,
            "none",
            validator=one_of("none", "all"),
            group=ERRORS,
            order_in_group=3,
            width=Width.SHORT,
            display_name="Error Tolerance",
            documentation="none: a record that cannot be converted, or that a sink reports as bad, fails the task. "
            "all: such records are left out; the task's status and log count them.",
        ),
        _key(
            "errors.log.enable",
            Type.BOOLEAN,
            False,
            group=ERRORS,
            order_in_group=4,
            width=Width.SHORT,
            display_name="Log Errors",
            documentation="Whether the error of each bad record is logged, with its trace. Without it, a line now and "
            "then counts the bad records that are left out.",
        ),
        _key(
            "errors.log.include.messages",
            Type.BOOLEAN,
            False,
            group=ERRORS,
            order_in_group=5,
            width=Width.SHORT,
            display_name="Log Error Details",
            documentation="Whether the log lines of errors.log.enable contain the record itself. Records may hold personal "
            "data or secrets.",
        ),
    ]


def _source() -> list[ConfigKey]:
    return [
        _key(
            "topic.creation.groups",
            Type.LIST,
            [],
            importance=Importance.LOW,
            group="Topic Creation",
            order_in_group=1,
            width=Width.LONG,
            display_name="Topic Creation Groups",
            validator=unique_groups,
            documentation="Names of groups of settings for topics that do not exist when records go to them: "
            "topic.creation.GROUP.include, .exclude, .partitions, .replication.factor, and topic configurations. The "
            "default group (topic.creation.default.*) takes all other topics.",
        ),
        _key(
            "exactly.once.support",
            Type.STRING,
            "requested",
            validator=one_of_any_case("requested", "required"),
            group=EXACTLY_ONCE,
            order_in_group=2,
            width=Width.SHORT,
            display_name="Exactly once support",
            documentation="required: refuse the connector unless the workers have exactly.once.source.support=enabled and "
            "the connector says that it can write exactly once. requested: no such check.",
        ),
        _key(
            "transaction.boundary",
            Type.STRING,
            "poll",
            validator=one_of_any_case("poll", "interval", "connector"),
            group=EXACTLY_ONCE,
            order_in_group=3,
            width=Width.SHORT,
            display_name="Transaction Boundary",
            documentation="When an exactly-once source commits: after every poll, at an interval, or when the "
            "connector says so (not every connector can).",
        ),
        _key(
            "transaction.boundary.interval.ms",
            Type.LONG,
            None,
            validator=lambda name, value: None if value is None else between(0)(name, value),
            importance=Importance.LOW,
            group=EXACTLY_ONCE,
            order_in_group=4,
            width=Width.SHORT,
            display_name="Transaction boundary interval",
            documentation="The interval in ms of transaction.boundary=interval; the worker's offset.flush.interval.ms "
            "unless set. Never more than three quarters of the producer's transaction.timeout.ms.",
        ),
        _key(
            "offsets.storage.topic",
            Type.STRING,
            None,
            validator=_topic_name,
            importance=Importance.LOW,
            group="offsets.topic",
            order_in_group=1,
            width=Width.LONG,
            display_name="Offsets topic",
            documentation="A topic of its own for this connector's offsets, on the cluster that its records go to; created "
            "if necessary. The workers' offset.storage.topic gets a copy.",
        ),
    ]


def _topic_name(name: str, value: Any) -> None:
    if value is not None and not value.strip():
        raise invalid(name, value, "String must be non-empty")


def _dead_letters() -> list[ConfigKey]:
    return [
        _key(
            DEAD_LETTERS,
            Type.STRING,
            "",
            group=ERRORS,
            order_in_group=6,
            width=Width.MEDIUM,
            display_name="Dead Letter Queue Topic Name",
            documentation="The topic that takes records which could not be converted or transformed, or which the "
            "sink reports as bad, as they were. It is created, with one partition, when it is not there. Without errors.tolerance=all "
            "the task fails all the same.",
        ),
        _key(
            REPLICATION,
            Type.SHORT,
            3,
            group=ERRORS,
            order_in_group=7,
            width=Width.MEDIUM,
            display_name="Dead Letter Queue Topic Replication Factor",
            documentation="The replication factor with which that topic is created.",
        ),
        _key(
            "errors.deadletterqueue.context.headers.enable",
            Type.BOOLEAN,
            False,
            group=ERRORS,
            order_in_group=8,
            width=Width.MEDIUM,
            display_name="Enable Error Context Headers",
            documentation="Whether dead letters carry headers (__connect.errors.*) that say what went wrong.",
        ),
    ]


def _sink() -> list[ConfigKey]:
    return [
        _key(
            TOPICS,
            Type.LIST,
            [],
            importance=Importance.HIGH,
            group=COMMON,
            order_in_group=4,
            width=Width.LONG,
            display_name="Topics",
            documentation="The topics to read, separated by commas. Give either this or topics.regex.",
        ),
        _key(
            TOPICS_REGEX,
            Type.STRING,
            "",
            importance=Importance.HIGH,
            group=COMMON,
            order_in_group=4,
            width=Width.LONG,
            display_name="Topics regex",
            documentation="A regular expression; every topic whose whole name it matches is read, also one that "
            "is created later. Give either this or topics.",
        ),
        *_dead_letters(),
    ]


def _ordered(keys: list[ConfigKey]) -> list[ConfigKey]:
    """Numbers the keys of the first part as Kafka does: one count over Common, Transforms and Predicates."""
    numbers = iter(range(1, len(keys) + 1))
    return [replace(k, order_in_group=next(numbers)) for k in keys]


_SHARED: Final = [*_ordered([*_head(), *_converters(), *_transforms()]), *_errors()]

SOURCE: Final = ConfigDef([*_SHARED, *_source()])
"""The keys of every source connector, in Kafka's order."""
SINK: Final = ConfigDef([*_SHARED, *_sink()])
"""The keys of every sink connector, in Kafka's order."""

SOURCE_DEAD_LETTERS: Final = ConfigDef(_dead_letters())
"""The keys of a source's dead letter topic, which Kafka does not have; answers show them only where they
are given.
"""
