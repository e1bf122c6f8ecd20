"""Options of `format("klamm")`, with the names of Spark's Kafka source. Pure.

Every option is understood or refused by name: a misspelt `startingOffset` must not read a whole topic.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from klamm_base.clientconfig import Kind, translate
from klamm_base.errors import ConfigError
from klamm_spark.datasource.exactly_once import PREFIX
from klamm_spark.datasource.offsets import Partition, flat

EARLIEST: Final = -2
LATEST: Final = -1

_READ: Final = (
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "endingOffsets",
    "startingTimestamp",
    "endingTimestamp",
    "failOnDataLoss",
    "maxOffsetsPerTrigger",
    "minPartitions",
    "includeHeaders",
    "kafkaConsumer.pollTimeoutMs",
)
_WRITE: Final = (
    "topic",
    "deliveryGuarantee",
    "transactionalIdPrefix",
    "markerTopic",
    "txnAppId",
    "txnVersion",
)
_GUARANTEES: Final = ("at-least-once", "exactly-once")
_SPARKS_OWN: Final = frozenset({"path", "checkpointlocation", "queryname"})
_OURS_TO_SET: Final = (
    "group.id",
    "auto.offset.reset",
    "enable.auto.commit",
    "key.deserializer",
    "value.deserializer",
)

Bound = Literal["earliest", "latest"] | dict[Partition, int]
"""A side of what is read: a word, or offsets by partition (-2 earliest, -1 latest)."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """Exactly one of them is set."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: tuple[Partition, ...] = ()


@dataclass(frozen=True, slots=True)
class ReadOptions:
    client: Mapping[str, str] = field(repr=False)  # Java's names; may hold passwords
    subscription: Subscription
    starting: Bound | None
    ending: Bound
    starting_timestamp: int | None
    ending_timestamp: int | None
    fail_on_data_loss: bool
    max_records: int | None
    min_partitions: int | None
    include_headers: bool
    poll_timeout_s: float

    @property
    def read_committed(self) -> bool:
        return self.client.get("isolation.level", "").lower() == "read_committed"


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """`topic` None: rows name it. `application` and `version` are those of a batch write; streams have their own."""

    client: Mapping[str, str] = field(repr=False)
    topic: str | None
    exactly_once: bool = False
    prefix: str = PREFIX
    marker_topic: str | None = None
    application: str | None = None
    version: int | None = None


def read_options(options: Mapping[str, str]) -> ReadOptions:
    """Checked options of a reader. Raises ConfigError that names the option."""
    found, client = _sorted_out(options, _READ)
    start = _bound(found, "startingOffsets")
    end = _bound(found, "endingOffsets")
    if end == "earliest":
        raise ConfigError(
            "endingOffsets=earliest would read nothing: use latest or offsets as JSON", key="endingOffsets"
        )
    if "startingOffsets" in found and "startingTimestamp" in found:
        raise ConfigError(
            "startingOffsets and startingTimestamp are both set: use one of them", key="startingTimestamp"
        )
    return ReadOptions(
        client=client,
        subscription=_subscription(found),
        starting=start,
        ending="latest" if end is None else end,
        starting_timestamp=_number(found, "startingTimestamp", 0),
        ending_timestamp=_number(found, "endingTimestamp", 0),
        fail_on_data_loss=_flag(found, "failOnDataLoss", default=True),
        max_records=_number(found, "maxOffsetsPerTrigger", 1),
        min_partitions=_number(found, "minPartitions", 1),
        include_headers=_flag(found, "includeHeaders", default=False),
        poll_timeout_s=(_number(found, "kafkaConsumer.pollTimeoutMs", 1) or 120_000) / 1000,
    )


def write_options(options: Mapping[str, str]) -> WriteOptions:
    """Checked options of a writer. Raises ConfigError that names the option."""
    found, client = _sorted_out(options, _WRITE)
    _flag(
        found, "includeHeaders", default=True
    )  # Spark's sink takes headers whenever there is such a column; so do we
    guarantee = found.get("deliveryGuarantee", _GUARANTEES[0]).strip().lower().replace("_", "-")
    if guarantee not in _GUARANTEES:
        raise ConfigError(
            f"deliveryGuarantee={found['deliveryGuarantee']}: use {' or '.join(_GUARANTEES)}",
            key="deliveryGuarantee",
        )
    exactly_once = guarantee == _GUARANTEES[1]
    answer = WriteOptions(
        client=client,
        topic=found.get("topic") or None,
        exactly_once=exactly_once,
        prefix=found.get("transactionalIdPrefix") or PREFIX,
        marker_topic=found.get("markerTopic") or found.get("topic") or None,
        application=found.get("txnAppId") or None,
        version=_number(found, "txnVersion", 0),
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
    """Librdkafka's configuration; log lines of its own are kept to errors."""
    return {"log_level": "3", **translate(client, kind).config}


def _sorted_out(options: Mapping[str, str], known: tuple[str, ...]) -> tuple[dict[str, str], dict[str, str]]:
    """Options by their spelling in `known` (Spark hands them over in any case), and what begins with `kafka.`."""
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
                f"unknown option {name} of format klamm: known are kafka.* and {', '.join(known)}", key=name
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


def _subscription(found: Mapping[str, str]) -> Subscription:
    given = [n for n in ("subscribe", "subscribePattern", "assign") if found.get(n, "").strip()]
    if len(given) != 1:
        said = "are all set" if given else "are missing"
        raise ConfigError(
            f"{', '.join(given) or 'subscribe, subscribePattern and assign'} {said}: set exactly one of "
            "subscribe, subscribePattern and assign",
            key="subscribe",
        )
    match given[0]:
        case "subscribe":
            topics = tuple(dict.fromkeys(t.strip() for t in found["subscribe"].split(",") if t.strip()))
            return Subscription(topics=topics)
        case "subscribePattern":
            return Subscription(pattern=_pattern(found["subscribePattern"]))
        case _:
            return Subscription(partitions=_assigned(found["assign"]))


def _pattern(text: str) -> str:
    import re

    try:
        re.compile(text)
    except re.error as e:
        raise ConfigError(
            f"subscribePattern={text} is no regular expression: {e}", key="subscribePattern"
        ) from None
    return text


def _assigned(text: str) -> tuple[Partition, ...]:
    example = 'use JSON like {"orders": [0, 1]}'
    try:
        data = json.loads(text)
        pairs = [(t, p) for t, numbers in data.items() for p in numbers]
    except (ValueError, AttributeError, TypeError):
        raise ConfigError(f"assign={text}: {example}", key="assign") from None
    if not pairs or not all(type(p) is int and p >= 0 for _, p in pairs):
        raise ConfigError(f"assign={text}: {example}", key="assign")
    return tuple(pairs)


def _bound(found: Mapping[str, str], name: str) -> Bound | None:
    text = found.get(name)
    if text is None:
        return None
    if (word := text.strip().lower()) in {"earliest", "latest"}:
        return "earliest" if word == "earliest" else "latest"
    try:
        offsets = flat(json.loads(text))
    except (ValueError, AttributeError, TypeError):
        raise ConfigError(
            f'{name}={text}: use earliest, latest or JSON like {{"orders": {{"0": 23, "1": -2}}}} (-2 earliest, -1 latest)',
            key=name,
        ) from None
    if bad := [o for o in offsets.values() if o < EARLIEST]:
        raise ConfigError(f"{name}: {bad[0]} is no offset: 0 and above, -2 earliest, -1 latest", key=name)
    return offsets


def _number(found: Mapping[str, str], name: str, least: int) -> int | None:
    text = found.get(name)
    if text is None:
        return None
    try:
        value = int(text)
    except ValueError:
        value = least - 1
    if value < least:
        raise ConfigError(f"{name}={text}: use a number, at least {least}", key=name)
    return value


def _flag(found: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = found.get(name, str(default)).strip().lower()
    if text not in {"true", "false"}:
        raise ConfigError(f"{name}={found[name]}: use true or false", key=name)
    return text == "true"
