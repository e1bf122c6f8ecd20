"""Feature levels (KIP-584): the features that exist, the cluster's levels, and the rules for changing them.

A finalized level tells clients what they can rely on: `transaction.version` 2 makes Java's producer use the
protocol of KIP-890, `group.version` 1 is the consumer group protocol, `share.version` 1 permits share groups,
`streams.version` 1 Streams groups. Pure: `updated` computes the levels after an UpdateFeatures, and
`cluster_config.ClusterConfig` stores them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from klamm_base.errors import KlammError

METADATA: Final = "metadata.version"
KRAFT: Final = "kraft.version"
GROUP: Final = "group.version"
STREAMS: Final = "streams.version"
TRANSACTION: Final = "transaction.version"
SHARE: Final = "share.version"
MIRROR_TOPICS: Final = "klamm.mirror.topics"

SUPPORTED: Final[Mapping[str, tuple[int, int]]] = {
    GROUP: (0, 1),
    KRAFT: (0, 1),
    METADATA: (7, 30),
    SHARE: (0, 1),
    STREAMS: (0, 1),
    TRANSACTION: (0, 2),
    "eligible.leader.replicas.version": (0, 1),
}
"""Lowest and highest level of each feature, as Apache Kafka 4.3 has them."""
OWN: Final[Mapping[str, tuple[int, int]]] = {MIRROR_TOPICS: (1, 1)}
"""Klamm's own features, which ApiVersions names beside Kafka's. They have no level to change: they are always there."""
LATEST: Final[Mapping[str, int]] = {name: highest for name, (_, highest) in SUPPORTED.items()}
"""The levels of a new data directory, as if Kafka 4.3 had formatted it."""


class UpgradeType(IntEnum):
    """The changes that an update allows: Kafka's FeatureUpdate.UpgradeType."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class FeatureUpdate(NamedTuple):
    """One line of an UpdateFeatures. `kind` may be a number that is no UpgradeType."""

    name: str
    level: int
    kind: int


class FeatureRefused(KlammError):
    """A level that cannot be set, with the reason (INVALID_UPDATE_VERSION)."""


def updated(levels: Mapping[str, int], updates: Sequence[FeatureUpdate], *, node_id: int) -> dict[str, int]:
    """Returns the levels after these updates. Raises FeatureRefused with Kafka's sentence for the first bad update."""
    result = dict(levels)
    for update in updates:
        _check(update, levels.get(update.name, 0), node_id)
        result[update.name] = update.level
    return result


def _check(update: FeatureUpdate, current: int, node_id: int) -> None:
    why = _why_not(update, current, node_id)
    if why is not None:
        raise FeatureRefused(f"Invalid update version {update.level} for feature {update.name}. {why}")
    if update.name == METADATA and update.level < current:
        # Each of our features would lose something by a step down, as in Kafka 4.3.
        refusal = (
            "Unsafe metadata downgrade is not supported in this version."
            if update.kind == UpgradeType.UNSAFE_DOWNGRADE
            else "Refusing to perform the requested downgrade because it might delete metadata information."
        )
        raise FeatureRefused(
            f"Unsupported metadata.version downgrade from {current} to {update.level}. {refusal}"
        )


def _why_not(update: FeatureUpdate, current: int, node_id: int) -> str | None:
    """Returns what is wrong with an update, in Kafka's words and in Kafka's order of checks."""
    if update.kind not in UpgradeType.__members__.values():
        return "The controller does not support the given upgrade type."
    if update.level < 0:
        return "A feature version cannot be less than 0."
    if update.name not in SUPPORTED:
        if update.level:
            return f"Local controller {node_id} does not support this feature."
        return f"Feature {update.name} not found."
    lowest, highest = SUPPORTED[update.name]
    if not lowest <= update.level <= highest:
        return f"Local controller {node_id} only supports versions {lowest}-{highest}"
    if update.level > current and update.kind != UpgradeType.UPGRADE:
        return "Can't downgrade to a newer version."
    if update.level < current:
        if update.name == KRAFT:
            return "Can't downgrade the version of this feature."
        if update.kind == UpgradeType.UPGRADE:
            return (
                "Can't downgrade the version of this feature without setting the upgrade type to either "
                "safe or unsafe downgrade."
            )
    return None
