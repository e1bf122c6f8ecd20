"""Kafka's topic configurations: names, types, defaults, validators, documentation.

CreateTopics and AlterConfigs check against them, DescribeConfigs answers from them, and `config.LogConfig` is the
typed form for the log. `server_default` names the broker property that a topic inherits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from klamm_base.configdef import (
    ConfigDef,
    ConfigKey,
    Importance,
    Type,
    between,
    invalid,
    one_of,
)
from klamm_base.errors import ConfigError
from klamm_broker.log import mirror_topic

_MAX_LONG: Final = 2**63 - 1
_MAX_INT: Final = 2**31 - 1
_WEEK_MS: Final = 7 * 24 * 3600 * 1000
_DAY_MS: Final = 24 * 3600 * 1000


def _throttled_replicas(name: str, value: Any) -> None:
    for item in value:
        left, _, right = item.partition(":")
        if item != "*" and not (left.isdigit() and right.isdigit()):
            raise invalid(name, ",".join(value), "must be '*' or a list of partition:broker pairs")


def _gzip_level(name: str, value: Any) -> None:
    if value != -1 and not 1 <= value <= 9:
        raise invalid(name, value, "Value must be between 1 and 9 or equal to -1")


def _cleanup_policy(name: str, value: Any) -> None:
    one_of("compact", "delete")(name, value)
    if len(set(value)) != len(value):
        raise invalid(name, ",".join(value), "Values must not be repeated")


def _mirror_state(name: str, value: Any) -> None:
    if value is not None:
        one_of(mirror_topic.MIRROR, mirror_topic.PROMOTED)(name, value)


_ROWS: Final[list[tuple[str, Type, Any, Any, Importance, str | None, str]]] = [
    ("cleanup.policy", Type.LIST, ["delete"], _cleanup_policy, Importance.MEDIUM, "log.cleanup.policy",
     ("What happens to old records: `delete` removes whole segments that are over the time or size limit, "
     "`compact` keeps the last record of each key. Both may be given; an empty list keeps everything.")),
    ("compression.gzip.level", Type.INT, -1, _gzip_level, Importance.MEDIUM, "compression.gzip.level",
     "Effort of the gzip codec when `compression.type` is gzip; -1 is the codec's own default."),
    ("compression.lz4.level", Type.INT, 9, between(1, 17), Importance.MEDIUM, "compression.lz4.level",
     "Effort of the lz4 codec when `compression.type` is lz4."),
    ("compression.type", Type.STRING, "producer",
     one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
     Importance.MEDIUM, "compression.type",
     ("The codec that batches are stored with. `producer` stores what the producer sent, which costs nothing; "
     "any other value re-encodes the batches that come in another codec.")),
    ("compression.zstd.level", Type.INT, 3, between(-131072, 22), Importance.MEDIUM, "compression.zstd.level",
     "Effort of the zstd codec when `compression.type` is zstd."),
    ("delete.retention.ms", Type.LONG, _DAY_MS, between(0), Importance.MEDIUM, "log.cleaner.delete.retention.ms",
     ("On a compacted topic, how long the marker of a deleted key stays readable. A reader that starts from "
     "the beginning must finish within this time to see every deletion.")),
    ("file.delete.delay.ms", Type.LONG, 60_000, between(0), Importance.MEDIUM, "log.segment.delete.delay.ms",
     "The time that a deleted segment's files stay on disk under the suffix `.deleted`."),
    ("flush.messages", Type.LONG, _MAX_LONG, between(1), Importance.MEDIUM, "log.flush.interval.messages",
     "Force the log to disk after this many records. 1 forces it at every append."),
    ("flush.ms", Type.LONG, _MAX_LONG, between(0), Importance.MEDIUM, "log.flush.interval.ms",
     "Force the log to disk when records have waited for this long."),
    ("follower.replication.throttled.replicas", Type.LIST, [], _throttled_replicas, Importance.MEDIUM, None,
     "Replicas (`partition:broker`, or `*`) whose replication is throttled on the follower's side."),
    ("index.interval.bytes", Type.INT, 4096, between(0), Importance.MEDIUM, "log.index.interval.bytes",
     "Bytes of log between two entries of the offset index. Smaller finds an offset with less scanning."),
    (mirror_topic.STATE, Type.STRING, None, _mirror_state, Importance.MEDIUM, None,
     ("`mirror`: the topic takes batches of another cluster's topic with their offsets, and nothing else. `promoted`: it "
     "was such a topic, and is an ordinary one now. Set when the topic is created, changed by `klamm mirror promote`.")),
    (mirror_topic.SOURCE, Type.STRING, None, None, Importance.LOW, None,
     "Of a mirror topic: the id and the alias of the cluster that it is a copy of."),
    (mirror_topic.EPOCH, Type.INT, None, None, Importance.LOW, None,
     "Of a promoted topic: the leader epoch from which on its records are this cluster's own. Set by the promotion."),
    ("leader.replication.throttled.replicas", Type.LIST, [], _throttled_replicas, Importance.MEDIUM, None,
     "Replicas (`partition:broker`, or `*`) whose replication is throttled on the leader's side."),
    ("local.retention.bytes", Type.LONG, -2, between(-2), Importance.MEDIUM, "log.local.retention.bytes",
     "Size to keep locally when segments are tiered; -2 means `retention.bytes`."),
    ("local.retention.ms", Type.LONG, -2, between(-2), Importance.MEDIUM, "log.local.retention.ms",
     "Time to keep locally when segments are tiered; -2 means `retention.ms`."),
    ("max.compaction.lag.ms", Type.LONG, _MAX_LONG, between(1), Importance.MEDIUM,
     "log.cleaner.max.compaction.lag.ms",
     "The longest time that a record of a compacted topic may stay out of reach of the cleaner."),
    ("max.message.bytes", Type.INT, 1_048_588, between(0), Importance.MEDIUM, "message.max.bytes",
     "The largest record batch, after compression, that is accepted."),
    ("message.timestamp.after.max.ms", Type.LONG, 3_600_000, between(0), Importance.MEDIUM,
     "log.message.timestamp.after.max.ms",
     "The time by which a record's timestamp may be ahead of the broker's clock. Ignored under LogAppendTime."),
    ("message.timestamp.before.max.ms", Type.LONG, _MAX_LONG, between(0), Importance.MEDIUM,
     "log.message.timestamp.before.max.ms",
     "The time by which a record's timestamp may be behind the broker's clock. Ignored under LogAppendTime."),
    ("message.timestamp.type", Type.STRING, "CreateTime", one_of("CreateTime", "LogAppendTime"),
     Importance.MEDIUM, "log.message.timestamp.type",
     "The timestamp of a record: the time that its producer gave it, or the time it was appended."),
    ("min.cleanable.dirty.ratio", Type.DOUBLE, 0.5, between(0, 1), Importance.MEDIUM,
     "log.cleaner.min.cleanable.ratio",
     "The share of a compacted log that must be uncleaned before it is worth cleaning."),
    ("min.compaction.lag.ms", Type.LONG, 0, between(0), Importance.MEDIUM, "log.cleaner.min.compaction.lag.ms",
     "The time that a record of a compacted topic stays before the cleaner may remove it."),
    ("min.insync.replicas", Type.INT, 1, between(1), Importance.MEDIUM, "min.insync.replicas",
     "The number of replicas that must have a record before a producer with acks=all gets its acknowledgement."),
    ("preallocate", Type.BOOLEAN, False, None, Importance.MEDIUM, "log.preallocate",
     "Reserve the disk space of a new segment at once (on Linux); what is not used is given back when it is finished."),
    ("remote.log.copy.disable", Type.BOOLEAN, False, None, Importance.MEDIUM, None,
     "Stop copying segments to remote storage. There is no remote storage here."),
    ("remote.log.delete.on.disable", Type.BOOLEAN, False, None, Importance.MEDIUM, None,
     "Remove tiered data when tiering is switched off. There is no remote storage here."),
    ("remote.storage.enable", Type.BOOLEAN, False, None, Importance.MEDIUM, None,
     "Copy finished segments to remote storage. There is no remote storage here: true is refused."),
    ("retention.bytes", Type.LONG, -1, between(-1), Importance.MEDIUM, "log.retention.bytes",
     "With policy `delete`, the size that a partition may have before its oldest segments go; -1: no limit."),
    ("retention.ms", Type.LONG, _WEEK_MS, between(-1), Importance.MEDIUM, "log.retention.ms",
     "With policy `delete`, how long records stay before their segments go; -1: no limit."),
    ("segment.bytes", Type.INT, 1 << 30, between(1 << 20), Importance.MEDIUM, "log.segment.bytes",
     "Size at which a segment file is finished and the next is begun. Retention removes whole segments."),
    ("segment.index.bytes", Type.INT, 10 << 20, between(4), Importance.MEDIUM, "log.index.size.max.bytes",
     "The largest size of a segment's offset index; a full index finishes the segment."),
    ("segment.jitter.ms", Type.LONG, 0, between(0), Importance.MEDIUM, "log.roll.jitter.ms",
     "At most this much is taken off `segment.ms` at random, so that partitions do not all roll at once."),
    ("segment.ms", Type.LONG, _WEEK_MS, between(1), Importance.MEDIUM, "log.roll.ms",
     "Age at which a segment is finished even if it is not full, so that retention can remove it."),
    ("unclean.leader.election.enable", Type.BOOLEAN, False, None, Importance.MEDIUM,
     "unclean.leader.election.enable",
     "Lets a replica that lags behind lead when no other is left, at the price of losing records."),
]  # fmt: skip

TOPIC_CONFIGS: Final = ConfigDef(
    [
        ConfigKey(
            name=name,
            type=type_,
            default=default,
            validator=check,
            importance=weight,
            documentation=doc,
            internal=name in mirror_topic.KEYS,
        )
        for name, type_, default, check, weight, _, doc in _ROWS
    ]
)

SERVER_DEFAULTS: Final[Mapping[str, str]] = {row[0]: row[5] for row in _ROWS if row[5] is not None}
"""For each topic property the broker property that is its default."""


LAGS: Final = frozenset({"min.compaction.lag.ms", "max.compaction.lag.ms"})
"""Properties that may contradict each other, one of a topic's own and one of the broker's defaults."""


def check_topic_configs(props: Mapping[str, str | None]) -> dict[str, Any]:
    """Returns typed values of all topic properties, defaults filled in. Raises ConfigError as CreateTopics shows it."""
    for name in TOPIC_CONFIGS.unknown(props):
        raise ConfigError(f"Unknown topic config name: {name}", key=name)
    for name, value in props.items():
        if value is None:
            raise ConfigError(f"Null value not supported for topic configs: {name}", key=name)
    values = TOPIC_CONFIGS.parse(props)
    if values["remote.storage.enable"]:
        raise ConfigError(
            "Tiered storage functionality is disabled in the broker. Topic cannot be configured with remote "
            "log storage.",
            key="remote.storage.enable",
        )
    if values["min.compaction.lag.ms"] > values["max.compaction.lag.ms"]:
        raise ConfigError(
            f"conflict topic config setting min.compaction.lag.ms ({values['min.compaction.lag.ms']}) > "
            f"max.compaction.lag.ms ({values['max.compaction.lag.ms']})",
            key="min.compaction.lag.ms",
        )
    return values
