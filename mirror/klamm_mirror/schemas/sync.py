"""Keeps the target's schema registry up to date, pass by pass.

Each pass looks at all subjects: one request for each. Their levels and modes need more, and are looked at every ten minutes,
and when a version was registered. A subject with a conflict is tried again in the next pass, and holds no other back.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any, Final

from klamm_mirror.schemas.config import SchemaSettings
from klamm_mirror.schemas.copier import ConflictError, SchemaCopier
from klamm_mirror.upkeep import Upkeep, shown
from klamm_plugins.converters.registry import RegistryError
from klamm_plugins.converters.registry_admin import NOT_US

log = logging.getLogger(__name__)

SETTINGS_S: Final = 600.0


class SchemaSync(Upkeep):
    """The copies of one flow's schemas."""

    def __init__(self, settings: SchemaSettings) -> None:
        super().__init__("schemas", settings.interval_s)
        self._settings = settings
        self._copier = SchemaCopier(*settings.registries(), settings.names, settings.ids)
        self._conflicts: dict[str, str] = {}
        self._subjects = 0
        self._settings_at = 0.0

    def stop(self) -> None:
        super().stop()
        self._settings.plugins.close()

    def figures(self) -> Mapping[str, Any]:
        conflicts = self._conflicts
        found: dict[str, Any] = {
            "subjects": self._subjects, "registered": self._copier.registered, "conflicts": len(conflicts),
        }  # fmt: skip
        if conflicts:
            found["conflicting"] = shown(conflicts)
        return found

    def look(self) -> None:
        subjects = self._copier.subjects()
        self._subjects = len(subjects)
        conflicts = {}
        all_settings = time.monotonic() >= self._settings_at
        for subject in subjects:
            if self.stopping.is_set():
                return
            try:
                made = self._copier.copy(subject)
                if made or all_settings or subject in self._conflicts:
                    self._copier.sync_settings(subject)
            except (ConflictError, RegistryError) as e:
                if isinstance(e, RegistryError) and e.code in NOT_US:
                    raise
                conflicts[subject] = str(e)
                if self._conflicts.get(subject) != str(e):
                    log.error("%s is not copied: %s", subject, e)  # noqa: TRY400 - the sentence says it all
        self._conflicts = conflicts
        if all_settings:
            self._settings_at = time.monotonic() + SETTINGS_S
