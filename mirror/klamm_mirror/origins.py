"""The origin of records, and what it means for a batch: the values that `klamm_mirror.provenance.tracker` works with. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

Producer = tuple[int, int]
"""Producer id and epoch."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The cluster where records were first written: its id (`alias:NAME` where it has none), and its alias."""

    cluster: str
    alias: str


class LeftOut(Enum):
    """Why a batch is not copied."""

    OF_TARGET = "they first were at the target"
    BY_ANOTHER_FLOW = "another flow brings them to the target"


Verdict = Origin | LeftOut | None
"""The decision about a batch: copy it with this origin, leave it out, or copy it as a record of the source (None)."""


class Producers:
    """The producers of a task, one for each origin. `wanted` are origins that have none yet."""

    def __init__(self) -> None:
        self.known: dict[Origin | None, Producer] = {}
        self.wanted: dict[Origin | None, None] = {}

    def of(self, origin: Origin | None) -> Producer | None:
        """Returns the origin's producer; None, and wants one, while there is none."""
        found = self.known.get(origin)
        if found is None:
            self.wanted[origin] = None
        return found
