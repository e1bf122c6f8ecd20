"""Options of `format("klamm")`, with the names of Spark's Kafka source. Pure.

Every option is either known or refused by name: a misspelt `startingOffset` must not read a whole topic.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from klamm_base.clientconfig import Kind, translate
from klamm_base.errors import ConfigError
from klamm_base.toml_lines import meant
from klamm_spark import figures
from klamm_spark.datasource.exactly_once import PREFIX
from klamm_spark.datasource.option_values import (
    Bound,
    Subscription,
    Times,
    bound,
    duration_s,
    flag,
    number,
    subscription,
    times,
    word,
)

_READ: Final = (
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "endingOffsets",
    "startingTimestamp",
    "endingTimestamp",
    "startingOffsetsByTimestamp",
    "endingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "failOnDataLoss",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "minPartitions",
    "maxRecordsPerPartition",
    "minRecordsPerPartition",
    "groupIdPrefix",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "includeHeaders",
    "kafkaConsumer.pollTimeoutMs",
    "refreshEachBatch",
    "agentLines",
    "agentLines.id",
)
_WRITE: Final = (
    "topic",
    "deliveryGuarantee",
    "transactionalIdPrefix",
    "markerTopic",
    "txnAppId",
    "txnVersion",
)
TOGETHER: Final = 1000
"""A task's start costs two Python workers some 20 ms each, as much as reading a thousand records."""
_GUARANTEES: Final = ("at-least-once", "exactly-once")
_SPARKS_OWN: Final = frozenset({"path", "checkpointlocation", "queryname", figures.OPTION})
_OURS_TO_SET: Final = (
    "auto.offset.reset",
    "enable.auto.commit",
    "key.deserializer",
    "value.deserializer",
)


@dataclass(frozen=True, slots=True)
class ReadOptions:
    client: Mapping[str, str] = field(repr=False)  # Java's names; may hold passwords
    subscription: Subscription
    starting: Bound | None
    ending: Bound
    starting_timestamp: Times | None
    ending_timestamp: Times | None
    strict_timestamp: bool
    fail_on_data_loss: bool
    max_records: int | None
    min_records: int | None
    max_delay_s: float
    min_partitions: int | None
    max_per_partition: int | None
    min_per_partition: int | None
    include_headers: bool
    poll_timeout_s: float
    group: str
    retries: int
    retry_interval_s: float
    refresh: bool = False
    agent_lines: bool = False
    line_id: str | None = None

    @property
    def read_committed(self) -> bool:
        return self.client.get("isolation.level", "").lower() == "read_committed"


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """A writer's options. `topic` None: rows name it. `application` and `version` are a batch write's; streams
    have their own.
    """

    client: Mapping[str, str] = field(repr=False)
    topic: str | None
    exactly_once: bool = False
    prefix: str = PREFIX
    marker_topic: str | None = None
    application: str | None = None
    version: int | None = None
    figures: str | None = None


def read_options(options: Mapping[str, str]) -> ReadOptions:
    """Returns a reader's checked options. Raises ConfigError, which names the option."""
    found, client = _sorted_out(options, _READ)
    start = bound(found, "startingOffsets")
    end = bound(found, "endingOffsets")
    if end == "earliest":
        raise ConfigError(
            "endingOffsets=earliest would read nothing: use latest or offsets as JSON", key="endingOffsets"
        )
    for side in ("starting", "ending"):
        given = [n for n in (f"{side}Offsets", f"{side}Timestamp", f"{side}OffsetsByTimestamp") if n in found]
        if len(given) > 1:
            raise ConfigError(f"{given[0]} and {given[1]} are both set: use one of them", key=given[1])
    least, most = number(found, "minOffsetsPerTrigger", 1), number(found, "maxOffsetsPerTrigger", 1)
    if least is not None and most is not None and least > most:
        raise ConfigError(
            f"minOffsetsPerTrigger={least} must be less than or equal to maxOffsetsPerTrigger={most}",
            key="minOffsetsPerTrigger",
        )
    timeout_ms, retry_ms = (
        number(found, "kafkaConsumer.pollTimeoutMs", 1),
        number(found, "fetchOffset.retryIntervalMs", 0),
    )
    retries = number(found, "fetchOffset.numRetries", 0)
    return ReadOptions(
        client=client,
        subscription=subscription(found),
        starting=start,
        ending="latest" if end is None else end,
        starting_timestamp=times(found, "starting"),
        ending_timestamp=times(found, "ending"),
        strict_timestamp=word(found, "startingOffsetsByTimestampStrategy", ("error", "latest")) == "error",
        fail_on_data_loss=flag(found, "failOnDataLoss", default=True),
        max_records=most,
        min_records=least,
        max_delay_s=duration_s("maxTriggerDelay", found.get("maxTriggerDelay", "15m")),
        min_partitions=number(found, "minPartitions", 1),
        max_per_partition=number(found, "maxRecordsPerPartition", 1),
        min_per_partition=number(found, "minRecordsPerPartition", 1) or TOGETHER,
        include_headers=flag(found, "includeHeaders", default=False),
        poll_timeout_s=(timeout_ms or 120_000) / 1000,
        group=client.pop("group.id", "") or f"{found.get('groupIdPrefix') or 'klamm-spark'}-source",
        retries=3 if retries is None else retries,
        retry_interval_s=(1000 if retry_ms is None else retry_ms) / 1000,
        refresh=flag(found, "refreshEachBatch", default=False),
        agent_lines=flag(found, "agentLines", default=False),
        line_id=_line_id(found),
    )


def _line_id(found: Mapping[str, str]) -> str | None:
    pattern = found.get("agentLines.id")
    if pattern is None:
        return None
    from klamm_spark.datasource import agent_lines  # with Arrow, which only an environment for Spark has

    if not agent_lines.usable(pattern):
        raise ConfigError(
            f"agentLines.id={pattern}: use one group, plain characters, classes, alternatives and repetitions only",
            key="agentLines.id",
        )
    return pattern


def write_options(options: Mapping[str, str]) -> WriteOptions:
    """Returns a writer's checked options. Raises ConfigError, which names the option."""
    found, client = _sorted_out(options, _WRITE)
    flag(
        found, "includeHeaders", default=True
    )  # Spark's sink takes headers whenever there is such a column; so do we
    exactly_once = word(found, "deliveryGuarantee", _GUARANTEES) == _GUARANTEES[1]
    answer = WriteOptions(
        client=client,
        topic=found.get("topic") or None,
        exactly_once=exactly_once,
        prefix=found.get("transactionalIdPrefix") or PREFIX,
        marker_topic=found.get("markerTopic") or found.get("topic") or None,
        application=found.get("txnAppId") or None,
        version=number(found, "txnVersion", 0),
        figures={k.lower(): v for k, v in options.items()}.get(figures.OPTION),
    )
    _check_write(answer, found)
    return answer


def _check_write(answer: WriteOptions, found: Mapping[str, str]) -> None:
    if not answer.exactly_once:
        for name in ("transactionalIdPrefix", "markerTopic", "txnAppId", "txnVersion"):
            if name in found:
                raise ConfigError(f"{name} is used with deliveryGuarantee=exactly-once only", key=name)
        return
    if answer.marker_topic is None:
        raise ConfigError(
            "deliveryGuarantee=exactly-once with a column topic needs markerTopic: the topic in whose name it is kept which "
            "batches are written (any that exists)",
            key="markerTopic",
        )
    if (answer.application is None) != (answer.version is None):
        raise ConfigError("txnAppId and txnVersion go together", key="txnVersion")
    for name in ("transactional.id", "enable.idempotence"):
        if name in answer.client:
            raise ConfigError(
                f"kafka.{name} cannot be set with deliveryGuarantee=exactly-once: every task has its own "
                "(transactionalIdPrefix says what they begin with)",
                key=f"kafka.{name}",
            )


def client_config(client: Mapping[str, str], kind: Kind) -> dict[str, Any]:
    """Returns librdkafka's configuration. librdkafka itself logs only errors."""
    return {"log_level": "3", **translate(client, kind).config}


def _sorted_out(options: Mapping[str, str], known: tuple[str, ...]) -> tuple[dict[str, str], dict[str, str]]:
    """Returns options by their spelling in `known` (Spark passes them in any case), and the options that begin
    with `kafka.`.
    """
    by_lower = {name.lower(): name for name in known}
    found: dict[str, str] = {}
    client: dict[str, str] = {}
    for name, value in options.items():
        lower = name.lower()
        if lower.startswith("kafka."):
            client[lower.removeprefix("kafka.")] = value
        elif lower in by_lower:
            found[by_lower[lower]] = value
        elif lower not in _SPARKS_OWN:
            raise ConfigError(
                f"unknown option {name} of format klamm: {meant(name, ('kafka.*', *known))}", key=name
            )
    for name in _OURS_TO_SET:
        if name in client:
            raise ConfigError(
                f"kafka.{name} cannot be set: Spark keeps the offsets itself", key=f"kafka.{name}"
            )
    if not client.get("bootstrap.servers", "").strip():
        raise ConfigError(
            "kafka.bootstrap.servers is missing: HOST:PORT of a broker", key="kafka.bootstrap.servers"
        )
    return found, client
