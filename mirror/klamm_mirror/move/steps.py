"""The steps of a move of applications between two clusters, and which is next: pure, no I/O, no clock.

A move is a plan of steps. The journal notes each step that was begun or done, so that another process can go on.
A step that only looks is done again when the source has grown since; so is each step behind it. A step that changes
something notes first what was there, so that it can be done again, and undone, after a kill at any moment.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

Ends = Mapping[str, int]
"""The ends of logs, by `topic-partition`."""


class Kind(StrEnum):
    """The kinds of moves."""

    CUTOVER = "cutover"
    """Both clusters are there."""
    FAILOVER = "failover"
    """The source is lost."""
    FAILBACK = "failback"
    """A lost cluster is there again, and gets the applications back."""


class Step(StrEnum):
    """The steps, by what they do."""

    CHECK = "check"
    HOLD = "hold"
    LOSS = "loss"
    DIVERGED = "diverged"
    SETTLE = "settle"
    QUIET = "quiet"
    DRAIN = "drain"
    VERIFY = "verify"
    GROUPS = "groups"
    PROMOTE = "promote"
    TELL = "tell"


class Phase(StrEnum):
    """The phases of a move."""

    RUNNING = "running"
    DONE = "done"
    UNDONE = "undone"


PLANS: Final[Mapping[Kind, tuple[Step, ...]]] = {
    Kind.CUTOVER: (Step.CHECK, Step.QUIET, Step.DRAIN, Step.VERIFY, Step.GROUPS, Step.PROMOTE, Step.TELL),
    Kind.FAILOVER: (Step.CHECK, Step.HOLD, Step.LOSS, Step.GROUPS, Step.PROMOTE, Step.TELL),
    Kind.FAILBACK: (
        Step.CHECK, Step.DIVERGED, Step.SETTLE, Step.QUIET, Step.DRAIN, Step.VERIFY, Step.GROUPS, Step.TELL,
    ),
}  # fmt: skip
STANDING: Final = frozenset({Step.QUIET, Step.DRAIN, Step.VERIFY})
"""Steps whose result holds only while the source's logs end where they ended then (`ends`)."""
CHANGING: Final = frozenset({Step.HOLD, Step.SETTLE, Step.GROUPS, Step.PROMOTE})
"""Steps that change something: an undo takes them back, or refuses."""
ENDS: Final = "ends"
EXPORTED: Final = "exported"
"""In the notes of DIVERGED and SETTLE: ranges that were written to a file, and that the flow passes over for good."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """The journal's note of a step. `found` is its result; of a step that is only begun, what was there before."""

    at_ms: int
    done: bool
    found: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A move of the flow's applications. `identity` tells it from earlier moves of the same kind."""

    kind: Kind
    flow: str
    identity: str
    began_ms: int
    phase: Phase = Phase.RUNNING
    options: Mapping[str, Any] = field(default_factory=dict)
    notes: Mapping[Step, Note] = field(default_factory=dict)

    def found(self, step: Step) -> Mapping[str, Any]:
        """Returns what a step has found, or what was there before it; nothing for a step that was not begun."""
        note = self.notes.get(step)
        return {} if note is None else note.found

    def is_done(self, step: Step) -> bool:
        note = self.notes.get(step)
        return note is not None and note.done


def next_step(move: Move, ends: Ends | None = None) -> Step | None:
    """Returns the step to do now; None when the move is over. `ends` are those of the source's logs now, if known."""
    if move.phase is not Phase.RUNNING:
        return None
    plan = PLANS[move.kind]
    return next((s for s in plan if not move.is_done(s) or _outdated(s, move, ends)), plan[-1])


def _outdated(step: Step, move: Move, ends: Ends | None) -> bool:
    if ends is None or step not in STANDING or promoted(move):
        return False
    return dict(move.found(step).get(ENDS, {})) != dict(ends)


def promoted(move: Move) -> Sequence[str]:
    """Returns the copies that the move promotes, or has promoted: nothing copies to them any more."""
    return list(move.found(Step.PROMOTE).get("promoted", ()))


def resumed(move: Move) -> Move:
    """Returns a move that another command goes on with.

    It looks again whether the source is lost, until it promoted, and shows again what is to be decided, until that is.
    """
    checked = move.notes.get(Step.CHECK)
    if move.kind is Kind.FAILOVER and checked is not None and not move.is_done(Step.PROMOTE):
        return _noted(move, Step.CHECK, replace(checked, done=False))
    shown = move.notes.get(Step.DIVERGED)
    if shown is None or Step.SETTLE in move.notes:
        return move
    return _noted(move, Step.DIVERGED, replace(shown, done=False))


def led_back(move: Move, others: Iterable[Move]) -> bool:
    """Returns whether applications went the other way after a move that is done: the same way is a new move then."""
    if move.phase is not Phase.DONE:
        return False
    ended_ms = max(note.at_ms for note in move.notes.values())
    return any(other.flow == opposite(move.flow) and _led(other, ended_ms) for other in others)


def _led(move: Move, since_ms: int) -> bool:
    """Returns whether a move led applications to its target since then. A failover did that when it held its flow, whenever it
    began: it may have begun long before, and have gone on since.
    """
    if Step.HOLD in move.notes and move.notes[Step.HOLD].at_ms >= since_ms:
        return True
    return move.began_ms >= since_ms and (move.phase is Phase.DONE or Step.SETTLE in move.notes)


def opposite(flow: str) -> str:
    """Returns `B->A` for `A->B`."""
    here, _, there = flow.partition("->")
    return f"{there}->{here}"


def restarted(move: Move, at_ms: int) -> Move:
    """Returns a move that begins anew. What was there before its changes stays known, so that an undo restores that.

    What SETTLE began to do is done to its end. After that, each side's records are looked at again, and what was exported
    stays known.
    """
    known = CHANGING | {Step.CHECK, Step.DIVERGED}
    kept = {s: replace(n, done=False) for s, n in move.notes.items() if s in known}
    if move.is_done(Step.SETTLE):
        exported = kept.pop(Step.SETTLE).found.get(EXPORTED, [])
        kept[Step.DIVERGED] = Note(at_ms=at_ms, done=False, found={EXPORTED: exported})
    return replace(move, phase=Phase.RUNNING, began_ms=at_ms, notes=kept)


def begun(move: Move, step: Step, before: Mapping[str, Any], at_ms: int) -> Move:
    """Notes what is there before a step, or its undo, changes it."""
    return _noted(replace(move, phase=Phase.RUNNING), step, Note(at_ms=at_ms, done=False, found=before))


def done(move: Move, step: Step, found: Mapping[str, Any], at_ms: int) -> Move:
    """Notes a step's result. Later steps must be done again; what was there before them stays known."""
    plan = PLANS[move.kind]
    later = set(plan[plan.index(step) + 1 :])
    kept = {s: replace(note, done=False) if s in later else note for s, note in move.notes.items()}
    after = _noted(replace(move, notes=kept), step, Note(at_ms=at_ms, done=True, found=found))
    over = step is plan[-1]
    return replace(after, phase=Phase.DONE) if over else after


def undo_next(move: Move) -> Step | None:
    """Returns the step to undo now, the latest first; None when nothing is left to undo."""
    for step in reversed(PLANS[move.kind]):
        if step in CHANGING and step in move.notes:
            return step
    return None


def undone(move: Move, step: Step) -> Move:
    """Forgets a step that was undone, and all behind it."""
    plan = PLANS[move.kind]
    gone = set(plan[plan.index(step) :])
    notes = {s: note for s, note in move.notes.items() if s not in gone}
    after = replace(move, phase=Phase.RUNNING, notes=notes)
    return closed(after) if undo_next(after) is None else after


def closed(move: Move) -> Move:
    """Returns a move of which nothing is left to undo."""
    return replace(move, phase=Phase.UNDONE, notes={})


def stored(move: Move) -> Move:
    """Returns a move as the journal gives it back: without applications' records, and without what can be computed again."""
    return replace(
        move,
        options=_as_read(move.options),
        notes={s: replace(n, found=_as_read(_kept(s, n.found))) for s, n in move.notes.items()},
    )


def _as_read(value: Mapping[str, Any]) -> Any:
    return json.loads(json.dumps(value))


def _kept(step: Step, found: Mapping[str, Any]) -> Mapping[str, Any]:
    match step:
        case Step.DIVERGED:
            sides = {s: [_without(t, "shown") for t in found[s]] for s in ("diverged", "own") if s in found}
            return {**found, **sides}
        case Step.GROUPS:
            return _without(found, "places")
        case _:
            return found


def _without(found: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    return {k: v for k, v in found.items() if k != key}


def _noted(move: Move, step: Step, note: Note) -> Move:
    return replace(move, notes={**move.notes, step: note})
