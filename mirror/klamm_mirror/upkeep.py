"""Work that a flow does from time to time beside its records, in a thread of one task: copies of schemas, quotas and so on.

A pass that fails is told in the task's status, logged once, and tried again soon. It holds no record back.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Final

from klamm_base.errors import KlammError

log = logging.getLogger(__name__)

RETRY_S: Final = 5.0
STOP_S: Final = 2.0
PAUSE_S: Final = 0.5
SHOWN_BYTES: Final = 400
"""The size of what is shown of conflicts and examples, as JSON. The parts of a flow's upkeep have some 2,000 bytes together."""
SHOWN_CHARS: Final = 220
"""Characters of a reason."""


class Upkeep(ABC):
    """See the module. `name` is the part of the task's status that `details` is. Any thread may ask `details`.

    `paused` holds off the next pass.
    """

    def __init__(self, name: str, interval_s: float) -> None:
        self.name = name
        self.paused = False
        self.stopping = threading.Event()
        self.began_ms = time.time_ns() // 1_000_000
        self._interval_s = interval_s
        self._synced_ms: int | None = None
        self._why: str | None = None
        self._thread = threading.Thread(target=self._run, name=f"mirror-{name}", daemon=True)

    @abstractmethod
    def look(self) -> None:
        """Does one pass. Raises KlammError when it must be repeated."""

    @abstractmethod
    def figures(self) -> Mapping[str, Any]:
        """Returns what the passes have found and done, for the task's status."""

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self.stopping.set()
        if self._thread.is_alive():
            self._thread.join(STOP_S)

    def details(self) -> dict[str, Any]:
        """Returns the figures, the time of the last whole pass, and the reason why the present one fails."""
        found = {**self.figures(), "synced_ms": self._synced_ms}
        if self._why is not None:
            found["why"] = self._why[:SHOWN_CHARS]
        return found

    def _run(self) -> None:
        while not self.stopping.is_set():
            if self.paused:
                self.stopping.wait(PAUSE_S)
                continue
            try:
                self.look()
            except KlammError as e:
                if str(e) != self._why:
                    log.warning("%s wait: %s", self.name, e)
                self._why = str(e)
            except Exception as e:
                log.exception("%s wait", self.name)
                self._why = f"{type(e).__name__}: {e}"
            else:
                self._why = None
                self._synced_ms = time.time_ns() // 1_000_000
            self.stopping.wait(min(RETRY_S, self._interval_s) if self._why is not None else self._interval_s)


def shown(reasons: Mapping[str, str]) -> dict[str, str]:
    """Returns the first reasons by name, cut so that they fit into a task's status: one at least."""
    found: dict[str, str] = {}
    room = SHOWN_BYTES
    for name, why in sorted(reasons.items()):
        cut = why if len(why) <= SHOWN_CHARS else f"{why[: SHOWN_CHARS - 1]}…"
        room -= len(json.dumps([name, cut]))
        if found and room < 0:
            break
        found[name] = cut
    return found
