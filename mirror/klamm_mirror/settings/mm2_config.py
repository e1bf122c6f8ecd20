"""mm2.properties, MirrorMaker 2's file for its dedicated mode, taken apart: pure.

    clusters = A, B
    A.bootstrap.servers = a1:9092
    B.bootstrap.servers = b1:9092
    A->B.enabled = true
    A->B.topics = orders.*

| key | goes to |
|---|---|
| `A.SETTING` | cluster A's clients, in every flow; the worker that runs at A |
| `A->B.SETTING` | the three connectors of the flow from A to B |
| a connector's or a client's setting alone | all flows, all clusters |
| `config.storage.…`, `offset.storage.…`, `status.storage.…`, converters | all workers |
| `klamm.metrics.port`, `klamm.metrics.host` | `GET /metrics` of all flows |
| `dedicated.mode.enable.internal.rest`, `listeners`, `rest.…` | REST of all flows |

A flow is one Connect worker at its target with MirrorSourceConnector, MirrorCheckpointConnector and
MirrorHeartbeatConnector. As in MirrorMaker, a flow that is not enabled still sends heartbeats, which the
opposite flow carries back, unless `emit.heartbeats.enabled=false`. `${...}` in values is left as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from klamm_base.addresses import parse_addresses
from klamm_base.configdef import ConfigDef, Importance, Type, between, non_empty, with_prefix
from klamm_base.errors import ConfigError
from klamm_base.properties import Properties, raise_all, suggestion
from klamm_mirror.settings.mm2_keys import (
    is_of_family,
    is_of_records,
    is_of_worker,
    passes_to_connector,
    rule_cluster,
    rule_connector,
    rule_file,
)
from klamm_mirror.settings.plugins import JAVA_CLASSES, is_built_in
from klamm_plugins.original_keys import HONOURED, Ruling, Verdict

SOURCE: Final = "MirrorSourceConnector"
CHECKPOINT: Final = "MirrorCheckpointConnector"
HEARTBEAT: Final = "MirrorHeartbeatConnector"
CONNECTORS: Final = (SOURCE, HEARTBEAT, CHECKPOINT)
JAVA_PACKAGE: Final = "org.apache.kafka.connect.mirror."
BYTE_ARRAY: Final = "org.apache.kafka.connect.converters.ByteArrayConverter"

_FLOW_KEY: Final = re.compile(r"(?P<source>[^\s>]+?)->(?P<target>[^\s>]+?)\.(?P<name>[^>]+)")
_CLIENT_KINDS: Final = ("producer", "consumer", "admin")
_CLIENT_KEYS: Final = re.compile(r"bootstrap\.servers|security\.protocol|ssl\..+|sasl\..+")
_WORKER_PREFIXES: Final = (
    "offset.storage", "config.storage", "status.storage",
    "key.converter", "value.converter", "header.converter", "task", "worker",
)  # fmt: skip
_ALWAYS: Final = ("config.providers", "replication.policy")
_OWN_KEYS: Final = frozenset({"enabled", "tasks.max"})
_HEARTBEATS: Final = ("emit.heartbeats.", "heartbeats.topic.")
"""Settings that also count in a flow that is not enabled."""
_TRUE: Final = "true"
REST_ENABLED: Final = "dedicated.mode.enable.internal.rest"
_REST: Final = re.compile(
    r"listeners(\.https\..+)?|rest\..+|access\.control\..+|response\.http\.headers\.config"
)
"""Settings of the REST server, where it is enabled: those of a worker's."""

METRICS_PORT, METRICS_HOST = "klamm.metrics.port", "klamm.metrics.host"
METRICS: Final = (
    ConfigDef()
    .define(
        METRICS_PORT,
        Type.INT,
        -1,
        validator=between(-1, 65_535),
        importance=Importance.LOW,
        documentation="A port for GET /metrics, of all flows. -1: none, 0: any.",
    )
    .define(
        METRICS_HOST,
        Type.STRING,
        "localhost",
        validator=non_empty,
        importance=Importance.LOW,
        documentation="The address that it is on. The metrics name topics and groups: do not open it to everybody.",
    )
)


@dataclass(frozen=True, slots=True)
class MetricsPlace:
    """The address of GET /metrics. `port` -1: none, 0: any free port."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Flow:
    """One flow from a cluster to another: the configuration of its worker and its connectors."""

    source: str
    target: str
    enabled: bool
    worker: Mapping[str, str]
    connectors: Mapping[str, Mapping[str, str]]

    @property
    def name(self) -> str:
        return f"{self.source}->{self.target}"


def connectors_of(flow: Flow) -> Mapping[str, Mapping[str, str]]:
    """Returns the connectors to run: all three, or only heartbeats for a flow that is not enabled.

    Leaves out checkpoints when the file switches off all of their work.
    """
    if not flow.enabled:
        return {HEARTBEAT: flow.connectors[HEARTBEAT]}
    checkpoints = flow.connectors[CHECKPOINT]
    uses = (
        checkpoints.get("emit.checkpoints.enabled", _TRUE),
        checkpoints.get("sync.group.offsets.enabled", "false"),
    )
    if any(use.strip().lower() != "false" for use in uses):
        return flow.connectors
    return {name: config for name, config in flow.connectors.items() if name != CHECKPOINT}


@dataclass(frozen=True, slots=True)
class MirrorConfig:
    """The parsed file. `flows` have the order of `clusters`; `warnings` are sentences about settings without effect."""

    clusters: tuple[str, ...]
    flows: tuple[Flow, ...]
    warnings: tuple[str, ...] = field(default=())
    metrics: MetricsPlace = field(default=MetricsPlace("localhost", -1))
    rest: Properties | None = None
    """The settings of the REST server; None: there is none."""

    @property
    def enabled(self) -> list[Flow]:
        return [f for f in self.flows if f.enabled]

    def flow(self, name: str) -> Flow:
        """Returns the flow `A->B`. Raises ConfigError."""
        for flow in self.flows:
            if flow.name == name:
                return flow
        there = ", ".join(f.name for f in self.flows) or "none"
        raise ConfigError(f"there is no flow {name}; flows that run: {there}")

    def towards(self, targets: Collection[str]) -> MirrorConfig:
        """Keeps only flows into these clusters. Raises ConfigError for an unknown alias."""
        for alias in targets:
            _check_alias(alias, self.clusters, "--clusters", None)
        flows = tuple(f for f in self.flows if f.target in targets)
        if not any(f.enabled for f in flows):
            raise ConfigError(f"no flow into {', '.join(targets)} is enabled", key="--clusters")
        return replace(self, flows=flows)


def parse(
    props: Mapping[str, str], connector_keys: Iterable[str], worker_keys: Iterable[str] = ()
) -> MirrorConfig:
    """Parses a file's properties. `connector_keys` are all keys that the three connectors define, `worker_keys` those
    of a worker.

    A key without effect causes a warning and goes no further. Raises ConfigError, which names the line where it is known.
    """
    given = props if isinstance(props, Properties) else Properties(props)
    return _Parser(given, frozenset(connector_keys), frozenset(worker_keys)).parse()


class _Parser:
    def __init__(
        self, props: Properties, connector_keys: frozenset[str], worker_keys: frozenset[str]
    ) -> None:
        self._props = props
        self._connector_keys = connector_keys | _OWN_KEYS
        self._worker_keys = worker_keys
        self._clusters: tuple[str, ...] = ()
        self._sides: dict[str, set[str]] = {}
        self._warnings: list[str] = []
        self._without_effect: set[str] = set()

    def parse(self) -> MirrorConfig:
        self._clusters = self._parse_clusters()
        pairs = [(s, t) for s in self._clusters for t in self._clusters if s != t]
        self._sides = self._find_sides(pair for pair in pairs if self._runs(*pair))
        _run_all(
            *(partial(self._check_key, key) for key in self._props),
            *(partial(self._enabled, *pair) for pair in pairs),
            *(partial(self._check_addresses, alias) for alias in self._clusters),
        )
        self._props = _without(self._props, self._without_effect)
        pairs = [pair for pair in pairs if self._runs(*pair)]
        for alias in self._clusters:
            if any(alias in pair for pair in pairs):
                self._servers(alias)
        flows = [self._flow(source, target) for source, target in pairs]
        if not any(f.enabled for f in flows):
            first, second = (*self._clusters, "B")[:2]
            raise ConfigError(f"no flow is enabled: set {first}->{second}.enabled=true", key="enabled")
        self._check_one_cluster_twice(flows)
        return MirrorConfig(
            self._clusters, tuple(flows), tuple(self._warnings), self._metrics(), self._rest()
        )

    # Clusters and flows

    def _parse_clusters(self) -> tuple[str, ...]:
        if "clusters" not in self._props:
            raise ConfigError("clusters is missing: name the clusters, such as clusters=A,B", key="clusters")
        aliases = [a.strip() for a in self._props["clusters"].split(",") if a.strip()]
        source = self._props.source("clusters")
        if len(set(aliases)) != len(aliases):
            raise ConfigError("clusters names a cluster twice", key="clusters", source=source)
        if len(aliases) < 2:
            raise ConfigError("clusters needs two clusters at least", key="clusters", source=source)
        return tuple(aliases)

    def _find_sides(self, pairs: Iterable[tuple[str, str]]) -> dict[str, set[str]]:
        """Returns, for each cluster, whether it is the source or target of enabled flows, or has the worker of any."""
        sides: dict[str, set[str]] = {alias: set() for alias in self._clusters}
        for source, target in pairs:
            if self._says_enabled(source, target):
                sides[source].add("source")
                sides[target].add("target")
            sides[target].add("worker")
        return sides

    def _check_key(self, key: str) -> None:
        source = self._props.source(key)
        ruling = self._rule(key, source)
        if ruling.verdict is Verdict.REFUSED:
            raise ConfigError(ruling.said(key, self._props[key]), key=key, source=source)
        if ruling.verdict is Verdict.WARNED:
            self._without_effect.add(key)
            said = ruling.said(key, self._props[key])
            self._warnings.append(f"{source}: {said}" if source else said)

    def _rule(self, key: str, source: str | None) -> Ruling:
        value = self._props[key]
        if "->" in key:
            return self._rule_flow_key(key, source)
        alias = next((a for a in sorted(self._clusters, key=len)[::-1] if key.startswith(f"{a}.")), None)
        if alias is not None:
            name = key.removeprefix(f"{alias}.")
            if name in METRICS:
                return Ruling(Verdict.WARNED, f"{name} without a cluster is for all flows")
            return rule_cluster(name, value, self._sides[alias], self._worker_keys)
        if key.endswith(".bootstrap.servers"):
            _check_alias(key.removesuffix(".bootstrap.servers"), self._clusters, key, source)
        if key in METRICS or (self._serves_rest and _REST.fullmatch(key)):
            return HONOURED
        return rule_file(key, value, self._connector_keys, self._worker_keys)

    def _rule_flow_key(self, key: str, source: str | None) -> Ruling:
        match = _FLOW_KEY.fullmatch(key)
        if match is None:
            raise ConfigError(f"{key} is not SOURCE->TARGET.SETTING", key=key, source=source)
        for side in ("source", "target"):
            _check_alias(match[side], self._clusters, key, source)
        if match["source"] == match["target"]:
            raise ConfigError(f"{key}: a cluster cannot be mirrored to itself", key=key, source=source)
        flow, name = f"{match['source']}->{match['target']}", match["name"]
        if self._says_enabled(match["source"], match["target"]) or name.startswith(_HEARTBEATS):
            ruling = rule_connector(name, self._props[key], self._connector_keys)
            # Plugins are imported by connectors only, which warn of keys that no plugin defines.
            plugged = ruling.unknown and self._names_plugin(match["source"], match["target"])
            return HONOURED if plugged else ruling
        if f"{flow}.enabled" in self._props:
            return HONOURED  # the flow was switched off on purpose
        return Ruling(Verdict.WARNED, f"{flow} is not enabled; set {flow}.enabled=true")

    def _names_plugin(self, source: str, target: str) -> bool:
        named = ((key, self._flow_or_all(source, target, key, "")) for key in JAVA_CLASSES)
        return any(value and not is_built_in(key, value) for key, value in named)

    def _metrics(self) -> MetricsPlace:
        try:
            parsed = METRICS.parse(self._props)
        except ConfigError as e:
            raise ConfigError(str(e), key=e.key, source=self._props.source(e.key or "")) from None
        return MetricsPlace(parsed[METRICS_HOST], parsed[METRICS_PORT])

    @property
    def _serves_rest(self) -> bool:
        value = self._props.get(REST_ENABLED, "false").strip().lower()
        if value not in {_TRUE, "false"}:
            raise ConfigError(
                f"{REST_ENABLED}={value}: must be true or false",
                key=REST_ENABLED,
                source=self._props.source(REST_ENABLED),
            )
        return value == _TRUE

    def _rest(self) -> Properties | None:
        if not self._serves_rest:
            return None
        return _without(self._props, {key for key in self._props if not _REST.fullmatch(key)})

    def _check_one_cluster_twice(self, flows: list[Flow]) -> None:
        for flow in flows:
            servers = [self._servers(alias) for alias in (flow.source, flow.target)]
            if set(_split(servers[0])) & set(_split(servers[1])):
                raise ConfigError(
                    f"{flow.source} and {flow.target} have a server in common ({servers[0]}): a cluster cannot be "
                    "mirrored to itself",
                    key=f"{flow.target}.bootstrap.servers",
                    source=self._props.source(f"{flow.target}.bootstrap.servers"),
                )

    def _check_addresses(self, alias: str) -> None:
        key = f"{alias}.bootstrap.servers"
        for address in _split(self._props.get(key, "")):
            try:
                if "${" not in address:  # a config provider's value
                    parse_addresses(address)
            except ConfigError:
                said = f"{key}: {address!r} must look like host:port"
                raise ConfigError(said, key=key, source=self._props.source(key)) from None

    def _servers(self, alias: str) -> str:
        key = f"{alias}.bootstrap.servers"
        servers = self._props.get(key) or self._props.get("bootstrap.servers", "")
        if not _split(servers):
            raise ConfigError(f"{key} is missing: the brokers of {alias}, such as {key}=host:9092", key=key)
        return servers

    # Configurations of connectors and workers

    def _runs(self, source: str, target: str) -> bool:
        heartbeats = self._flow_or_all(source, target, "emit.heartbeats.enabled", _TRUE)
        return self._says_enabled(source, target) or heartbeats.strip().lower() == _TRUE

    def _says_enabled(self, source: str, target: str) -> bool:
        return self._flow_or_all(source, target, "enabled", "false").strip().lower() == _TRUE

    def _enabled(self, source: str, target: str) -> bool:
        key = f"{source}->{target}.enabled"
        value = self._flow_or_all(source, target, "enabled", "false").strip().lower()
        if value not in {_TRUE, "false"}:
            raise ConfigError(
                f"{key}={value}: must be true or false", key=key, source=self._props.source(key)
            )
        return value == _TRUE

    def _flow_or_all(self, source: str, target: str, name: str, default: str) -> str:
        # `enabled` alone means no flow: MirrorMaker reads it for pairs only.
        everywhere = default if name == "enabled" else self._props.get(name, default)
        return self._props.get(f"{source}->{target}.{name}", everywhere)

    def _flow(self, source: str, target: str) -> Flow:
        return Flow(
            source,
            target,
            self._enabled(source, target),
            self._worker(source, target),
            {name: self._connector(source, target, name) for name in CONNECTORS},
        )

    def _cluster(self, alias: str) -> dict[str, str]:
        """Returns a cluster's settings without its alias. Connection settings are repeated for each kind of client."""
        found = {"bootstrap.servers": self._servers(alias), **with_prefix(self._props, f"{alias}.")}
        top = {k: v for k, v in self._props.items() if _CLIENT_KEYS.fullmatch(k)}
        for settings in ({k: v for k, v in found.items() if _CLIENT_KEYS.fullmatch(k)}, top):
            for key, value in settings.items():
                for kind in _CLIENT_KINDS:
                    found.setdefault(f"{kind}.{key}", value)
                found.setdefault(key, value)
        return found

    def _worker(self, source: str, target: str) -> dict[str, str]:
        everywhere = {k: v for k, v in self._props.items() if k.startswith(_WORKER_PREFIXES)}
        given = {
            k: v
            for k, v in (self._cluster(target) | everywhere).items()
            if is_of_worker(k, self._worker_keys)
        }
        given |= {k: v for k, v in self._props.items() if k.startswith("config.providers")}
        defaults = {
            "group.id": f"{source}-mm2",
            "offset.storage.topic": f"mm2-offsets.{source}.internal",
            "status.storage.topic": f"mm2-status.{source}.internal",
            "config.storage.topic": f"mm2-configs.{source}.internal",
            "key.converter": BYTE_ARRAY,
            "value.converter": BYTE_ARRAY,
            "header.converter": BYTE_ARRAY,
        }
        return defaults | given

    def _connector(self, source: str, target: str, name: str) -> dict[str, str]:
        config = {
            "name": name,
            "connector.class": JAVA_PACKAGE + name,
            "source.cluster.alias": source,
            "target.cluster.alias": target,
            "enabled": "false",
        }
        config |= {
            k: v for k, v in self._props.items()
            if (k in self._connector_keys or is_of_family(k)) and k not in _NOT_SHARED
        }  # fmt: skip
        config |= {k: v for k, v in self._props.items() if k.startswith(_ALWAYS)}
        for side, alias in (("source", source), ("target", target)):
            for key, value in self._cluster(alias).items():
                whose = side if key.startswith(_CLIENT_KINDS) else f"{side}.cluster"
                if passes_to_connector(f"{whose}.{key}", value):
                    config[f"{whose}.{key}"] = value
        config |= with_prefix(self._props, f"{source}->{target}.")
        return config if name == SOURCE else {k: v for k, v in config.items() if not is_of_records(k)}


_NOT_SHARED: Final = frozenset({"name", "connector.class"})


def _without(props: Properties, names: Collection[str]) -> Properties:
    kept = {name: value for name, value in props.items() if name not in names}
    return Properties(kept, {name: place for name in kept if (place := props.source(name)) is not None})


def _run_all(*checks: Callable[[], object]) -> None:
    """Runs all checks, and then raises one ConfigError for all that failed."""
    problems: list[ConfigError] = []
    for check in checks:
        try:
            check()
        except ConfigError as e:
            problems.append(e)
    raise_all(problems)


def _split(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


def _check_alias(alias: str, clusters: Collection[str], key: str, source: str | None) -> None:
    if alias not in clusters:
        hint = suggestion(alias, clusters)
        known = ", ".join(clusters)
        raise ConfigError(f"{key}: no cluster {alias} in clusters={known}{hint}", key=key, source=source)
