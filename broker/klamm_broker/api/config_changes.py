"""Changes of configurations by AlterConfigs and IncrementalAlterConfigs, for each kind of resource.

A `ConfigResource` has a resource's own configurations, checks new ones and stores them; `incremental` and
`replacement` make new ones from a request. An error is a `ConfigRefused` with Kafka's code and, where Kafka has one,
Kafka's sentence. All topics of a request are written together.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeVar

from klamm_base.configdef import ConfigDef, Type, parse_type, to_string
from klamm_base.errors import ConfigError
from klamm_broker.api.authorized import DENIED
from klamm_broker.api.registry import Need, RequestContext
from klamm_broker.api.topic_configs import ResourceType
from klamm_broker.log import mirror_topic
from klamm_broker.log.errors import LogError
from klamm_broker.log.topic_config import TOPIC_CONFIGS
from klamm_broker.server import audit, cluster_config, dynamic_config, group_config, loggers, mirror_topics
from klamm_broker.server.config_keys import BROKER_CONFIG
from klamm_broker.server.config_refused import ConfigRefused
from klamm_broker.server.topics import why_invalid
from klamm_kafka.wire.acls import CLUSTER_NAME, AclOperation
from klamm_kafka.wire.acls import ResourceType as Kind
from klamm_kafka.wire.errors import ErrorCode

if TYPE_CHECKING:
    from klamm_broker.log.steps import Steps
    from klamm_broker.server.state import BrokerState
    from klamm_broker.server.topics import Topic
    from klamm_kafka.wire.messages.incremental_alter_configs import AlterableConfig

log = logging.getLogger(__name__)

INVALID_REQUEST, INVALID_CONFIG = ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_CONFIG
VALUE_MAX = 32767


_KINDS: Final[Mapping[int, Kind]] = {
    ResourceType.TOPIC: Kind.TOPIC,
    ResourceType.GROUP: Kind.GROUP,
    ResourceType.BROKER: Kind.CLUSTER,
    ResourceType.BROKER_LOGGER: Kind.CLUSTER,
    ResourceType.CLIENT_METRICS: Kind.CLUSTER,
}
"""The resources for which a client must have rights."""


def rights(operation: AclOperation) -> list[Need]:
    """Returns the rights that a request for configurations needs."""
    return [
        Need(operation, Kind.CLUSTER, "brokers, their loggers, client metrics"),
        Need(operation, Kind.TOPIC, "topics"),
        Need(operation, Kind.GROUP, "groups"),
    ]


def check_rights(ctx: RequestContext, operation: AclOperation, kind: int, name: str) -> None:
    """Raise ConfigRefused if the sender may not do this with the configuration of a resource."""
    needed = _KINDS.get(kind)
    if needed is None:
        return  # it will be refused as unknown
    if not ctx.may(operation, needed, CLUSTER_NAME if needed is Kind.CLUSTER else name):
        raise ConfigRefused(DENIED[needed], DENIED[needed].message)


def report(ctx: RequestContext, kind: int, name: str, keys: Iterable[str]) -> None:
    """Tell the audit log of changed keys, without their values."""
    audit.changed(
        ctx, "configurations", resource_type=ResourceType(kind).name, resource=name, keys=list(keys)
    )


class Operation(IntEnum):
    """The operations of IncrementalAlterConfigs on a key."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigResource(Protocol):
    """One resource whose configurations can be changed. To make one raises ConfigRefused when it does not exist."""

    keys: ConfigDef
    """The known keys. They tell which key is a list, and its default."""
    splittable: frozenset[str] | None
    """The lists to which a change can append; None: all lists."""

    def own(self) -> Mapping[str, str]:
        """Returns the resource's own configurations."""

    def inherited(self, name: str) -> str | None:
        """Returns the value of a list before anything is appended to it."""

    def check(self, configs: Mapping[str, str]) -> None:
        """Raises ConfigRefused unless these may be its configurations."""

    def store(self, configs: Mapping[str, str]) -> None:
        """Replace its configurations. Raises OSError."""


class TopicResource:
    keys: ConfigDef = TOPIC_CONFIGS
    splittable: frozenset[str] | None = None

    def __init__(self, broker: BrokerState, name: str) -> None:
        if not name:
            raise ConfigRefused(INVALID_REQUEST, "Default topic resources are not allowed.")
        topic = broker.topics.by_name.get(name)
        if topic is None:
            why = why_invalid(name)
            if why is not None:
                raise ConfigRefused(ErrorCode.INVALID_TOPIC_EXCEPTION, why)
            raise _unknown(name)
        self._broker = broker
        self.topic = topic

    def own(self) -> Mapping[str, str]:
        return self.topic.overrides

    def inherited(self, name: str) -> str | None:
        return self._broker.config.topic_defaults.get(name)

    def check(self, configs: Mapping[str, str]) -> None:
        try:
            self._broker.log_config(configs)
        except ConfigError as e:
            raise ConfigRefused(INVALID_CONFIG, str(e)) from None
        why = mirror_topic.why_not(self.own(), configs)
        if why is not None:
            raise ConfigRefused(INVALID_CONFIG, why)

    def promotes(self, configs: Mapping[str, str]) -> bool:
        """Tells whether these make an ordinary topic of a mirror topic."""
        return configs.get(mirror_topic.STATE) != self.own().get(mirror_topic.STATE)

    def store(self, configs: Mapping[str, str]) -> None:
        """Promote a mirror topic, here and now: nothing may come into its logs meanwhile. Other changes are a `TopicChange`."""
        assert self.promotes(configs)
        try:
            mirror_topics.promote(self._broker, self.topic, configs)
        except LogError as e:
            raise ConfigRefused(e.code, str(e)) from None


class _Stored:
    """A resource whose configurations `BrokerState.cluster_config` keeps."""

    keys: ConfigDef
    splittable: frozenset[str] | None = None
    kind: cluster_config.ResourceType

    def __init__(self, broker: BrokerState, name: str) -> None:
        self._broker = broker
        self._name = name

    def own(self) -> Mapping[str, str]:
        return self._broker.cluster_config.get(self.kind, self._name)

    def inherited(self, name: str) -> str | None:
        return None

    def store(self, configs: Mapping[str, str]) -> None:
        self._broker.cluster_config.alter(self.kind, self._name, configs)


class BrokerResource(_Stored):
    keys = BROKER_CONFIG.merged(dynamic_config.WITHOUT_EFFECT)
    kind = cluster_config.ResourceType.BROKER

    def __init__(self, broker: BrokerState, name: str) -> None:
        super().__init__(broker, name)
        if name:
            check_node_id(broker, name)

    def reading(self, configs: Mapping[str, str]) -> Steps[None]:
        """Read the files that a check of these looks at. Raises ConfigRefused."""
        dynamic_config.check(configs, per_broker=bool(self._name))
        try:
            yield from self._broker.reading_dynamic_config(self._name, configs)
        except ConfigError as e:
            raise ConfigRefused(INVALID_REQUEST, str(e)) from None

    def check(self, configs: Mapping[str, str]) -> None:
        dynamic_config.check(configs, per_broker=bool(self._name))
        if self._broker.cluster_config.features["eligible.leader.replicas.version"]:
            dynamic_config.check_min_isr(self.own(), configs, per_broker=bool(self._name))
        try:
            self._broker.check_dynamic_config(self._name, configs)
        except ConfigError as e:
            raise ConfigRefused(INVALID_REQUEST, str(e)) from None

    def store(self, configs: Mapping[str, str]) -> None:
        for name in configs.keys() - self.own().keys():
            if name in dynamic_config.WITHOUT_EFFECT:
                log.warning("configuration %s is kept, but has no effect: not implemented", name)
        super().store(configs)
        self._broker.apply_dynamic_config()


class GroupResource(_Stored):
    keys = group_config.GROUP_CONFIGS
    kind = cluster_config.ResourceType.GROUP

    def __init__(self, broker: BrokerState, name: str) -> None:
        super().__init__(broker, name)
        if not name:
            raise ConfigRefused(INVALID_REQUEST, "Default group resources are not allowed.")

    def check(self, configs: Mapping[str, str]) -> None:
        group_config.check_group(configs, self._broker.config)


class ClientMetricsResource(_Stored):
    keys = group_config.METRICS_CONFIGS
    splittable: frozenset[str] | None = frozenset()
    kind = cluster_config.ResourceType.CLIENT_METRICS

    def __init__(self, broker: BrokerState, name: str) -> None:
        super().__init__(broker, name)
        if not name:
            raise ConfigRefused(INVALID_REQUEST, "Subscription name can't be empty")

    def check(self, configs: Mapping[str, str]) -> None:
        group_config.check_client_metrics(configs)


def resource(broker: BrokerState, kind: int, name: str) -> ConfigResource:
    """Returns a resource of a request (not a logger). Raises ConfigRefused."""
    match kind:
        case ResourceType.TOPIC:
            return TopicResource(broker, name)
        case ResourceType.BROKER:
            return BrokerResource(broker, name)
        case ResourceType.GROUP:
            return GroupResource(broker, name)
        case ResourceType.CLIENT_METRICS:
            return ClientMetricsResource(broker, name)
    raise ConfigRefused(INVALID_REQUEST, f"Unknown resource type {kind}")


def check_node_id(broker: BrokerState, name: str) -> None:
    """Raises ConfigRefused unless the name of a resource is this node's id."""
    try:
        node_id = int(name)
    except ValueError:
        why = f"Node id must be an integer, but it is: {name}"
        raise ConfigRefused(INVALID_REQUEST, why) from None
    if node_id != broker.node_id:
        why = f"Unexpected broker id, expected {broker.node_id}, but received {name}"
        raise ConfigRefused(INVALID_REQUEST, why)


def check_plain(names: Sequence[str], without_value: Iterable[str]) -> None:
    """Raises ConfigRefused if a key is named twice or lacks its value."""
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ConfigRefused(INVALID_REQUEST, f"Error due to duplicate config keys: {', '.join(twice)}")
    missing = list(without_value)
    if missing:
        raise ConfigRefused(INVALID_REQUEST, f"Null value not supported for : {', '.join(missing)}")


def incremental(target: ConfigResource, changes: Sequence[AlterableConfig]) -> dict[str, str]:
    """Returns a resource's configurations after these changes. Raises ConfigRefused."""
    check_plain(
        [change.name for change in changes],
        (c.name for c in changes if c.value is None and c.config_operation != Operation.DELETE),
    )
    configs = dict(target.own())
    for change in changes:
        match change.config_operation:
            case Operation.DELETE:
                configs.pop(change.name, None)
            case Operation.SET:
                configs[change.name] = change.value or ""
            case Operation.APPEND | Operation.SUBTRACT:
                configs[change.name] = _spliced(target, configs, change)
            case unknown:
                raise ConfigRefused(INVALID_REQUEST, f"Unknown operations type {unknown}")
    return configs


def _spliced(target: ConfigResource, configs: Mapping[str, str], change: AlterableConfig) -> str:
    name, operation = change.name, Operation(change.config_operation)
    if name not in target.keys:
        raise ConfigRefused(INVALID_CONFIG, f"Unknown config name: {name}")
    key = target.keys[name]
    if key.type is not Type.LIST or (target.splittable is not None and name not in target.splittable):
        why = f"Can't {operation.name} to key {name} because its type is not LIST."
        raise ConfigRefused(INVALID_CONFIG, why)
    before = configs.get(name, target.inherited(name))
    items: list[str] = list(key.default or ()) if before is None else parse_type(name, before, Type.LIST)
    given: list[str] = parse_type(name, change.value, Type.LIST)
    if operation is Operation.APPEND:
        items += [item for item in given if item not in items]
    else:
        items = [item for item in items if item not in given]
    return to_string(items, Type.LIST) or ""


class TopicChange(NamedTuple):
    """New configurations of a topic, found good and not stored yet. `report` tells of them once they are."""

    topic: Topic
    configs: Mapping[str, str]
    report: Callable[[], None]


def altering(
    target: ConfigResource,
    make: Callable[[], Mapping[str, str]],
    report: Callable[[], None],
    *,
    validate_only: bool,
) -> Steps[TopicChange | None]:
    """Check a resource's new configurations, and store them or return what is to be stored. Raises ConfigRefused, OSError.

    `make` is called again once files were read: another request may have changed the resource meanwhile.
    """
    if isinstance(target, BrokerResource):
        yield from target.reading(make())
    configs = make()
    for value in configs.values():
        if len(value) > VALUE_MAX:
            why = f"The configuration value cannot be added because it exceeds the maximum value size of {VALUE_MAX} bytes."
            raise ConfigRefused(INVALID_CONFIG, why)
    target.check(configs)
    if validate_only:
        return None
    if configs != target.own():
        if isinstance(target, TopicResource) and not target.promotes(configs):
            return TopicChange(target.topic, configs, report)
        target.store(configs)
    report()
    return None


def _unknown(topic: str) -> ConfigRefused:
    return ConfigRefused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{topic}' does not exist.")


def check_loggers(broker: BrokerState, name: str, changes: Sequence[AlterableConfig]) -> None:
    """Raise ConfigRefused where levels of loggers cannot be changed so."""
    check_node_id(broker, name)
    check_plain([change.name for change in changes], ())
    for change in changes:
        _check_logger(change)


def alter_loggers(changes: Sequence[AlterableConfig]) -> None:
    """Change the levels of loggers that `check_loggers` has found good."""
    for change in changes:
        set_ = change.config_operation == Operation.SET
        loggers.set_level(change.name, change.value if set_ else None)


def _check_logger(change: AlterableConfig) -> None:
    if change.config_operation not in {Operation.SET, Operation.DELETE}:
        known = change.config_operation in Operation.__members__.values()
        what = Operation(change.config_operation).name if known else str(change.config_operation)
        why = f"{what} operation is not allowed for the BROKER_LOGGER resource"
        raise ConfigRefused(INVALID_REQUEST, why)
    if not loggers.exists(change.name):
        raise ConfigRefused(INVALID_CONFIG, f"Logger {change.name} does not exist!")
    if change.config_operation == Operation.DELETE:
        if change.name == loggers.ROOT:
            why = "Removing the log level of the root logger is not allowed"
            raise ConfigRefused(INVALID_REQUEST, why)
    elif change.value not in loggers.LEVELS:
        why = (
            f"Cannot set the log level of {change.name} to {change.value} as it is not a supported log level. "
            f"Valid log levels are {', '.join(loggers.LEVELS)}"
        )
        raise ConfigRefused(INVALID_CONFIG, why)


class _Named(Protocol):
    resource_type: int
    resource_name: str


_Resource = TypeVar("_Resource", bound=_Named)


def topics_of(broker: BrokerState, ctx: RequestContext, resources: Sequence[_Named]) -> set[str]:
    """Returns the topics among these that are there and that the sender may change.

    Their changes are stored beside the event loop and take turns, those of other resources are stored at once.
    """
    named = {r.resource_name for r in resources if r.resource_type == ResourceType.TOPIC}
    there = named & broker.topics.by_name.keys()
    return {name for name in there if ctx.may(AclOperation.ALTER_CONFIGS, Kind.TOPIC, name, tell=False)}


def each_resource(
    broker: BrokerState,
    resources: Sequence[_Resource],
    change: Callable[[_Resource], Steps[TopicChange | None]],
) -> Steps[list[tuple[_Resource, ErrorCode, str | None]]]:
    """Change one resource after the other, and then all topics at once; returns the outcomes. Each is at least a step.

    `change` raises ConfigRefused or OSError. A resource that is named twice is refused both times.
    """
    named = Counter((r.resource_type, r.resource_name) for r in resources)
    outcomes: list[TopicChange | ConfigRefused | OSError | None] = []
    for resource in resources:
        try:
            if named[resource.resource_type, resource.resource_name] > 1:
                raise ConfigRefused(INVALID_REQUEST, "Each resource must appear at most once.")
            outcomes.append((yield from change(resource)))
        except ConfigRefused as e:
            outcomes.append(e.with_traceback(None))  # which holds this frame, and so the connection
        except OSError as e:
            log.error("the configuration of %s could not be stored: %s", resource.resource_name, e)  # noqa: TRY400
            outcomes.append(e.with_traceback(None))
        yield None
    errors = yield from _altering_topics(broker, [o for o in outcomes if isinstance(o, TopicChange)])
    results: list[tuple[_Resource, ErrorCode, str | None]] = []
    for resource, outcome in zip(resources, outcomes, strict=True):
        error = errors.get(outcome.topic.name) if isinstance(outcome, TopicChange) else outcome
        code = ErrorCode.NONE
        if error is not None:
            code = error.code if isinstance(error, ConfigRefused) else ErrorCode.KAFKA_STORAGE_ERROR
        results.append((resource, code, None if error is None else str(error) or None))
    return results


def _altering_topics(
    broker: BrokerState, changes: Sequence[TopicChange]
) -> Steps[dict[str, ConfigRefused | OSError]]:
    """Store the changes of topics with one write, beside the event loop. Returns the errors by name."""
    there = {c.topic.name: c for c in changes if broker.topics.by_name.get(c.topic.name) is c.topic}
    errors: dict[str, ConfigRefused | OSError] = {
        change.topic.name: _unknown(change.topic.name) for change in changes if change.topic.name not in there
    }
    if not there:
        return errors
    try:
        yield from broker.logs.altering_configs({name: change.configs for name, change in there.items()})
    except OSError as e:
        some = next(iter(there)) if len(there) == 1 else f"{len(there)} topics"
        log.error("the configuration of %s could not be stored: %s", some, e)  # noqa: TRY400
        return errors | dict.fromkeys(there, e)
    for change in there.values():
        change.report()
        yield None
    return errors
