"""The state file of a comparison: what is compared already, so that a killed one goes on instead of beginning anew."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from klamm_base.errors import KlammError
from klamm_base.files import make_private_folder, write_atomically

log = logging.getLogger(__name__)

VERSION: Final = 1
SAVE_S: Final = 2.0


def default_path(identity: Mapping[str, Any]) -> Path:
    """Returns the state file of a comparison where nobody names one."""
    folder = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "klamm"
    digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]
    return folder / f"mirror-verify-{digest}.json"


class State:
    """A state file. `identity` is what is compared; a file about something else is refused."""

    def __init__(self, path: Path, identity: Mapping[str, Any]) -> None:
        self._path = path
        self._identity = dict(identity)
        self._saved_at = time.monotonic()
        self.partitions: dict[str, Any] = {}
        """By partition: what `PartitionComparison.stored` returns, or a finished partition's outcome under `done`."""

    def load(self) -> bool:
        """Reads the file. Returns False when there is none. Raises KlammError for a file that is of no use."""
        try:
            found = json.loads(self._path.read_text())
        except FileNotFoundError:
            return False
        except (OSError, ValueError) as e:
            raise KlammError(f"{self._path} cannot be read ({e}); --restart begins anew") from None
        if (
            not isinstance(found, dict)
            or found.get("version") != VERSION
            or found.get("of") != self._identity
        ):
            raise KlammError(f"{self._path} belongs to another comparison; --restart begins anew")
        self.partitions = found["partitions"]
        return True

    def save(self, *, now: bool = False) -> None:
        """Writes the file, at most every two seconds unless it must be `now`."""
        if not now and time.monotonic() - self._saved_at < SAVE_S:
            return
        content = {"version": VERSION, "of": self._identity, "partitions": self.partitions}
        if not self._path.parent.exists():
            make_private_folder(self._path.parent)
        write_atomically(self._path, json.dumps(content).encode())
        self._saved_at = time.monotonic()

    @property
    def due(self) -> bool:
        return time.monotonic() - self._saved_at >= SAVE_S

    def remove(self) -> None:
        self._path.unlink(missing_ok=True)
