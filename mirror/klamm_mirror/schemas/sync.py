"""The thread that keeps the target's schema registry up to date, pass by pass. It runs in one task of a flow.

Each pass looks at all subjects. A subject with a conflict is tried again in the next pass, and holds no other back.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Any, Final

from klamm_mirror.schemas.config import SchemaSettings
from klamm_mirror.schemas.copier import ConflictError, SchemaCopier
from klamm_mirror.stops import WHY_MAX
from klamm_plugins.converters.registry import RegistryError
from klamm_plugins.errors import RetriableError

log = logging.getLogger(__name__)

RETRY_S: Final = 5.0
STOP_S: Final = 2.0
CONFLICTS_SHOWN: Final = 5


class SchemaSync:
    """See the module. `details` is for the task's status, and may be asked by any thread."""

    def __init__(self, settings: SchemaSettings) -> None:
        self._settings = settings
        self._copier = SchemaCopier(*settings.registries(), settings.names, settings.ids)
        self._conflicts: dict[str, str] = {}
        self._subjects = 0
        self._registered = 0
        self._synced_ms: int | None = None
        self._why: str | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="mirror-schemas", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(STOP_S)
        self._settings.plugins.close()

    def details(self) -> dict[str, Any]:
        """Returns the state of the sync: when it last was complete, and what conflicts."""
        conflicts = dict(self._conflicts)
        found: dict[str, Any] = {
            "subjects": self._subjects,
            "registered": self._registered,
            "synced_ms": self._synced_ms,
            "conflicts": len(conflicts),
        }
        if conflicts:
            shown = sorted(conflicts.items())[:CONFLICTS_SHOWN]
            found["conflicting"] = {subject: why[:WHY_MAX] for subject, why in shown}
        if self._why:
            found["why"] = self._why[:WHY_MAX]
        return found

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self.look()
            except (RetriableError, RegistryError) as e:
                if self._why is None:
                    log.warning("schemas wait: %s", e)
                self._why = str(e)
            except Exception as e:
                log.exception("schemas wait")
                self._why = f"{type(e).__name__}: {e}"
            self._stopping.wait(RETRY_S if self._why else self._settings.interval_s)

    def look(self) -> None:
        """Does one pass. Raises RegistryError, RetriableError."""
        subjects = self._copier.subjects()
        self._subjects = len(subjects)
        conflicts = {}
        for subject in subjects:
            if self._stopping.is_set():
                return
            try:
                self._registered += self._copier.copy(subject)
                self._copier.sync_settings(subject)
            except (ConflictError, RegistryError) as e:
                conflicts[subject] = str(e)
                if self._conflicts.get(subject) != str(e):
                    log.error("%s is not copied: %s", subject, e)  # noqa: TRY400 - the sentence says it all
        self._conflicts = conflicts
        self._synced_ms = time.time_ns() // 1_000_000
        self._why = None
