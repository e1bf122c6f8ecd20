"""`mirror.keep.offsets`: the key, the target's words for it, and what it contradicts. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from klamm_base.errors import ConfigError

if TYPE_CHECKING:
    from klamm_plugins.record_pipeline import RecordPipeline

KEEP: Final = "mirror.keep.offsets"
FEATURE: Final = "klamm.mirror.topics"
"""The feature (KIP-584) that a broker announces if it takes batches with their offsets."""
STATE: Final = "klamm.mirror.state"
"""The setting of a topic at the target that says whether it is such a copy."""
SOURCE: Final = "klamm.mirror.source"
"""The setting with the cluster of which the topic is a copy: its id, a space, its alias."""
EPOCH: Final = "klamm.mirror.promotion.epoch"
"""The setting with the leader epoch from which on the records of a promoted topic are its own cluster's."""
OWN_KEYS: Final = frozenset({STATE, SOURCE, EPOCH})
MIRROR: Final = "mirror"
PROMOTED: Final = "promoted"
KEEP_ACKS: Final = -2
"""acks of a Produce request whose batches keep their offsets. A broker without the feature refuses it."""
_RECREATED: Final = "mirror.topic.recreated"
_SCHEMA_IDS: Final = "sync.schemas.ids"
_CODEC: Final = ("producer.override.", "target.producer.", "target.cluster.producer.", "producer.")


def check_keep(props: Mapping[str, str], parsed: Mapping[str, Any]) -> None:
    """Raises ConfigError for the first setting that cannot be together with kept offsets."""
    if parsed[KEEP]:
        for key, why in contradictions(props, parsed):
            raise ConfigError(f"{KEEP}=true cannot be combined with {key}={props[key]}: {why}", key=key)


def contradictions(props: Mapping[str, str], parsed: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yields keys that are set, each with the reason why they contradict kept offsets."""
    for key in ("transforms", "predicates"):
        if props.get(key, "").strip():
            yield key, "batches are copied as they are"
    for key in (f"{prefix}compression.type" for prefix in _CODEC):
        if props.get(key, "").strip():
            yield key, "batches are copied as they are, with the compression that they have"
    if props.get(_SCHEMA_IDS, "").strip() == "translate":
        yield _SCHEMA_IDS, "batches are copied as they are, with the ids of schemas that they have"
    if parsed.get(_RECREATED) in {"append", "truncate-target"} and _RECREATED in props:
        yield (
            _RECREATED,
            (
                "a new topic counts its offsets from 0, which the copy has already given to other records. Set stop or "
                "new-topic"
            ),
        )
    if props.get("mirror.provenance", "").strip().lower() == "true":
        yield (
            "mirror.provenance",
            ("a copy that keeps offsets leaves no record out, and nobody but the flow writes to it"),
        )


def check_pipeline(pipeline: RecordPipeline | None) -> None:
    """Raises ConfigError for transforms or converters."""
    if pipeline is not None:
        raise ConfigError(
            f"{KEEP}=true: batches are copied as they are, so there can be no transforms and no converters but "
            "ByteArrayConverter",
            key=KEEP,
        )


def missing_feature(alias: str, bootstrap: str) -> ConfigError:
    """Returns the error for a target that cannot keep offsets."""
    return ConfigError(
        f"{KEEP}=true: cluster {alias} ({bootstrap}) does not announce the feature {FEATURE}. Klamm's brokers do; Apache "
        "Kafka gives each batch new offsets, and groups are translated instead (mirror.keep.offsets=false)",
        key=KEEP,
    )
