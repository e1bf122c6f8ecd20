"""The seven compatibility levels: which versions a new schema is compared with, and in which direction. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from klamm.registry.schemas import Parsed, differences

LEVELS: Final = (
    "NONE", "BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE",
)  # fmt: skip
DEFAULT_LEVEL: Final = "BACKWARD"


@dataclass(frozen=True, slots=True, kw_only=True)
class Earlier:
    """An earlier version of the subject."""

    version: int
    text: str
    parsed: Parsed


def reasons(new: Parsed, earlier: Sequence[Earlier], level: str) -> list[str]:
    """Returns why a schema breaks the level, in words; an empty list: it does not. `earlier` are in ascending order."""
    if level == "NONE":
        return []
    for each in reversed(earlier if level.endswith("_TRANSITIVE") else earlier[-1:]):
        found: list[str] = []
        if level.startswith(("BACKWARD", "FULL")):
            found += [str(d) for d in differences(new, each.parsed, ("new", "old"))]
        if level.startswith(("FORWARD", "FULL")):
            found += [str(d) for d in differences(each.parsed, new, ("old", "new"))]
        if found:
            last = (
                f"{{oldSchemaVersion: {each.version}}}",
                f"{{oldSchema: '{each.text}'}}",
                f"{{compatibility: '{level}'}}",
            )
            return [*dict.fromkeys(found), *last]
    return []
