"""Worker properties (connect-distributed.properties): Kafka's names and defaults.

`WorkerConfig.from_properties` checks every value and raises ConfigError naming the file, the line, the
key and a right value. It logs a warning for each property that Klamm does not support. No I/O.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from klamm.connect.model import STANDALONE
from klamm.connect.secrets import PROVIDERS, Secrets
from klamm.connect.settings.limits import LIMITS_CONFIG
from klamm.connect.settings.mac_algorithms import ALGORITHMS
from klamm.connect.settings.override_policy import OVERRIDE_CONFIG
from klamm.connect.settings.plugins import PLUGIN_CONFIG
from klamm.connect.settings.rest import rest_config
from klamm.connect.settings.restart_policy import POLICY_CONFIG
from klamm_base.configdef import ConfigDef, Importance, Type, between, invalid, one_of
from klamm_base.properties import Properties, is_from_environment, parse, suggestion

log = logging.getLogger(__name__)

OFFSET_FILE: Final = "offset.storage.file.filename"

Where = Callable[[str], str | None]
"""Returns the place where a key was set (`worker.properties:12`), None when it is unknown."""


def _replication(name: str, value: Any) -> None:
    if value is not None and value != -1 and value < 1:
        raise invalid(
            name, value, "Value must be -1 to use the Kafka broker default, or a positive number not 0"
        )


def _partitions(name: str, value: Any) -> None:
    if value is not None and value != -1 and value < 1:
        raise invalid(name, value, "Value must be -1 to use the broker's default, or at least 1")


def _storage(definition: ConfigDef, prefix: str, what: str, partitions: int | None) -> ConfigDef:
    definition.define(
        f"{prefix}.storage.topic",
        Type.STRING,
        validator=_not_blank,
        importance=Importance.HIGH,
        documentation=f"The compacted topic that holds {what}. The first worker creates it.",
    )
    if partitions is not None:
        definition.define(
            f"{prefix}.storage.partitions",
            Type.INT,
            partitions,
            validator=_partitions,
            importance=Importance.LOW,
            documentation="The number of partitions for creating the topic; -1 means the broker's default.",
        )
    return definition.define(
        f"{prefix}.storage.replication.factor",
        Type.SHORT,
        3,
        validator=_replication,
        importance=Importance.LOW,
        documentation="The number of replicas for creating the topic; -1 means the broker's default.",
    )


def _not_blank(name: str, value: Any) -> None:
    if value is not None and not value.strip():
        raise invalid(name, value, "String must be non-empty")


def _definition() -> ConfigDef:
    d = ConfigDef()
    _cluster(d)
    _storage(d, "config", "connector and task configurations", None)
    _storage(d, "offset", "source offsets", 25)
    _storage(d, "status", "the states of connectors and tasks", 5)
    _standalone(d)
    _timing(d)
    _sources(d)
    _topic_tracking(d)
    return (
        d.merged(rest_config())
        .merged(POLICY_CONFIG)
        .merged(LIMITS_CONFIG)
        .merged(PLUGIN_CONFIG)
        .merged(OVERRIDE_CONFIG)
    )


def _cluster(d: ConfigDef) -> None:
    d.define(
        PROVIDERS,
        Type.LIST,
        [],
        importance=Importance.LOW,
        documentation="Names of config providers, separated by commas. The provider NAME replaces ${NAME:path:key} in this file and in "
        "connector configurations by its value. config.providers.NAME.class is its class (FileConfigProvider, "
        "DirectoryConfigProvider, EnvVarConfigProvider, or a class of yours; file, dir and env need no class), "
        "config.providers.NAME.param.SETTING are its settings.",
    )
    d.define(
        "bootstrap.servers",
        Type.LIST,
        validator=_servers,
        importance=Importance.HIGH,
        documentation="HOST:PORT of one or more brokers, separated by commas.",
    )
    d.define(
        "group.id",
        Type.STRING,
        validator=_not_blank,
        importance=Importance.HIGH,
        documentation="The Connect cluster's name: workers of one name, with the same storage topics, share the work.",
    )
    for part, default, what in (
        ("key", None, "record keys"),
        ("value", None, "record values"),
        ("header", "org.apache.kafka.connect.storage.SimpleHeaderConverter", "record headers"),
    ):
        rest: dict[str, Any] = {} if default is None else {"default": default}
        d.define(
            f"{part}.converter",
            Type.CLASS,
            importance=Importance.HIGH if default is None else Importance.LOW,
            documentation=f"The converter of {what}; its settings follow as {part}.converter.SETTING. "
            "A connector may set its own.",
            **rest,
        )


def _standalone(d: ConfigDef) -> None:
    d.define(
        OFFSET_FILE,
        Type.STRING,
        None,
        importance=Importance.HIGH,
        documentation="The file in which a standalone worker keeps source offsets, in Java's format. A distributed worker "
        "keeps them in its offset.storage.topic.",
    )


def _timing(d: ConfigDef) -> None:
    d.define(
        "offset.flush.interval.ms",
        Type.LONG,
        60_000,
        validator=between(1),
        importance=Importance.LOW,
        documentation="The interval at which tasks commit offsets.",
    )
    d.define(
        "offset.flush.timeout.ms",
        Type.LONG,
        5_000,
        validator=between(1),
        importance=Importance.LOW,
        documentation="The time limit of a commit of offsets.",
    )
    d.define(
        "task.shutdown.graceful.timeout.ms",
        Type.LONG,
        5_000,
        validator=between(0),
        importance=Importance.LOW,
        documentation="The time that a task gets to stop by itself; then the worker kills it.",
    )
    d.define(
        "session.timeout.ms",
        Type.INT,
        10_000,
        validator=between(1),
        importance=Importance.HIGH,
        documentation="The broker counts a worker as gone after this time without a heartbeat.",
    )
    d.define(
        "heartbeat.interval.ms",
        Type.INT,
        3_000,
        validator=between(1),
        importance=Importance.HIGH,
        documentation="The interval at which the worker sends heartbeats to the broker.",
    )
    d.define(
        "rebalance.timeout.ms",
        Type.INT,
        60_000,
        validator=between(1),
        importance=Importance.HIGH,
        documentation="The time that workers get to join again when a worker comes or goes.",
    )
    _sharing(d)
    _internal_requests(d)


def _sharing(d: ConfigDef) -> None:
    d.define(
        "connect.protocol",
        Type.STRING,
        "sessioned",
        validator=lambda name, value: one_of("eager", "compatible", "sessioned")(name, value.lower()),
        importance=Importance.LOW,
        documentation="The protocol by which the group shares work: eager (all work stops at each change), compatible (only "
        "work that moves stops), or sessioned (like compatible, with signed requests between workers). A group uses a "
        "protocol that all of its workers know.",
    )
    d.define(
        "scheduled.rebalance.max.delay.ms",
        Type.INT,
        0,
        validator=between(0),
        importance=Importance.LOW,
        documentation="The time that a group waits for a missing worker before others take over its work.",
    )
    d.define(
        "worker.sync.timeout.ms",
        Type.INT,
        3_000,
        validator=between(1),
        importance=Importance.MEDIUM,
        documentation="The time that a worker gets to read the config topic to its end; a slower worker leaves the group.",
    )
    d.define(
        "worker.unsync.backoff.ms",
        Type.INT,
        300_000,
        validator=between(1),
        importance=Importance.MEDIUM,
        documentation="The longest time for which a worker that left so stays away.",
    )


def _algorithms(name: str, value: Any) -> None:
    for each in value if isinstance(value, list) else [value]:
        one_of(*ALGORITHMS)(name, each)


def _internal_requests(d: ConfigDef) -> None:
    d.define(
        "inter.worker.key.generation.algorithm",
        Type.STRING,
        "HmacSHA256",
        validator=_algorithms,
        importance=Importance.LOW,
        documentation="The algorithm for which the leader makes the session key, with which workers sign requests to each other.",
    )
    d.define(
        "inter.worker.key.size",
        Type.INT,
        None,
        validator=_bits,
        importance=Importance.LOW,
        documentation="The size of the session key in bits; by default the size that suits the algorithm.",
    )
    d.define(
        "inter.worker.key.ttl.ms",
        Type.INT,
        3_600_000,
        validator=between(0, 2_147_483_647),
        importance=Importance.LOW,
        documentation="The age at which the leader replaces the session key; 0 means never.",
    )
    d.define(
        "inter.worker.signature.algorithm",
        Type.STRING,
        "HmacSHA256",
        validator=_algorithms,
        importance=Importance.LOW,
        documentation="The algorithm with which this worker signs.",
    )
    d.define(
        "inter.worker.verification.algorithms",
        Type.LIST,
        ["HmacSHA256"],
        validator=_algorithms,
        importance=Importance.LOW,
        documentation="The algorithms that this worker accepts from others; its own signature algorithm must be among them.",
    )


def _bits(name: str, value: Any) -> None:
    if value is not None and (value < 8 or value % 8):
        raise invalid(name, value, "Value must be a positive multiple of 8")


def _sources(d: ConfigDef) -> None:
    d.define(
        "exactly.once.source.support",
        Type.STRING,
        "disabled",
        validator=one_of("disabled", "preparing", "enabled"),
        importance=Importance.HIGH,
        documentation="enabled: source tasks write records and offsets in transactions, and tasks of former "
        "configurations are fenced. On a running cluster, set every worker to preparing first, then to enabled.",
    )
    d.define(
        "topic.creation.enable",
        Type.BOOLEAN,
        True,
        importance=Importance.LOW,
        documentation="Whether source tasks create the topics that they write to, where their connector has "
        "topic.creation.* settings.",
    )


def _topic_tracking(d: ConfigDef) -> None:
    d.define(
        "topic.tracking.enable",
        Type.BOOLEAN,
        True,
        importance=Importance.LOW,
        documentation="Whether the topics that connectors use are recorded (GET /connectors/NAME/topics).",
    )
    d.define(
        "topic.tracking.allow.reset",
        Type.BOOLEAN,
        True,
        importance=Importance.LOW,
        documentation="Whether PUT /connectors/NAME/topics/reset may clear that record.",
    )


def _servers(name: str, value: Any) -> None:
    if not value:
        raise invalid(name, value, "at least one HOST:PORT is needed")
    for item in value:
        host, colon, port = item.rpartition(":")
        if not (host and colon and port.isdigit() and int(port) < 65_536):
            raise invalid(name, item, "not HOST:PORT, such as 127.0.0.1:9092")


WORKER_CONFIG: Final = _definition()

CLIENT_PREFIXES: Final = ("producer.", "consumer.", "admin.")
CONVERTER_PREFIXES: Final = ("key.converter.", "value.converter.", "header.converter.")
STORAGE_PREFIXES: Final = ("config.storage.", "offset.storage.", "status.storage.")
# Settings with which Kafka clients reach the broker. Every client gets them and translates them for itself.
CONNECTION_PREFIXES: Final = ("security.", "sasl.", "ssl.")
EXTENSION_PREFIX: Final = "rest.extension."  # an extension's own keys stand below it
LISTENER_PREFIXES: Final = ("listeners.https.", "admin.listeners.https.")
CONNECTION_KEYS: Final = frozenset(
    {
        "client.dns.lookup",
        "client.rack",
        "connections.max.idle.ms",
        "metadata.max.age.ms",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "retry.backoff.max.ms",
        "retry.backoff.ms",
        "socket.connection.setup.timeout.ms",
    }
)

IGNORED: Final[Mapping[str, str]] = {
    "plugin.path": "plugins are Python packages: klamm plugins install",
    "plugin.discovery": "plugins are found by their entry points",
    "metadata.recovery.strategy": "the client library decides",
    "metadata.recovery.rebootstrap.trigger.ms": "the client library decides",
    "metric.reporters": "metrics come later",
    "metrics.num.samples": "metrics come later",
    "metrics.recording.level": "metrics come later",
    "metrics.sample.window.ms": "metrics come later",
    "auto.include.jmx.reporter": "there is no JMX",
    "rest.host.name": "use listeners",
    "rest.port": "use listeners",
    "client.id": "clients of the worker and its tasks are named after what they do",
    "request.timeout.ms": "the client library decides",
    "send.buffer.bytes": "the client library decides",
    "receive.buffer.bytes": "the client library decides",
    "socket.connection.setup.timeout.max.ms": "the client library decides",
}
"""Kafka's worker properties that have no effect here, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerConfig:
    """A checked configuration. `raw` are the strings as given (references replaced), `values` the typed values
    with defaults. `source` returns the place where a key was set, for errors that show later.
    """

    raw: Mapping[str, str]
    values: Mapping[str, Any]
    source: Where
    secrets: Secrets = field(default_factory=Secrets)
    standalone: bool = False

    @classmethod
    def from_properties(cls, props: Mapping[str, str], where: Where | None = None) -> WorkerConfig:
        """Checks `props` and warns of those without effect. Raises ConfigError with every bad value and its place."""
        written = props if isinstance(props, Properties) else Properties(props)
        source = where or written.source
        secrets = Secrets.from_properties(written)
        sources = {name: origin for name in written if (origin := written.source(name)) is not None}
        given = Properties(secrets.resolve(written).config, sources)
        values = parse(WORKER_CONFIG, given)
        for name in WORKER_CONFIG.unknown(given):
            _warn(name, source(name))
        return cls(raw=dict(given), values=values, source=source, secrets=secrets)

    def __getitem__(self, key: str) -> Any:
        return self.values[key]

    @property
    def exactly_once(self) -> bool:
        """True when source tasks write in transactions."""
        return bool(self["exactly.once.source.support"] == "enabled")

    @property
    def transactional_leader(self) -> bool:
        """True when the leader writes the config topic with a producer that its successor fences."""
        return bool(self["exactly.once.source.support"] != "disabled")

    @property
    def client(self) -> dict[str, str]:
        """Java client properties with which clients reach the broker: bootstrap.servers, security.*, sasl.*, ssl.*
        and more.
        """
        found = {
            k: v for k, v in self.raw.items() if k.startswith(CONNECTION_PREFIXES) or k in CONNECTION_KEYS
        }
        return {"bootstrap.servers": ",".join(self["bootstrap.servers"]), **found}

    def for_tasks(self) -> dict[str, str]:
        """The worker's properties for tasks: as given, with the defaults that tasks rely on."""
        return {
            "header.converter": self["header.converter"],
            "offset.flush.interval.ms": str(self["offset.flush.interval.ms"]),
            "offset.flush.timeout.ms": str(self["offset.flush.timeout.ms"]),
            "task.shutdown.graceful.timeout.ms": str(self["task.shutdown.graceful.timeout.ms"]),
            **self.raw,
            **({STANDALONE: "true"} if self.standalone else {}),
        }

    def storage(self, prefix: str) -> tuple[str, int, int]:
        """Returns topic, partitions and replication factor of `config`, `offset` or `status`."""
        partitions = 1 if prefix == "config" else self[f"{prefix}.storage.partitions"]
        return (
            self[f"{prefix}.storage.topic"],
            partitions,
            self[f"{prefix}.storage.replication.factor"],
        )

    def storage_settings(self, prefix: str) -> dict[str, str]:
        """Returns the topic's own settings (`offset.storage.min.insync.replicas`), for creating a missing topic."""
        start = f"{prefix}.storage."
        given = {
            k.removeprefix(start): v
            for k, v in self.raw.items()
            if k.startswith(start) and k not in WORKER_CONFIG.names
        }
        return {k: v for k, v in given.items() if k not in {"cleanup.policy", "partitions"}}


def _warn(name: str, source: str | None) -> None:
    at = f"{source}: " if source else ""
    if name in IGNORED:
        log.warning("%s%s has no effect: %s", at, name, IGNORED[name])
    elif name in CONNECTION_KEYS or name.startswith(
        (
            f"{PROVIDERS}.",
            EXTENSION_PREFIX,
            *CLIENT_PREFIXES,
            *CONVERTER_PREFIXES,
            *CONNECTION_PREFIXES,
            *LISTENER_PREFIXES,
        )
    ):
        return
    elif name.startswith(STORAGE_PREFIXES):
        if name.endswith(".storage.cleanup.policy"):
            log.warning("%s%s has no effect: compaction is always used", at, name)
        elif name == "config.storage.partitions":
            log.warning("%s%s has no effect: the config topic always has one partition", at, name)
    else:
        hint = suggestion(name, [*WORKER_CONFIG.names, *IGNORED])
        if not hint and is_from_environment(source):
            return
        log.warning("%s%s is not a worker property; it has no effect%s", at, name, hint)
