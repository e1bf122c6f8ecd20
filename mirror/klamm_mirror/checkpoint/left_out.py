"""The groups that are left out at a side, and why. Each reason is logged when it is new, and told while it lasts."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Collection, Iterator

from klamm_kafka.client import BrokerError
from klamm_mirror.checkpoint.share_groups import NoShareGroups

log = logging.getLogger(__name__)


class LeftOut:
    """See the module. Sides are words: `at the source`, `at the target`."""

    def __init__(self) -> None:
        self._why: dict[tuple[str, str], str] = {}

    @contextlib.contextmanager
    def unless_refused(self, group: str, side: str) -> Iterator[None]:
        """Leaves a group out that a cluster refuses, so that the others go on."""
        try:
            yield
        except (BrokerError, NoShareGroups) as e:
            if isinstance(e, BrokerError) and e.retriable:
                raise
            self.note(group, side, str(e))
        else:
            self._why.pop((group, side), None)

    def note(self, group: str, side: str, why: str) -> None:
        """Leaves a group out."""
        if self._why.get((group, side)) != why:
            log.warning("group %s is left out %s: %s", group, side, why)
        self._why[group, side] = why

    def keep(self, groups: Collection[str]) -> None:
        """Forgets all groups but these."""
        self._why = {key: why for key, why in self._why.items() if key[0] in groups}

    def told(self) -> dict[str, str]:
        """Returns a sentence for each group."""
        return dict(sorted((group, f"left out {side}: {why}") for (group, side), why in self._why.items()))
