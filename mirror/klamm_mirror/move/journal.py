"""The journal of moves: a compacted topic at the cluster that is in use, `mm2-moves.<other cluster>.internal`.

| record | key | value |
|---|---|---|
| a move | move, flow | id, began, phase, options |
| a step | move, flow, step | id, at, done, found; a tombstone where the step was undone |

Keys and values are JSON. A step counts when its id is that of its move: those of earlier moves stay until compaction.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from klamm_base.errors import KlammError
from klamm_kafka.client import BrokerError, Cluster
from klamm_kafka.wire.batch import Record
from klamm_kafka.wire.errors import ErrorCode
from klamm_mirror.move.steps import Kind, Move, Note, Phase, Step, stored
from klamm_mirror.topics import internal_topics
from klamm_mirror.topics.fields import MalformedRecord
from klamm_mirror.topics.follower import TopicFollower

Key = tuple[Kind, str]
_STEP: Final = "step"
_TOO_LARGE: Final = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})


@dataclass(frozen=True, slots=True)
class _Entry:
    """A record of the journal."""

    key: Mapping[str, Any]
    value: Mapping[str, Any] | None

    def encode(self) -> tuple[bytes, bytes | None]:
        """Returns key and value."""
        return _json(self.key), None if self.value is None else _json(self.value)


def entries(before: Move | None, after: Move) -> list[_Entry]:
    """Returns the records that bring the journal from one state of a move to the next."""
    same = before is not None and before.identity == after.identity
    old = before.notes if same and before is not None else {}
    head = {"move": str(after.kind), "flow": after.flow}
    found = []
    # What no longer holds comes first: a kill between two records leaves a step to be done again, not one left out.
    changed = [s for s in {*old, *after.notes} if after.notes.get(s) != old.get(s)]
    for step in sorted(changed, key=lambda s: (after.is_done(s), s)):
        note = after.notes.get(step)
        value = (
            None
            if note is None
            else {"id": after.identity, "at": note.at_ms, "done": note.done, "found": note.found}
        )
        found.append(_Entry({**head, _STEP: str(step)}, value))
    if not same or replace(after, notes={}) != replace(before or after, notes={}):
        value = {
            "id": after.identity, "began": after.began_ms, "phase": str(after.phase), "options": after.options,
        }  # fmt: skip
        # A move is there before its steps, and over after them.
        found.insert(len(found) if same else 0, _Entry(head, value))
    return found


class Journal(TopicFollower):
    """Reads and writes one journal. `cluster` is a client of the cluster that is in use."""

    def __init__(self, cluster: Cluster, topic: str, replication_factor: int) -> None:
        super().__init__(cluster, topic)
        self._replication_factor = replication_factor
        self._heads: dict[Key, Move] = {}
        self._notes: dict[tuple[Key, Step], tuple[str, Note]] = {}

    def move(self, kind: Kind, flow: str) -> Move | None:
        """Returns the latest move of a kind."""
        head = self._heads.get((kind, flow))
        if head is None:
            return None
        notes = {
            step: note
            for (key, step), (identity, note) in self._notes.items()
            if key == (kind, flow) and identity == head.identity
        }
        return replace(head, notes=notes)

    async def write(self, move: Move) -> None:
        """Writes a move's new state; all in-sync replicas have it when it returns. Raises ClientError, KlammError."""
        await self.catch_up()
        found = entries(self.move(move.kind, move.flow), stored(move))
        now_ms = time.time_ns() // 1_000_000
        for record in internal_topics.as_records(found, now_ms):  # in this order, each acknowledged
            try:
                await internal_topics.produce(self._cluster, self.topic, [record])
            except BrokerError as e:
                if e.code in _TOO_LARGE:
                    raise KlammError(
                        f"{self.topic} does not take a note of {len(record.value or b''):,} bytes: raise its "
                        f"max.message.bytes, and give the command again"
                    ) from None
                if e.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise
                await internal_topics.create(self._cluster, self.topic, self._replication_factor)
                await internal_topics.produce(self._cluster, self.topic, [record])
        await self.catch_up()

    def reset(self) -> None:
        self._heads, self._notes = {}, {}

    def take(self, record: Record) -> None:
        try:
            name = json.loads(record.key or b"")
            key = Kind(name["move"]), str(name["flow"])
            step = Step(name[_STEP]) if _STEP in name else None
            value = None if record.value is None else json.loads(record.value)
            self._apply(key, step, value)
        except (ValueError, KeyError, TypeError) as e:
            raise MalformedRecord(f"no entry of a journal of moves: {type(e).__name__}: {e}") from None

    def _apply(self, key: Key, step: Step | None, value: Any) -> None:
        if step is None:
            self._heads[key] = Move(
                kind=key[0], flow=key[1], identity=str(value["id"]), began_ms=int(value["began"]),
                phase=Phase(value["phase"]), options=value["options"],
            )  # fmt: skip
        elif value is None:
            self._notes.pop((key, step), None)
        else:
            note = Note(at_ms=int(value["at"]), done=bool(value["done"]), found=value["found"])
            self._notes[key, step] = str(value["id"]), note


def _json(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
