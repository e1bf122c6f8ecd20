"""The journal of moves: a compacted topic at the cluster that is in use, `mm2-moves.<other cluster>.internal`.

| record | key | value |
|---|---|---|
| a move | move, flow | id, began, phase, options |
| a step | move, flow, step | id, at, done, found; a tombstone where the step was undone |
| a part of what a step found | move, flow, step, text, part | the part of the text |

Keys and values are JSON. A step counts when its id is that of its move: those of earlier moves stay until compaction.

A change is one batch: the journal has all of it, or nothing. A long `found` would not fit. It is cut into parts, which
come before the note that names them by `text` and `parts`; tombstones remove them once no note does.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Collection, Iterable, Mapping
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
Part = tuple[Step, str, int]
"""A part of a text: the step, the digest of the text, the part's number."""
PART_BYTES: Final = 64 << 10
"""A change has up to eleven notes and a head, and fits into a batch of 1 MiB, the default max.message.bytes."""
_STEP: Final = "step"
_TEXT: Final = "text"
_TOO_LARGE: Final = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})


class Overtaken(KlammError):
    """Another command has changed the move meanwhile."""


@dataclass(frozen=True, slots=True)
class _Entry:
    """A record of the journal."""

    key: Mapping[str, Any]
    value: Mapping[str, Any] | str | None

    def encode(self) -> tuple[bytes, bytes | None]:
        """Returns key and value."""
        return _json(self.key), None if self.value is None else _json(self.value)


def batches(before: Move | None, after: Move, there: Collection[Part] = ()) -> list[list[_Entry]]:
    """Returns the batches, in order, that bring the journal from one state of a move to the next. `there` are the parts
    that it has by now.
    """
    same = before is not None and before.identity == after.identity
    old = before.notes if same and before is not None else {}
    head = {"move": str(after.kind), "flow": after.flow}
    change: list[_Entry] = []
    parts: dict[Part, str] = {}
    if not same or replace(after, notes={}) != replace(before or after, notes={}):
        value = {
            "id": after.identity, "began": after.began_ms, "phase": str(after.phase), "options": after.options,
        }  # fmt: skip
        change.append(_Entry(head, value))
    for step in sorted({*old, *after.notes}):
        note = after.notes.get(step)
        noted = None
        if note is not None:
            found, cut = _found(step, note)
            parts |= cut
            noted = {"id": after.identity, "at": note.at_ms, "done": note.done, **found}
        if note != old.get(step):
            change.append(_Entry({**head, _STEP: str(step)}, noted))
    new = [[_Entry(_part_key(head, p), text)] for p, text in parts.items() if p not in there]
    gone = [_Entry(_part_key(head, p), None) for p in sorted(set(there) - set(parts))]
    return [batch for batch in [*new, change, gone] if batch]


def _found(step: Step, note: Note) -> tuple[dict[str, Any], dict[Part, str]]:
    """Returns the fields of a note for what it found, and the parts of it that do not fit there."""
    text = _json(note.found).decode()
    if len(text) <= PART_BYTES:
        return {"found": note.found}, {}
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    cut = [text[at : at + PART_BYTES] for at in range(0, len(text), PART_BYTES)]
    return {_TEXT: digest, "parts": len(cut)}, {(step, digest, n): part for n, part in enumerate(cut)}


def _part_key(head: Mapping[str, Any], part: Part) -> dict[str, Any]:
    step, digest, number = part
    return {**head, _STEP: str(step), _TEXT: digest, "part": number}


class Journal(TopicFollower):
    """Reads and writes one journal. `cluster` is a client of the cluster that is in use."""

    def __init__(self, cluster: Cluster, topic: str, replication_factor: int) -> None:
        super().__init__(cluster, topic)
        self._replication_factor = replication_factor
        self.reset()

    def move(self, kind: Kind, flow: str) -> Move | None:
        """Returns the latest move of a kind. Raises KlammError for a note that is not whole."""
        key = kind, flow
        head = self._heads.get(key)
        if head is None:
            return None
        steps = {
            s: value for (k, s), value in self._notes.items() if k == key and value["id"] == head.identity
        }
        return replace(head, notes={step: self._note(key, step, value) for step, value in steps.items()})

    def _note(self, key: Key, step: Step, value: Mapping[str, Any]) -> Note:
        found = value["found"] if "found" in value else json.loads("".join(self._text(key, step, value)))
        return Note(at_ms=int(value["at"]), done=bool(value["done"]), found=found)

    def _text(self, key: Key, step: Step, value: Mapping[str, Any]) -> Iterable[str]:
        parts = self._parts.get(key, {})
        for number in range(value["parts"]):
            part = parts.get((step, value[_TEXT], number))
            if part is None:
                raise KlammError(
                    f"{self.topic}: part {number} of {value['parts']} of the note of {step} is missing: somebody has deleted "
                    f"records of the journal"
                )
            yield part

    async def write(self, move: Move, known: Move | None) -> None:
        """Writes a move's new state; all in-sync replicas have it when it returns. `known` is the state before it.

        Raises ClientError, KlammError, and Overtaken where the journal has another state.
        """
        await self.catch_up()
        self._refuse_other(move, known)
        after, end = stored(move), max(self._position, 0)
        for batch in batches(known, after, self._parts.get((move.kind, move.flow), {})):
            end = await self._append(internal_topics.as_records(batch, time.time_ns() // 1_000_000), end)
        await self.catch_up()
        self._refuse_other(move, after)

    def _refuse_other(self, move: Move, known: Move | None) -> None:
        if self.move(move.kind, move.flow) != known:
            raise Overtaken(
                f"another command goes on with the {move.kind} of {move.flow}, or undoes it: this one stops here"
            )

    async def _append(self, records: list[Record], end: int) -> int:
        """Appends records to a journal that ends at `end`. Returns its new end. Raises Overtaken where others came first: of
        two commands that have read the same state, the log's order lets one go on.
        """
        base = await self._produce(records)
        if base != end:
            raise Overtaken(
                f"another command wrote to {self.topic} at the same time (offset {end} is not this command's): this one stops "
                "here. Give it again when the other has ended"
            )
        return base + len(records)

    async def _produce(self, records: list[Record]) -> int:
        try:
            return await internal_topics.produce(self._cluster, self.topic, records)
        except BrokerError as e:
            if e.code in _TOO_LARGE:
                size = sum(len(r.value or b"") for r in records)
                raise KlammError(
                    f"{self.topic} does not take a note of {size:,} bytes: raise its max.message.bytes, and give the "
                    f"command again"
                ) from None
            if e.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            await internal_topics.create(self._cluster, self.topic, self._replication_factor)
            return await internal_topics.produce(self._cluster, self.topic, records)

    def reset(self) -> None:
        self._heads: dict[Key, Move] = {}
        self._notes: dict[tuple[Key, Step], Mapping[str, Any]] = {}
        self._parts: dict[Key, dict[Part, str]] = {}

    def take(self, record: Record) -> None:
        try:
            name = json.loads(record.key or b"")
            key = Kind(name["move"]), str(name["flow"])
            value = None if record.value is None else json.loads(record.value)
            if _STEP not in name:
                self._heads[key] = _head(key, value)
            elif _TEXT in name:
                part = Step(name[_STEP]), str(name[_TEXT]), int(name["part"])
                _put(self._parts.setdefault(key, {}), part, value)
            else:
                _put(self._notes, (key, Step(name[_STEP])), value if value is None else _checked(value))
        except (ValueError, KeyError, TypeError) as e:
            raise MalformedRecord(f"no entry of a journal of moves: {type(e).__name__}: {e}") from None


def _head(key: Key, value: Any) -> Move:
    return Move(
        kind=key[0], flow=key[1], identity=str(value["id"]), began_ms=int(value["began"]),
        phase=Phase(value["phase"]), options=value["options"],
    )  # fmt: skip


def _checked(value: Any) -> Mapping[str, Any]:
    """Returns the value of a note that has all its fields. Raises KeyError, TypeError."""
    for field in ("id", "at", "done", *(("found",) if "found" in value else (_TEXT, "parts"))):
        value[field]
    return dict(value)


def _put(there: dict[Any, Any], key: Any, value: Any) -> None:
    if value is None:
        there.pop(key, None)
    else:
        there[key] = value


def _json(value: Mapping[str, Any] | str) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
