"""A broker's configuration: `server.properties` parsed, checked and typed.

`BrokerConfig.load` is the only way in. A bad value raises a ConfigError with file and line (if the mapping has
`source(key)`), the key and the right form. Keys without effect are warned about by name, once.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from klamm_base.configdef import invalid
from klamm_base.errors import ConfigError
from klamm_base.properties import is_from_environment, parse, suggestion
from klamm_broker.server import (
    consumer_group_keys,
    listener_config,
    share_group_keys,
    single_node,
    streams_group_keys,
    topic_config,
)
from klamm_broker.server.config_keys import BROKER_CONFIG, NOT_IMPLEMENTED
from klamm_broker.server.listener_config import Listener, general_key

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """Typed values by Kafka's names (`config["num.partitions"]`), and values that follow from several of them."""

    values: Mapping[str, Any]
    originals: Mapping[str, str]
    node_id: int
    log_dirs: tuple[Path, ...]
    listeners: tuple[Listener, ...]
    advertised: tuple[Listener, ...]
    topic_defaults: Mapping[str, str]
    static_topic_defaults: Mapping[str, str]
    """`topic_defaults` as `server.properties` alone defines them."""
    dynamic: Mapping[str, str] = field(default_factory=dict)
    """This broker's changes at run time. They override `dynamic_defaults`, and these override `originals`."""
    dynamic_defaults: Mapping[str, str] = field(default_factory=dict)

    def with_dynamic(self, *, defaults: Mapping[str, str], own: Mapping[str, str]) -> BrokerConfig:
        """Returns this configuration with other dynamic ones, for all brokers and for this one. Raises ConfigError."""
        texts = {**self.originals, **defaults, **own}
        values = parse(BROKER_CONFIG, texts)
        listeners, advertised = listener_config.read(values)
        return replace(
            self,
            values=values,
            listeners=listeners,
            advertised=advertised,
            topic_defaults=topic_config.defaults(texts, values),
            dynamic=dict(own),
            dynamic_defaults=dict(defaults),
        )

    def of_listener(self, name: str) -> dict[str, str]:
        """Returns the properties as texts, with the overrides of one listener (`listener.name.<name>.*`) applied."""
        return listener_config.properties_of(
            name, {**self.originals, **self.dynamic_defaults, **self.dynamic}
        )

    def override(self, listener: str, name: str) -> str | None:
        """Returns the text that `listener.name.<listener>.<name>` has, if any."""
        key = f"{listener_config.LISTENER_PREFIX}{listener.lower()}.{name}"
        return {**self.originals, **self.dynamic_defaults, **self.dynamic}.get(key)

    @property
    def log_dir(self) -> Path:
        """The first of `log_dirs`; it holds the files that the broker has only once."""
        return self.log_dirs[0]

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    @staticmethod
    def load(props: Mapping[str, str]) -> BrokerConfig:
        """Parse and check. `props` may be a plain dict, or a `Properties` whose `source(key)` is `file:line`."""
        try:
            return _load(props)
        except ConfigError as e:
            source = _source(props, e.key)
            if source is None or e.source is not None:
                raise
            raise ConfigError(str(e), key=e.key, source=source) from None


def _load(props: Mapping[str, str]) -> BrokerConfig:
    values = parse(BROKER_CONFIG, props)
    originals = {name: str(value) for name, value in props.items() if general_key(name) in BROKER_CONFIG}
    single_node.check_roles(values["process.roles"])
    listeners, advertised = listener_config.read(values)
    consumer_group_keys.check(values)
    streams_group_keys.check(values)
    share_group_keys.check(values)
    node_id = values["node.id"]
    if "node.id" not in originals and values["broker.id"] >= 0:
        node_id = values["broker.id"]
    topic_defaults = topic_config.defaults(originals, values)
    config = BrokerConfig(
        values=values,
        originals=originals,
        node_id=node_id,
        log_dirs=_log_dirs(values),
        listeners=listeners,
        advertised=advertised,
        topic_defaults=topic_defaults,
        static_topic_defaults=topic_defaults,
    )
    _warn(props)
    single_node.warn(originals, values)
    return config


def _log_dirs(values: Mapping[str, Any]) -> tuple[Path, ...]:
    """Returns the log directories in their order; `log.dir` may be a list as well."""
    key = "log.dir" if values["log.dirs"] is None else "log.dirs"
    names = [name.strip() for name in values[key].split(",")] if key == "log.dir" else values[key]
    if not names or not all(names):
        raise invalid(key, ",".join(names), "must be directories, comma separated")
    paths = tuple(Path(name) for name in names)
    twice = [
        str(path)
        for number, path in enumerate(paths)
        if path.resolve() in {p.resolve() for p in paths[:number]}
    ]
    if twice:
        raise invalid(key, ",".join(names), f"{twice[0]} is named twice")
    return paths


def _warn(props: Mapping[str, str]) -> None:
    for name in BROKER_CONFIG.unknown(props):
        if general_key(name) in BROKER_CONFIG:
            continue
        source = _source(props, name)
        at = f"{source}: " if source else ""
        hint = suggestion(name, BROKER_CONFIG.names)
        why = (
            "has no effect: not implemented" if name.startswith(NOT_IMPLEMENTED) else "is unknown and ignored"
        )
        if hint or not is_from_environment(source):
            log.warning("%sconfiguration %s %s%s", at, name, why, hint)


def _source(props: Mapping[str, str], key: str | None) -> str | None:
    source = getattr(props, "source", None)
    if key is None or key not in props or not callable(source):
        return None
    return str(source(key))
