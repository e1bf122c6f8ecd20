"""Keys of signals: where they come from, and how snapshots that they ask for read tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from klamm_base.configdef import ConfigDef, Importance, Type, between, invalid, with_prefix
from klamm_plugins.errors import ConfigError

CHANNELS: Final = ("source", "kafka")
_CONSUMER: Final = "signal.consumer."
_MEDIUM, _LOW = Importance.MEDIUM, Importance.LOW


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSignals:
    """The topic of signals, and how to reach it."""

    topic: str
    group: str
    consumer: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Signals:
    """The settings of signals."""

    connector: str
    """The key of signals in the topic: the connector's `topic.prefix`."""
    table: str | None
    by_table: bool
    """False when rows of the table are watermarks only."""
    kafka: KafkaSignals | None
    chunk_size: int
    poll_interval_s: float


def define(d: ConfigDef) -> ConfigDef:
    """Adds the keys."""
    return (
        d.define("signal.data.collection", Type.STRING, None, importance=_MEDIUM, documentation="The table of signals, as database.table, with the columns id, type and data. The connector writes the watermarks of incremental snapshots there, so its user needs INSERT on it.")
        .define("signal.enabled.channels", Type.LIST, ["source"], validator=_known_channels, importance=_LOW, documentation="Where signals come from: source (the table signal.data.collection), kafka (a topic).")
        .define("signal.poll.interval.ms", Type.LONG, 5000, validator=between(1), importance=_LOW, documentation="Interval at which the task looks for signals in the topic.")
        .define("signal.kafka.topic", Type.STRING, None, importance=_LOW, documentation='The topic of signals: one partition, the key is topic.prefix, the value {"type": ..., "data": {...}}. Without it: PREFIX-signal.')
        .define("signal.kafka.groupId", Type.STRING, "kafka-signal", importance=_LOW, documentation="The consumer group that reads it.")
        .define("signal.kafka.bootstrap.servers", Type.STRING, None, importance=_LOW, documentation="Addresses of the cluster with the topic. Further client properties begin with signal.consumer.")
        .define("incremental.snapshot.chunk.size", Type.INT, 1024, validator=between(1, 1_000_000), importance=_MEDIUM, documentation="Rows that an incremental snapshot reads between two watermarks.")
    )  # fmt: skip


def read(values: Mapping[str, Any], props: Mapping[str, str]) -> Signals:
    """Returns the settings. Raises ConfigError when the topic's cluster is missing."""
    channels, table = values["signal.enabled.channels"], values["signal.data.collection"]
    if table is not None and table.count(".") != 1:
        raise ConfigError(
            f"signal.data.collection={table}: give the table's full name, such as shop.signals",
            key="signal.data.collection",
        )
    return Signals(
        connector=values["topic.prefix"],
        table=table,
        by_table="source" in channels,
        kafka=_kafka(values, props) if "kafka" in channels else None,
        chunk_size=values["incremental.snapshot.chunk.size"],
        poll_interval_s=values["signal.poll.interval.ms"] / 1000,
    )


def _kafka(values: Mapping[str, Any], props: Mapping[str, str]) -> KafkaSignals:
    servers = values["signal.kafka.bootstrap.servers"]
    if not servers:
        raise ConfigError(
            "signal.enabled.channels has kafka, and signal.kafka.bootstrap.servers is missing: set the cluster's addresses",
            key="signal.kafka.bootstrap.servers",
        )
    return KafkaSignals(
        topic=values["signal.kafka.topic"] or f"{values['topic.prefix']}-signal",
        group=values["signal.kafka.groupId"],
        consumer=with_prefix(props, _CONSUMER) | {"bootstrap.servers": servers},
    )


def _known_channels(name: str, value: Any) -> None:
    if any(channel not in CHANNELS for channel in value):
        raise invalid(
            name, ",".join(value), f"Some of {', '.join(CHANNELS)}: there are no other channels here"
        )
