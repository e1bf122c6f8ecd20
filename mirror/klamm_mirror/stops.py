"""The reasons for which a partition is no longer mirrored, and the ways to go on. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

WHY_MAX: Final = 300
"""Characters of a reason in a task's status."""


class Kind(StrEnum):
    """The kinds of gaps between a source and its copy."""

    PURGED = "purged"
    """The source deleted records before they were read."""
    TRUNCATED = "truncated"
    """The source's log lost its end; the copy still has it."""
    REFUSED = "refused"
    """The target does not take a batch."""
    RECREATED = "recreated"
    """The topic was deleted at the source, and another one has its name now."""
    DELETED = "deleted"
    """The topic was deleted at the source."""
    COPY_LOST = "copy-lost"
    """The copy was deleted at the target, or has lost its end: records that were copied are missing there."""
    UNREADABLE = "unreadable"
    """The source does not give records, or gives what nobody can decode."""


class Action(StrEnum):
    """The ways to go on with a stopped partition."""

    SKIP = "skip"
    """Leave the range out."""
    RETRY = "retry"
    """Try the same records again."""
    APPEND = "append"
    """Copy the topic from its start, behind what the copy holds."""
    TRUNCATE_TARGET = "truncate-target"
    """Delete the copy's records, then copy from the start."""
    NEW_TOPIC = "new-topic"
    """Copy the new topic from its start into another remote topic."""


ACTIONS: Final[Mapping[Kind, tuple[Action, ...]]] = {
    Kind.PURGED: (Action.SKIP,),
    Kind.TRUNCATED: (Action.SKIP,),
    Kind.REFUSED: (Action.RETRY, Action.SKIP),
    Kind.RECREATED: (Action.APPEND, Action.TRUNCATE_TARGET, Action.NEW_TOPIC),
    Kind.DELETED: (Action.SKIP,),
    Kind.COPY_LOST: (Action.APPEND, Action.SKIP),
    Kind.UNREADABLE: (Action.RETRY,),
}
"""The actions that make sense for each kind."""
ANEW: Final = frozenset({Kind.RECREATED, Kind.COPY_LOST})
"""The kinds behind which source and copy are no longer the same log: a partition begins anew, and its offsets say nothing."""
UNSENT: Final = frozenset({Kind.REFUSED, Kind.COPY_LOST})
"""The kinds at which nothing more is sent to the target."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """The reason for which a partition is stopped.

    The gap goes from the source offset `start` to `end` (exclusive; None: not known). `since_ms` is the time when
    the mirror noticed it. `new_id` is the id of the topic that has the name now, for a topic or a copy that was recreated.
    """

    kind: Kind
    start: int
    end: int | None
    why: str
    since_ms: int
    new_id: bytes | None = None
    passing: bool = False
    """True for a cause outside the records, such as a missing permission: it is tried again from time to time."""
    failed: str | None = None
    """The action that was not possible here, and why."""

    @property
    def said(self) -> str:
        """The reason, behind what was tried in vain."""
        return self.why if self.failed is None else f"{self.failed}. {self.why}"

    def as_json(self) -> dict[str, Any]:
        """Returns the stop as a task's status shows it."""
        return {
            "kind": str(self.kind), "from": self.start, "to": self.end,
            "why": self.said[:WHY_MAX], "since_ms": self.since_ms,
        }  # fmt: skip


def within(rows: Mapping[str, Mapping[str, Any]], limit: int) -> dict[str, Mapping[str, Any]]:
    """Returns the first rows, as many as take up to `limit` bytes of JSON."""
    found: dict[str, Mapping[str, Any]] = {}
    for name, row in rows.items():
        limit -= len(json.dumps({name: row}))
        if limit < 0:
            break
        found[name] = row
    return found
