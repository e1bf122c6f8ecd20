"""The filters, policy and forwarding admin of a flow: Kafka's own, or Python classes of plugin packages.

`FlowPlugins` imports plugin code, so it runs in children. A name is one of Kafka's classes, which are built in, or
a class that an installed package gives for the hook `register_mirror_plugins`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

from klamm_base.configdef import ConfigValue, Validator, invalid
from klamm_base.errors import ConfigError
from klamm_mirror.settings import filters
from klamm_mirror.settings.policy import POLICIES, DefaultReplicationPolicy, policy_from
from klamm_mirror.settings.topic_map import KEY as TOPIC_MAP
from klamm_mirror.settings.topic_map import parse_map
from klamm_plugins.discovery import PluginManager
from klamm_plugins.errors import PluginNotFoundError
from klamm_plugins.mirror import (
    ConfigPropertyFilter,
    ForwardingAdmin,
    GroupFilter,
    MirrorPlugin,
    ReplicationPolicy,
    TopicFilter,
)

if TYPE_CHECKING:  # the client brings asyncio, which every child would wait for
    from klamm_kafka.client import Cluster
    from klamm_mirror.target_admin import Admin

MIRROR: Final = "org.apache.kafka.connect.mirror."
TOPIC_FILTER: Final = "topic.filter.class"
GROUP_FILTER: Final = "group.filter.class"
CONFIG_FILTER: Final = "config.property.filter.class"
POLICY: Final = "replication.policy.class"
ADMIN: Final = "forwarding.admin.class"
JAVA_CLASSES: Final[Mapping[str, tuple[str, ...]]] = {
    TOPIC_FILTER: (f"{MIRROR}DefaultTopicFilter",),
    GROUP_FILTER: (f"{MIRROR}DefaultGroupFilter",),
    CONFIG_FILTER: (f"{MIRROR}DefaultConfigPropertyFilter",),
    POLICY: tuple(f"{MIRROR}{name}" for name in POLICIES),
    ADMIN: ("org.apache.kafka.clients.admin.ForwardingAdmin",),
}
"""Kafka's classes that are built in, by key; the first one is the default."""

_BASES: Final[Mapping[str, type[MirrorPlugin]]] = {
    TOPIC_FILTER: TopicFilter,
    GROUP_FILTER: GroupFilter,
    CONFIG_FILTER: ConfigPropertyFilter,
    POLICY: ReplicationPolicy,
    ADMIN: ForwardingAdmin,
}


def is_built_in(key: str, name: str) -> bool:
    return any(name in {known, known.rpartition(".")[2]} for known in JAVA_CLASSES[key])


def _is_kafkas(name: str) -> bool:
    return name.startswith("org.apache.kafka.")


def class_for(key: str) -> Validator:
    """Returns a validator that refuses Kafka's classes that are not built in. It runs no plugin code."""

    def check(name: str, value: Any) -> None:
        if not value or (_is_kafkas(value) and not is_built_in(key, value)):
            known = " or ".join(JAVA_CLASSES[key])
            raise invalid(
                name, value, f"Must be {known}, or a Python class of an installed plugin package: Java classes "
                "cannot be loaded",
            )  # fmt: skip

    return check


def without_plugins(props: Mapping[str, str]) -> dict[str, str]:
    """Returns the configuration with Kafka's defaults for plugin classes, for processes that run no plugin code."""
    return {k: v for k, v in props.items() if k not in JAVA_CLASSES or _is_kafkas(v) or is_built_in(k, v)}


def own_keys(props: Mapping[str, str]) -> set[str]:
    """Returns the keys that the plugins of a configuration define, if they are there (see `add_mistakes`)."""
    keys: set[str] = set()
    for key in JAVA_CLASSES:
        with contextlib.suppress(ConfigError):
            cls = _find(key, props)
            keys |= set(cls.config().names) if cls is not None else set()
    return keys


def add_mistakes(values: list[ConfigValue], props: Mapping[str, str]) -> list[ConfigValue]:
    """Adds what is wrong with the plugins of a configuration to its keys. Makes each plugin, as a task would."""
    by_name = {value.name: value for value in values}
    for key in JAVA_CLASSES:
        if key not in by_name or by_name[key].errors:
            continue
        try:
            plugin = _make(key, props)
        except ConfigError as e:
            name = e.key or key
            by_name.setdefault(name, ConfigValue(name=name)).errors.append(str(e))
        else:
            if plugin is not None:
                plugin.close()
    return list(by_name.values())


@dataclass(frozen=True, slots=True)
class ConfigFilter:
    """Selects settings of topics. `wants_default`: also where the source's value is its default."""

    wants: Callable[[str], bool]
    wants_default: Callable[[str], bool]


class FlowPlugins:
    """The plugins of one connector or task, each made and configured when it is first asked for. Raises ConfigError.

    A context manager that closes them. `parsed` is what the connector makes of `props`; it has only the plugins whose keys it defines.
    """

    def __init__(self, props: Mapping[str, str], parsed: Mapping[str, Any]) -> None:
        self._props = props
        self._parsed = parsed
        self._made: dict[str, MirrorPlugin | None] = {}

    def _plugin(self, key: str) -> MirrorPlugin | None:
        if key not in self._made:
            self._made[key] = _make(key, self._props)
        return self._made[key]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        for plugin in self._made.values():
            if plugin is not None:
                plugin.close()

    @property
    def policy(self) -> DefaultReplicationPolicy:
        plugin = self._plugin(POLICY)
        if isinstance(plugin, ReplicationPolicy):
            policy = PluggedPolicy(plugin, source_alias=self._parsed["source.cluster.alias"])
            policy.topic_map = parse_map(self._parsed.get(TOPIC_MAP) or [])
            return policy
        return policy_from(self._parsed)

    @property
    def wants_topic(self) -> Callable[[str], bool]:
        plugin = self._plugin(TOPIC_FILTER)
        if isinstance(plugin, TopicFilter):
            return plugin.should_replicate_topic
        return filters.topic_filter(self._parsed).wants

    @property
    def wants_group(self) -> Callable[[str], bool]:
        plugin = self._plugin(GROUP_FILTER)
        if isinstance(plugin, GroupFilter):
            return plugin.should_replicate_group
        return filters.group_filter(self._parsed).wants

    @property
    def configs(self) -> ConfigFilter:
        plugin = self._plugin(CONFIG_FILTER)
        if isinstance(plugin, ConfigPropertyFilter):
            return ConfigFilter(
                plugin.should_replicate_config_property, plugin.should_replicate_source_default
            )
        of_source = self._parsed["use.defaults.from"] == "source"
        return ConfigFilter(filters.config_filter(self._parsed).wants, lambda _: of_source)

    def admin(self, target: Cluster) -> Admin:
        """Returns the way of changes at the target."""
        from klamm_mirror.target_admin import AdminRequests

        return self.forwarded(target) or AdminRequests(target, self._parsed["admin.timeout.ms"])

    def forwarded(self, target: Cluster) -> Admin | None:
        """Returns the plugin's way of changes at the target; None without such a plugin."""
        from klamm_mirror.target_admin import AdminRequests, Forwarded

        plugin = self._plugin(ADMIN)
        if not isinstance(plugin, ForwardingAdmin):
            return None
        return Forwarded(plugin, AdminRequests(target, self._parsed["admin.timeout.ms"]))


class PluggedPolicy(DefaultReplicationPolicy):
    """A plugin's policy. The plugin answers Kafka's questions, the default policy those of our own topics."""

    def __init__(self, plugin: ReplicationPolicy, *, source_alias: str) -> None:
        super().__init__(source_alias=source_alias)
        self._plugin = plugin
        self.keeps_names = plugin.format_remote_topic(source_alias, "topic") == "topic"

    def format_remote_topic(self, source_alias: str, topic: str) -> str:
        return self._plugin.format_remote_topic(source_alias, topic)

    def topic_source(self, topic: str) -> str | None:
        return self._plugin.topic_source(topic)

    def upstream_topic(self, topic: str) -> str | None:
        return self._plugin.upstream_topic(topic)

    def original_topic(self, topic: str) -> str:
        return self._plugin.original_topic(topic)

    def heartbeats_topic(self) -> str:
        return self._plugin.heartbeats_topic()

    def offset_syncs_topic(self, alias: str) -> str:
        return self._plugin.offset_syncs_topic(alias)

    def checkpoints_topic(self, alias: str) -> str:
        return self._plugin.checkpoints_topic(alias)

    def is_heartbeats_topic(self, topic: str) -> bool:
        return self._plugin.is_heartbeats_topic(topic)

    def is_checkpoints_topic(self, topic: str) -> bool:
        return self._plugin.is_checkpoints_topic(topic)

    def is_mm2_internal_topic(self, topic: str) -> bool:
        return self._plugin.is_mm2_internal_topic(topic) or super().is_mm2_internal_topic(topic)

    def is_internal_topic(self, topic: str) -> bool:
        return self._plugin.is_internal_topic(topic) or self.is_mm2_internal_topic(topic)


def _find(key: str, props: Mapping[str, str]) -> type[MirrorPlugin] | None:
    """Returns the class of a plugin; None for one of Kafka's that are built in."""
    name = props.get(key, "").strip()
    if not name or is_built_in(key, name):
        return None
    class_for(key)(key, name)
    try:
        return PluginManager.load().find_mirror_plugin(name, _BASES[key])
    except PluginNotFoundError as e:
        kind = _BASES[key].__name__
        raise invalid(
            key, name, f"{e}. A {kind} is a Python class of an installed plugin package; Java classes cannot be loaded"
        ) from None  # fmt: skip


def _make(key: str, props: Mapping[str, str]) -> MirrorPlugin | None:
    cls = _find(key, props)
    if cls is None:
        return None
    try:
        plugin = cls()
        plugin.configure({**props, **cls.config().parse(props)})
    except ConfigError:
        raise
    except Exception as e:
        raise ConfigError(f"{key}={props[key]} cannot be configured: {type(e).__name__}: {e}", key=key) from e
    return plugin
