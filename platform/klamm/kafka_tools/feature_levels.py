"""Levels of features by release, as Kafka 4.3 knows them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from klamm_base.errors import KlammError

METADATA: Final = "metadata.version"
_ELR: Final = "eligible.leader.replicas.version"
_FIRST: Final = 7  # the level of the first name
_LATEST: Final = 30  # 4.3-IV0; the name behind it is of a release to come
_NAMES: Final = (
    "3.3-IV3", "3.4-IV0", "3.5-IV0", "3.5-IV1", "3.5-IV2", "3.6-IV0", "3.6-IV1", "3.6-IV2", "3.7-IV0", "3.7-IV1",
    "3.7-IV2", "3.7-IV3", "3.7-IV4", "3.8-IV0", "3.9-IV0", "4.0-IV0", "4.0-IV1", "4.0-IV2", "4.0-IV3", "4.1-IV0",
    "4.1-IV1", "4.2-IV0", "4.2-IV1", "4.3-IV0", "4.4-IV0",
)  # fmt: skip
_SINCE: Final[Mapping[str, Mapping[int, str]]] = {
    "kraft.version": {1: "3.9-IV0"},
    "transaction.version": {2: "4.0-IV2"},
    "group.version": {1: "4.0-IV0"},
    _ELR: {1: "4.1-IV0"},
    "share.version": {1: "4.2-IV0"},
    "streams.version": {1: "4.2-IV1"},
}
"""The level that a feature has by default since a release, in the order of Kafka's list."""
_HIGHEST: Final = {name: max(levels) for name, levels in _SINCE.items()}


def latest() -> str:
    """Return the name of the latest release."""
    return metadata_name(_LATEST)


def metadata_name(level: int) -> str:
    """Return the release of a level of metadata.version."""
    known = 0 <= level - _FIRST < len(_NAMES)
    return _NAMES[level - _FIRST] if known else f"UNKNOWN {level}"


def metadata_level(release: str) -> int:
    """Return the level of metadata.version of a release (`4.0-IV3`, or `4.0` for its last). Raises KlammError."""
    exact = [i for i, name in enumerate(_NAMES) if name == release]
    loose = [
        i for i, name in enumerate(_NAMES) if name.partition("-")[0] == release and i + _FIRST <= _LATEST
    ]
    if not exact and not loose:
        raise KlammError(
            f"Unknown metadata.version '{release}'. Supported metadata.version are: {', '.join(_NAMES)}"
        )
    return _FIRST + (exact or loose)[-1]


def levels_of_release(release: str) -> dict[str, int]:
    """Return the levels of all features in a release. Raises KlammError for an unknown one."""
    at = metadata_level(release)
    levels = {
        name: max((level for level, since in found.items() if metadata_level(since) <= at), default=0)
        for name, found in _SINCE.items()
    }
    return {METADATA: at, **levels}


def dependencies(name: str, level: int) -> dict[str, int]:
    """Return the levels that a level of a feature needs. Raises KlammError for one that there is not."""
    if name == METADATA:
        if not 0 <= level - _FIRST < len(_NAMES):
            raise KlammError(f"Unknown metadata.version {level}")
        return {}
    if name not in _HIGHEST:
        raise KlammError(f"Unknown feature: {name}")
    if not 0 <= level <= _HIGHEST[name]:
        raise KlammError(f"No feature:{name} with feature level {level}")
    return {METADATA: metadata_level("4.0-IV1")} if (name, level) == (_ELR, 1) else {}
