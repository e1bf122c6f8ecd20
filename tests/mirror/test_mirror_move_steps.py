"""The steps of a move, pure: every step is done, in order, whatever is killed and whatever the source gets meanwhile."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from klamm_kafka.wire.batch import Record
from klamm_mirror.move.journal import Journal, entries
from klamm_mirror.move.steps import (
    CHANGING,
    ENDS,
    PLANS,
    STANDING,
    Kind,
    Move,
    Phase,
    Step,
    begun,
    done,
    next_step,
    resumed,
    stored,
    undo_next,
    undone,
)  # fmt: skip

kinds = st.sampled_from(list(Kind))


def new(kind: Kind, identity: str = "1") -> Move:
    return Move(kind=kind, flow="A->B", identity=identity, began_ms=1)


def found_by(step: Step, ends: dict[str, int]) -> dict[str, object]:
    return {ENDS: ends} if step in STANDING else {}


def reread(journal: Journal, before: Move | None, after: Move, records: int | None = None) -> Move | None:
    """Returns the move as another process reads it, after a kill behind so many records of a change."""
    for entry in entries(before, after)[:records]:
        key, value = entry.encode()
        journal.take(Record(offset=0, timestamp=0, key=key, value=value))
    return journal.move(after.kind, after.flow)


@given(kinds, st.lists(st.tuples(st.booleans(), st.booleans(), st.integers(0, 3)), max_size=40))
def test_groups_are_set_when_all_is_copied_and_each_move_ends(kind, events):
    """Each event: the step is killed before its end, the source grows, so many records of its end reach the journal."""
    journal = Journal(None, "moves", 1)  # type: ignore[arg-type]
    end = 0
    move = reread(journal, None, new(kind))
    assert move is not None
    for killed, grows, records in [*events, *[(False, False, 9)] * 2 * len(PLANS[kind])]:
        ends = {"t-0": end}
        standing = any(move.is_done(s) for s in STANDING)
        step = next_step(move, ends if standing else None)
        if step is None:
            break
        plan = PLANS[kind]
        assert all(move.is_done(s) for s in plan[: plan.index(step)])
        if plan.index(step) > plan.index(Step.CHECK) and STANDING & set(plan[: plan.index(step)]):
            checked = [s for s in plan[: plan.index(step)] if s in STANDING]
            assert all(move.found(s)[ENDS] == ends for s in checked)
        noted = begun(move, step, {"before": 1}, 2) if step in CHANGING else move
        after = done(noted, step, found_by(step, ends), 3)
        now = reread(journal, move, noted)
        assert now == noted
        now = reread(journal, noted, after, 0 if killed else records)
        assert now is not None
        move, end = now, end + grows
    assert move.phase is Phase.DONE
    assert all(move.is_done(s) for s in PLANS[kind])


@given(kinds, st.integers(0, 12), st.integers(0, 3))
def test_what_was_begun_is_undone_in_reverse(kind, steps, records):
    journal = Journal(None, "moves", 1)  # type: ignore[arg-type]
    move = reread(journal, None, new(kind))
    assert move is not None
    changed: list[Step] = []
    for step in PLANS[kind][:steps]:
        after = done(move, step, found_by(step, {}), 3)
        reread(journal, move, after)
        move = after
        changed += [step] * (step in CHANGING)
    while (step := undo_next(move)) is not None:
        assert step == changed.pop()
        now = reread(journal, move, undone(move, step), records)
        assert now is not None
        if undo_next(now) == step:  # killed before it was noted: undone again
            changed.append(step)
            records = 9
        move = now
    assert not changed


def test_what_is_to_be_decided_is_shown_until_it_is():
    move = new(Kind.FAILBACK)
    for step in (Step.CHECK, Step.DIVERGED):
        move = done(move, step, {}, 2)
    assert next_step(move) is Step.SETTLE
    assert next_step(resumed(move)) is Step.DIVERGED
    assert next_step(resumed(begun(move, Step.SETTLE, {}, 3))) is Step.SETTLE


def test_a_new_move_takes_no_step_of_the_former_one():
    journal = Journal(None, "moves", 1)  # type: ignore[arg-type]
    first = new(Kind.CUTOVER)
    reread(journal, None, first)
    reread(journal, first, done(first, Step.CHECK, {}, 2))
    second = new(Kind.CUTOVER, "2")
    assert reread(journal, done(first, Step.CHECK, {}, 2), second) == second
    assert replace(second, notes={}) == second


def test_the_journal_keeps_no_records_of_applications():
    tail = {"topic": "t", "partition": 0}
    shown = {
        "at": "A",
        "diverged": [{**tail, "shown": [{"value": "secret"}]}],
        "own": [{**tail, "shown": []}],
    }
    move = done(new(Kind.FAILBACK), Step.DIVERGED, shown, 2)
    move = done(move, Step.GROUPS, {"before": {"places": {"t-0": 3}}, "places": [{"group": "g"}]}, 3)
    kept = stored(move)
    assert kept.found(Step.DIVERGED) == {"at": "A", "diverged": [tail], "own": [tail]}
    assert kept.found(Step.GROUPS) == {"before": {"places": {"t-0": 3}}}
    assert stored(kept) == kept
    assert move.found(Step.DIVERGED)["diverged"][0]["shown"]
