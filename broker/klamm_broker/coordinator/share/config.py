"""Settings of share groups: all that a broker needs that has no such group."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class ShareSettings(NamedTuple):
    """Settings of one group's members: the broker's properties, overridden by the group's own."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 1_000


def _defaults(_: str) -> ShareSettings:
    return ShareSettings()


class ShareConfig(NamedTuple):
    """The coordinator's settings of share groups."""

    max_size: int = 200
    retry_initialize_ms: int = 30_000
    settings: Callable[[str], ShareSettings] = _defaults
