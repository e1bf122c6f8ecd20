"""The settings of `klamm lag`: properties of the server, of clusters (`cluster.NAME.`) and of notifiers (`notifier.NAME.`).

Without any cluster, the properties of clients stand for one cluster, `local`. Names after the prefix are Burrow's where Burrow has the setting, with its units (seconds) and defaults. Other properties of
a cluster are those of Kafka's clients.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from klamm.lag.incidents import NotifierRules
from klamm.lag.keys import cluster_config, notifier_config, server_config
from klamm.lag.state import Judging
from klamm.web.listeners import HTTPS_PREFIX
from klamm_base.addresses import parse_addresses
from klamm_base.configdef import ConfigDef, with_prefix
from klamm_base.errors import ConfigError
from klamm_base.properties import Properties
from klamm_base.security import ClientSecurity

DEFAULT_CLUSTER: Final = "local"
DEFAULT_BOOTSTRAP: Final = "127.0.0.1:9092"
_NAMED: Final = re.compile(r"(cluster|notifier)\.([A-Za-z0-9_-]+)\.(.+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings:
    """A cluster to watch."""

    name: str
    bootstrap: str
    security: ClientSecurity
    offset_refresh_s: float
    topic_refresh_s: float
    start_latest: bool
    time_lag: bool
    mirror_topics: str
    spark_metrics: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NotifierSettings:
    """A notifier: when it is used, and how it sends. `values` are those of `notifier_config`."""

    rules: NotifierRules
    values: Mapping[str, Any]
    extras: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class LagSettings:
    """All settings but those of HTTP."""

    judging: Judging
    clusters: tuple[ClusterSettings, ...]
    notifiers: tuple[NotifierSettings, ...]
    wanted: Callable[[str], bool]
    history_dir: Path
    history_retention_ms: int
    history_max_rows: int


def parse(props: Properties) -> LagSettings:
    """Returns typed settings. Raises ConfigError naming key and value."""
    own = server_config().parse(props)
    named = _named(props)
    if not named["cluster"]:
        named["cluster"][DEFAULT_CLUSTER] = {"bootstrap.servers": DEFAULT_BOOTSTRAP} | _client_keys(props)
    return LagSettings(
        judging=Judging(
            intervals=own["storage.intervals"],
            distance_ms=own["storage.min-distance"] * 1000,
            expire_ms=own["storage.expire-group"] * 1000,
            minimum_complete=own["evaluator.minimum-complete"],
            allowed_lag=own["evaluator.allowed-lag"],
            patience_ms=int(own["evaluator.minimum-stop"] * 1000),
        ),
        clusters=tuple(_cluster(name, found) for name, found in named["cluster"].items()),
        notifiers=tuple(_notifier(name, found) for name, found in named["notifier"].items()),
        wanted=chosen(own["storage.group-allowlist"], own["storage.group-denylist"]),
        history_dir=Path(own["history.dir"]),
        history_retention_ms=own["history.retention.ms"],
        history_max_rows=own["history.max.rows"],
    )


def one_cluster(bootstrap: str, security: ClientSecurity) -> ClusterSettings:
    """Returns the settings of a cluster for a command that looks once."""
    values = cluster_config().parse({"bootstrap.servers": bootstrap})
    return _typed(DEFAULT_CLUSTER, values, security)


def chosen(allow: str, deny: str) -> Callable[[str], bool]:
    """Returns whether a name is found by `allow` (empty: any) and not by `deny`."""
    wanted, unwanted = re.compile(allow), re.compile(deny) if deny else None
    return lambda name: bool(wanted.search(name)) and not (unwanted and unwanted.search(name))


def unknown(props: Properties, known: ConfigDef) -> list[str]:
    """Returns the keys that have no effect, those of clients and of `known` excepted."""
    notifier, clients = notifier_config(), _client_keys(props)
    found = []
    for key in props:
        named = _NAMED.fullmatch(key)
        if named is None:
            own = key in server_config() or key in known or key in clients or key.startswith(HTTPS_PREFIX)
            if not own:
                found.append(key)
        elif named[1] == "notifier" and named[3] not in notifier and not named[3].startswith("extras."):
            found.append(key)
    return found


def _client_keys(props: Mapping[str, str]) -> dict[str, str]:
    """Returns the properties of the only cluster where none has a name. TLS is that of our listeners, too."""
    client = ("bootstrap.servers", "security.", "sasl.", "ssl.")
    return {key: value for key, value in props.items() if key.startswith(client)}


def _named(props: Mapping[str, str]) -> dict[str, dict[str, dict[str, str]]]:
    found: dict[str, dict[str, dict[str, str]]] = {"cluster": {}, "notifier": {}}
    for key, value in props.items():
        if (named := _NAMED.fullmatch(key)) is not None:
            found[named[1]].setdefault(named[2], {})[named[3]] = value
    return found


def _cluster(name: str, props: dict[str, str]) -> ClusterSettings:
    with_name = _Prefixed(f"cluster.{name}.")
    values = with_name.parse(cluster_config(), props)
    try:
        parse_addresses(values["bootstrap.servers"])
        security = ClientSecurity.from_properties(props)
    except ConfigError as e:
        raise ConfigError(f"cluster.{name}: {e}", key=f"cluster.{name}.{e.key}") from None
    return _typed(name, values, security)


def _typed(name: str, values: Mapping[str, Any], security: ClientSecurity) -> ClusterSettings:
    return ClusterSettings(
        name=name,
        bootstrap=values["bootstrap.servers"],
        security=security,
        offset_refresh_s=values["offset-refresh"],
        topic_refresh_s=values["topic-refresh"],
        start_latest=values["start-latest"],
        time_lag=values["time-lag"],
        mirror_topics=values["mirror.topics"],
        spark_metrics=tuple(values["spark.metrics"]),
    )


def _notifier(name: str, props: dict[str, str]) -> NotifierSettings:
    with_name = _Prefixed(f"notifier.{name}.")
    values = with_name.parse(notifier_config(), props)
    needed = {"http": ["url-open"], "email": ["server", "from", "to"], "command": ["command-open"]}
    for key in needed[values["class-name"]]:
        if not values[key]:
            raise ConfigError(
                f'Missing required configuration "notifier.{name}.{key}": a notifier of class {values["class-name"]} needs it',
                key=f"notifier.{name}.{key}",
            )
    rules = NotifierRules(
        name=name,
        threshold=values["threshold"],
        send_interval_ms=int(values["send-interval"] * 1000),
        send_close=values["send-close"],
        wants=chosen(values["group-allowlist"], values["group-denylist"]),
    )
    return NotifierSettings(rules=rules, values=values, extras=with_prefix(props, "extras."))


class _Prefixed:
    """Parses properties without their prefix; errors name them with it."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix

    def parse(self, definition: ConfigDef, props: Mapping[str, str]) -> dict[str, Any]:
        whole = ConfigDef([])
        for key in definition:
            whole.define(self._prefix + key.name, key.type, key.default, validator=key.validator)
        found = whole.parse({self._prefix + name: value for name, value in props.items()})
        return {name.removeprefix(self._prefix): value for name, value in found.items()}
