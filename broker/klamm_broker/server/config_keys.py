"""The keys of `server.properties`: Kafka's names, types, defaults and validators, as one ConfigDef.

There are three groups. `BROKER_CONFIG` are the keys that have an effect here. `NOT_IMPLEMENTED` (by prefix) are keys of
Kafka that mean nothing to a single node or are not implemented yet: they are accepted with a warning that names them.
All other keys are warned about as unknown.
"""

from __future__ import annotations

from typing import Any, Final

from klamm_base.configdef import (
    ConfigDef,
    Importance,
    Type,
    Validator,
    between,
    invalid,
    non_empty,
    one_of,
)
from klamm_broker.log.topic_config import TOPIC_CONFIGS
from klamm_broker.server import (
    authorizer_keys,
    consumer_group_keys,
    quota_keys,
    sasl_keys,
    share_group_keys,
    single_node,
    streams_group_keys,
    tls_keys,
    transaction_keys,
    upkeep_keys,
)
from klamm_broker.server.listener_text import parse_listener
from klamm_broker.server.topic_config import SYNONYMS

INT_MAX: Final = (1 << 31) - 1


def _listeners(name: str, value: Any) -> None:
    if value is None:
        return
    parsed = [parse_listener(name, item) for item in value]
    names = [item[0] for item in parsed]
    if not names:
        raise invalid(name, "", "at least one listener is needed, for example PLAINTEXT://127.0.0.1:9092")
    if len(set(names)) != len(names):
        raise invalid(name, ",".join(value), "each listener needs a name of its own")


def _topic_rows(d: ConfigDef) -> None:
    """Add the broker-wide defaults of topic keys, with the topic key's validator and meaning."""
    for topic_key, synonyms in SYNONYMS.items():
        key = TOPIC_CONFIGS[topic_key]
        for position, (name, factor) in enumerate(synonyms):
            unset = (position == 0 and len(synonyms) > 1) or name == "log.retention.minutes"
            d.define(
                name,
                Type.INT if factor > 1 else key.type,
                None if unset else key.default // factor if factor > 1 else key.default,
                validator=_unless_none(between(-1 if topic_key == "retention.ms" else 0))
                if factor > 1
                else _unless_none(key.validator),
                importance=Importance.HIGH,
                documentation=f"Default of topics that do not set `{topic_key}`: {key.documentation}",
            )


def _unless_none(validator: Validator | None) -> Validator | None:
    if validator is None:
        return None

    def check(name: str, value: Any) -> None:
        if value is not None:
            validator(name, value)

    return check


def _define() -> ConfigDef:
    d = ConfigDef()

    def key(
        name: str,
        type: Type,
        default: Any,
        validator: Any,
        doc: str,
        *,
        importance: Importance = Importance.MEDIUM,
    ) -> None:
        d.define(name, type, default, validator=validator, importance=importance, documentation=doc)

    for define in (
        _identity_keys,
        tls_keys.define,
        single_node.define,
        _data_keys,
        _new_topic_keys,
        _socket_keys,
        quota_keys.define,
        upkeep_keys.define,
        transaction_keys.define,
        _offsets_topic_keys,
        _commit_keys,
        _group_keys,
        consumer_group_keys.define,
        streams_group_keys.define,
        share_group_keys.define,
        sasl_keys.define,
        authorizer_keys.define,
    ):
        define(key)
    _topic_rows(d)
    return d


def _identity_keys(key: Any) -> None:
    not_negative, high = between(0), Importance.HIGH
    key("node.id", Type.INT, 1, not_negative, "This broker's id in metadata answers.", importance=high)
    key(
        "broker.id",
        Type.INT,
        -1,
        between(-1),
        "Older name of `node.id`, used if that is not set.",
        importance=high,
    )
    key(
        "cluster.id",
        Type.STRING,
        None,
        _unless_none(non_empty),
        "Cluster id for a new data directory: 22 characters of URL-safe base64. Without it the broker makes one up. An existing directory keeps its own.",
    )
    key(
        "listeners",
        Type.LIST,
        ["PLAINTEXT://localhost:9092"],
        _listeners,
        "Addresses to listen on, `NAME://host:port`, comma separated. Port 0 takes a free one. An empty host is every interface.",
        importance=high,
    )
    key(
        "advertised.listeners",
        Type.LIST,
        None,
        _listeners,
        "Addresses that the broker tells clients to connect to; `listeners` if not set.",
        importance=high,
    )
    key(
        "listener.security.protocol.map",
        Type.LIST,
        [f"{name}:{name}" for name in ("SASL_SSL", "PLAINTEXT", "SSL", "SASL_PLAINTEXT")],
        None,
        "Security protocol of each listener name, `NAME:PROTOCOL`, comma separated.",
    )
    key(
        "inter.broker.listener.name",
        Type.STRING,
        None,
        None,
        "Accepted as Kafka does, and checked: a name of `advertised.listeners`. No other broker uses it here.",
    )
    key(
        "security.inter.broker.protocol",
        Type.STRING,
        None,
        _unless_none(one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")),
        "Accepted as Kafka does; no other broker uses it here.",
    )
    key("broker.rack", Type.STRING, None, None, "Rack of this broker in metadata answers.")


def _data_keys(key: Any) -> None:
    high = Importance.HIGH
    key(
        "log.dirs",
        Type.LIST,
        None,
        None,
        "Data directories, comma separated. A new partition goes to the directory with the fewest; the first one also holds the files that the broker has only once.",
        importance=high,
    )
    key(
        "log.dir",
        Type.STRING,
        "klamm-data",
        _unless_none(non_empty),
        "Data directory if `log.dirs` is not set.",
        importance=high,
    )
    key(
        "durability",
        Type.STRING,
        "process",
        one_of("process", "fsync"),
        "The event that acknowledged records survive. `process`: the broker is killed (records are with the operating system). `fsync`: the machine loses power (records are on the disk, with one fsync for all that wait).",
        importance=high,
    )


def _new_topic_keys(key: Any) -> None:
    positive, high = between(1), Importance.HIGH
    key("num.partitions", Type.INT, 1, positive, "Partitions of a topic that is created without a number.")
    key(
        "default.replication.factor",
        Type.INT,
        1,
        between(1, 1),
        "Replicas of a topic that is created without a number. One node can hold one.",
    )
    key(
        "auto.create.topics.enable",
        Type.BOOLEAN,
        True,
        None,
        "Lets a Metadata request create the topics that it asks for.",
        importance=high,
    )
    key("delete.topic.enable", Type.BOOLEAN, True, None, "Lets clients delete topics.", importance=high)
    key(
        "max.request.partition.size.limit",
        Type.INT,
        2000,
        positive,
        "The most partitions in one answer to DescribeTopicPartitions.",
    )


def _socket_keys(key: Any) -> None:
    positive, not_negative, high = between(1), between(0), Importance.HIGH
    key(
        "socket.request.max.bytes",
        Type.INT,
        104857600,
        between(1, INT_MAX),
        "The largest request that is read, in bytes. A larger request closes its connection.",
        importance=high,
    )
    key(
        "socket.send.buffer.bytes",
        Type.INT,
        102400,
        between(-1),
        "SO_SNDBUF of client connections; -1 leaves it to the system.",
    )
    key(
        "socket.receive.buffer.bytes",
        Type.INT,
        102400,
        between(-1),
        "SO_RCVBUF of client connections; -1 leaves it to the system.",
    )
    key("socket.listen.backlog.size", Type.INT, 50, positive, "Connections that may wait to be accepted.")
    key(
        "connections.max.idle.ms",
        Type.LONG,
        600_000,
        between(-1),
        "A connection without requests for this long is closed; -1 keeps it.",
    )
    key(
        "fetch.max.bytes",
        Type.INT,
        55 * 1024 * 1024,
        between(1024),
        "The most bytes in one Fetch answer; a larger first batch is still sent whole.",
    )
    key(
        "max.incremental.fetch.session.cache.slots",
        Type.INT,
        1000,
        not_negative,
        "Fetch sessions that are remembered at a time; clients beyond that send full fetches.",
    )


def _offsets_topic_keys(key: Any) -> None:
    positive, high = between(1), Importance.HIGH
    key(
        "offsets.topic.num.partitions",
        Type.INT,
        50,
        positive,
        "Partitions of `__consumer_offsets`; read when the topic is created.",
        importance=high,
    )
    key(
        "offsets.topic.replication.factor",
        Type.SHORT,
        1,
        between(1),
        "Accepted; one node holds one replica.",
        importance=high,
    )
    key(
        "offsets.topic.segment.bytes",
        Type.INT,
        104857600,
        positive,
        "Segment size of `__consumer_offsets`, in bytes.",
        importance=high,
    )
    key(
        "offsets.topic.compression.codec",
        Type.INT,
        0,
        between(0, 0),
        "Codec of the offsets topic; only 0 (none).",
        importance=high,
    )


def _commit_keys(key: Any) -> None:
    positive, not_negative, high = between(1), between(0), Importance.HIGH
    key(
        "offsets.retention.minutes",
        Type.INT,
        10080,
        positive,
        "Committed offsets of an empty group are kept this long, in minutes.",
        importance=high,
    )
    key(
        "offsets.retention.check.interval.ms",
        Type.LONG,
        600_000,
        positive,
        "The interval between two searches for expired offsets, in milliseconds.",
        importance=high,
    )
    key(
        "offset.metadata.max.bytes",
        Type.INT,
        4096,
        not_negative,
        "Longest metadata text of an offset commit, in bytes.",
        importance=high,
    )
    key(
        "offsets.commit.timeout.ms",
        Type.INT,
        5000,
        positive,
        "Accepted; a commit is one local write here.",
        importance=high,
    )
    key(
        "offsets.load.buffer.size",
        Type.INT,
        5242880,
        positive,
        "Bytes read at a time when groups are loaded.",
        importance=high,
    )


def _group_keys(key: Any) -> None:
    positive, not_negative, low = between(1), between(0), Importance.LOW
    key(
        "group.initial.rebalance.delay.ms",
        Type.INT,
        3000,
        not_negative,
        "The time that a new group waits for more members before the first rebalance, in milliseconds.",
    )
    key(
        "group.min.session.timeout.ms",
        Type.INT,
        6000,
        positive,
        "Shortest session timeout that a member may ask for, in milliseconds.",
    )
    key(
        "group.max.session.timeout.ms",
        Type.INT,
        1_800_000,
        positive,
        "Longest session timeout that a member may ask for, in milliseconds.",
    )
    key("group.max.size", Type.INT, INT_MAX, positive, "Most members in a group.")
    key(
        "group.coordinator.rebalance.protocols",
        Type.LIST,
        ["classic", "consumer", "streams"],
        one_of("classic", "consumer", "share", "streams"),
        "Group protocols that are served; share is not there yet.",
        importance=low,
    )


BROKER_CONFIG: Final[ConfigDef] = _define()

NOT_IMPLEMENTED: Final = (  # prefixes of keys that Kafka 4.3 knows and that have no effect here
    "advertised.", "alter.", "auto.include.jmx.",
    "auto.leader.", "background.threads", "broker.", "client.quota.", "config.providers", "connection.",
    "connections.", "control.plane.", "controlled.", "controller.", "create.topic.policy.", "delegation.",
    "early.start.", "enable.", "fetch.purgatory.", "follower.", "group.consumer.", "group.coordinator.",
    "group.share.", "group.streams.", "initial.", "inter.broker.", "internal.",
    "kafka.metrics.", "leader.", "listener.", "log.dir.failure.", "log.local.",
    "log.message.", "metadata.", "metric", "num.io.", "num.network.", "num.recovery.", "num.replica.",
    "offsets.topic.", "password.", "principal.",
    "producer.purgatory.", "queued.", "quorum.", "quota.", "remote.", "replica.",
    "replication.", "request.", "reserved.", "sasl.", "security.", "server.", "share.", "socket.connection.",
    "ssl.", "telemetry.", "unclean.", "unstable.", "zookeeper.",
)  # fmt: skip
